"""The memory system behind the SMs: L1, L2 and what crosses to DRAM, as a simulation of the events that CTAs log.

A cache holds 128-byte lines of four 32-byte sectors, in sets of 16 places with least-recently-used replacement. L1
is one per SM: reads fill it, ``.cg`` reads pass it by, stores go through it and update what is there. L2 writes
back: a written sector goes to DRAM when its line has to leave, when too many lines of its set are dirty, or together
with others of the same DRAM page; what is still there when a kernel ends has not gone. Reading a sector that L2
doesn't have fetches that sector from DRAM, or the pair that it is in.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.ptx import jit, runtime
from fa_bench.ptx.layout import Cache, Event, L1Counts, L2Counts, System

LINE_BYTES: Final = 1 << Event.LINE_SHIFT
SECTOR_BYTES: Final = 32
#: Bytes of one set.
SET_BYTES: Final = Cache.WAYS * LINE_BYTES
#: What a channel of HBM2 holds of a DRAM page.
PAGE_BYTES: Final = 1024
#: Dirty lines that a set keeps before it writes one back, see docs/emulator.md.
DIRTY_WAYS: Final = Cache.WAYS // 2
#: Tensors that one system can tell apart.
MAX_TENSORS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class L2:
    """An L2 cache and the DRAM behind it.

    Parameters
    ----------
    nbytes : int
        Capacity, all partitions together; a multiple of 2 KiB per partition is used.
    partitions : int
        1, or 2: each line is at home in one, each SM goes through the one it is wired to, which keeps a copy.
    fetch_bytes : int
        What DRAM gives at a time, 32 or 64.
    page_bytes : int
        Part of a DRAM page that one channel holds, a power of two: when a line of it is written back, its other dirty
        lines are written too and stay as clean ones.
    dirty_ways : int
        Lines of a set of 16 that may be dirty. One more, and the oldest of them is written back and stays, clean.

    Raises
    ------
    ValueError
        If a figure is none of these.
    """

    nbytes: int
    partitions: int = 1
    fetch_bytes: int = SECTOR_BYTES
    page_bytes: int = PAGE_BYTES
    dirty_ways: int = DIRTY_WAYS

    def __post_init__(self) -> None:
        if self.partitions not in (1, 2):
            raise ValueError(f"An L2 has 1 or 2 partitions, not {self.partitions}.")
        if self.nbytes < SET_BYTES * self.partitions:
            raise ValueError(f"An L2 has at least {SET_BYTES} bytes in each partition, not {self.nbytes} in all.")
        if self.fetch_bytes not in (SECTOR_BYTES, 2 * SECTOR_BYTES):
            raise ValueError(f"DRAM gives 32 or 64 bytes at a time, not {self.fetch_bytes}.")
        if self.page_bytes < LINE_BYTES or self.page_bytes & self.page_bytes - 1:
            raise ValueError(f"A page has {LINE_BYTES} bytes or a power of two times that, not {self.page_bytes}.")
        if not 1 <= self.dirty_ways <= Cache.WAYS:
            raise ValueError(f"Of a set 1 to {Cache.WAYS} lines may be dirty, not {self.dirty_ways}.")

    @classmethod
    def plain(cls, nbytes: int, fetch_bytes: int = SECTOR_BYTES) -> L2:
        """One partition that writes back only what has to leave, and nothing with it."""
        return cls(nbytes, 1, fetch_bytes, page_bytes=LINE_BYTES, dirty_ways=Cache.WAYS)


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """What one tensor's traffic was at each level, in requests and 32-byte sectors.

    At L1 a request is a warp instruction, at L2 it is up to four sectors of one line. What L2 is asked for is what L1
    does not answer: ``l2_read_sectors = l1_read_sectors - l1_read_hits``, and every write. Hits are sectors.

    Raises
    ------
    ValueError
        If a count is negative.
    """

    l1_read_requests: int = 0
    l1_read_sectors: int = 0
    l1_read_hits: int = 0
    l1_write_requests: int = 0
    l1_write_sectors: int = 0
    l1_atomic_requests: int = 0
    l1_atomic_sectors: int = 0
    l2_read_requests: int = 0
    l2_read_sectors: int = 0
    l2_read_hits: int = 0
    l2_atomic_requests: int = 0
    l2_atomic_sectors: int = 0
    l2_atomic_hits: int = 0
    l2_write_requests: int = 0
    l2_write_sectors: int = 0
    dram_read_sectors: int = 0
    dram_write_sectors: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            if getattr(self, item.name) < 0:
                raise ValueError(f"MemoryCounters.{item.name} must not be negative.")

    def __add__(self, other: MemoryCounters) -> MemoryCounters:
        return MemoryCounters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: MemoryCounters) -> MemoryCounters:
        return MemoryCounters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


class MemorySystem:
    """Caches of one GPU, cold at first. L2 lives on from launch to launch; L1 does not.

    Parameters
    ----------
    sms : int
        Streaming multiprocessors.
    l2 : sequence of L2
        One, or several that all see the same requests: variants for an interval.

    Raises
    ------
    ValueError
        If there is no SM or no L2.

    Examples
    --------
    One line is read twice through L1, by the same SM: the second time nothing leaves it.

    >>> from fa_bench.ptx.caches import L2, MemorySystem
    >>> system = MemorySystem(sms=4, l2=[L2(1 << 20)])
    >>> system.begin({"Q": 0}, ["Q"], l1_bytes=16384)
    >>> system.access("Q", line=5, sectors=0b1111, kind="read", sm=2)
    >>> system.access("Q", line=5, sectors=0b0001, kind="read", sm=2)
    >>> q = system.counters()["Q"]
    >>> q.l1_read_sectors, q.l1_read_hits, q.l2_read_sectors, q.dram_read_sectors
    (5, 1, 4, 4)
    """

    def __init__(self, sms: int, l2: Sequence[L2]) -> None:
        if sms < 1 or not l2:
            raise ValueError("A memory system has at least one SM and one L2.")
        self.sms = sms
        self.l2 = tuple(l2)
        self._names: list[str] = []
        self._record = np.zeros(System.SIZE // 8, np.int64)
        self._l1: _Caches | None = None
        self._l1_counts = np.zeros((MAX_TENSORS, L1Counts.FIELDS), np.int64)
        self._caches = [
            _Caches(level.partitions, level.nbytes // level.partitions // SET_BYTES, level.page_bytes // LINE_BYTES)
            for level in self.l2
        ]
        self._counts = [np.zeros((MAX_TENSORS, L2Counts.FIELDS), np.int64) for _ in self.l2]
        self._levels = b"".join(
            struct.pack(
                "<qqqqq",
                caches.address,
                level.partitions,
                15 * (level.fetch_bytes == 64),
                _at(counts),
                level.dirty_ways,
            )
            for level, caches, counts in zip(self.l2, self._caches, self._counts, strict=True)
        )
        self._level_records = np.frombuffer(bytearray(self._levels), np.int64)
        self._tensors = np.zeros(1, np.int64)
        for offset, value in (
            (System.L1_COUNTERS, _at(self._l1_counts)),
            (System.LEVELS, _at(self._level_records)),
            (System.LEVEL_COUNT, len(self.l2)),
        ):
            self._record[offset // 8] = value

    def begin(self, places: Mapping[str, int], order: Sequence[str], l1_bytes: int) -> None:
        """Prepare for a launch: L1 is empty again.

        Parameters
        ----------
        places : mapping of str to int
            Device address of each buffer. A buffer of an earlier launch must be where it was.
        order : sequence of str
            Buffers in the order of their numbers in the events.
        l1_bytes : int
            What an SM has left as L1 beside the shared memory of its CTAs; at least one set of 2 KiB is there.

        Raises
        ------
        ValueError
            If there are too many tensors.
        """
        for name in places:
            if name not in self._names:
                self._names.append(name)
        if len(self._names) > MAX_TENSORS:
            raise ValueError(f"The memory system tells {MAX_TENSORS} tensors apart, not {len(self._names)}.")
        self._tensors = np.array([self._names.index(name) for name in order], np.int64)
        self._record[System.TENSORS // 8] = _at(self._tensors)
        self._l1 = _Caches(self.sms, max(1, l1_bytes // SET_BYTES))
        self._record[System.L1 // 8] = self._l1.address

    @property
    def address(self) -> int:
        """Address of the record that generated code takes."""
        return _at(self._record)

    def access(self, tensor: str, *, line: int, sectors: int, kind: str, sm: int) -> None:
        """Let one request pass, as if an SM had made it; for tests and for tracing by hand.

        Parameters
        ----------
        tensor : str
            Of the last :meth:`begin`.
        line : int
            Device address / 128.
        sectors : int
            Mask of four bits.
        kind : {"read", "bypass", "write", "atomic"}
        sm : int
        """
        number = int(np.flatnonzero(self._tensors == self._names.index(tensor))[0])
        self.feed(np.array([event(line, sectors, KINDS.index(kind), number)], np.int64), sm)

    def feed(self, events: NDArray[np.int64], sm: int) -> None:
        """Let the events of one CTA's turn pass, in order."""
        _code().consume(self.address, _at(events), len(events), sm)

    def consume_slots(self, slots: NDArray[np.int64]) -> None:
        """Let pass what the CTAs of all slots have logged in their last turn."""
        _code().consume_slots(self.address, _at(slots), len(slots), self.sms)

    def counters(self, variant: int = 0) -> dict[str, MemoryCounters]:
        """Counts so far by tensor, with the L2 number ``variant``."""
        both = np.concatenate([self._l1_counts, self._counts[variant]], axis=1)
        return {name: MemoryCounters(*both[k].tolist()) for k, name in enumerate(self._names)}

    def dirty_sectors(self, variant: int = 0) -> dict[str, int]:
        """Sectors that were written and are still in L2, by tensor."""
        states = self._caches[variant].states
        counts = np.bincount(states >> 8, np.bitwise_count(states >> 4 & 15), minlength=len(self._names))
        return {name: int(counts[k]) for k, name in enumerate(self._names)}


#: What :meth:`MemorySystem.access` calls the kinds of events.
KINDS: Final = ("read", "bypass", "write", "atomic")


def event(line: int, sectors: int, kind: int, tensor: int, first: bool = True) -> int:
    """An event as generated code logs it, see :class:`fa_bench.ptx.layout.Event`."""
    return (
        line
        | sectors << Event.SECTORS
        | kind << Event.KIND
        | tensor << Event.TENSOR
        | int(first) << Event.FIRST
    )  # fmt: skip


class _Caches:
    """Arrays of several caches of the same size."""

    def __init__(self, count: int, sets: int, page_lines: int = 1) -> None:
        words = count * sets * Cache.SET_WORDS
        whole = np.zeros(words + 8, np.int64)
        start = -_at(whole) % 64 // 8
        self._places = whole[start : start + words].reshape(count, sets, 3, Cache.WAYS)
        self._records = np.array([[_at(self._places[k]), sets, page_lines] for k in range(count)], np.int64)
        self.address = _at(self._records)

    @property
    def states(self) -> NDArray[np.int64]:
        """State of each place."""
        return self._places[:, :, 1].reshape(-1)


def _at(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


@dataclass(frozen=True)
class _Code:
    consume: Any
    consume_slots: Any
    engine: Any


@functools.cache
def _code() -> _Code:
    """Machine code of ``ir/caches.ll`` and ``ir/hierarchy.ll``."""
    engine = jit.run_time_engine(
        runtime.template("caches") + runtime.template("hierarchy", LINE_MASK=(1 << Event.LINE_BITS) - 1)
    )
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return _Code(
        ctypes.CFUNCTYPE(None, pointer, pointer, number, number)(engine.get_function_address("consume")),
        ctypes.CFUNCTYPE(None, pointer, pointer, number, number)(engine.get_function_address("consume_slots")),
        engine,
    )
