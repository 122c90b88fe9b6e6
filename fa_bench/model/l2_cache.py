"""L2 as a cache of so many places: how probable it is that a line is still there after others passed.

Lines do not fill the sets of a cache evenly, so that it starts to lose lines before it is full. How many lines of one
tensor a set gets has the variance of a draw: with two partitions a written line lies in a given one or not (½), and a
line that one SM reads lies in that SM's for certain and in the other with ½. With one partition consecutive lines fill
the sets evenly.

Figures may be arrays with one element for each case (:mod:`fa_bench.sizes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np

from fa_bench.model.normal import normal

#: Places of a set.
WAYS: Final = 16
#: Of these at most so many are dirty; one more, and the oldest dirty line is written back.
DIRTY_WAYS: Final = 8
#: Lines of a DRAM page are in different sets; the first of them goes when this part of the capacity has passed.
FIRST_OF_PAGE: Final = 0.95
#: A page's lines are written back with the one whose set is too full; their sets are about as full as each other, so
#: that this is as if each line met so many sets.
_PAGE_SETS: Final = 1.5
#: Sets that are filled evenly lose the first line when the 17th comes: half a line later on average.
_EVEN: Final = 1 + 0.5 / WAYS
#: Spread of the load of such sets, relative: tensors end anywhere in a round of all sets.
_EVEN_SPREAD: Final = 0.05
#: Loads of sets have a variance like that of a draw, and lighter tails: where homes alternate from granule to granule,
#: as in the emulated L2, the lines in sets that are too full, counted for 24 to 126 MiB, are those of a normal
#: distribution with this part of the variance.
_LIGHT_TAILS: Final = 0.7
#: In a loop each line meets all others of its set: one line too many in a set, and it loses all of them.
_LOOP: Final = 1 - 1 / WAYS


class Places(NamedTuple):
    """Places that pass, in bytes, and the variance of their number in a set, in bytes times lines."""

    nbytes: float
    variance: float


@dataclass(frozen=True, slots=True)
class Cache:
    """L2, as the model sees it.

    Parameters
    ----------
    nbytes : int
        Capacity, both partitions together.
    partitions : int
        1 or 2.
    """

    nbytes: int
    partitions: int

    def places(self, *, read: bool, by_many: bool) -> tuple[float, float]:
        """Places of a line and the variance of each, see :mod:`fa_bench.model.l2`."""
        if self.partitions == 1:
            return 1.0, 0.0
        if not read:
            return 1.0, 1 / 2
        # A line that one SM reads has one place for certain, and a second one with ½: variance ¼ for half of the lines.
        return (2.0, 0.0) if by_many else (1.5, 1 / 6)

    def held(self, passed: Places) -> float:
        """Probability that a line is still there after ``passed``."""
        even = self.partitions == 1
        return self._within(passed.nbytes, self.nbytes * (_EVEN if even else 1), passed.variance / WAYS)

    def held_dirty(self, passed: Places) -> float:
        """Probability that a dirty line is still there: it leaves with the first line of its DRAM page."""
        return self.held(Places(passed.nbytes / FIRST_OF_PAGE, passed.variance / FIRST_OF_PAGE))

    def held_in_loop(self, passed: Places) -> float:
        """Probability that a line is still there when a loop of ``passed`` comes back to it."""
        even = self.partitions == 1
        return self._within(passed.nbytes, self.nbytes * (_EVEN if even else _LOOP), passed.variance / WAYS)

    def dirty_in_loop(self, nbytes: float) -> float:
        """Probability that a line stays dirty when a loop writes ``nbytes`` and comes back to it."""
        if self.partitions == 1:
            return self._within(nbytes, self.nbytes / 2 * _EVEN, 0.0)
        fits = 1 - 0.5 / DIRTY_WAYS
        variance = _LIGHT_TAILS * self._dirty_variance(nbytes)
        within: float = self._within(nbytes, self.nbytes / 2 * fits, variance) ** _PAGE_SETS
        return within

    def excess(self, dirty_bytes: float) -> float:
        """Bytes that the limit on dirty lines writes back of ``dirty_bytes``: what is above 8 of 16, summed over sets.

        The mean of ``max(0, x - limit)`` over the normal distribution of the load.
        """
        limit = self.nbytes / 2
        spread = self._spread(limit, self._dirty_variance(dirty_bytes))
        z = (dirty_bytes - limit) / spread
        beyond = spread * (z * normal(z) + np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
        return cast(float, np.where(dirty_bytes > 0, np.maximum(0.0, beyond), 0.0))

    def _dirty_variance(self, nbytes: float) -> float:
        _, variance = self.places(read=False, by_many=False)
        return variance * nbytes / DIRTY_WAYS

    def _within(self, nbytes: float, capacity: float, variance: float) -> float:
        within = normal((capacity - nbytes) / self._spread(capacity, variance))
        return cast(float, np.where(nbytes > 0, within, 1.0))

    def _spread(self, capacity: float, variance: float) -> float:
        return cast(float, np.maximum(_EVEN_SPREAD * capacity, np.sqrt(variance * capacity)))
