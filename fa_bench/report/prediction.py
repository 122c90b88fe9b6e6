"""The table and the flat rows of predicted times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fa_bench.prediction.result import Predicted
from fa_bench.report.names import FACTS, case_name, identity_columns, varying
from fa_bench.report.tables import Column, Table
from fa_bench.units import format_number

#: Version of the columns of predictions.csv.
SCHEMA: Final = 1
#: What an interval is worth: tests/prediction/test_fit.py counts both.
_INTERVAL: Final = (
    "Intervals held nine in ten times of publications left out of the fit, eight in ten of publications since."
)
_PIPES: Final = ("tensor", "exp", "fma", "shared", "l2", "dram", "launch")
#: Columns of predictions.csv, in their order; docs/cli.md says what each is.
COLUMNS: Final = (
    *("schema", "gpu", "impl", "direction", "dtype", "layout", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv"),
    *("head_dim", "causal", "window_left", "window_right", "features"),
    *("time_ms", "low_ms", "high_ms", "tflops", "limiter", *(f"{pipe}_ms" for pipe in _PIPES)),
    *("balance", "waves", "clock_mhz", "advice", "note", "status", "status_reason"),
)


def table(rows: Sequence[Predicted]) -> Table:
    """Predicted times, one row per case and GPU; what has none is named below with the reason."""
    names = [case_name(row.case) for row in rows]
    facts = varying(names)
    constant = [names[0].facts[fact] for fact in FACTS if fact not in facts] if names else []
    gpus = dict.fromkeys(row.gpu for row in rows)
    columns = (
        *((Column("GPU"),) if len(gpus) > 1 else ()),
        Column("implementation"),
        Column("shape"),
        *(Column(title, "right") for title in ("ms", "interval", "TFLOP/s")),
        Column("limiter"),
    )
    cells = []
    for row, name in zip(rows, names, strict=True):
        if row.time is None:
            continue
        time = row.time
        interval = f"{format_number(time.low_ms)}..{format_number(time.high_ms)}"
        first = (row.gpu,) if len(gpus) > 1 else ()
        shape = name.shape([fact for fact in facts if fact not in ("batch", "heads")])
        cells.append(
            (*first, name.impl, shape, format_number(time.ms), interval, format_number(time.tflops), time.limiter)
        )
    title = "; ".join([*(gpus if len(gpus) == 1 else ()), ", ".join(constant)])
    return Table(f"Predicted time; {title}", columns, tuple(cells), _note(rows))


def _note(rows: Sequence[Predicted]) -> str:
    """What intervals are, whose constants these are, and why rows have no time, a line each.

    GPUs of which the same is said share one.
    """
    notes: dict[str, dict[str, None]] = {}
    reasons: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    for row in rows:
        for note in () if row.time is None else row.time.notes:
            notes.setdefault(note.replace(row.gpu, "{}"), {})[row.gpu] = None
        if row.time is None:
            reason = row.reason.replace(row.gpu, "{}")
            reasons.setdefault(reason, {})[row.gpu] = None
            counts[reason] = counts.get(reason, 0) + 1
    sentences = [_INTERVAL] if any(row.time is not None for row in rows) else []
    sentences += [note.replace("{}", ", ".join(gpus)) for note, gpus in notes.items()]
    sentences += [
        f"{counts[reason]} without a time: {reason.replace('{}', ', '.join(gpus))}" for reason, gpus in reasons.items()
    ]
    return "\n".join(sentences)


def flat_rows(rows: Sequence[Predicted]) -> list[dict[str, object]]:
    """One row per case and GPU, with the columns of predictions.csv."""
    return [_row(row) for row in rows]


def _row(row: Predicted) -> dict[str, object]:
    time = row.time
    made: dict[str, object] = {
        "schema": SCHEMA,
        "gpu": row.gpu,
        **identity_columns(row.case),
        "status": "unsupported" if time is None else "ok",
        "status_reason": row.reason or None,
    }
    if time is not None:
        made |= {
            "time_ms": time.ms,
            "low_ms": time.low_ms,
            "high_ms": time.high_ms,
            "tflops": time.tflops,
            "limiter": time.limiter,
            **{f"{pipe}_ms": time.terms_ms.get(pipe) for pipe in _PIPES},
            "balance": time.balance,
            "waves": time.waves,
            "clock_mhz": time.clock_mhz,
            "advice": " ".join(time.advice),
            "note": " ".join(time.notes) or None,
        }
    return {column: made.get(column) for column in COLUMNS}
