"""Order statistics of a list of times, and how sure its median is. Times are skewed: means and σ mislead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

#: Fewer samples have no thirds worth comparing.
MIN_DRIFT_SAMPLES: Final = 9


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


def median_noise(ordered: Sequence[float]) -> float:
    """Relative standard error of the median of an ascending sequence.

    The median of n samples has standard error ``sqrt(pi/2) σ / sqrt(n)``. σ is taken from the interquartile range
    as ``IQR / 1.349`` (both exact for a normal distribution), so that a few outliers from the operating system
    do not decide. Infinity where the median is not positive: then nothing is known.
    """
    median = quantile(ordered, 0.5)
    if not median > 0.0:
        return math.inf
    sigma = (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / 1.349
    return math.sqrt(math.pi / 2) * sigma / math.sqrt(len(ordered)) / median


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
