"""Measured peaks beside a data sheet's. The figures are made up, near those of an A100, and of no real card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fa_bench.model import gpus
from fa_bench.model.peaks import QUANTITIES, MeasuredPeaks, datasheet_peak, inconsistencies

GPU = gpus.get("a100-sxm-80")  # 312 TFLOP/s on tensor cores, 19.5 by FMA, 2039 GB/s, 1410 MHz at most


def made(**changes: Any) -> MeasuredPeaks:
    figures: dict[str, Any] = {
        "device": GPU.name,
        "identity": "GPU-x",
        "measured_at": "2026-01-02T03:04:05+00:00",
        "fp16_tensor_tflops": 290.0,
        "bf16_tensor_tflops": 280.0,
        "fp32_tflops": 19.0,
        "read_gbs": 1800.0,
        "write_gbs": 1850.0,
        "copy_gbs": 1700.0,
    }
    return MeasuredPeaks(**(figures | changes))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fp32_tflops", 0.0),
        ("read_gbs", -1.0),
        ("write_gbs", float("inf")),
        ("copy_gbs", float("nan")),
        ("fp16_tensor_tflops", "290"),
        ("fp32_tflops", None),
        ("fp32_tflops", True),
        ("sm_clock_mhz", -1.0),
        ("device", None),
        ("measured_at", 5),
    ],
)
def test_an_impossible_figure_names_itself(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        made(**{field: value})


def test_what_may_be_unknown() -> None:
    assert made(fp16_tensor_tflops=None, bf16_tensor_tflops=None, sm_clock_mhz=0.0).sm_clock_mhz == 0.0


def test_a_roofline_has_measured_peaks_only_and_does_not_mix_in_others() -> None:
    gpu = made().applied_to(GPU)
    assert (gpu.fp16_tensor_tflops, gpu.bf16_tensor_tflops, gpu.fp32_tflops) == (290.0, 280.0, 19.0)
    assert gpu.mem_bandwidth_gbs == 1850.0  # the most of the three
    assert (gpu.tf32_tensor_tflops, gpu.fp8_tensor_tflops) == (None, None)
    assert (
        replace(
            gpu,
            fp16_tensor_tflops=GPU.fp16_tensor_tflops,
            bf16_tensor_tflops=GPU.bf16_tensor_tflops,
            tf32_tensor_tflops=GPU.tf32_tensor_tflops,
            fp8_tensor_tflops=GPU.fp8_tensor_tflops,
            fp32_tflops=GPU.fp32_tflops,
            mem_bandwidth_gbs=GPU.mem_bandwidth_gbs,
        )
        == GPU
    )


def test_the_data_sheet_beside_each_quantity() -> None:
    assert [datasheet_peak(GPU, quantity) for quantity in QUANTITIES] == [312.0, 312.0, 19.5, 2039.0, 2039.0, 2039.0]


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_peak_above_the_data_sheet_is_inconsistent_with_a_likely_cause(quantity: str) -> None:
    sheet = datasheet_peak(GPU, quantity)
    assert sheet is not None
    # Its boost clock is the highest there is, so that 2 % are the timer's.
    assert inconsistencies(made(**{quantity: 1.019 * sheet}), GPU) == ()
    (sentence,) = inconsistencies(made(**{quantity: 1.021 * sheet}), GPU)
    assert sentence.startswith(QUANTITIES[quantity][0]) and "of another card" in sentence and "1410 MHz" in sentence


def test_arithmetic_may_run_at_the_highest_clock_and_memory_may_not() -> None:
    # 10 % above the clock of the data sheet's peaks.
    fast = replace(GPU, boost_max_mhz=1.1 * GPU.boost_mhz)
    assert inconsistencies(made(fp16_tensor_tflops=1.11 * 312), fast) == ()
    assert len(inconsistencies(made(fp16_tensor_tflops=1.13 * 312, read_gbs=1.05 * 2039), fast)) == 2


def test_a_quantity_that_one_side_does_not_know_is_not_compared() -> None:
    assert inconsistencies(made(fp16_tensor_tflops=None), GPU) == ()
    assert inconsistencies(made(fp16_tensor_tflops=9e5), replace(GPU, fp16_tensor_tflops=None)) == ()
