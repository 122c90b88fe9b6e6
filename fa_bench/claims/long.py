"""Claim (s): sequences of more than a million."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fa_bench.cases import AttentionShape, Case
from fa_bench.claims.cases import Known, a100, known
from fa_bench.claims.result import Check, Figure, Judgement, judged
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.model.dram import bytes_per_kernel, dram_traffic
from fa_bench.model.gpu import Gpu
from fa_bench.model.roofline import roofline
from fa_bench.prediction import predict_time
from fa_bench.units import format_bytes, format_int, format_ms

HEAD_DIM: Final = 128
LENGTHS: Final = (2**20, 2**22)
HEADS: Final = (1, 32)
#: A GPU that is newer and larger than the A100.
LARGER: Final = "h200-sxm"


def _predicted(name: str, impl: str, seq: int, gpu: Gpu) -> tuple[Figure, ...]:
    """A predicted time of one head, with its interval; nothing where its tensors don't fit."""
    shape = AttentionShape(1, 1, 1, seq, seq, HEAD_DIM)
    try:
        time = predict_time(Case(impl, shape, layout="bshd"), gpu)
    except Unsupported:
        return ()
    within = f"{format_ms(time.low_ms)} … {format_ms(time.high_ms)}"
    how = f"predicted, {impl}, one head, forward, {gpu.slug}, {within}, {time.limiter}"
    return (Figure(name, time.ms, "ms", how),)


def _least_ms(case: Known, gpu: Gpu) -> float:
    """The least time that the peaks of ``gpu`` allow, in ms."""
    moved = bytes_per_kernel(dram_traffic(case.program, case.traffic, gpu))
    bound = roofline(case.case, case.work, moved, gpu)
    assert bound is not None and bound.ms is not None
    return bound.ms


def too_long(lengths: Sequence[int] = LENGTHS) -> Judgement:
    """(s) FlashAttention is not for N > 10⁶: its memory exceeds a GPU's.

    Q, K, V, O and the log-sum-exp of one layer, fp16, d = 128, forward, beside the memory of an A100 with 80 GiB. Times
    are the roofline's, below which no kernel comes, and predicted ones of FlashAttention-2 and -3.
    """
    gpu, larger = a100(80), gpus.get(LARGER)
    checks, more = [], []
    for seq in lengths:
        power = f"2_{seq.bit_length() - 1}"
        for heads in HEADS:
            case = known("flash2", seq, HEAD_DIM, heads=heads)
            size = case.program.nbytes
            share = Figure(
                f"memory_{power}_{heads}",
                size / gpu.mem_bytes,
                "percent",
                f"{format_bytes(size)} of {format_bytes(gpu.mem_bytes)}, heads: {heads}, N = {format_int(seq)}, "
                f"d = {HEAD_DIM}, fp16",
            )
            checks.append(Check(share.name, (share,), low=1))
        one = known("flash2", seq, HEAD_DIM)
        scores = known("standard", seq, HEAD_DIM)
        more += [
            Figure(f"standard_{power}", scores.extra_bytes, "bytes", f"S and P, one head, N = {format_int(seq)}, fp16"),
            Figure(f"extra_{power}", one.extra_bytes, "bytes", f"log-sum-exp, one head, N = {format_int(seq)}"),
            Figure(f"time_{power}", _least_ms(one, gpu), "ms", f"roofline, one head, forward, {gpu.slug}"),
            Figure(f"time_{power}_h200", _least_ms(one, larger), "ms", f"roofline, one head, forward, {larger.slug}"),
            *_predicted(f"predicted_{power}", "flash-attn-2", seq, gpu),
            *_predicted(f"predicted_{power}_h200", "flash-attn-3", seq, larger),
        ]
    return judged(checks, *more)
