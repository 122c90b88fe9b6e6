"""Launches whose CTAs run side by side, as many at a time as the GPU holds, in turns.

A GPU starts one CTA on each SM, then a second one on each, until all places are taken; whoever ends makes room for the
next in line. Here each place (slot) has a CTA's state. In a round every CTA has one turn: each of its warps runs up to
its next barrier or for a bounded number of backward jumps. Then the memory system sees what the CTAs asked for, slot
after slot. So CTAs meet in the caches as they would on a GPU that gives each the same share of time, and the order does
not depend on threads: counts are the same every time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.errors import KernelFault
from fa_bench.ptx import machine
from fa_bench.ptx.caches import MemorySystem
from fa_bench.ptx.counters import LaunchCounters
from fa_bench.ptx.diagnosis import Report
from fa_bench.ptx.jit import compile_kernel
from fa_bench.ptx.layout import (
    DEADLOCK,
    DONE,
    FAULT,
    LANES,
    SECTOR_BYTES,
    START,
    STOPPED,
    YIELD,
    Context,
    Event,
    Slot,
)
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.program import Kernel
from fa_bench.ptx.tally import counters_of
from fa_bench.ptx.worker import Tally, Worker, packed, put

#: Backward jumps of a warp in one turn.
TURN: Final = 64
#: Events after which a warp's turn ends at its next backward jump.
LOG_EVENTS: Final = 1 << 12
_CTA, _CODE = Slot.CTA // 8, Slot.CODE // 8

#: Loads that are more than weak.
_STRONG: Final = ("volatile", "relaxed", "acquire")
#: What a step asked for: buffer, byte offset of the 128-byte line in it, mask of sectors, kind (:class:`Event`).
ACCESS: Final = np.dtype([("tensor", "u2"), ("offset", "i8"), ("sectors", "u1"), ("kind", "u1")])


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of one CTA.

    Attributes
    ----------
    cta : int
        Linear number in the grid.
    index : int
        Number of the turn, from 0.
    done : bool
        Whether the CTA has ended with it.
    tensors : sequence of str
        Names of the buffers that ``accesses`` counts.
    accesses : ndarray of ACCESS
        Line by line, in the order of the instructions. Offsets are those of lines: the first line of a buffer that does
        not start at one has a negative offset.
    """

    cta: int
    index: int
    done: bool
    tensors: Sequence[str]
    accesses: NDArray[np.void]

    def traffic(self) -> dict[tuple[str, str], int]:
        """Global bytes of the turn by tensor and direction (``read``, ``write``, ``atomic``)."""
        total: dict[tuple[str, str], int] = {}
        nbytes = np.bitwise_count(self.accesses["sectors"]).astype(np.int64) * SECTOR_BYTES
        for tensor, kind in np.unique(self.accesses[["tensor", "kind"]]).tolist():
            mine = (self.accesses["tensor"] == tensor) & (self.accesses["kind"] == kind)
            key = (self.tensors[tensor], _OPERATIONS[kind])
            total[key] = total.get(key, 0) + int(nbytes[mine].sum())
        return total


_OPERATIONS: Final = {Event.CACHED: "read", Event.BYPASS: "read", Event.WRITE: "write", Event.ATOMIC: "atomic"}


class Waves:
    """A launch in turns. Parameters are those of :func:`fa_bench.ptx.launch`, and:

    Parameters
    ----------
    slots : int
        CTAs that run side by side: SMs times CTAs per SM.

    Raises
    ------
    ValueError
        If the launch is malformed.
    UnsupportedInstruction
        If the emulator cannot compile an instruction.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[np.generic[Any]],
        memory: Memory,
        slots: int,
        smem_bytes: int = 0,
        ctas: Sequence[int] | None = None,
        jobs: int = 1,
        budget: int = machine.DEFAULT_BUDGET,
    ) -> None:
        shared_bytes = machine.shared_bytes_of(kernel, grid, block, smem_bytes)
        self._compiled = compile_kernel(kernel, block[1] == block[2] == 1, "traced")
        params = packed(kernel, args)
        self.memory = kernel.storage.beside(memory)
        self._todo = machine.chosen_ctas(grid, ctas)
        self._next = 0
        self._all_go_on = False
        self._stop = np.zeros(1, np.uint32)
        # CTAs that look at what others do see the same every time only in one order.
        jobs = 1 if _meets_other_ctas(kernel) else jobs
        self._jobs = max(1, min(jobs, slots, len(self._todo)))
        count = max(1, min(slots, len(self._todo)))
        # CTAs that one thread runs in turn count in one place.
        self._tallies = [Tally(self._compiled, self.memory) for _ in range(self._jobs)]
        self._workers = [
            Worker(self._compiled, grid, block, params, shared_bytes, tally, self._stop, budget, TURN)
            for tally in self._tallies
        ]
        self._workers += [self._workers[k % self._jobs].another() for k in range(self._jobs, count)]
        self.names = self._tallies[0].names
        self._logs = self._place_logs()
        self.slots = np.zeros((count, Slot.SIZE // 8), np.int64)
        self.slots[:, Slot.CONTEXT // 8] = [worker.context.ctypes.data for worker in self._workers]
        self.slots[:, _CODE] = DONE
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._turns = self._compiled.function("take_turns", None, pointer, number, number, number)

    def _place_logs(self) -> list[NDArray[np.int64]]:
        """A log for each slot."""
        sites = max(1, len(self._compiled.plan.global_sites))
        # Between two backward jumps each lane executes an instruction at most once.
        room = LOG_EVENTS + self._workers[0].num_warps * sites * LANES
        logs = []
        for worker in self._workers:
            log = np.empty(room, np.int64)
            logs.append(log)
            put("<QqQ", worker.context, Context.LOG, log.ctypes.data, 0, LOG_EVENTS)
        return logs

    def rounds(self) -> Iterator[None]:
        """Run: one round at each step, after which every slot's log has what its CTA asked for.

        Raises
        ------
        KernelFault
            If the kernel does something illegal.
        """
        pool = ThreadPoolExecutor(self._jobs) if self._jobs > 1 else None
        try:
            while self._seat():
                self._round(pool)
                yield
        except BaseException:
            self._stop[0] = 1
            raise
        finally:
            if pool is not None:
                pool.shutdown()

    def _seat(self) -> bool:
        """Give free slots the next CTAs, in order; whether anybody runs."""
        if self._all_go_on:
            return True
        free = np.flatnonzero(self.slots[:, _CODE] == DONE)
        seated = self._todo[self._next : self._next + len(free)]
        self.slots[free[: len(seated)], _CTA] = seated
        self.slots[free[: len(seated)], _CODE] = START
        self._next += len(seated)
        return len(free) < len(self.slots) or len(seated) > 0

    def _round(self, pool: ThreadPoolExecutor | None) -> None:
        address, count = self.slots.ctypes.data, len(self.slots)
        if pool is None:
            self._turns(address, 0, 1, count)
        else:
            futures = [pool.submit(self._turns, address, k, self._jobs, count) for k in range(self._jobs)]
            for future in futures:
                future.result()
        codes = self.slots[:, _CODE]
        self._all_go_on = bool((codes == YIELD).all())
        if self._all_go_on:
            return
        for k in np.flatnonzero((codes == FAULT) | (codes == DEADLOCK)):
            report = Report(self._compiled, self.memory)
            raise KernelFault(report.sentence(self._workers[k], int(self.slots[k, _CODE])))
        if (codes == STOPPED).any():
            raise KeyboardInterrupt

    @property
    def started(self) -> int:
        """CTAs that have begun."""
        return self._next

    def events(self, slot: int) -> NDArray[np.int64]:
        """What the CTA in this slot asked for in its last turn, see :class:`fa_bench.ptx.layout.Event`."""
        worker = self._workers[slot]
        return self._logs[slot][: worker.field(Context.LOG_COUNT, "<q")]

    def counters(self, per_instruction: bool = False) -> LaunchCounters:
        """What was counted so far, caches left out."""
        ctas = sum(worker.field(Context.CTAS_DONE, "<q") for worker in self._workers)
        return counters_of(self._compiled, self._tallies, ctas, per_instruction)


def _meets_other_ctas(kernel: Kernel) -> bool:
    """Whether CTAs may tell each other something: by atomic operations, or by loads that see other threads' stores."""
    return any(
        instruction.row.op in ("atom", "red")
        or (instruction.row.op in ("ld", "ld.global") and any(map(instruction.has, _STRONG)))
        for instruction in kernel.instructions
        if not instruction.has("shared")
    )


def walk(
    kernel: Kernel,
    *,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    args: Sequence[np.generic[Any]],
    memory: Memory,
    smem_bytes: int = 0,
    ctas: Sequence[int] | None = None,
) -> Iterator[Step]:
    """Run CTAs one after the other and stop after each turn: memory can be looked at in between.

    Parameters are those of :func:`fa_bench.ptx.launch`.

    Yields
    ------
    Step

    Raises
    ------
    KernelFault
        If the kernel does something illegal.
    """
    waves = Waves(
        kernel, grid=grid, block=block, args=args, memory=memory, slots=1, smem_bytes=smem_bytes, ctas=ctas
    )  # fmt: skip
    devices = waves.memory.device_addresses()
    bases = np.array([devices[name] >> Event.LINE_SHIFT << Event.LINE_SHIFT for name in waves.names], np.int64)
    cta, index = -1, 0
    for _ in waves.rounds():
        now, code = int(waves.slots[0, _CTA]), int(waves.slots[0, _CODE])
        index = index + 1 if now == cta else 0
        cta = now
        yield Step(cta, index, code == DONE, waves.names, decoded(waves.events(0), bases))


def decoded(events: NDArray[np.int64], bases: NDArray[np.int64]) -> NDArray[np.void]:
    """Events as records; ``bases`` are the device addresses that the offsets of each buffer start from."""
    accesses = np.empty(len(events), ACCESS)
    accesses["tensor"] = events >> Event.TENSOR & 0xFFFF
    lines = events & ((1 << Event.LINE_BITS) - 1)
    accesses["offset"] = (lines << Event.LINE_SHIFT) - bases[accesses["tensor"]]
    accesses["sectors"] = events >> Event.SECTORS & 15
    accesses["kind"] = events >> Event.KIND & 7
    return accesses


def launch_waves(
    waves: Waves, system: MemorySystem, l1_bytes: int, beside: Callable[[Waves], None] = lambda waves: None
) -> LaunchCounters:
    """Run a launch in front of a memory system, which counts what L1, L2 and DRAM see.

    Parameters
    ----------
    waves : Waves
        Not yet run.
    system : MemorySystem
        As the launches before have left it.
    l1_bytes : int
        What an SM has left as L1.
    beside : callable
        Called after each round; may feed the system requests that are not the kernel's own.

    Returns
    -------
    LaunchCounters
        Global traffic; that of the caches is in ``system``.
    """
    system.begin(waves.memory.device_addresses(), waves.names, l1_bytes)
    for _ in waves.rounds():
        system.consume_slots(waves.slots)
        beside(waves)
    return waves.counters()
