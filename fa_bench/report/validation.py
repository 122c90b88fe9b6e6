"""Tables, flat rows and a document of validations: published figures beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import (
    format_bytes,
    format_count,
    format_int,
    format_megabytes,
    format_ms,
    format_number,
    format_percent,
)
from fa_bench.validation.result import LeftOut, Score, Summary, Unit, Validation, Value

#: Version of the JSON document, described in docs/cli.md. 2: ``scores`` and ``summaries``.
SCHEMA: Final = 2
#: A source with more scores than this stands in the overview in one row.
_SCORES: Final = 4


def tables(validation: Validation) -> list[Table]:
    """The comparisons of one source, the first with who published it, and what is left out."""
    made: list[Table] = []
    for comparison in validation.comparisons:
        shown = comparison.summaries or (
            Summary(comparison.title, comparison.columns, comparison.rows, comparison.note),
        )
        made += [_table(validation.source, summary) for summary in shown]
    made[0] = replace(made[0], note=f"{made[0].note} Published: {validation.published}.".strip())
    if validation.left_out:
        made.append(_left_out(validation.source, validation.left_out))
    return made


def overview(validations: Iterable[Validation]) -> Table:
    """A row for each score; a source with many of them has one, the mean over its figures."""
    columns = (
        Column("source"),
        Column("figures"),
        *(Column(title, "right") for title in ("n", "MAPE", "all", "MAPE", "failed")),
    )
    rows = []
    for validation in validations:
        few = len(validation.scores) <= _SCORES
        for score in validation.scores if few else (_together(validation.scores),):
            numbers: tuple[tuple[Value, Unit], ...] = (
                (score.figures, "count"),
                (score.mape, "percent"),
                (score.all_figures, "count"),
                (score.all_mape, "percent"),
                (len(validation.failures), "count"),
            )
            rows.append((validation.source, score.what, *(_cell(value, unit) for value, unit in numbers)))
    note = "n: figures that are compared. all: with those that are left out but can be worked out."
    return Table("Summary", columns, tuple(rows), note)


def _together(scores: Sequence[Score]) -> Score:
    """All figures of a source in one score."""

    def mean(pairs: Sequence[tuple[int, float | None]]) -> float | None:
        known = [(count, value) for count, value in pairs if value is not None]
        return sum(count * value for count, value in known) / sum(count for count, _ in known) if known else None

    return Score(
        f"{len(scores)} publications and GPUs",
        "",
        sum(score.figures for score in scores),
        mean([(score.figures, score.mape) for score in scores]),
        sum(score.all_figures for score in scores),
        mean([(score.all_figures, score.all_mape) for score in scores]),
    )


def flat_rows(validations: Iterable[Validation]) -> list[dict[str, object]]:
    """One row per row of a comparison, with the columns of all of them."""
    rows = [
        {"source": validation.source, "comparison": comparison.name, **row}
        for validation in validations
        for comparison in validation.comparisons
        for row in comparison.rows
    ]
    header = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in header} for row in rows]


def document(validations: Sequence[Validation]) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "schema": SCHEMA,
        "passed": not any(validation.failures for validation in validations),
        "sources": [
            {
                "source": validation.source,
                "published": validation.published,
                "comparisons": [
                    {
                        "name": c.name,
                        "title": c.title,
                        "note": c.note,
                        "rows": list(c.rows),
                        "summaries": [{"title": s.title, "rows": list(s.rows)} for s in c.summaries],
                    }
                    for c in validation.comparisons
                ],
                "scores": [asdict(score) for score in validation.scores],
                "left_out": [asdict(left_out) for left_out in validation.left_out],
                "failures": list(validation.failures),
            }
            for validation in validations
        ],
    }


def _table(source: str, summary: Summary) -> Table:
    return Table(
        f"{source}: {summary.title}",
        tuple(Column(c.title, "left" if c.unit == "text" else "right") for c in summary.columns),
        tuple(tuple(_cell(row.get(c.name), c.unit) for c in summary.columns) for row in summary.rows),
        summary.note,
    )


def _left_out(source: str, rows: Sequence[LeftOut]) -> Table:
    columns = (Column("published"), Column("rows", "right"), Column("why not"))
    return Table(f"{source}: left out", columns, tuple((row.what, format_count(row.rows), row.reason) for row in rows))


def _cell(value: Value, unit: Unit) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    match unit:
        case "size":
            return format_int(int(value))
        case "count":
            return format_count(int(value))
        case "megabytes":
            return format_megabytes(int(value))
        case "bytes":
            return format_bytes(int(value))
        case "percent":
            return format_percent(value)
        case "deviation":
            return format_percent(value, signed=True)
        case "ms":
            return format_ms(value)
        case "number":
            return format_number(value)
        case "text":
            return str(value)
