"""What the rules say, in numbers worked out by hand."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, DType, Tile
from fa_bench.model import gpus
from fa_bench.model.bounds import flash1_blocks, sram_elements
from fa_bench.tuning.rules import Rule, rules, square_side


def rule(name: str, *, gpu: str = "a100", head_dim: int = 64, dtype: DType = "fp16", causal: bool = False) -> Rule:
    case = Case("flash2", AttentionShape(4, 16, 16, 4096, 4096, head_dim, causal), dtype)
    return next(r for r in rules(case, algorithms.get("flash2"), gpus.get(gpu)) if r.name == name)


def test_the_square_rule_with_m_in_elements_and_in_bytes() -> None:
    """192 KiB are 98304 elements of fp16: √(98304 / 256) = √384 = 19.596; bytes: √(196608 / 256) = √768 = 27.713."""
    assert square_side(192 * 1024 // 2, 64) == pytest.approx(19.596, abs=5e-4)
    assert square_side(192 * 1024, 64) == pytest.approx(27.713, abs=5e-4)


def test_the_square_rule_states_its_m_and_is_rounded_down_to_a_tile() -> None:
    """A CTA of an A100 may have 163 KiB = 166912 B = 83456 elements of fp16: √(83456 / 256) = 18.06, so 16 x 16."""
    square, misread = rule("square"), rule("square-bytes")
    assert (square.m, misread.m) == (83456, 166912)
    assert square.exact == pytest.approx((18.055, 18.055), abs=5e-4)
    assert misread.exact == pytest.approx((25.534, 25.534), abs=5e-4)
    assert square.tile == misread.tile == Tile(16, 16)


def test_m_in_bytes_would_be_652_rows_and_m_in_elements_is_163_or_326() -> None:
    """Bc = ⌈M/4d⌉ at d = 64 for 163 KiB: 166912 / 256 = 652; fp32 41728 / 256 = 163; fp16 83456 / 256 = 326."""
    assert flash1_blocks(163 * 1024, 64)[1] == 652
    assert rule("flash-attention-1", dtype="fp32").exact == (64, 163)
    assert rule("flash-attention-1", dtype="fp16").exact == (64, 326)
    assert rule("flash-attention-1", dtype="fp32").m == sram_elements(163 * 1024, 4) == 41728


def test_a_block_beyond_256_rows_is_cut_and_others_rounded_down() -> None:
    assert rule("flash-attention-1", dtype="fp16").tile == Tile(64, 256)
    assert rule("flash-attention-1", dtype="fp32").tile == Tile(64, 160)


@pytest.mark.parametrize(
    ("gpu", "causal", "tile"),
    [
        ("a100", False, Tile(128, 64, 1, 4)),
        ("rtx-4090", False, Tile(128, 32, 1, 4)),
        ("rtx-4090", True, Tile(64, 64, 1, 4)),
    ],
)
def test_the_published_tile_follows_gpu_and_mask(gpu: str, causal: bool, tile: Tile) -> None:
    """flash_fwd_launch_template.h of FlashAttention-2, D = 128 without dropout."""
    assert rule("flash-attention-2", gpu=gpu, head_dim=128, causal=causal).tile == tile


def test_there_is_no_published_tile_of_fp32() -> None:
    with pytest.raises(StopIteration):
        rule("flash-attention-2", dtype="fp32")
