"""Tables of bytes: what the model predicts for each tensor, what was counted, and what the papers' formulas say.

Everything is made from records and their traffic rows. The level is global traffic throughout: 32-byte sectors
that the kernels' instructions ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from fa_bench.algorithms.base import ALL_TENSORS
from fa_bench.cases import ITEMSIZE
from fa_bench.model import bounds, gpus
from fa_bench.records import Record, Source, TensorTraffic
from fa_bench.report.caches import passages
from fa_bench.report.levels import hardware_document
from fa_bench.report.names import record_name, with_direction
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_bytes, format_count, format_ms, format_ratio

T = TypeVar("T")

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1

#: Reason of a row that was not run because only its prediction was wanted.
PREDICTED_ONLY: Final = "Predicted only (--no-measure)."
#: Instead of the lines of a case that was neither predicted nor counted.
NOT_PREDICTED: Final = "It has no traffic model: its bytes can be counted, not predicted."

#: By pass and implementation; in docs/cli.md too.
_FORMULAS: Final[Mapping[str, Mapping[str, str]]] = {
    "fwd": {
        "standard": "4·N² + 4·N·d",
        "flash1": "2·N·d + Tc·N·(3·d + 4)",
        "flash2": "2·N·d + 2·Tr·N·d + N",
    },
    "bwd": {
        "standard": "7·N² + 8·N·d",
        "flash2": "6·N·d + N + Tc·N·(5·d + 2)",
    },
}


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


def case_table(case: CaseTraffic) -> Table:
    """The table of one case; without counts it shows the prediction alone."""
    columns = [Column("kernel"), Column("tensor"), Column("op"), Column("predicted B", "right")]
    if case.source is not None:
        columns += [Column(f"{case.source} B", "right"), Column("difference", "right")]
    rows = []
    for line in case.lines:
        cells = [line.kernel, line.tensor, line.op, _known(line.predicted_bytes, format_count)]
        if line.counted_bytes is not None:
            cells += [format_count(line.counted_bytes), _known(line.difference_bytes, _signed)]
        rows.append(tuple(cells))
    record = case.record
    told = record.status == "ok" or record.status_reason == PREDICTED_ONLY
    note = "" if told else f"{record.status}: {record.status_reason}"
    if told and not case.lines:
        note = NOT_PREDICTED
    return Table(_title(record), tuple(columns), tuple(rows), note)


def totals_tables(cases: Sequence[CaseTraffic]) -> tuple[Table, ...]:
    """One table per shape: totals of each implementation, the papers' formula, the ratio standard : it."""
    shapes: dict[str, list[CaseTraffic]] = {}
    for case in cases:
        shapes.setdefault(_compared_by(case.record), []).append(case)
    tables = []
    for shape, group in shapes.items():
        predicted = [case for case in group if case.predicted]
        counted = [case for case in group if not case.predicted and case.source is not None]
        if predicted:
            tables.append(_totals(shape, predicted))
        if counted:
            tables.append(_counted_totals(shape, counted, _standard_bytes(group)))
    return tuple(tables)


def _compared_by(record: Record) -> str:
    """What cases of one table share: all but the implementation and its tile."""
    return with_direction(record_name(record).shape(), record.direction)


def _counted_totals(shape: str, cases: Sequence[CaseTraffic], standard_bytes: int | None) -> Table:
    """Totals of cases without a prediction."""
    rows = []
    for case in cases:
        read, written = case.counted("read") or 0, case.counted("write") or 0
        rows.append(
            (
                record_name(case.record).impl,
                format_bytes(read),
                format_bytes(written),
                format_bytes(read + written),
                _ratio(standard_bytes, read + written),
            )
        )
    columns = (
        Column("implementation"),
        Column("read", "right"),
        Column("written", "right"),
        Column("total", "right"),
        Column("std : it", "right"),
    )
    note = "std : it: standard attention's predicted bytes over the counted ones."
    return Table(f"Counted, {shape}", columns, tuple(rows), note if standard_bytes is not None else "")


def _totals(shape: str, cases: Sequence[CaseTraffic]) -> Table:
    standard = _standard_bytes(cases)
    rows = []
    for case in cases:
        paper = paper_bytes(case.record)
        rows.append(
            (
                record_name(case.record).impl,
                _known(case.total("read"), format_bytes),
                _known(case.total("write"), format_bytes),
                _known(case.total_bytes, format_bytes),
                _known(paper, format_bytes),
                _ratio(standard, case.total_bytes),
                _known(case.record.roofline_ms, format_ms),
            )
        )
    columns = (
        Column("implementation"),
        Column("read", "right"),
        Column("written", "right"),
        Column("total", "right"),
        Column("paper", "right"),
        Column("std : it", "right"),
        Column("roofline", "right"),
    )
    return Table(f"Totals, {shape}", columns, tuple(rows), _totals_note([case.record for case in cases]))


def _totals_note(records: Sequence[Record]) -> str:
    record, parts = records[0], []
    if record.compulsory_read_bytes is not None and record.compulsory_write_bytes is not None:
        read, written = format_bytes(record.compulsory_read_bytes), format_bytes(record.compulsory_write_bytes)
        parts.append(f"Compulsory: {read} read, {written} written.")
    moved = [
        f"{record_name(r).impl} {format_bytes(r.dram_read_bytes_model + r.dram_write_bytes_model)}"
        for r in records
        if r.dram_read_bytes_model is not None and r.dram_write_bytes_model is not None
    ]
    if moved:
        parts.append(f"Through DRAM, estimated: {'; '.join(moved)}.")
    formulas = ((impl, _formula(impl, _parts(record))) for impl in _FORMULAS["fwd"])
    parts.append(
        "paper: elements that the papers' algorithms move, times the element size; no mask, no sectors: "
        + "; ".join(f"{impl} {formula}" for impl, formula in formulas if formula is not None)
        + "."
    )
    if record.roofline_source == "measured":
        parts.append("roofline: by the peaks that were measured, not those of the data sheet.")
    theorem = theorem2(record)
    if theorem is not None:
        parts.append(
            f"Theorem 2 of FlashAttention, N²d²/M with M = {format_bytes(theorem.sram_bytes)}: "
            f"{format_bytes(theorem.bytes_m_in_elements)} with M in elements, "
            f"{format_bytes(theorem.bytes_m_in_bytes)} with M in bytes."
        )
    return "\n".join(parts)


def paper_bytes(record: Record) -> int | None:
    """What the implementation's paper counts, in bytes of the record's type; None where there is no formula."""
    elements = 0
    for part in _parts(record):
        moved = _paper_elements(record, part)
        if moved is None:
            return None
        elements += moved.total
    return elements * _slices(record) * ITEMSIZE[record.dtype]


def _parts(record: Record) -> list[str]:
    """The passes that the record's direction consists of: ``fwd``, ``bwd`` or both."""
    return record.direction.split("+")


def paper_formula(record: Record) -> str | None:
    """The formula behind :func:`paper_bytes`; None where there is none for one of the passes."""
    return _formula(record.impl, _parts(record))


def _formula(impl: str, parts: Sequence[str]) -> str | None:
    formulas = [_FORMULAS[part].get(impl) for part in parts]
    known = [formula for formula in formulas if formula is not None]
    return ", backward ".join(known) if len(known) == len(formulas) else None


def _paper_elements(record: Record, part: str) -> bounds.Elements | None:
    if record.seqlens is not None:
        return None
    size = (record.seq_q, record.seq_kv, record.head_dim)
    backward = part == "bwd"
    if record.impl == "standard":
        return bounds.standard_backward(*size) if backward else bounds.standard(*size)
    if record.impl == "flash1" and record.block_n is not None and not backward:
        return bounds.flash1(*size, record.block_n)
    if record.impl == "flash2" and record.block_m is not None and record.block_n is not None:
        return bounds.flash2_backward(*size, record.block_n) if backward else bounds.flash2(*size, record.block_m)
    return None


@dataclass(frozen=True, slots=True)
class Theorem2:
    """N²d²/M of the first paper in bytes, with M as the paper means it and as it is often misread."""

    sram_bytes: int
    bytes_m_in_elements: int
    bytes_m_in_bytes: int


def theorem2(record: Record) -> Theorem2 | None:
    """Theorem 2 for the record's shape and GPU, constant 1; None without a GPU, for gradients and packed batches."""
    if record.gpu is None or record.direction != "fwd" or record.seqlens is not None:
        return None
    sram_bytes = gpus.get(record.gpu).smem_per_block_bytes
    itemsize = ITEMSIZE[record.dtype]
    size = (record.seq_q, record.seq_kv, record.head_dim)
    scale = _slices(record) * itemsize
    return Theorem2(
        sram_bytes,
        round(scale * bounds.flash1_theorem2(*size, bounds.sram_elements(sram_bytes, itemsize))),
        round(scale * bounds.flash1_theorem2_m_in_bytes(*size, sram_bytes)),
    )


def _slices(record: Record) -> int:
    return record.batch * record.heads_q


def _standard_bytes(cases: Sequence[CaseTraffic]) -> int | None:
    """Bytes of standard attention; of several tiles the best."""
    totals = [case.total_bytes for case in cases if case.record.impl == "standard"]
    return min((total for total in totals if total is not None), default=None)


def _ratio(standard_bytes: int | None, total_bytes: int | None) -> str:
    return UNKNOWN if not standard_bytes or not total_bytes else format_ratio(standard_bytes / total_bytes)


def _known(value: T | None, text: Callable[[T], str]) -> str:
    return UNKNOWN if value is None else text(value)


def _title(record: Record) -> str:
    name = record_name(record)
    return f"{name.impl}, {name.shape()}"


def _signed(difference: int) -> str:
    return f"{difference:+,}" if difference else "0"


def flat_rows(cases: Sequence[CaseTraffic]) -> list[dict[str, object]]:
    """One row per case, kernel, tensor and direction, for CSV; what hardware counted is of all tensors."""
    return [
        {
            **_identity(case.record),
            "kernel": line.kernel,
            "tensor": line.tensor,
            "op": line.op,
            "predicted_bytes": line.predicted_bytes,
            "counted_bytes": line.counted_bytes,
            "difference_bytes": line.difference_bytes,
            "source": source,
        }
        for case in cases
        for source, lines in ((case.source, case.lines), ("measured", measured_lines(case)))
        for line in lines
    ]


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


def document(cases: Sequence[CaseTraffic]) -> dict[str, Any]:
    """The JSON document; its fields are described in docs/cli.md."""
    by_shape: dict[str, list[CaseTraffic]] = {}
    for case in cases:
        by_shape.setdefault(_compared_by(case.record), []).append(case)
    standard = {shape: _standard_bytes(group) for shape, group in by_shape.items()}
    counted = [case for case in cases if case.source is not None]
    return {
        "schema": SCHEMA,
        "equal": all(case.equal for case in counted) if counted else None,
        "cases": [_case_document(case, standard[_compared_by(case.record)]) for case in cases],
    }


def _case_document(case: CaseTraffic, standard_bytes: int | None) -> dict[str, Any]:
    record = case.record
    theorem = theorem2(record)
    ratio = None if standard_bytes is None or not case.total_bytes else standard_bytes / case.total_bytes
    return {
        **_identity(record),
        "status": record.status,
        "status_reason": record.status_reason,
        "source": case.source,
        "emulated_fraction": record.emulated_fraction,
        "traffic": [
            {
                "kernel": line.kernel,
                "tensor": line.tensor,
                "op": line.op,
                "predicted_bytes": line.predicted_bytes,
                "counted_bytes": line.counted_bytes,
                "difference_bytes": line.difference_bytes,
            }
            for line in case.lines
        ],
        "caches": [asdict(passage) for passage in passages(case.traffic)],
        "hardware": hardware_document(record, case.traffic),
        "dram_interval_bytes": _interval(record),
        "l2_dirty_bytes": record.l2_dirty_bytes_emulated,
        "read_bytes": case.total("read"),
        "write_bytes": case.total("write"),
        "total_bytes": case.total_bytes,
        "compulsory_read_bytes": record.compulsory_read_bytes,
        "compulsory_write_bytes": record.compulsory_write_bytes,
        "paper": {
            "formula": paper_formula(record),
            "bytes": paper_bytes(record),
            "theorem2_sram_bytes": None if theorem is None else theorem.sram_bytes,
            "theorem2_bytes": None if theorem is None else theorem.bytes_m_in_elements,
            "theorem2_bytes_m_in_bytes": None if theorem is None else theorem.bytes_m_in_bytes,
        },
        "standard_ratio": ratio,
        "roofline_ms": record.roofline_ms,
        "roofline_limiter": record.roofline_limiter,
        "roofline_source": record.roofline_source,
    }


def _interval(record: Record) -> dict[str, tuple[int | None, int | None]] | None:
    if record.dram_read_bytes_emulated_low is None:
        return None
    return {
        "read": (record.dram_read_bytes_emulated_low, record.dram_read_bytes_emulated_high),
        "write": (record.dram_write_bytes_emulated_low, record.dram_write_bytes_emulated_high),
    }


def _identity(record: Record) -> dict[str, object]:
    names = (
        "case_id", "impl", "gpu", "dtype", "layout", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim",
        "causal", "block_m", "block_n", "stages", "num_warps", "direction", "window_left", "window_right", "head_dim_v",
        "softcap", "bias", "alibi", "sinks", "dropout_p", "seqlens",
    )  # fmt: skip
    return {name: getattr(record, name) for name in names}
