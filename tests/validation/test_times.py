"""Published times beside predicted ones: rows, means with and without what is left out, what has no model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fa_bench.published import held_out, incomplete, points
from fa_bench.validation import times


def test_every_published_time_is_a_row_of_one_source(predictor: Callable) -> None:
    first, others = times.validate_fa1(predictor()), times.validate(predictor())
    counts = [len(found.comparisons[0].rows) for found in (first, others)]
    # Tables 7 and 9 to 20 have 1138 rows; of 493 other figures 54 are no cases.
    assert counts == [1138, 493 - 54]
    assert sum(counts) == len(points())


def test_what_is_held_out_is_a_source_of_its_own(predictor: Callable) -> None:
    found = times.validate_held_out(predictor())
    assert (found.source, len(found.comparisons[0].rows)) == ("held-out", len(held_out()))
    assert found.published.startswith("held out: never fitted")
    # 390.542 TFLOP/s of Triton's kernel at 4 x 32 heads, 2k, D = 64, causal:
    # 4 · 128 · 2048² · 64 / 2 / 390.542e12 s.
    row = next(row for row in found.comparisons[0].rows if row["value_published"] == 390.542)
    assert row["time_ms_published"] == pytest.approx(0.17596, abs=5e-6)


def test_a_row_has_the_published_and_the_predicted_time(predictor: Callable) -> None:
    rows = times.validate(predictor(ms=2.0)).comparisons[0].rows
    row = next(row for row in rows if row["published_by"] == "flash-attention#1791" and row["impl"] == "flash-attn-3")
    # 1.668 ms were published: 2 / 1.668 - 1 = +19.9 %.
    assert (row["gpu"], row["gpu_published"]) == ("h100-sxm", "H100 (assumed)")
    assert (row["seq_q"], row["head_dim"]) == (8192, 128)
    assert (row["time_ms_published"], row["time_ms_model"]) == (1.668, 2.0)
    assert (row["time_low_ms_model"], row["time_high_ms_model"]) == (1.8, pytest.approx(2.2))
    assert row["time_deviation"] == pytest.approx(0.19904, abs=1e-5)
    assert row["limiter_model"] == "a test"


def test_the_score_of_a_publication_with_and_without_what_is_left_out(predictor: Callable) -> None:
    found = times.validate(predictor(ms=0.1))
    score = next(score for score in found.scores if score.what == "sglang#30090")
    # cuDNN: 0.0676, 0.1055, 0.0814 and 0.0484 ms; left out: 0.0685, 0.1132, 0.0810 and 0.0407.
    kept = [abs(0.1 / ms - 1) for ms in (0.0676, 0.1055, 0.0814, 0.0484)]
    others = [abs(0.1 / ms - 1) for ms in (0.0685, 0.1132, 0.0810, 0.0407)]
    assert (score.gpu, score.figures, score.all_figures) == ("h100-sxm", 4, 8)
    assert score.mape == pytest.approx(sum(kept) / 4)
    assert score.all_mape == pytest.approx(sum(kept + others) / 8)


def test_the_summary_says_how_many_lie_in_the_interval(predictor: Callable) -> None:
    # 0.75 to 0.92 ms, a tenth about 0.836327: of pytorch#126122's six times 750 and 836 µs are inside.
    summary, _ = times.validate(predictor(ms=0.8333)).comparisons[0].summaries
    row = next(row for row in summary.rows if row["published_by"] == "pytorch#126122")
    assert row["inside"] == pytest.approx(2 / 6)


def test_an_implementation_has_its_bias_and_its_worst_error(predictor: Callable) -> None:
    _, summary = times.validate(predictor(ms=0.6)).comparisons[0].summaries
    row = next(row for row in summary.rows if (row["impl"], row["gpu"]) == ("flash-attn-2", "h20"))
    # 0.84, 0.484 and 0.522 ms were published: -28.6, +24.0 and +14.9 %.
    errors = [0.6 / ms - 1 for ms in (0.84, 0.484, 0.522)]
    assert (row["figures"], row["bias"], row["worst"]) == (3, pytest.approx(sum(errors) / 3), pytest.approx(errors[0]))


def test_what_has_no_model_is_named_and_not_averaged(predictor: Callable) -> None:
    with_model, without = times.validate(predictor()), times.validate(predictor(without=("torch-flex",)))
    named = [(left.what, left.rows) for left in without.left_out if "no time model" in left.reason]
    assert named == [("torch-flex", 3)]
    figures = [sum(score.figures for score in found.scores) for found in (with_model, without)]
    assert figures[0] - figures[1] == 3
    row = next(row for row in without.comparisons[0].rows if row["impl"] == "torch-flex")
    assert (row["time_ms_model"], row["time_deviation"]) == (None, None)
    assert row["no_model"] == "There is no time model of torch-flex."


def test_all_that_is_left_out_is_counted(predictor: Callable) -> None:
    for validate, known in ((times.validate, len(incomplete())), (times.validate_fa1, 0)):
        found = validate(predictor())
        named = sum(1 for row in found.comparisons[0].rows if row["left_out"])
        assert sum(left.rows for left in found.left_out) == named + known


def test_a_case_is_predicted_once(predictor: Callable) -> None:
    # Tables with and without a padding mask are the same cases here.
    ask = predictor()
    times.validate_fa1(ask)
    assert len(ask.asked) == len(set(ask.asked)) < 1138
