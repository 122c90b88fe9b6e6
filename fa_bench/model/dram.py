"""DRAM traffic from global traffic: what L2 cannot answer, as a function of a program and a GPU.

Nothing runs here. The emulator feeds every access to a simulated cache; this module says in closed form what that
cache would do, so that the two can be held against each other (``docs/model.md`` has the differences). Times are
counted in *places*: what has passed through L2 since a line was used last (:mod:`fa_bench.model.l2`).

Reads. A tensor crosses once, by its first reader, and again

1. by a later kernel, for lines that what came in between drove out (S and P of standard attention);
2. where a wave of CTAs ends inside a K/V head: the next wave starts it anew, a wave's places later. Where CTAs take
   different times (a causal mask) the next ones start while the head is still being read, so much sooner;
3. where a CTA loops over its slice (FlashAttention-1), at each pass after the first, if one pass of all CTAs in flight
   does not fit.

Writes. A written line stays in L2 and crosses when it is driven out, or when too many lines are dirty:

4. what is written after a line drives it out. Lines of one DRAM page go together, also those of other heads where the
   layout puts heads side by side, up to where their own turn comes later than the first one's;
5. at most half of L2 is dirty. Each kernel's excess takes the lines that were not used for the longest time: of tensors
   that this kernel does not touch, then of those that it reads, then of those that it writes;
6. a line that is written again before it leaves crosses once for both; in a loop, each time if a pass does not fit;
7. what is still dirty after the last kernel has not crossed.

Positions are sampled: `SAMPLES` CTAs, evenly spread, each with a position inside its part.

Four constants are chosen, not derived, by what fits emulated cases best: how even sets are (``_EVEN_SPREAD``,
``_LOOP``) and how much earlier a page goes than a line (``FIRST_OF_PAGE``, ``_PAGE_SETS``). They move the edges where
something just fits; the differences in ``docs/model.md`` are over other cases.

What it leaves out. All CTAs of a wave run at the same pace. A wave's distance to the next counts whole K/V heads, also
where the working set of one *step* of all CTAs does not fit (L2 below some 60 KiB per SM). Lines are full. Sets
of a real cache, and of the emulated one, are not filled quite as unevenly as the model says: near the point where
something just fits, or just doesn't, it may be far off. Registers may allow fewer CTAs per SM than are assumed. What
a write-back costs is charged to the kernel that wrote the line, not to the one that drove it out. In a packed batch
a K/V head is that of all sequences together, and keys that no query asks for are read too.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt

from fa_bench.model.gpu import Gpu
from fa_bench.model.l2 import Moment, Stage, Use, passed, prefix_share, sorts, stage_of
from fa_bench.model.l2_cache import FIRST_OF_PAGE, Cache, Places
from fa_bench.model.samples import ALL, SAMPLES, Samples, Timing, end_of, start_of, total
from fa_bench.sizes import choose, common_divisor, is_array, least, most, settled

if TYPE_CHECKING:
    # Only for types: rooms below algorithms/ use this package, so it cannot import them while it is loaded.
    from fa_bench.algorithms.base import Buffer, Program, TensorBytes

#: Bytes of a DRAM page that one channel holds.
_PAGE_BYTES: Final = 1024
_SECTOR_BYTES: Final = 32
#: The limit on dirty lines writes back no less than this: the tail of a normal distribution never ends.
_NOTHING_BYTES: Final = 1e-3
#: Cases at a time, few enough for a core's caches; decisions that tell sorts of them apart at a time.
_CASES: Final = 512
_MOST_DECISIONS: Final = 40


def dram_traffic(
    program: Program, traffic: Sequence[TensorBytes], gpu: Gpu, blocks_per_sm: Sequence[int] | None = None
) -> tuple[TensorBytes, ...]:
    """DRAM traffic of a program whose caches are cold, per kernel, tensor and direction.

    Parameters
    ----------
    program : Program
        Its buffers and launches; every kernel entry is launched once.
    traffic : sequence of TensorBytes
        Its global traffic in bytes, kernels in the order of their launches.
    gpu : Gpu
        Whose L2, SMs and limits count.
    blocks_per_sm : sequence of int, optional
        CTAs that an SM holds, per launch; by default what threads and shared memory allow.

    Returns
    -------
    tuple of TensorBytes
        One entry for each of ``traffic``, never more bytes than it, in whole sectors.

    Examples
    --------
    FlashAttention-2 with 32 query heads on 8 and D = 128, for an A30 with 24 MiB of L2. At 512 rows O, 4 MiB, stays in
    L2; at 4096 rows most of its 32 MiB cross.

    >>> from fa_bench import algorithms
    >>> from fa_bench.cases import AttentionShape, Case, Tile
    >>> from fa_bench.model import gpus
    >>> flash2 = algorithms.get("flash2")
    >>> for rows in (512, 4096):
    ...     case = Case("flash2", AttentionShape(1, 32, 8, rows, rows, 128), layout="bshd", tile=Tile(128, 64, 1, 4))
    ...     moved = dram_traffic(flash2.program(case), flash2.traffic(case), gpus.get("a30"))
    ...     print([(part.tensor, part.op, round(part.bytes / 2**20, 1)) for part in moved])
    [('Q', 'read', 4.0), ('K', 'read', 1.0), ('V', 'read', 1.0), ('O', 'write', 0.0), ('LSE', 'write', 0.0)]
    [('Q', 'read', 32.0), ('K', 'read', 8.0), ('V', 'read', 8.0), ('O', 'write', 27.0), ('LSE', 'write', 0.4)]
    """
    asked = {(part.kernel, part.tensor, part.op): part.bytes for part in traffic}
    blocks: Sequence[int | None] = blocks_per_sm or [None] * len(program.launches)
    mixed = [
        decision
        for launch, count in zip(program.launches, blocks, strict=True)
        for decision in sorts(program, launch, asked, gpu, count)
        if is_array(decision) and np.any(decision) and not np.all(decision)
    ]
    cases = max((np.size(part.bytes) for part in traffic), default=1)
    if mixed:
        sort: Any = sum(np.asarray(flag, np.int64) << place for place, flag in enumerate(mixed[:_MOST_DECISIONS]))
        return _apart(sort, program, traffic, gpu, blocks_per_sm)
    if cases > _CASES:
        return _apart(np.arange(cases) // _CASES, program, traffic, gpu, blocks_per_sm)
    stages = tuple(
        stage_of(program, launch, asked, gpu, count) for launch, count in zip(program.launches, blocks, strict=True)
    )
    account = _Account(stages, Cache(gpu.l2_bytes, gpu.l2_partitions))
    for index in range(len(stages)):
        account.run(index, program)
    account.finish()
    crossed = ((part, account.crossed[part.kernel, part.tensor, part.op]) for part in traffic)
    return tuple(
        dataclasses.replace(part, bytes=least(part.bytes, _sectors(nbytes, one=not is_array(part.bytes))))
        for part, nbytes in crossed
    )


def _apart(
    sort: npt.NDArray[np.int64],
    program: Program,
    traffic: Sequence[TensorBytes],
    gpu: Gpu,
    blocks_per_sm: Sequence[int] | None,
) -> tuple[TensorBytes, ...]:
    """Cases of each sort on their own."""
    # Arguments play no part here.
    bare = tuple(dataclasses.replace(launch, args=()) for launch in program.launches)
    program = dataclasses.replace(program, launches=bare, setup=())
    nbytes = np.zeros((len(traffic), len(sort)), np.int64)
    for kind in np.unique(sort):
        here = sort == kind
        moved = dram_traffic(_chosen(program, here), [_chosen(part, here) for part in traffic], gpu, blocks_per_sm)
        nbytes[:, here] = [np.broadcast_to(part.bytes, (int(here.sum()),)) for part in moved]
    return tuple(dataclasses.replace(part, bytes=cast(int, row)) for part, row in zip(traffic, nbytes, strict=True))


def _chosen(described: Any, where: npt.NDArray[np.bool_]) -> Any:
    """A program, or part of one, or of its traffic, for some of the cases."""
    if is_array(described):
        return described[where]
    if isinstance(described, tuple):
        return tuple(_chosen(item, where) for item in described)
    if dataclasses.is_dataclass(described) and not isinstance(described, type):
        changed = {item.name: _chosen(getattr(described, item.name), where) for item in dataclasses.fields(described)}
        return dataclasses.replace(described, **changed)
    return described


def bytes_per_kernel(traffic: Iterable[TensorBytes]) -> Mapping[str, int]:
    """Bytes by kernel entry, reads and writes of all tensors together."""
    total: defaultdict[str, int] = defaultdict(int)
    for part in traffic:
        total[part.kernel] += part.bytes
    return dict(total)


@dataclass(slots=True)
class _Tensor:
    """A tensor that was used: when each sample was last, how likely it is dirty, and who wrote it."""

    last: Moment
    #: ``[sample, case]``; None where it was never written.
    dirty: Samples | None
    writer: str
    nbytes: float


@dataclass(slots=True)
class _Account:
    """What has crossed so far, and what is in L2, launch after launch."""

    stages: tuple[Stage, ...]
    cache: Cache
    crossed: defaultdict[tuple[str, str, str], float] = field(default_factory=lambda: defaultdict(float))
    tensors: dict[str, _Tensor] = field(default_factory=dict)
    #: How likely a dirty line is still there at the end of the launch that was run last.
    still: dict[str, Samples] = field(default_factory=dict)

    def run(self, index: int, program: Program) -> None:
        """One launch: rules 1 to 4 and 6 tensor by tensor, then rule 5."""
        stage = self.stages[index]
        timing = Timing(index, stage)
        for tensor, use in stage.uses.items():
            self._touch(index, tensor, use, timing, program.buffer(tensor))
        self._limit(index)

    def finish(self) -> None:
        """What the places after their last use drove out, by the end of the program."""
        for name, still in self.still.items():
            tensor = self.tensors[name]
            assert tensor.dirty is not None, "only dirty tensors are looked at"
            self._write_back(name, tensor, total(tensor.dirty * (1 - still)))

    def _write_back(self, name: str, tensor: _Tensor, samples: float) -> None:
        self.crossed[tensor.writer, name, "write"] += samples / SAMPLES * tensor.nbytes

    def _touch(self, index: int, name: str, use: Use, timing: Timing, buffer: Buffer) -> None:
        stage = self.stages[index]
        is_read, is_written = settled(use.read_bytes > 0), settled(use.write_bytes > 0)
        last = timing.end(is_written, self._heads_per_page(index, use, buffer) if is_written else 1)
        missing: float = SAMPLES
        dirty, writer = None, ""
        if name in self.tensors:
            before = self.tensors[name]
            between = passed(self.stages, before.last, timing.begin if is_read else last)
            missing = SAMPLES - total(self.cache.held(between))
            if before.dirty is not None:
                dirty = before.dirty * self.cache.held_dirty(between)
                self._write_back(name, before, total(before.dirty) - total(dirty))
            writer = before.writer
        if is_written:
            dirty, writer = ALL, stage.entry
        read = missing / SAMPLES * use.nbytes if is_read else 0.0
        if use.pattern == "looped":
            held_in_loop, dirty_in_loop = self._loop(stage)
            read = read + np.maximum(0.0, use.read_bytes - use.nbytes) * (1 - held_in_loop)
            if is_written:
                # A pass that only reads is the last: what the pass before wrote has to last until then.
                read_after = use.read_bytes > use.write_bytes
                again = use.write_bytes - use.nbytes * np.logical_not(read_after)
                self.crossed[stage.entry, name, "write"] += again * (1 - dirty_in_loop)
                dirty = cast(float, np.where(read_after, dirty_in_loop, 1.0)) * ALL
        elif use.pattern == "shared":
            read = read + self._again(index, use)
        self.crossed[stage.entry, name, "read"] += read
        self.tensors[name] = _Tensor(last, dirty, writer, use.nbytes)

    def _loop(self, stage: Stage) -> tuple[float, float]:
        """Probability that a line is held, and that it stays dirty, from pass to pass of a loop."""
        places, dirty_bytes = stage.loop_places()
        held = self.cache.held_in_loop(places)
        if settled(stage.wave == 1) and self.cache.partitions == 2:
            # A single CTA goes through one partition, so that every line needs a place there, in half of the capacity.
            # Lines whose home is the other one are found there if these, half of all, fit.
            nbytes = sum(use.nbytes for use in stage.uses.values() if use.pattern == "looped") / stage.waves
            halves = (self.cache.held(Places(times * nbytes, 0.0)) for times in (2, 1))
            held = sum(halves) / 2
        return held, cast(float, np.minimum(held, self.cache.dirty_in_loop(dirty_bytes)))

    def _again(self, index: int, use: Use) -> float:
        """Bytes of K or V that are read again across waves: rule 2."""
        stage = self.stages[index]
        head = use.nbytes / use.heads
        prefix = prefix_share(use)
        period = np.where(prefix == 1.0, 1 / use.cta_share, 1.0)
        # Tiles: the CTAs that read the same one are further apart than a wave.
        tiles = stage.wave < period
        boundaries = np.ceil(stage.waves) - 1
        aligned = boundaries // (use.ctas_per_head // common_divisor(stage.wave, use.ctas_per_head))
        # CTAs of a head that see between 2p - 1 and all of it: when the first of a wave ends, the longest has as much
        # more to read as it has more to see, and is followed by the next at this distance.
        apart = 1 - np.minimum(1.0, stage.wave / stage.ctas_per_slice) * 2 * (1 - prefix)
        over: Any = np.where(tiles, period / stage.ctas, apart / stage.waves)
        again: Any = np.where(tiles, use.read_bytes - use.nbytes, (boundaries - aligned) * head * prefix)
        lost = 1 - self.cache.held(passed(self.stages, start_of(index), Moment(index, over, over, over, over)))
        return cast(float, again * lost)

    def _heads_per_page(self, index: int, use: Use, buffer: Buffer) -> int:
        """Heads whose lines leave together: those of a DRAM page, less those written after the first one has left."""
        heads = _heads_side_by_side(buffer)
        if settled(heads == 1):
            return 1
        stage = self.stages[index]
        slices = stage.ctas // stage.ctas_per_slice
        places = passed(self.stages, start_of(index), end_of(index)).nbytes / slices
        written = sum(other.nbytes for other in stage.uses.values() if settled(other.write_bytes > 0)) / slices
        before = FIRST_OF_PAGE * np.minimum(self.cache.nbytes / places, self.cache.nbytes / 2 / written)
        return least(heads, cast(int, 1 + np.floor(before)))

    def _limit(self, index: int) -> None:
        """Write back what exceeds the limit on dirty lines at the end of a launch: rule 5."""
        stage, end = self.stages[index], end_of(index)
        self.still = {
            name: (self.cache.held_dirty(passed(self.stages, tensor.last, end)))
            for name, tensor in self.tensors.items()
            if tensor.dirty is not None and np.any(tensor.dirty)
        }
        there: dict[str, float] = {}
        for name, still in self.still.items():
            tensor = self.tensors[name]
            assert tensor.dirty is not None, "only dirty tensors are looked at"
            there[name] = total(tensor.dirty * still) / SAMPLES * tensor.nbytes
        excess = self.cache.excess(sum(there.values()))

        def age(name: str) -> tuple[int, int]:
            use = stage.uses.get(name)
            if use is None:
                return 0, self.tensors[name].last.stage
            return (2 if settled(use.write_bytes > 0) else 1), 0

        for oldest in sorted({age(name) for name in there}):
            names = [name for name in there if age(name) == oldest]
            nbytes = sum(there[name] for name in names)
            part: Any = np.minimum(1.0, excess / np.where(nbytes > 0, nbytes, np.inf))
            for name in names:
                self._clean(name, part * there[name])
            excess = excess - part * nbytes
            if np.all(excess < _NOTHING_BYTES):
                return

    def _clean(self, name: str, nbytes: float) -> None:
        """Write back ``nbytes`` of a tensor that are still there, the lines first that were used first."""
        tensor, still = self.tensors[name], self.still[name]
        if np.all(nbytes < _NOTHING_BYTES):
            return
        assert tensor.dirty is not None, "only dirty tensors are looked at"
        shape = np.broadcast_shapes(*map(np.shape, (tensor.dirty, still, nbytes)), *map(np.shape, tensor.last[1:]))
        dirty: Any = np.broadcast_to(tensor.dirty, shape)
        here: Any = np.broadcast_to(dirty * still * tensor.nbytes / SAMPLES, shape)
        goes: Any = np.broadcast_to(nbytes, shape[1:])
        cleaned: Any = np.where(goes < _NOTHING_BYTES, 0.0, np.ones(shape))
        # Only where some of it goes and some stays, the order counts.
        partly = (goes >= _NOTHING_BYTES) & (goes < total(here) - _NOTHING_BYTES)
        if np.any(partly):
            keys = [np.broadcast_to(figure, shape)[:, partly] for figure in reversed(tensor.last[1:])]
            cleaned[:, partly] = _first_of(np.lexsort(keys, axis=0), here[:, partly], goes[partly])
        self._write_back(name, tensor, total(cleaned * dirty))
        tensor.dirty = dirty * (1 - cleaned)


def _first_of(order: npt.NDArray[np.intp], here: npt.NDArray[np.float64], nbytes: npt.NDArray[np.float64]) -> Any:
    """Part of each sample that goes if ``nbytes`` of all go, in this order, with what is ``here`` of each."""
    ordered = np.take_along_axis(here, order, axis=0)
    left = nbytes - (np.cumsum(ordered, axis=0) - ordered)
    part = np.where(ordered > 0, np.minimum(1.0, left / np.where(ordered > 0, ordered, 1.0)), 1.0)
    gone = np.empty_like(here)
    np.put_along_axis(gone, order, np.where(left > 0, part, 0.0), axis=0)
    return gone


def _heads_side_by_side(buffer: Buffer) -> int:
    """Heads of one row that share a DRAM page; 1 where a head's rows follow each other."""
    heads = buffer.shape[1]
    if len(buffer.shape) < 4:
        return 1
    element_bytes = buffer.nbytes / math.prod(buffer.shape)
    in_a_page = cast(int, np.floor(_PAGE_BYTES / (buffer.strides[1] * element_bytes)))
    return choose((heads == 1) | (buffer.strides[1] >= buffer.strides[2]), 1, most(1, least(heads, in_a_page)))


def _sectors(nbytes: float, *, one: bool) -> int:
    """Whole sectors; a number of ``one`` case, else an array."""
    sectors = np.atleast_1d(np.rint(nbytes / _SECTOR_BYTES))
    # Of one case in Python's integers, which hold any number.
    return round(float(sectors[0])) * _SECTOR_BYTES if one else cast(int, sectors.astype(np.int64) * _SECTOR_BYTES)
