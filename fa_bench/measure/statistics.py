"""Order statistics of a list of times, and how sure its median is. Times are skewed: means and σ mislead."""

from __future__ import annotations

import math
from collections.abc import Sequence


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
