"""The time of a kernel, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fa_bench.cases import AttentionShape, Case
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.prediction.constants import Generation, Implementation
from fa_bench.prediction.kernels import MemoryPass, TiledKernel, mma_forward, wgmma_forward
from fa_bench.prediction.schedule import Grid
from fa_bench.prediction.timing import flops_per_clk, kernel_time, tile_cycles

A100, H100 = gpus.get("a100-sxm-80"), gpus.get("h100-sxm")
#: Nothing but the model: peaks, no launch.
BARE = Generation(clock_share=1.0, dram_share=1.0, launch_us=0.0)
PLAIN = Implementation(tile_factor=1.0, overhead=0.0)
CASE = Case("flash-attn-2", AttentionShape(4, 16, 16, 4096, 4096, 128))


def test_peaks_per_clock_and_sm() -> None:
    """An A100's SM does 1024 multiply-adds per clock on its tensor cores, Hopper's 2048."""
    assert flops_per_clk(A100, "fp16") == pytest.approx(2048, rel=1e-3)
    assert flops_per_clk(H100, "bf16") == pytest.approx(4096, rel=1e-3)
    # 64 fp32 lanes.
    assert flops_per_clk(A100, "fp32") == pytest.approx(128, rel=2e-3)


def test_cycles_of_a_tile_on_an_a100() -> None:
    """128 x 64 x 128: 4·8192·128 FLOPs / 2048; 8192 / 16 exponentials; 1.6 (2·8192 + 128·128) / 64 multiply-adds and
    1.6 · 1.5 · 8192 / 64 others; 2·98304 bytes / 128 of shared memory; 32768 / 64 of L2.
    """
    cycles = tile_cycles(mma_forward(CASE, 128, 64, 128, 4, 2), CASE, A100)
    assert cycles["tensor"] == pytest.approx(2048, rel=1e-3)
    assert cycles["exp"] == 512
    assert cycles["fma"] == pytest.approx(1.6 * (32768 / 64 + 192))
    assert cycles["shared"] == 1536
    assert cycles["l2"] == 512


def test_mma_on_hopper_has_63_percent_of_the_peak() -> None:
    cycles = tile_cycles(mma_forward(CASE, 128, 64, 128, 4, 2), CASE, H100)
    assert cycles["tensor"] == pytest.approx(1024 / 0.63, rel=1e-3)
    # Twice the A100's fp32 lanes.
    assert cycles["fma"] == pytest.approx(1.6 * (32768 / 128 + 192))


def test_wgmma_reads_its_operands_while_it_multiplies() -> None:
    """128 x 128 x 64: 4·16384·64 / 4096 = 1024 cycles of products; Q once and K and V by two warpgroups, 81920 bytes,
    640 cycles, hide behind them. 32 KiB of copies don't: 256 cycles.
    """
    cycles = tile_cycles(wgmma_forward(CASE, 128, 128, 64), CASE, H100)
    assert cycles["tensor"] == pytest.approx(1024, rel=1e-3)
    assert cycles["shared"] == 256


def one_pipe(**work: float) -> TiledKernel:
    """132 CTAs of four tiles each, with work on one pipe or two."""
    fields = {"tensor_flops": 0.0, "exps": 0.0, "fma_ops": 0.0, "alu_ops": 0.0, "smem_bytes": 0.0, "l2_bytes": 0.0}
    fields |= {"dram_bytes": 0.0} | work
    return TiledKernel("one", Grid((4,), 132), 1, "wgmma", **fields)


def test_a_kernel_with_one_pipe_takes_what_the_pipe_takes() -> None:
    """16000 exponentials a tile: 1000 cycles; four tiles on each of 132 SMs at 1 GHz: 4 µs."""
    time = kernel_time(one_pipe(exps=16000), CASE, H100, BARE, PLAIN, 1000)
    assert time.ms == pytest.approx(0.004)
    assert time.pipes_ms["exp"] == pytest.approx(0.004)
    assert time.balance == 1.0


def test_two_pipes_of_the_same_length_overlap_in_part() -> None:
    """Two of 1000 cycles: (2 · 1000^1.6)^(1/1.6) = 2^0.625 · 1000."""
    kernel = one_pipe(exps=16000, smem_bytes=128000)
    time = kernel_time(kernel, CASE, H100, BARE, PLAIN, 1000)
    assert time.tile_cycles == pytest.approx(2**0.625 * 1000)


def test_the_constants() -> None:
    """Factor 2 and 1000 cycles beside four tiles of 2000: 9000 cycles at 1 GHz, and 5 µs of launch."""
    late = Generation(1.0, 1.0, 5.0)
    time = kernel_time(one_pipe(exps=16000), CASE, H100, late, Implementation(2.0, 1000.0), 1000)
    assert time.ms == pytest.approx(0.009 + 0.005)


def test_memory_works_at_the_same_time() -> None:
    """Both for 4 µs: (2 · 4^6)^(1/6) = 2^(1/6) · 4. H100: 3350 GB/s, half of it 1675, 6.7 MB in 4 µs."""
    kernel = one_pipe(exps=16000, dram_bytes=6.7e6)
    time = kernel_time(kernel, CASE, H100, Generation(1.0, 0.5, 0.0), PLAIN, 1000)
    assert time.pipes_ms["dram"] == pytest.approx(0.004)
    assert time.ms == pytest.approx(2 ** (1 / 6) * 0.004)


def test_a_pass_over_memory() -> None:
    """3.35 GB at 3350 GB/s: 1 ms; broadcast: twice as long by this constant; and 10 µs of launch."""
    generation, eager = Generation(1.0, 1.0, 10.0), Implementation(1.0, 2.0)
    assert kernel_time(MemoryPass("softmax", 3.35e9), CASE, H100, generation, eager, 1830).ms == pytest.approx(1.010)
    mask = MemoryPass("mask", 3.35e9, broadcasts=True)
    assert kernel_time(mask, CASE, H100, generation, eager, 1830).ms == pytest.approx(2.010)


def test_a_product_of_pytorch() -> None:
    """989.4 GFLOP at 989.4 TFLOP/s, and at half of it by this constant: 2 ms."""
    product = MemoryPass("PV", 0.0, 989.4e9)
    assert kernel_time(product, CASE, H100, BARE, Implementation(2.0, 1.0), 1830).ms == pytest.approx(2.0)


def test_a_product_in_fp32() -> None:
    """66.9 GFLOP at an H100's 66.9 TFLOP/s of fp32 at 1980 MHz: 1 ms; the factor is that of tensor cores."""
    product = MemoryPass("PV", 0.0, 66.9e9, fp32=True)
    time = kernel_time(product, CASE, H100, BARE, Implementation(2.0, 1.0), 1980)
    assert (time.ms, time.pipes_ms["fma"]) == (pytest.approx(1.0), pytest.approx(1.0))
    assert "tensor" not in time.pipes_ms


def test_a_type_without_a_peak_is_refused() -> None:
    with pytest.raises(Unsupported, match="No tensor-core peak of t4"):
        flops_per_clk(gpus.get("t4"), "bf16")


def test_a_lone_cta_of_mma_overlaps_less() -> None:
    """Two pipes of 1000 cycles: 2^(1/1.4) · 1000 with one CTA on an SM, 2^(1/1.6) · 1000 with two; 2000 in turns."""
    both = replace(one_pipe(exps=16000, smem_bytes=128000), products="mma")
    for kernel, exponent in (
        (both, 1.4),
        (replace(both, blocks_per_sm=2), 1.6),
        (replace(both, overlaps=False), 1.0),
    ):
        time = kernel_time(kernel, CASE, H100, BARE, PLAIN, 1000)
        assert time.tile_cycles == pytest.approx(2 ** (1 / exponent) * 1000)


def test_counted_instructions_take_issue_slots() -> None:
    """4000 warp instructions, 1000 of them float, on four schedulers: 1000 cycles; on 64 lanes 1000 / 4 more."""
    kernel = replace(one_pipe(), instructions=4000.0, float_instructions=1000.0)
    assert tile_cycles(kernel, CASE, H100)["fma"] == 1000
    assert tile_cycles(kernel, CASE, A100)["fma"] == 1250
