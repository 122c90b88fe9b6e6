"""NVML without surprises: opened lazily, each call caught, failures as sentences.

NVML is a second witness of memory and the only one of clocks, power, energy, temperature and throttling. Any single
call may be "Not Supported" (MIG, WSL, Jetson, GB10): then that figure is None, the device keeps the reason, and
everything else goes on. What a figure is for is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from fa_bench.measure.readings import Reading

#: Why NVML cannot be used, by the error's class name.
REASONS: Final[Mapping[str, str]] = {
    "NVMLError_LibraryNotFound": "The NVIDIA driver's library (libnvidia-ml) is not on this machine.",
    "NVMLError_DriverNotLoaded": "The NVIDIA driver is installed but not loaded.",
    "NVMLError_LibRmVersionMismatch": "The NVIDIA driver and its library have different versions; a reboot helps.",
    "NVMLError_FunctionNotFound": "The NVIDIA driver is too old for this NVML binding.",
    "NVMLError_NoPermission": "This user may not talk to the NVIDIA driver.",
    "NVMLError_GpuIsLost": "The GPU has fallen off the bus; a reboot helps.",
}
#: Those of them that an ordinary machine without an NVIDIA GPU gives.
_ORDINARY: Final = frozenset({"NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded"})

#: Why one call says nothing, by the error's class name.
_SILENCE: Final[Mapping[str, str]] = {
    "NVMLError_NotSupported": "not supported",
    "NVMLError_NoPermission": "not permitted",
    "NVMLError_FunctionNotFound": "not known to this driver",
    "NVMLError_GpuIsLost": "the GPU is lost",
    "NVMLError_NotFound": "not found",
    "NVMLLibraryMismatchError": "not known to this driver",
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

#: Where the memory in use may come from, best first. The older structure counts what the driver reserves for itself
#: as used; the newer one does not. Where the device has no memory of its own to speak of, a process may still have.
_MEMORY_V2: Final = "nvmlDeviceGetMemoryInfo_v2"
_MEMORY_V1: Final = "nvmlDeviceGetMemoryInfo"
_MEMORY_OF_PROCESS: Final = "nvmlDeviceGetComputeRunningProcesses"
MEMORY_SOURCES: Final = (_MEMORY_V2, _MEMORY_V1, _MEMORY_OF_PROCESS)
#: NVML_VALUE_NOT_AVAILABLE: what drivers on Windows answer for a process's memory.
_NOT_AVAILABLE: Final = 2**64 - 1
#: NVML_FI_DEV_POWER_INSTANT. nvmlDeviceGetPowerUsage is the mean of a second from Ampere on, but for GA100 (nvml.h).
_POWER_INSTANT: Final = 186
_USAGE_OF_NOW: Final = (8, 0)  #: GA100's compute capability, Ampere's first

_OF_ALL_INSTANCES: Final = "NVML has only that of all MIG instances together"


class Silent(Exception):
    """One call of NVML that says nothing; the text is the reason, a few words.

    Parameters
    ----------
    reason : str
    lost : bool
        Whether the GPU is gone, so that no other call will say anything either.
    """

    def __init__(self, reason: str, *, lost: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lost = lost


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
        self._ordinary = False

    def unavailable(self) -> str | None:
        """Why NVML cannot be used, as one sentence; None if it can."""
        if not self._opened and self._reason is None:
            self._reason = self._open()
            self._opened = self._reason is None
        return self._reason

    def broken(self) -> bool:
        """Whether a driver is here and NVML cannot be used all the same: what a reboot or an update mends."""
        return self.unavailable() is not None and not self._ordinary

    def _open(self) -> str | None:
        if self._module is None:
            try:
                import pynvml
            except ImportError:
                self._ordinary = True
                return "The package nvidia-ml-py is not installed."
            self._module = pynvml
        try:
            self._module.nvmlInit()
        except Exception as error:
            name = type(error).__name__
            self._ordinary = name in _ORDINARY
            return REASONS.get(name, f"NVML does not start: {error}.")
        return None

    def answer(self, function: str, *args: Any) -> Any:
        """The result of one NVML function.

        Raises
        ------
        Silent
            Where it isn't supported, known or permitted.
        """
        reason = self.unavailable()
        if reason is not None or self._module is None:
            raise Silent(reason or "")
        call = getattr(self._module, function, None)
        if call is None:
            raise Silent("not known to this NVML binding")
        try:
            return call(*args)
        except Exception as error:  # not all are an NVMLError: NVMLLibraryMismatchError, of old drivers, is none
            name = type(error).__name__
            raise Silent(_SILENCE.get(name) or str(error) or name, lost=name == "NVMLError_GpuIsLost") from error

    def ask(self, function: str, *args: Any) -> Any:
        """The result of one NVML function, or None where there is none."""
        try:
            return self.answer(function, *args)
        except Silent:
            return None

    def driver_version(self) -> str | None:
        """The driver's version, e.g. ``570.124.06``."""
        version = self.ask("nvmlSystemGetDriverVersion")
        return version.decode() if isinstance(version, bytes) else version

    def device(self, uuid: str | None, pci_bus_id: str | None) -> NvmlDevice | None:
        """The device with this UUID or, failing that, at this PCI bus id.

        Never by index: NVML numbers all cards of the machine, CUDA those that CUDA_VISIBLE_DEVICES leaves, in its
        order. To NVML the UUID of a MIG instance, which CUDA gives without a prefix, starts with ``MIG``.
        """
        handle = None
        if uuid:
            bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
            for candidate in (uuid, f"MIG-{bare}"):
                handle = handle or self.ask("nvmlDeviceGetHandleByUUID", candidate)
        if handle is None and pci_bus_id:
            handle = self.ask("nvmlDeviceGetHandleByPciBusId", pci_bus_id)
        return None if handle is None else NvmlDevice(self, handle)

    def constant(self, name: str) -> Any:
        """A constant of the binding; None where it has no such constant."""
        return getattr(self._module, name, None)

    def close(self) -> None:
        """Shut NVML down if it was opened."""
        if self._opened:
            self.ask("nvmlShutdown")
            self._opened = False


class NvmlDevice:
    """One GPU as NVML sees it.

    Attributes
    ----------
    memory_source : str
        NVML's function that the memory in use comes from, empty before the first reading and where there is none.
        It never changes once it answered: a difference of two functions' figures would mean nothing.
    """

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._missing: dict[str, str] = {}
        self.memory_source = ""
        self._instant_power, self._power_seen = True, False
        capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)
        self._usage_mean_s = 0.0 if capability and tuple(capability) <= _USAGE_OF_NOW else 1.0
        # The card of a MIG instance, which is what a PCI bus id leads to, answers for all instances.
        of_instance = nvml.ask("nvmlDeviceIsMigDeviceHandle", handle)
        current, _ = (not of_instance and nvml.ask("nvmlDeviceGetMigMode", handle)) or (0, 0)
        self._of_all_instances = bool(current)

    def read(self) -> Reading:
        """Look once; a call that fails leaves its figure None."""
        constant = self._nvml.constant
        power_mw = self._power_mw()
        return Reading(
            mem_used_bytes=self._used_bytes(),
            power_w=None if power_mw is None else power_mw / 1e3,
            sm_clock_mhz=self._figure("SM clock", "nvmlDeviceGetClockInfo", constant("NVML_CLOCK_SM")),
            mem_clock_mhz=self._figure("memory clock", "nvmlDeviceGetClockInfo", constant("NVML_CLOCK_MEM")),
            temperature_c=self._figure("temperature", "nvmlDeviceGetTemperature", constant("NVML_TEMPERATURE_GPU")),
            throttle=self._throttle(),
            power_mean_s=0.0 if self._instant_power else self._usage_mean_s,
        )

    def energy_mj(self) -> int | None:
        """Energy of the whole board since the driver was loaded, in mJ (Volta and later)."""
        energy = self._own_figure("energy", "nvmlDeviceGetTotalEnergyConsumption")
        return None if energy is None else int(energy)

    def missing(self) -> Mapping[str, str]:
        """Figures that were asked for and not given so far, and why, a few words each."""
        return dict(self._missing)

    def _figure(self, name: str, function: str, *args: Any) -> Any:
        try:
            return self._nvml.answer(function, self._handle, *args)
        except Silent as silent:
            self._missing[name] = silent.reason
            return None

    def _own_figure(self, name: str, function: str) -> Any:
        """A figure that the instances of a card share, so that none of them can be told its own."""
        if self._of_all_instances:
            self._missing[name] = _OF_ALL_INSTANCES
            return None
        return self._figure(name, function)

    def _power_mw(self) -> int | None:
        """Power now; where the driver has no such figure the older one, which may be the mean of the last second.

        As with memory, what answers first is asked from then on.
        """
        if self._of_all_instances or not self._instant_power:
            usage: int | None = self._own_figure("power", "nvmlDeviceGetPowerUsage")
            return usage
        (field,) = self._nvml.ask("nvmlDeviceGetFieldValues", self._handle, [_POWER_INSTANT]) or (None,)
        if field is not None and field.nvmlReturn == 0:
            self._power_seen = True
            return int(field.value.uiVal)
        if self._power_seen:
            self._missing["power"] = "the power now was not given"
            return None
        self._instant_power = False
        return self._power_mw()

    def _throttle(self) -> tuple[str, ...] | None:
        bits = self._nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if bits is None:  # the name before driver 535
            bits = self._figure("throttling", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)

    def _used_bytes(self) -> int | None:
        if self._of_all_instances:
            self._missing["memory"] = _OF_ALL_INSTANCES
            return None
        reasons = []
        for source in (self.memory_source,) if self.memory_source else MEMORY_SOURCES:
            try:
                used = self._memory_by(source)
            except Silent as silent:
                reasons.append(silent.reason)
                if silent.lost:  # a card that is gone, which is not one without memory of its own
                    break
                continue
            self.memory_source = source
            return used
        self._missing["memory"] = ", ".join(dict.fromkeys(reasons))
        return None

    def _memory_by(self, source: str) -> int:
        if source == _MEMORY_OF_PROCESS:
            return self._memory_of_process()
        if source == _MEMORY_V1:
            return int(self._nvml.answer(_MEMORY_V1, self._handle).used)
        version = self._nvml.constant("nvmlMemory_v2")
        if version is None:
            raise Silent("not known to this NVML binding")
        return int(self._nvml.answer(_MEMORY_V1, self._handle, version).used)

    def _memory_of_process(self) -> int:
        """Device memory of this process. No figure is no zero: a process that runs kernels has memory."""
        for process in self._nvml.answer(_MEMORY_OF_PROCESS, self._handle):
            if process.pid == os.getpid():
                if process.usedGpuMemory in (None, 0, _NOT_AVAILABLE):
                    raise Silent("no figure for this process")
                return int(process.usedGpuMemory)
        raise Silent("this process is not listed")
