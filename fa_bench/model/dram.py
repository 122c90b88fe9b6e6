"""DRAM traffic from global traffic: a first, simple model of the L2 cache.

Global traffic is what warps ask for; DRAM traffic is what L2 cannot answer. The model has two rules, all or
nothing each:

1. *Across kernels.* If all buffers of a program fit in L2 together, nothing is moved twice: an input is read once,
   by the first kernel that reads it, an output is written once, and workspaces never leave the cache. Otherwise
   every kernel starts with none of its operands in L2. So S and P of standard attention cross DRAM twice each,
   unless they fit.
2. *Within a kernel.* A tensor that is asked for once (global bytes no more than its size) is moved once. Tensors
   asked for more often are moved once if they fit in L2 together, counting only the parts that CTAs in flight
   work on; if they do not fit, each repetition misses.

The parts in flight: CTAs start in linear order, ``blocks_per_sm · SMs`` of them run at a time, and where the
launch orders them by slice these are w consecutive CTAs of c per slice, which touch at most
``⌈(w - 1) / c⌉ + 1`` slices. Shared K/V heads count once.

What it leaves out. CTAs that run in step share a line even if the tensor does not fit, so the second branch of
rule 2 is an upper estimate. A kernel that repeats an access at once (a row that is read twice) hits L2 whatever
the tensor's size. Output lines that are still in L2 when a kernel ends are counted as written. Hashing,
replacement, the two halves of large L2 caches, and streams that evict what would be read again are ignored.

Against counters: FlashAttention-2 on an A30 with 128 x 64 tiles and 32 query heads on 8 K/V heads at D = 128 moves
83.6 to 84.6 MB at S = 4096, where the model says 83.9; at S = 512 it moves 6.3 MB, where the model says 10.5,
because O stays in L2 (Nsight Compute, github.com/JakeFlasher/benchmark_flash_attention, ncu_metrics.csv).
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import occupancy

if TYPE_CHECKING:
    # Only for types: rooms below algorithms/ use this package, so it cannot import them while it is loaded.
    from fa_bench.algorithms.base import Buffer, Launch, Program, TensorBytes


def dram_traffic(program: Program, traffic: Sequence[TensorBytes], gpu: Gpu) -> tuple[TensorBytes, ...]:
    """DRAM traffic of a program, per kernel, tensor and direction.

    Parameters
    ----------
    program : Program
        Its buffers and launches; every kernel entry is launched once.
    traffic : sequence of TensorBytes
        Its global traffic in bytes, kernels in the order of their launches.
    gpu : Gpu
        Whose L2, SMs and limits count.

    Returns
    -------
    tuple of TensorBytes
        One entry for each of ``traffic``, never more bytes than it.

    Examples
    --------
    See ``docs/model.md``.
    """
    if program.nbytes <= gpu.l2_bytes:
        return _all_in_l2(program, traffic)
    sizes = {buffer.name: buffer.nbytes for buffer in program.buffers}
    repeats_fit = {launch.kernel.entry: _repeats_fit(program, launch, traffic, gpu) for launch in program.launches}
    return tuple(
        part
        if part.bytes <= sizes[part.tensor] or not repeats_fit[part.kernel]
        else dataclasses.replace(part, bytes=sizes[part.tensor])
        for part in traffic
    )


def bytes_per_kernel(traffic: Iterable[TensorBytes]) -> Mapping[str, int]:
    """Bytes by kernel entry, reads and writes of all tensors together."""
    total: defaultdict[str, int] = defaultdict(int)
    for part in traffic:
        total[part.kernel] += part.bytes
    return dict(total)


def live_bytes(buffer: Buffer, slices: int, live_slices: int) -> int:
    """Bytes of a buffer that belong to ``live_slices`` consecutive ones of ``slices`` (batch, query head) pairs.

    A K/V head that serves a group of g query heads is touched by at most ``⌈(live_slices - 1) / g⌉ + 1`` groups.

    Examples
    --------
    >>> from fa_bench.algorithms.base import Buffer
    >>> k = Buffer("K", "fp16", (1, 8, 4096, 128), (4194304, 524288, 128, 1), "input")
    >>> live_bytes(k, slices=32, live_slices=5) // (4096 * 128 * 2)
    2
    """
    heads = buffer.shape[0] * buffer.shape[1]
    live_heads = min(heads, _groups_touched(live_slices, slices // heads))
    return buffer.nbytes * live_heads // heads


def _all_in_l2(program: Program, traffic: Sequence[TensorBytes]) -> tuple[TensorBytes, ...]:
    """Rule 1, first half."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    seen: set[tuple[str, str]] = set()
    parts: list[TensorBytes] = []
    for part in traffic:
        buffer = buffers[part.tensor]
        crosses = (buffer.role, part.op) in (("input", "read"), ("output", "write"))
        first = (part.tensor, part.op) not in seen
        seen.add((part.tensor, part.op))
        nbytes = min(part.bytes, buffer.nbytes) if crosses and first else 0
        parts.append(dataclasses.replace(part, bytes=nbytes))
    return tuple(parts)


def _repeats_fit(program: Program, launch: Launch, traffic: Sequence[TensorBytes], gpu: Gpu) -> bool:
    """Rule 2: whether what this launch asks for more than once stays in L2 between the repetitions."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    repeated = {
        part.tensor
        for part in traffic
        if part.kernel == launch.kernel.entry and part.bytes > buffers[part.tensor].nbytes
    }
    if launch.ctas_per_slice:
        slices, live = _slices_in_flight(launch, gpu)
        return sum(live_bytes(buffers[name], slices, live) for name in repeated) <= gpu.l2_bytes
    return sum(buffers[name].nbytes for name in repeated) <= gpu.l2_bytes


def _slices_in_flight(launch: Launch, gpu: Gpu) -> tuple[int, int]:
    """Slices of a launch that orders its CTAs by slice, and how many of them CTAs in flight may touch."""
    ctas = math.prod(launch.grid)
    slices = ctas // launch.ctas_per_slice
    # Registers are not known before a kernel is compiled; without their limit the wave is, if anything, too large.
    blocks = occupancy(gpu, threads=math.prod(launch.block), smem_bytes=launch.smem_bytes, registers=0).blocks_per_sm
    wave = min(ctas, max(1, blocks) * gpu.sm_count)
    return slices, min(slices, _groups_touched(wave, launch.ctas_per_slice))


def _groups_touched(items: int, group: int) -> int:
    """The most groups of ``group`` that ``items`` consecutive items can touch."""
    return math.ceil((items - 1) / group) + 1
