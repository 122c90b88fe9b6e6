"""What judging a claim gives: figures, the bounds that the claim puts on them, and the verdict that follows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.units import (
    format_bytes,
    format_count,
    format_megabytes,
    format_ms,
    format_number,
    format_percent,
    format_ratio,
    format_si,
)

#: ``holds-if``: some readings of the statement hold, others don't; the verdict names those that do.
Verdict = Literal["holds", "holds-if", "does-not-hold", "not-tested"]
#: What keeps a figure from being computed on this machine.
Lack = Literal["torch", "compiler"]
#: How a figure is written: exact counts; 10^6 bytes; binary units of bytes; a multiple; multiples of N²; a power of N;
#: a fraction as percent; a relative error; ms with the unit that suits; 10^12 bytes per second; FLOP per byte.
Unit = Literal[
    "count", "megabytes", "bytes", "times", "n2", "power", "percent", "number", "error", "ms", "B/s", "FLOP/B"
]

#: Relative errors below this are rounding of float64, which differs from machine to machine.
ROUNDING: Final = 1e-9
#: Errors below this are rounding of float32, which differs likewise; from here on an error has three digits.
_NOISE, _SMALL = 1e-5, 1e-2


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and where it comes from.

    Parameters
    ----------
    name : str
        Unique within its claim; ``texts.toml`` says in both languages what it is.
    value : float
        In the unit that ``unit`` names; full precision.
    unit : Unit
    how : str
        The formula with its numbers put in, or the command or kernel that was counted.
    """

    name: str
    value: float
    unit: Unit
    how: str

    def __post_init__(self) -> None:
        if math.isnan(self.value):
            raise ValueError(f"figure {self.name} is not a number")

    @property
    def text(self) -> str:
        """The value for people: three digits, fewer where machines may differ."""
        return _error(self.value) if self.unit == "error" else _with_unit(self.value, self.unit)


def _with_unit(value: float, unit: Unit) -> str:
    match unit:
        case "count":
            return format_count(round(value))
        case "megabytes":
            return f"{format_megabytes(round(value))} MB"
        case "bytes":
            return format_bytes(round(value))
        case "times":
            return format_ratio(value)
        case "n2":
            return f"{format_number(value)} N²"
        case "power":
            return f"N^{value:.2f}"
        case "percent":
            return format_percent(value)
        case "number":
            return format_number(value)
        case "error":
            return f"{value:.0e}".replace("e-0", "e-")
        case "ms":
            return format_ms(value)
        case "B/s":
            return format_si(value, "B/s")
        case "FLOP/B":
            return f"{format_number(value)} FLOP/B"


def _error(value: float) -> str:
    """An error: a power of ten above it where it is rounding, one digit where it is small."""
    if math.isinf(value):
        return "inf"
    if value >= _SMALL:
        return format_number(value)
    if value >= _NOISE:
        return _with_unit(value, "error")
    above = max(ROUNDING, 10.0 ** math.ceil(math.log10(value))) if value else ROUNDING
    return f"<{_with_unit(above, 'error')}"


@dataclass(frozen=True, slots=True)
class Check:
    """A bound that one reading of the statement puts on figures.

    Parameters
    ----------
    name : str
        Unique within its claim; ``texts.toml`` names the reading in both languages.
    figures : tuple of Figure
        All of them must lie within the bounds.
    low, high : float
        Inclusive.
    """

    name: str
    figures: tuple[Figure, ...]
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.figures:
            raise ValueError(f"check {self.name} has nothing to check")
        if not self.low <= self.high or self.low == -self.high == -math.inf:
            raise ValueError(f"check {self.name} asks for {self.low} to {self.high}")

    @property
    def passed(self) -> bool:
        """Whether the reading holds."""
        return all(self.low <= figure.value <= self.high for figure in self.figures)

    @property
    def bounds(self) -> str:
        """What is asked, for people."""
        unit = self.figures[0].unit
        if math.isinf(self.high):
            return f"≥ {_with_unit(self.low, unit)}"
        high = _with_unit(self.high, unit)
        if math.isinf(self.low):
            return f"≤ {high}"
        return f"= {high}" if self.low == self.high else f"{_with_unit(self.low, unit)} … {high}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Everything that was computed for one claim.

    Parameters
    ----------
    figures : tuple of Figure
        In the order in which they are explained.
    checks : tuple of Check
        Of figures among ``figures``.
    lacking : tuple of Lack
        What is not here; figures and checks that need it are left out.
    """

    figures: tuple[Figure, ...]
    checks: tuple[Check, ...]
    lacking: tuple[Lack, ...] = ()

    def __post_init__(self) -> None:
        for what, names in (
            ("figure", [figure.name for figure in self.figures]),
            ("check", [check.name for check in self.checks]),
        ):
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise ValueError(f"{what} {', '.join(sorted(twice))} appears twice")
        for check in self.checks:
            if any(figure not in self.figures for figure in check.figures):
                raise ValueError(f"check {check.name} is of a figure that is not shown")

    @property
    def verdict(self) -> Verdict:
        """``holds`` if every reading was tested and holds, ``does-not-hold`` if none does, ``holds-if`` if some do."""
        if not self.checks:
            return "not-tested"
        passed = sum(check.passed for check in self.checks)
        if passed == len(self.checks) and not self.lacking:
            return "holds"
        return "holds-if" if passed else "does-not-hold"

    def figure(self, name: str) -> Figure:
        """The figure called ``name``."""
        return next(figure for figure in self.figures if figure.name == name)


def judged(checks: Iterable[Check], *more: Figure, lacking: tuple[Lack, ...] = ()) -> Judgement:
    """A judgement of these checks, with their figures first and then ``more``."""
    checks = tuple(checks)
    figures = dict.fromkeys((*(figure for check in checks for figure in check.figures), *more))
    return Judgement(tuple(figures), checks, lacking)


def ratio(name: str, above: Figure, below: Figure, where: str = "") -> Figure:
    """One figure over another."""
    return Figure(name, above.value / below.value, "times", f"{above.text} / {below.text}{where}")


def within(share: float, of: float) -> tuple[float, float]:
    """Bounds: ``of``, less and more by this share of it.

    Examples
    --------
    >>> within(0.5, 10)
    (5.0, 15.0)
    """
    return of * (1 - share), of * (1 + share)


def by_a_factor(factor: float, of: float) -> tuple[float, float]:
    """Bounds: ``of`` over ``factor`` to ``of`` times ``factor``.

    Examples
    --------
    >>> by_a_factor(2, 10)
    (5.0, 20)
    """
    return of / factor, of * factor
