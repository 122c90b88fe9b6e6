"""How sure a median is: ranks, drift, verdicts."""

from __future__ import annotations

import random
from fractions import Fraction
from math import comb, exp

import pytest
from sample_runs import BIMODAL, CONSTANT, DRIFT, NOISE

from fa_bench.comparison.intervals import (
    Interval,
    median_interval,
    ratio_interval,
    summary_interval,
    verdict,
)
from fa_bench.measure.statistics import MIN_INTERVAL_SAMPLES


def rank_by_counting(count: int) -> int | None:
    """The largest l such that at most l - 1 heads in ``count`` fair throws have a probability of at most 2.5 %."""
    found = None
    for rank in range(1, count // 2 + 1):
        if 2 * Fraction(sum(comb(count, k) for k in range(rank)), 2**count) <= Fraction(5, 100):
            found = rank
    return found


@pytest.mark.parametrize("count", [*range(61), 99, 100, 501])
def test_the_ranks_are_those_of_the_binomial_distribution(count: int) -> None:
    # Samples 1, 2, ... count in an order without a trend: an interval's ends are the ranks themselves.
    step = next(s for s in (7, 11, 13) if not count or count % s)
    samples = [float(1 + step * i % count) for i in range(count)]
    interval = median_interval(samples)
    rank = rank_by_counting(count)
    if rank is None:
        assert interval is None
        assert count < MIN_INTERVAL_SAMPLES
    else:
        assert interval is not None
        assert not interval.drifts
        assert (interval.low, interval.middle, interval.high) == (rank, (count + 1) / 2, count + 1 - rank)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    # Skewed, as times are: the median of exp(normal) is 1. 98 % is what ranks 8 and 18 of 25 have (binomial), less
    # what 2,000 trials scatter; the guard against drift only widens.
    draw = random.Random(1)
    trials = [median_interval([exp(draw.gauss(0, 1)) for _ in range(25)]) for _ in range(2000)]
    assert sum(t is not None and t.low <= 1.0 <= t.high for t in trials) >= 0.95 * 2000
    # Evident drift is rare where there is none.
    assert sum(t is not None and t.drifts for t in trials) <= 0.01 * 2000


def test_times_of_two_modes_have_an_interval_that_spans_both() -> None:
    assert median_interval(BIMODAL) == Interval(1.0, 1.1, 1.2)


def test_a_drift_widens_the_interval_to_what_the_thirds_say() -> None:
    # 60 samples 1 + 0.1 i/59. All: ranks 22 and 39, 1.0356 to 1.0644, which would be slower than 1.0 by more than 2 %.
    # A third has 20, ranks 6 and 15: the first third begins at i = 5, the last ends at i = 40 + 14.
    interval = median_interval(DRIFT)
    assert interval is not None
    assert interval.drifts
    assert interval.low == pytest.approx(1 + 0.1 * 5 / 59)
    assert interval.middle == pytest.approx(1.05)
    assert interval.high == pytest.approx(1 + 0.1 * 54 / 59)
    # The same values in another order are no drift.
    shuffled = median_interval([DRIFT[7 * i % 60] for i in range(60)])
    assert shuffled is not None
    assert not shuffled.drifts
    assert shuffled.low == pytest.approx(1 + 0.1 * 21 / 59)


def test_without_samples_the_quintiles_enclose_the_median_if_there_were_enough() -> None:
    # Of 15 the ranks are 4 and 12, and p20 lies 0.2 · 14 = 2.8 places behind the first: between the 3rd and the 4th.
    assert summary_interval(15, 0.9, 1.0, 1.1) == Interval(0.9, 1.0, 1.1)
    # Of 14 they are 3 and 12, and p20 lies 2.6 places behind the first: beyond the 3rd.
    assert summary_interval(14, 0.9, 1.0, 1.1) is None
    assert summary_interval(0, 0.9, 1.0, 1.1) is None


def ratio(before: tuple[float, ...], after: tuple[float, ...]) -> Interval:
    first, second = median_interval(before), median_interval(after)
    assert first is not None
    assert second is not None
    return ratio_interval(first, second)


@pytest.mark.parametrize(
    ("before", "after", "margin", "expected"),
    [
        (CONSTANT, CONSTANT, 0.0, "same"),
        # A constant ratio has no width at all.
        (CONSTANT, tuple(1.1 * t for t in CONSTANT), 0.02, "slower"),
        (CONSTANT, tuple(0.9 * t for t in CONSTANT), 0.02, "faster"),
        (CONSTANT, tuple(1.01 * t for t in CONSTANT), 0.02, "same"),
        (CONSTANT, tuple(1.01 * t for t in CONSTANT), 0.005, "slower"),
        # 21 samples have ranks 6 and 16: 0.995 to 1.005, and the ratio lies between 0.990 and 1.0101.
        (NOISE, NOISE, 0.02, "same"),
        (NOISE, NOISE, 0.005, "ambiguous"),
        # 2.5 % more: 1.0148 to 1.0353, neither wholly beyond 2 % nor within. 4 % more: 1.0297 to 1.0504.
        (NOISE, tuple(1.025 * t for t in NOISE), 0.02, "ambiguous"),
        (NOISE, tuple(1.04 * t for t in NOISE), 0.02, "slower"),
        (BIMODAL, BIMODAL, 0.02, "ambiguous"),
        (CONSTANT, DRIFT, 0.02, "ambiguous"),
    ],
)
def test_verdicts(before: tuple[float, ...], after: tuple[float, ...], margin: float, expected: str) -> None:
    assert verdict(ratio(before, after), margin) == expected
    turned = {"slower": "faster", "faster": "slower"}.get(expected, expected)
    assert verdict(ratio(after, before), margin) == turned


def test_intervals_overlap_exactly_where_that_of_the_ratio_holds_1() -> None:
    a = Interval(1.0, 1.1, 1.2)
    for b, overlap in ((Interval(1.2, 1.3, 1.4), True), (Interval(1.21, 1.3, 1.4), False)):
        found = ratio_interval(a, b)
        assert (found.low <= 1.0 <= found.high) is overlap
        back = ratio_interval(b, a)
        assert (back.low <= 1.0 <= back.high) is overlap
