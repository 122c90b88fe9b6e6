"""Claims on the backward pass: (k) the gradient of Q, (l) what is stored, (m) what recomputation costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from fa_bench.claims.cases import FP16, FP32, D, N, a100, known
from fa_bench.claims.online import SEED, Float64, relative_error, softmax
from fa_bench.claims.result import Check, Figure, Judgement, judged, ratio, within
from fa_bench.model.dram import bytes_per_kernel, dram_traffic

#: More queries than columns, to tell shapes apart; and as many, where Σ P·dO has a meaning.
SEQ, HEAD_DIM = 24, 8
SQUARE: Final = 16
STEP: Final = 1e-5
#: Finite differences are this exact at most.
DIFFERENCES: Final = 1e-6

#: dQ from Q, K, V, dO and P.
Gradient = Callable[[Float64, Float64, Float64, Float64, Float64], Float64]


def printed_gradient(q: Float64, k: Float64, v: Float64, d_o: Float64, p: Float64) -> Float64:
    """dQ as printed: ``(dO·Vᵀ − rowsum(P ∘ dO)) ∘ P / √d``.

    The sum pairs columns of P (keys) with columns of dO (of V), which are as many only by chance: only those that both
    have are summed.
    """
    both = min(p.shape[1], d_o.shape[1])
    row = (p[:, :both] * d_o[:, :both]).sum(axis=1, keepdims=True)
    return np.asarray((d_o @ v.T - row) * p / math.sqrt(q.shape[1]))


def right_gradient(q: Float64, k: Float64, v: Float64, d_o: Float64, p: Float64) -> Float64:
    """dQ: ``[P ∘ (dP − rowsum(P ∘ dP))]·K / √d`` with ``dP = dO·Vᵀ``."""
    d_p = d_o @ v.T
    return np.asarray((p * (d_p - (p * d_p).sum(axis=1, keepdims=True))) @ k / math.sqrt(q.shape[1]))


def _problem(seq: int, head_dim: int) -> tuple[Float64, Float64, Float64, Float64, Float64]:
    q, k, v, d_o = np.random.default_rng(SEED).standard_normal((4, seq, head_dim))
    return q, k, v, d_o, softmax(q @ k.T / math.sqrt(head_dim))


def differences(q: Float64, k: Float64, v: Float64, d_o: Float64) -> Float64:
    """dQ of ``L = Σ dO ∘ O`` by central differences, an element of Q at a time."""

    def loss(q: Float64) -> float:
        return float((d_o * (softmax(q @ k.T / math.sqrt(q.shape[1])) @ v)).sum())

    gradient = np.empty_like(q)
    for at in np.ndindex(*q.shape):
        up, down = q.copy(), q.copy()
        up[at] += STEP
        down[at] -= STEP
        gradient[at] = (loss(up) - loss(down)) / (2 * STEP)
    return gradient


def query_gradient(printed: Gradient = printed_gradient) -> Judgement:
    """(k) ``dQ = (dO·Vᵀ − Σ_j P_ij dO_ij)·P / √d``."""
    problem = _problem(SEQ, HEAD_DIM)
    found = printed(*problem)
    how = f"elements of {found.shape[0]} x {found.shape[1]} for Q of {SEQ} x {HEAD_DIM}"
    size = Figure("size", found.size / problem[0].size, "times", how)
    square = _problem(SQUARE, SQUARE)
    numeric = differences(*square[:4])
    as_printed = printed(*square)
    # Without K the result has keys for columns; with N = d it can be multiplied by K all the same.
    with_k = as_printed if found.shape == problem[0].shape else as_printed @ square[1]
    over = f"max |dQ − differences| / max |differences|, N = d = {SQUARE}, float64"
    appended = Figure("with_k", relative_error(with_k, numeric), "error", f"·K appended, {over}")
    right = Figure("right", relative_error(right_gradient(*square), numeric), "error", over)
    others = Figure(
        "right_rectangular",
        relative_error(right_gradient(*problem), differences(*problem[:4])),
        "error",
        f"the same with N = {SEQ}, d = {HEAD_DIM}",
    )
    return judged((Check("shape", (size,), 1, 1), Check("value", (appended,), high=DIFFERENCES)), right, others)


def stored_statistics(stated_rows: float = 2.0) -> Judgement:
    """(l) For the backward pass only O and the statistics m and l are stored, ``stated_rows`` · N elements.

    What persists is read off the programs: the buffers of row vectors that the forward pass leaves behind, and the
    inputs of a backward pass.
    """
    flash1, flash2 = known("flash1", N), known("flash2", N)
    backward = known("flash2", N, direction="bwd")

    def rows(program_buffers: tuple[str, ...], of: str) -> tuple[float, str]:
        program = (flash1 if of == "flash1" else flash2).program
        return (
            sum(program.buffer(name).nbytes for name in program_buffers) / FP32 / N,
            " + ".join(f"{name} {program.buffer(name).nbytes:,} B" for name in program_buffers)
            + f", over 4 B · N, {of}",
        )

    first, second = rows(("m", "l"), "flash1"), rows(("LSE",), "flash2")
    inputs = [b for b in backward.program.buffers if b.name in ("Q", "K", "V", "O", "LSE")]
    persists = sum(buffer.nbytes for buffer in inputs)
    named = sum(buffer.nbytes for buffer in inputs if buffer.name in ("O", "LSE"))
    per_pair = N * N * FP16
    return judged(
        (
            Check("flash1", (Figure("flash1_rows", first[0], "number", first[1]),), *within(0.01, stated_rows)),
            Check("flash2", (Figure("flash2_rows", second[0], "number", second[1]),), *within(0.01, stated_rows)),
            Check(
                "only",
                (
                    Figure(
                        "named_share",
                        named / persists,
                        "percent",
                        f"O, LSE: {named:,} B of {', '.join(b.name for b in inputs)}: {persists:,} B, N = {N}, fp16",
                    ),
                ),
                low=0.95,
            ),
        ),
        Figure("score_matrix", per_pair / persists, "times", f"P in fp16, {per_pair:,} B, over {persists:,} B"),
        Figure("mask_of_dropout", N * N / 16, "times", f"a byte per pair, {N * N:,} B, over seed and offset, 16 B"),
    )


def recomputation(
    stated_flops: float = 2.0, tensor_tflops: float = 312.0, vector_tflops: float = 19.5, bandwidth_tbs: float = 1.5
) -> Judgement:
    """(m) Recomputing P costs ``stated_flops`` times the FLOPs and is faster all the same.

    Time of making Q·Kᵀ again, ``2·N²·d / rate``, against reading P, ``N² · bytes / bandwidth``: N² drops out, and
    recomputing is faster up to ``d = rate · bytes / (2 · bandwidth)``.
    """
    products = {"backward": (5, 4), "both": (7, 6)}
    flops = {
        name: Figure(f"flops_{name}", ours / theirs, "times", f"{ours} products of 2·N²·d against {theirs}")
        for name, (ours, theirs) in products.items()
    }
    checks = [Check(f"flops_{name}", (figure,), *within(0.1, stated_flops)) for name, figure in flops.items()]
    more = []
    for name, rate, itemsize in (("tensor", tensor_tflops, FP16), ("vector", vector_tflops, FP32)):
        limit = rate * itemsize / (2 * bandwidth_tbs)
        again, read = 2 * N**2 * D / (rate * 1e9), N**2 * itemsize / (bandwidth_tbs * 1e9)
        recompute = Figure(f"{name}_recompute", again, "ms", f"2 · {N}² · {D} / {rate:g} TFLOP/s")
        fetch = Figure(f"{name}_read", read, "ms", f"{N}² · {itemsize} B / {bandwidth_tbs:g} TB/s")
        checks.append(Check(f"faster_{name}", (ratio(f"{name}_ratio", recompute, fetch, f", d = {D}"),), high=1))
        more += [
            recompute,
            fetch,
            Figure(f"{name}_break_even", limit, "number", f"{rate:g} · {itemsize} / (2 · {bandwidth_tbs:g})"),
        ]
    gpu = a100()
    per_second = gpu.mufu_per_clk_per_sm * gpu.sm_count * gpu.boost_mhz * 1e6
    exponentials = Figure(
        "exponentials",
        N**2 / per_second * 1e3,
        "ms",
        f"{N}² / ({gpu.mufu_per_clk_per_sm} · {gpu.sm_count} SM · {gpu.boost_mhz:g} MHz)",
    )
    return judged(checks, *more, exponentials, *_whole_pass())


def _whole_pass() -> list[Figure]:
    """DRAM bytes and executed FLOPs, forward and backward, standard and flash2, with as many heads as fill a GPU."""
    gpu, seq, heads = a100(), 2048, 32
    found = []
    for impl in ("standard", "flash2", "flash2-atomic"):
        case = known(impl, seq, heads=heads, direction="fwd+bwd")
        moved = sum(bytes_per_kernel(dram_traffic(case.program, case.traffic, gpu)).values())
        slug = impl.replace("-", "_")
        how = f"forward and backward, {heads} heads, N = {seq}, d = {D}, {gpu.slug}, model"
        found.append(Figure(f"dram_{slug}", moved, "bytes", how))
        base = 12 * seq**2 * D * heads
        found.append(
            Figure(f"work_{slug}", case.work.flops_executed / base, "times", "executed FLOPs over those of 6 products")
        )
    return found
