"""L1, L2 and DRAM against a simulation with dictionaries, and by hand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fa_bench.ptx.caches import KINDS, L2, MemoryCounters, MemorySystem, event

KIB = 1024
#: Bytes of one set: 16 lines of 128 bytes.
SET = 2 * KIB


class _BruteForce:
    """The same caches, written again: a set is a dictionary from line to [valid, dirty, tensor], oldest first."""

    def __init__(self, sms: int, l1_bytes: int, l2: L2) -> None:
        self.l2 = l2
        self.l1 = [self._cache(max(1, l1_bytes // SET)) for _ in range(sms)]
        self.parts = [self._cache(l2.nbytes // l2.partitions // SET) for _ in range(l2.partitions)]
        self.counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    @staticmethod
    def _cache(sets: int) -> list[dict[int, list]]:
        return [{} for _ in range(sets)]

    def _set(self, cache: list[dict[int, list]], line: int) -> dict[int, list]:
        return cache[(line + 97 * (line // len(cache))) % len(cache)]

    def _home(self, line: int) -> int:
        return bin(line // 32).count("1") % self.l2.partitions

    def _use(self, cache: list[dict[int, list]], line: int) -> list | None:
        place = self._set(cache, line)
        if line not in place:
            return None
        place[line] = place.pop(line)
        return place[line]

    def _enter(self, cache: list[dict[int, list]], line: int, tensor: str) -> list:
        found = self._use(cache, line)
        if found is not None:
            return found
        place = self._set(cache, line)
        if len(place) == 16:
            victim = next(iter(place))
            if place[victim][1]:
                self._write_page(cache, victim)
            del place[victim]
        place[line] = [set(), set(), tensor]
        return place[line]

    def _write_page(self, cache: list[dict[int, list]], line: int) -> None:
        lines = self.l2.page_bytes // 128
        for other in range(line // lines * lines, line // lines * lines + lines):
            entry = self._set(cache, other).get(other)
            if entry is not None:
                self.counts[entry[2]]["dram_write_sectors"] += len(entry[1])
                entry[1].clear()

    def access(self, tensor: str, line: int, sectors: set[int], kind: str, sm: int) -> None:
        """One request of an SM."""
        mine = self.counts[tensor]
        name = {"read": "read", "bypass": "read"}.get(kind, kind)
        mine[f"l1_{name}_requests"] += 1
        mine[f"l1_{name}_sectors"] += len(sectors)
        wanted = set(sectors)
        if kind == "read":
            entry = self._enter(self.l1[sm], line, tensor)
            wanted -= entry[0]
            mine["l1_read_hits"] += len(sectors) - len(wanted)
            entry[0] |= sectors
        elif kind == "atomic" and line in self._set(self.l1[sm], line):
            self._set(self.l1[sm], line)[line][0].difference_update(sectors)
        if wanted:
            self._behind(tensor, line, wanted, name, sm)

    def _behind(self, tensor: str, line: int, sectors: set[int], name: str, sm: int) -> None:
        mine, home = self.counts[tensor], self._home(line)
        near = sm % self.l2.partitions
        mine[f"l2_{name}_requests"] += 1
        mine[f"l2_{name}_sectors"] += len(sectors)
        missing = set(sectors)
        if name != "write":
            if name == "read" and near != home:
                copy = self._use(self.parts[near], line)
                missing -= copy[0] if copy else set()
            wanted = set(missing)
            if missing:
                there = self._use(self.parts[home], line)
                missing -= there[0] if there else set()
            mine[f"l2_{name}_hits"] += len(sectors) - len(missing)
            if missing:
                entry = self._enter(self.parts[home], line, tensor)
                pairs = {s ^ 1 for s in missing} if self.l2.fetch_bytes == 64 else set()
                fetched = (missing | pairs) - entry[0]
                mine["dram_read_sectors"] += len(fetched)
                entry[0] |= fetched
            if name == "read" and near != home and wanted:
                self._enter(self.parts[near], line, tensor)[0].update(wanted)
        if name != "read":
            entry = self._enter(self.parts[home], line, tensor)
            entry[0] |= sectors
            entry[1] |= sectors
            place = self._set(self.parts[home], line)
            dirty = [old for old in place if place[old][1]]
            if len(dirty) > self.l2.dirty_ways:
                self._write_page(self.parts[home], dirty[0])
            if self.l2.partitions == 2 and line in self._set(self.parts[1 - home], line):
                self._set(self.parts[1 - home], line)[line][0].difference_update(sectors)


_ACCESS = st.tuples(
    st.sampled_from(["Q", "K", "O"]),
    st.one_of(st.integers(0, 80), st.integers(0, 2**33 - 1)),
    st.integers(1, 15),
    st.sampled_from(KINDS),
    st.integers(0, 2),
)


def _check(trace: list[tuple], l1_bytes: int, l2: L2) -> None:
    system = MemorySystem(3, [l2])
    system.begin(dict.fromkeys("QKO", 0), ["O", "Q", "K"], l1_bytes)
    brute = _BruteForce(3, l1_bytes, l2)
    for tensor, line, mask, kind, sm in trace:
        system.access(tensor, line=line, sectors=mask, kind=kind, sm=sm)
        brute.access(tensor, line, {s for s in range(4) if mask >> s & 1}, kind, sm)
    got = system.counters()
    for tensor in "QKO":
        expected = brute.counts[tensor]
        counts = {f.name: getattr(got[tensor], f.name) for f in fields(MemoryCounters)}
        assert {k: v for k, v in counts.items() if v} == {k: v for k, v in expected.items() if v}, tensor
    left = {t: sum(len(e[1]) for part in brute.parts for s in part for e in s.values() if e[2] == t) for t in "QKO"}
    assert system.dirty_sectors() == left


# The first example compiles the caches.
@settings(deadline=None)
@given(
    st.lists(_ACCESS, max_size=120),
    st.sampled_from([0, 4 * KIB]),
    st.sampled_from(
        [
            L2.plain(SET),
            L2.plain(3 * SET),
            L2(2 * SET, 2),
            L2.plain(3 * SET, 64),
            L2(4 * SET, 2, 64, 128, 8),
            L2(SET, 1, 32, 512, 2),
        ]
    ),
)
def test_random_traces_equal_the_brute_force(trace: list[tuple], l1_bytes: int, l2: L2) -> None:
    _check(trace, l1_bytes, l2)


@pytest.mark.parametrize(
    "l2",
    [L2.plain(6 * SET), L2(6 * SET, 2), L2(6 * SET, 2, 64), L2(7 * SET, 1, 32, 256, 5), L2(6 * SET, 2, 32, 1024, 8)],
)
def test_long_random_traces_equal_the_brute_force(l2: L2) -> None:
    """20,000 requests for twice as many lines as there are places, so that nearly each one displaces a line."""
    rng = np.random.default_rng(7)
    trace = [
        ("QKO"[tensor], line, mask, KINDS[kind], sm)
        for tensor, line, mask, kind, sm in rng.integers([0, 0, 1, 0, 0], [3, 200, 16, 4, 3], (20_000, 5)).tolist()
    ]
    _check(trace, 4 * KIB, l2)


@settings(deadline=None)
@given(st.lists(_ACCESS, max_size=60))
def test_sectors_are_conserved_through_the_levels(trace: list[tuple]) -> None:
    """What L1 does not answer arrives at L2; what is written reaches DRAM or is still there, unless written twice."""
    system = MemorySystem(3, [L2(2 * SET), L2(4 * SET, 2, 64)])
    system.begin(dict.fromkeys("QKO", 0), list("QKO"), 4 * KIB)
    for tensor, line, mask, kind, sm in trace:
        system.access(tensor, line=line, sectors=mask, kind=kind, sm=sm)
    for variant in range(2):
        total = sum(system.counters(variant).values(), start=MemoryCounters())
        assert total.l2_read_sectors == total.l1_read_sectors - total.l1_read_hits
        assert total.l2_write_sectors == total.l1_write_sectors
        assert total.l2_atomic_sectors == total.l1_atomic_sectors
        missed = total.l2_read_sectors - total.l2_read_hits + total.l2_atomic_sectors - total.l2_atomic_hits
        assert missed <= total.dram_read_sectors <= (2 if variant else 1) * missed
        written = total.l2_write_sectors + total.l2_atomic_sectors
        assert total.dram_write_sectors + sum(system.dirty_sectors(variant).values()) <= written


def _system(l2: L2, l1_bytes: int = SET) -> MemorySystem:
    system = MemorySystem(2, [l2])
    system.begin({"X": 0}, ["X"], l1_bytes)
    return system


def _lines(system: MemorySystem, lines: range, kind: str, sectors: int = 15, sm: int = 0) -> None:
    for line in lines:
        system.access("X", line=line, sectors=sectors, kind=kind, sm=sm)


def test_a_stream_that_fits_is_fetched_once() -> None:
    """16 lines in a cache of 16 lines, three times: 64 sectors from DRAM, 128 of 192 found in L2."""
    system = _system(L2.plain(SET))
    for _ in range(3):
        _lines(system, range(16), "bypass")
    x = system.counters()["X"]
    assert (x.dram_read_sectors, x.l2_read_hits, x.l2_read_sectors) == (64, 128, 192)


def test_a_stream_that_is_one_line_too_long_is_fetched_each_time() -> None:
    """17 lines in a set of 16 places: each line leaves just before it is wanted again."""
    system = _system(L2.plain(SET))
    for _ in range(3):
        _lines(system, range(17), "bypass")
    assert system.counters()["X"].dram_read_sectors == 3 * 17 * 4


def test_written_lines_stay_until_they_have_to_leave() -> None:
    """20 lines written into 16 places: the first 4 (16 sectors) go to DRAM, 64 sectors are there at the end."""
    system = _system(L2.plain(SET))
    _lines(system, range(20), "write")
    assert system.counters()["X"].dram_write_sectors == 16
    assert system.counters()["X"].dram_read_sectors == 0
    assert system.dirty_sectors() == {"X": 64}


def test_a_set_keeps_as_many_dirty_lines_as_it_may() -> None:
    """10 lines written, of which 8 may be dirty: the first two are written back, and are still there to be read."""
    system = _system(L2(SET, page_bytes=128))
    _lines(system, range(10), "write")
    assert system.counters()["X"].dram_write_sectors == 8
    assert system.dirty_sectors() == {"X": 32}
    _lines(system, range(10), "bypass")
    assert system.counters()["X"].dram_read_sectors == 0


def test_dirty_lines_of_a_dram_page_are_written_together() -> None:
    """The first line has to leave; lines 0 to 7 share a page of 1 KiB: 8 are written, and 7 of them are still there.

    Lines 8 to 15 and the new one stay dirty: 36 sectors.
    """
    system = _system(L2(SET, dirty_ways=16))
    _lines(system, range(17), "write")
    assert system.counters()["X"].dram_write_sectors == 32
    assert system.dirty_sectors() == {"X": 36}
    _lines(system, range(1, 8), "bypass")
    assert system.counters()["X"].dram_read_sectors == 0


def test_dram_gives_pairs_where_it_is_asked_to() -> None:
    """Sector 2 alone: one sector, or two and then nothing for its neighbour, sector 3."""
    for fetch_bytes, first, second in ((32, 1, 2), (64, 2, 2)):
        system = _system(L2.plain(SET, fetch_bytes))
        system.access("X", line=0, sectors=0b0100, kind="bypass", sm=0)
        assert system.counters()["X"].dram_read_sectors == first
        system.access("X", line=0, sectors=0b1000, kind="bypass", sm=0)
        assert system.counters()["X"].dram_read_sectors == second


def test_l1_belongs_to_its_sm_and_cg_passes_it_by() -> None:
    system = _system(L2.plain(SET))
    system.access("X", line=0, sectors=15, kind="read", sm=0)
    system.access("X", line=0, sectors=15, kind="read", sm=1)  # another SM: not in its L1
    system.access("X", line=0, sectors=15, kind="bypass", sm=0)  # L1 has it, but is not asked
    x = system.counters()["X"]
    assert (x.l1_read_hits, x.l2_read_sectors, x.l2_read_hits) == (0, 12, 8)
    system.access("X", line=0, sectors=3, kind="read", sm=1)
    assert system.counters()["X"].l1_read_hits == 2


def test_a_launch_starts_with_an_empty_l1_and_the_l2_of_the_one_before() -> None:
    system = _system(L2.plain(SET))
    system.access("X", line=0, sectors=15, kind="read", sm=0)
    system.begin({"X": 0}, ["X"], SET)
    system.access("X", line=0, sectors=15, kind="read", sm=0)
    x = system.counters()["X"]
    assert (x.l1_read_hits, x.l2_read_hits, x.dram_read_sectors) == (0, 4, 4)


def test_partitions_keep_copies_for_the_sms_that_are_wired_to_them() -> None:
    """Both SMs read 32 lines through an L2 of 2 x 16 lines: each half would need all 32, so the second pass misses.

    A single L2 of 32 lines holds them.
    """
    fetched = []
    for partitions in (1, 2):
        system = MemorySystem(2, [L2(2 * SET, partitions)])
        system.begin({"X": 0}, ["X"], 0)
        for _ in range(2):
            for sm in range(2):
                _lines(system, range(32), "bypass", sm=sm)
        fetched.append(system.counters()["X"].dram_read_sectors)
    assert fetched[0] == 128
    assert fetched[1] > 128


def test_figures_that_no_cache_has_are_refused() -> None:
    for arguments in (
        (SET, 3),
        (SET, 2),
        (SET, 1, 128),
        (0,),
        (SET, 1, 32, 128, 0),
        (SET, 1, 32, 128, 17),
        (SET, 1, 32, 384),
    ):
        with pytest.raises(ValueError, match="not"):
            L2(*arguments)
    with pytest.raises(ValueError, match="at least one"):
        MemorySystem(0, [L2(SET)])
    with pytest.raises(ValueError, match="negative"):
        MemoryCounters(l1_read_hits=-1)


def test_events_hold_what_they_are_made_of() -> None:
    """Line 5, sectors 0b1010, a write, tensor 3: 5 + 10·2^33 + 2·2^37 + 3·2^40 + 2^56."""
    assert event(5, 0b1010, 2, 3) == 5 + 10 * 2**33 + 2 * 2**37 + 3 * 2**40 + 2**56
