"""Quantiles, the noise of the median and the stopping rule, with fixed numbers and no clock."""

from __future__ import annotations

import math

import pytest

from fa_bench.measure.statistics import drift, median_noise, quantile
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
    # 9, 10, 10, 10, 11: p25 = p75 = 10, so the spread is 0 whatever the ends.
    assert median_noise([9.0, 10.0, 10.0, 10.0, 11.0]) == 0.0
    # 8, 9, 10, 11, 12: IQR = 11 - 9 = 2, σ = 2 / 1.349 = 1.4826, SE = 1.2533 · 1.4826 / sqrt(5) = 0.8310, / 10.
    assert median_noise([8.0, 9.0, 10.0, 11.0, 12.0]) == pytest.approx(0.08310, rel=1e-3)
    # An outlier does not change it.
    assert median_noise([8.0, 9.0, 10.0, 11.0, 9999.0]) == pytest.approx(0.08310, rel=1e-3)
    assert median_noise([-1.0, 0.0, 1.0]) == math.inf


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
        rule.add(time_ms, elapsed)
        if rule.finished():
            return count, rule.is_noisy(sorted(times[:count]))
    return 0, True


def test_never_finished_before_the_first_sample() -> None:
    rule = StoppingRule(max_elapsed_ms=0.0)
    assert not rule.finished()
    rule.add(1.0, 1.0)
    assert rule.finished()


def test_quiet_times_stop_after_half_a_second_of_samples() -> None:
    # 100 ms each without spread: the noise is 0 from the fifth on, and the fifth completes 500 ms.
    assert feed(StoppingRule(), [100.0] * 50) == (5, False)
    # 400 ms each: 500 ms are over after two, but noise is believed from the fifth sample on.
    assert feed(StoppingRule(), [400.0] * 50) == (5, False)
    # 1 ms each with a gap of 4 ms for the flush: 500 samples, 2.5 s elapsed, within the 5 s.
    assert feed(StoppingRule(), [1.0] * 5000, gap_ms=4.0) == (500, False)


def test_noise_must_fall_below_the_threshold() -> None:
    # 95 and 105 in turn: IQR = 10, σ = 7.413, noise = 1.2533 · 7.413 / (sqrt(n) · 100) = 0.0929 / sqrt(n).
    # Below 0.005 needs n > 345.2; the median is 100 at even n and IQR stays 10. n = 346 takes 34.6 s.
    count, noisy = feed(StoppingRule(max_elapsed_ms=1e9), [95.0, 105.0] * 400)
    assert 345 <= count <= 366 and not noisy  # at odd n the median is 95 or 105: a little off


def test_time_limit_ends_it_and_says_noisy() -> None:
    rule = StoppingRule(max_elapsed_ms=2000.0)
    assert feed(rule, [95.0, 105.0] * 400) == (20, True)  # 20 · 100 ms
    # One long sample: finished, and its noise is unknown, so noisy.
    assert feed(rule, [9000.0]) == (1, True)
    # At the limit without noise: the median is known, only less was sampled.
    assert feed(rule, [0.01] * 5000, gap_ms=1.0) == (1981, False)  # 2000 / 1.01 = 1980.2


def test_a_fresh_rule_has_the_thresholds_and_no_samples() -> None:
    rule = StoppingRule(max_elapsed_ms=50.0)
    rule.add(100.0, 100.0)
    other = rule.fresh()
    assert rule.finished() and not other.finished()
    other.add(1.0, 49.0)
    assert not other.finished()
    other.add(1.0, 50.0)
    assert other.finished() and rule.fresh() is not other
