"""Two runs compared: every pair of rows with its verdict, what is not comparable, what has no partner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from fa_bench.comparison.conditions import Difference, differences, warnings
from fa_bench.comparison.figures import Figure, Total, byte_figures, resource_figures, totals
from fa_bench.comparison.intervals import Interval, Verdict, ratio_interval, verdict
from fa_bench.comparison.pairing import By, Pairing, pair, tile_changes
from fa_bench.comparison.runs import Run
from fa_bench.records import Record

#: Changes of a time up to this share are none: see `fa_bench.comparison.intervals`.
MARGIN: Final = Fraction(2, 100)

#: What the time of a pair says; ``unknown`` where there is no interval, with a reason, ``none`` where neither has one.
TimeVerdict = Literal[Verdict, "unknown", "none"]


@dataclass(frozen=True, slots=True)
class TimeChange:
    """What happened to the time of a pair.

    Parameters
    ----------
    verdict : TimeVerdict
    ratio : Interval, optional
        New over old median, and between which it lies; None where no verdict can be had.
    reason : str
        Why it is not known or ambiguous; may be empty.
    """

    verdict: TimeVerdict
    ratio: Interval | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PairResult:
    """One row of the first run against one of the second.

    ``bytes`` are figures that changed, ``totals`` all of them by level and source, ``resources`` registers, spills,
    shared memory and error whether they changed or not, ``tile`` what of the tile is not the same.
    """

    before: Record
    after: Record
    time: TimeChange
    bytes: tuple[Figure, ...]
    totals: tuple[Total, ...]
    resources: tuple[Figure, ...]
    tile: tuple[tuple[str, int | None, int | None], ...]
    differences: tuple[Difference, ...]

    @property
    def changed(self) -> tuple[Figure, ...]:
        """All figures that changed, bytes first."""
        return (*self.bytes, *(figure for figure in self.resources if figure.changed))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Parameters
    ----------
    before, after : str
        The runs, as they were given.
    by : {"case", "shape"}
    margin : Fraction
        Of the verdicts.
    pairs : tuple of PairResult
    only_before, only_after : tuple of Record
        Rows without a partner.
    warnings : tuple of str
        Sentences: what was not the same, what could not be read.
    """

    before: str
    after: str
    by: By
    margin: Fraction
    pairs: tuple[PairResult, ...]
    only_before: tuple[Record, ...]
    only_after: tuple[Record, ...]
    warnings: tuple[str, ...]

    @property
    def verdicts(self) -> dict[TimeVerdict, int]:
        """Verdict on time -> number of pairs."""
        return dict(Counter(result.time.verdict for result in self.pairs))


def compare(before: Run, after: Run, by: By = "case", margin: Fraction = MARGIN) -> Comparison:
    """Compare two runs.

    Parameters
    ----------
    before, after : Run
    by : {"case", "shape"}
        What rows are paired by: see `fa_bench.comparison.pairing.pair`.
    margin : Fraction
        The change of a time that counts as none.
    """
    pairing = pair(before.records, after.records, by)
    results = tuple(_result(before, after, old, new, margin) for old, new in pairing.pairs)
    said = warnings(result.differences for result in results)
    return Comparison(
        before.path,
        after.path,
        by,
        margin,
        results,
        pairing.only_before,
        pairing.only_after,
        (*before.notes, *after.notes, *_partners_by_shape(pairing, by), *said),
    )


def _partners_by_shape(pairing: Pairing, by: By) -> tuple[str, ...]:
    """Where to look for the partner of a row that has none."""
    if by == "case" and (count := len(pair(pairing.only_before, pairing.only_after, "shape").pairs)):
        rows = "1 row without a partner has one" if count == 1 else f"{count} rows without a partner have one"
        return (f"{rows} of the same shape: --by shape pairs them.",)
    return () if pairing.pairs else ("No two rows pair.",)


def _result(before: Run, after: Run, old: Record, new: Record, margin: Fraction) -> PairResult:
    found = differences(before, after, old, new)
    return PairResult(
        old,
        new,
        _time(before, after, old, new, found, margin),
        byte_figures(old, new, (before.lines(old), after.lines(new))),
        totals(old, new),
        resource_figures(old, new),
        tile_changes(old, new),
        found,
    )


def _time(
    before: Run, after: Run, old: Record, new: Record, found: Sequence[Difference], margin: Fraction
) -> TimeChange:
    if old.time_ms is None and new.time_ms is None:
        return TimeChange("none")
    intervals = (before.interval(old), after.interval(new))
    for interval in intervals:
        if isinstance(interval, str):
            return TimeChange("unknown", None, interval)
    barred = [difference.what for difference in found if difference.bars_time]
    if barred:
        return TimeChange("unknown", None, f"another {' and '.join(barred)}")
    first, second = intervals
    assert isinstance(first, Interval) and isinstance(second, Interval)
    ratio = ratio_interval(first, second)
    answer = verdict(ratio, float(margin))
    drifting = [run.path for run, interval in ((before, first), (after, second)) if interval.drifts]
    return TimeChange(answer, ratio, f"times drift in {' and '.join(drifting)}" if drifting else "")
