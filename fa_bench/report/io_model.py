"""Cases beside each other: tables of their totals, flat rows, and the JSON document of ``io-model``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from fa_bench.records import Record
from fa_bench.report.caches import passages
from fa_bench.report.case_traffic import CaseTraffic, known, measured_lines
from fa_bench.report.levels import hardware_document
from fa_bench.report.names import record_name, with_direction
from fa_bench.report.papers import formulas_by_impl, paper_bytes, paper_formula, theorem2
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.report.theory import csv_columns, theory_document, theory_table
from fa_bench.units import format_bytes, format_ms, format_ratio

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1


def totals_tables(cases: Sequence[CaseTraffic]) -> tuple[Table, ...]:
    """One table per shape: totals of each implementation, the papers' formula, the ratio standard : it."""
    tables = []
    for shape, group in _by_shape(cases).items():
        predicted = [case for case in group if case.predicted]
        counted = [case for case in group if not case.predicted and case.source is not None]
        if predicted:
            tables.append(_totals(shape, predicted))
        if counted:
            tables.append(_counted_totals(shape, counted, _standard_bytes(group)))
    return tuple(tables)


def theory_tables(cases: Sequence[CaseTraffic], sram_bytes: int | None = None) -> tuple[Table, ...]:
    """One table per shape: what the papers say of it, beside what its kernels move.

    Parameters
    ----------
    cases : sequence of CaseTraffic
    sram_bytes : int, optional
        M in bytes, where it is not to be that of the records' GPU.
    """
    made = (theory_table(shape, group, sram_bytes) for shape, group in _by_shape(cases).items())
    return tuple(table for table in made if table is not None)


def _by_shape(cases: Sequence[CaseTraffic]) -> dict[str, list[CaseTraffic]]:
    shapes: dict[str, list[CaseTraffic]] = {}
    for case in cases:
        shapes.setdefault(_compared_by(case.record), []).append(case)
    return shapes


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
                known(case.total("read"), format_bytes),
                known(case.total("write"), format_bytes),
                known(case.total_bytes, format_bytes),
                known(paper, format_bytes),
                _ratio(standard, case.total_bytes),
                known(case.record.roofline_ms, format_ms),
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
    parts.append(
        "paper: elements that the papers' algorithms move, times the element size; no mask, no sectors: "
        + "; ".join(f"{impl} {formula}" for impl, formula in formulas_by_impl(record).items())
        + "."
    )
    if record.roofline_source == "measured":
        parts.append("roofline: by the peaks that were measured, not those of the data sheet.")
    return "\n".join(parts)


def _standard_bytes(cases: Sequence[CaseTraffic]) -> int | None:
    """Bytes of standard attention; of several tiles the best."""
    totals = [case.total_bytes for case in cases if case.record.impl == "standard"]
    return min((total for total in totals if total is not None), default=None)


def _ratio(standard_bytes: int | None, total_bytes: int | None) -> str:
    return UNKNOWN if not standard_bytes or not total_bytes else format_ratio(standard_bytes / total_bytes)


def flat_rows(cases: Sequence[CaseTraffic], sram_bytes: int | None = None) -> list[dict[str, object]]:
    """One row per case, kernel, tensor and direction, for CSV; what hardware counted is of all tensors.

    What theory says of a case stands in each of its rows.
    """
    said = {id(case): csv_columns(case, sram_bytes) for case in cases}
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
            **said[id(case)],
        }
        for case in cases
        for source, lines in ((case.source, case.lines), ("measured", measured_lines(case)))
        for line in lines
    ]


def document(cases: Sequence[CaseTraffic], sram_bytes: int | None = None) -> dict[str, Any]:
    """The JSON document; its fields are described in docs/cli.md."""
    standard = {shape: _standard_bytes(group) for shape, group in _by_shape(cases).items()}
    counted = [case for case in cases if case.source is not None]
    return {
        "schema": SCHEMA,
        "equal": all(case.equal for case in counted) if counted else None,
        "cases": [_case_document(case, standard[_compared_by(case.record)], sram_bytes) for case in cases],
    }


def _case_document(case: CaseTraffic, standard_bytes: int | None, sram_bytes: int | None) -> dict[str, Any]:
    record = case.record
    theorem = theorem2(record, sram_bytes)
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
        "theory": theory_document(case, sram_bytes),
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
