"""When the last CTA ends: CTAs of known lengths over the SMs of a GPU, in the order in which they are started.

A CTA goes to the first place that is free. What k CTAs on an SM share is its throughput, so that each has a k-th of it
while k run. With fewer, at the end or in a small grid, each is faster, but a lone CTA doesn't get all that k together
get. So the end lies between two schedules that can be worked out:

    shared = places are SMs · k, each of a k-th of the speed
    alone  = places are SMs, one CTA on each, of the whole speed
    end    = alone + 0.4 · (shared - alone)
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from fa_bench.sizes import ceil_div

#: ``as numbered``: slice after slice, tile after tile. ``longest first``: a scheduler that starts with the longest.
Order = Literal["as numbered", "longest first"]

#: How far the end lies from the one where a lone CTA has a whole SM to the one where it has only its share.
_LONE: Final = 0.4
#: CTAs per place at the end of a grid that are scheduled one by one; before, all places are busy.
_LAST: Final = 8
#: Overheads, in tiles, at which ends are worked out; between them a straight line is taken.
_GRID: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0)


@dataclass(frozen=True, slots=True)
class Grid:
    """The CTAs of a launch.

    Parameters
    ----------
    lengths : tuple of int
        Tiles that each CTA of one slice works through, in the order of their numbers.
    slices : int
        Times that they come: (batch, head) pairs.
    order : {"as numbered", "longest first"}
    """

    lengths: tuple[int, ...]
    slices: int
    order: Order = "as numbered"

    @property
    def ctas(self) -> int:
        """CTAs in all."""
        return len(self.lengths) * self.slices

    @property
    def tiles(self) -> int:
        """Tiles in all."""
        return sum(self.lengths) * self.slices

    def end(self, sms: int, blocks_per_sm: int, overhead: float) -> float:
        """When the last CTA ends, in times of a tile with an SM to itself.

        Parameters
        ----------
        sms, blocks_per_sm : int
        overhead : float
            What a CTA takes beside its tiles, in tiles.

        Examples
        --------
        Four SMs, CTAs of three tiles. Four fill them; a fifth takes as long again, less what it gains by being alone.

        >>> Grid((3,), 4).end(4, 1, 0.0), Grid((3,), 5).end(4, 1, 0.0), Grid((3,), 4).end(4, 2, 1.0)
        (3.0, 6.0, 5.6)
        """
        if overhead >= _GRID[-1]:
            return _end(self, sms, blocks_per_sm, overhead)
        above = next(i for i, value in enumerate(_GRID) if value > overhead)
        low, high = _GRID[above - 1], _GRID[above]
        first, second = (_end(self, sms, blocks_per_sm, value) for value in (low, high))
        return first + (overhead - low) / (high - low) * (second - first)


@functools.lru_cache(maxsize=4096)
def _end(grid: Grid, sms: int, blocks_per_sm: int, overhead: float) -> float:
    alone = _list_schedule(grid, sms, 1, overhead)
    if blocks_per_sm == 1:
        return alone
    shared = _list_schedule(grid, sms * blocks_per_sm, blocks_per_sm, overhead)
    return alone + _LONE * max(0.0, shared - alone)


def _list_schedule(grid: Grid, places: int, slowness: int, overhead: float) -> float:
    longest = max(grid.lengths)
    if min(grid.lengths) == longest:
        return math.ceil(grid.ctas / places) * (longest + overhead) * slowness
    last = _last_lengths(grid, _LAST * places)
    before = grid.tiles - int(last.sum()) + overhead * (grid.ctas - len(last))
    ends = [0.0] * places
    for length in _floats(last):
        heapq.heapreplace(ends, ends[0] + (length + overhead) * slowness)
    return max(ends) + before * slowness / places


def _last_lengths(grid: Grid, count: int) -> np.ndarray:
    """Lengths of the last CTAs that are started."""
    count = min(count, grid.ctas)
    if grid.order == "as numbered":
        repeats = ceil_div(count, len(grid.lengths))
        return np.tile(np.array(grid.lengths), repeats)[-count:]
    shortest = sorted(grid.lengths)[: ceil_div(count, grid.slices)]
    return np.repeat(np.array(shortest[::-1]), grid.slices)[-count:]


def _floats(lengths: np.ndarray) -> Iterable[float]:
    values: Iterable[float] = lengths.astype(float).tolist()
    return values
