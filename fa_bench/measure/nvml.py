"""NVML without surprises: opened lazily, each call caught, failures as sentences.

NVML is a second witness of memory and the only one of clocks, power, temperature and throttling. Any single call
may be "Not Supported" (MIG, WSL, Jetson, GB10): then that figure is None and everything else goes on.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

#: Why NVML cannot be used, by the error's class name.
REASONS: Final[Mapping[str, str]] = {
    "NVMLError_LibraryNotFound": "The NVIDIA driver's library (libnvidia-ml) is not on this machine.",
    "NVMLError_DriverNotLoaded": "The NVIDIA driver is installed but not loaded.",
    "NVMLError_LibRmVersionMismatch": "The NVIDIA driver and its library have different versions; a reboot helps.",
    "NVMLError_FunctionNotFound": "The NVIDIA driver is too old for this NVML binding.",
    "NVMLError_NoPermission": "This user may not talk to the NVIDIA driver.",
    "NVMLError_GpuIsLost": "The GPU has fallen off the bus; a reboot helps.",
}

#: Bits of nvmlDeviceGetCurrentClocksEventReasons that mean "slower than asked" (nvml.h). Idling and clocks
#: that the user set are not among them.
THROTTLE_BITS: Final[Mapping[int, str]] = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the GPU; None where NVML does not say."""

    mem_used_bytes: int | None
    power_w: float | None
    sm_clock_mhz: float | None
    mem_clock_mhz: float | None
    temperature_c: float | None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """What the readings of one case say: peaks of memory and temperature, medians of the rest."""

    mem_peak_bytes: int | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: str = ""


class Nvml:
    """NVML, opened at the first call.

    Parameters
    ----------
    module : module, optional
        Stands in for `pynvml` (of the package nvidia-ml-py) in tests.
    """

    def __init__(self, module: ModuleType | Any | None = None) -> None:
        self._module = module
        self._reason: str | None = None
        self._opened = False

    def unavailable(self) -> str | None:
        """Why NVML cannot be used, as one sentence; None if it can."""
        if not self._opened and self._reason is None:
            self._reason = self._open()
            self._opened = self._reason is None
        return self._reason

    def _open(self) -> str | None:
        if self._module is None:
            try:
                import pynvml
            except ImportError:
                return "The package nvidia-ml-py is not installed."
            self._module = pynvml
        try:
            self._module.nvmlInit()
        except self._module.NVMLError as error:
            return REASONS.get(type(error).__name__, f"NVML does not start: {error}.")
        return None

    def ask(self, function: str, *args: Any) -> Any:
        """The result of one NVML function, or None where it isn't supported, known or permitted."""
        if self.unavailable() is not None or self._module is None:
            return None
        call = getattr(self._module, function, None)
        if call is None:
            return None
        try:
            return call(*args)
        except self._module.NVMLError:
            return None

    def driver_version(self) -> str | None:
        """The driver's version, e.g. ``570.124.06``."""
        version = self.ask("nvmlSystemGetDriverVersion")
        return version.decode() if isinstance(version, bytes) else version

    def device(self, uuid: str | None, pci_bus_id: str | None) -> NvmlDevice | None:
        """The device with this UUID or, failing that, at this PCI bus id.

        Never by index: NVML numbers all cards of the machine, CUDA those that CUDA_VISIBLE_DEVICES leaves.
        """
        handle = None
        if uuid:
            handle = self.ask("nvmlDeviceGetHandleByUUID", uuid)
        if handle is None and pci_bus_id:
            handle = self.ask("nvmlDeviceGetHandleByPciBusId", pci_bus_id)
        return None if handle is None else NvmlDevice(self, handle)

    def constant(self, name: str) -> Any:
        """A constant of the binding."""
        return getattr(self._module, name)

    def close(self) -> None:
        """Shut NVML down if it was opened."""
        if self._opened:
            self.ask("nvmlShutdown")
            self._opened = False


class NvmlDevice:
    """One GPU as NVML sees it."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def read(self) -> Reading:
        """Look once; a call that fails leaves its figure None."""
        ask, handle, constant = self._nvml.ask, self._handle, self._nvml.constant
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        power_mw = ask("nvmlDeviceGetPowerUsage", handle)
        bits = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # the name before driver 535
            bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return Reading(
            mem_used_bytes=None if memory is None else int(memory.used),
            power_w=None if power_mw is None else power_mw / 1e3,
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, constant("NVML_CLOCK_SM")),
            mem_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, constant("NVML_CLOCK_MEM")),
            temperature_c=ask("nvmlDeviceGetTemperature", handle, constant("NVML_TEMPERATURE_GPU")),
            throttle=tuple(name for bit, name in THROTTLE_BITS.items() if (bits or 0) & bit),
        )

    def energy_mj(self) -> int | None:
        """Energy since the driver was loaded, in mJ (Volta and later)."""
        energy = self._nvml.ask("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        return None if energy is None else int(energy)


def summarize_readings(readings: Sequence[Reading], baseline_bytes: int | None, throttled: bool) -> DeviceSummary:
    """Condense the readings of one case.

    Parameters
    ----------
    readings : sequence of Reading
    baseline_bytes : int or None
        Memory in use before the case: it holds the context and what the driver reserves, so only the difference
        belongs to the case.
    throttled : bool
        Whether the reported times were taken while throttled; only then are the reasons named.
    """

    def values(name: str) -> list[float]:
        return [value for reading in readings if (value := getattr(reading, name)) is not None]

    def median(name: str) -> float | None:
        return statistics.median(found) if (found := values(name)) else None

    used, temperatures = values("mem_used_bytes"), values("temperature_c")
    reasons = sorted({reason for reading in readings for reason in reading.throttle}) if throttled else []
    return DeviceSummary(
        mem_peak_bytes=max(0, int(max(used)) - baseline_bytes) if used and baseline_bytes is not None else None,
        power_w=median("power_w"),
        sm_clock_mhz=median("sm_clock_mhz"),
        mem_clock_mhz=median("mem_clock_mhz"),
        temperature_c=max(temperatures, default=None),
        throttle_reasons=";".join(reasons),
    )


class Sampler:
    """Reads a device in the background while a case runs.

    Parameters
    ----------
    read : callable
        Returns a `Reading`.
    interval_s : float
        Pause between readings. A peak shorter than this can be missed; the allocator's figure cannot miss one.
    """

    def __init__(self, read: Callable[[], Reading], interval_s: float = 0.02) -> None:
        self._read = read
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.readings: list[Reading] = []

    def sample(self) -> None:
        """Read once, now."""
        self.readings.append(self._read())

    def throttled(self) -> bool:
        """Whether the latest reading names a reason for held-down clocks."""
        return bool(self.readings and self.readings[-1].throttle)

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
