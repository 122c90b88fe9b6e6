"""Claim (j): a short attention module in blocks, as it is often printed. Each of its defects alone, in NumPy.

The module keeps O unnormalised until its end. What needs PyTorch (autograd) is in :mod:`fa_bench.claims.module_torch`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.claims.online import Float64, drawn, relative_error, softmax
from fa_bench.claims.result import ROUNDING, Check, Figure, Judgement, judged

#: Batch · heads, length, head_dim and block that the product is tried on.
SHAPES: Final = tuple(itertools.product((1, 8, 64), (64, 128), (32, 64), (32, 64)))
SEQ, HEAD_DIM = 256, 64
#: Some queries of a long sequence whose scores lie close together, and V with a mean: sums that fp16 does not hold.
LONG_SEQ, QUERIES, SPREAD, MEAN = 16384, 64, 0.1, 8.0

#: Which (query, key) pairs of the block at (start_i, start_j) are hidden, True where so.
Hidden = Callable[[int, int, int, int], NDArray[np.bool_]]
#: Whether the block with indices (i, j) at (start_i, start_j), of so many queries, is left out.
Skip = Callable[[int, int, int, int, int], bool]


def printed_product(p: Any, v: Any) -> Any:
    """The product as printed: P with an axis more, times V with one more, element by element."""
    return p[..., None] * v[:, None]


def matrix_product(p: Any, v: Any) -> Any:
    """The product that is meant."""
    return p @ v


def runs(product: Callable[[Any, Any], Any], groups: int, seq: int, head_dim: int, block: int) -> bool:
    """Whether ``O_block + product(P, V)`` can be made and stored in O's block ``[groups, block, head_dim]``."""
    rows = min(seq, block)
    o, v = (np.zeros((groups, rows, head_dim), np.int8) for _ in range(2))
    p = np.zeros((groups, rows, rows), np.int8)
    try:
        o[...] = o + product(p, v)
    except ValueError:
        return False
    return True


def offset_mask(start_i: int, start_j: int, rows: int, columns: int) -> NDArray[np.bool_]:
    """Keys after the query, from where the block stands: above diagonal ``start_i − start_j``."""
    return np.triu(np.ones((rows, columns), bool), k=1 + start_i - start_j)


def printed_mask(start_i: int, start_j: int, rows: int, columns: int) -> NDArray[np.bool_]:
    """The mask as printed: above each block's own diagonal, wherever the block stands."""
    return np.triu(np.ones((rows, columns), bool), k=1)


def printed_skip(i: int, j: int, start_i: int, start_j: int, rows: int) -> bool:
    """The skip as printed: blocks right of the diagonal by their indices."""
    return j > i


def row_skip(i: int, j: int, start_i: int, start_j: int, rows: int) -> bool:
    """Blocks whose first key comes after the last query."""
    return start_j > start_i + rows - 1


def causal(q: Float64, k: Float64, v: Float64, tile: tuple[int, int], hidden: Hidden, skip: Skip) -> Float64:
    """The module's loop in float64, with a mask and a rule for what is left out; all else is right."""
    block_m, block_n = tile
    o = np.empty((len(q), v.shape[1]))
    with np.errstate(invalid="ignore"):  # a row that sees nothing is NaN, and counts as infinitely wrong
        for i, start_i in enumerate(range(0, len(q), block_m)):
            q_i = q[start_i : start_i + block_m]
            m, l = np.full(len(q_i), -np.inf), np.zeros(len(q_i))  # noqa: E741 - the papers' names
            acc = np.zeros((len(q_i), v.shape[1]))
            for j, start_j in enumerate(range(0, len(k), block_n)):
                if skip(i, j, start_i, start_j, len(q_i)):
                    continue
                s = q_i @ k[start_j : start_j + block_n].T / math.sqrt(q.shape[1])
                s[hidden(start_i, start_j, *s.shape)] = -np.inf
                m_new = np.maximum(m, s.max(axis=1))
                p, shrink = np.exp(s - m_new[:, None]), np.exp(m - m_new)
                l = l * shrink + p.sum(axis=1)  # noqa: E741 - the papers' name
                acc = acc * shrink[:, None] + p @ v[start_j : start_j + block_n]
                m = m_new
            o[start_i : start_i + block_m] = acc / l[:, None]
    return o


def overflowing(accumulator: type[np.floating[Any]], block: int = 128) -> float:
    """Share of O that is infinite when the unnormalised O is kept in ``accumulator``; inputs are fp16, V has a mean."""
    rng = np.random.default_rng(11)
    q = (SPREAD * rng.standard_normal((QUERIES, HEAD_DIM))).astype(np.float16)
    k = rng.standard_normal((LONG_SEQ, HEAD_DIM)).astype(np.float16)
    v = (rng.standard_normal((LONG_SEQ, HEAD_DIM)) + MEAN).astype(np.float16)
    s = q.astype(np.float64) @ k.T.astype(np.float64) / math.sqrt(HEAD_DIM)
    m = np.full(QUERIES, -np.inf)
    acc = np.zeros((QUERIES, HEAD_DIM), accumulator)
    with np.errstate(over="ignore"):
        for start in range(0, LONG_SEQ, block):
            part = s[:, start : start + block]
            m_new = np.maximum(m, part.max(axis=1))
            p, shrink = np.exp(part - m_new[:, None]), np.exp(m - m_new)
            # Each step in double precision and then rounded: only where it is kept can it overflow.
            acc = (acc.astype(np.float64) * shrink[:, None] + p @ v[start : start + block]).astype(accumulator)
            m = m_new
    return float(np.isinf(acc).mean())


def lost_rows(guarded: bool) -> float:
    """Share of rows that are NaN when a row's first block is all hidden, as under a window, and later ones are not."""
    q, k, v = drawn(128, HEAD_DIM)
    s = q @ k.T / math.sqrt(HEAD_DIM)
    s[64:, :64] = -np.inf  # the second half of the queries sees the second half of the keys
    m, l, acc = np.full(128, -np.inf), np.zeros(128), np.zeros((128, HEAD_DIM))  # noqa: E741 - the papers' names
    with np.errstate(invalid="ignore"):
        for start in (0, 64):
            part = s[:, start : start + 64]
            m_new = np.maximum(m, part.max(axis=1))
            safe = np.where(np.isneginf(m_new), 0.0, m_new) if guarded else m_new
            p, shrink = np.exp(part - safe[:, None]), np.exp(m - safe)
            l = l * shrink + p.sum(axis=1)  # noqa: E741 - the papers' name
            acc = acc * shrink[:, None] + p @ v[start : start + 64]
            m = m_new
        return float(np.isnan(acc / l[:, None]).any(axis=1).mean())


def printed_module(
    product: Callable[[Any, Any], Any] = printed_product,
    hidden: Hidden = printed_mask,
    skip: Skip = printed_skip,
    accumulator: type[np.floating[Any]] = np.float16,
    *,
    guarded: bool = False,
    in_place: bool = True,
) -> Judgement:
    """(j) The module computes attention: it runs, masks, skips, accumulates and differentiates correctly.

    Each defect is looked at with all others mended.
    """
    from fa_bench.claims.module_torch import autograd_figures, blocked_error

    q, k, v = drawn(SEQ, HEAD_DIM)
    s = q @ k.T / math.sqrt(HEAD_DIM)
    s[np.triu(np.ones(s.shape, bool), 1)] = -np.inf
    exact = softmax(s) @ v

    def off(name: str, tile: tuple[int, int], hidden: Hidden, skip: Skip) -> Figure:
        how = f"max |O − PV| / max |PV|, causal, N = {SEQ}, blocks of {tile[0]}x{tile[1]}, float64"
        return Figure(name, relative_error(causal(q, k, v, tile, hidden, skip), exact), "error", how)

    tried = [runs(product, *shape) for shape in SHAPES]
    shapes = Figure(
        "runs", sum(tried) / len(tried), "percent", f"{sum(tried)} of {len(tried)} shapes can be stored in O"
    )
    mask = off("mask", (64, 64), hidden, row_skip)
    unequal = off("skip_unequal", (64, 32), offset_mask, skip)
    infinite = Figure(
        "overflow",
        overflowing(accumulator),
        "percent",
        f"share of O = Σ e^(s − m)·V that is inf in {np.dtype(accumulator).name}, N = {LONG_SEQ}, "
        f"scores {SPREAD} apart, mean of V {MEAN:.0f}",
    )
    lost = Figure("lost", lost_rows(guarded), "percent", "rows that are NaN, half of whose first blocks are hidden")
    checks = [
        Check("product", (shapes,), low=1),
        Check("mask", (mask,), high=ROUNDING),
        Check("skip", (unequal,), high=ROUNDING),
        Check("overflow", (infinite,), high=0),
        Check("lost", (lost,), high=0),
    ]
    more = [
        off("skip_equal", (64, 64), offset_mask, skip),
        off("mended", (64, 32), offset_mask, row_skip),
        Figure("overflow_fp32", overflowing(np.float32), "percent", "the same in float32"),
        Figure("lost_guarded", lost_rows(guarded=True), "percent", "the same where −inf − (−inf) is avoided"),
    ]
    gradients = autograd_figures(in_place)
    if gradients is None:
        return judged(checks, *more, lacking=("torch",))
    checks.append(Check("gradient", (gradients["backward"],), low=1))
    return judged(checks, *more, gradients["saved"], gradients["saved_blocked"], *blocked_error())
