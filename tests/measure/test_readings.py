"""What looks at a GPU say of a case, and what lies between them. No figure is a real GPU's."""

from __future__ import annotations

import pytest

from fa_bench.measure.readings import Reading, Sampler, summarize_readings


def test_memory_that_did_not_rise_is_a_true_zero() -> None:
    # Two readings of the same memory: the case took nothing that NVML sees, which is known.
    same = [Reading(800, None, None, None, None)] * 2
    assert summarize_readings(same, baseline_bytes=800, throttled=False).mem_peak_bytes == 0


def test_a_mean_of_what_came_before_the_sampling_is_not_its_power() -> None:
    # An idle GPU of 50 W, 300 W from 10.0 s on. Looks at 10.0, 10.5, 11.0 and 11.5 s see the mean of the second before.
    looks = iter([(10.0, 50.0), (10.5, 175.0), (11.0, 300.0), (11.5, 300.0)])
    now = [0.0]

    def read() -> Reading:
        now[0], power_w = next(looks)
        return Reading(None, power_w, None, None, None, power_mean_s=1.0)

    sampler = Sampler(read, clock=lambda: now[0])
    for _ in range(2):
        sampler.sample()
    assert summarize_readings(sampler.readings, None, throttled=False).power_w is None
    for _ in range(2):
        sampler.sample()
    assert summarize_readings(sampler.readings, None, throttled=False).power_w == 300.0


def test_a_peak_between_two_looks_is_missed_and_the_interval_says_how_long_it_may_have_been() -> None:
    # 1 GiB from 101 ms to 102 ms; looks at 0, 100 and 200 ms.
    looks = iter([(0.0, 10), (0.1, 10), (0.2, 10)])
    now = [0.0]

    def read() -> Reading:
        now[0], used = next(looks)
        return Reading(used, None, None, None, None)

    sampler = Sampler(read, clock=lambda: now[0])
    assert sampler.longest_gap_ms is None
    for _ in range(3):
        sampler.sample()
    assert summarize_readings(sampler.readings, baseline_bytes=10, throttled=False).mem_peak_bytes == 0
    assert sampler.longest_gap_ms == pytest.approx(100.0)


def test_nobody_is_not_throttled_where_nvml_does_not_say() -> None:
    silent = [Reading(None, None, 1400, None, None, None)]
    assert summarize_readings(silent, None, throttled=False).throttled is None
    assert summarize_readings([*silent, Reading(None, None, 1400, None, None)], None, False).throttled is False


def test_readings_become_peaks_and_medians() -> None:
    readings = [
        Reading(1000, 100.0, 1400, None, 50),
        Reading(5000, 300.0, 1200, None, 70, ("sw_power_cap",)),
        Reading(None, 200.0, 1300, None, 60),
    ]
    clean = summarize_readings(readings, baseline_bytes=800, throttled=False)
    assert clean.mem_peak_bytes == 4200 and clean.power_w == 200.0 and clean.sm_clock_mhz == 1300
    assert clean.mem_clock_mhz is None and clean.temperature_c == 70 and clean.sm_clock_min_mhz == 1200
    assert clean.throttle_reasons == ""  # the samples taken while throttled were dropped
    assert summarize_readings(readings, 800, throttled=True).throttle_reasons == "sw_power_cap"
    assert summarize_readings(readings, None, throttled=False).mem_peak_bytes is None
    assert summarize_readings([], 800, throttled=False).power_w is None


def test_the_sampler_reads_before_and_after_and_knows_the_latest() -> None:
    readings = iter([Reading(1, None, None, None, None, ("hw_slowdown",)), Reading(2, None, None, None, None)])
    with Sampler(lambda: next(readings), interval_s=60.0) as sampler:
        assert sampler.throttled()
    assert [r.mem_used_bytes for r in sampler.readings] == [1, 2]
    assert not sampler.throttled()
