"""Measuring peaks on a fake device: what is launched, on which stream, and what becomes of it. No figure is a GPU's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from fake_cuda import FakeCupy, FakeNvml, make

from fa_bench.errors import OutOfMemory
from fa_bench.measure.peaks import peak_tests
from fa_bench.model.peaks import MeasuredPeaks

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
#: ms of a launch of each kernel.
DURATIONS = {"peak_mma": 4.0, "peak_fma": 2.0, "peak_read": 8.0, "peak_write": 5.0, "peak_copy": 10.0}


def device(**options: Any) -> FakeCupy:
    """The fake device with 132 SMs."""
    cupy = FakeCupy(durations=DURATIONS, **({"memory": 10**10} | options))
    properties = cupy.cuda.runtime.getDeviceProperties(1) | {"major": 9, "minor": 0, "multiProcessorCount": 132}
    cupy.cuda.runtime.getDeviceProperties = lambda ordinal: properties
    return cupy


def measured(cupy: FakeCupy, nvml: Any = None) -> MeasuredPeaks:
    return make(cupy, nvml).measure_peaks(NOW)


def test_each_peak_is_its_work_over_its_time() -> None:
    peaks = measured(device())
    work = {test.quantity: test.work for test in peak_tests(132, 40 << 20, (9, 0))}
    assert peaks.fp16_tensor_tflops == pytest.approx(work["fp16_tensor_tflops"] / 4e-3 / 1e12)
    assert peaks.bf16_tensor_tflops == peaks.fp16_tensor_tflops
    assert peaks.fp32_tflops == pytest.approx(work["fp32_tflops"] / 2e-3 / 1e12)
    assert peaks.read_gbs == pytest.approx(work["read_gbs"] / 8e-3 / 1e9)
    assert peaks.write_gbs == pytest.approx(work["write_gbs"] / 5e-3 / 1e9)
    assert peaks.copy_gbs == pytest.approx(work["copy_gbs"] / 10e-3 / 1e9)


def test_the_device_the_date_and_the_clocks_stand_beside_the_figures() -> None:
    peaks = measured(device(), FakeNvml())
    assert peaks.device == "Fake GPU" and peaks.identity == "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
    assert peaks.measured_at == "2026-01-02T03:04:05+00:00" and peaks.driver == "580.1"
    assert (peaks.sm_clock_mhz, peaks.mem_clock_mhz, peaks.throttle_reasons) == (1500.0, 2600.0, "")
    assert measured(device(), FakeNvml(("sw_power_cap",))).throttle_reasons == "sw_power_cap"


def test_without_nvml_the_clocks_are_not_known_and_the_peaks_are() -> None:
    peaks = measured(device())
    assert (peaks.sm_clock_mhz, peaks.mem_clock_mhz, peaks.driver) == (None, None, None)


def test_buffers_are_written_before_and_freed_after_each_peak() -> None:
    cupy = device()
    measured(cupy)
    timed = ["event", "peak_copy", "event"]
    copied = cupy.log[cupy.log.index("peak_copy") - 2 :]
    # Two buffers of 640 MiB, filled (which the fake takes for a flush); warm-up; two samples; nothing in between.
    assert copied == ["flush", "flush", *["peak_copy"] * 3, *timed * 2, "release"]
    assert cupy.held_at_release == 0 and cupy.used() == 0


def test_too_little_memory_is_refused_before_anything_is_allocated() -> None:
    cupy = device(memory=10**9)
    with pytest.raises(OutOfMemory, match=r"takes 1\.26 GiB of its memory; 954 MiB are free"):
        measured(cupy)
    assert "peak_copy" not in cupy.log


def test_an_old_device_has_no_tensor_peaks() -> None:
    cupy = device()
    properties = cupy.cuda.runtime.getDeviceProperties(1) | {"major": 7, "minor": 5}
    cupy.cuda.runtime.getDeviceProperties = lambda ordinal: properties
    peaks = measured(cupy)
    assert peaks.fp16_tensor_tflops is None and peaks.fp32_tflops > 0 and "peak_mma" not in cupy.log
