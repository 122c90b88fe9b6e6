"""Memory of a CTA as the interpreter sees it: every access checked, and counted by brute force with sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from fa_bench.ptx.counters import SECTOR_BYTES, LaunchCounters, SharedCounters, TensorCounters
from fa_bench.ptx.interpreter.state import LANES, Lanes
from fa_bench.ptx.memory import Memory

if TYPE_CHECKING:
    from fa_bench.ptx.interpreter.barriers import Barriers
    from fa_bench.ptx.interpreter.state import Step, Warp

_BANKS: Final = 32
_WORD_BYTES: Final = 4
#: The top byte of a generic address is the place of its space in this list; global addresses are those of the host.
WINDOWS: Final = ("global", "shared", "local", "const", "param")
WINDOW_SHIFT: Final = 56
SHARED_WINDOW: Final = WINDOWS.index("shared") << WINDOW_SHIFT
_READ_ONLY: Final = ("const", "param")


class Tally:
    """Counts of a launch while it runs."""

    def __init__(self) -> None:
        self.tensors: Counter[tuple[str, str]] = Counter()
        self.shared: Counter[str] = Counter()
        self.instructions: Counter[str] = Counter()
        self.ctas = 0

    def request(self, sectors: dict[str, set[int]], direction: str) -> None:
        """Count one warp instruction that touches ``sectors`` of the buffers named."""
        for name, touched in sectors.items():
            self.tensors[name, f"{direction}_requests"] += 1
            self.tensors[name, f"{direction}_sectors"] += len(touched)

    def phases(self, phases: list[set[int]]) -> None:
        """Count one shared-memory instruction; each phase is the set of four-byte words that it touches."""
        phases = [words for words in phases if words]
        if not phases:
            return
        passes = [max(Counter(word % _BANKS for word in words).values()) for words in phases]
        self.shared["requests"] += 1
        self.shared["wavefronts"] += sum(passes)
        self.shared["conflicts"] += sum(passes) - len(passes)

    def result(self, memory: Memory) -> LaunchCounters:
        """The counts so far, frozen."""
        tensors = {
            b.name: TensorCounters(**{k: self.tensors[b.name, k] for k in TensorCounters.__dataclass_fields__})
            for b in memory.buffers()
        }
        shared = SharedCounters(**{k: self.shared[k] for k in SharedCounters.__dataclass_fields__})
        total = sum(self.instructions.values())
        return LaunchCounters(tensors, shared, dict(self.instructions), total, self.ctas)


def words(address: int, nbytes: int) -> set[int]:
    """Numbers of the four-byte words that an access touches."""
    return set(range(address // _WORD_BYTES, (address + nbytes - 1) // _WORD_BYTES + 1))


def lanes_per_phase(nbytes: int) -> int:
    """Lanes that shared memory serves at once, by access size: 32 up to 4 bytes, 16 for 8, 8 for 16."""
    return LANES // max(1, nbytes // _WORD_BYTES)


@dataclass(slots=True)
class Mbarrier:
    """An mbarrier: arrivals of each phase, arrivals that this one still waits for, and its number."""

    expected: int
    pending: int
    phase: int = 0

    def take(self, count: int) -> None:
        """``count`` arrivals; the last one starts the next phase."""
        self.pending -= count
        if self.pending == 0:
            self.phase += 1
            self.pending = self.expected


@dataclass(slots=True)
class Spaces:
    """Global, shared, constant and parameter memory of one CTA; local memory belongs to the warps."""

    memory: Memory
    shared: Lanes
    params: Lanes
    constant: Lanes
    tally: Tally
    #: mbarrier objects by their place in shared memory.
    mbarriers: dict[int, Mbarrier] = field(default_factory=dict)
    #: All warps of the CTA, and its barriers.
    warps: list[Warp] = field(default_factory=list)
    barriers: Barriers = field(init=False)

    def read(self, step: Step, space: str, addresses: list[int], nbytes: int) -> Lanes:
        """Bytes at ``addresses`` for the active lanes: uint8, shape (32, nbytes); zeros for the others."""
        found = np.zeros((LANES, nbytes), np.uint8)
        for lane, view in self.views(step, space, addresses, nbytes, "read").items():
            found[lane] = view
        return found

    def write(self, step: Step, space: str, addresses: list[int], data: Lanes) -> None:
        """Store ``data`` (uint8, shape (32, nbytes)) for the active lanes, in lane order."""
        for lane, view in self.views(step, space, addresses, data.shape[1], "write").items():
            view[:] = data[lane]

    def views(self, step: Step, space: str, addresses: list[int], nbytes: int, direction: str) -> dict[int, Lanes]:
        """The bytes that each active lane accesses, checked and counted; the space may be ``generic``.

        ``direction`` is "read", "write" or "atomic". Local, constant and parameter memory is not counted.
        """
        lanes = [int(lane) for lane in np.flatnonzero(step.on)]
        if space != "generic":
            return self._of_space(step, space, lanes, addresses, nbytes, direction)
        found: dict[int, Lanes] = {}
        number = [address >> WINDOW_SHIFT for address in addresses]
        for lane in lanes:
            if number[lane] >= len(WINDOWS):
                raise step.fault(f"the generic address {addresses[lane]:#x} is in no memory space", lane)
        offsets = [address & (1 << WINDOW_SHIFT) - 1 for address in addresses]
        for k, name in enumerate(WINDOWS):
            here = [lane for lane in lanes if number[lane] == k]
            if here:
                found |= self._of_space(step, name, here, offsets, nbytes, direction)
        return found

    def _of_space(
        self, step: Step, space: str, lanes: list[int], addresses: list[int], nbytes: int, direction: str
    ) -> dict[int, Lanes]:
        if space == "global":
            return self.touch_global(step, lanes, addresses, [nbytes] * LANES, nbytes, direction)
        if space == "shared":
            return self.touch_shared(step, lanes, addresses, nbytes)
        if direction == "atomic" or (direction == "write" and space in _READ_ONLY):
            raise step.fault(f"{space} memory has no {direction} access", lanes[0])
        parts = {
            lane: {"local": step.warp.local[lane], "const": self.constant, "param": self.params}[space]
            for lane in lanes
        }
        what = f"{space} memory"
        return {lane: self._window(step, lane, part, addresses[lane], nbytes, what) for lane, part in parts.items()}

    def touch_global(
        self, step: Step, lanes: list[int], addresses: list[int], sizes: list[int], align: int, direction: str
    ) -> dict[int, Lanes]:
        """Check and count a global access of ``sizes[lane]`` bytes at ``addresses[lane]``; a size of 0 is none."""
        views: dict[int, Lanes] = {}
        sectors: dict[str, set[int]] = {}
        for lane in lanes:
            address, nbytes = addresses[lane], sizes[lane]
            if nbytes == 0:
                continue
            _check_alignment(step, lane, address, align, "global")
            buffer = self.memory.find(address)
            if buffer is None or address + nbytes > buffer.address + buffer.nbytes:
                raise step.fault(f"{direction}s {nbytes} bytes at {address:#x}, {self._whereabouts(address)}", lane)
            start = address - buffer.address
            views[lane] = self.memory.array(buffer.name)[start : start + nbytes]
            touched = range(address // SECTOR_BYTES, (address + nbytes - 1) // SECTOR_BYTES + 1)
            sectors.setdefault(buffer.name, set()).update(touched)
        self.tally.request(sectors, direction)
        return views

    def touch_shared(self, step: Step, lanes: list[int], addresses: list[int], nbytes: int) -> dict[int, Lanes]:
        """Check and count a shared access of ``nbytes`` bytes per lane."""
        together = lanes_per_phase(nbytes)
        phases: list[set[int]] = [set() for _ in range(LANES // together)]
        views: dict[int, Lanes] = {}
        for lane in lanes:
            views[lane] = self.shared_window(step, lane, addresses[lane], nbytes)
            phases[lane // together] |= words(addresses[lane], nbytes)
        self.tally.phases(phases)
        return views

    def shared_window(self, step: Step, lane: int, address: int, nbytes: int) -> Lanes:
        """The bytes of shared memory that a lane accesses, checked."""
        return self._window(step, lane, self.shared, address, nbytes, "shared memory")

    def _window(self, step: Step, lane: int, data: Lanes, address: int, nbytes: int, what: str) -> Lanes:
        _check_alignment(step, lane, address, nbytes, what)
        if address + nbytes > data.size:
            raise step.fault(f"accesses {nbytes} bytes at {address:#x}, outside the {data.size} bytes of {what}", lane)
        return data[address : address + nbytes]

    def _whereabouts(self, address: int) -> str:
        near = self.memory.nearest(address)
        if near is None:
            return "but there are no buffers"
        if near.address <= address < near.address + near.nbytes:
            return f"past the end of buffer {near.name} ({near.nbytes} bytes at {near.address:#x})"
        distance = near.address - address if address < near.address else address - near.address - near.nbytes
        side = "before" if address < near.address else "past the end of"
        return (
            f"outside every buffer; the nearest is {near.name} ({near.nbytes} bytes at {near.address:#x}), "
            f"{distance} bytes {side} it"
        )


def _check_alignment(step: Step, lane: int, address: int, align: int, what: str) -> None:
    if address % align:
        raise step.fault(f"the address {address:#x} in {what} is not a multiple of {align}", lane)
