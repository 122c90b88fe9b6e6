"""NVML behind a fake driver: routing by UUID, failures as sentences, single calls that are not supported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fa_bench.measure.nvml import REASONS, Nvml, Reading, Sampler, summarize_readings


class NVMLError(Exception):
    pass


def error(name: str) -> type[NVMLError]:
    return type(name, (NVMLError,), {})


class FakeDriver:
    """Answers like pynvml; names in ``broken`` raise Not Supported."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, broken: set[str] | None = None, init: type[NVMLError] | None = None, reasons: int = 0) -> None:
        self.broken, self.init, self.reasons, self.calls = broken or set(), init, reasons, []

    def _answer(self, name: str, value: Any) -> Any:
        self.calls.append(name)
        if name in self.broken:
            raise error("NVMLError_NotSupported")("Not Supported")
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self.calls.append("nvmlInit")
        if self.init is not None:
            raise self.init("no")

    def __getattr__(self, name: str) -> Any:
        handles = {"GPU-b": "card b"}
        buses = {"0000:01:00.0": "card a", "0000:02:00.0": "card b"}
        answers: dict[str, Any] = {
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: b"570.1",
            "nvmlDeviceGetHandleByUUID": lambda uuid: handles.get(uuid) or self._missing(),
            "nvmlDeviceGetHandleByPciBusId": lambda bus: buses.get(bus) or self._missing(),
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(used=3_000_000, total=9, free=6),
            "nvmlDeviceGetPowerUsage": lambda h: 250_500,
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


def test_devices_go_by_uuid_then_by_bus_never_by_index() -> None:
    # CUDA_VISIBLE_DEVICES may make CUDA's device 0 the machine's card b.
    driver = FakeDriver()
    nvml = Nvml(driver)
    assert nvml.device("GPU-b", "0000:01:00.0")._handle == "card b"  # type: ignore[union-attr]
    assert nvml.device("MIG-x", "0000:01:00.0")._handle == "card a"  # type: ignore[union-attr]
    assert nvml.device(None, "0000:02:00.0")._handle == "card b"  # type: ignore[union-attr]
    assert nvml.device(None, None) is None
    assert "nvmlDeviceGetHandleByIndex" not in driver.calls


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


@pytest.mark.parametrize(("call", "field"), ASKED.items())
def test_one_unsupported_call_leaves_the_rest(call: str, field: str) -> None:
    device = Nvml(FakeDriver(broken={call})).device("GPU-b", None)
    assert device is not None
    reading = device.read()
    assert [name for name in ASKED.values() if getattr(reading, name) is None] == [field]


def test_the_older_name_of_the_throttle_reasons_is_tried() -> None:
    driver = FakeDriver(broken={"nvmlDeviceGetCurrentClocksEventReasons"}, reasons=0x8)
    device = Nvml(driver).device("GPU-b", None)
    assert device is not None and device.read().throttle == ("hw_slowdown",)


def test_readings_become_peaks_and_medians() -> None:
    readings = [
        Reading(1000, 100.0, 1400, None, 50),
        Reading(5000, 300.0, 1200, None, 70, ("sw_power_cap",)),
        Reading(None, 200.0, 1300, None, 60),
    ]
    clean = summarize_readings(readings, baseline_bytes=800, throttled=False)
    assert clean.mem_peak_bytes == 4200 and clean.power_w == 200.0 and clean.sm_clock_mhz == 1300
    assert clean.mem_clock_mhz is None and clean.temperature_c == 70
    assert clean.throttle_reasons == ""  # the samples taken while throttled were dropped
    assert summarize_readings(readings, 800, throttled=True).throttle_reasons == "sw_power_cap"
    assert summarize_readings(readings, None, throttled=False).mem_peak_bytes is None
    assert summarize_readings([], 800, throttled=False).power_w is None


def test_the_sampler_reads_before_and_after_and_knows_the_latest() -> None:
    readings = iter([Reading(1, None, None, None, None, ("hw_slowdown",)), Reading(2, None, None, None, None)])
    with Sampler(lambda: next(readings), interval_s=60.0) as sampler:
        assert sampler.throttled()
    assert [r.mem_used_bytes for r in sampler.readings] == [1, 2]
    assert not sampler.throttled()
