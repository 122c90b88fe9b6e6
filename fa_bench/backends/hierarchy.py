"""What the caches of the target GPU make of a program: its launches, CTAs side by side, in front of L1, L2 and DRAM.

Grids that are too large are run to a steady state and continued. CTAs start in linear order, slice after slice; so a
prefix of whole slices is run, every CTA of it, and what a slice of its second half adds is what each further slice
would add.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from fa_bench.algorithms.base import SECTOR_BYTES, Launch, Op, Program, TensorBytes
from fa_bench.backends.base import Level
from fa_bench.backends.programs import alignment_classes
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel
from fa_bench.model.flops import multiply_adds
from fa_bench.model.gpu import Gpu
from fa_bench.model.l1 import l1_data_bytes
from fa_bench.model.occupancy import occupancy

#: Cases with at most this many multiply-adds run every CTA: some ten seconds on one core.
WHOLE_FMA: Final = 2**38
#: A prefix has at least this many waves of CTAs, and touches this many times the bytes that L2 holds.
STEADY: Final = 4
#: A prefix that would be more than this share of the slices is all of them.
WORTHWHILE: Final = 0.75

#: Tensor -> what was counted for it at each level; the emulator's ``MemoryCounters``.
ByTensor = Mapping[str, Any]


def steady_prefix(case: Case, program: Program, gpu: Gpu, waves: Sequence[int]) -> int | None:
    """Slices that have to be run for a steady state; None for all of them.

    Parameters
    ----------
    case : Case
    program : Program
    gpu : Gpu
    waves : sequence of int
        CTAs that run side by side, per launch.
    """
    s = case.shape
    by_slice = all(launch.ctas_per_slice for launch in program.launches)
    if multiply_adds(case) <= WHOLE_FMA or not by_slice or s.seqlens is not None:
        return None
    # Both halves hold whole groups of query heads that share a K/V head, and whole cycles of alignments.
    unit = 2 * math.lcm(s.group, len(alignment_classes(program, s)))
    enough = max(
        STEADY * gpu.l2_bytes * s.slices / program.nbytes,
        *(STEADY * wave / launch.ctas_per_slice for wave, launch in zip(waves, program.launches, strict=True)),
    )
    slices = math.ceil(enough / unit) * unit
    return None if slices > WORTHWHILE * s.slices else slices


@dataclass
class CacheRun:
    """One pass of a program through the memory system.

    Parameters
    ----------
    ptx : module
        The emulator.
    gpu : Gpu
    slices : int
        (batch, query head) pairs of the case.
    prefix : int, optional
        Slices that are run; all by default.
    variants : sequence of ptx.L2
        The L2s that see the requests; the first one is the best estimate.
    serial : bool
        Whether CTAs run one after the other instead of side by side.
    jobs : int
    """

    ptx: Any
    gpu: Gpu
    slices: int
    prefix: int | None
    variants: Sequence[Any]
    serial: bool
    jobs: int
    #: kernel -> per variant, tensor -> counters; in the order of the launches.
    counted: dict[str, list[ByTensor]] = field(default_factory=dict)
    #: kernel -> bytes that were written and are still in L2 when it ends.
    dirty_bytes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._system = self.ptx.MemorySystem(self.gpu.sm_count, self.variants)

    def launch(self, launch: Launch, kernel: CompiledKernel, ptx_kernel: Any, args: Sequence[Any], memory: Any) -> Any:
        """Run one launch after those before; its counters, of the CTAs that ran last."""
        blocks = blocks_per_sm(launch, kernel, self.gpu)
        smem_bytes = launch.smem_bytes + (kernel.static_smem_bytes or 0)
        l1_bytes = l1_data_bytes(self.gpu, blocks, smem_bytes)
        counts = [self._counters()]
        counters = None
        for ctas in self._parts(launch):
            waves = self.ptx.Waves(
                ptx_kernel,
                grid=launch.grid,
                block=launch.block,
                args=args,
                memory=memory,
                smem_bytes=launch.smem_bytes,
                slots=1 if self.serial else blocks * self.gpu.sm_count,
                ctas=ctas,
                jobs=self.jobs,
            )
            counters = self.ptx.launch_waves(waves, self._system, l1_bytes, self.beside)
            counts.append(self._counters())
        now = [self._whole(*(part[v] for part in counts)) for v in range(len(self.variants))]
        # A program may launch a kernel more than once.
        self.counted[kernel.entry] = [
            self._added(*both) for both in zip(self.counted.get(kernel.entry, [{}] * len(now)), now, strict=True)
        ]
        self.dirty_bytes[kernel.entry] = sum(self._system.dirty_sectors().values()) * SECTOR_BYTES
        return counters

    def _added(self, before: ByTensor, now: ByTensor) -> dict[str, Any]:
        zero = self.ptx.MemoryCounters()
        return {name: before.get(name, zero) + count for name, count in now.items()}

    def beside(self, waves: Any) -> None:
        """After each round: requests that are not the kernel's own. There are none."""

    def _parts(self, launch: Launch) -> list[range | None]:
        """CTAs to run: all, or the two halves of the prefix, each to its end."""
        if self.prefix is None:
            return [None]
        end = self.prefix * launch.ctas_per_slice
        return [range(end // 2), range(end // 2, end)]

    def _counters(self) -> list[ByTensor]:
        return [self._system.counters(v) for v in range(len(self.variants))]

    def _whole(self, before: ByTensor, *after: ByTensor) -> dict[str, Any]:
        """What the whole launch adds: what ran, and the other slices as those of the second half."""
        zero = self.ptx.MemoryCounters()
        total = {name: count - before.get(name, zero) for name, count in after[-1].items()}
        if self.prefix is None:
            return total
        half, full = after
        times = (self.slices - self.prefix) / (self.prefix // 2)
        return {
            name: count
            + self.ptx.MemoryCounters(*(round(times * n) for n in astuple(full[name] - half.get(name, zero))))
            for name, count in total.items()
        }

    def traffic(self) -> dict[Level, list[TensorBytes]]:
        """Bytes at L2 and DRAM by kernel, tensor and direction. An atomic operation reads and writes its sectors."""
        l2: list[TensorBytes] = []
        dram: list[TensorBytes] = []
        for kernel, variants in self.counted.items():
            for tensor, c in variants[0].items():
                for op, requests, sectors, hits in (
                    ("read", c.l2_read_requests + c.l2_atomic_requests, c.l2_read_sectors + c.l2_atomic_sectors,
                     c.l2_read_hits + c.l2_atomic_hits),
                    ("write", c.l2_write_requests + c.l2_atomic_requests, c.l2_write_sectors + c.l2_atomic_sectors,
                     None),
                ):  # fmt: skip
                    _append(l2, kernel, tensor, op, sectors, requests, hits)
                _append(dram, kernel, tensor, "read", c.dram_read_sectors)
                _append(dram, kernel, tensor, "write", c.dram_write_sectors)
        return {"l2": l2, "dram": dram}

    def l1_hits(self) -> dict[tuple[str, str], int]:
        """Bytes that L1 answered, by kernel and tensor."""
        return {
            (kernel, tensor): count.l1_read_hits * SECTOR_BYTES
            for kernel, variants in self.counted.items()
            for tensor, count in variants[0].items()
        }

    def dram_totals(self) -> list[dict[Op, int]]:
        """Bytes to and from DRAM of all kernels and tensors, per variant."""
        totals: list[dict[Op, int]] = []
        for v in range(len(self.variants)):
            counts = [count for variants in self.counted.values() for count in variants[v].values()]
            totals.append(
                {
                    "read": sum(c.dram_read_sectors for c in counts) * SECTOR_BYTES,
                    "write": sum(c.dram_write_sectors for c in counts) * SECTOR_BYTES,
                }
            )
        return totals


def _append(
    rows: list[TensorBytes],
    kernel: str,
    tensor: str,
    op: Any,
    sectors: int,
    requests: int | None = None,
    hits: int | None = None,
) -> None:
    if sectors:
        hit_bytes = None if hits is None else hits * SECTOR_BYTES
        rows.append(TensorBytes(kernel, tensor, op, sectors * SECTOR_BYTES, requests, hit_bytes))


def blocks_per_sm(launch: Launch, kernel: CompiledKernel, gpu: Gpu) -> int:
    """CTAs of a launch that one SM holds, at least 1."""
    found = occupancy(
        gpu,
        threads=math.prod(launch.block),
        smem_bytes=launch.smem_bytes + (kernel.static_smem_bytes or 0),
        registers=kernel.registers or 0,
    )
    return max(1, found.blocks_per_sm)


def best_l2(ptx: Any, gpu: Gpu) -> Any:
    """The L2 of ``gpu`` as well as it is known."""
    return ptx.L2(gpu.l2_bytes, gpu.l2_partitions)


def interval_l2s(ptx: Any, gpu: Gpu) -> list[Any]:
    """What is not published, at its ends: all of L2 or half of it, DRAM giving 32 or 64 bytes at a time."""
    return [ptx.L2.plain(gpu.l2_bytes // part, fetch) for part in (1, 2) for fetch in (32, 64)]


def interval(runs: Iterable[CacheRun]) -> dict[Op, tuple[int, int]]:
    """Least and most DRAM bytes over all variants of all runs, by direction."""
    totals = [total for run in runs for total in run.dram_totals()]
    ops: tuple[Op, Op] = ("read", "write")
    return {op: (min(total[op] for total in totals), max(total[op] for total in totals)) for op in ops}
