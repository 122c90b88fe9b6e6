"""Claims on the GPU: (n) what binds before and after, (o) on-chip memory beside HBM."""

from __future__ import annotations

from typing import Final

from fa_bench.claims.cases import D, N, a100, known
from fa_bench.claims.result import Check, Figure, Judgement, by_a_factor, judged
from fa_bench.model import gpus
from fa_bench.model.compulsory import compulsory_read_bytes, compulsory_write_bytes
from fa_bench.model.flops import nominal
from fa_bench.model.gpu import Gpu
from fa_bench.model.roofline import ridge_flop_per_byte
from fa_bench.units import format_bytes

#: Query heads that keep every SM of an A100 busy.
HEADS: Final = 16
#: The GPUs of the papers whose ridges are compared.
GPUS: Final = ("a100-sxm-40", "a100-sxm-80", "h100-sxm")
#: "A tenth" and "a thousandth" are met within this factor.
ROUGHLY: Final = 1.5


def bound_by(flops_scale: float = 1.0) -> Judgement:
    """(n) FlashAttention turns a compute-bound computation into a memory-bound one.

    Arithmetic intensity, nominal FLOPs over DRAM bytes, against the ridge where a GPU's peaks of both are met. Above it
    arithmetic binds, below it memory.

    Parameters
    ----------
    flops_scale : float
        Times the FLOPs that are counted, to see what would have to change.
    """
    gpu = a100()
    ridges = []
    for slug in GPUS:
        other = gpus.get(slug)
        ridge = ridge_flop_per_byte(other, "fp16")
        assert ridge is not None
        how = f"{other.fp16_tensor_tflops:g} TFLOP/s / {other.mem_bandwidth_gbs:g} GB/s"
        ridges.append(Figure("ridge_" + slug.replace("-", "_"), ridge, "FLOP/B", how))
    lowest = min(ridges, key=lambda figure: figure.value)
    highest = max(ridges, key=lambda figure: figure.value)
    standard, flash = known("standard", N, heads=HEADS), known("flash2", N, heads=HEADS)
    flops = flops_scale * nominal(standard.case.shape)

    def intensity(name: str, nbytes: int, how: str) -> Figure:
        return Figure(name, flops / nbytes, "FLOP/B", f"{flops:,.0f} FLOP / {nbytes:,} B, {how}")

    where = f"{HEADS} heads, N = {N}, d = {D}, fp16"
    before = intensity("standard", standard.dram_bytes(gpu), f"DRAM of standard (model), {where}")
    after = intensity("flash2", flash.dram_bytes(gpu), f"DRAM of flash2 (model), {where}")
    compulsory = compulsory_read_bytes(flash.case) + compulsory_write_bytes(flash.case)
    tiles = flash.case.tile
    return judged(
        (Check("before", (before,), low=lowest.value), Check("after", (after,), high=highest.value)),
        intensity("flash2_compulsory", compulsory, f"Q, K, V read, O written once, {where}"),
        intensity("flash2_global", flash.global_bytes, f"before any cache, tiles of {tiles}, {where}"),
        *ridges,
    )


def on_chip(bandwidth: float = 10.0, capacity: float = 1000.0) -> Judgement:
    """(o) On-chip memory has over ``bandwidth`` times HBM's bandwidth and 1/``capacity`` of its capacity.

    Both are given per SM and over all SMs: a statement takes one of them for both figures.
    """
    checks, more = [], []
    for gib in (40, 80):
        gpu = a100(gib)
        per_clock, mhz, gbs = gpu.smem_bytes_per_clk_per_sm, gpu.boost_mhz, gpu.mem_bandwidth_gbs
        for where, sms in (("all", gpu.sm_count), ("one", 1)):
            fast = Figure(
                f"bandwidth_{where}_{gib}",
                sms * per_clock * mhz / 1e3 / gbs,
                "times",
                f"{sms} SM · {per_clock} B · {mhz:g} MHz / {gbs:g} GB/s",
            )
            small = Figure(
                f"capacity_{where}_{gib}",
                gpu.mem_bytes / (gpu.l1_bytes * sms),
                "count",
                f"{format_bytes(gpu.mem_bytes)} / ({sms} SM · {format_bytes(gpu.l1_bytes)})",
            )
            checks.append(Check(fast.name, (fast,), low=bandwidth))
            checks.append(Check(small.name, (small,), *by_a_factor(ROUGHLY, capacity)))
        more.append(_usable(gpu, gib))
    gpu = a100()
    one = gpu.smem_bytes_per_clk_per_sm * gpu.boost_mhz * 1e6
    how = f"{gpu.smem_bytes_per_clk_per_sm} B · {gpu.boost_mhz:g} MHz"
    more.append(Figure("rate_all", one * gpu.sm_count, "B/s", f"{gpu.sm_count} SM · {how}"))
    more.append(Figure("rate_one", one, "B/s", how))
    return judged(checks, *more)


def _usable(gpu: Gpu, gib: int) -> Figure:
    return Figure(
        f"usable_{gib}",
        gpu.smem_per_block_bytes,
        "bytes",
        f"most shared memory of a CTA, of {format_bytes(gpu.l1_bytes)} with L1",
    )
