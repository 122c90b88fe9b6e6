"""Quantiles, the noise of the median and the stopping rule, with fixed numbers and no clock."""

from __future__ import annotations

import math

import pytest

from fa_bench.measure.statistics import median_noise, quantile
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


def feed(rule: StoppingRule, times: list[float], gap_ms: float = 0.0) -> int:
    """Add times until the rule is content; how many it took."""
    rule.start()
    elapsed = 0.0
    for count, time_ms in enumerate(times, start=1):
        elapsed += time_ms + gap_ms
        rule.add(time_ms, elapsed)
        if rule.finished():
            return count
    return 0


def test_never_finished_before_the_first_sample() -> None:
    rule = StoppingRule(max_elapsed_ms=0.0)
    assert not rule.finished()
    rule.add(1.0, 1.0)
    assert rule.finished()


def test_quiet_times_stop_after_half_a_second_of_samples() -> None:
    # 100 ms each without spread: the noise is 0 from the fifth on, and the fifth completes 500 ms.
    rule = StoppingRule()
    assert feed(rule, [100.0] * 50) == 5 and not rule.noisy
    # 400 ms each: 500 ms are over after two, but noise is believed from the fifth sample on.
    assert feed(rule, [400.0] * 50) == 5 and not rule.noisy
    # 1 ms each with a gap of 4 ms for the flush: 500 samples, 2.5 s elapsed, within the 5 s.
    assert feed(rule, [1.0] * 5000, gap_ms=4.0) == 500


def test_noise_must_fall_below_the_threshold() -> None:
    # 95 and 105 in turn: IQR = 10, σ = 7.413, noise = 1.2533 · 7.413 / (sqrt(n) · 100) = 0.0929 / sqrt(n).
    # Below 0.005 needs n > 345.2; the median is 100 at even n and IQR stays 10. n = 346 takes 34.6 s.
    rule = StoppingRule(max_elapsed_ms=1e9)
    count = feed(rule, [95.0, 105.0] * 400)
    assert 345 <= count <= 366 and not rule.noisy  # at odd n the median is 95 or 105: a little off


def test_time_limit_ends_it_and_says_noisy() -> None:
    rule = StoppingRule(max_elapsed_ms=2000.0)
    assert feed(rule, [95.0, 105.0] * 400) == 20  # 20 · 100 ms
    assert rule.noisy
    # One long sample: finished, and its noise is unknown, so noisy.
    assert feed(rule, [9000.0]) == 1
    assert rule.noisy
    # At the limit without noise: the median is known, only less was sampled.
    assert feed(rule, [0.01] * 5000, gap_ms=1.0) == 1981  # 2000 / 1.01 = 1980.2
    assert not rule.noisy


def test_start_forgets() -> None:
    rule = StoppingRule()
    feed(rule, [100.0] * 10)
    rule.start()
    assert not rule.finished() and rule.noisy
