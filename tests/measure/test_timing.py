"""Order of events around a launch, throttled samples, the launch floor. Fakes only: no clock, no GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Timings, launch_bound, time_on_gpu, time_on_host


class Log(list[str]):
    def saying(self, word: str) -> Callable[[], None]:
        return lambda: self.append(word)


class FakeTimer:
    def __init__(self, log: Log, times: list[float]) -> None:
        self.log, self.times = log, iter(times)

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> float:
        self.log.append("stop")
        return next(self.times)


def seconds(step: float) -> Callable[[], float]:
    counter = itertools.count()
    return lambda: step * next(counter)


def limited(samples: int) -> StoppingRule:
    """Content after so many samples under a clock that ticks 1 s per look (one at the start, one per sample)."""
    return StoppingRule(max_elapsed_ms=samples * 1000.0, min_samples=10**6)


def test_host_times_are_differences_of_the_clock() -> None:
    calls = Log()
    # Looks: begin 0; sample 1 from 1 to 2, sample 2 from 3 to 4: 4 s have passed at the end of the second.
    timings = time_on_host(calls.saying("call"), StoppingRule(max_elapsed_ms=4000), seconds(1.0))
    assert timings == Timings((1000.0, 1000.0), noisy=True)
    assert calls == ["call", "call"]


def test_the_flush_is_outside_the_timed_interval() -> None:
    log = Log()
    timer = FakeTimer(log, [1.0, 2.0])
    timings = time_on_gpu(log.saying("launch"), timer, limited(2), flush=log.saying("flush"), clock=seconds(1.0))
    assert log == ["flush", "start", "launch", "stop"] * 2
    assert timings.times_ms == (1.0, 2.0)


def test_a_warm_cache_is_not_flushed() -> None:
    log = Log()
    time_on_gpu(log.saying("launch"), FakeTimer(log, [1.0]), limited(1), clock=seconds(1.0))
    assert log == ["start", "launch", "stop"]


def test_the_limit_counts_the_flush_too() -> None:
    # Samples of 1 ms whose flush makes the host clock advance by 1 s each: the limit of 3 s ends it after 3.
    log = Log()
    timings = time_on_gpu(log.saying("launch"), FakeTimer(log, [1.0] * 9), limited(3), clock=seconds(1.0))
    assert len(timings.times_ms) == 3 and timings.noisy


@pytest.mark.parametrize(
    ("throttled", "expected"),
    [
        ([False, True, False], Timings((1.0, 3.0), noisy=True, dropped=1)),
        ([False, False, False], Timings((1.0, 2.0, 3.0), noisy=True)),
        ([True, True, True], Timings((1.0, 2.0, 3.0), noisy=True, throttled=True)),
    ],
)
def test_throttled_samples_are_dropped_but_never_all(throttled: list[bool], expected: Timings) -> None:
    states = iter(throttled)
    timings = time_on_gpu(
        lambda: None,
        FakeTimer(Log(), [1.0, 2.0, 3.0]),
        limited(3),
        throttled=lambda: next(states),
        clock=seconds(1.0),
    )
    assert timings == expected


def test_launch_bound_below_three_floors() -> None:
    # An empty kernel takes 2 us: 5.9 us says more about launching, 6 us doesn't.
    assert launch_bound(0.0059, 0.002)
    assert not launch_bound(0.006, 0.002)
