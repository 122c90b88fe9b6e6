"""The result of a validation: comparisons row by row, what was left out and why, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

#: A cell; None where a figure isn't known.
Value = str | int | float | bool | None
#: How a cell is written: as it is; a size as it is typed; an exact count; bytes as 10^6; bytes in binary units; a
#: fraction as percent; a deviation from a published figure as percent with its sign.
Unit = Literal["text", "size", "count", "megabytes", "bytes", "percent", "deviation"]


@dataclass(frozen=True, slots=True)
class Column:
    """``name`` is the key in rows, CSV and JSON, with its unit; ``title`` stands above the column of a table."""

    name: str
    title: str
    unit: Unit = "text"


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
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Published rows that nothing here can be held against, and why."""

    what: str
    rows: int
    reason: str


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
    """

    source: str
    published: str
    comparisons: tuple[Comparison, ...]
    left_out: tuple[LeftOut, ...] = ()
    failures: tuple[str, ...] = ()


def deviation(ours: float, published: float) -> float:
    """``ours`` over ``published``, less 1."""
    return ours / published - 1


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
