"""Barriers of a CTA, and ``mbarrier`` objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fa_bench.errors import KernelFault
from fa_bench.ptx.interpreter.spaces import SHARED_WINDOW, Mbarrier
from fa_bench.ptx.interpreter.state import LANES, Barrier, Lanes, Step, Warp, semantic

_NUMBERS: Final = 16


@dataclass
class Phase:
    """A barrier that has not opened: threads that it is for (None: all of the CTA) and that have arrived."""

    threads: int | None
    arrived: int = 0
    waiting: list[Step] = field(default_factory=list)
    voters: int = 0
    votes: int = 0


class Barriers:
    """The barriers of a CTA whose warps are ``warps``."""

    def __init__(self, warps: list[Warp]) -> None:
        self._warps = warps
        self._phases: dict[int, Phase] = {}

    def arrive(self, step: Step, number: int, threads: int | None, waits: bool, votes: Lanes | None = None) -> None:
        """A warp arrives as a whole, also where lanes have exited; opens the barrier if it was the last."""
        phase = self._phases.setdefault(number, Phase(threads))
        if phase.threads != threads:
            raise step.fault(f"warps give barrier {number} different counts, {phase.threads} and {threads}")
        phase.arrived += LANES
        if waits:
            step.warp.barrier = Barrier(number, step.instruction)
            phase.waiting.append(step)
        if votes is not None:
            phase.voters += int(step.on.sum())
            phase.votes += int((votes & step.on).sum())
        self.open()

    def expected(self, number: int) -> int:
        """Threads that a barrier is for; warps that have exited are not waited for."""
        threads = self._phases[number].threads
        return LANES * sum(bool(warp.live.any()) for warp in self._warps) if threads is None else threads

    def open(self) -> None:
        """Open the barriers that all expected threads have reached."""
        for number, phase in list(self._phases.items()):
            if phase.arrived >= self.expected(number):
                del self._phases[number]
                for step in phase.waiting:
                    step.warp.barrier = None
                    _write_votes(step, phase)

    def deadlock(self) -> KernelFault:
        """The error for a CTA of which every warp waits."""
        stuck = []
        for warp in self._warps:
            if warp.barrier is not None:
                number = warp.barrier.number
                stuck.append(
                    f"warp {warp.index} waits at barrier {number} (PTX line {warp.barrier.instruction.line}), where "
                    f"{self._phases[number].arrived} of {self.expected(number)} threads arrived"
                )
        return KernelFault(f"{self._warps[0].kernel.name}, CTA {self._warps[0].cta}: deadlock; {'; '.join(stuck)}.")


def _write_votes(step: Step, phase: Phase) -> None:
    """The result of a ``bar.red`` for all threads that waited."""
    name = step.instruction.row.name
    if name.endswith("red.popc"):
        step.write(np.full(LANES, phase.votes, np.uint32))
    elif name.endswith("red"):
        every = step.instruction.has("and")
        step.write(np.full(LANES, phase.votes == phase.voters if every else phase.votes > 0))


def _numbers(step: Step, first: int, count: int) -> tuple[int, int | None]:
    """Barrier number and thread count, from ``count`` operands."""
    number = step.uniform(first)
    if number >= _NUMBERS:
        raise step.fault(f"barriers are numbered 0 to {_NUMBERS - 1}, not {number}")
    threads = step.uniform(first + 1) if count > 1 else None
    if threads is not None and (threads == 0 or threads % LANES):
        raise step.fault(f"a barrier's thread count is a positive multiple of 32, not {threads}")
    return number, threads


def _together(step: Step) -> bool:
    """False if no lane executes; a fault unless all live ones do."""
    if not step.on.any():
        return False
    if not np.array_equal(step.on, step.warp.live):
        raise step.fault("the barrier is divergent: only some of the warp's lanes reach it")
    return True


@semantic("bar.sync", "barrier.sync")
def synchronise(step: Step) -> None:
    """The warp waits until as many threads as asked for (all, if no count is given) are here."""
    if _together(step):
        number, threads = _numbers(step, 0, len(step.instruction.operands))
        step.warp.spaces.barriers.arrive(step, number, threads, waits=True)


@semantic("bar.arrive", "barrier.arrive")
def arrive(step: Step) -> None:
    """The warp counts as arrived and goes on."""
    if _together(step):
        number, threads = _numbers(step, 0, 2)
        step.warp.spaces.barriers.arrive(step, number, threads, waits=False)


@semantic("bar.red", "barrier.red", "bar.red.popc", "barrier.red.popc")
def reduce(step: Step) -> None:
    """The warp waits, then knows of how many threads the predicate holds: all, any, or the number."""
    if _together(step):
        last = len(step.instruction.operands) - 1
        number, threads = _numbers(step, 1, last - 1)
        step.warp.spaces.barriers.arrive(step, number, threads, waits=True, votes=step.read(last, "pred"))


# mbarrier: an object's eight bytes are opaque, so it is kept apart from shared memory.

_OBJECT_BYTES: Final = 8
_LARGEST_COUNT: Final = (1 << 20) - 1
_PHASE_SHIFT: Final = 20


def _places(step: Step, operand: int) -> list[int]:
    offset = 0 if step.instruction.has("shared") else SHARED_WINDOW
    return [address - offset for address in step.address(operand)]


def mbarriers(step: Step, operand: int) -> dict[int, Mbarrier]:
    """The mbarrier of each active lane."""
    places = _places(step, operand)
    return {int(lane): _object(step, int(lane), places[lane]) for lane in np.flatnonzero(step.on)}


def _each(step: Step, operand: int, act: Callable[[int, Mbarrier], int]) -> Lanes:
    """What ``act`` gives for every active lane, in lane order, and its mbarrier."""
    results = np.zeros(LANES, np.uint64)
    for lane, barrier in mbarriers(step, operand).items():
        results[lane] = act(lane, barrier)
    return results


def _object(step: Step, lane: int, place: int) -> Mbarrier:
    spaces = step.warp.spaces
    spaces.shared_window(step, lane, place, _OBJECT_BYTES)
    if place not in spaces.mbarriers:
        raise step.fault(f"there is no mbarrier at {place:#x} of shared memory", lane)
    return spaces.mbarriers[place]


@semantic("mbarrier.init")
def init(step: Step) -> None:
    places, counts = _places(step, 0), step.read(1, "u32")
    spaces = step.warp.spaces
    for lane in np.flatnonzero(step.on):
        spaces.shared_window(step, int(lane), places[lane], _OBJECT_BYTES)
        count = int(counts[lane])
        if not 1 <= count <= _LARGEST_COUNT:
            raise step.fault(f"an mbarrier is for 1 to {_LARGEST_COUNT} arrivals, not {count}", int(lane))
        spaces.mbarriers[places[lane]] = Mbarrier(count, count)


@semantic("mbarrier.inval")
def invalidate(step: Step) -> None:
    places = _places(step, 0)
    for lane in np.flatnonzero(step.on):
        step.warp.spaces.shared_window(step, int(lane), places[lane], _OBJECT_BYTES)
        step.warp.spaces.mbarriers.pop(places[lane], None)


@semantic("mbarrier.arrive", "mbarrier.arrive.noComplete", "mbarrier.arrive_drop", "mbarrier.arrive_drop.noComplete")
def arrive_at_object(step: Step) -> None:
    """Gives the state from before.

    ``.noComplete`` must leave an arrival pending; ``arrive_drop`` is not expected in the phases to come.
    """
    name = step.instruction.row.name
    partial = name.endswith("noComplete")
    counts = step.read(2, "u32") if partial else np.ones(LANES, np.uint32)

    def act(lane: int, barrier: Mbarrier) -> int:
        count = int(counts[lane])
        if count + partial > barrier.pending:
            raise step.fault(f"{count} arrivals, but the mbarrier has {barrier.pending} pending", lane)
        state = barrier.phase << _PHASE_SHIFT | barrier.pending
        if "arrive_drop" in name:
            barrier.expected -= count
        barrier.take(count)
        return state

    step.write(_each(step, 1, act))


@semantic("mbarrier.test_wait", "mbarrier.test_wait.parity")
def test_wait(step: Step) -> None:
    """Whether the phase of a state, or the last one of a parity, is complete. Copies that signal have done so."""
    if not step.on.any():
        return
    for warp in step.warp.spaces.warps:
        warp.settle()
    parity = step.instruction.row.name.endswith("parity")
    asked = step.read(2, "u32" if parity else "u64")

    def act(lane: int, barrier: Mbarrier) -> int:
        if parity:
            return barrier.phase % 2 != int(asked[lane])
        return barrier.phase != int(asked[lane]) >> _PHASE_SHIFT

    step.write(_each(step, 1, act).astype(bool))


@semantic("mbarrier.pending_count")
def pending_count(step: Step) -> None:
    step.write((step.read(1, "u64") & np.uint64(_LARGEST_COUNT)).astype(np.uint32))
