"""Claims on the online softmax, in float64: (h) its updates as formulas, (i) as pseudo-code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.claims.result import ROUNDING, Check, Figure, Judgement, judged

Float64 = NDArray[np.float64]

SEQ, HEAD_DIM = 512, 64
SEED: Final = 7
BLOCKS: Final = (1, 4, 32)

#: What P·V of a block is weighted with when it is added to O: of m and l of the block, and of all blocks so far.
Weight = Callable[[Float64, Float64, Float64, Float64], Any]


def drawn(seq: int = SEQ, head_dim: int = HEAD_DIM) -> tuple[Float64, Float64, Float64]:
    """Q, K and V, standard normal."""
    q, k, v = np.random.default_rng(SEED).standard_normal((3, seq, head_dim))
    return q, k, v


def softmax(s: Float64) -> Float64:
    """Softmax of the rows of ``s``."""
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def relative_error(found: Float64, right: Float64) -> float:
    """Largest difference over the largest value; infinite where something is no finite number."""
    error = float(np.abs(found - right).max() / np.abs(right).max())
    return error if math.isfinite(error) else math.inf


def printed_weight(m_local: Float64, l_local: Float64, m: Float64, l: Float64) -> Any:  # noqa: E741 - the papers' name
    """The printed update adds softmax(block)·V as it is."""
    return 1.0


def right_weight(m_local: Float64, l_local: Float64, m: Float64, l: Float64) -> Any:  # noqa: E741 - likewise
    """The share of a row's exponentials that are the block's: ``l_local · e^(m_local − m) / l``."""
    return (l_local * np.exp(m_local - m) / l)[:, None]


def online(s: Float64, v: Float64, blocks: int, weight: Weight) -> tuple[Float64, Float64, Float64]:
    """O, m and l from scores ``s [Sq, Skv]`` in blocks of keys, O normalised after every block.

    ``O ← O · (l_old / l) · e^(m_old − m) + weight · softmax(block) · V``.
    """
    m, l = np.full(len(s), -np.inf), np.zeros(len(s))  # noqa: E741 - the papers' names
    o = np.zeros((len(s), v.shape[1]))
    for keys in np.array_split(np.arange(s.shape[1]), blocks):
        block = s[:, keys]
        m_local = block.max(axis=1)
        p = np.exp(block - m_local[:, None])
        l_local = p.sum(axis=1)
        m_old, l_old = m, l
        m = np.maximum(m_old, m_local)
        l = l_old * np.exp(m_old - m) + l_local * np.exp(m_local - m)  # noqa: E741 - likewise
        o = o * (l_old / l * np.exp(m_old - m))[:, None] + weight(m_local, l_local, m, l) * (
            (p / l_local[:, None]) @ v[keys]
        )
    return o, m, l


def updates(weight: Weight = printed_weight) -> Judgement:
    """(h) The updates of m and l, and of O, whose second term is softmax(block)·V."""
    q, k, v = drawn()
    s = q @ k.T / math.sqrt(HEAD_DIM)
    right = softmax(s) @ v
    top = s.max(axis=1)
    total = np.exp(s - top[:, None]).sum(axis=1)
    size = f"N = {SEQ}, d = {HEAD_DIM}, float64"
    found = {blocks: online(s, v, blocks, weight) for blocks in BLOCKS}
    m_error = max(relative_error(m, top) for _, m, _ in found.values())
    l_error = max(relative_error(l, total) for *_, l in found.values())  # noqa: E741 - the papers' name
    statistics = (
        Figure("m_error", m_error, "error", f"max |m − max s| / max |max s|, 1, 4 and 32 blocks, {size}"),
        Figure("l_error", l_error, "error", f"max |l − Σ e^(s − m)| / max l, 1, 4 and 32 blocks, {size}"),
    )
    checks = [Check("statistics", statistics, high=ROUNDING)]
    for blocks, (o, _, _) in found.items():
        figure = Figure(
            f"o_error_{blocks}", relative_error(o, right), "error", f"max |O − PV| / max |PV|, blocks: {blocks}, {size}"
        )
        checks.append(Check(f"output_{blocks}", (figure,), high=ROUNDING))
    mended = max(relative_error(online(s, v, blocks, right_weight)[0], right) for blocks in BLOCKS)
    return judged(
        checks, Figure("o_error_mended", mended, "error", "the same with the factor, the most of 1, 4 and 32 blocks")
    )


def pseudo_code(q: Float64, k: Float64, v: Float64, blocks: int, *, scaled: bool, unnormalised: bool) -> Float64:
    """The loop that shrinks O by ``e^(m_old − m)`` only and divides by l at its end.

    Parameters
    ----------
    scaled : bool
        Whether scores are divided by √d.
    unnormalised : bool
        Whether a block adds ``e^(S − m)·V``, which that division asks for, or softmax(S)·V.
    """
    m, l = np.full(len(q), -np.inf), np.zeros(len(q))  # noqa: E741 - the papers' names
    o = np.zeros((len(q), v.shape[1]))
    for keys in np.array_split(np.arange(len(k)), blocks):
        s = q @ k[keys].T / (math.sqrt(q.shape[1]) if scaled else 1.0)
        m_new = np.maximum(m, s.max(axis=1))
        p = np.exp(s - m_new[:, None])
        shrink = np.exp(m - m_new)
        l = l * shrink + p.sum(axis=1)  # noqa: E741 - likewise
        o = o * shrink[:, None] + (p if unnormalised else softmax(s)) @ v[keys]
        m = m_new
    return np.asarray(o / l[:, None])


def algorithm_as_code(*, scaled: bool = False, unnormalised: bool = False) -> Judgement:
    """(i) The pseudo-code adds softmax(block)·V, divides by l at the end, and has no 1/√d."""
    q, k, v = drawn()
    exact = softmax(q @ k.T / math.sqrt(HEAD_DIM)) @ v
    size = f"N = {SEQ}, d = {HEAD_DIM}, float64"

    def error(name: str, blocks: int, scaled: bool, unnormalised: bool) -> Figure:
        o = pseudo_code(q, k, v, blocks, scaled=scaled, unnormalised=unnormalised)
        return Figure(name, relative_error(o, exact), "error", f"max |O − PV| / max |PV|, blocks: {blocks}, {size}")

    printed = [error(f"printed_{blocks}", blocks, scaled, unnormalised) for blocks in (1, 4)]
    unscaled = softmax(q @ k.T / (math.sqrt(HEAD_DIM) if scaled else 1.0)) @ v
    standard = Figure(
        "standard_printed",
        float(np.abs(unscaled - exact).max()),
        "error",
        f"max |softmax(QKᵀ)V − softmax(QKᵀ/√d)V|, {size}",
    )
    return judged(
        (
            Check("one_block", (printed[0],), high=ROUNDING),
            Check("four_blocks", (printed[1],), high=ROUNDING),
            Check("standard", (standard,), high=ROUNDING),
        ),
        error("only_scaled_1", 1, True, unnormalised),
        error("only_scaled", 4, True, unnormalised),
        error("only_unnormalised", 4, scaled, True),
        error("both_mended", 4, True, True),
    )
