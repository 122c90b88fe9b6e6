"""The stored residuals are those of the stored constants, and they don't grow."""

from __future__ import annotations

import csv
import importlib.util
from importlib import resources
from pathlib import Path

import pytest

from fa_bench.cases import AttentionShape, Case
from fa_bench.model import gpus
from fa_bench.prediction import predict_time
from fa_bench.prediction.constants import shipped
from fa_bench.published import points

DATA = resources.files("fa_bench") / "data"
ROWS = list(csv.DictReader((DATA / "prediction_residuals.csv").read_text(encoding="utf-8").splitlines()))


def case_of(row: dict[str, str]) -> Case:
    sizes = (int(row[name]) for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim"))
    return Case(
        row["impl"],
        AttentionShape(*sizes, causal=row["causal"] == "1"),
        dtype=row["dtype"],  # type: ignore[arg-type]
        direction=row["direction"],  # type: ignore[arg-type]
        layout="bshd",
    )


def mape(column: str) -> float:
    return sum(abs(float(row[column]) - 1) for row in ROWS) / len(ROWS)


def test_stored_residuals_are_those_of_the_stored_constants() -> None:
    """PyTorch with dropout is a case that the columns don't name; all others are predicted anew."""
    looked_at = 0
    for row in ROWS:
        if row["source"] == "FlashAttention tables 9-20":
            continue
        made = predict_time(case_of(row), gpus.get(row["gpu"]))
        assert made.ms / float(row["published_ms"]) == pytest.approx(float(row["fitted"]), rel=2e-4), row
        looked_at += 1
    assert looked_at > 350


def test_every_point_that_can_be_fitted_is() -> None:
    known = {"flash-attn-1", "flash-attn-2", "flash-attn-3", "flash-attn-4", "torch-cudnn", "pytorch-eager", "xformers"}
    usable = [
        point
        for point in points()
        if not point.left_out and point.impl in known and not point.source.startswith("FlashAttention tables")
    ]
    stored = [
        row for row in ROWS if row["impl"] in known and not row["source"].startswith(("FlashAttention tab", "TVM"))
    ]
    assert len(stored) == len(usable)


@pytest.mark.parametrize(
    ("column", "most"), [("fitted", 0.051), ("length_out", 0.055), ("curve_out", 0.066), ("gpu_out", 0.071)]
)
def test_errors_do_not_grow(column: str, most: float) -> None:
    assert mape(column) < most


def test_what_is_left_out_is_predicted_worse_than_what_is_fitted() -> None:
    """Else the columns would not be what they say."""
    assert mape("fitted") < mape("length_out") < mape("curve_out")
    assert mape("fitted") < mape("gpu_out")


def test_intervals_hold_nine_in_ten_of_the_curves_that_were_left_out() -> None:
    errors = shipped().errors
    inside = sum(
        errors[row["constants"]].low <= 1 / float(row["curve_out"]) <= errors[row["constants"]].high for row in ROWS
    )
    assert 0.87 < inside / len(ROWS) < 0.95


def test_the_gpus_that_were_fitted_are_those_of_the_points() -> None:
    assert set(shipped().fitted_gpus) == {row["gpu"] for row in ROWS}


def test_the_documented_errors_are_those_of_the_residuals() -> None:
    root = Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location("prediction_table", root / "scripts" / "prediction_table.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = (root / "docs" / "prediction.md").read_text(encoding="utf-8")
    assert script.documented(text) == text, "run: python scripts/prediction_table.py"
    assert f"| **all** | {len(ROWS)} | {100 * mape('fitted'):.1f} |" in text
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    words = " ".join(changes.split())
    assert f"{100 * mape('fitted'):.1f} % off on average, {100 * mape('curve_out'):.1f} % on curves" in words
    assert f"and {100 * mape('gpu_out'):.1f} % on GPUs that were left out" in words
