"""Tables of sweep records: the rows as they finish, and the summary at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from fa_bench.cases import Case
from fa_bench.records import FAILED_STATUSES, Record
from fa_bench.report.names import FACTS, Name, case_name, record_name, varying
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_bytes, format_error, format_ms, format_ratio


class RecordTable:
    """The table of a sweep's rows, usable before the first row is there.

    Parameters
    ----------
    cases : sequence of Case
        All that the sweep holds; decides what stands in the title and what in the rows, and how wide columns are.
    place : str
        Where it runs, for the title.
    """

    def __init__(self, cases: Sequence[Case], place: str) -> None:
        names = [case_name(case) for case in cases]
        self._varying = varying(names)
        constant = [names[0].facts[fact] for fact in FACTS if fact not in self._varying] if names else []
        self.table = Table(
            title="; ".join(part for part in (place, ", ".join(constant)) if part),
            columns=(
                Column("seq", width=max([5, *(len(name.shape(self._varying)) for name in names)])),
                Column("implementation", width=max([14, *(len(name.impl) for name in names)])),
                Column("time", "right", 8),
                Column("read", "right", 8),
                Column("written", "right", 8),
                Column("counted", width=7),
                Column("outcome", width=14),
            ),
            note=(
                "read, written: global bytes by the model. counted: the same by executing the kernel. "
                "outcome: status and largest error against fp64."
            ),
        )

    def row(self, record: Record) -> tuple[str, ...]:
        """The cells of one record."""
        name = record_name(record)
        return (
            name.shape(self._varying),
            name.impl,
            UNKNOWN if record.time_ms is None else format_ms(record.time_ms),
            _bytes(record.global_read_bytes_model),
            _bytes(record.global_write_bytes_model),
            _counted(record),
            _outcome(record),
        )

    def filled(self, records: Iterable[Record]) -> Table:
        """The whole table."""
        rows = tuple(self.row(record) for record in records)
        return Table(self.table.title, self.table.columns, rows, self.table.note)


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
    title: str, records: Sequence[Record], value: Callable[[Record], float | None], text: Callable[[float], str]
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
        row = best.setdefault(name.shape(facts), {})
        row[record.impl] = min(figure, row.get(record.impl, figure))
    return Table(
        title,
        (Column("seq"), *(Column(impl, "right") for impl in impls)),
        tuple((shape, *(_with_ratio(impl, row, text) for impl in impls)) for shape, row in best.items()),
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
    if record.global_read_bytes_model is None or record.global_write_bytes_model is None:
        return None
    return record.global_read_bytes_model + record.global_write_bytes_model


def counted_as_predicted(record: Record) -> bool | None:
    """Whether the global bytes that the emulator counted are the model's; None where it counted none."""
    counted = (record.global_read_bytes_emulated, record.global_write_bytes_emulated)
    if counted == (None, None):
        return None
    return counted == (record.global_read_bytes_model, record.global_write_bytes_model)


def _counted(record: Record) -> str:
    return {None: UNKNOWN, True: "= model", False: "differs"}[counted_as_predicted(record)]


def _outcome(record: Record) -> str:
    if record.status != "ok" or record.max_abs_err is None:
        return record.status
    return f"ok {format_error(record.max_abs_err)}"
