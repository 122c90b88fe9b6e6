"""By how much a figure may grow: the grammar of ``--fail-on``, for every command that compares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from fa_bench.errors import UsageError, nearest
from fa_bench.units import parse_int

_PERCENT: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%")


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a metric may grow: ``allowed``, or that share of what it was where ``relative``."""

    metric: str
    allowed: Fraction
    relative: bool

    @classmethod
    def parse(cls, text: str, metrics: Iterable[str]) -> tuple[Self, ...]:
        """Read ``--fail-on``: ``bytes:0,instructions:1%``.

        Parameters
        ----------
        text : str
        metrics : iterable of str
            Those that can be limited.

        Raises
        ------
        UsageError
            If a metric does not exist or a limit is no number.

        Examples
        --------
        >>> Limit.parse("bytes:0,instructions:1%", ["bytes", "instructions"])[1]
        Limit(metric='instructions', allowed=Fraction(1, 100), relative=True)
        """
        known = list(metrics)
        limits = []
        for item in (part.strip() for part in text.split(",")):
            metric, colon, limit = (part.strip() for part in item.partition(":"))
            if metric not in known:
                raise UsageError(f"--fail-on: there is no metric {metric!r}.", nearest(metric, known))
            if not colon:
                raise UsageError(f"--fail-on: {metric} needs a limit, as in {metric}:0 or {metric}:1%.")
            share = parse_percent(limit)
            try:
                allowed = Fraction(parse_int(limit)) if share is None else share
            except UsageError as error:
                raise UsageError(f"--fail-on: {metric}: {error.message}") from error
            limits.append(cls(metric, allowed, share is not None))
        return tuple(limits)

    def allows(self, before: float, after: float) -> bool:
        """Whether the growth is within the limit; exact, and of nothing every share is nothing."""
        old = Fraction(before)
        return Fraction(after) - old <= (self.allowed * old if self.relative else self.allowed)

    def __str__(self) -> str:
        if not self.relative:
            return f"{self.metric}:{self.allowed}"
        return f"{self.metric}:{float(100 * self.allowed):g}%"


def parse_percent(text: str) -> Fraction | None:
    """A share such as ``2%`` or ``0.5 %``, exactly; None if ``text`` is none.

    Examples
    --------
    >>> parse_percent("0.5%")
    Fraction(1, 200)
    """
    match = _PERCENT.fullmatch(text.strip())
    return None if match is None else Fraction(match[1]) / 100
