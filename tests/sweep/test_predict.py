"""The default prediction puts algorithms and models together."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import Op
from fa_bench.backends.base import Level
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
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
