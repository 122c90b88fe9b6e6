"""The normal distribution, of one number or of many at a time."""

from __future__ import annotations

import math
from typing import Final, cast

import numpy as np
import numpy.typing as npt

#: From so many standard deviations on, the normal distribution is certain.
_CERTAIN: Final = 8.5
#: Points per standard deviation at which it is kept, and the place of 0 among them.
_POINTS: Final = 128
_MIDDLE: Final = math.ceil(_CERTAIN * _POINTS)


def normal(z: float) -> float:
    """The normal distribution, to 14 digits: Taylor's series around the nearest of some points, to the fifth power."""
    figures = np.asarray(z, np.float64)
    # Further out it is 0 or 1 to the last digit.
    near = np.abs(figures) < _CERTAIN
    x = figures[near]
    place = np.rint(x * _POINTS).astype(np.intp)
    at, off = place / _POINTS, x - place / _POINTS
    distribution, density = _NORMAL
    # Its derivatives are the density times Hermite's polynomials.
    square = at * at
    fifth, fourth, third = (square * (square - 6) + 3) / 120, at * (3 - square) / 24, (square - 1) / 6
    series = off * (1 + off * (-at / 2 + off * (third + off * (fourth + off * fifth))))
    probability = np.where(figures > 0, 1.0, 0.0)
    probability[near] = np.clip(distribution[place + _MIDDLE] + density[place + _MIDDLE] * series, 0.0, 1.0)
    return cast(float, probability)


def _normal_table() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The normal distribution and its density at the points."""
    points = [place / _POINTS for place in range(-_MIDDLE, _MIDDLE + 1)]
    distribution = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in points])
    return distribution, np.array([math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in points])


_NORMAL: Final = _normal_table()
