"""The default prediction puts algorithms and models together."""

from __future__ import annotations

import pytest
from fake_sweep import EPOCH, FakeBackend

from fa_bench import algorithms
from fa_bench.algorithms.base import Op
from fa_bench.backends import baselines
from fa_bench.backends.base import BackendName, Level
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
from fa_bench.model.peaks import MeasuredPeaks
from fa_bench.sweep.build import Site
from fa_bench.sweep.case import run_case
from fa_bench.sweep.plan import PlannedCase
from fa_bench.sweep.predict import predict

GPU = gpus.get("a100-sxm-80")
SHAPE = AttentionShape(1, 1, 1, 128, 128, 64)


def test_an_implementation_without_kernels_has_nominal_figures_only() -> None:
    prediction = predict(Case("numpy-flash", SHAPE, "fp32"), GPU)
    # 4 · 128 · 128 · 64 FLOPs; Q, K, V and O are 128 · 64 · 4 bytes each.
    assert prediction.flops_nominal == 4_194_304
    assert (prediction.compulsory_read_bytes, prediction.compulsory_write_bytes) == (98_304, 32_768)
    assert (prediction.work, prediction.traffic, prediction.roofline_ms) == (None, {}, None)


def test_flash2_has_bytes_at_two_levels_and_a_roofline() -> None:
    algorithm = algorithms.get("flash2")
    case = Case("flash2", SHAPE)
    prediction = predict(Case("flash2", SHAPE, tile=algorithm.resolve(case, Tile(64, 64))), GPU)

    def total(level: Level, op: Op) -> int:
        return sum(part.bytes for part in prediction.traffic[level] if part.op == op)

    # Q once, K and V once for each of the two Q tiles: 5 x 16,384. O once, LSE 128 x 4.
    assert total("global", "read") == 81_920
    assert total("global", "write") == 16_384 + 512
    # All of it fits in L2: each input crosses DRAM once, and what is written is still there at the end.
    assert total("dram", "read") == 49_152
    assert total("dram", "write") == 0
    assert prediction.arithmetic_intensity == pytest.approx(4_194_304 / 49_152)
    assert prediction.work is not None
    assert prediction.work.flops_executed == 4_194_304  # no padding: two by two tiles of 64
    assert prediction.impl_version == algorithm.version
    # 49.2 KB at 2039 GB/s take 24 ns, the products at 312 TFLOP/s 13 ns.
    assert prediction.roofline_ms == pytest.approx(49_152 / 2039e9 * 1e3)
    assert prediction.roofline_limiter == "dram"


def test_a_case_without_a_legal_tile_has_nominal_figures_only() -> None:
    assert predict(Case("flash2", SHAPE), GPU).traffic == {}


def test_the_roofline_rests_on_measured_peaks_where_they_are_given_and_says_so() -> None:
    algorithm = algorithms.get("flash2")
    case = Case("flash2", SHAPE, tile=algorithm.resolve(Case("flash2", SHAPE), Tile(64, 64)))
    peaks = MeasuredPeaks(
        device="a card", identity="x", measured_at="2026-01-02", fp16_tensor_tflops=1.0, fp32_tflops=19.0,
        read_gbs=1000.0, write_gbs=900.0, copy_gbs=950.0,
    )  # fmt: skip
    measured, sheet = predict(case, GPU, peaks), predict(case, GPU)
    # 4,194,304 FLOPs at 1 TFLOP/s take longer than 49,152 bytes at 1000 GB/s.
    assert measured.roofline_ms == pytest.approx(4_194_304 / 1e12 * 1e3)
    assert (measured.roofline_limiter, measured.roofline_source) == ("tensor", "measured")
    assert (sheet.roofline_source, sheet.roofline_limiter) == ("datasheet", "dram")
    assert measured.traffic == sheet.traffic and measured.work == sheet.work
    # No peak of its tensor cores, no roofline, and none of the data sheet's in its place.
    bf16 = Case("flash2", SHAPE, "bf16", tile=case.tile)
    assert (predict(bf16, GPU, peaks).roofline_ms, predict(bf16, GPU, peaks).roofline_source) == (None, None)


def test_a_library_whose_tile_is_known_has_a_model_and_its_version() -> None:
    shape = AttentionShape(1, 16, 16, 1024, 1024, 128)
    prediction = predict(Case("flash-attn-2", shape), GPU)
    # 128 x 64 on an A100: 8 Q tiles per slice read all of K, 1024 rows of 256 bytes.
    assert prediction.library_tile == (128, 64)
    read = {part.tensor: part.bytes for part in prediction.traffic["global"]}["K"]
    assert read == 16 * 8 * 1024 * 256
    assert prediction.roofline_ms is not None and prediction.work is not None
    assert prediction.impl_version == baselines.FLASH_ATTN.version()


def test_a_library_whose_tile_is_not_known_has_nominal_figures_and_its_version() -> None:
    prediction = predict(Case("xformers", SHAPE), GPU)
    assert (prediction.work, prediction.traffic, prediction.library_tile) == (None, {}, None)
    assert prediction.impl_version == baselines.XFORMERS.version()


def test_on_the_host_the_same_name_stands_for_other_code() -> None:
    prediction = predict(Case("torch-flash", AttentionShape(1, 16, 16, 1024, 1024, 128)), GPU)
    host = prediction.without_gpu()
    assert prediction.traffic and prediction.library_tile == (128, 64)
    assert (host.work, host.traffic, host.roofline_ms, host.library_tile) == (None, {}, None, None)
    assert (host.flops_nominal, host.impl_version) == (prediction.flops_nominal, prediction.impl_version)


@pytest.mark.parametrize("backend", ["host", "cuda"])
def test_a_row_of_the_host_has_no_bytes_of_a_gpus_kernel(backend: BackendName) -> None:
    case = Case("torch-flash", AttentionShape(1, 16, 16, 1024, 1024, 128))
    planned = PlannedCase(case, backend, "skipped", "Not now.")
    rows = run_case(planned, FakeBackend(backend, []), Site("run", EPOCH, backend, "a device", GPU), predict)
    assert bool(rows.traffic) == (backend == "cuda")
    assert (rows.record.global_read_bytes_model is None, rows.record.block_m is None) == (backend == "host",) * 2
    assert rows.record.impl_version == baselines.TORCH.version()
