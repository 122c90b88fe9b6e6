"""One sample, turns of several cases, throttled samples, the launch floor. Fakes only: no clock, no GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from statistics import median

import pytest

from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import (
    Contender,
    Timings,
    launch_bound,
    sample_on_gpu,
    sample_on_host,
    take_turns,
    time_on_gpu,
)


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
    """Content after so many samples under a clock that ticks 1 s per look: a sample is between two looks."""
    return StoppingRule(max_elapsed_ms=samples * 1000.0, min_samples=10**6)


def content_after(sampled_ms: float) -> StoppingRule:
    """Content once so much was sampled, however noisy."""
    return StoppingRule(max_noise=1e9, min_sampled_ms=sampled_ms, min_samples=1, max_elapsed_ms=1e12)


# --- one sample ------------------------------------------------------------------------------------------------------


def test_host_times_are_differences_of_the_clock() -> None:
    calls = Log()
    assert sample_on_host(calls.saying("call"), seconds(1.0)) == 1000.0
    assert calls == ["call"]


def test_the_flush_is_outside_the_timed_interval() -> None:
    log = Log()
    timer = FakeTimer(log, [1.0, 2.0])
    timings = time_on_gpu(log.saying("launch"), timer, limited(2), before=log.saying("flush"), clock=seconds(1.0))
    assert log == ["flush", "start", "launch", "stop"] * 2
    assert timings.times_ms == (1.0, 2.0)


def test_without_a_flush_nothing_stands_before() -> None:
    log = Log()
    assert sample_on_gpu(log.saying("launch"), FakeTimer(log, [1.0])) == 1.0
    assert log == ["start", "launch", "stop"]


def test_what_the_launch_raises_is_not_lost() -> None:
    def fail() -> None:
        raise ValueError("no such kernel")

    with pytest.raises(ValueError, match="no such kernel"):
        time_on_gpu(fail, FakeTimer(Log(), []), limited(1), clock=seconds(1.0))


# --- turns -----------------------------------------------------------------------------------------------------------


def contender(log: Log, name: str, times: Iterable[float], rule: StoppingRule) -> Contender:
    given = iter(times)

    def sample() -> float:
        log.append(name)
        return next(given)

    return Contender(sample, rule)


def test_cases_take_turns_until_each_ones_own_rule_is_content() -> None:
    log = Log()
    # A is content after 60 ms, six samples; B after 9 ms, nine samples. A leaves, B goes on alone.
    a = contender(log, "A", itertools.repeat(10.0), content_after(60.0))
    b = contender(log, "B", itertools.repeat(1.0), content_after(9.0))
    first, second = take_turns([a, b], clock=seconds(1.0))
    assert log == [*["A", "B"] * 6, *["B"] * 3]
    assert isinstance(first, Timings) and isinstance(second, Timings)
    assert (first.times_ms, second.times_ms) == ((10.0,) * 6, (1.0,) * 9)


def test_a_drift_of_the_machine_hits_all_that_take_turns() -> None:
    log = Log()
    # The machine slows down by 1 % per turn, whoever's it is; both cases are equally fast. One after the other, the
    # second would be 10 % slower; in turns they differ by one step.
    speed = (100.0 * 1.01**step for step in itertools.count())
    rules = [content_after(1000.0), content_after(1000.0)]
    first, second = take_turns([contender(log, "AB"[i], speed, rules[i]) for i in range(2)], clock=seconds(1.0))
    assert isinstance(first, Timings) and isinstance(second, Timings)
    assert abs(median(second.times_ms) / median(first.times_ms) - 1) < 0.011


def test_the_time_limit_counts_a_cases_own_turns_flush_and_all() -> None:
    log = Log()
    # Samples of 1 ms whose turn takes 1 s of the host's clock: the limit of 3 s ends each case after 3, not both.
    cases = [contender(log, name, itertools.repeat(1.0), limited(3)) for name in "AB"]
    taken = take_turns(cases, clock=seconds(1.0))
    assert log == ["A", "B"] * 3
    assert all(isinstance(timings, Timings) and timings.noisy for timings in taken)


def test_how_many_samples_are_enough_does_not_depend_on_the_flush() -> None:
    # 500 ms of 1 ms samples, whether a turn takes 1 ms of the host's clock or 9: only the limit counts what is between.
    for turn_s in (0.001, 0.009):
        quiet = contender(Log(), "A", itertools.repeat(1.0), StoppingRule())
        (timings,) = take_turns([quiet], clock=seconds(turn_s))
        assert isinstance(timings, Timings) and len(timings.times_ms) == 500
    # With 99 ms in between the limit of 5 s comes first, after 50.5 of them.
    (timings,) = take_turns([contender(Log(), "A", itertools.repeat(1.0), StoppingRule())], clock=seconds(0.099))
    assert isinstance(timings, Timings) and len(timings.times_ms) == 51


def test_a_case_that_fails_leaves_and_the_others_go_on() -> None:
    log = Log()

    def fail() -> float:
        log.append("A")
        raise ValueError("A is broken")

    good = contender(log, "B", itertools.repeat(1.0), content_after(6.0))
    failed, timings = take_turns([Contender(fail, content_after(1.0)), good], clock=seconds(1.0))
    assert isinstance(failed, ValueError) and isinstance(timings, Timings)
    assert log == ["A", *["B"] * 6]


# --- throttling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("throttled", "expected"),
    [
        ([False, True, False], Timings((1.0, 3.0), noisy=True, dropped=1)),
        ([False, False, False], Timings((1.0, 2.0, 3.0), noisy=True)),
        ([True, True, True], Timings((1.0, 2.0, 3.0), noisy=True, throttled=True)),
        ([False, True, True], Timings((1.0, 2.0, 3.0), noisy=True, throttled=True)),
    ],
)
def test_throttled_samples_are_dropped_but_never_all(throttled: list[bool], expected: Timings) -> None:
    states = iter(throttled)
    case = contender(Log(), "A", [1.0, 2.0, 3.0], limited(3))
    assert take_turns([case], throttled=lambda: next(states), clock=seconds(1.0)) == [expected]


def test_noise_is_that_of_the_times_that_are_kept() -> None:
    # Every other sample is taken while throttled, at half the speed. All together are noisy; those that stay are not.
    states = itertools.cycle([False, True])
    times = itertools.cycle([10.0, 20.0])
    rule = StoppingRule(max_elapsed_ms=40_000.0)
    (timings,) = take_turns([contender(Log(), "A", times, rule)], throttled=lambda: next(states), clock=seconds(1.0))
    assert timings == Timings((10.0,) * 20, noisy=False, dropped=20)


def test_a_burst_before_the_clocks_are_held_down_is_not_the_time() -> None:
    # 6 samples of 1.0 ms, then 1.4 ms under a power cap that stays. Half a second of what is reported: 6 + 353 samples.
    times = itertools.chain([1.0] * 6, itertools.repeat(1.4))
    states = itertools.chain([False] * 6, itertools.repeat(True))
    case = contender(Log(), "A", times, StoppingRule())
    (timings,) = take_turns([case], throttled=lambda: next(states), clock=seconds(0.001))
    assert isinstance(timings, Timings)
    assert timings.throttled and timings.dropped == 0
    assert len(timings.times_ms) == 359 and median(timings.times_ms) == 1.4


def test_time_and_number_of_samples_are_required_of_those_that_are_kept() -> None:
    # One sample in four is taken while the clocks are held down: 500 of the others have to come.
    states = itertools.cycle([False, False, False, True])
    case = contender(Log(), "A", itertools.repeat(1.0), StoppingRule())
    (timings,) = take_turns([case], throttled=lambda: next(states), clock=seconds(0.001))
    assert isinstance(timings, Timings)
    assert (len(timings.times_ms), timings.dropped) == (500, 166)


def test_a_time_below_three_empty_kernels_is_launch_bound() -> None:
    # An empty kernel takes 2 us: 5.9 us says more about launching, 6 us doesn't.
    assert launch_bound(0.0059, 0.002)
    assert not launch_bound(0.006, 0.002)
