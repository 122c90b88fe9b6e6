"""The result of a validation: comparisons row by row, summaries, what was left out and why, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

#: A cell; None where a figure isn't known.
Value = str | int | float | bool | None
#: How a cell is written: as it is; a size as it is typed; an exact count; bytes as 10^6; bytes in binary units; a
#: fraction as percent; a deviation from a published figure as percent with its sign; a time in ms; a plain number.
Unit = Literal["text", "size", "count", "megabytes", "bytes", "percent", "deviation", "ms", "number"]


@dataclass(frozen=True, slots=True)
class Column:
    """``name`` is the key in rows, CSV and JSON, with its unit; ``title`` stands above the column of a table."""

    name: str
    title: str
    unit: Unit = "text"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a table shows in place of rows that are too many to be read."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table: published figures and ours, a row per published row.

    Parameters
    ----------
    name : str
        Short and unique within its source.
    title : str
        One line above the table.
    columns : tuple of Column
        What a table shows; rows may hold more, which CSV and JSON have too.
    rows : tuple of mappings
    note : str
        What the reader must know below the table.
    summaries : tuple of Summary
        If any, tables show them; CSV and JSON have the rows all the same.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    note: str = ""
    summaries: tuple[Summary, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Published rows that nothing here can be held against, and why."""

    what: str
    rows: int
    reason: str


@dataclass(frozen=True, slots=True)
class Score:
    """How far off the figures of one kind are, in one number.

    Parameters
    ----------
    what : str
        Which figures: who published them, or the quantity.
    gpu : str
        Slug.
    figures : int
        How many were compared.
    mape : float or None
        Mean absolute percentage error, as a fraction; None if there are none.
    all_figures, all_mape
        The same with those that are left out but can be worked out.
    """

    what: str
    gpu: str
    figures: int
    mape: float | None
    all_figures: int
    all_mape: float | None


@dataclass(frozen=True, slots=True)
class Validation:
    """All of one source.

    Parameters
    ----------
    source : str
        Its name on the command line.
    published : str
        Who published the figures, and where.
    comparisons : tuple of Comparison
    left_out : tuple of LeftOut
    failures : tuple of str
        A sentence for each figure that is further off than it may be.
    scores : tuple of Score
        One for each kind of figure, or for each publication and GPU.
    """

    source: str
    published: str
    comparisons: tuple[Comparison, ...]
    left_out: tuple[LeftOut, ...] = ()
    failures: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()


def deviation(ours: float, published: float) -> float:
    """``ours`` over ``published``, less 1."""
    return ours / published - 1


def known_deviations(rows: Iterable[Mapping[str, Value]], name: str) -> list[float]:
    """The column ``name`` of rows, without those where it is not known.

    Examples
    --------
    >>> known_deviations([{"error": -0.5}, {"error": None}], "error")
    [-0.5]
    """
    return [value for row in rows if isinstance(value := row[name], float)]


def mean_absolute(deviations: Sequence[float]) -> float:
    """Mean absolute percentage error, as a fraction.

    Raises
    ------
    ValueError
        If there is nothing to average.
    """
    if not deviations:
        raise ValueError("no deviations to average")
    return sum(map(abs, deviations)) / len(deviations)


def score(what: str, gpu: str, kept: Sequence[float], left_out: Sequence[float] = ()) -> Score:
    """Mean errors of deviations, without and with those of figures that are left out.

    Examples
    --------
    >>> score("times", "a100-sxm-80", [0.1, -0.2], [1.2])
    Score(what='times', gpu='a100-sxm-80', figures=2, mape=0.15000000000000002, all_figures=3, all_mape=0.5)
    """
    both = [*kept, *left_out]
    return Score(what, gpu, len(kept), mean_or_none(kept), len(both), mean_or_none(both))


def mean_or_none(deviations: Sequence[float]) -> float | None:
    """`mean_absolute`, or None of nothing."""
    return mean_absolute(deviations) if deviations else None
