"""NVML behind a fake driver: routing by UUID, failures as sentences, single calls that are not supported."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from fa_bench.measure.nvml import REASONS, Nvml, NvmlDevice
from fa_bench.measure.readings import Reading


class NVMLError(Exception):
    pass


def error(name: str) -> type[NVMLError]:
    return type(name, (NVMLError,), {})


class FakeDriver:
    """Answers like pynvml, with figures of no real card; names in ``broken`` raise Not Supported.

    The older memory structure has 912 bytes of the driver's own among those in use. ``processes`` are (pid, bytes). The
    power now is ``power_mw``, the mean of the last second 10 W less.
    """

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(
        self,
        broken: set[str] | None = None,
        init: type[NVMLError] | None = None,
        reasons: int = 0,
        processes: tuple[tuple[int, int | None], ...] = (),
        mig: bool = False,
        error: str = "NVMLError_NotSupported",
    ) -> None:
        self.broken, self.init, self.reasons, self.calls = broken or set(), init, reasons, []
        self.processes, self.mig, self.error = processes, mig, error
        self.power_mw, self.field_status, self.capability = 250_500, 0, (9, 0)

    def _memory(self, handle: str, version: int = 0) -> Any:
        self.calls.append(f"memory v{version or 1}")
        return SimpleNamespace(used=3_000_000 + (0 if version else 912), total=9, free=6)

    def _answer(self, name: str, value: Any) -> Any:
        self.calls.append(name)
        if name in self.broken:
            raise error(self.error)("Not Supported")
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self.calls.append("nvmlInit")
        if self.init is not None:
            raise self.init("no")

    def __getattr__(self, name: str) -> Any:
        handles = {"GPU-a": "card a", "GPU-b": "card b", "MIG-x": "instance x of card a"}
        buses = {"0000:01:00.0": "card a", "0000:02:00.0": "card b"}
        answers: dict[str, Any] = {
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: b"570.1",
            "nvmlDeviceGetHandleByUUID": lambda uuid: handles.get(uuid) or self._missing(),
            "nvmlDeviceGetHandleByPciBusId": lambda bus: buses.get(bus) or self._missing(),
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetComputeRunningProcesses": lambda h: [
                SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes
            ],
            "nvmlDeviceIsMigDeviceHandle": lambda h: h.startswith("instance"),
            "nvmlDeviceGetMigMode": lambda h: [int(self.mig), int(self.mig)],
            "nvmlDeviceGetCudaComputeCapability": lambda h: list(self.capability),
            "nvmlDeviceGetPowerUsage": lambda h: self.power_mw - 10_000,
            "nvmlDeviceGetFieldValues": lambda h, fields: [self._field(field) for field in fields],
            "nvmlDeviceGetClockInfo": lambda h, kind: {1: 1410, 2: 1593}[kind],
            "nvmlDeviceGetTemperature": lambda h, kind: 61,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: self.reasons,
            "nvmlDeviceGetTotalEnergyConsumption": lambda h: 123_456,
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *args: (
            self._answer(name, None) if name in self.broken else self._answer(name, answers[name](*args))
        )

    def _field(self, field: int) -> Any:
        assert field == 186  # NVML_FI_DEV_POWER_INSTANT
        return SimpleNamespace(nvmlReturn=self.field_status, value=SimpleNamespace(uiVal=self.power_mw))

    def _missing(self) -> Any:
        raise error("NVMLError_NotFound")("Not Found")


@pytest.mark.parametrize("name", REASONS)
def test_each_failure_to_start_is_one_sentence(name: str) -> None:
    reason = Nvml(FakeDriver(init=error(name))).unavailable()
    assert reason == REASONS[name]
    assert reason.endswith(".") and "\n" not in reason


def test_an_unknown_failure_is_quoted() -> None:
    assert Nvml(FakeDriver(init=error("NVMLError_Unknown"))).unavailable() == "NVML does not start: no."


def test_opened_once_and_only_when_asked() -> None:
    driver = FakeDriver()
    nvml = Nvml(driver)
    assert driver.calls == []
    assert nvml.driver_version() == "570.1"
    assert nvml.unavailable() is None
    assert driver.calls.count("nvmlInit") == 1
    nvml.close()
    assert driver.calls[-1] == "nvmlShutdown"


def test_without_a_driver_everything_is_none() -> None:
    nvml = Nvml(FakeDriver(init=error("NVMLError_LibraryNotFound")))
    assert nvml.driver_version() is None
    assert nvml.device("GPU-b", "0000:01:00.0") is None
    nvml.close()


def test_this_machine_has_a_sentence_or_a_driver() -> None:
    reason = Nvml().unavailable()
    assert reason is None or reason.endswith(".")


def made(driver: FakeDriver, uuid: str | None = "GPU-b", bus: str | None = None) -> NvmlDevice:
    device = Nvml(driver).device(uuid, bus)
    assert device is not None
    return device


#: The machine: NVML's index -> UUID and PCI bus id. CUDA_VISIBLE_DEVICES picks from them and puts them in its order.
CARDS = (("GPU-a", "0000:01:00.0"), ("GPU-b", "0000:02:00.0"))


def cuda_devices(visible: str | None) -> list[tuple[str, str]]:
    """What CUDA shows, device 0 first: by number, by UUID, an instance of a card, or nothing."""
    if visible is None:
        return list(CARDS)
    by_name = {uuid: (uuid, bus) for uuid, bus in CARDS} | {"MIG-x": ("GPU-x", CARDS[0][1])}
    return [CARDS[int(name)] if name.isdecimal() else by_name[name] for name in visible.split(",") if name]


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        (None, ["card a", "card b"]),
        ("1", ["card b"]),
        ("1,0", ["card b", "card a"]),
        ("GPU-b", ["card b"]),
        ("MIG-x", ["instance x of card a"]),  # CUDA gives its UUID without saying that it is an instance's
        ("", []),
    ],
)
def test_devices_go_by_uuid_whatever_is_visible_to_cuda(visible: str | None, cards: list[str]) -> None:
    driver = FakeDriver()
    devices = cuda_devices(visible)
    assert [made(driver, uuid, bus)._handle for uuid, bus in devices] == cards
    assert "nvmlDeviceGetHandleByIndex" not in driver.calls


def test_devices_go_by_bus_where_the_uuid_is_not_known() -> None:
    nvml = Nvml(FakeDriver())
    assert nvml.device("GPU-z", "0000:01:00.0")._handle == "card a"  # type: ignore[union-attr]
    assert nvml.device(None, "0000:02:00.0")._handle == "card b"  # type: ignore[union-attr]
    assert nvml.device("GPU-z", "0000:09:00.0") is None
    assert nvml.device(None, None) is None


@pytest.mark.parametrize(("name", "broken"), [(name, i > 1) for i, name in enumerate(REASONS)])
def test_a_driver_that_fails_is_told_from_one_that_is_not_here(name: str, broken: bool) -> None:
    assert Nvml(FakeDriver(init=error(name))).broken() is broken
    assert not Nvml(FakeDriver()).broken()


def test_a_reading() -> None:
    device = Nvml(FakeDriver(reasons=0x1 | 0x4 | 0x40)).device("GPU-b", None)
    assert device is not None
    # 0x1 is idling, which is no throttling.
    assert device.read() == Reading(3_000_000, 250.5, 1410, 1593, 61, ("sw_power_cap", "hw_thermal_slowdown"))
    assert device.energy_mj() == 123_456


ASKED = {
    "nvmlDeviceGetMemoryInfo": "mem_used_bytes",
    "nvmlDeviceGetPowerUsage": "power_w",
    "nvmlDeviceGetTemperature": "temperature_c",
}
POWER = {"nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage"}


@pytest.mark.parametrize(("call", "field"), ASKED.items())
def test_one_unsupported_call_leaves_the_rest(call: str, field: str) -> None:
    device = made(FakeDriver(broken={call, "nvmlDeviceGetFieldValues"}))
    reading = device.read()
    assert [name for name in ASKED.values() if getattr(reading, name) is None] == [field]
    (reason,) = device.missing().values()
    assert reason.startswith("not supported")


def test_a_call_that_neither_driver_nor_binding_knows_has_its_reason() -> None:
    driver = FakeDriver(broken=POWER, error="NVMLError_FunctionNotFound")
    device = made(driver)
    assert device.read().power_w is None and device.missing() == {"power": "not known to this driver"}
    driver.nvmlDeviceGetPowerUsage = None  # type: ignore[method-assign]
    device = made(driver)
    assert device.read().power_w is None and device.missing() == {"power": "not known to this NVML binding"}


@pytest.mark.parametrize("error", [AttributeError, RuntimeError])
def test_an_error_that_is_none_of_nvmls_is_a_reason_too(error: type[Exception]) -> None:
    # The binding raises NVMLLibraryMismatchError, a plain Exception, where a driver is too old for its structures.
    def refuse(*_: object) -> None:
        raise error("no such structure")

    driver = FakeDriver(broken=NO_MEMORY)
    driver.nvmlDeviceGetComputeRunningProcesses = refuse  # type: ignore[method-assign]
    device = made(driver)
    assert device.read() == Reading(None, 250.5, 1410, 1593, 61)
    assert device.missing() == {"memory": "not supported, no such structure"}
    driver.nvmlInit = refuse  # type: ignore[method-assign]
    assert Nvml(driver).unavailable() == "NVML does not start: no such structure."


def test_power_is_that_of_now_and_not_the_mean_of_the_last_second() -> None:
    driver = FakeDriver()
    assert made(driver).read().power_w == 250.5
    assert "nvmlDeviceGetPowerUsage" not in driver.calls
    for broken, status in ((POWER - {"nvmlDeviceGetPowerUsage"}, 0), (set[str](), 3)):  # 3: not supported
        driver = FakeDriver(broken=broken)
        driver.field_status = status
        assert made(driver).read().power_w == 240.5


@pytest.mark.parametrize(
    ("capability", "mean_s"), [((7, 5), 0.0), ((8, 0), 0.0), ((8, 6), 1.0), ((9, 0), 1.0), (None, 1.0)]
)
def test_power_usage_is_a_mean_from_ampere_on_but_for_ga100(capability: tuple[int, int] | None, mean_s: float) -> None:
    older = FakeDriver(broken=set() if capability else {"nvmlDeviceGetCudaComputeCapability"})
    older.field_status = 3
    older.capability = capability or (0, 0)
    assert made(older).read().power_mean_s == mean_s
    older.field_status = 0
    assert made(older).read().power_mean_s == 0.0


def test_the_source_of_power_never_changes_between_two_readings() -> None:
    driver = FakeDriver()
    device = made(driver)
    device.read()
    driver.field_status = 3
    assert device.read().power_w is None and set(device.missing()) == {"power"}
    older = FakeDriver()
    older.field_status = 3
    device = made(older)
    device.read()
    older.field_status = 0
    assert device.read().power_w == 240.5 and device.missing() == {}


def test_a_true_zero_stays_zero_and_what_is_not_available_is_none() -> None:
    driver = FakeDriver()
    driver.power_mw = 0
    assert made(driver).read().power_w == 0.0
    driver.broken = POWER
    assert made(driver).read().power_w is None


# --- memory ----------------------------------------------------------------------------------------------------------

US = os.getpid()


def test_memory_leaves_out_what_the_driver_reserves_where_nvml_can() -> None:
    device = made(FakeDriver())
    assert device.memory_source == ""
    assert device.read().mem_used_bytes == 3_000_000
    assert device.memory_source == "nvmlDeviceGetMemoryInfo_v2"


def test_an_older_binding_gives_the_older_structure_and_says_so() -> None:
    driver = FakeDriver()
    driver.nvmlMemory_v2 = None  # type: ignore[assignment]
    device = made(driver)
    assert device.read().mem_used_bytes == 3_000_912
    assert device.memory_source == "nvmlDeviceGetMemoryInfo"


NO_MEMORY = {"nvmlDeviceGetMemoryInfo"}


def test_unified_memory_falls_back_to_that_of_the_process() -> None:
    driver = FakeDriver(broken=NO_MEMORY, processes=((US + 1, 7), (US, 4_000)))
    device = made(driver)
    assert device.read() == Reading(4_000, 250.5, 1410, 1593, 61)
    assert device.memory_source == "nvmlDeviceGetComputeRunningProcesses" and device.missing() == {}


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        (((US, None),), "no figure for this process"),  # Windows and WSL
        (((US, 0),), "no figure for this process"),
        (((US, 2**64 - 1),), "no figure for this process"),  # NVML_VALUE_NOT_AVAILABLE
        (((US + 1, 5_000),), "this process is not listed"),  # a container has process ids of its own
        ((), "this process is not listed"),
    ],
)
def test_no_memory_of_the_process_is_not_zero_bytes(processes: tuple[tuple[int, int | None], ...], reason: str) -> None:
    device = made(FakeDriver(broken=NO_MEMORY, processes=processes))
    assert device.read().mem_used_bytes is None
    assert device.memory_source == "" and device.missing() == {"memory": f"not supported, {reason}"}


def test_a_lost_gpu_is_not_one_with_unified_memory() -> None:
    driver = FakeDriver(broken=NO_MEMORY, processes=((US, 4_000),), error="NVMLError_GpuIsLost")
    device = made(driver)
    assert device.read().mem_used_bytes is None
    assert "nvmlDeviceGetComputeRunningProcesses" not in driver.calls
    assert device.missing() == {"memory": "the GPU is lost"}


def test_the_source_of_memory_never_changes_between_two_readings() -> None:
    driver = FakeDriver(processes=((US, 4_000),))
    device = made(driver)
    device.read()
    driver.broken = NO_MEMORY
    assert device.read().mem_used_bytes is None  # 4,000 minus 3,000,000 would be the difference of two instruments
    assert device.memory_source == "nvmlDeviceGetMemoryInfo_v2"


def test_the_card_of_a_mig_instance_does_not_answer_for_it() -> None:
    # Reached by its bus id, the card has the memory, the power and the energy of all instances.
    device = made(FakeDriver(mig=True), None, "0000:01:00.0")
    assert device.read() == Reading(None, None, 1410, 1593, 61)
    assert device.energy_mj() is None
    assert set(device.missing()) == {"memory", "power", "energy"}
    assert all("all MIG instances" in reason for reason in device.missing().values())
    instance = made(FakeDriver(mig=True), "MIG-x", "0000:01:00.0")
    assert instance.read().mem_used_bytes == 3_000_000


def test_the_older_name_of_the_throttle_reasons_is_tried() -> None:
    driver = FakeDriver(broken={"nvmlDeviceGetCurrentClocksEventReasons"}, reasons=0x8)
    device = made(driver)
    assert device.read().throttle == ("hw_slowdown",) and device.missing() == {}
    driver.broken.add("nvmlDeviceGetCurrentClocksThrottleReasons")
    assert device.read().throttle is None and device.missing() == {"throttling": "not supported"}
