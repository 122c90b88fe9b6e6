"""How sure a median is, and what two of them say of each other.

The interval of a median goes from one order statistic to another, see `fa_bench.measure.statistics`. It needs no draw
of random numbers, so the same files always give the same answer.

A and B each have an interval of 95 %, and the interval of the ratio goes from the least quotient to the greatest. A
verdict rests on one end of each, wrong by at most 2.5 % each: it is wrong by at most 5 %. The two intervals overlap
exactly where the interval of the ratio holds 1.

Samples in a row are not independent where clocks or temperature drift: then they are many and agree, about nothing
that lasts. Where the intervals of the first and the last third do not overlap, the interval spans those of all thirds.

What none of this can know is how much two runs of the same program differ: that is what the margin is for. At the
noise at which a sweep stops (a standard error of 0.5 % of the median, about 1 % on either side) the ratio of two
equal times is known to about 2 %, so the usual margin is that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fa_bench.measure.statistics import median_rank, quantile

Verdict = Literal["same", "faster", "slower", "ambiguous"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A median in ms and between which times it lies, or a ratio of two.

    ``drifts`` says that the first and the last third of the samples do not agree.
    """

    low: float
    middle: float
    high: float
    drifts: bool = False


def median_interval(samples: Sequence[float]) -> Interval | None:
    """The median of samples in the order they were taken, with its interval; None of too few.

    Examples
    --------
    >>> median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 7.0])
    Interval(low=1.0, middle=4.0, high=7.0, drifts=False)
    """
    plain = _plain_interval(samples)
    if plain is None:
        return None
    third = len(samples) // 3
    thirds = [
        part
        for part in map(_plain_interval, (samples[:third], samples[third:-third], samples[-third:]))
        if part is not None
    ]
    if len(thirds) < 3 or _overlap(thirds[0], thirds[2]):
        return plain
    low, high = min(part.low for part in thirds), max(part.high for part in thirds)
    return Interval(min(low, plain.low), plain.middle, max(high, plain.high), drifts=True)


def summary_interval(count: int, p20: float, median: float, p80: float) -> Interval | None:
    """An interval of a median from a record alone, without the raw samples.

    The 20th and the 80th percentile lie outside of the ranks that `median_interval` takes if there are enough
    samples: then they enclose the median with more than its confidence, whatever the distribution. None otherwise.
    """
    rank = median_rank(count)
    if rank is None or 0.2 * (count - 1) > rank - 1:
        return None
    return Interval(p20, median, p80)


def ratio_interval(before: Interval, after: Interval) -> Interval:
    """The quotient of two medians, ``after`` over ``before``, and between which it lies."""
    return Interval(
        after.low / before.high, after.middle / before.middle, after.high / before.low, before.drifts or after.drifts
    )


def verdict(ratio: Interval, margin: float) -> Verdict:
    """What a ratio says, where changes up to ``margin`` (0.02 is 2 %) are none.

    ``slower`` and ``faster`` only if the whole interval lies beyond the margin, ``same`` only if the whole of it lies
    within. A margin is a factor, 1 + margin or its reciprocal, so that turning A and B round turns the verdict round.
    """
    most = 1.0 + margin
    if ratio.low > most:
        return "slower"
    if ratio.high < 1.0 / most:
        return "faster"
    return "same" if 1.0 / most <= ratio.low and ratio.high <= most else "ambiguous"


def _plain_interval(samples: Sequence[float]) -> Interval | None:
    rank = median_rank(len(samples))
    if rank is None:
        return None
    ordered = sorted(samples)
    return Interval(ordered[rank - 1], quantile(ordered, 0.5), ordered[-rank])


def _overlap(a: Interval, b: Interval) -> bool:
    return a.low <= b.high and b.low <= a.high
