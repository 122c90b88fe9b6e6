"""Tables of sweep records: the rows as they finish, and the summary at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from fa_bench.cases import Case
from fa_bench.records import FAILED_STATUSES, Record
from fa_bench.report.names import FACTS, Name, case_name, record_name, varying, with_direction
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_bytes, format_error, format_ms, format_ratio

#: Columns of the terminal that tables are made for.
WIDTH: Final = 80


class RecordTable:
    """The table of a sweep's rows, usable before the first row is there.

    Facts that are the same throughout stand in the title. The others stand in the first column as far as the table
    then fits `WIDTH`, else in a heading above each group of rows.

    Parameters
    ----------
    cases : sequence of Case
        All that the sweep holds.
    place : str
        Where it runs, for the title.
    """

    def __init__(self, cases: Sequence[Case], place: str) -> None:
        names = [case_name(case) for case in cases]
        self._varying = varying(names)
        constant = [names[0].facts[fact] for fact in FACTS if fact not in self._varying] if names else []
        impl = max([14, *(len(name.impl) for name in names)])
        shape = max([5, *(len(name.shape(self._varying)) for name in names)])
        # A kernel of the user's has no model that its bytes could equal: they are shown.
        unmodelled = any(case.content for case in cases)
        fixed = (8, 8, 8, 8 if unmodelled else 7, 11)
        self._grouped = shape + impl + sum(fixed) + 1 + len(fixed) > WIDTH
        if self._grouped:
            shape = max([5, *(len(name.seq) for name in names)])
        self._last_heading = ""
        time, read, written, counted, outcome = fixed
        self.table = Table(
            title="; ".join(part for part in (place, ", ".join(constant)) if part),
            columns=(
                Column("seq", width=shape),
                Column("implementation", width=impl),
                Column("time", "right", time),
                Column("read", "right", read),
                Column("written", "right", written),
                Column("counted", width=counted),
                Column("outcome", width=outcome),
            ),
            note=(
                "read, written: global bytes by the model. counted: the same by executing the kernel"
                f"{'; their sum where there is no model' if unmodelled else ''}. "
                "outcome: status and largest error against fp64."
            ),
        )

    def heading(self, record: Record) -> str:
        """What must stand above this record's row, where it differs from the row before; else empty."""
        if not self._grouped:
            return ""
        name = record_name(record)
        heading = ", ".join([f"seq {name.seq}", *(name.facts[fact] for fact in self._varying)])
        if heading == self._last_heading:
            return ""
        self._last_heading = heading
        return heading

    def row(self, record: Record) -> tuple[str, ...]:
        """The cells of one record."""
        name = record_name(record)
        return (name.seq if self._grouped else name.shape(self._varying), *_cells(record, name))

    def filled(self, records: Iterable[Record]) -> Table:
        """The whole table, with all facts in the first column."""
        names = [(record, record_name(record)) for record in records]
        rows = tuple((name.shape(self._varying), *_cells(record, name)) for record, name in names)
        return Table(self.table.title, self.table.columns, rows, self.table.note)


def _cells(record: Record, name: Name) -> tuple[str, ...]:
    return (
        name.impl,
        UNKNOWN if record.time_ms is None else format_ms(record.time_ms),
        _bytes(record.global_read_bytes_model),
        _bytes(record.global_write_bytes_model),
        _counted(record),
        _outcome(record),
    )


def summary_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """One line per shape: global bytes and, on a GPU, times of each implementation beside ``standard``.

    Of an implementation that ran with several tiles the best one is shown. A table that would have fewer than two
    implementations is left out.
    """
    done = [record for record in records if record.status == "ok"]
    tables = (
        _beside_standard(
            "Global bytes, read and written (in brackets: standard attention's over these)",
            done,
            _global_bytes,
            lambda nbytes: format_bytes(int(nbytes)),
            _counted_note(done),
        ),
        _beside_standard(
            "Time on the GPU (in brackets: standard attention's over this)",
            [record for record in done if record.backend == "cuda"],
            lambda record: record.time_ms,
            format_ms,
        ),
    )
    return tuple(table for table in tables if len(table.columns) > 2)


def status_counts(records: Iterable[Record]) -> str:
    """Such as ``27 ok, 1 error, 2 skipped``."""
    counts = Counter(record.status for record in records)
    ordered = sorted(counts, key=lambda status: (status != "ok", status))
    return ", ".join(f"{counts[status]} {status}" for status in ordered) or "no rows"


def failures(records: Iterable[Record]) -> list[str]:
    """A sentence for each row that failed, or that counted other bytes than the model says."""
    sentences = []
    for record in records:
        name = record_name(record)
        if record.status in FAILED_STATUSES:
            reason = " ".join((record.status_reason or "").split())
            sentences.append(f"{name.impl}, {name.shape()}: {record.status}. {reason}")
        elif counted_as_predicted(record) is False:
            sentences.append(f"{name.impl}, {name.shape()}: the bytes counted are not those of the model.")
    return sentences


def _beside_standard(
    title: str,
    records: Sequence[Record],
    value: Callable[[Record], float | None],
    text: Callable[[float], str],
    note: str = "",
) -> Table:
    named: list[tuple[Record, Name]] = [(record, record_name(record)) for record in records]
    facts = varying(name for _, name in named)
    best: dict[str, dict[str, float]] = {}
    impls: dict[str, None] = {}
    for record, name in named:
        figure = value(record)
        if figure is None:
            continue
        impls[record.impl] = None
        row = best.setdefault(with_direction(name.shape(facts), record.direction), {})
        row[record.impl] = min(figure, row.get(record.impl, figure))
    return Table(
        title,
        (Column("seq"), *(Column(impl, "right") for impl in impls)),
        tuple((shape, *(_with_ratio(impl, row, text) for impl in impls)) for shape, row in best.items()),
        note,
    )


def _with_ratio(impl: str, row: Mapping[str, float], text: Callable[[float], str]) -> str:
    if impl not in row:
        return UNKNOWN
    if impl == "standard" or "standard" not in row:
        return text(row[impl])
    return f"{text(row[impl])} ({format_ratio(row['standard'] / row[impl])})"


def _bytes(nbytes: int | None) -> str:
    return UNKNOWN if nbytes is None else format_bytes(nbytes)


def _global_bytes(record: Record) -> float | None:
    """By the model; counted for an implementation that has none."""
    if _unpredicted(record):
        return _sum(record.global_read_bytes_emulated, record.global_write_bytes_emulated)
    return _sum(record.global_read_bytes_model, record.global_write_bytes_model)


def _unpredicted(record: Record) -> bool:
    return record.global_read_bytes_model is None and record.global_write_bytes_model is None


def _counted_note(records: Sequence[Record]) -> str:
    """Which implementations' bytes are no prediction."""
    counted = (record for record in records if _unpredicted(record) and _global_bytes(record) is not None)
    impls = dict.fromkeys(record.impl for record in counted)
    return f"Counted, since there is no model: {', '.join(impls)}." if impls else ""


def _sum(read: int | None, written: int | None) -> int | None:
    return None if read is None or written is None else read + written


def counted_as_predicted(record: Record) -> bool | None:
    """Whether the global bytes that the emulator counted are the model's; None where one of them is not known."""
    counted = (record.global_read_bytes_emulated, record.global_write_bytes_emulated)
    predicted = (record.global_read_bytes_model, record.global_write_bytes_model)
    if (None, None) in (counted, predicted):
        return None
    return counted == predicted


def _counted(record: Record) -> str:
    as_predicted = counted_as_predicted(record)
    if as_predicted is None:
        return _bytes(_sum(record.global_read_bytes_emulated, record.global_write_bytes_emulated))
    return "= model" if as_predicted else "differs"


def _outcome(record: Record) -> str:
    if record.status != "ok" or record.max_abs_err is None:
        return record.status
    return f"ok {format_error(record.max_abs_err)}"
