"""Why a tile is the default: the tiles around it, what speaks against them, and that figures are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fa_bench import algorithms
from fa_bench.backends import why_not
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
from fa_bench.tuning.defaults import around, weigh
from fa_bench.tuning.weighed import Weighed

A100 = gpus.get("a100-sxm-80")
FLASH2 = algorithms.get("flash2")
emulated = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))

DEFAULT = Weighed(Tile(128, 64, 2, 4), None, 242, 0, 2, 8, 1000, 10.0, 0.5)


def case_of(head_dim: int, seq: int = 256) -> Case:
    return Case("flash2", AttentionShape(1, 1, 1, seq, seq, head_dim))


def test_what_is_worse_is_named_in_the_order_in_which_it_counts() -> None:
    assert DEFAULT.against(DEFAULT) == ()
    better = replace(DEFAULT, registers=255, warps_per_sm=16, global_bytes=500, instructions_per_score=5.0)
    assert better.against(DEFAULT) == ()
    # A hundredth is not worse, a little more is.
    close = replace(DEFAULT, global_bytes=1010, instructions_per_score=10.1, wavefronts_per_score=0.505)
    assert close.against(DEFAULT) == ()
    assert replace(close, global_bytes=1011).against(DEFAULT) == ("bytes",)
    worst = Weighed(Tile(256, 64, 2, 8), None, 255, 8, 1, 4, 2000, 20.0, 1.0)
    assert worst.against(DEFAULT) == ("spills", "one CTA", "warps", "bytes", "instructions", "wavefronts")
    # One CTA speaks against a tile only where the default has more than one.
    assert replace(DEFAULT, blocks_per_sm=1).against(replace(DEFAULT, blocks_per_sm=1)) == ()


def test_of_a_tile_that_cannot_run_nothing_else_is_said() -> None:
    assert Weighed(Tile(256, 256), "smem").against(DEFAULT) == ("smem",)
    assert Weighed(Tile(128, 32)).against(DEFAULT) == ()


def test_the_tiles_around_a_default() -> None:
    # D = 128 on an A100: 128x32 in one stage. 128x64 and 256x32 get eight warps by themselves, and four as the default
    # has; 64x32 and 128x16 get four either way. Then two stages, and eight warps or two.
    default, *others = around(case_of(128), FLASH2, A100)
    assert default == Tile(128, 32, 1, 4)
    assert others == [
        Tile(256, 32, 1, 8),
        Tile(256, 32, 1, 4),
        Tile(64, 32, 1, 4),
        Tile(128, 64, 1, 8),
        Tile(128, 64, 1, 4),
        Tile(128, 16, 1, 4),
        Tile(128, 32, 2, 4),
        Tile(128, 32, 1, 8),
        Tile(128, 32, 1, 2),
    ]


def test_sides_stay_within_what_a_tile_may_have() -> None:
    # flash1 has 64x256 for D = 64: no 64x512, and one stage only.
    bare = replace(case_of(64), impl="flash1")
    default, *others = around(bare, algorithms.get("flash1"), A100)
    assert default == Tile(64, 256, 1, 4)
    assert {str(tile) for tile in others} == {"128x256", "32x256", "64x128", "64x256"}
    assert {tile.stages for tile in others} == {1}


@emulated
def test_figures_are_compiled_and_counted() -> None:
    backend = EmulatorBackend(jobs=1, all_slices=True)
    case = case_of(64)
    wide, tall = (weigh(case, tile, FLASH2, backend, A100) for tile in (Tile(128, 64, 1, 4), Tile(64, 64, 1, 4)))
    # 64 KiB in one head: Q and O once, K and V for each of 2 or 4 tiles of Q; LSE is 1 KiB.
    assert wide.global_bytes == (2 + 2 * 2) * 32 * 1024 + 1024
    assert tall.global_bytes == (2 + 2 * 4) * 32 * 1024 + 1024
    assert (wide.spill_bytes, wide.lack) == (0, None)
    assert wide.blocks_per_sm is not None and wide.warps_per_sm == 4 * wide.blocks_per_sm
    # Half as many fragments of K and V per score.
    assert wide.wavefronts_per_score is not None and tall.wavefronts_per_score is not None
    assert tall.wavefronts_per_score > 1.5 * wide.wavefronts_per_score
    assert {"bytes", "wavefronts"} <= set(tall.against(wide))
    # 256 + 4 · 256 rows are 160 KiB of 163, but 32 rows of a warp and 256 + 64 columns 320 registers per thread; at
    # D = 128 the rows are 320 KiB.
    assert weigh(case, Tile(256, 256, 2), FLASH2, backend, A100).lack == "registers"
    assert weigh(case_of(128), Tile(256, 256, 2), FLASH2, backend, A100).lack == "smem"
