"""Running cases of one shape together: inputs made once, launches timed in turns, each output verified.

Shared by the backends that measure time. A backend says how a case starts (on the device, warmed up), what one sample
of it is and how it ends (its last launch, verified); the order of these and what a failure means for the others is
decided here.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from fa_bench import reference
from fa_bench.backends.base import Outcome, RunResult
from fa_bench.cases import Case
from fa_bench.errors import OutOfMemory
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Clock, Contender, Timings, take_turns

T = TypeVar("T")
Inputs = Mapping[str, NDArray[Any]]


class SharedInputs:
    """Inputs of cases that run together, made once for all that have the same: shape, type, features, pass and seed."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Inputs] = {}

    def __call__(self, case: Case) -> Inputs:
        """The inputs of ``case``, in logical order. Not to be written to."""
        key = case.shape, case.dtype, case.seed, case.backward, case.features
        if key not in self._made:
            self._made[key] = reference.make_inputs(case)
        return self._made[key]


class Job(Protocol):
    """A case that was started: its inputs are in place, it is compiled and warm."""

    def settle(self) -> None:
        """Make good, when all have started, what the start of others took from it."""
        ...

    def sample(self) -> float:
        """Take one sample, in ms."""
        ...

    def finish(self, timings: Timings) -> RunResult:
        """Run once more, verify what that wrote, and say all that is known."""
        ...


class Guard(Protocol):
    """Does one step of a case. What goes wrong is the case's, raised as one of our errors where it is known."""

    def __call__(self, case: Case, step: Callable[[], T], /) -> T: ...


@contextmanager
def unwatched() -> Iterator[Callable[[], bool]]:
    """Where nobody watches the clocks, nobody knows of any that are held down."""
    yield lambda: False


def in_turns(
    cases: Sequence[Case],
    start: Callable[[Case], Job],
    guard: Guard,
    rule: StoppingRule,
    *,
    watch: Callable[[], AbstractContextManager[Callable[[], bool]]] = unwatched,
    clock: Clock = time.perf_counter,
) -> list[Outcome]:
    """Start all cases, settle them, sample in turns (A B A B ...), finish each. One outcome per case, in their order.

    Parameters
    ----------
    cases : sequence of Case
    start : callable
        Brings a case to where it can be sampled, warmed up: once per case, since what is warm for one shape and one
        kernel is cold for the next.
    guard : Guard
        Around each step of each case; a case that it raises for is out, and its exception is its outcome.
    rule : StoppingRule
        Each case gets a fresh one.
    watch : callable
        Opened around the sampling; says whether the clocks are held down now.
    clock : callable
        Host seconds.
    """
    outcomes: dict[int, Outcome] = {}
    jobs: dict[int, Job] = {}
    for index, case in enumerate(cases):
        try:
            jobs[index] = guard(case, partial(start, case))
        except Exception as error:
            outcomes[index] = error
    for index, job in list(jobs.items()):
        try:
            guard(cases[index], job.settle)
        except Exception as error:
            outcomes[index] = error
            del jobs[index]
    contenders = [Contender(partial(guard, cases[index], job.sample), rule.fresh()) for index, job in jobs.items()]
    with watch() as throttled:
        taken = take_turns(contenders, throttled=throttled, clock=clock)
    for (index, job), timings in zip(jobs.items(), taken, strict=True):
        if isinstance(timings, Exception):
            outcomes[index] = timings
            continue
        try:
            outcomes[index] = guard(cases[index], partial(job.finish, timings))
        except Exception as error:
            outcomes[index] = error
    return [outcomes[index] for index in range(len(cases))]


def alone_if_short_of_memory(
    cases: Sequence[Case], attempt: Callable[[Sequence[Case]], Sequence[Outcome]]
) -> list[Outcome]:
    """Outcomes of ``attempt`` on all cases; those that ran out of memory beside others run once more, alone.

    Cases in turns are in memory at the same time, and a case that fits alone must not fail for its neighbours. Its
    times are then not interleaved with theirs.

    Parameters
    ----------
    cases : sequence of Case
    attempt : callable
        Runs cases together and frees what they held; one outcome per case.
    """
    outcomes = list(attempt(cases))
    if len(cases) > 1:
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, OutOfMemory):
                (outcomes[index],) = attempt([cases[index]])
    return outcomes


def forget_frames(outcomes: Sequence[Outcome]) -> None:
    """Let go of what the frames of failed cases hold: the arrays of all cases that ran with them.

    A traceback keeps its frames, and they keep those that called them, each with its local variables. Frames that have
    ended are cleared here; where an error came from stays readable.
    """
    for outcome in outcomes:
        error: BaseException | None = outcome if isinstance(outcome, Exception) else None
        while error is not None:
            for inner, _ in traceback.walk_tb(error.__traceback__):
                frame: FrameType | None = inner
                while frame is not None and _cleared(frame):
                    frame = frame.f_back
            error = error.__cause__ or error.__context__


def _cleared(frame: FrameType) -> bool:
    try:
        frame.clear()
    except RuntimeError:  # it is still executing
        return False
    return True


def single(outcome: Outcome) -> RunResult:
    """The result of a case that ran alone.

    Raises
    ------
    Exception
        The outcome, where it is one.
    """
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
