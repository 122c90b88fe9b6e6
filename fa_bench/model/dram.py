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

Positions are sampled: `_SAMPLES` CTAs, evenly spread, each with a position inside its part.

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
from typing import TYPE_CHECKING, Final

from fa_bench.model.gpu import Gpu
from fa_bench.model.l2 import FIRST_OF_PAGE, Cache, Moment, Places, Stage, Use, passed, prefix_share, stage_of

if TYPE_CHECKING:
    # Only for types: rooms below algorithms/ use this package, so it cannot import them while it is loaded.
    from fa_bench.algorithms.base import Buffer, Program, TensorBytes

#: CTAs of a launch that stand for all.
_SAMPLES: Final = 48
#: Spreads the samples' positions inside their CTAs: the golden ratio's multiples are even at every length.
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_SPREAD: Final = tuple(((i + 0.5) / _SAMPLES, (0.5 + i * _GOLDEN) % 1) for i in range(_SAMPLES))
#: Bytes of a DRAM page that one channel holds.
_PAGE_BYTES: Final = 1024
#: Between CTAs of different length, what of the K/V heads of those in flight is still to come when one of them ends.
_HALF_WAVE: Final = 0.5
_SECTOR_BYTES: Final = 32


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
    stages = tuple(
        stage_of(program, launch, asked, gpu, count) for launch, count in zip(program.launches, blocks, strict=True)
    )
    account = _Account(stages, Cache(gpu.l2_bytes, gpu.l2_partitions))
    for index in range(len(stages)):
        account.run(index, program)
    account.finish()
    return tuple(
        dataclasses.replace(part, bytes=min(part.bytes, _sectors(account.crossed[part.kernel, part.tensor, part.op])))
        for part in traffic
    )


def bytes_per_kernel(traffic: Iterable[TensorBytes]) -> Mapping[str, int]:
    """Bytes by kernel entry, reads and writes of all tensors together."""
    total: defaultdict[str, int] = defaultdict(int)
    for part in traffic:
        total[part.kernel] += part.bytes
    return dict(total)


@dataclass(slots=True)
class _Tensor:
    """A tensor that was used: when each sample was last, how likely it is dirty, and who wrote it."""

    last: Sequence[Moment]
    dirty: list[float]
    writer: str
    nbytes: int


@dataclass(slots=True)
class _Account:
    """What has crossed so far, and what is in L2, launch after launch."""

    stages: tuple[Stage, ...]
    cache: Cache
    crossed: defaultdict[tuple[str, str, str], float] = field(default_factory=lambda: defaultdict(float))
    tensors: dict[str, _Tensor] = field(default_factory=dict)

    def run(self, index: int, program: Program) -> None:
        """One launch: rules 1 to 4 and 6 tensor by tensor, then rule 5."""
        stage = self.stages[index]
        for tensor, use in stage.uses.items():
            self._touch(index, tensor, use, program.buffer(tensor))
        self._limit(index)

    def finish(self) -> None:
        """What the places after their last use drove out, by the end of the program."""
        end = _end(len(self.stages) - 1)
        for name, tensor in self.tensors.items():
            lost = sum(p * (1 - self._dirty(last, end)) for last, p in zip(tensor.last, tensor.dirty, strict=True) if p)
            self._write_back(name, tensor, lost)

    def _held(self, start: Moment, end: Moment) -> float:
        return self.cache.held(passed(self.stages, start, end))

    def _dirty(self, start: Moment, end: Moment) -> float:
        return self.cache.held_dirty(passed(self.stages, start, end))

    def _write_back(self, name: str, tensor: _Tensor, samples: float) -> None:
        self.crossed[tensor.writer, name, "write"] += samples / _SAMPLES * tensor.nbytes

    def _touch(self, index: int, name: str, use: Use, buffer: Buffer) -> None:
        stage = self.stages[index]
        first, last = self._moments(index, use, buffer)
        missing, dirty, writer = float(_SAMPLES), [0.0] * _SAMPLES, ""
        if name in self.tensors:
            before = self.tensors[name]
            held = [self._held(start, end) for start, end in zip(before.last, first, strict=True)]
            missing = _SAMPLES - sum(held)
            dirty = [
                p * self._dirty(*gap) if p else 0.0 for p, *gap in zip(before.dirty, before.last, first, strict=True)
            ]
            self._write_back(name, before, sum(before.dirty) - sum(dirty))
            writer = before.writer
        if use.write_bytes:
            dirty, writer = [1.0] * _SAMPLES, stage.entry
        read = missing / _SAMPLES * use.nbytes if use.read_bytes else 0.0
        if use.pattern == "looped":
            held_in_loop, dirty_in_loop = self._loop(stage)
            read += max(0.0, use.read_bytes - use.nbytes) * (1 - held_in_loop)
            if use.write_bytes:
                # A pass that only reads is the last: what the pass before wrote has to last until then.
                read_after = use.read_bytes > use.write_bytes
                again = use.write_bytes if read_after else use.write_bytes - use.nbytes
                self.crossed[stage.entry, name, "write"] += again * (1 - dirty_in_loop)
                dirty = [dirty_in_loop if read_after else 1.0] * _SAMPLES
        elif use.pattern == "shared":
            read += self._again(index, use)
        self.crossed[stage.entry, name, "read"] += read
        self.tensors[name] = _Tensor(last, dirty, writer, use.nbytes)

    def _loop(self, stage: Stage) -> tuple[float, float]:
        """Probability that a line is held, and that it stays dirty, from pass to pass of a loop."""
        places, dirty_bytes = stage.loop_places()
        held = self.cache.held_in_loop(places)
        if stage.wave == 1 and self.cache.partitions == 2:
            # A single CTA goes through one partition, so that every line needs a place there, in half of the capacity.
            # Lines whose home is the other one are found there if these, half of all, fit.
            nbytes = sum(use.nbytes for use in stage.uses.values() if use.pattern == "looped") / stage.waves
            halves = (self.cache.held(Places(times * nbytes, 0.0)) for times in (2, 1))
            held = sum(halves) / 2
        return held, min(held, self.cache.dirty_in_loop(dirty_bytes))

    def _again(self, index: int, use: Use) -> float:
        """Bytes of K or V that are read again across waves: rule 2."""
        stage = self.stages[index]
        head = use.nbytes / use.heads
        period = 1 / use.cta_share if prefix_share(use) == 1.0 else 1.0
        if stage.wave < period:
            # Tiles: the CTAs that read the same one are further apart than a wave.
            return (use.read_bytes - use.nbytes) * (1 - self._held_over(index, period / stage.ctas))
        boundaries = math.ceil(stage.waves) - 1
        aligned = boundaries // (use.ctas_per_head // math.gcd(stage.wave, use.ctas_per_head))
        # CTAs of a head that see between 2p - 1 and all of it: when the first of a wave ends, the longest has as much
        # more to read as it has more to see, and is followed by the next at this distance.
        prefix = prefix_share(use)
        apart = 1 - min(1.0, stage.wave / stage.ctas_per_slice) * 2 * (1 - prefix)
        return (boundaries - aligned) * head * prefix * (1 - self._held_over(index, apart / stage.waves))

    def _held_over(self, index: int, part: float) -> float:
        """Probability that a line is held over ``part`` of a launch."""
        return self._held(_start(index), Moment(index, part, part, part, part))

    def _moments(self, index: int, use: Use, buffer: Buffer) -> tuple[list[Moment], list[Moment]]:
        """First and last use of each sample in a launch."""
        stage = self.stages[index]
        waves, passes = stage.waves, stage.passes
        heads = self._heads_per_page(index, use, buffer)
        first, last = [], []
        for done, inside in _SPREAD:
            if not stage.in_step and stage.ctas_per_slice > 1:
                first.append(Moment(index, done, done, done, done))
                last.append(first[-1])
                continue
            wave, size, before = _place(stage, done * stage.ctas)
            read = (wave + inside * size / passes) / waves
            looped = (wave + inside * size) / waves
            begin = Moment(index, read, looped, read, wave / waves)
            if use.write_bytes and stage.ctas_per_slice > 1:
                # Outputs leave at the end of a wave, with the page's first head.
                slices, rest = divmod(done * stage.ctas, stage.ctas_per_slice)
                wave, size, before = _place(stage, slices // heads * heads * stage.ctas_per_slice + rest)
                streamed = shared = (wave + size) / waves
                if stage.rolling:
                    # As many CTAs have started as have ended and are in flight.
                    streamed = min(1.0, (wave + before + 1) / waves)
                    shared = min(1.0, (wave + before + _HALF_WAVE) / waves)
                end = Moment(index, streamed, looped, shared, (wave + before) / waves)
            else:
                # Where a CTA loops over its slice, outputs leave in the last pass.
                read = (wave + size * (1 - (1 - inside) / passes)) / waves
                written = (wave + (inside * size if stage.ctas_per_slice == 1 else 0)) / waves
                end = Moment(index, read, looped, read, written)
            first.append(begin if use.read_bytes else end)
            last.append(end)
        return first, last

    def _heads_per_page(self, index: int, use: Use, buffer: Buffer) -> int:
        """Heads whose lines leave together: those of a DRAM page, less those written after the first one has left."""
        heads = _heads_side_by_side(buffer)
        if heads == 1 or not use.write_bytes:
            return 1
        stage = self.stages[index]
        slices = stage.ctas // stage.ctas_per_slice
        places = passed(self.stages, _start(index), _end(index)).nbytes / slices
        written = sum(other.nbytes for other in stage.uses.values() if other.write_bytes) / slices
        before = FIRST_OF_PAGE * min(self.cache.nbytes / places, self.cache.nbytes / 2 / written)
        return min(heads, 1 + math.floor(before))

    def _limit(self, index: int) -> None:
        """Write back what exceeds the limit on dirty lines at the end of a launch: rule 5."""
        stage, end = self.stages[index], _end(index)
        held = {
            name: [self._dirty(last, end) if p else 0.0 for last, p in zip(tensor.last, tensor.dirty, strict=True)]
            for name, tensor in self.tensors.items()
            if any(tensor.dirty)
        }
        there = {
            name: sum(p * h for p, h in zip(self.tensors[name].dirty, still, strict=True)) / _SAMPLES
            * self.tensors[name].nbytes
            for name, still in held.items()
        }  # fmt: skip
        excess = self.cache.excess(sum(there.values()))

        def age(name: str) -> tuple[int, int]:
            use = stage.uses.get(name)
            return (0, self.tensors[name].last[0].stage) if use is None else (1 if not use.write_bytes else 2, 0)

        for oldest in sorted({age(name) for name in there}):
            names = [name for name in there if age(name) == oldest]
            nbytes = sum(there[name] for name in names)
            part = min(1.0, excess / nbytes) if nbytes else 0.0
            for name in names:
                self._clean(name, held[name], part * there[name])
            excess -= part * nbytes
            if excess <= 0:
                return

    def _clean(self, name: str, held: Sequence[float], nbytes: float) -> None:
        """Write back ``nbytes`` of a tensor that are still there, the lines first that were used first."""
        tensor = self.tensors[name]
        for k in sorted(range(_SAMPLES), key=lambda k: tensor.last[k]):
            here = tensor.dirty[k] * held[k] * tensor.nbytes / _SAMPLES
            if nbytes <= 0:
                return
            part = min(1.0, nbytes / here) if here else 1.0
            self._write_back(name, tensor, part * tensor.dirty[k])
            tensor.dirty[k] *= 1 - part
            nbytes -= part * here


def _start(index: int) -> Moment:
    return Moment(index, 0.0, 0.0, 0.0, 0.0)


def _end(index: int) -> Moment:
    return Moment(index, 1.0, 1.0, 1.0, 1.0)


def _place(stage: Stage, cta: float) -> tuple[int, float, float]:
    """Where a CTA is: its wave, that wave's size and the part of it before the CTA, in waves."""
    wave = math.floor(cta / stage.wave)
    return wave, min(1.0, stage.waves - wave), cta / stage.wave - wave


def _heads_side_by_side(buffer: Buffer) -> int:
    """Heads of one row that share a DRAM page; 1 where a head's rows follow each other."""
    heads = buffer.shape[1]
    if len(buffer.shape) < 4 or heads == 1 or buffer.strides[1] >= buffer.strides[2]:
        return 1
    element_bytes = buffer.nbytes / math.prod(buffer.shape)
    return max(1, min(heads, int(_PAGE_BYTES / (buffer.strides[1] * element_bytes))))


def _sectors(nbytes: float) -> int:
    return round(nbytes / _SECTOR_BYTES) * _SECTOR_BYTES
