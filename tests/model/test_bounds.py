"""The papers' formulas against walks over their algorithms that touch every element of every tile, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_walks
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_walks import Hbm

from fa_bench.cases import AttentionShape
from fa_bench.model import bounds

lengths = st.integers(1, 24)
dims = st.integers(1, 9)
blocks = st.integers(1, 15)
limits = st.none() | st.integers(0, 12)


def equal(count: bounds.Elements, walk: Hbm) -> bool:
    return (count.reads, count.writes) == (walk.reads, walk.writes)


@given(lengths, lengths, dims, dims)
def test_standard_equals_its_walk(seq_q: int, seq_kv: int, d: int, dv: int) -> None:
    assert equal(bounds.standard(seq_q, seq_kv, d, dv), tile_walks.standard(seq_q, seq_kv, d, dv))


@given(lengths, lengths, dims, dims)
def test_standard_backward_equals_its_walk(seq_q: int, seq_kv: int, d: int, dv: int) -> None:
    assert equal(bounds.standard_backward(seq_q, seq_kv, d, dv), tile_walks.standard_backward(seq_q, seq_kv, d, dv))


@given(lengths, lengths, dims, dims, blocks, blocks)
def test_flash1_equals_its_walk_for_any_block_m(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int) -> None:
    assert equal(bounds.flash1(seq_q, seq_kv, d, bc, dv), tile_walks.flash1(seq_q, seq_kv, d, dv, br, bc))


@given(lengths, lengths, dims, dims, blocks, blocks)
def test_flash2_equals_its_walk_for_any_block_n(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int) -> None:
    assert equal(bounds.flash2(seq_q, seq_kv, d, br, dv), tile_walks.flash2(seq_q, seq_kv, d, dv, br, bc))


@given(lengths, lengths, dims, dims, blocks, blocks)
def test_flash_backward_equals_its_walk_for_any_block_m(
    seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int
) -> None:
    size = (seq_q, seq_kv, d)
    assert equal(bounds.flash1_backward(*size, bc, dv), tile_walks.flash1_backward(*size, dv, br, bc))
    assert equal(bounds.flash2_backward(*size, bc, dv), tile_walks.flash2_backward(*size, dv, br, bc))


@given(lengths, lengths, dims, dims, blocks, blocks, st.integers(1, 12))
def test_split_kv_equals_its_walk(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int, splits: int) -> None:
    count = bounds.split_kv(seq_q, seq_kv, d, br, bc, splits, dv)
    walk = tile_walks.split_kv(seq_q, seq_kv, d, dv, br, bc, splits)
    partial = {} if splits > 1 else dict.fromkeys(("O_partial", "LSE_partial"), 0)
    assert (count.reads, count.writes) == ({**partial, **walk.reads}, {**partial, **walk.writes})


@given(lengths, lengths, dims, blocks, st.integers(1, 12))
def test_the_formula_of_what_a_split_costs(seq_q: int, seq_kv: int, d: int, bc: int, splits: int) -> None:
    walk, whole = (tile_walks.split_kv(seq_q, seq_kv, d, d, 7, bc, n) for n in (splits, 1))
    used = walk.reads["Q"] // (seq_q * d)
    more = sum(c.total() for c in (walk.reads, walk.writes)) - sum(c.total() for c in (whole.reads, whole.writes))
    assert more == seq_q * d * (used - 1) + (2 * splits * seq_q * (d + 1) if splits > 1 else 0)


@settings(max_examples=200, deadline=None)
@given(lengths, lengths, st.booleans(), limits, limits, blocks, blocks)
def test_blocks_of_a_mask_equal_a_look_at_each_pair(
    seq_q: int, seq_kv: int, causal: bool, left: int | None, right: int | None, br: int, bc: int
) -> None:
    d, dv = 8, 16
    shape = AttentionShape(1, 1, 1, seq_q, seq_kv, d, causal, left, None if causal else right, dv)
    most = 0 if causal else right

    def visible(query: int, key: int) -> bool:
        here = query + seq_kv - seq_q
        return (left is None or key >= here - left) and (most is None or key <= here + most)

    found = bounds.mask_blocks(shape, br, bc)
    grid = [(i, j) for i in tile_walks.tiles(seq_q, br) for j in tile_walks.tiles(seq_kv, bc)]
    assert found.blocks == len(grid)
    assert found.nonzero == sum(tile_walks.seen(i, j, visible) for i, j in grid)
    assert found.density == found.nonzero / len(grid)
    size = (seq_q, seq_kv, d)
    for formula, walk in (
        (bounds.flash1(*size, bc, dv, found.visited_rows), tile_walks.flash1),
        (bounds.flash1_backward(*size, bc, dv, found.visited_rows), tile_walks.flash1_backward),
        (bounds.flash2(*size, br, dv, found.visited_keys), tile_walks.flash2),
        (bounds.flash2_backward(*size, bc, dv, found.visited_rows), tile_walks.flash2_backward),
    ):
        walked = walk(*size, dv, br, bc, visible)
        # A tensor that nothing is read of is no key of a Counter.
        assert ({**formula.reads}, {**formula.writes}) == (
            {tensor: walked.reads[tensor] for tensor in formula.reads},
            {tensor: walked.writes[tensor] for tensor in formula.writes},
        )


def test_standard_by_hand() -> None:
    # N = 1024, d = 64: 4 N^2 + 4 N d = 4 * 1,048,576 + 4 * 65,536
    assert bounds.standard(1024, 1024, 64).total == 4_456_448


def test_flash1_by_hand() -> None:
    # N = 1024, d = 64, Bc = 163: 7 passes. Loads 2 N d + 7 N (2d + 2) = 131,072 + 7 * 133,120;
    # stores 7 N (d + 2) = 7 * 67,584.
    count = bounds.flash1(1024, 1024, 64, 163)
    assert count.loaded == 1_062_912
    assert count.stored == 473_088
    assert count.total == 1_536_000
    assert equal(count, tile_walks.flash1(1024, 1024, 64, 64, 64, 163))


def test_flash2_by_hand() -> None:
    # N = 1024, d = 64, Br = 64: Q and O 2 N d = 131,072, K and V 16 times 2 N d = 2,097,152, LSE 1024
    assert bounds.flash2(1024, 1024, 64, 64).total == 2_229_248
    assert equal(bounds.flash2(1024, 1024, 64, 64), tile_walks.flash2(1024, 1024, 64, 64, 64, 64))


def test_flash2_under_a_causal_mask_by_hand() -> None:
    # 16 blocks of 64 queries see 1, 2 ... 16 blocks of 64 keys: 136 · 64 · 2 · 64 = 1,114,112 for K and V; Q, O and LSE
    # as without a mask: 131,072 + 1024.
    shape = AttentionShape(1, 1, 1, 1024, 1024, 64, causal=True)
    visited = bounds.mask_blocks(shape, 64, 64).visited_keys
    assert bounds.flash2(1024, 1024, 64, 64, visited_keys=visited).total == 1_114_112 + 131_072 + 1024


def test_standard_backward_by_hand() -> None:
    # Five steps: dV reads P, dO; dP reads dO, V and is written; dS reads P, dP and is written; dQ reads dS, K; dK reads
    # dS, Q: 7 N². dO twice, V, K, Q, and three gradients are 8 N d. With N = 1024, d = 64: 7 · 1,048,576 + 8 · 65,536.
    count = bounds.standard_backward(1024, 1024, 64)
    assert count.total == 7_864_320
    assert (count.loaded, count.stored) == (5 * 1024**2 + 5 * 65_536, 2 * 1024**2 + 3 * 65_536)
    # 3 queries, 5 keys, d = 2: P, dP, dS are 15; dO, Q, dQ are 6; K, V, dK, dV are 10.
    assert bounds.standard_backward(3, 5, 2).reads == {
        "P": 30, "dO": 12, "V": 10, "dP": 15, "dS": 30, "K": 10, "Q": 6
    }  # fmt: skip
    assert bounds.standard_backward(3, 5, 2).writes == {"dV": 10, "dP": 15, "dS": 15, "dQ": 6, "dK": 10}


def test_split_kv_by_hand() -> None:
    # One query, 300 keys in tiles of 64: 5 tiles, 2 to each of 4 splits, so that the fourth has none. Q is read by 3,
    # d = 8: 24. K and V once: 2 · 300 · 8 = 4800. 4 partial O and LSE, written and read: 2 · 4 · 9 = 72. O and LSE: 9.
    count = bounds.split_kv(1, 300, 8, 64, 64, 4)
    assert (count.reads["Q"], count.total) == (24, 24 + 4800 + 72 + 9)
    # fp16: Q, K, V and O have two bytes, LSE and what is partial four.
    assert count.nbytes(2, bounds.PARTIAL) == 2 * (24 + 4800 + 8) + 4 * (72 + 1)


@pytest.mark.parametrize(
    ("m_elements", "block_n"),
    [
        (163 * 1024, 652),  # bytes taken for elements: 166,912 / 256
        (bounds.sram_elements(163 * 1024, 4), 163),  # fp32: 41,728 / 256
        (bounds.sram_elements(163 * 1024, 2), 326),  # fp16: 83,456 / 256
        (257, 2),  # rounded up
    ],
)
def test_block_sizes(m_elements: int, block_n: int) -> None:
    assert bounds.flash1_blocks(m_elements, 64) == (min(block_n, 64), block_n)


@given(st.integers(100, 100_000), dims, dims)
def test_block_sizes_are_the_first_that_fill_m(m_elements: int, d: int, dv: int) -> None:
    """Four tiles of Bc rows, two of them d and two dv wide, take M; those of a row less don't."""
    block_m, block_n = bounds.flash1_blocks(m_elements, d, dv)
    assert (block_n - 1) * (2 * d + 2 * dv) < m_elements <= block_n * (2 * d + 2 * dv)
    assert block_m == min(block_n, (d + dv) // 2)


def test_theorem_2_in_elements_and_in_bytes_differ_by_the_itemsize() -> None:
    # N = 1024, d = 64, M = 163 KiB of fp16 = 83,456 elements: 2^20 * 2^12 / 83,456 = 51,463
    # with a remainder of 71,168.
    elements = bounds.flash1_theorem2(1024, 1024, 64, bounds.sram_elements(163 * 1024, 2))
    in_bytes = bounds.flash1_theorem2_m_in_bytes(1024, 1024, 64, 163 * 1024)
    assert elements == 51463 + 71168 / 83456
    assert in_bytes == elements / 2


def test_theorem_2_with_another_dim_of_v_by_hand() -> None:
    # d = 192, dv = 128: the mean is 160. 1024² · 160² / 65536 = 16 · 25,600.
    assert bounds.flash1_theorem2(1024, 1024, 192, 65536, 128) == 409_600
    assert bounds.flash1_theorem5(1024, 1024, 192, 65536, 128) == 409_600


def test_the_constant_that_theorem_2_leaves_out() -> None:
    # fp16, N = 4096, d = 64, M = 192 KiB: the theorem says 0.042 N^2, Algorithm 1 moves 0.56 N^2.
    # Bc = 98,304 / 256 = 384, so 11 passes: 2 N d + 11 N (3d + 4) = N (128 + 2156) = 2284 N; 2284 / 4096 = 0.558
    m = bounds.sram_elements(192 * 1024, 2)
    _, block_n = bounds.flash1_blocks(m, 64)
    assert block_n == 384
    assert bounds.flash1(4096, 4096, 64, block_n).total == 2284 * 4096
    assert bounds.flash1_theorem2(4096, 4096, 64, m) / 4096**2 == pytest.approx(0.0417, abs=1e-4)


@pytest.mark.parametrize("dv", [64, 128])
def test_algorithms_1_and_4_have_the_orders_of_theorems_2_and_5(dv: int) -> None:
    """With M growing and N after it the ratio settles: the order is right, and this is its constant."""
    d = 64
    for m in (2**14, 2**16, 2**18):
        n = 64 * m // d
        _, bc = bounds.flash1_blocks(m, d, dv)
        forward = bounds.flash1(n, n, d, bc, dv).total / bounds.flash1_theorem2(n, n, d, m, dv)
        backward = bounds.flash1_backward(n, n, d, bc, dv).total / bounds.flash1_theorem5(n, n, d, m, dv)
        # Passes are N / Bc = N · 2(d + dv) / M. A row has d + 2·dv + 4 elements in each, backward 3·d + 2·dv + 2; the
        # theorems leave (d + dv)² / 4 of the product. Whole blocks, K, V and their gradients are the other 5 %.
        unit = 2 * (d + dv) / ((d + dv) ** 2 / 4)
        assert forward == pytest.approx((d + 2 * dv + 4) * unit, rel=0.05)
        assert backward == pytest.approx((3 * d + 2 * dv + 2) * unit, rel=0.05)


def test_proposition_4_by_hand() -> None:
    # 1024 · 64 for O, and half of 1024² · 64² / 65536; all blocks: Theorem 2 and O; another dim of V: O is as wide.
    assert bounds.flash1_proposition4(1024, 1024, 64, 65536, 0.5) == 65_536 + 32_768
    assert bounds.flash1_proposition4(1024, 1024, 64, 65536, 1.0) == 65_536 + 65_536
    assert bounds.flash1_proposition4(1024, 1024, 192, 65536, 0.0, 128) == 1024 * 128


def test_the_order_of_standard_attention() -> None:
    # N = 1024: N² + N · d with d = 64, and with the wider of 192 and 128.
    assert bounds.standard_order(1024, 1024, 64) == 1_048_576 + 65_536
    assert bounds.standard_order(1024, 1024, 192, 128) == bounds.standard_order(1024, 1024, 128, 192) == 1_245_184


def fields(count: bounds.Elements) -> list[Any]:
    return [count.loaded, count.stored, *count.reads.values(), *count.writes.values()]


def test_arrays_give_what_single_sizes_give() -> None:
    draw = np.random.default_rng(7)
    many = 300
    seq_q, seq_kv = draw.integers(1, 2**20, (2, many))
    d, dv = draw.integers(1, 257, (2, many))
    m, br, bc, splits = draw.integers([[64], [1], [1], [1]], [[300_000], [257], [257], [40]], (4, many))
    pairs = seq_q * seq_kv

    def figures(q: Any, k: Any, d: Any, dv: Any, m: Any, br: Any, bc: Any, splits: Any, pairs: Any) -> list[Any]:
        return [
            *bounds.flash1_blocks(bounds.sram_elements(m, 2), d, dv),
            *fields(bounds.standard(q, k, d, dv)),
            *fields(bounds.flash1(q, k, d, bc, dv)),
            *fields(bounds.flash2(q, k, d, br, dv)),
            *fields(bounds.split_kv(q, k, d, br, bc, splits, dv)),
            bounds.split_kv(q, k, d, br, bc, splits, dv).nbytes(2, bounds.PARTIAL),
            *fields(bounds.standard_backward(q, k, d, dv)),
            *fields(bounds.flash1_backward(q, k, d, bc, dv)),
            *fields(bounds.flash2_backward(q, k, d, bc, dv)),
            bounds.flash1_theorem2(q, k, d, m, dv),
            bounds.flash1_theorem2_m_in_bytes(q, k, d, m, dv),
            bounds.flash1_theorem5(q, k, d, m, dv),
            bounds.flash1_proposition4(q, k, d, m, 0.3, dv),
            bounds.standard_order(q, k, d, dv),
            bounds.saha_ye(pairs, d, m),
            bounds.proved_bound(pairs, d, m),
        ]

    columns = figures(seq_q, seq_kv, d, dv, m, br, bc, splits, pairs)
    for case in range(many):
        sizes = (int(size[case]) for size in (seq_q, seq_kv, d, dv, m, br, bc, splits, pairs))
        single = figures(*sizes)
        assert [column[case] for column in columns] == single
