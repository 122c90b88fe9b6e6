"""Cases that run together, on jobs that only say what happens: order, failures, shared inputs, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fa_bench.backends.base import Outcome, RunResult, Samples
from fa_bench.backends.turns import SharedInputs, alone_if_short_of_memory, in_turns, single
from fa_bench.cases import AttentionShape, Case
from fa_bench.errors import DeviceLost, OutOfMemory
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Timings

A, B, C = (Case(impl, AttentionShape(1, 1, 1, 8, 8, 16)) for impl in ("a", "b", "c"))


@dataclass
class Machine:
    """Logs the steps of its cases; ``faults`` are the steps that raise."""

    log: list[str]
    faults: dict[str, BaseException]

    def say(self, word: str) -> None:
        self.log.append(word)
        if word in self.faults:
            raise self.faults[word]

    def start(self, case: Case) -> Any:
        self.say(f"start {case.impl}")
        return Job(self, case.impl)

    def guard(self, case: Case, step: Callable[[], Any]) -> Any:
        return step()

    @contextmanager
    def watch(self) -> Iterator[Callable[[], bool]]:
        self.say("watch")
        yield lambda: False
        self.say("watched")

    def run(self, *cases: Case) -> list[Outcome]:
        ticks = itertools.count()
        rule = StoppingRule(max_elapsed_ms=2000.0, min_samples=10**6)  # two samples, by a clock of 1 s per look
        return in_turns(cases, self.start, self.guard, rule, watch=self.watch, clock=lambda: float(next(ticks)))


@dataclass
class Job:
    machine: Machine
    name: str

    def settle(self) -> None:
        self.machine.say(f"settle {self.name}")

    def sample(self) -> float:
        self.machine.say(self.name)
        return 1.0

    def finish(self, timings: Timings) -> RunResult:
        self.machine.say(f"finish {self.name}")
        return RunResult(samples=Samples(timings.times_ms, "host-clock"))


def test_all_start_then_take_turns_under_watch_then_finish() -> None:
    machine = Machine([], {})
    outcomes = machine.run(A, B)
    assert machine.log == [
        *("start a", "start b", "settle a", "settle b"),
        *("watch", "a", "b", "a", "b", "watched"),
        *("finish a", "finish b"),
    ]
    assert [single(outcome).samples for outcome in outcomes] == [Samples((1.0, 1.0), "host-clock")] * 2


@pytest.mark.parametrize("step", ["start b", "settle b", "b", "finish b"])
def test_a_failure_at_any_step_is_that_cases_outcome(step: str) -> None:
    error = ValueError("b is broken")
    first, failed, last = Machine([], {step: error}).run(A, B, C)
    assert failed is error
    assert isinstance(first, RunResult) and isinstance(last, RunResult)
    with pytest.raises(ValueError, match="b is broken"):
        single(failed)


def test_an_interrupt_is_nobodys_outcome() -> None:
    with pytest.raises(KeyboardInterrupt):
        Machine([], {"b": KeyboardInterrupt()}).run(A, B)


def test_inputs_are_shared_by_shape_type_and_seed_alone() -> None:
    inputs = SharedInputs()
    assert inputs(A) is inputs(replace(A, impl="b", layout="bshd"))
    for other in (replace(A, dtype="bf16"), replace(A, seed=1), replace(A, shape=replace(A.shape, seq_q=9))):
        assert inputs(other) is not inputs(A)


def test_only_what_ran_out_of_memory_beside_others_runs_again() -> None:
    attempts = []

    def attempt(cases: Sequence[Case]) -> list[Outcome]:
        attempts.append([case.impl for case in cases])
        failures = {"b": OutOfMemory("b is too large."), "c": DeviceLost("Gone.")}
        return [failures.get(case.impl, RunResult()) if len(cases) > 1 else RunResult() for case in cases]

    first, second, third = alone_if_short_of_memory([A, B, C], attempt)
    assert attempts == [["a", "b", "c"], ["b"]]
    assert isinstance(first, RunResult) and isinstance(second, RunResult) and isinstance(third, DeviceLost)


def test_what_ran_out_of_memory_alone_does_not_run_again() -> None:
    attempts = []

    def attempt(cases: Sequence[Case]) -> list[Outcome]:
        attempts.append(len(cases))
        return [OutOfMemory("It is too large.")]

    assert isinstance(alone_if_short_of_memory([A], attempt)[0], OutOfMemory)
    assert attempts == [1]
