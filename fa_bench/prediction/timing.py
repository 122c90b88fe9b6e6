"""How long a kernel takes: the pipes of one SM, the CTAs over all SMs, and memory.

A tile keeps each pipe of an SM busy for some cycles:

    tensor = FLOPs / (peak per clock and SM)
    exp    = exponentials / 16
    fma    = 1.6 · (multiply-adds and adds / fp32 lanes + maxima and conversions / 64)
    shared = bytes / 128
    l2     = bytes / 64

If nothing overlapped, a tile would take their sum; if all did, the longest of them. Kernels that pipeline their loop
lie between:

    tile = factor · (tensor^1.6 + exp^1.6 + fma^1.6 + shared^1.6 + l2^1.6)^(1/1.6)

and kernels that do one after the other take the sum (an exponent of 1). A single CTA of ``mma.sync`` on an SM has the
exponent 1.4: where its barriers keep all warps, no other CTA goes on. ``wgmma`` reads its operands while it
multiplies, so there the longer of both counts as tensor. `factor` is one of an implementation's two constants; the
other is the cycles that a CTA takes beside its tiles. `fa_bench.prediction.schedule` says when the last CTA ends.
Memory works at the same time:

    kernel = ((end · tile / clock)^6 + (DRAM bytes / bandwidth)^6)^(1/6) + launch

and a pass of PyTorch's takes (product^1.6 + bytes^1.6)^(1/1.6) + launch.

Chosen once for all, by how well points whose GPU or shape was left out were predicted (scripts/fit_prediction.py): the
exponents 1.6, 1.4 and 6, and 1.6 times the arithmetic of the formulas for addresses, loops, masks and votes.

Peaks: ``mma.sync`` reaches 63 % of Hopper's tensor peak, which is that of ``wgmma``. Luo et al., Dissecting the NVIDIA
Hopper Architecture through Microbenchmarking and Multiple Level Analysis (arXiv 2501.12084), section 6.2 and table 7:
62.9 % on average; in fp16, m16n8k16, 494.4 of 756.5 TFLOP/s. The FlashAttention-3 article (PyTorch blog, footnote 1)
says about two thirds. For a B200 the share is inferred: an SM that runs ``mma.sync`` as an H100's does, 0.63 · 4096
FLOPs per clock, has a third of 2250 TFLOP/s / (148 · 1965 MHz) = 7737. Its limit was found measured nowhere; products
that need not reach it reach 17 % (383 TFLOP/s, github.com/gau-nernst/learn-cuda, 02e_matmul_sm100, v0).

An SM has 16 special functions per clock and 128 bytes of shared memory (CUDA C++ Programming Guide; unchanged from
Hopper to Blackwell: FlashAttention-4 article, together.ai/blog/flashattention-4), an A100's 64 fp32 lanes, later ones
128, which the registry's peaks say. L2 gives an SM 64 bytes per clock, which is an assumption: an A100's gives 5120
(A100 whitepaper), 47 per SM where all read at once. With 47 the fit is no better (5.3 % off instead of 5.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.cases import Case
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import WARP_SIZE, Gpu
from fa_bench.prediction.constants import Generation, Implementation
from fa_bench.prediction.kernels import Kernel, MemoryPass, TiledKernel

Pipe = Literal["tensor", "exp", "fma", "shared", "l2", "dram", "launch"]

_OVERLAP: Final = 1.6
_LONE_OVERLAP: Final = 1.4
_MEMORY_OVERLAP: Final = 6.0
_OTHER_INSTRUCTIONS: Final = 1.6
_ALU_LANES: Final = 64
_SCHEDULERS: Final = 4
_L2_BYTES_PER_CLK: Final = 64
#: Share of the tensor peak that ``mma.sync`` has, by major compute capability: measured for Hopper, inferred for 10.
_MMA_SHARE: Final[Mapping[int, float]] = {9: 0.63, 10: 0.33}


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel's time and what it is made of.

    Parameters
    ----------
    kernel : Kernel
    ms : float
    pipes_ms : mapping of Pipe to float
        Each alone, with all SMs busy all the time.
    tile_cycles : float or None
        A tile on an SM that has as many CTAs as fit; None for a pass over memory.
    end_tiles : float or None
        When the last CTA ends, in tiles of an SM.
    balance : float
        Mean work of an SM over that of the one that ends last; 1 where all end together.
    """

    kernel: Kernel
    ms: float
    pipes_ms: Mapping[Pipe, float]
    tile_cycles: float | None = None
    end_tiles: float | None = None
    balance: float = 1.0


def kernel_time(
    kernel: Kernel, case: Case, gpu: Gpu, generation: Generation, implementation: Implementation, clock_mhz: float
) -> KernelTime:
    """The time of one kernel.

    Parameters
    ----------
    kernel : Kernel
    case : Case
        Its type chooses the tensor peak.
    gpu : Gpu
    generation : Generation
    implementation : Implementation
    clock_mhz : float
        The SM clock while it runs.
    """
    dram_ms = kernel.dram_bytes / (gpu.mem_bandwidth_gbs * generation.dram_share) * 1e-6
    launch_ms = generation.launch_us * 1e-3
    if isinstance(kernel, MemoryPass):
        return _pass_time(kernel, case, gpu, implementation, dram_ms, launch_ms, clock_mhz)
    return _tiled_time(kernel, case, gpu, implementation, dram_ms, launch_ms, clock_mhz)


def flops_per_clk(gpu: Gpu, dtype: str) -> float:
    """FLOPs of an SM's tensor cores per clock; of its fp32 lanes where fp32 is multiplied without TF32.

    Raises
    ------
    Unsupported
        If the registry has no peak.
    """
    if dtype == "fp32":
        return gpu.fp32_tflops * 1e6 / (gpu.sm_count * gpu.boost_max_mhz)
    peak = gpu.tensor_tflops(dtype)
    if peak is None:
        raise Unsupported(f"No tensor-core peak of {gpu.slug} is known for {dtype}.")
    return peak * 1e6 / (gpu.sm_count * gpu.boost_mhz)


def tile_cycles(kernel: TiledKernel, case: Case, gpu: Gpu) -> dict[Pipe, float]:
    """Cycles for which a tile keeps each pipe of an SM busy."""
    peak = flops_per_clk(gpu, case.dtype)
    lanes = gpu.fp32_tflops * 1e6 / 2 / (gpu.sm_count * gpu.boost_max_mhz)
    tensor, shared = kernel.tensor_flops / peak, kernel.smem_bytes
    if kernel.products == "mma":
        tensor /= _MMA_SHARE.get(gpu.compute_capability[0], 1.0)
    else:
        tensor = max(tensor, kernel.operand_bytes / gpu.smem_bytes_per_clk_per_sm)
        shared -= kernel.operand_bytes
    # Compute capability 8.0 has 64 fp32 lanes; the quotient of rounded figures is near a power of two.
    fp32_lanes = 64 if lanes < 96 else 128
    arithmetic = _OTHER_INSTRUCTIONS * (kernel.fma_ops / fp32_lanes + kernel.alu_ops / _ALU_LANES)
    if kernel.instructions:
        # A float instruction of 32 lanes holds a scheduler for two clocks where an SM has 64 of them.
        twice = kernel.float_instructions * (4 * WARP_SIZE / fp32_lanes - 1)
        arithmetic = (kernel.instructions + twice) / _SCHEDULERS
    return {
        "tensor": tensor,
        "exp": kernel.exps / gpu.mufu_per_clk_per_sm,
        "fma": arithmetic,
        "shared": shared / gpu.smem_bytes_per_clk_per_sm,
        "l2": kernel.l2_bytes / _L2_BYTES_PER_CLK,
    }


def _exponent(kernel: TiledKernel) -> float:
    """How far the pipes overlap: not at all with 1."""
    if not kernel.overlaps:
        return 1.0
    return _LONE_OVERLAP if kernel.products == "mma" and kernel.blocks_per_sm == 1 else _OVERLAP


def _tiled_time(
    kernel: TiledKernel,
    case: Case,
    gpu: Gpu,
    implementation: Implementation,
    dram_ms: float,
    launch_ms: float,
    clock_mhz: float,
) -> KernelTime:
    cycles = tile_cycles(kernel, case, gpu)
    tile = implementation.tile_factor * _norm(cycles.values(), _exponent(kernel))
    overhead = implementation.overhead / tile
    end = kernel.grid.end(gpu.sm_count, kernel.blocks_per_sm, overhead)
    even = (kernel.grid.tiles + overhead * kernel.grid.ctas) / gpu.sm_count
    clocks_per_ms = clock_mhz * 1e3
    sm_ms = end * tile / clocks_per_ms
    per_sm = kernel.grid.tiles / gpu.sm_count / clocks_per_ms
    pipes: dict[Pipe, float] = {pipe: busy * per_sm for pipe, busy in cycles.items()}
    pipes |= {"dram": dram_ms, "launch": launch_ms}
    ms = _norm((sm_ms, dram_ms), _MEMORY_OVERLAP) + launch_ms
    return KernelTime(kernel, ms, pipes, tile, end, even / end if end else 1.0)


def _pass_time(
    kernel: MemoryPass,
    case: Case,
    gpu: Gpu,
    implementation: Implementation,
    dram_ms: float,
    launch_ms: float,
    clock_mhz: float,
) -> KernelTime:
    if kernel.broadcasts:
        dram_ms *= implementation.overhead
    tensor_ms = 0.0
    if kernel.tensor_flops:
        peak = flops_per_clk(gpu, "fp32" if kernel.fp32 else case.dtype)
        # The factor is that of products on tensor cores, which were fitted; fp32 lanes are taken at their peak.
        factor = 1.0 if kernel.fp32 else implementation.tile_factor
        tensor_ms = factor * kernel.tensor_flops / (peak * gpu.sm_count * clock_mhz * 1e3)
    product: Pipe = "fma" if kernel.fp32 else "tensor"
    pipes: dict[Pipe, float] = {product: tensor_ms, "dram": dram_ms, "launch": launch_ms}
    return KernelTime(kernel, _norm((tensor_ms, dram_ms), _OVERLAP) + launch_ms, pipes)


def _norm(values: Iterable[float], exponent: float) -> float:
    total: float = sum(value**exponent for value in values)
    return float(total ** (1 / exponent))
