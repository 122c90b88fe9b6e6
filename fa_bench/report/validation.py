"""Tables, flat rows and a document of validations: published figures beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_bytes, format_count, format_int, format_megabytes, format_percent
from fa_bench.validation.result import Comparison, LeftOut, Unit, Validation, Value

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1


def tables(validation: Validation) -> list[Table]:
    """The comparisons of one source, the first with who published it, and what is left out."""
    first, *others = validation.comparisons
    made = [_comparison(validation, replace(first, note=f"{first.note} Published: {validation.published}."))]
    made += [_comparison(validation, comparison) for comparison in others]
    if validation.left_out:
        made.append(_left_out(validation.source, validation.left_out))
    return made


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
                    {"name": c.name, "title": c.title, "note": c.note, "rows": list(c.rows)}
                    for c in validation.comparisons
                ],
                "left_out": [asdict(left_out) for left_out in validation.left_out],
                "failures": list(validation.failures),
            }
            for validation in validations
        ],
    }


def _comparison(validation: Validation, comparison: Comparison) -> Table:
    return Table(
        f"{validation.source}: {comparison.title}",
        tuple(Column(c.title, "left" if c.unit == "text" else "right") for c in comparison.columns),
        tuple(tuple(_cell(row.get(c.name), c.unit) for c in comparison.columns) for row in comparison.rows),
        comparison.note,
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
        case "text":
            return str(value)
