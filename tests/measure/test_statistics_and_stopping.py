"""Quantiles, the noise of the median and the stopping rule, with fixed numbers and no clock."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable

import pytest

from fa_bench.measure import stopping
from fa_bench.measure.statistics import CONFIDENCE, drift, median_noise, median_rank, quantile
from fa_bench.measure.stopping import StoppingRule


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        (0.0, 1.0),
        (0.2, 1.8),  # place 0.2 · 4 = 0.8 between 1 and 2
        (0.5, 3.0),
        (0.8, 14.8),  # place 3.2 between 4 and 58: 4 + 0.2 · 54
        (1.0, 58.0),
    ],
)
def test_quantiles(q: float, expected: float) -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0, 58.0], q) == pytest.approx(expected)


def test_quantile_of_one_and_of_none() -> None:
    assert quantile([7.0], 0.8) == 7.0
    with pytest.raises(ValueError, match="empty"):
        quantile([], 0.5)


def test_noise_of_the_median_by_hand() -> None:
    # Of 6 all fall on one side of the median with probability 2 / 64 = 0.03, so its interval goes from 8 to 13. The
    # farther end is 13 - 10.5 = 2.5 away, 1.96 standard errors: 2.5 / 1.96 / 10.5 = 0.1215.
    assert median_noise([8.0, 9.0, 10.0, 11.0, 12.0, 13.0]) == pytest.approx(0.1215, rel=1e-3)
    # Of 9 at most one falls on one side with probability 2 (1 + 9) / 512 = 0.039: from the second to the eighth.
    assert median_noise([9.0, *[10.0] * 7, 9999.0]) == 0.0
    # Of skewed times the side on which they spread: from 10 to 14, the median is 11. 3 / 1.96 / 11 = 0.1392.
    assert median_noise([9.0, 10.0, 10.0, 10.5, 11.0, 12.0, 13.0, 14.0, 99.0]) == pytest.approx(0.1392, rel=1e-3)


def test_noise_that_cannot_be_judged_is_infinite() -> None:
    assert median_noise([]) == math.inf
    assert median_noise([1.0] * 5) == math.inf  # all of 5 are on one side with probability 2 / 32 = 0.06
    assert median_noise([1.0] * 6) == 0.0
    assert median_noise([-1.0] * 3 + [0.0] * 3 + [1.0] * 3) == math.inf


def test_noise_of_times_that_move_by_hand() -> None:
    # 25 of 100 and 25 of 102, ten batches: medians 100 and 102, five each. They are all 1 from their mean: squares 10,
    # variance of the mean 10 / 9 / 10 = 0.111. 8 of 9 neighbours agree: correlation (8 - 1) / 10 = 0.7, which is
    # (7 + 1) / 7 without its bias, and 0.9 at most: factor 1.9 / 0.1 = 19. sqrt(0.111 * 19) = 1.453. Median 101:
    # 0.01439. The interval's farther end is 1 away: 1 / 1.96 / 101 = 0.00505.
    assert median_noise([100.0] * 25 + [102.0] * 25) == pytest.approx(0.01439, rel=1e-3)
    # The same times in turns: the medians of batches of five are 100 and 102 in turns, which is no correlation.
    assert median_noise([100.0, 102.0] * 25) == pytest.approx(0.00505, rel=1e-3)
    # Of 49 nothing is known about batches: at the 18th and the 32nd stand 100 and 102; the median is 102.
    assert median_noise([100.0] * 24 + [102.0] * 25) == pytest.approx(2.0 / 1.96 / 102.0, rel=1e-3)


def test_ranks_around_a_median_by_the_binomial() -> None:
    for count in range(1, 200):
        below = list(itertools.accumulate(math.comb(count, k) / 2**count for k in range(count // 2 + 1)))
        ranks = [rank for rank in range(1, count // 2 + 1) if 2 * below[rank - 1] <= 1 - CONFIDENCE]
        assert median_rank(count) == (ranks[-1] if ranks else None), count
    # Normal approximation for many: 500,000 - 1.96 * 500.
    assert median_rank(1_000_000) == pytest.approx(500_000 - 980, abs=1)


# --- claimed against real scatter ------------------------------------------------------------------------------------

Times = Callable[[random.Random, int], list[float]]


def normal(draw: random.Random, count: int) -> list[float]:
    return [draw.gauss(1.0, 0.05) for _ in range(count)]


def skewed(draw: random.Random, count: int) -> list[float]:
    return [1.0 + draw.expovariate(10.0) for _ in range(count)]


def two_modes(draw: random.Random, count: int) -> list[float]:
    return [draw.choice((1.0, 1.1)) for _ in range(count)]


def wandering(draw: random.Random, count: int, correlation: float = 0.99, sigma: float = 0.05) -> list[float]:
    """An autoregressive process of first order around 1."""
    offset, times = draw.gauss(0.0, sigma), []
    for _ in range(count):
        offset = correlation * offset + draw.gauss(0.0, sigma * math.sqrt(1.0 - correlation**2))
        times.append(1.0 + offset)
    return times


@pytest.mark.parametrize("times", [normal, skewed, two_modes, wandering])
def test_the_noise_that_is_claimed_is_the_scatter_of_medians(times: Times) -> None:
    draw = random.Random(20240607)
    runs = [times(draw, 500) for _ in range(200)]
    scatter = statistics.stdev(statistics.median(run) for run in runs)
    claimed = statistics.fmean(median_noise(run) for run in runs)
    assert 0.75 < claimed / scatter < 1.4


def test_rows_that_are_not_noisy_repeat_within_twice_the_threshold() -> None:
    # Times of 10 ms that wander by 1 % (correlation 0.9 from one to the next), 50 of them at least.
    draw = random.Random(7)
    medians = []
    for _ in range(100):
        times = [10.0 * time for time in wandering(draw, 3000, 0.9, 0.01)]
        count, noisy = feed(StoppingRule(max_elapsed_ms=30_000.0), times)
        if not noisy:
            medians.append(statistics.median(times[:count]))
    assert len(medians) > 90
    assert statistics.stdev(medians) / 10.0 < 2 * 0.005


def test_drift_compares_the_last_third_with_the_first() -> None:
    # 9 times: medians of 10, 11, 12 and of 12, 13, 14: 13 / 11 - 1 = 0.1818.
    assert drift([11.0, 10.0, 12.0, 50.0, 50.0, 50.0, 12.0, 14.0, 13.0]) == pytest.approx(0.1818, abs=1e-4)
    # 10 times: thirds of 3; the one in the middle plays no part. Clocks that rise make it negative: 9 / 10 - 1.
    assert drift([10.0] * 3 + [99.0] * 4 + [9.0] * 3) == pytest.approx(-0.1)
    assert drift([1.0] * 300) == 0.0
    # An attention kernel that slows down from 1450 to 1237 TFLOP/s within one measurement: 1450 / 1237 - 1 = 17 %.
    assert drift([1 / 1450] * 20 + [1 / 1237] * 20) == pytest.approx(0.172, abs=1e-3)


def test_drift_of_a_few_times_is_not_known() -> None:
    assert drift([1.0, 2.0] * 4) is None  # 8: a third of 2 is chance
    assert drift([0.0] * 9) is None


def feed(rule: StoppingRule, times: list[float], gap_ms: float = 0.0) -> tuple[int, bool]:
    """Add times until the rule is content; how many it took, and whether they are noisy."""
    rule = rule.fresh()
    elapsed = 0.0
    for count, time_ms in enumerate(times, start=1):
        elapsed += time_ms + gap_ms
        rule.add(time_ms)
        if rule.finished(elapsed):
            return count, rule.is_noisy(times[:count])
    return 0, True


def test_never_finished_before_the_first_sample() -> None:
    rule = StoppingRule(max_elapsed_ms=0.0)
    assert not rule.finished(1.0)
    rule.add(1.0)
    assert rule.finished(1.0)


def test_quiet_times_stop_after_half_a_second_of_samples() -> None:
    # 100 ms each without spread: 500 ms are over after five, but fewer than six have no interval.
    assert feed(StoppingRule(), [100.0] * 50) == (6, False)
    assert feed(StoppingRule(), [50.0] * 50) == (10, False)
    # 1 ms each with a gap of 4 ms for the flush: 500 samples, 2.5 s elapsed, within the 5 s.
    assert feed(StoppingRule(), [1.0] * 5000, gap_ms=4.0) == (500, False)


def test_noise_must_fall_below_the_threshold() -> None:
    # 95 and 105, two in three the former: the median is 95, and known as soon as the upper end of its interval is.
    # Of 40 that is the 27th, and 27 of them are 95.
    count, noisy = feed(StoppingRule(max_elapsed_ms=1e9), [95.0, 95.0, 105.0] * 400)
    assert (count, noisy) == (40, False)
    # Half of each is never known better: the median is of one mode or of the other.
    assert feed(StoppingRule(max_elapsed_ms=1e9), [95.0, 105.0] * 400) == (0, True)


def test_times_that_drift_are_noisy_however_many_they_are() -> None:
    # A GPU that gets hot: 5 % more each second. Each sample is quiet.
    assert feed(StoppingRule(), [1.0 + 0.05 * k / 1000 for k in range(6000)])[1]
    # Before there are enough for batches, their interval sees it: 20 from 1 to 1.05.
    assert StoppingRule().is_noisy([1.0 + 0.05 * k / 20 for k in range(20)])
    # Clocks that fall by 2 % after 2 s: the first 500 samples are enough, later ones would not be.
    assert feed(StoppingRule(), [1.0] * 2000 + [1.02] * 2000) == (500, False)
    assert StoppingRule().is_noisy([1.0] * 300 + [1.02] * 300)


def test_time_limit_ends_it_and_says_noisy() -> None:
    rule = StoppingRule(max_elapsed_ms=2000.0)
    assert feed(rule, [95.0, 105.0] * 400) == (20, True)  # 20 · 100 ms
    # One long sample: finished, and its noise is unknown, so noisy.
    assert feed(rule, [9000.0]) == (1, True)
    # At the limit without noise: the median is known, only less was sampled.
    assert feed(rule, [0.01] * 5000, gap_ms=1.0) == (1981, False)  # 2000 / 1.01 = 1980.2


def test_a_fresh_rule_has_the_thresholds_and_no_samples() -> None:
    rule = StoppingRule(max_elapsed_ms=50.0)
    rule.add(100.0)
    other = rule.fresh()
    assert rule.finished(50.0) and not other.finished(50.0)
    other.add(1.0)
    assert not other.finished(49.0)
    assert other.finished(50.0) and rule.fresh() is not other


def test_how_often_the_noise_is_looked_at_grows_with_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    # It sorts all of them: at each sample that would be quadratic. From 500 on, 10 % more each time until 50,000:
    # ln(100) / ln(1.1) = 48.3.
    looks: list[int] = []

    def look(times: list[float]) -> float:
        looks.append(len(times))
        return math.inf

    monkeypatch.setattr(stopping, "median_noise", look)
    feed(StoppingRule(), [1.0] * 50_000, gap_ms=-0.95)
    assert looks[:2] == [500, 551] and len(looks) == 49
