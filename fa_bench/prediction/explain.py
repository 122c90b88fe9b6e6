"""A prediction's derivation with its numbers put in."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu
from fa_bench.prediction.kernels import MemoryPass, TiledKernel
from fa_bench.prediction.result import TimePrediction
from fa_bench.prediction.timing import KernelTime, tile_cycles
from fa_bench.units import format_bytes, format_count, format_ms, format_percent

_COLUMNS: Final = 80


def explain(case: Case, gpu: Gpu, made: TimePrediction) -> str:
    """Lines of at most 80 columns: each kernel's tile, CTAs and memory, their sum, and what limits it."""
    return "\n".join(_lines(case, gpu, made))


def _lines(case: Case, gpu: Gpu, made: TimePrediction) -> Iterator[str]:
    yield f"{gpu.sm_count} SMs at {made.clock_mhz:.0f} MHz, {gpu.mem_bandwidth_gbs:.0f} GB/s at the peak"
    for time in made.kernels:
        yield ""
        if isinstance(time.kernel, TiledKernel):
            yield from _tiled(time, time.kernel, case, gpu, made.clock_mhz)
        else:
            yield from _pass(time, time.kernel)
    yield ""
    yield f"together {format_ms(made.ms)}, {made.tflops:.0f} TFLOP/s; of a publication that was left out"
    yield f"nine in ten such times were between {format_ms(made.low_ms)} and {format_ms(made.high_ms)}"
    busy = sorted(made.terms_ms.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{pipe} {format_percent(min(1.0, ms / made.ms))}" for pipe, ms in busy)
    for sentence in (f"busy: {shares}", *made.advice, *made.notes):
        yield from textwrap.wrap(sentence, _COLUMNS)


def _tiled(time: KernelTime, kernel: TiledKernel, case: Case, gpu: Gpu, clock_mhz: float) -> Iterator[str]:
    assert time.tile_cycles is not None and time.end_tiles is not None
    grid = kernel.grid
    yield f"{kernel.name}: {format_count(grid.ctas)} CTAs, {kernel.blocks_per_sm} per SM, {grid.order}"
    flops, shared, from_l2 = round(kernel.tensor_flops), round(kernel.smem_bytes), round(kernel.l2_bytes)
    yield f"  a tile: {format_count(flops)} FLOPs by {kernel.products}, {kernel.exps:.0f} exponentials,"
    yield f"    {format_bytes(shared)} through shared memory, {format_bytes(from_l2)} from L2"
    cycles = tile_cycles(kernel, case, gpu)
    yield "    cycles: " + ", ".join(f"{pipe} {busy:.0f}" for pipe, busy in cycles.items())
    yield f"    {'overlapping' if kernel.overlaps else 'one after the other'}: {time.tile_cycles:.0f}"
    tiles = f"{format_count(grid.tiles)} tiles, {grid.tiles / gpu.sm_count:.1f} per SM"
    yield f"  {tiles}; the last CTA ends after {time.end_tiles:.1f}"
    sm_ms = time.end_tiles * time.tile_cycles / clock_mhz / 1e3
    dram = f"DRAM {format_ms(time.pipes_ms['dram'])} for {format_bytes(round(kernel.dram_bytes))}"
    yield f"  SMs {format_ms(sm_ms)}, {dram}"
    yield f"  = {format_ms(time.ms)} with {format_ms(time.pipes_ms['launch'])} for its launch"


def _pass(time: KernelTime, kernel: MemoryPass) -> Iterator[str]:
    parts = [f"DRAM {format_ms(time.pipes_ms['dram'])} for {format_bytes(round(kernel.dram_bytes))}"]
    if kernel.tensor_flops:
        busy = time.pipes_ms["fma" if kernel.fp32 else "tensor"]
        parts.append(f"{'fp32 lanes' if kernel.fp32 else 'tensor cores'} {format_ms(busy)}")
    yield f"{kernel.name}: {', '.join(parts)}"
    yield f"  = {format_ms(time.ms)} with {format_ms(time.pipes_ms['launch'])} for its launch"
