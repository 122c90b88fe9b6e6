"""Order statistics of a list of times, and how sure its median is. Times are skewed: means and σ mislead.

The interval of a median goes from one order statistic to another. Whatever the distribution of the times (skewed, of
two modes, with many ties of a coarse timer), the number of samples below the true median is binomial with p = 1/2, so
ranks l and n + 1 - l enclose it unless at most l - 1 samples fell on one side: H. A. David and H. N. Nagaraja, *Order
Statistics* (3rd ed., 2003), section 7.1. That holds for any number of independent samples, and needs no draw of random
numbers as a bootstrap does.

Samples in a row are not independent where clocks or temperature wander. The medians of batches of them are less
dependent, and show it: batch means as in A. M. Law, *Simulation Modeling and Analysis* (5th ed., 2015), section 9.5.3.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

#: Fewer samples have no thirds worth comparing.
MIN_DRIFT_SAMPLES: Final = 9
#: Of the interval of one median.
CONFIDENCE: Final = 0.95
#: Fewer samples have no interval of that confidence: all n fall on one side of the median with probability 2 / 2^n.
MIN_INTERVAL_SAMPLES: Final = 6

#: Standard errors from a median to an end of its interval, for a normal distribution.
_ENDS_AT: Final = statistics.NormalDist().inv_cdf((1.0 + CONFIDENCE) / 2.0)
#: Samples are cut into so many batches, of at least so many samples: the median of fewer may be an outlier. How much
#: fewer batches depend on each other would be chance.
_MOST_BATCHES: Final = 20
_FEWEST_BATCHES: Final = 10
_MIN_BATCH: Final = 5
#: More is not believed of so few batches; the error is then 4.4 times that of independent ones.
_MOST_CORRELATION: Final = 0.9


def quantile(ordered: Sequence[float], q: float) -> float:
    """Quantile ``q`` (0 … 1) of an ascending sequence, linear between neighbours; never falls as ``q`` rises.

    Raises
    ------
    ValueError
        If the sequence is empty.
    """
    if not ordered:
        raise ValueError("an empty sequence has no quantile")
    place = q * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return min(low + (place - math.floor(place)) * (high - low), high)


@lru_cache(maxsize=1024)
def median_rank(count: int) -> int | None:
    """The largest l such that the l-th and the l-th last of ``count`` samples enclose the median with `CONFIDENCE`.

    None if none do.
    """
    # What is left out of the tail, ten standard deviations away, is below the precision of a float.
    start = max(0, math.floor(count / 2 - 5.0 * math.sqrt(count)))
    tail = 0.0
    for k in range(start, count // 2 + 1):
        tail += math.exp(
            math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) - count * math.log(2.0)
        )
        if 2.0 * tail > 1.0 - CONFIDENCE:
            return k or None
    return None


def median_noise(times: Sequence[float]) -> float:
    """Relative standard error of the median of times in the order they were taken.

    The greater of two: that which the median's interval implies, of whatever distribution the times are, by its farther
    end; and that of the medians of up to 20 batches, which sees times that wander or drift. In simulations of normal
    and of skewed times, of two equal modes and of times that wander (correlations up to 0.99 from one to the next), 500
    samples claim 0.9 to 1.3 times the real scatter. Fewer than 50 are taken for independent.

    Returns
    -------
    float
        Infinity where nothing is known: fewer than `MIN_INTERVAL_SAMPLES`, or a median that is not positive.
    """
    rank = median_rank(len(times))
    ordered = sorted(times)
    median = quantile(ordered, 0.5) if ordered else 0.0
    if rank is None or not median > 0.0:
        return math.inf
    farther = max(median - ordered[rank - 1], ordered[-rank] - median)
    return max(farther / _ENDS_AT, _error_by_batches(times)) / median


def _error_by_batches(times: Sequence[float]) -> float:
    """Standard error of the median by the medians of batches; 0 where there are too few.

    Batches may still depend on each other. With correlation r from one to the next, as of an autoregressive process of
    first order, the variance of their mean is (1 + r) / (1 - r) times that of independent ones. Of n batches r comes
    out too small by (1 + 3 r) / n (F. H. C. Marriott and J. A. Pope, *Biometrika* 41, 1954, p. 390).
    """
    count = min(_MOST_BATCHES, len(times) // _MIN_BATCH)
    if count < _FEWEST_BATCHES:
        return 0.0
    ends = [len(times) * batch // count for batch in range(count + 1)]
    medians = [statistics.median(times[begin:end]) for begin, end in itertools.pairwise(ends)]
    mean = statistics.fmean(medians)
    apart = [median - mean for median in medians]
    squares = math.fsum(a * a for a in apart)
    if squares == 0.0:
        return 0.0
    correlation = math.fsum(a * b for a, b in itertools.pairwise(apart)) / squares
    correlation = min(max((count * correlation + 1.0) / (count - 3.0), 0.0), _MOST_CORRELATION)
    return math.sqrt(squares / (count - 1) / count * (1.0 + correlation) / (1.0 - correlation))


def drift(times: Sequence[float]) -> float | None:
    """How far times moved while they were taken: the last third's median over the first third's, minus 1.

    A GPU that gets hot lowers its clocks within one measurement; then the median is of neither state. None for fewer
    than 9 times, or where the first third's median is not positive.
    """
    third = len(times) // 3
    if len(times) < MIN_DRIFT_SAMPLES:
        return None
    first, last = statistics.median(times[:third]), statistics.median(times[-third:])
    return last / first - 1.0 if first > 0.0 else None
