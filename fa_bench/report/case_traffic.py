"""One case's bytes of each kernel, tensor and direction: predicted beside counted, and the table of them.

Everything is made from records and their traffic rows. The level is global traffic throughout: 32-byte sectors
that the kernels' instructions ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from fa_bench.algorithms.base import ALL_TENSORS
from fa_bench.records import Record, Source, TensorTraffic
from fa_bench.report.names import record_name
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_count

T = TypeVar("T")

#: Reason of a row that was not run because only its prediction was wanted.
PREDICTED_ONLY: Final = "Predicted only (--no-measure)."
#: Instead of the lines of a case that was neither predicted nor counted.
NOT_PREDICTED: Final = "It has no traffic model: its bytes can be counted, not predicted."


@dataclass(frozen=True, slots=True)
class TrafficLine:
    """Global bytes of one kernel, tensor and direction; None where nothing was predicted or nothing counted."""

    kernel: str
    tensor: str
    op: str
    predicted_bytes: int | None
    counted_bytes: int | None

    @property
    def difference_bytes(self) -> int | None:
        """Counted less predicted; None if one of them is not known."""
        if self.counted_bytes is None or self.predicted_bytes is None:
            return None
        return self.counted_bytes - self.predicted_bytes


@dataclass(frozen=True, slots=True)
class CaseTraffic:
    """One case: its record and its traffic, line by line.

    ``source`` is ``emulated`` or ``measured``, None where nothing was counted.
    """

    record: Record
    lines: tuple[TrafficLine, ...]
    source: Source | None
    #: The case's rows at all levels.
    traffic: tuple[TensorTraffic, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every line that was predicted and counted is as predicted."""
        return not any(line.difference_bytes for line in self.lines)

    @property
    def predicted(self) -> bool:
        """Whether there is a prediction."""
        return any(line.predicted_bytes is not None for line in self.lines)

    def total(self, op: str) -> int | None:
        """Predicted bytes read or written; None without a prediction."""
        return self._sum(op, "predicted_bytes")

    def counted(self, op: str) -> int | None:
        """Counted bytes read or written; None if nothing was counted."""
        return self._sum(op, "counted_bytes")

    @property
    def total_bytes(self) -> int | None:
        """Predicted bytes, both directions; None without a prediction."""
        read, written = self.total("read"), self.total("write")
        return None if read is None or written is None else read + written

    def _sum(self, op: str, column: str) -> int | None:
        known = [getattr(line, column) for line in self.lines if getattr(line, column) is not None]
        if not known:
            return None
        return sum(getattr(line, column) or 0 for line in self.lines if line.op == op)


def case_traffic(record: Record, traffic: Sequence[TensorTraffic]) -> CaseTraffic:
    """Pair the predicted and the counted rows of one case.

    A tensor that was counted but not predicted, or the other way round, is a line with 0 on the other side; of a case
    that was not predicted at all every line has None there.

    Parameters
    ----------
    record : Record
    traffic : sequence of TensorTraffic
        Rows of this case, of any level and source.
    """
    by_source: dict[str, dict[tuple[str, str, str], int]] = {}
    for row in traffic:
        # Hardware counters can't tell tensors apart; fa_bench.report.levels has them.
        if row.level == "global" and row.case_id == record.case_id and row.tensor != ALL_TENSORS:
            by_source.setdefault(row.source, {})[row.kernel, row.tensor, row.op] = row.bytes
    predicted = by_source.get("model")
    source: Source | None = next((s for s in ("measured", "emulated") if s in by_source), None)
    counted = by_source[source] if source is not None else {}
    lines = tuple(
        TrafficLine(
            *key,
            None if predicted is None else predicted.get(key, 0),
            None if source is None else counted.get(key, 0),
        )
        for key in dict.fromkeys([*(predicted or {}), *counted])
    )
    return CaseTraffic(record, lines, source, tuple(row for row in traffic if row.case_id == record.case_id))


def measured_lines(case: CaseTraffic) -> tuple[TrafficLine, ...]:
    """Global bytes of each kernel and direction that hardware counted, beside the sum of those predicted."""
    return tuple(
        TrafficLine(
            row.kernel,
            row.tensor,
            row.op,
            sum(line.predicted_bytes or 0 for line in case.lines if (line.kernel, line.op) == (row.kernel, row.op))
            if case.predicted
            else None,
            row.bytes,
        )
        for row in case.traffic
        if (row.level, row.source) == ("global", "measured")
    )


def case_table(case: CaseTraffic) -> Table:
    """The table of one case; without counts it shows the prediction alone."""
    columns = [Column("kernel"), Column("tensor"), Column("op"), Column("predicted B", "right")]
    if case.source is not None:
        columns += [Column(f"{case.source} B", "right"), Column("difference", "right")]
    rows = []
    for line in case.lines:
        cells = [line.kernel, line.tensor, line.op, known(line.predicted_bytes, format_count)]
        if line.counted_bytes is not None:
            cells += [format_count(line.counted_bytes), known(line.difference_bytes, _signed)]
        rows.append(tuple(cells))
    record = case.record
    told = record.status == "ok" or record.status_reason == PREDICTED_ONLY
    note = "" if told else f"{record.status}: {record.status_reason}"
    if told and not case.lines:
        note = NOT_PREDICTED
    return Table(_title(record), tuple(columns), tuple(rows), note)


def known(value: T | None, text: Callable[[T], str]) -> str:
    """A value as text; a sign of its own where it is not known."""
    return UNKNOWN if value is None else text(value)


def _title(record: Record) -> str:
    name = record_name(record)
    return f"{name.impl}, {name.shape()}"


def _signed(difference: int) -> str:
    return f"{difference:+,}" if difference else "0"
