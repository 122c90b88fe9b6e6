"""Claim (e): how many times fewer accesses, and how much faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fa_bench.cases import AttentionShape, Case
from fa_bench.claims.cases import FP16, M_BYTES, D, a100, known
from fa_bench.claims.result import Check, Figure, Judgement, judged
from fa_bench.model import bounds
from fa_bench.prediction import predict_time
from fa_bench.published.points import Point, points
from fa_bench.units import format_int

#: Lengths over which accesses are compared.
LENGTHS: Final = tuple(512 * 2**i for i in range(8))
#: Published times of attention alone, of one batch and number of heads.
TABLES: Final = "FlashAttention tables 9-20"
#: Rows of all heads of predicted cases.
TOKENS: Final = 16 * 16384
#: End to end: training faster by so much, as the first paper's abstract says (arXiv 2205.14135). BERT-large against
#: MLPerf 1.1's record at N = 512, GPT-2 against HuggingFace at N = 1024, long-range arena at N = 1024 to 4096.
END_TO_END: Final = {"bert": 1.15, "gpt2": 3.0, "arena": 2.4}


def fewer_accesses(low: float = 2.0, high: float = 4.0) -> Judgement:
    """(e) FlashAttention makes ``low`` to ``high`` times fewer HBM accesses, and is that much faster.

    Accesses against standard attention in four passes over N², d = 64, fp16. Times are of an A100: attention alone from
    the first paper's tables and as predicted, end to end from its abstract.
    """
    ratios = {**_accesses(), **_times(), "time_predicted": _predicted()}
    checks = []
    for name, (values, how) in ratios.items():
        ends = tuple(
            Figure(f"{name}_{end}", of(values), "times", f"{how}, {end}") for end, of in (("least", min), ("most", max))
        )
        checks.append(Check(name, ends, low, high))
    for name, speedup in END_TO_END.items():
        figure = Figure(f"end_to_end_{name}", speedup, "times", "published: arXiv 2205.14135, abstract")
        checks.append(Check(figure.name, (figure,), low, high))
    return judged(checks)


def _accesses() -> dict[str, tuple[Sequence[float], str]]:
    """Standard attention's accesses over FlashAttention's: by the papers' algorithms, and in our kernels' bytes."""
    span = f"N = {format_int(LENGTHS[0])} … {format_int(LENGTHS[-1])}"
    _, block_n = bounds.flash1_blocks(bounds.sram_elements(M_BYTES, FP16), D)
    found: dict[str, tuple[Sequence[float], str]] = {
        "flash1_paper": (
            [bounds.standard(n, n, D).total / bounds.flash1(n, n, D, block_n).total for n in LENGTHS],
            f"(4·N² + 4·N·d) / (2·N·d + T_c·N·(3·d + 4)), block_n = {block_n}, {span}",
        ),
        "flash2_paper": (
            [bounds.standard(n, n, D).total / bounds.flash2(n, n, D, 128).total for n in LENGTHS],
            f"(4·N² + 4·N·d) / (2·N·d + T_r·2·N·d + N), block_m = 128, {span}",
        ),
    }
    for impl in ("flash1", "flash2"):
        found[f"{impl}_kernel"] = (
            [known("standard", n).global_bytes / known(impl, n).global_bytes for n in LENGTHS],
            f"global bytes of standard / {impl}, {span}",
        )
    return found


def _times() -> dict[str, tuple[Sequence[float], str]]:
    """Published times of attention as PyTorch's operators over those of FlashAttention, forward and backward."""
    measured = {
        (point.impl, point.masked, point.features.dropout_p > 0, point.shape.seq_q): point
        for point in points()
        if point.source == TABLES and point.direction == "fwd+bwd"
    }
    found: dict[str, tuple[Sequence[float], str]] = {}
    for name, busy, what in (("time_plain", False, "no mask, no dropout"), ("time_busy", True, "mask and dropout")):
        pairs: list[tuple[Point, Point]] = []
        for (impl, masked, dropout, seq), eager in measured.items():
            flash = measured.get(("flash-attn-1", masked, dropout, seq))
            if impl == "pytorch-eager" and masked == dropout == busy and seq >= LENGTHS[0] and flash is not None:
                pairs.append((eager, flash))
        lengths = sorted(eager.shape.seq_q for eager, _ in pairs)
        first = pairs[0][0]
        found[name] = (
            [eager.ms / flash.ms for eager, flash in pairs],
            f"published: arXiv 2205.14135, {first.note}, {first.gpu}, batch {first.shape.batch}, "
            f"{first.shape.heads_q} heads, {what}, N = {format_int(lengths[0])} … {format_int(lengths[-1])}",
        )
    return found


def _predicted() -> tuple[Sequence[float], str]:
    """The same forward, predicted, with FlashAttention-2 and as many heads as make `TOKENS` rows."""
    gpu = a100(80)
    lengths = [n for n in LENGTHS if n <= TOKENS // 16]
    values = []
    for n in lengths:
        shape = AttentionShape(TOKENS // n // 16, 16, 16, n, n, D)
        eager, flash = (
            predict_time(Case(impl, shape, layout="bshd"), gpu).ms for impl in ("pytorch-eager", "flash-attn-2")
        )
        values.append(eager / flash)
    span = f"N = {format_int(lengths[0])} … {format_int(lengths[-1])}"
    return (
        values,
        f"predicted: pytorch-eager over flash-attn-2, {gpu.slug}, 16 heads, batch · N = {TOKENS // 16}, {span}",
    )
