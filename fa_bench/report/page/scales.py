"""Logarithmic axes: where a value lies, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.units import format_int

#: Digits that ticks may have in each decade, the densest first.
_STEPS: Final = ((1, 2, 5), (1, 3), (1,))
#: The least quotient of an axis' ends: with it there are two ticks or more.
_LEAST_SPAN: Final = 6.0


@dataclass(frozen=True, slots=True)
class LogScale:
    """Maps values from ``low`` to ``high`` (above 0) to positions from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The position of a value, which must be above 0; a scale of one value has it in the middle."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def spanned(values: Iterable[float], room: float = 1.25) -> tuple[float, float]:
    """Least and largest value, with a factor of room on either side, wider where that is too narrow for two ticks.

    Examples
    --------
    >>> spanned([8, 100], 2)
    (4.0, 200)
    >>> low, high = spanned([3])
    >>> round(high / low, 6), round(low * high, 6)
    (6.0, 9.0)
    """
    known = list(values)
    low, high = min(known) / room, max(known) * room
    more = max(1.0, math.sqrt(_LEAST_SPAN * low / high))
    return (low / more, high * more) if more > 1 else (low, high)


def binary_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of two inside the limits, at most ``most`` of them, evenly spread.

    Examples
    --------
    >>> binary_ticks(1000, 70_000, 4)
    [1024.0, 4096.0, 16384.0, 65536.0]
    """
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / most))
    return [2.0**exponent for exponent in range(last - (last - first) // step * step, last + 1, step)]


def decimal_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 times powers of ten inside the limits; 1 and 3 times or only powers where those are too many.

    Examples
    --------
    >>> decimal_ticks(0.8, 6, 5)
    [1.0, 2.0, 5.0]
    >>> decimal_ticks(3e-5, 2e4, 5)
    [0.0001, 0.01, 1.0, 100.0, 10000.0]
    """
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    for steps in _STEPS:
        ticks = [float(f"{step}e{exponent}") for exponent in range(first, last + 1) for step in steps]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)]


def length_ticks(lengths: Iterable[int], most: int) -> list[int]:
    """Of the lengths that were run at most ``most``, evenly spread, the longest among them."""
    ordered = sorted(set(lengths))
    step = max(1, math.ceil(len(ordered) / most))
    return ordered[::-1][::step][::-1]


def length_text(length: float) -> str:
    """A length as it is typed: 512, 16k."""
    return format_int(round(length))


def spread(wanted: Sequence[float], gap: float, start: float, end: float) -> list[float]:
    """Positions near those wanted that are ``gap`` apart and inside the limits, in the order of ``wanted``.

    Examples
    --------
    >>> spread([10, 11, 40], 12, 0, 50)
    [10, 22, 40]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [max(start, wanted[i]) for i in order]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    if places and places[-1] > end:
        places[-1] = end
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - gap)
    return [places[order.index(i)] for i in range(len(wanted))]
