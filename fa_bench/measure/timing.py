"""Taking times, on the host clock or between two events of a GPU stream; several cases in turns.

The order of what happens around a launch and the order of cases are decided here and tested with fakes. A backend
supplies the launch, what brings the cache into its state, and the events; nothing here knows CUDA, attention or files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from fa_bench.measure.stopping import StoppingRule

#: A time below this many empty-kernel times is dominated by the launch itself.
LAUNCH_BOUND_FACTOR: Final = 3.0

Clock = Callable[[], float]


class EventTimer(Protocol):
    """A pair of events on the launch stream."""

    def start(self) -> None:
        """Record the first event."""
        ...

    def stop(self) -> float:
        """Record the second event, wait for it, and return the time between the two in ms."""
        ...


@dataclass(frozen=True, slots=True)
class Timings:
    """Times in ms, in the order they were taken.

    ``throttled`` says that the clocks were held down during most of what was sampled, all of which is then here;
    otherwise samples taken while they were are left out (``dropped`` of them). ``noisy`` is about the times that are
    here.
    """

    times_ms: tuple[float, ...]
    noisy: bool
    throttled: bool = False
    dropped: int = 0


@dataclass(slots=True)
class Contender:
    """One of several cases that are timed in turns.

    Parameters
    ----------
    sample : callable
        Takes one sample, in ms. What it raises is this contender's end, not that of the others.
    rule : StoppingRule
        Says when the times that are kept are enough.
    """

    sample: Callable[[], float]
    rule: StoppingRule
    _all: StoppingRule = field(init=False)
    _clean: StoppingRule = field(init=False)
    _elapsed_ms: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._all, self._clean = self.rule.fresh(), self.rule.fresh()

    def take(self, throttled: Callable[[], bool], clock: Clock) -> None:
        """Take one turn. Its wall-clock time counts towards the time limit of this contender alone."""
        began = clock()
        time_ms = self.sample()
        self._elapsed_ms += (clock() - began) * 1e3
        self._all.add(time_ms)
        if not throttled():
            self._clean.add(time_ms)

    def _throttled(self) -> bool:
        """Whether the clocks are held down as a rule, and not now and then."""
        return 2 * len(self._clean.times_ms) < len(self._all.times_ms)

    def _kept(self) -> StoppingRule:
        """What will be reported. Of a GPU that is mostly throttled the few other samples are a burst at its start."""
        return self._all if self._throttled() else self._clean

    def finished(self) -> bool:
        """Whether what is kept is enough, or the time over."""
        return self._kept().finished(self._elapsed_ms)

    def timings(self) -> Timings:
        """What was sampled, without what was taken while throttled unless that is most of it."""
        times = tuple(self._kept().times_ms)
        dropped = len(self._all.times_ms) - len(times)
        return Timings(times, self.rule.is_noisy(times), throttled=self._throttled(), dropped=dropped)


def take_turns(
    contenders: Sequence[Contender],
    *,
    throttled: Callable[[], bool] = lambda: False,
    clock: Clock = time.perf_counter,
) -> list[Timings | Exception]:
    """Sample in turns, A B A B ..., until each contender's own rule is content.

    A drift of the machine (a GPU that warms up, a neighbour that starts) then hits all of them, instead of whichever
    came last. A contender whose rule is content leaves; one that raises leaves with its exception.

    Parameters
    ----------
    contenders : sequence of Contender
    throttled : callable
        Whether the clocks are held down now; asked after each sample.
    clock : callable
        Host seconds, for the rules' time limits only.

    Returns
    -------
    list of Timings or Exception
        One per contender, in their order.
    """
    failed: dict[int, Exception] = {}
    sampling = list(range(len(contenders)))
    while sampling:
        for index in sampling:
            try:
                contenders[index].take(throttled, clock)
            except Exception as error:
                failed[index] = error
        sampling = [i for i in sampling if i not in failed and not contenders[i].finished()]
    return [failed[i] if i in failed else contender.timings() for i, contender in enumerate(contenders)]


def time_alone(sample: Callable[[], float], rule: StoppingRule, *, clock: Clock = time.perf_counter) -> Timings:
    """Sample one thing until ``rule`` is content.

    Raises
    ------
    Exception
        What ``sample`` raised.
    """
    (timings,) = take_turns([Contender(sample, rule)], clock=clock)
    if isinstance(timings, Exception):
        raise timings
    return timings


def sample_on_host(call: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Milliseconds of ``call`` by the host clock. It must return when its work is done."""
    start = clock()
    call()
    return (clock() - start) * 1e3


def sample_on_gpu(launch: Callable[[], None], timer: EventTimer, *, before: Callable[[], None] | None = None) -> float:
    """Milliseconds of ``launch`` between two events: before -> event -> launch -> event.

    Everything is enqueued on one stream. What comes ``before`` (a flush of the L2 cache, or the launch itself where the
    cache is to be warm) is outside of the events, so it is never timed. It also has to keep the GPU busy while the host
    enqueues the launch, or the host's delay in front of the first kernel is timed.
    """
    if before is not None:
        before()
    timer.start()
    launch()
    return timer.stop()


def time_on_gpu(
    launch: Callable[[], None],
    timer: EventTimer,
    rule: StoppingRule,
    *,
    before: Callable[[], None] | None = None,
    clock: Clock = time.perf_counter,
) -> Timings:
    """Time one ``launch`` alone until ``rule`` is content: [before -> event -> launch -> event] × n.

    Raises
    ------
    Exception
        What ``launch`` or the timer raised.
    """
    return time_alone(lambda: sample_on_gpu(launch, timer, before=before), rule, clock=clock)


def launch_bound(median_ms: float, floor_ms: float) -> bool:
    """Whether a time says more about launching than about the kernels: below three times that of empty ones."""
    return median_ms < LAUNCH_BOUND_FACTOR * floor_ms
