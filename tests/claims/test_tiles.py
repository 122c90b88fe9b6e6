"""Claims (f) and (g)."""

from __future__ import annotations

import pytest
from judgements import passed, values

from fa_bench.cases import Tile
from fa_bench.claims import tiles


def test_the_constraint_forbids_the_example_and_the_rule_is_far_from_the_best() -> None:
    """128 · 128 · 64 = 1,048,576 of 98,304: 10.67. What the example really needs: 3 · 128 · 64 · 2 B = 48 of 163 KiB.

    √(98304 / 256) = 19.596, so tiles of 16 x 16 for both kernels. flash2 reads K and V N/16 = 256 times there and 16
    times in the best tile, of 256 rows; with the 2·N·d of Q and O and N floats, (256 + 1) / (16 + 1) ≈ 15.
    """
    judgement = tiles.best_tile()
    found = values(judgement)
    assert found["example_over_m"] == pytest.approx(1_048_576 / 98_304)
    assert found["example_smem"] == pytest.approx(48 / 163)
    assert found["side"] == pytest.approx(19.596, abs=1e-3)
    q_o, lse, k_v = 2 * 4096 * 64 * 2, 4096 * 4, 2 * 4096 * 64 * 2
    assert found["flash2_off"] == pytest.approx((q_o + lse + 256 * k_v) / (q_o + lse + 16 * k_v))
    # 2 · 64 / 19.596 = 6.53 and 196 / 19.596 = 10.0; with M in bytes the side is 27.71: 4.62 and 7.07. Standard 4.0625.
    assert found["q_outer_elements"] == pytest.approx(6.532, abs=1e-3)
    assert found["k_outer_elements"] == pytest.approx(10.002, abs=1e-3)
    assert found["q_outer_bytes"] == pytest.approx(4.619, abs=1e-3)
    assert found["k_outer_bytes"] == pytest.approx(7.072, abs=1e-3)
    assert min(found["q_outer_bytes"], found["k_outer_bytes"]) > found["standard"] == 4.0625
    assert judgement.verdict == "does-not-hold"


def test_with_what_four_tiles_need_the_example_is_allowed() -> None:
    """(2 · 128 + 2 · 128) · 64 = 32,768 elements of 98,304."""

    def demand(tile: Tile, head_dim: int) -> float:
        return 2 * (tile.block_m + tile.block_n) * head_dim

    judgement = tiles.best_tile(demand=demand)
    assert values(judgement)["example_over_m"] == pytest.approx(1 / 3)
    assert passed(judgement) == {"example"}


def test_a_rule_that_gives_large_blocks_comes_nearer() -> None:
    small, large = tiles.best_tile(), tiles.best_tile(printed_side=lambda m, d: m / (4 * d))
    assert values(large)["flash2_off"] < values(small)["flash2_off"] / 4


def test_blocks_of_the_inner_loop_are_loaded_again_and_again() -> None:
    """flash1's default has 256 keys: 4096 / 256 = 16 passes over Q. flash2's has 128 queries: 32 over K and V."""
    judgement = tiles.loads_of_a_block()
    assert values(judgement) == {
        "flash1_q": 16,
        "flash1_k": 1,
        "flash1_v": 1,
        "flash2_q": 1,
        "flash2_k": 32,
        "flash2_v": 32,
        "flash1_passes": 16,
        "flash2_passes": 32,
    }
    assert judgement.verdict == "does-not-hold"
    assert passed(tiles.loads_of_a_block(most=16)) == {"flash1"}
    assert tiles.loads_of_a_block(most=32).verdict == "holds"
