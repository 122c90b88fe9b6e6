"""What tiles read of another tensor, against a walk over every tile, row and key."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fa_bench.algorithms.flash2_backward_plan import BackwardPlan
from fa_bench.algorithms.reach import Reach, reach
from fa_bench.algorithms.tiles import StreamPlan
from fa_bench.cases import AttentionShape, Case, Tile

sides = st.sampled_from([16, 32, 48, 64, 80, 96, 128, 208, 256])
lengths = st.integers(1, 700)
limits = st.one_of(st.none(), st.integers(0, 300))


def walked(own: int, tile: int, length: int, block: int, diagonal: int, before: int | None, after: int | None) -> Reach:
    """The definition: blocks from that of the first key to that of the last which the rows of a tile may see."""
    inside = to_end = blocks = seeing = 0
    for start in range(0, own, tile):
        rows = range(start, min(start + tile, own))
        first = 0 if before is None else max(0, rows[0] + diagonal - before)
        end = length if after is None else min(length, max(0, rows[-1] + diagonal + after + 1))
        low, high = first // block, -(-end // block)
        assert low <= high
        blocks += high - low
        seeing += high > 0
        to_end += high * block >= length
        inside += (high * block if high * block < length else 0) - low * block
    return Reach(inside, to_end, blocks, seeing)


@settings(max_examples=400, deadline=None)
@given(lengths, lengths, sides, sides, limits, limits)
def test_a_sum_over_tiles_is_a_walk_over_them(
    own: int, length: int, tile: int, block: int, before: int | None, after: int | None
) -> None:
    diagonal = length - own
    expected = walked(own, tile, length, block, diagonal, before, after)
    assert reach(-(-own // tile), tile, length, block, diagonal, before, after) == expected


def test_a_causal_square_by_hand() -> None:
    # Tiles of 32 queries on blocks of 48 of 100 keys: rows up to 32, 64, 96 and 100 see 1, 2, 2 and 3 blocks, that is
    # 48, 96, 96 rows and all 100. Without a limit to the left nothing is left out.
    assert reach(4, 32, 100, 48, 0, None, 0) == Reach(inside=240, to_end=1, blocks=8, seeing=4)
    assert reach(4, 32, 100, 48, 0, None, 0).rows(100) == 340


def test_queries_above_the_first_key_see_nothing() -> None:
    # 96 queries, 32 keys, causal: the diagonal is at -64, so that the first two tiles of 32 see none.
    assert reach(3, 32, 32, 16, -64, None, 0) == Reach(inside=0, to_end=1, blocks=2, seeing=1)


def test_nothing_is_read_of_nothing() -> None:
    # A sequence of a packed batch may have no keys, or no queries.
    for own, length in ((70, 0), (0, 70)):
        for after in (None, 0, 9):
            found = reach(-(-own // 16), 16, length, 32, length - own, 5, after)
            assert (found.rows(length), found.blocks, found.seeing) == (0, 0, 0)


@given(lengths, lengths, sides, sides, st.booleans(), limits)
def test_both_plans_say_what_their_tiles_read(
    seq_q: int, seq_kv: int, block_m: int, block_n: int, causal: bool, left: int | None
) -> None:
    shape = AttentionShape(1, 1, 1, seq_q, seq_kv, 64, causal, left)
    plan = BackwardPlan(Case("flash2", shape), Tile(block_m, block_n), atomic=False)
    first, end = StreamPlan(plan.case, plan.tile).kv_range()
    assert plan.key_reach().rows(seq_kv) == int((end - first).sum())
    # Key j is seen by queries from j - diagonal (causal) to j - diagonal + left.
    back = walked(seq_kv, block_n, seq_q, block_m, -shape.diagonal, 0 if causal else None, left)
    assert plan.query_reach() == back


def test_arrays_are_their_elements() -> None:
    own, length = np.array([1, 100, 333, 700]), np.array([500, 100, 7, 701])
    together = reach(-(-own // 48), 48, length, 80, length - own, 60, 0)
    for index, (queries, keys) in enumerate(zip(own.tolist(), length.tolist(), strict=True)):
        alone = reach(-(-queries // 48), 48, keys, 80, keys - queries, 60, 0)
        assert tuple(int(getattr(together, name)[index]) for name in Reach.__slots__) == tuple(
            getattr(alone, name) for name in Reach.__slots__
        )
