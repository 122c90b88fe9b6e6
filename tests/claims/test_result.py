"""The verdict follows from the bounds, and from nothing else."""

from __future__ import annotations

import math

import pytest

from fa_bench.claims.result import Check, Figure, Judgement, Unit, Verdict, by_a_factor, judged, within


def check(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> Check:
    return Check(name, (Figure(name, value, "number", "by hand"),), low, high)


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([check("a", 1, high=2), check("b", 3, low=3)], "holds"),
        ([check("a", 1, high=2), check("b", 3, low=4)], "holds-if"),
        ([check("a", 1, low=2), check("b", 3, high=2)], "does-not-hold"),
        ([check("a", math.inf, high=2)], "does-not-hold"),
        ([], "not-tested"),
    ],
)
def test_a_verdict_counts_the_readings_that_hold(checks: list[Check], verdict: Verdict) -> None:
    assert judged(checks).verdict == verdict


def test_a_reading_that_was_not_tested_may_not_hold() -> None:
    assert judged([check("a", 1, high=2)], lacking=("torch",)).verdict == "holds-if"
    assert judged([check("a", 3, high=2)], lacking=("torch",)).verdict == "does-not-hold"


def test_all_figures_of_a_reading_must_lie_within_its_bounds() -> None:
    two = Figure("least", 2.0, "times", ""), Figure("most", 4.5, "times", "")
    assert not Check("both", two, 2, 4).passed
    assert Check("both", two, 2, 4.5).passed


def test_figures_of_readings_come_first_and_once() -> None:
    shared = Figure("shared", 1, "number", "")
    judgement = judged([Check("a", (shared,), high=1), Check("b", (shared,), low=2)], Figure("more", 2, "number", ""))
    assert [figure.name for figure in judgement.figures] == ["shared", "more"]
    assert judgement.figure("more").value == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Figure("x", math.nan, "number", ""), "x is not a number"),
        (lambda: Check("x", (), high=1), "x has nothing to check"),
        (lambda: check("x", 1, 2, 1), "x asks for 2 to 1"),
        (lambda: check("x", 1), "x asks for -inf to inf"),
        (lambda: Judgement((), (check("x", 1, 1),)), "check x is of a figure that is not shown"),
        (lambda: judged([], Figure("x", 1, "number", ""), Figure("x", 2, "number", "")), "figure x appears twice"),
        (lambda: judged([check("x", 1, 1), check("x", 1, 2)]), "check x appears twice"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (67_108_864, "megabytes", "67.11 MB"),
        (27.8809, "times", "27.9×"),
        (0.5576, "n2", "0.558 N²"),
        (1.964, "power", "N^1.96"),
        (2048, "FLOP/B", "2048 FLOP/B"),
        (19.49e12, "B/s", "19.5 TB/s"),
        (166_912, "bytes", "163 KiB"),
        (0.0447, "ms", "44.7 µs"),
        (0.508, "percent", "50.8 %"),
        (2023.3, "count", "2,023"),
        # Rounding of float64 and of float32 is not the same on every machine: only a power of ten above it is shown.
        (4.6e-16, "error", "<1e-9"),
        (0.0, "error", "<1e-9"),
        (2.3e-7, "error", "<1e-6"),
        (2.3e-4, "error", "2e-4"),
        (1.713, "error", "1.71"),
        (math.inf, "error", "inf"),
    ],
)
def test_a_figure_as_text(value: float, unit: Unit, text: str) -> None:
    assert Figure("x", value, unit, "").text == text


@pytest.mark.parametrize(
    ("low", "high", "unit", "text"),
    [
        (-math.inf, 1e-9, "error", "≤ 1e-9"),
        (1, math.inf, "percent", "≥ 100.0 %"),
        (2, 4, "times", "2.00× … 4.00×"),
        (1, 1, "times", "= 1.00×"),
    ],
)
def test_bounds_as_text(low: float, high: float, unit: Unit, text: str) -> None:
    assert Check("x", (Figure("x", 1, unit, ""),), low, high).bounds == text


def test_bounds_around_a_figure() -> None:
    assert within(0.1, 20) == (18, 22)
    assert by_a_factor(4, 20) == (5, 80)
