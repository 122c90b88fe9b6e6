"""The bound of Saha and Ye: by hand, at its seam, and below what every algorithm moves."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import tile_walks
from hypothesis import assume, given
from hypothesis import strategies as st

from fa_bench.model import bounds


def test_large_and_small_cache_by_hand() -> None:
    # N = 1024, d = 64, so that d² = 4096. M = 65536: 2^20 · 2^12 / 2^16 = 2^16. M = 1024: 2^20 · 2^6 / 2^5 = 2^21,
    # where the other formula has 2^22.
    assert bounds.saha_ye(2**20, 64, 65536) == 2**16
    assert bounds.saha_ye(2**20, 64, 1024) == 2**21
    assert (bounds.regime(64, 65536), bounds.regime(64, 1024)) == ("large cache", "small cache")


def test_both_halves_meet_in_n_squared_where_m_is_d_squared() -> None:
    for d in (1, 40, 64, 128, 256):
        assert bounds.saha_ye(999, d, d**2) == 999
        assert bounds.regime(d, d**2) == "large cache"
        assert bounds.regime(d, d**2 - 1) == "small cache"


@given(st.integers(1, 2**40), st.integers(1, 512), st.integers(1, 2**20))
def test_it_is_the_smaller_of_the_two(pairs: int, d: int, m: int) -> None:
    large, small_squared = Fraction(pairs * d**2, m), Fraction((pairs * d) ** 2, m)
    found = bounds.saha_ye(pairs, d, m)
    assert found**2 == pytest.approx(float(min(large**2, small_squared)), rel=1e-12)
    assert (bounds.regime(d, m) == "large cache") == (large**2 <= small_squared)


def most_entries(dominators: int, d: int) -> int:
    """Entries of QKᵀ that a part with so many dominators may have, by trying all ways to spend them (docstring)."""
    best = 0
    for inside in range(dominators + 1):
        rows_and_columns = (dominators - inside) // d
        best = max(best, *(inside + rows * (rows_and_columns - rows) for rows in range(rows_and_columns + 1)))
    return best


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_no_way_to_spend_dominators_gives_more_entries_than_the_proof_allows(d: int) -> None:
    pairs = 10**9
    for m in range(1, 40):
        most = max(2 * m, Fraction(m * m, d * d))
        assert most_entries(2 * m, d) <= most
        # M · (parts - 1) with pairs / most parts.
        assert bounds.proved_bound(pairs, d, m) == pytest.approx(float(m * (pairs / most - 1)))


def test_the_constant_is_one_less_m_for_a_large_cache() -> None:
    # N = 4096, d = 64, M = 65536: 2^24 · 2^12 / 2^16 = 2^20, less M = 2^16.
    assert bounds.proved_bound(2**24, 64, 65536) == 2**20 - 2**16
    assert bounds.saha_ye(2**24, 64, 65536) == 2**20


@given(
    *(st.integers(1, 400), st.integers(1, 400), st.integers(1, 16), st.integers(1, 16)),
    *(st.integers(1, 40), st.integers(1, 40)),
)
def test_no_algorithm_whose_tiles_fit_moves_less(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int) -> None:
    """What is on chip at a time is M; the counted algorithms lie above the bound for it, in both directions."""
    size = (seq_q, seq_kv, d)
    forward = br * (d + dv + 2) + bc * (d + dv) + br * bc
    backward = br * (2 * d + 2 * dv + 2) + bc * (2 * d + 2 * dv) + 2 * br * bc
    pairs = seq_q * seq_kv
    assert bounds.flash1(*size, bc, dv).total >= bounds.proved_bound(pairs, d, forward)
    assert bounds.flash2(*size, br, dv).total >= bounds.proved_bound(pairs, d, forward)
    assert bounds.flash1_backward(*size, bc, dv).total >= bounds.proved_bound(pairs, dv, backward)
    assert bounds.flash2_backward(*size, bc, dv).total >= bounds.proved_bound(pairs, dv, backward)


@given(st.integers(2, 40), st.integers(2, 12), st.integers(4, 144))
def test_square_tiles_reach_the_order_of_the_small_cache_bound(n: int, d: int, m: int) -> None:
    """Algorithm 1 of Saha and Ye, walked: tiles of B² with B = ⌊√(M/4)⌋ move at most 35 times the bound for M <= d²."""
    assume(m <= d**2 and math.isqrt(m // 4) <= n)
    walk = tile_walks.square_tiling(n, d, math.isqrt(m // 4))
    moved = walk.reads.total() + walk.writes.total()
    bound = bounds.saha_ye(n * n, d, m)
    # Four operands in tiles of B² are read ⌈N/B⌉ or ⌈d/B⌉ times: 4·N²·d/B, at most doubled by a ragged block, and
    # again by the floor in B >= √M/4: 32. Once each: A and O written, and the row sums, below 3·N² <= 3 · bound.
    assert bound <= moved <= 35 * bound
