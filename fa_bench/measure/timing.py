"""Taking times, on the host clock or between two events of a GPU stream.

The order of what happens around a launch is decided here and tested with fakes; a backend supplies the launch,
the flush and the events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
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

    ``throttled`` says that the clocks were held down during all of them; otherwise samples taken while they
    were are left out (``dropped`` of them).
    """

    times_ms: tuple[float, ...]
    noisy: bool
    throttled: bool = False
    dropped: int = 0


def time_on_host(call: Callable[[], object], rule: StoppingRule, clock: Clock = time.perf_counter) -> Timings:
    """Time ``call`` with the host clock until ``rule`` is content. ``call`` must return when its work is done.

    Warming up is the caller's business: the first call of a process pays for thread pools and page faults.
    """
    times: list[float] = []
    rule.start()
    began = clock()
    while not rule.finished():
        start = clock()
        call()
        end = clock()
        times.append((end - start) * 1e3)
        rule.add(times[-1], (end - began) * 1e3)
    return Timings(tuple(times), rule.noisy)


def time_on_gpu(
    launch: Callable[[], None],
    timer: EventTimer,
    rule: StoppingRule,
    *,
    flush: Callable[[], None] | None = None,
    throttled: Callable[[], bool] = lambda: False,
    clock: Clock = time.perf_counter,
) -> Timings:
    """Time ``launch`` between two events until ``rule`` is content: [flush -> event -> launch -> event] × n.

    Everything is enqueued on one stream. The flush comes before the first event, so it is never timed, and it
    keeps the GPU busy while the host enqueues the launch, so the gap between launches isn't timed either.

    Parameters
    ----------
    launch : callable
        Enqueues the case's kernels.
    timer : EventTimer
    rule : StoppingRule
    flush : callable, optional
        Enqueues a write that evicts the L2 cache; left out for a warm cache.
    throttled : callable
        Whether the clocks are held down now.
    clock : callable
        Host seconds, for the rule's time limit only.

    Returns
    -------
    Timings
        Without the samples taken while throttled, unless that is all of them: then they stay and the result
        says so.
    """
    clean: list[float] = []
    held_down: list[float] = []
    rule.start()
    began = clock()
    while not rule.finished():
        if flush is not None:
            flush()
        timer.start()
        launch()
        sample = timer.stop()
        (held_down if throttled() else clean).append(sample)
        rule.add(sample, (clock() - began) * 1e3)
    if clean:
        return Timings(tuple(clean), rule.noisy, dropped=len(held_down))
    return Timings(tuple(held_down), rule.noisy, throttled=True)


def launch_bound(median_ms: float, floor_ms: float) -> bool:
    """Whether a time says more about launching than about the kernel: below three empty kernels."""
    return median_ms < LAUNCH_BOUND_FACTOR * floor_ms
