"""Tables and the document of ``fa-bench diff``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from fa_bench.profiling.diff import METRICS, Change, LaunchDiff, LineChange
from fa_bench.profiling.result import Line
from fa_bench.report.profile import CLASSES, short_place, shortened, text_width
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_count

SCHEMA: Final = 1
#: Characters of 80 that a source line, its two places and the changes on it may take.
_PLACES_AND_TEXT: Final = 74


def diff_tables(diffs: Sequence[LaunchDiff], sources: tuple[str, str], lines: int) -> tuple[Table, ...]:
    """Per launch: the figures that changed, and at most ``lines`` of the source lines that they changed on."""
    return tuple(table for diff in diffs for table in _launch(diff, sources, lines))


def diff_rows(diffs: Sequence[LaunchDiff]) -> list[dict[str, object]]:
    """One flat row per launch and figure, for CSV."""
    return [
        {"launch": number, "kernel": diff.kernel, "figure": change.name, "before": change.before, "after": change.after}
        for number, diff in enumerate(diffs)
        for change in (*diff.metrics, *diff.traffic, *diff.classes)
    ]


def document(diffs: Sequence[LaunchDiff], broken: Sequence[str]) -> dict[str, Any]:
    """The JSON document; its fields are described in docs/profile.md."""
    return {
        "schema": SCHEMA,
        "changed": any(diff.changed for diff in diffs),
        "broken_rules": list(broken),
        "launches": [
            {
                "kernel": diff.kernel,
                "metrics": [_change(change) for change in diff.metrics],
                "traffic": [_change(change) for change in diff.traffic],
                "instructions": [_change(change) for change in diff.classes],
                "lines": [_line(change) for change in diff.lines],
                "other": list(diff.other),
            }
            for diff in diffs
        ],
    }


def _launch(diff: LaunchDiff, sources: tuple[str, str], lines: int) -> list[Table]:
    note = "\n".join(f"Not the same: {difference}." for difference in diff.other)
    if not diff.changed:
        return [Table(f"{diff.kernel}: nothing changed", _COLUMNS, tuple(_row(c) for c in diff.metrics), note)]
    classes = (Change(CLASSES.get(c.name, c.name), c.before, c.after) for c in diff.classes)
    traffic = (Change(f"bytes: {c.name}", c.before, c.after) for c in diff.traffic)
    changed = [c for c in diff.metrics if c.before != c.after or c.before is None]
    tables = [Table(diff.kernel, _COLUMNS, tuple(_row(c) for c in (*changed, *traffic, *classes)), note)]
    if diff.lines:
        tables.append(_lines(diff, sources, lines))
    return tables


def _lines(diff: LaunchDiff, sources: tuple[str, str], lines: int) -> Table:
    metrics = diff.line_metrics
    columns = (Column("before"), Column("now"), *(Column(name, "right") for name in metrics), Column("source"))
    before, now = sources
    note = f"Lines of {before}." if before == now else f"Lines of {before}, now {now}."
    if "registers" in metrics:
        note += " registers: live at once in the PTX."
    if len(diff.lines) > lines:
        note += f" {len(diff.lines) - lines} more lines changed."
    shown = diff.lines[:lines]
    places = [_places(change, sources) for change in shown]
    room = _PLACES_AND_TEXT - sum(len(metric) + 2 for metric in metrics)
    width = text_width((old + new for old, new in places), room)
    rows = tuple(
        (*both, *(_signed(change.delta(metric)) for metric in metrics), shortened(_newest(change).text, width))
        for both, change in zip(places, shown, strict=True)
    )
    return Table("", columns, rows, note)


def _places(change: LineChange, sources: tuple[str, str]) -> tuple[str, str]:
    return (
        short_place(change.before, sources[0]) if change.before else UNKNOWN,
        short_place(change.after, sources[1]) if change.after else UNKNOWN,
    )


def _newest(change: LineChange) -> Line:
    line = change.after or change.before
    assert line is not None
    return line


_COLUMNS: Final = (Column("figure"), Column("before", "right"), Column("now", "right"), Column("change", "right"))


def _row(change: Change) -> tuple[str, ...]:
    return (change.name, _number(change.before), _number(change.after), _signed(change.delta))


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else format_count(value)


def _signed(delta: int | None) -> str:
    if delta is None:
        return UNKNOWN
    return f"{delta:+,}" if delta else ""


def _change(change: Change) -> dict[str, Any]:
    return {**asdict(change), "delta": change.delta}


def _line(change: LineChange) -> dict[str, Any]:
    return {
        "before": None if change.before is None else {"place": change.before.place, "text": change.before.text},
        "after": None if change.after is None else {"place": change.after.place, "text": change.after.text},
        **{f"{metric}_delta": change.delta(metric) for metric in METRICS if METRICS[metric][1] is not None},
    }
