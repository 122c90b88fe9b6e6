"""Deviations and their mean."""

from __future__ import annotations

import pytest

from fa_bench.validation.result import Score, deviation, mean_absolute, score


def test_a_deviation_is_relative_to_the_published_figure() -> None:
    assert deviation(110, 100) == pytest.approx(0.1)
    assert deviation(90, 100) == pytest.approx(-0.1)
    assert deviation(100, 100) == 0


def test_the_mean_takes_the_deviations_without_their_signs() -> None:
    # (10 + 30 + 20) / 3 %
    assert mean_absolute([0.1, -0.3, 0.2]) == pytest.approx(0.2)


def test_nothing_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no deviations to average"):
        mean_absolute([])


def test_a_score_has_both_means() -> None:
    # (10 + 30) / 2 = 20 %; with 80 %: 120 / 3 = 40 %.
    found = score("times", "a30", [0.1, -0.3], [0.8])
    assert (found.figures, found.all_figures) == (2, 3)
    assert (found.mape, found.all_mape) == (pytest.approx(0.2), pytest.approx(0.4))


def test_a_score_of_nothing_has_no_mean() -> None:
    assert score("times", "a30", []) == Score("times", "a30", 0, None, 0, None)
    assert score("times", "a30", [], [0.5]) == Score("times", "a30", 0, None, 1, 0.5)
