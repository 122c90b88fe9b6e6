"""The stored residuals are those of the stored constants, and they don't grow."""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from fa_bench.cases import AttentionShape, Case
from fa_bench.model import gpus
from fa_bench.prediction import predict_time
from fa_bench.prediction.constants import shipped
from fa_bench.published import held_out, points

ROOT = Path(__file__).resolve().parents[2]
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
    ("column", "most"),
    [("fitted", 0.052), ("length_out", 0.057), ("curve_out", 0.070), ("publication_out", 0.072), ("gpu_out", 0.074)],
)
def test_errors_do_not_grow(column: str, most: float) -> None:
    assert mape(column) < most


def test_what_is_left_out_is_predicted_worse_than_what_is_fitted() -> None:
    """Else the columns would not be what they say."""
    assert mape("fitted") < mape("length_out") < mape("curve_out")
    assert mape("fitted") < mape("publication_out") < mape("gpu_out")


def test_intervals_hold_nine_in_ten_times_of_the_publications_that_were_left_out() -> None:
    """Each publication weighs as much as another: the mean of their shares."""
    errors = shipped().errors
    inside: dict[tuple[str, str], list[bool]] = {}
    for row in ROWS:
        one = errors[row["constants"]]
        held = one.low <= 1 / float(row["publication_out"]) <= one.high
        inside.setdefault((row["source"], row["gpu"]), []).append(held)
    assert 0.88 < sum(sum(held) / len(held) for held in inside.values()) / len(inside) < 0.96


def test_intervals_hold_eight_in_ten_times_of_publications_that_the_fit_never_saw() -> None:
    """What the table of `fa-bench predict` says below itself."""
    known = {point.source for point in points() if not point.left_out}
    new = [point for point in held_out() if not point.left_out and point.source not in known]
    made = [predict_time(point.case(), gpus.get(point.gpu)) for point in new]
    inside = [time.low_ms <= point.ms <= time.high_ms for point, time in zip(new, made, strict=True)]
    assert len(new) == 232
    assert 0.78 < sum(inside) / len(inside) < 0.85


def test_the_gpus_that_were_fitted_are_those_of_the_points() -> None:
    assert set(shipped().fitted_gpus) == {row["gpu"] for row in ROWS}


def script(name: str) -> Any:
    """A file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_stored_constants_are_what_the_script_fits() -> None:
    """Nothing is left out here, which takes the script's minute; sums differ by machine in the last digits."""
    fitting = script("fit_prediction")
    found = fitting.fitted_points()
    fit = fitting.Fit(found)
    generations, implementations = fit.constants(fit.run(found))
    known = shipped()
    for stored, made in ((known.generations, generations), (known.implementations, implementations)):
        assert set(stored) == set(made)
        for name, constants in made.items():
            for field, value in asdict(constants).items():
                assert getattr(stored[name], field) == pytest.approx(value, rel=0.01), (name, field)
    assert known.reference_power == fitting.reference_power()


def test_a_fit_finds_the_constants_that_times_were_made_with() -> None:
    """Times of the published cases by known constants: fitted to them, the script comes back to these constants.

    The prior pulls a little, and decides the launch of generations whose cases are all long.
    """
    fitting = script("fit_prediction")
    found = [point for point in fitting.fitted_points() if point.implementation in ("flash-attn-2", "pytorch-eager")]
    fit = fitting.Fit(found)
    truth = fit.prior + 0.3 * fit.spread
    made = [
        replace(point, ms=point.ms * math.exp(error))
        for point, error in zip(found, fit.residuals(truth, found), strict=True)
    ]
    vector = fit.run(made)
    assert abs(fit.residuals(vector, made)).max() < 0.02
    launches = range(2, 3 * len(fit.generations), 3)
    others = [i for i in range(len(truth)) if i not in launches]
    assert abs(vector - truth)[others].max() < 0.04


def test_the_documented_errors_are_those_of_the_residuals() -> None:
    documented = script("prediction_table").documented
    text = (ROOT / "docs" / "prediction.md").read_text(encoding="utf-8")
    assert documented(text) == text, "run: python scripts/prediction_table.py"
    assert f"| **all** | {len(ROWS)} | {100 * mape('fitted'):.1f} |" in text
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    words = " ".join(changes.split())
    assert f"{100 * mape('fitted'):.1f} % off on average, {100 * mape('curve_out'):.1f} % on curves" in words
    assert f"{100 * mape('publication_out'):.1f} % on publications" in words
    assert f"and {100 * mape('gpu_out'):.1f} % on GPUs that were left out" in words
