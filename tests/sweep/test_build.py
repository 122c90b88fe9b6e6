"""Rows from results: what is known goes to its column, what is impossible becomes a status."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from fake_sweep import EPOCH, GPU, good_result, predict
from hypothesis import given, settings
from hypothesis import strategies as st

from fa_bench.algorithms.base import TensorBytes
from fa_bench.backends.base import BackendName, Counts, Resources, RunResult, Samples, Verification
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.records import Record, TensorTraffic
from fa_bench.sweep.build import Site, run_record, traffic_rows, unrun_record

CASE = Case("flash2", AttentionShape(1, 1, 1, 512, 512, 64), tile=Tile(64, 64, 1, 4))
GOOD = Verification(max_abs_err=1e-4, rel_err=2e-4, bound=1e-3, reference="fp64 full", passed=True)


def site(backend: BackendName = "cuda") -> Site:
    return Site("run", EPOCH, backend, "some device", GPU)


def on_gpu(*times_ms: float, flops: int = 10**9, read_bytes: int = 10**6, l2_state: str = "cold") -> Record:
    prediction = replace(predict(CASE, GPU), flops_nominal=flops, compulsory_read_bytes=read_bytes)
    result = RunResult(samples=Samples(times_ms, "cuda-events", l2_state), verification=GOOD)  # type: ignore[arg-type]
    return run_record(site(), CASE, result, prediction)


def test_times_are_summarised() -> None:
    # Sorted 1 2 3 4 5 6; rank of q is 5 q: the median at 2.5 is 3.5, p20 at 1 is 2, p80 at 4 is 5.
    # 10^9 FLOPs in 3.5 ms are 2/7 TFLOP/s.
    record = on_gpu(6.0, 1.0, 5.0, 2.0, 4.0, 3.0)
    assert (record.time_ms, record.time_p20_ms, record.time_p80_ms, record.time_samples) == (3.5, 2.0, 5.0, 6)
    assert record.tflops == pytest.approx(2 / 7)
    assert (record.status, record.time_source, record.l2_state) == ("ok", "cuda-events", "cold")


@settings(deadline=None, max_examples=100)
@given(times_ms=st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20))
def test_any_positive_times_make_a_valid_row(times_ms: list[float]) -> None:
    result = RunResult(samples=Samples(tuple(times_ms), "host-clock"), verification=GOOD)
    record = run_record(site("host"), CASE, result, predict(CASE, GPU))
    assert record.time_ms is not None
    assert min(times_ms) <= record.time_ms <= max(times_ms)


@pytest.mark.parametrize("bad", [0.0, -1.5, math.nan, math.inf])
def test_an_impossible_time_is_no_time(bad: float) -> None:
    record = on_gpu(1.0, bad, 2.0)
    assert record.status == "invalid_timing"
    assert record.status_reason is not None and record.status_reason.startswith(f"A time of {bad} ms was sampled: ")
    assert (record.time_ms, record.time_source, record.tflops) == (None, None, None)


def test_how_a_time_came_about_stands_in_its_row() -> None:
    samples = Samples(
        (1.0, 2.0, 3.0), "cuda-events", "warm", launch_bound=True, drift=-0.25, dropped=7, floor_ms=0.002,
        fallback="Events instead of a graph: the graph holds 0 kernels, not 1.",
    )  # fmt: skip
    record = run_record(site(), CASE, RunResult(samples=samples, verification=GOOD), predict(CASE, GPU))
    assert (record.time_source, record.l2_state, record.launch_bound) == ("cuda-events", "warm", True)
    assert (record.time_drift, record.time_dropped, record.launch_floor_ms) == (-0.25, 7, 0.002)
    assert record.time_fallback == "Events instead of a graph: the graph holds 0 kernels, not 1."


def test_no_samples_are_no_time() -> None:
    assert on_gpu().status_reason == "No time was sampled."


def test_a_time_above_the_peak_flops_is_no_time() -> None:
    # An A100 does 312 TFLOP/s in fp16: 312e9 FLOPs take at least 1 ms.
    assert on_gpu(1.001, flops=312 * 10**9).status == "ok"
    record = on_gpu(0.999, flops=312 * 10**9)
    assert record.status == "invalid_timing"
    assert record.status_reason == (
        "999 µs would be 312 TFLOP/s, above the peak of 312 TFLOP/s in the data sheet of NVIDIA A100-SXM4-80GB. "
        "Likely the timed launches did not do all of the work, or the GPU is another one than that."
    )


def test_a_time_above_any_peak_names_the_peak_its_source_and_the_likely_cause() -> None:
    # 369 % of the peak: milliseconds taken for what they are not. 312e9 FLOPs in 0.271 ms are 1151 TFLOP/s.
    for record in (
        on_gpu(0.271, flops=312 * 10**9),
        on_gpu(0.001, flops=10**6, read_bytes=203_900_000, l2_state="warm"),
    ):
        assert record.status == "invalid_timing" and record.status_reason is not None
        assert "data sheet of NVIDIA A100-SXM4-80GB" in record.status_reason and "Likely" in record.status_reason
        assert (record.time_ms, record.tflops) == (None, None)
    assert "beyond the 40 MiB that L2 holds at the 2.04 TB/s" in record.status_reason


def test_a_working_set_that_fits_into_l2_says_so() -> None:
    # An A100 has 40 MiB of L2: 41,943,040 bytes, of which O takes what its case writes.
    written = predict(CASE, GPU).compulsory_write_bytes
    assert on_gpu(10.0, read_bytes=41_943_040 - written, l2_state="warm").fits_l2 is True
    assert on_gpu(10.0, read_bytes=41_943_041 - written).fits_l2 is False
    host = RunResult(samples=Samples((1.0,), "host-clock"), verification=GOOD)
    assert run_record(site("host"), CASE, host, predict(CASE, GPU)).fits_l2 is None


def test_a_time_above_the_peak_bandwidth_is_no_time() -> None:
    # An A100 reads 2039 GB/s: 203.9 MB take at least 0.1 ms from DRAM. With a warm L2 of 40 MiB = 41.94 MB only
    # 161.96 MB must come from there: 0.0794 ms.
    assert on_gpu(0.1001, read_bytes=203_900_000).status == "ok"
    assert on_gpu(0.0999, read_bytes=203_900_000).status == "invalid_timing"
    assert on_gpu(0.0999, read_bytes=203_900_000, l2_state="warm").status == "ok"
    assert on_gpu(0.0793, read_bytes=203_900_000, l2_state="warm").status == "invalid_timing"


def test_peaks_of_the_target_say_nothing_of_a_cpu() -> None:
    result = RunResult(samples=Samples((1e-6,), "host-clock"), verification=GOOD)
    assert run_record(site("host"), CASE, result, predict(CASE, GPU)).status == "ok"


def test_a_wrong_output_is_a_wrong_result() -> None:
    wrong = Verification(0.5, 0.25, 1e-3, "fp64 full", passed=False, detail="First at O[0, 0, 17, 3].")
    record = run_record(site(), CASE, RunResult(verification=wrong), predict(CASE, GPU))
    assert record.status == "wrong_result"
    assert record.status_reason == "The error is 5.0e-01, the format explains 1.0e-03. First at O[0, 0, 17, 3]."
    assert (record.max_abs_err, record.rel_err) == (0.5, 0.25)


def test_an_output_of_nan_has_no_error_figure() -> None:
    wrong = Verification(math.nan, math.nan, 1e-3, "fp64 full", passed=False)
    record = run_record(site(), CASE, RunResult(verification=wrong), predict(CASE, GPU))
    assert (record.status, record.max_abs_err, record.rel_err) == ("wrong_result", None, None)
    assert record.status_reason == "The error is nan, the format explains 1.0e-03."


def test_ok_means_verified() -> None:
    record = run_record(site(), CASE, RunResult(samples=Samples((1.0,), "cuda-events")), predict(CASE, GPU))
    assert (record.status, record.status_reason) == ("error", "The output was not verified.")


@pytest.mark.parametrize(("backend", "source"), [("emulator", "emulated"), ("cuda", "measured")])
def test_counts_go_to_the_columns_of_their_source(backend: BackendName, source: str) -> None:
    parts = [
        TensorBytes("a", "Q", "read", 100),
        TensorBytes("b", "K", "read", 20),
        TensorBytes("b", "O", "write", 3),
    ]
    result = RunResult(counts=Counts({"global": parts, "dram": parts[1:]}, fraction=0.25), verification=GOOD)
    record = run_record(site(backend), CASE, result, predict(CASE, GPU))
    assert getattr(record, f"global_read_bytes_{source}") == 120
    assert getattr(record, f"global_write_bytes_{source}") == 3
    assert getattr(record, f"dram_read_bytes_{source}") == 20
    other = {"emulated": "measured", "measured": "emulated"}[source]
    assert getattr(record, f"global_read_bytes_{other}") is None
    assert getattr(record, f"l2_read_bytes_{source}") is None
    assert record.emulated_fraction == (0.25 if backend == "emulator" else None)


def test_the_prediction_stands_in_every_row_that_has_one() -> None:
    # predict(): Q and O are 2 bytes x 512 x 64 = 65,536, O_acc twice that; dram leaves O_acc out.
    record = unrun_record(site(), CASE, "oom", "No memory.", predict(CASE, GPU))
    assert (record.status, record.status_reason, record.time_ms) == ("oom", "No memory.", None)
    assert (record.global_read_bytes_model, record.global_write_bytes_model) == (65_536, 196_608)
    assert (record.dram_read_bytes_model, record.dram_write_bytes_model) == (65_536, 65_536)
    assert (record.flops_nominal, record.flops_executed) == (4 * 512 * 512 * 64, 5 * 512 * 512 * 64)
    assert (record.roofline_ms, record.roofline_limiter, record.arithmetic_intensity) == (0.5, "dram", 12.0)
    assert record.l2_read_bytes_model is None
    assert unrun_record(site(), CASE, "error", "Why.", None).flops_nominal is None


def test_the_host_has_no_target_gpu() -> None:
    assert unrun_record(site("host"), CASE, "error", "Why.", None).gpu is None
    assert unrun_record(site("emulator"), CASE, "error", "Why.", None).gpu == "a100-sxm-80"


def test_resources_give_the_blocks_per_sm() -> None:
    # 128 threads x 128 registers = 16,384 of 65,536: 4 blocks. Shared memory: 164 KiB per SM over 48.8 + 1 KiB: 3.
    record = run_record(site("emulator"), CASE, good_result("emulator", CASE), predict(CASE, GPU))
    assert (record.registers, record.smem_bytes, record.spill_bytes, record.blocks_per_sm) == (128, 50_000, 0, 3)
    light = replace(
        good_result("emulator", CASE),
        resources=Resources("13.0", threads=128, registers=128, smem_bytes=0, spill_bytes=0, compile_ms=1.0),
    )
    assert run_record(site("emulator"), CASE, light, predict(CASE, GPU)).blocks_per_sm == 4


@pytest.mark.parametrize("throttled", [None, False, True])
def test_throttling_is_unknown_where_nobody_looked(throttled: bool | None) -> None:
    # A clock that is known says nothing of what holds it down.
    result = RunResult(verification=GOOD, sm_clock_mhz=1410.0, throttled=throttled)
    assert run_record(site(), CASE, result, predict(CASE, GPU)).throttled is throttled


def test_an_impossible_value_of_a_backend_names_its_column() -> None:
    with pytest.raises(ValueError, match="mem_peak_bytes must be at least 0, not -4096"):
        run_record(site(), CASE, RunResult(verification=GOOD, mem_peak_bytes=-4096), predict(CASE, GPU))


def test_traffic_rows_sum_repeated_launches() -> None:
    parts = [TensorBytes("k", "Q", "read", 32), TensorBytes("k", "Q", "read", 64), TensorBytes("k", "Q", "write", 1)]
    common = {"case_id": CASE.case_id, "kernel": "k", "tensor": "Q", "level": "global", "source": "model"}
    assert traffic_rows(CASE, {"global": parts}, "model") == [
        TensorTraffic(**common, op="read", bytes=96),  # type: ignore[arg-type]
        TensorTraffic(**common, op="write", bytes=1),  # type: ignore[arg-type]
    ]


def test_a_librarys_tile_stands_in_the_row_and_not_in_the_case() -> None:
    case = replace(CASE, impl="flash-attn-2", tile=None)
    prediction = replace(predict(case, GPU), library_tile=(128, 64), impl_version="flash-attn 2.8.3")
    for record in (
        unrun_record(site(), case, "skipped", "No memory.", prediction),
        run_record(site(), case, good_result("cuda", case), prediction),
    ):
        assert (record.block_m, record.block_n, record.stages, record.num_warps) == (128, 64, None, None)
        assert (record.case_id, record.impl_version) == (case.case_id, "flash-attn 2.8.3")
