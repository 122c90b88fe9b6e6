"""Shipped counts of our kernels: what they are made of, and one case counted anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fa_bench import algorithms, backends
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.prediction.counts import basis, counted_kernels
from fa_bench.prediction.kernels import TiledKernel
from fa_bench.prediction.ours import our_kernels, with_tile
from fa_bench.tuning.counts import counted

A100 = gpus.get("a100-sxm-80")
CASE = Case("flash2", AttentionShape(1, 1, 1, 512, 512, 64), tile=Tile(128, 64, 2, 4))


def test_the_basis_is_one_and_tiles() -> None:
    """512 rows in tiles of 128 x 64: 4 tiles of Q, 32 of scores; causal, 2 + 4 + 6 + 8 of them."""
    assert basis(CASE) == (1.0, 4.0, 32.0)
    assert basis(replace(CASE, shape=replace(CASE.shape, causal=True))) == (1.0, 4.0, 20.0)
    # 40 columns are padded to 64, and the work is that of 64.
    assert basis(replace(CASE, shape=replace(CASE.shape, head_dim=40))) == (1.0, 4.0, 32.0)


@pytest.mark.parametrize("causal", [False, True])
def test_a_longer_case_counted_anew_is_what_the_shipped_counts_say(causal: bool) -> None:
    """The shipped ones are of 128, 256 and 384 rows. A tile that raises no maximum skips work, so that instructions of
    512 rows may be a few fewer.
    """
    case = replace(CASE, shape=replace(CASE.shape, causal=causal))
    if (reason := backends.why_not("emulator")) is not None:
        pytest.skip(reason)
    backend = backends.open_backend("emulator", jobs=1)
    try:
        found = counted(backend.run(case, A100))["flash2_fwd"]
    finally:
        backend.close()
    shipped = counted_kernels(case)["flash2_fwd"]
    assert shipped.total("wavefronts", case) == pytest.approx(found["wavefronts"], rel=1e-4)
    assert shipped.total("instructions", case) == pytest.approx(found["instructions"], rel=0.03)


@pytest.mark.parametrize("impl", ["standard", "flash1", "flash2"])
def test_every_default_tile_was_counted(impl: str) -> None:
    """Without counts there would be no time. Each kernel's work is that of its room."""
    algorithm = algorithms.get(impl)
    looked_at = 0
    # One GPU for each size of shared memory.
    for gpu in map(gpus.get, ("a100-sxm-80", "h100-sxm", "rtx-4090")):
        for dim in (32, 64, 80, 128, 192, 256):
            for direction in algorithm.directions:
                bare = Case(impl, AttentionShape(2, 4, 2, 1000, 1000, dim, True), direction=direction)
                case = with_tile(bare, gpu)
                work = algorithm.work(case)
                assert work is not None
                tiled = [kernel for kernel in our_kernels(bare, gpu) if isinstance(kernel, TiledKernel)]
                total = sum(kernel.tensor_flops * kernel.grid.tiles for kernel in tiled)
                assert total == pytest.approx(work.flops_executed), (gpu.slug, dim, direction)
                assert all(kernel.instructions > 0 and kernel.smem_bytes > 0 for kernel in tiled)
                looked_at += 1
    assert looked_at == 3 * 6 * len(algorithm.directions)


@pytest.mark.parametrize("impl", ["standard", "flash1", "flash2"])
def test_no_gpu_has_a_default_tile_without_counts(impl: str) -> None:
    """Few queries on many keys take lower tiles; with and without a mask tiles differ."""
    algorithm = algorithms.get(impl)
    looked_at = 0
    for gpu in gpus.all_gpus():
        for dim in (8, 40, 64, 72, 104, 128, 160, 192, 256):
            for causal, queries in ((False, 4096), (True, 4096), (False, 1), (True, 17), (False, 33), (False, 64)):
                for direction in algorithm.directions if queries == 4096 else ("fwd",):
                    bare = Case(impl, AttentionShape(1, 4, 2, queries, 4096, dim, causal), direction=direction)
                    try:
                        case = with_tile(bare, gpu)
                    except Unsupported:  # older than the kernels' instructions
                        continue
                    assert counted_kernels(case), (gpu.slug, dim, causal, queries, direction, case.tile)
                    looked_at += 1
    # 22 of 24 GPUs have mma.m16n8k16 and cp.async.
    assert looked_at == 22 * 9 * (2 * len(algorithm.directions) + 4)


def test_what_was_not_counted_has_no_counts() -> None:
    assert counted_kernels(replace(CASE, dtype="fp32")) == {}
    assert counted_kernels(replace(CASE, tile=Tile(16, 16, 1, 1))) == {}
    assert counted_kernels(replace(CASE, tile=None)) == {}
