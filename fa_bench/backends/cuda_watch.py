"""What NVML witnesses of a case on the GPU: the columns of memory, clocks, power and energy, or why they are empty.

Per case: `starting` around all that allocates -> `sampling` around the timed launches, of all cases that take turns ->
`measure_energy` after them -> `columns`. Knows NVML and the columns of `RunResult`; nothing of what is launched and how
it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from fa_bench.measure.energy import Clock, Energy, energy_per_launch
from fa_bench.measure.nvml import Nvml, NvmlDevice
from fa_bench.measure.readings import Sampler, summarize_readings

#: What `NvmlDevice.missing` calls a figure -> its column.
_COLUMNS: Final[Mapping[str, str]] = {
    "memory": "nvml_mem_peak_bytes",
    "power": "power_w",
    "energy": "energy_mj",
    "SM clock": "sm_clock_mhz",
    "memory clock": "mem_clock_mhz",
    "temperature": "temperature_c",
    "throttling": "throttled",
}


@dataclass(slots=True)
class Rise:
    """How far the memory in use rose while a case allocated its own, and the longest time between two looks at it.

    None where NVML does not say.
    """

    peak_bytes: int | None = None
    interval_ms: float | None = None


class Watch:
    """One device under observation, or the sentence on why it is not.

    Parameters
    ----------
    nvml : Nvml
    uuid, pci_bus_id : str or None
        What CUDA calls the device.
    """

    def __init__(self, nvml: Nvml, uuid: str | None, pci_bus_id: str | None) -> None:
        self._nvml = nvml
        self._device: NvmlDevice | None = nvml.device(uuid, pci_bus_id)
        self._sampler: Sampler | None = None

    @contextmanager
    def starting(self) -> Iterator[Rise]:
        """Look at the memory in use while a case allocates, up to its last warm-up; the result is filled at the end.

        What was in use just before is no part of it: context, driver, other processes, and the cases that it will take
        turns with, whose memory does not change meanwhile.
        """
        rise = Rise()
        if self._device is None:
            yield rise
            return
        before = self._device.read().mem_used_bytes
        with Sampler(self._device.read) as sampler:
            yield rise
        rise.peak_bytes = summarize_readings(sampler.readings, before, throttled=False).mem_peak_bytes
        rise.interval_ms = sampler.longest_gap_ms

    @contextmanager
    def sampling(self) -> Iterator[Callable[[], bool]]:
        """Read in the background; yields what says whether the clocks are held down now."""
        if self._device is None:
            yield lambda: False
            return
        with Sampler(self._device.read) as self._sampler:
            yield self._sampler.throttled

    def measure_energy(
        self, launch: Callable[[], None], synchronize: Callable[[], None], launch_ms: float, clock: Clock
    ) -> Energy:
        """Energy per launch over a batch of its own, see `fa_bench.measure.energy`."""
        if self._device is None:
            return Energy()
        if self._device.energy_mj() is None:
            return Energy()  # the device keeps the reason
        return energy_per_launch(self._device.energy_mj, launch, synchronize, launch_ms=launch_ms, clock=clock)

    def columns(self, *, throttled: bool, energy: Energy, rise: Rise | None = None) -> dict[str, Any]:
        """The fields of `RunResult` that NVML fills.

        Parameters
        ----------
        throttled : bool
            Whether the times that are reported were taken while the clocks were held down.
        energy : Energy
        rise : Rise, optional
            Of the case's memory.
        """
        if self._device is None:
            absent = self._nvml.unavailable() or "NVML has no device with this UUID or PCI bus id."
            return {"device_reason": f"NVML: {absent}"}
        sampler = self._sampler
        readings = [] if sampler is None else sampler.readings
        summary = summarize_readings(readings, None, throttled)
        missing = dict(self._device.missing())
        if any(reading.power_mean_s for reading in readings):
            missing.setdefault("power", "given as a mean over longer than the sampling took")
        if energy.reason:
            missing["energy"] = energy.reason
        columns: dict[str, Any] = {
            "power_w": summary.power_w,
            "energy_mj": energy.mj_per_launch,
            "energy_launches": energy.launches,
            "sm_clock_mhz": summary.sm_clock_mhz,
            "sm_clock_min_mhz": summary.sm_clock_min_mhz,
            "mem_clock_mhz": summary.mem_clock_mhz,
            "temperature_c": summary.temperature_c,
            "throttle_reasons": summary.throttle_reasons,
            "throttled": summary.throttled,
        }
        if rise is not None and rise.peak_bytes is not None:
            columns |= {
                "nvml_mem_peak_bytes": rise.peak_bytes,
                "nvml_mem_source": self._device.memory_source,
                "nvml_interval_ms": rise.interval_ms,
            }
        # A call may fail once and answer later: only what this case lacks is explained.
        lacking = {figure: why for figure, why in missing.items() if columns.get(_COLUMNS[figure]) is None}
        return columns | {"device_reason": "; ".join(f"{figure}: {why}" for figure, why in lacking.items())}
