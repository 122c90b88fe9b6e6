"""Arithmetic on sizes that are whole numbers, or arrays of them with one element for each case of a grid.

Formulas of sizes are written, and annotated, for Python's integers. :mod:`fa_bench.grid` puts int64 arrays of one
length in their place: ``+ - * // %`` and comparisons then mean the same, element by element, and what does not is here.
So there is one formula for one case and for a million. Python's integers are exact at any size; who uses arrays makes
sure that their results fit.
"""

from __future__ import annotations

import math
from typing import Any, cast

# NumPy is imported where there are arrays: cases are described on machines that compute nothing.


def is_array(size: object) -> bool:
    """Whether ``size`` has one element for each case."""
    return getattr(size, "ndim", 0) > 0


def ceil_div(size: int, unit: int) -> int:
    """``size / unit``, rounded up; exact at any size.

    Examples
    --------
    >>> ceil_div(1024, 163), ceil_div(1024, 256)
    (7, 4)
    """
    return -(-size // unit)


def least(one: int, other: int) -> int:
    """The smaller of two sizes."""
    return choose(one < other, one, other)


def most(one: int, other: int) -> int:
    """The larger of two sizes."""
    return choose(one > other, one, other)


def clamp(size: int, low: int, high: int) -> int:
    """``size``, held between two others."""
    return least(most(size, low), high)


def choose(condition: bool, yes: int, no: int) -> int:
    """``yes`` where the condition holds, else ``no``."""
    if not is_array(condition):
        return yes if condition else no
    import numpy as np

    chosen: Any = np.where(condition, yes, no)
    return cast(int, chosen)


def common_divisor(one: int, other: int) -> int:
    """The greatest common divisor."""
    if is_array(one) or is_array(other):
        import numpy as np

        return cast(int, np.gcd(one, other))
    return math.gcd(one, other)


def settled(condition: bool) -> bool:
    """Whether a condition holds, which is the same for all cases."""
    every: Any = condition
    return bool(every.all()) if is_array(condition) else bool(condition)


def rounded(value: float) -> int:
    """``value`` to the nearest whole number, halves to the even one."""
    if not is_array(value):
        return round(value)
    import numpy as np

    nearest: Any = np.rint(value).astype(np.int64)
    return cast(int, nearest)


def covering_power_up_to(size: int, limit: int) -> int:
    """The smallest power of two that is not below ``size``, or ``limit``, a power of two, if that is smaller.

    Examples
    --------
    >>> [covering_power_up_to(size, 8) for size in (1, 2, 3, 5, 100)]
    [1, 2, 4, 8, 8]
    """
    total = power = 1
    while power < limit:
        total = total + power * (size > power)
        power *= 2
    return total


def floor_sum(count: int, divisor: int, step: int, start: int) -> int:
    """Σ of ``(step · i + start) // divisor`` over 0 <= i < count, in as many steps as Euclid's algorithm takes.

    Parameters
    ----------
    count : int
        At least 0.
    divisor, step : int
        At least 1; numbers, also where the others are arrays.
    start : int
        At least 0 where ``count`` is not 0.

    Notes
    -----
    Whole multiples of the divisor in ``step`` and ``start`` are an arithmetic series. What is left is the number of
    lattice points below a line of slope under 1; counted along the other axis it is a sum of the same kind with divisor
    and step exchanged.

    Examples
    --------
    Under a causal mask, tiles of 48 rows visit so many blocks of 64 keys: 1 + 2 + 3 + 3.

    >>> floor_sum(4, 64, 48, 48 + 63)
    9
    """
    total = 0
    while True:
        total = total + count * (count - 1) // 2 * (step // divisor) + count * (start // divisor)
        step, start = step % divisor, start % divisor
        if step == 0:
            return total
        reached = step * count + start
        count, start = reached // divisor, reached % divisor
        divisor, step = step, divisor
