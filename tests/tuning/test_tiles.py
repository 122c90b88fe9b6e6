"""Which tiles are tried, and why the others can't run."""

from __future__ import annotations

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
from fa_bench.tuning.tiles import BLOCKS, candidates, grid


def bare(impl: str = "flash2", head_dim: int = 128, **fields: object) -> Case:
    return Case(impl, AttentionShape(1, 1, 1, 4096, 4096, head_dim), **fields)  # type: ignore[arg-type]


def test_every_pair_of_blocks_is_tried_with_every_depth() -> None:
    assert len(grid((1, 2))) == len(BLOCKS) ** 2 * 2
    assert {tile.num_warps for tile in grid((1,))} == {0}


def test_a_tile_that_is_too_big_names_need_limit_and_largest_that_fits() -> None:
    """D = 256, bf16, 128 x 64: (128 + 2 · 64) rows of 512 B are 131072 B = 128 KiB; an RTX 4090 has 99 KiB.

    The largest with no longer side: (m + 2n) · 512 ≤ 101376, so m + 2n ≤ 198; of the multiples of 16 the largest area
    is 96 x 48 (192 rows, area 4608), before 112 x 32 (3584), 80 x 48 (3840) and 64 x 64 (192 rows, area 4096).
    """
    case = bare(head_dim=256, dtype="bf16")
    found = candidates(case, algorithms.get("flash2"), gpus.get("rtx-4090"), [Tile(128, 64)])
    (refused,) = found.refused
    assert found.cases == ()
    assert refused.lack == "smem"
    assert "needs 128 KiB of shared memory per block" in refused.reason
    assert "has 99 KiB; the largest that fits is 96x48 with 1 stage (96 KiB)" in refused.reason


def test_a_tile_whose_accumulators_do_not_fit_lacks_registers() -> None:
    """256 x 128 at D = 128: each of eight warps has 32 rows, 32 · (128 + 128) / 32 = 256 registers, of 255."""
    found = candidates(bare(), algorithms.get("flash2"), gpus.get("h100-sxm"), [Tile(256, 128)])
    (refused,) = found.refused
    assert refused.lack == "registers"
    assert "256 registers" in refused.reason


def test_what_resolves_to_the_same_tile_is_tried_once() -> None:
    """FlashAttention-1 has no stages."""
    found = candidates(bare("flash1"), algorithms.get("flash1"), gpus.get("a100"), [Tile(64, 64, 1), Tile(64, 64, 2)])
    assert [case.tile for case in found.cases] == [Tile(64, 64, 1, 4)]
