"""What NVML fills of a case's result, and the reasons for what it does not. Fakes only: no figure is a GPU's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from fa_bench.backends.base import RunResult
from fa_bench.backends.cuda_watch import Watch
from fa_bench.measure.energy import Energy
from fa_bench.measure.nvml import Nvml
from fa_bench.measure.readings import Reading

#: All that the device may say is missing.
FIGURES = ("memory", "power", "energy", "SM clock", "memory clock", "temperature", "throttling")


class Device:
    """One card: 1000 bytes in use before the case and 5000 later, unless it does not say."""

    memory_source = "nvmlDeviceGetMemoryInfo_v2"

    def __init__(self, missing: Mapping[str, str] | None = None, throttle: tuple[str, ...] | None = ()) -> None:
        self._missing, self._throttle = dict(missing or {}), throttle
        self._used = itertools.chain([1000], itertools.repeat(5000))
        self._clocks = itertools.chain([0.0] * 3, [1500.0], itertools.repeat(1200.0))

    def read(self) -> Reading:
        used = None if "memory" in self._missing else next(self._used)
        power = None if "power" in self._missing else 300.0
        return Reading(used, power, next(self._clocks), 2600.0, 60.0, self._throttle)

    def energy_mj(self) -> int | None:
        return None if "energy" in self._missing else 7

    def missing(self) -> dict[str, str]:
        return dict(self._missing)


def watch(device: Device | None, unavailable: str | None = None) -> Watch:
    nvml: Any = SimpleNamespace(device=lambda uuid, bus: device, unavailable=lambda: unavailable)
    return Watch(nvml, "GPU-x", None)


def result_of(watching: Watch, energy: Energy | None = None, throttled: bool = False) -> RunResult:
    with watching.starting() as rise:
        pass
    with watching.sampling():
        pass
    return RunResult(**watching.columns(throttled=throttled, energy=energy or Energy(2.5, 400), rise=rise))


def test_each_figure_has_its_column() -> None:
    result = result_of(watch(Device()))
    assert result.nvml_mem_peak_bytes == 4000  # 5000 while it ran, 1000 before: never what is in use as such
    assert result.nvml_mem_source == "nvmlDeviceGetMemoryInfo_v2"
    assert result.nvml_interval_ms is not None and result.nvml_interval_ms >= 0
    assert (result.energy_mj, result.energy_launches) == (2.5, 400)
    # Read at the start and at the end: 1500 and 1200 MHz; what was read before the case is no part of it.
    assert (result.sm_clock_mhz, result.sm_clock_min_mhz) == (1350, 1200)
    assert (result.power_w, result.mem_clock_mhz, result.temperature_c) == (300, 2600, 60)
    assert (result.throttled, result.throttle_reasons, result.device_reason) == (False, "", "")


@pytest.mark.parametrize(
    ("board", "missing", "empty"),
    [
        ("MIG", {"memory": "of all", "power": "of all"}, ("nvml_mem_peak_bytes", "nvml_interval_ms", "power_w")),
        ("WSL", {"power": "not supported"}, ("power_w",)),
        ("Jetson", {"power": "not supported", "memory": "not supported"}, ("power_w", "nvml_mem_peak_bytes")),
        ("GB10", {"memory": "not supported, this process is not listed"}, ("nvml_mem_peak_bytes",)),
    ],
)
def test_blanks_come_with_their_reasons(board: str, missing: dict[str, str], empty: tuple[str, ...]) -> None:
    result = result_of(watch(Device(missing)))
    assert [getattr(result, name) for name in empty] == [None] * len(empty), board
    assert result.device_reason == "; ".join(f"{figure}: {why}" for figure, why in missing.items())
    assert result.sm_clock_mhz is not None and result.nvml_mem_source == (
        "" if "memory" in missing else "nvmlDeviceGetMemoryInfo_v2"
    )


def test_without_nvml_there_is_one_reason_for_all() -> None:
    result = result_of(watch(None, "The NVIDIA driver's library (libnvidia-ml) is not on this machine."))
    assert result == RunResult(device_reason="NVML: The NVIDIA driver's library (libnvidia-ml) is not on this machine.")


def test_a_card_that_nvml_cannot_find_leaves_blanks_and_a_reason() -> None:
    result = result_of(watch(None))
    assert result.nvml_mem_peak_bytes is None and "no device with this UUID" in result.device_reason


def test_sampling_shorter_than_the_mean_that_power_is_given_as_has_none_and_says_so() -> None:
    device = Device()
    device.read = lambda: Reading(1, 300.0, 1.0, 1.0, 1.0, (), power_mean_s=3600.0)  # type: ignore[method-assign]
    result = result_of(watch(device))
    assert result.power_w is None
    assert result.device_reason == "power: given as a mean over longer than the sampling took"


def test_a_call_that_failed_once_is_no_reason_beside_a_figure() -> None:
    device = Device()
    watching = watch(device)
    # The device remembers that some calls failed for an earlier case; of this one every figure is there.
    device.missing = lambda: dict.fromkeys(FIGURES, "unknown error")  # type: ignore[method-assign]
    assert result_of(watching).device_reason == ""
    assert result_of(watching, energy=Energy()).device_reason == "energy: unknown error"


def test_throttling_is_not_denied_where_nvml_does_not_say() -> None:
    assert result_of(watch(Device(throttle=None))).throttled is None
    held = result_of(watch(Device(throttle=("sw_power_cap",))), throttled=True)
    assert (held.throttled, held.throttle_reasons) == (True, "sw_power_cap")


def test_memory_of_a_case_that_takes_turns_is_how_far_its_own_start_raised_it() -> None:
    # 1000 bytes before A starts, at most 5000 meanwhile; 4000 before B, at most 4700. In turns both are there.
    device = Device()
    device._used = iter(
        [1000, 5000, 4000, 4000, 4500, 4700, *[4700] * 9]
    )  # before, at the start and at the end of each
    watching = watch(device)
    rises = []
    for _ in "AB":
        with watching.starting() as rise:
            pass
        rises.append(rise)
    with watching.sampling():
        pass
    results = [RunResult(**watching.columns(throttled=False, energy=Energy(), rise=rise)) for rise in rises]
    assert [result.nvml_mem_peak_bytes for result in results] == [4000, 700]
    assert results[0].nvml_interval_ms is not None


def test_why_there_is_no_energy_stands_in_the_row() -> None:
    result = result_of(watch(Device()), energy=Energy(reason="the energy counter did not move in 6 s"))
    assert (result.energy_mj, result.energy_launches) == (None, None)
    assert result.device_reason == "energy: the energy counter did not move in 6 s"


def test_without_an_energy_counter_nothing_is_launched_for_it() -> None:
    def refuse() -> None:
        raise AssertionError("launched")

    clock: Callable[[], float] = lambda: 0.0  # noqa: E731
    for device in (None, Device({"energy": "not supported"})):
        assert watch(device).measure_energy(refuse, refuse, 1.0, clock) == Energy()


def test_the_real_library_or_its_absence_is_one_reason() -> None:
    watching = Watch(Nvml(), "GPU-00000000-0000-0000-0000-000000000000", None)
    assert result_of(watching).device_reason.startswith("NVML: ")
