"""Our kernels: tiles and work from their rooms, instructions and wavefronts from shipped counts.

They run as FlashAttention-2's kernels do (``mma.sync``, copies ahead of the products), so its two constants hold for
them: nobody has published their times. Where instructions are counted, nothing is added for others: each takes an issue
slot of one of four schedulers, and a float instruction takes two where an SM has 64 fp32 lanes. Kernels without
products are passes over memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fa_bench import algorithms
from fa_bench.algorithms.base import Launch
from fa_bench.algorithms.tensors import padded_head_dim
from fa_bench.cases import Case
from fa_bench.errors import Unsupported
from fa_bench.model.dram import bytes_per_kernel, dram_traffic
from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import occupancy
from fa_bench.prediction.counts import Counted, counted_kernels
from fa_bench.prediction.kernels import Kernel, MemoryPass, TiledKernel, backward_lengths, forward_lengths
from fa_bench.prediction.memory import demand_memory
from fa_bench.prediction.schedule import Grid

_WAVEFRONT_BYTES: Final = 128


def with_tile(case: Case, gpu: Gpu) -> Case:
    """The case in its default tile for a GPU, unless it has a tile.

    Counted were tiles of the head dimensions that kernels are compiled for, so one between them gets the tile of the
    next.

    Raises
    ------
    Unsupported
        If the kernels know nothing of what it asks for, or don't run on the GPU.
    """
    algorithm = algorithms.get(case.impl)
    if (reason := algorithms.lacking(case, algorithm)) is not None:
        raise Unsupported(reason)
    if case.tile is None:
        padded = replace(case.shape, head_dim=padded_head_dim(case.shape.head_dim))
        case = replace(case, tile=algorithm.auto_tile(replace(case, shape=padded), gpu))
    if (reason := algorithm.unsupported(case, gpu)) is not None:
        raise Unsupported(reason)
    return case


def our_kernels(case: Case, gpu: Gpu) -> list[Kernel]:
    """The kernels of a case of ours.

    Raises
    ------
    Unsupported
        If it can't run, doesn't fit in memory, or if its tile was not counted.
    """
    case = with_tile(case, gpu)
    algorithm = algorithms.get(case.impl)
    counts = counted_kernels(case)
    if not counts:
        raise Unsupported(f"Nothing was counted of {case.impl} {case.tile} in {case.dtype}.")
    work, traffic, program = algorithm.work(case), algorithm.traffic(case), algorithm.program(case)
    assert work is not None and traffic is not None
    demand_memory(program.nbytes, gpu)
    dram = bytes_per_kernel(dram_traffic(program, traffic, gpu))
    asked = bytes_per_kernel(traffic)
    flops: defaultdict[str, int] = defaultdict(int)
    exps: defaultdict[str, int] = defaultdict(int)
    for entry, tensor, _, exponentials in work.per_kernel:
        flops[entry] += tensor
        exps[entry] += exponentials
    kernels: list[Kernel] = []
    for launch in program.launches:
        entry = launch.kernel.entry
        if entry in counts:
            kernels.append(_kernel(case, gpu, launch, counts[entry], flops, exps, asked, dram))
        else:
            kernels.append(MemoryPass(entry, dram.get(entry, 0)))
    return kernels


def _kernel(
    case: Case,
    gpu: Gpu,
    launch: Launch,
    counted: Counted,
    flops: Mapping[str, int],
    exps: Mapping[str, int],
    asked: Mapping[str, int],
    dram: Mapping[str, int],
) -> TiledKernel:
    entry, threads = launch.kernel.entry, math.prod(launch.block)
    # The compiler's figures are of the largest kernel; others of its program rarely hold more.
    registers = min(counted.registers, gpu.regs_per_sm // threads)
    resident = occupancy(gpu, threads=threads, smem_bytes=launch.smem_bytes, registers=registers)
    grid = _grid(case, launch)
    tiles = max(1, grid.tiles)
    return TiledKernel(
        name=entry,
        grid=grid,
        blocks_per_sm=max(1, resident.blocks_per_sm),
        products="mma",
        tensor_flops=flops[entry] / tiles,
        exps=exps[entry] / tiles,
        fma_ops=0.0,
        alu_ops=0.0,
        smem_bytes=counted.total("wavefronts", case) * _WAVEFRONT_BYTES / tiles,
        l2_bytes=asked.get(entry, 0) / tiles,
        dram_bytes=dram.get(entry, 0),
        instructions=counted.total("instructions", case) / tiles,
        float_instructions=counted.total("float_instructions", case) / tiles,
    )


def _grid(case: Case, launch: Launch) -> Grid:
    """CTAs and their lengths: those of a loop over K and V or over Q, where the grid is one; else all are alike.

    So are those of standard attention, whose products leave out nothing under a mask.
    """
    shape, tile = case.shape, case.tile
    assert tile is not None
    ctas = math.prod(launch.grid)
    if case.impl == "standard":
        return Grid((1,), ctas)
    for lengths in (
        forward_lengths(shape, tile.block_m, tile.block_n),
        backward_lengths(shape, tile.block_m, tile.block_n),
    ):
        if ctas == len(lengths) * shape.slices and any(lengths):
            return Grid(lengths, shape.slices)
    return Grid((1,), ctas)
