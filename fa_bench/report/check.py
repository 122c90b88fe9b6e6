"""Tables of ``fa-bench check``: what passed, what failed, what could not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from fa_bench.records import Record
from fa_bench.report.records import counted_as_predicted, failures
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_error

#: Rows that were not run because the target can't; they are neither a pass nor a failure.
_NOT_RUN = ("skipped", "unsupported", "oom")


def check_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """One line per implementation and type, and the reasons of what did not run."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.impl, record.dtype), []).append(record)
    columns = (
        Column("kernel"),
        Column("type"),
        Column("cases", "right"),
        Column("passed", "right"),
        Column("not run", "right"),
        Column("largest error", "right"),
        Column("bytes = model", "right"),
        Column("verdict"),
    )
    rows = tuple(_row(impl, dtype, group) for (impl, dtype), group in sorted(groups.items()))
    reasons = dict.fromkeys(
        f"not run: {record.impl} {record.dtype} D={record.head_dim}: {record.status_reason}"
        for record in records
        if record.status in _NOT_RUN
    )
    return (Table("", columns, rows, "\n".join(reasons)),)


def check_rows(records: Sequence[Record]) -> list[dict[str, object]]:
    """The records as flat rows."""
    return [asdict(record) for record in records]


def _row(impl: str, dtype: str, group: Sequence[Record]) -> tuple[str, ...]:
    failed = len(failures(group))
    not_run = sum(record.status in _NOT_RUN for record in group)
    errors = [record.max_abs_err for record in group if record.max_abs_err is not None]
    counted = [record for record in group if counted_as_predicted(record) is not None]
    equal = sum(counted_as_predicted(record) is True for record in counted)
    return (
        impl,
        dtype,
        str(len(group)),
        str(len(group) - failed - not_run),
        str(not_run),
        format_error(max(errors)) if errors else UNKNOWN,
        f"{equal}/{len(counted)}" if counted else UNKNOWN,
        "FAIL" if failed else "pass" if len(group) > not_run else UNKNOWN,
    )
