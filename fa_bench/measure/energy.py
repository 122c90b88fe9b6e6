"""Energy of one launch, from a counter of the board's energy that moves in steps.

The counter (NVML's total energy consumption, in mJ) advances every 20 to 100 ms, depending on the GPU, so that two
readings around one launch say nothing. Here launches run back to back for at least a second, from one step of the
counter to another: at a step the counter is up to date, so that its period does not enter the result. The host reads
while the next launches are already queued, so that the GPU does not idle meanwhile.

What it is: all energy of the board between two steps over the launches between them, idle power and memory
included. Nothing is flushed in between, so that it is the energy of launches that find a warm L2 cache.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Host seconds.
Clock = Callable[[], float]

#: Between the two steps of the counter lies at least this.
MIN_BATCH_MS: Final = 1000.0
#: The whole measurement ends after this, with a result or a reason.
MAX_ELAPSED_MS: Final = 6000.0
#: Launches between two readings take about this: well below the counter's period, well above a reading's own time.
_CHUNK_MS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy per launch in mJ over so many launches, or why it is not known, in a few words."""

    mj_per_launch: float | None = None
    launches: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """A reading that differs from the one before: when it was seen, and how many launches were done by then."""

    energy_mj: int
    seconds: float
    launches: int


def energy_per_launch(
    read_mj: Callable[[], int | None],
    launch: Callable[[], None],
    synchronize: Callable[[], None],
    *,
    launch_ms: float,
    min_batch_ms: float = MIN_BATCH_MS,
    max_elapsed_ms: float = MAX_ELAPSED_MS,
    clock: Clock = time.perf_counter,
) -> Energy:
    """Launch back to back between two steps of the energy counter.

    Parameters
    ----------
    read_mj : callable
        The counter, in mJ; None where there is none.
    launch : callable
        Enqueues the case's kernels once.
    synchronize : callable
        Returns when all that was enqueued is done.
    launch_ms : float
        About how long one launch takes, above 0: decides how many stand between two readings.
    min_batch_ms, max_elapsed_ms : float
        Least time between the two steps, and the most that all of it may take.
    clock : callable
        Host seconds.

    Returns
    -------
    Energy
        Without a figure where the counter is not there, does not move, or the cap comes first.
    """
    latest = read_mj()
    if latest is None:
        return Energy(reason="the board has no energy counter that can be read")
    # One launch that waits for a step, and the batch itself.
    if 2 * launch_ms + min_batch_ms > max_elapsed_ms:
        return Energy(reason=f"one launch takes too long for a measurement of {max_elapsed_ms / 1e3:g} s")
    chunk = max(1, math.ceil(_CHUNK_MS / launch_ms))
    began, first, done = clock(), None, 0
    while (clock() - began) * 1e3 < max_elapsed_ms:
        for _ in range(chunk):
            launch()
        now, reading = clock(), read_mj()
        if reading is None:
            synchronize()
            return Energy(reason="the energy counter stopped answering")
        if reading != latest:
            latest = reading
            step = _Step(reading, now, done)
            if first is None:
                first = step
            elif (step.seconds - first.seconds) * 1e3 >= min_batch_ms:
                synchronize()
                return _between(first, step)
        elif first is None and (now - began) * 1e3 >= min_batch_ms:
            synchronize()
            return Energy(reason=f"the energy counter did not move in {min_batch_ms / 1e3:g} s")
        synchronize()
        done += chunk
    return Energy(reason=f"the energy counter moved too rarely in {max_elapsed_ms / 1e3:g} s")


def _between(first: _Step, last: _Step) -> Energy:
    launches = last.launches - first.launches
    energy_mj = last.energy_mj - first.energy_mj
    if launches < 1 or energy_mj <= 0:  # a driver that was loaded anew starts from zero
        return Energy(reason="the energy counter ran backwards")
    return Energy(energy_mj / launches, launches)
