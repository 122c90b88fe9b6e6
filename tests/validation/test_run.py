"""Running a case once and summing its levels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fa_bench.cases import AttentionShape, Tile
from fa_bench.errors import FaBenchError
from fa_bench.model import gpus
from fa_bench.validation.run import Runner, flash2_case

A30 = gpus.get("a30")
CASE = flash2_case(AttentionShape(1, 1, 1, 128, 128, 64), Tile(64, 64))


def test_a_case_has_the_layout_of_the_published_kernels_and_the_algorithms_warps() -> None:
    assert (CASE.impl, CASE.layout, CASE.dtype) == ("flash2", "bshd", "fp16")
    assert CASE.tile == Tile(64, 64, 1, 4)


def test_the_levels_are_summed_by_direction(full_backend: Callable) -> None:
    # 128 rows of 128 bytes: 16 KiB per tensor. Q once, K and V for each of 2 tiles: 5 x 16 KiB read. O and 4 bytes of
    # LSE per row written. DRAM: Q, K, V once; 1000 bytes of O are still in L2.
    ran = Runner(full_backend(dirty=1000, extra={"l2": 64})).run(CASE, A30)
    kib16 = 16 * 1024
    assert (ran.global_read_bytes, ran.global_write_bytes) == (5 * kib16, kib16 + 512)
    assert (ran.l2_read_bytes, ran.l2_write_bytes) == (5 * kib16 + 64, kib16 + 512)
    assert (ran.dram_read_bytes, ran.dram_write_bytes) == (3 * kib16, kib16 + 512 - 1000)
    assert ran.dram_bytes == 4 * kib16 + 512 - 1000
    assert (ran.dirty_bytes, ran.fraction) == (1000, 1.0)
    assert ran.dram_model_bytes > 0


def test_a_case_runs_once_per_gpu_and_is_announced(full_backend: Callable) -> None:
    backend, said = full_backend(), []
    runner = Runner(backend, said.append)
    first = runner.run(CASE, A30)
    assert runner.run(CASE, A30) is first
    runner.run(CASE, gpus.get("gb10"))
    assert [slug for _, slug in backend.ran] == ["a30", "gb10"]
    assert said[0] == "flash2 64x64, 128 x 128, full, for NVIDIA A30"
    assert len(said) == 2


def test_a_wrong_result_validates_nothing(full_backend: Callable) -> None:
    with pytest.raises(FaBenchError, match=r"flash2 for NVIDIA A30 gave a wrong result\. O is off\."):
        Runner(full_backend(passed=False)).run(CASE, A30)


@pytest.mark.parametrize("levels", [("global",), ("global", "l2"), ("global", "dram")])
def test_a_backend_that_counts_no_caches_is_refused(levels: tuple[str, ...], full_backend: Callable) -> None:
    with pytest.raises(FaBenchError, match="emulator does not count what L2 and DRAM see"):
        Runner(full_backend(levels=levels)).run(CASE, A30)
