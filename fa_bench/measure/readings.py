"""Looks at a GPU in the background while a case runs, and what they say of the case.

Where they come from is not known here.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the GPU; None where NVML does not say. ``power_w`` is of the last ``power_mean_s`` seconds."""

    mem_used_bytes: int | None
    power_w: float | None
    sm_clock_mhz: float | None
    mem_clock_mhz: float | None
    temperature_c: float | None
    throttle: tuple[str, ...] | None = ()
    power_mean_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """What the readings of one case say: peaks of memory and temperature, medians and the least SM clock.

    ``throttled`` is None where NVML does not say what holds the clocks down.
    """

    mem_peak_bytes: int | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_min_mhz: float | None = None
    mem_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: str = ""
    throttled: bool | None = None


def summarize_readings(readings: Sequence[Reading], baseline_bytes: int | None, throttled: bool) -> DeviceSummary:
    """Condense the readings of one case.

    Parameters
    ----------
    readings : sequence of Reading
    baseline_bytes : int or None
        Memory in use before the case: it holds the context and what the driver reserves, so only the difference
        belongs to the case.
    throttled : bool
        Whether most of the times were taken while throttled; only then are the reasons named.
    """

    def values(name: str) -> list[float]:
        return [value for reading in readings if (value := getattr(reading, name)) is not None]

    def median(name: str) -> float | None:
        return statistics.median(found) if (found := values(name)) else None

    used = values("mem_used_bytes")
    watched = [reading.throttle for reading in readings if reading.throttle is not None]
    reasons = sorted({reason for held_down in watched for reason in held_down}) if throttled else []
    return DeviceSummary(
        mem_peak_bytes=max(0, int(max(used)) - baseline_bytes) if used and baseline_bytes is not None else None,
        power_w=median("power_w"),
        sm_clock_mhz=median("sm_clock_mhz"),
        sm_clock_min_mhz=min(values("sm_clock_mhz"), default=None),
        mem_clock_mhz=median("mem_clock_mhz"),
        temperature_c=max(values("temperature_c"), default=None),
        throttle_reasons=";".join(reasons),
        throttled=throttled if watched else None,
    )


class Sampler:
    """Reads a device in the background while a case runs. Power that is partly of the time before is left out.

    Parameters
    ----------
    read : callable
        Returns a `Reading`.
    interval_s : float
        Pause between readings. A peak shorter than this can be missed; the allocator's figure cannot miss one.
    clock : callable
        Host seconds, for `longest_gap_ms`.
    """

    def __init__(
        self, read: Callable[[], Reading], interval_s: float = 0.02, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._read = read
        self._interval_s = interval_s
        self._clock = clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._times: list[float] = []
        self.readings: list[Reading] = []

    def sample(self) -> None:
        """Read once, now."""
        reading = self._read()
        self._times.append(self._clock())
        if self._times[-1] - self._times[0] < reading.power_mean_s:  # a mean of what came before, too
            reading = replace(reading, power_w=None)
        self.readings.append(reading)

    def throttled(self) -> bool:
        """Whether the latest reading names a reason for held-down clocks."""
        return bool(self.readings and self.readings[-1].throttle)

    @property
    def longest_gap_ms(self) -> float | None:
        """Longest time between two readings: no peak of memory that lasted longer was missed. None before two."""
        gaps = [later - earlier for earlier, later in zip(self._times, self._times[1:], strict=False)]
        return max(gaps) * 1e3 if gaps else None

    def __enter__(self) -> Sampler:
        self.sample()
        self._thread = threading.Thread(target=self._loop, name="nvml-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.sample()

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()
