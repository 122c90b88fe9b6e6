"""Runs as data frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fa_bench import frames
from fa_bench.errors import UsageError
from fa_bench.records import RECORDS, TRAFFIC, Record, TensorTraffic


def record(**fields: Any) -> Record:
    known: dict[str, Any] = {
        "run_id": "r", "case_id": "c", "timestamp": "2026-01-01T00:00:00+00:00", "impl": "flash2",
        "backend": "emulator", "device": "a, \"CPU\"", "dtype": "fp16", "direction": "fwd",
        "layout": "bhsd", "batch": 1, "heads_q": 1, "heads_kv": 1, "seq_q": 1024, "seq_kv": 1024, "head_dim": 64,
        "causal": True,
        "seed": 0, "status": "skipped",
        "status_reason": "too large",
    }  # fmt: skip
    return Record(**(known | fields))


def test_types_and_unknown_cells(tmp_path: Path) -> None:
    rows = [record(), record(case_id="d", global_read_bytes_model=2**40, causal=False)]
    (tmp_path / "records.csv").write_text(RECORDS.header + "".join(map(RECORDS.line, rows)), encoding="utf-8")
    frame = frames.records(tmp_path)
    assert list(frame.columns) == list(RECORDS.columns)
    assert frame["device"].tolist() == ['a, "CPU"'] * 2
    assert frame["causal"].tolist() == [True, False]
    assert frame["seq_q"].dtype == "Int64" and frame["time_ms"].dtype == "Float64"
    # Not known is missing, not 0; a count above 2^31 stays whole.
    assert frame["global_read_bytes_model"].isna().tolist() == [True, False]
    assert frame["global_read_bytes_model"].sum() == 2**40
    assert frame["time_ms"].isna().all()


def test_traffic_by_its_file_and_sums(tmp_path: Path) -> None:
    rows = [
        TensorTraffic(case_id="c", kernel="k", tensor=tensor, op="read", level="global", source="model", bytes=size)
        for tensor, size in (("Q", 32), ("K", 64), ("K", 96))
    ]
    path = tmp_path / "traffic.csv"
    path.write_text(TRAFFIC.header + "".join(map(TRAFFIC.line, rows)), encoding="utf-8")
    frame = frames.traffic(path)
    assert frame.groupby("tensor")["bytes"].sum().to_dict() == {"K": 160, "Q": 32}
    assert isinstance(frame, pd.DataFrame)


def test_a_missing_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Cannot read"):
        frames.records(tmp_path)
