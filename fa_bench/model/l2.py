"""What a kernel does to L2, in closed form: how much passes between two moments, and what that drives out.

An L2 with least-recently-used replacement still holds a line if fewer *places* were taken since its last use than the
cache has. The places between two moments are counted here, tensor by tensor, and each line once:

* CTAs start in linear order, ``wave = SMs x CTAs per SM`` at a time. CTAs of a wave run in step: they read, then write
  their outputs; a kernel without dynamic shared memory does both CTA by CTA.
* A tensor is *streamed* if each CTA has its own part of it. It is *shared* if many CTAs read the same part (K, V). It
  is *looped* if one CTA works on a whole slice and comes back to it (Q, O_acc, l and m of FlashAttention-1).
* L2 in two partitions: an SM goes through its own, a line has its home in one. Of lines that one SM reads, half get a
  second place as a copy; of lines that SMs on both sides read, all do; a line that is only written has one.

Figures may be arrays with one element for each case (:mod:`fa_bench.sizes`), moments arrays ``[sample, case]``. What
decides how a formula goes on (:func:`sorts`) is then the same for all cases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import numpy as np

from fa_bench.model.gpu import Gpu
from fa_bench.model.l2_cache import Cache, Places
from fa_bench.model.occupancy import occupancy
from fa_bench.sizes import choose, common_divisor, least, most, settled

if TYPE_CHECKING:
    # Only for types: rooms below algorithms/ use this package, so it cannot import them while it is loaded.
    from fa_bench.algorithms.base import Launch, Op, Program

Pattern = Literal["streamed", "shared", "looped"]

#: Tensors whose rows are keys: CTAs of the same slice with other queries read the same rows.
_KEY_SIDE: Final = ("K", "V")
#: A CTA that reads at least this share of a K/V head reads a prefix of it, as under a causal mask; else a tile.
_PREFIX: Final = 0.5
#: Repetitions below this are rows that are read again at once (sectors that two instructions share).
_ONCE: Final = 1.01


class Moment(NamedTuple):
    """A moment in a program: the launch, and which share of its reads by pattern and of its writes is done then."""

    stage: int
    streamed: float
    looped: float
    shared: float
    written: float


@dataclass(frozen=True, slots=True)
class Use:
    """What one launch does with one tensor.

    Attributes
    ----------
    pattern : {"streamed", "shared", "looped"}
    read_bytes, write_bytes : float
        Global traffic.
    nbytes : float
        Different bytes of it.
    heads : int
        Parts of the tensor that slices share or have, and of which a CTA touches one.
    ctas_per_head : int
        CTAs that touch the same part.
    cta_share : float
        Part of a head that one CTA reads.
    places, variance : float
        Per line, see :meth:`Cache.places`.
    """

    pattern: Pattern
    read_bytes: float
    write_bytes: float
    nbytes: float
    heads: int
    ctas_per_head: int
    cta_share: float
    places: float
    variance: float

    @property
    def passes(self) -> float:
        """How often each byte is read or written, whichever is more."""
        return cast(float, np.maximum(self.read_bytes, self.write_bytes)) / self.nbytes


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch: its CTAs, how many run at a time, and what they do with each tensor."""

    entry: str
    ctas: int
    wave: int
    ctas_per_slice: int
    #: Whether CTAs of a wave read before they write; they stage tiles in shared memory then.
    in_step: bool
    uses: Mapping[str, Use]
    #: Of a shared tensor: the part by which consecutive CTAs touch its heads more than they fill.
    _cut: Mapping[str, float] = field(init=False, repr=False)
    #: Tensors of which the same share is touched at any time.
    alike: tuple[tuple[str, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cut: dict[str, float] = {}
        alike: dict[str, list[str]] = {}
        for tensor, use in self.uses.items():
            sort: str = use.pattern
            if use.pattern == "shared":
                heads = least(1.0, self.wave * use.cta_share) / use.heads  # type: ignore[arg-type]  # a share
                cut[tensor] = heads * (1 - common_divisor(use.ctas_per_head, self.wave) / use.ctas_per_head)
                sort = next((name for name in cut if np.array_equal(cut[name], cut[tensor])), tensor)
            elif use.pattern == "streamed" and not settled(use.read_bytes > 0):
                sort = "written"
            alike.setdefault(sort, []).append(tensor)
        object.__setattr__(self, "_cut", cut)
        object.__setattr__(self, "alike", tuple(map(tuple, alike.values())))

    @property
    def waves(self) -> float:
        """Waves, the last one in part."""
        return self.ctas / self.wave

    @property
    def passes(self) -> float:
        """Passes of a CTA's loop over its slice."""
        passes = [use.passes for use in self.uses.values() if use.pattern == "looped"]
        return cast(float, np.maximum.reduce(passes)) if passes else 1.0

    @property
    def rolling(self) -> bool:
        """Whether CTAs take different times, as under a causal mask, so that each wave grows out of the one before."""
        shares = [use.cta_share for use in self.uses.values() if use.pattern == "shared"]
        if not shares:
            return False
        partly: Any = np.any([(share >= _PREFIX) & (share < 1 / _ONCE) for share in shares], axis=0)
        return cast(bool, partly & (self.ctas_per_slice > 1))

    def share(self, tensor: str, start: Moment, end: Moment) -> float:
        """Part of a tensor that is touched between two moments of this launch."""
        use = self.uses[tensor]
        if use.pattern == "looped":
            part = end.looped - start.looped
        elif use.pattern == "shared":
            part = end.shared - start.shared
            # Consecutive CTAs touch a head more than they fill, where a wave cuts it.
            part = part + self._cut[tensor] * np.minimum(1.0, part * self.waves)
        elif settled(use.read_bytes > 0):
            part = end.streamed - start.streamed
        else:
            part = end.written - start.written
        return cast(float, np.clip(part, 0.0, 1.0))

    def loop_places(self) -> tuple[Places, float]:
        """Places that one pass of the loop of all CTAs of a wave takes, and the dirty bytes among them.

        A copy that answers for its home leaves the home unused: a line that is only read takes one place.
        """
        nbytes = variance = dirty = 0.0
        for tensor, use in self.uses.items():
            part = use.nbytes / self.waves
            if use.pattern == "looped" and not settled(use.write_bytes > 0):
                nbytes += part
                continue
            if use.pattern == "looped":
                dirty += part
            elif settled(use.read_bytes > 0):
                part = self.share(tensor, _START, Moment(0, *4 * (1 / self.waves,))) * use.nbytes / self.passes
            else:
                continue
            nbytes += part * use.places
            variance += part * use.places * use.variance
        return Places(nbytes, variance), dirty


_START: Final = Moment(0, 0.0, 0.0, 0.0, 0.0)


def passed(stages: tuple[Stage, ...], start: Moment, end: Moment) -> Places:
    """Places that are taken between two moments of a program, each line counted once."""
    between = range(start.stage, end.stage + 1)
    launches = Counter(tensor for index in between for tensor in stages[index].uses)
    total = spread = 0.0
    again: dict[str, list[tuple[Use, float]]] = {}
    for index in between:
        stage = stages[index]
        low = start if index == start.stage else Moment(index, 0.0, 0.0, 0.0, 0.0)
        high = end if index == end.stage else Moment(index, 1.0, 1.0, 1.0, 1.0)
        for tensors in stage.alike:
            part = stage.share(tensors[0], low, high)
            uses = [stage.uses[tensor] for tensor in tensors if launches[tensor] == 1]
            total = total + part * sum(use.nbytes * use.places for use in uses)
            spread = spread + part * sum(use.nbytes * use.places * use.variance for use in uses)
            for tensor in tensors:
                if launches[tensor] > 1:
                    again.setdefault(tensor, []).append((stage.uses[tensor], part))
    for touched in again.values():
        nbytes, places, variance, once = _once(touched)
        total = total + nbytes * places * once
        spread = spread + nbytes * variance * once
    return Places(total, spread)


def _once(touched: list[tuple[Use, float]]) -> tuple[float, float, float, float]:
    """Of a tensor of several launches: its bytes, a line's places and variance by all of them, and what of it counts.

    A line that several launches touch has the places of the one that gives it most.
    """
    places = sum(part * use.places for use, part in touched)
    variance = sum(part * use.places * use.variance for use, part in touched)
    nbytes = largest = 0.0
    for use, part in touched:
        there = part > 0
        nbytes = cast(float, np.where(there, np.maximum(nbytes, use.nbytes), nbytes))
        largest = cast(float, np.where(there, np.maximum(largest, use.places), largest))
    once = np.minimum(1.0, largest / np.where(places > 0, places, 1.0))
    return nbytes, places, variance, cast(float, once)


def stage_of(
    program: Program, launch: Launch, traffic: Mapping[tuple[str, str, Op], int], gpu: Gpu, blocks_per_sm: int | None
) -> Stage:
    """One launch of ``program`` as the model sees it.

    Parameters
    ----------
    program : Program
    launch : Launch
    traffic : mapping of (kernel, tensor, "read" or "write") to int
        Global traffic in bytes.
    gpu : Gpu
    blocks_per_sm : int, optional
        CTAs on an SM at a time; by default what threads and shared memory allow. Registers are not known before a
        kernel is compiled.
    """
    cache, entry = Cache(gpu.l2_bytes, gpu.l2_partitions), launch.kernel.entry
    ctas, wave, per_slice = _ctas(launch, gpu, blocks_per_sm)
    uses = {}
    for tensor, read, write, nbytes in _touched(program, launch, traffic):
        if not settled(nbytes > 0):
            continue
        buffer = program.buffer(tensor)
        slices = ctas // per_slice
        heads = least(slices, buffer.shape[0] * buffer.shape[1])
        ctas_per_head = slices // heads * per_slice
        repeated = settled(most(read, write) > _ONCE * nbytes)
        pattern: Pattern = "streamed"
        if repeated and tensor in _KEY_SIDE:
            pattern = "shared"
        elif repeated and settled(per_slice == 1):
            pattern = "looped"
        # Bytes as floats from here on: exact up to 2**53, and products may exceed 64 bits.
        share = cast(float, np.minimum(1.0, 1.0 * read * heads / (1.0 * ctas * nbytes)))
        is_read = settled(read > 0)
        places, variance = cache.places(read=is_read, by_many=False)
        if pattern == "shared":
            many = least(wave, ctas_per_head) > 1
            shared = cache.places(read=is_read, by_many=True)
            places, variance = (
                cast(float, np.where(many, *both)) for both in zip(shared, (places, variance), strict=True)
            )
        moved = (1.0 * read, 1.0 * write, 1.0 * nbytes)
        uses[tensor] = Use(pattern, *moved, heads, ctas_per_head, share, places, variance)
    return Stage(entry, ctas, wave, per_slice, launch.smem_bytes > 0, uses)


def sorts(
    program: Program, launch: Launch, traffic: Mapping[tuple[str, str, Op], int], gpu: Gpu, blocks_per_sm: int | None
) -> Iterator[bool]:
    """What decides how the model goes on: whether a tensor is used, read, written or repeated, and how CTAs lie."""
    _, wave, per_slice = _ctas(launch, gpu, blocks_per_sm)
    yield from (wave == 1, per_slice == 1)
    for _, read, write, nbytes in _touched(program, launch, traffic):
        yield from (read > 0, write > 0, most(read, write) > _ONCE * nbytes)


def _ctas(launch: Launch, gpu: Gpu, blocks_per_sm: int | None) -> tuple[int, int, int]:
    """CTAs of a launch, of a wave and of a slice; CTAs that are not ordered by slice are those of one slice."""
    ctas = math.prod(launch.grid)
    if blocks_per_sm is None:
        threads = math.prod(launch.block)
        blocks_per_sm = occupancy(gpu, threads=threads, smem_bytes=launch.smem_bytes, registers=0).blocks_per_sm
    wave = least(ctas, max(1, blocks_per_sm) * gpu.sm_count)
    return ctas, wave, choose(launch.ctas_per_slice == 0, ctas, launch.ctas_per_slice)


def _touched(
    program: Program, launch: Launch, traffic: Mapping[tuple[str, str, Op], int]
) -> Iterator[tuple[str, int, int, int]]:
    """The tensors of a launch: bytes that are read and written, and different ones among them."""
    entry = launch.kernel.entry
    for tensor in dict.fromkeys(tensor for kernel, tensor, _ in traffic if kernel == entry):
        read, write = traffic.get((entry, tensor, "read"), 0), traffic.get((entry, tensor, "write"), 0)
        yield tensor, read, write, least(program.buffer(tensor).nbytes, most(read, write))


def prefix_share(use: Use) -> float:
    """Mean part of a head that CTAs read from its start on; 1 where each reads all of it, or a tile anywhere in it."""
    return cast(float, np.where(use.cta_share >= _PREFIX, use.cta_share, 1.0))
