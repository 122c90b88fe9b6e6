"""Claims on what is computed: (r) exact, (t) not block-sparse, (u) linear attention is something else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench import reference
from fa_bench.backends import numpy_impls
from fa_bench.cases import Tile
from fa_bench.claims import emulated
from fa_bench.claims.cases import D, known
from fa_bench.claims.online import Float64, drawn, online, relative_error, right_weight, softmax
from fa_bench.claims.result import ROUNDING, Check, Figure, Judgement, judged, ratio
from fa_bench.storage import decode, encode

SEQ: Final = 256
BLOCK: Final = 32
#: Share of the blocks of a row that block-sparse attention keeps: its own, and neighbours.
KEPT: Final = 2
#: Against rounding S and P to fp16, as standard attention does.
NO_WORSE: Final = 1.0


def _rounded_standard(inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Standard attention whose S, P and O are rounded to fp16 and nothing else: products and softmax in float64."""
    q, k, v = (decode(inputs[name][0, 0], np.float64) for name in "QKV")
    s = (q @ k.T / math.sqrt(q.shape[1])).astype(np.float16).astype(np.float64)
    p = softmax(s).astype(np.float16).astype(np.float64)
    return np.asarray((p @ v).astype(np.float16))


def exact(weight: Callable[[Any, Any, Any, Any], Any] = right_weight) -> Judgement:
    """(r) FlashAttention is exact: no approximation, only another order of the same sums."""
    q, k, v = drawn(SEQ, D)
    s = q @ k.T / math.sqrt(D)
    blocked = relative_error(online(s, v, SEQ // BLOCK, weight)[0], softmax(s) @ v)
    checks = [
        Check(
            "algebra",
            (
                Figure(
                    "algebra", blocked, "error", f"blocks of {BLOCK} against all at once, N = {SEQ}, d = {D}, float64"
                ),
            ),
            high=ROUNDING,
        )
    ]
    case = known("flash2", SEQ).case
    inputs = reference.make_inputs(case)
    right, _ = reference.attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape)

    def error(o: NDArray[Any]) -> float:
        return float(np.abs(decode(o, np.float64).reshape(right.shape) - right).max())

    where = f"max |O − float64|, N = {SEQ}, d = {D}, fp16"
    rounded = Figure(
        "rounded_standard",
        error(encode(_rounded_standard(inputs), "fp16")),
        "error",
        f"S, P, O rounded to fp16, {where}",
    )
    runs = {impl: emulated.run(known(impl, SEQ).case) for impl in ("standard", "flash1", "flash2")}
    o, _ = numpy_impls.flash(inputs["Q"], inputs["K"], inputs["V"], case.shape, "fp16", Tile(64, 64))
    numpy_flash = Figure("numpy_flash", error(o), "error", f"numpy-flash, {where}")
    found = {
        impl: Figure(f"{impl}_error", error(run.output), "error", f"{impl}, emulated, {where}")
        for impl, run in runs.items()
        if run
    }
    if "flash2" not in found:
        return judged(checks, rounded, numpy_flash, lacking=("compiler",))
    checks.append(Check("rounding", (ratio("flash2_over_rounded", found["flash2"], rounded),), high=NO_WORSE))
    standard, flash2 = runs["standard"], runs["flash2"]
    assert standard is not None and flash2 is not None
    differing = float(np.mean(standard.output != flash2.output))
    return judged(
        checks,
        rounded,
        *found.values(),
        numpy_flash,
        Figure("differing", differing, "percent", "elements of O that standard and flash2 round differently"),
    )


def _block_sparse(s: Float64) -> Float64:
    """Scores with all but `KEPT` blocks of each row of blocks hidden: its own and the one before, cyclic."""
    blocks = len(s) // BLOCK
    hidden = np.full_like(s, -np.inf)
    for i in range(blocks):
        for back in range(KEPT):
            j = (i - back) % blocks
            at = np.s_[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK]
            hidden[at] = s[at]
    return hidden


def tiling_or_sparsity(weight: Callable[[Any, Any, Any, Any], Any] = right_weight) -> Judgement:
    """(t) Tiling changes what is moved and not what is computed; block-sparse attention computes less, and another O.

    Bytes and FLOPs are counted per block that is visited: Q-outer, each visit reads a block of K and of V and does the
    two products.
    """
    q, k, v = drawn(SEQ, D)
    s = q @ k.T / math.sqrt(D)
    right = softmax(s) @ v
    blocks = SEQ // BLOCK
    tiled = relative_error(online(s, v, blocks, weight)[0], right)
    hidden = _block_sparse(s)
    sparse = relative_error(softmax(hidden) @ v, right)
    visits = {
        "tiled": blocks * blocks,
        "sparse": int(np.isfinite(hidden).reshape(blocks, BLOCK, blocks, BLOCK).any(axis=(1, 3)).sum()),
    }
    standard_elements = 4 * SEQ**2 + 4 * SEQ * D
    where = f"N = {SEQ}, d = {D}, blocks of {BLOCK}"

    def flops(name: str) -> Figure:
        done = visits[name] * 4 * BLOCK * BLOCK * D
        return Figure(
            f"{name}_flops", done / (4 * SEQ**2 * D), "times", f"{visits[name]} of {blocks**2} blocks, {where}"
        )

    def moved(name: str) -> Figure:
        elements = 2 * SEQ * D + visits[name] * 2 * BLOCK * D
        return Figure(
            f"{name}_moved",
            elements / standard_elements,
            "times",
            f"{elements:,} elements / {standard_elements:,}, {where}",
        )

    return judged(
        (
            Check(
                "same_result",
                (Figure("tiled_error", tiled, "error", f"max |O − PV| / max |PV|, {where}"),),
                high=ROUNDING,
            ),
            Check("same_flops", (flops("tiled"),), 1, 1),
            Check("sparse_flops", (flops("sparse"),), high=0.99),
            Check(
                "sparse_result",
                (Figure("sparse_error", sparse, "error", f"the same, {KEPT} of {blocks} blocks"),),
                low=0.01,
            ),
        ),
        moved("tiled"),
        moved("sparse"),
    )


def _feature(x: Float64) -> Float64:
    """elu(x) + 1, the positive feature map of linear attention."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear_attention(feature: Callable[[Float64], Float64] = _feature) -> Judgement:
    """(u) Linear attention is a low-rank approximation of softmax attention.

    Its matrix ``φ(Q)·φ(K)ᵀ``, rows normalised, has the rank of the features; whether it is near softmax's P is another
    question. The best matrix of that rank is P's truncated singular value decomposition.
    """
    q, k, _ = drawn(SEQ, D)
    scale = D**-0.25
    kernel = feature(q * scale) @ feature(k * scale).T
    linear = kernel / kernel.sum(axis=1, keepdims=True)
    p = softmax(q @ k.T / math.sqrt(D))
    rank = int(np.linalg.matrix_rank(linear))
    u, sigma, vh = np.linalg.svd(p)
    best = (u[:, :D] * sigma[:D]) @ vh[:D]
    size = float(np.linalg.norm(p))
    where = f"N = {SEQ}, d = {D}, standard normal Q and K"
    best_error = float(np.linalg.norm(p - best)) / size
    error = float(np.linalg.norm(p - linear)) / size
    uniform = float(np.linalg.norm(p - 1 / SEQ)) / size
    return judged(
        (
            Check("rank", (Figure("rank", rank, "count", f"rank of φ(Q)·φ(K)ᵀ, {where}"),), high=D),
            Check(
                "approximation",
                (Figure("over_uniform", error / uniform, "times", f"{error:.3f} / {uniform:.3f}"),),
                high=0.5,
            ),
        ),
        Figure("softmax_rank", int(np.linalg.matrix_rank(p)), "count", f"rank of P, {where}"),
        Figure("error", error, "error", f"‖P − linear‖ / ‖P‖, elu + 1, {where}"),
        Figure("best_error", best_error, "error", f"the same of P's best matrix of rank {D}"),
        Figure("uniform_error", uniform, "error", "the same of 1/N everywhere"),
    )
