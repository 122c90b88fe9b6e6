"""The papers' formulas against walks over their algorithms that move every element of every tile."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_bench.model import bounds

lengths = st.integers(1, 60)
dims = st.integers(1, 16)
blocks = st.integers(1, 24)


def tiles(length: int, block: int) -> list[int]:
    """Rows of each tile."""
    return [min(block, length - start) for start in range(0, length, block)]


def walk_standard(seq_q: int, seq_kv: int, d: int) -> tuple[Counter[str], Counter[str]]:
    """Three kernels, row by row; each operand is read once per kernel."""
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    reads["K"] += seq_kv * d
    for _ in range(seq_q):
        reads["Q"] += d
        writes["S"] += seq_kv
    for _ in range(seq_q):
        reads["S"] += seq_kv
        writes["P"] += seq_kv
    reads["V"] += seq_kv * d
    for _ in range(seq_q):
        reads["P"] += seq_kv
        writes["O"] += d
    return reads, writes


def walk_flash1(seq_q: int, seq_kv: int, d: int, br: int, bc: int) -> tuple[Counter[str], Counter[str]]:
    """Algorithm 1 of FlashAttention: K and V outside, Q inside."""
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    for cols in tiles(seq_kv, bc):
        reads.update(K=cols * d, V=cols * d)
        for rows in tiles(seq_q, br):
            reads.update(Q=rows * d, O=rows * d, l=rows, m=rows)
            writes.update(O=rows * d, l=rows, m=rows)
    return reads, writes


def walk_flash2(seq_q: int, seq_kv: int, d: int, br: int, bc: int) -> tuple[Counter[str], Counter[str]]:
    """Algorithm 1 of FlashAttention-2: Q outside, K and V inside."""
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    for rows in tiles(seq_q, br):
        reads.update(Q=rows * d)
        for cols in tiles(seq_kv, bc):
            reads.update(K=cols * d, V=cols * d)
        writes.update(O=rows * d, LSE=rows)
    return reads, writes


@given(lengths, lengths, dims)
def test_standard_equals_its_walk(seq_q: int, seq_kv: int, d: int) -> None:
    reads, writes = walk_standard(seq_q, seq_kv, d)
    count = bounds.standard(seq_q, seq_kv, d)
    assert (count.reads, count.writes) == (reads, writes)


@given(lengths, lengths, dims, blocks, blocks)
def test_flash1_equals_its_walk_for_any_block_m(seq_q: int, seq_kv: int, d: int, br: int, bc: int) -> None:
    reads, writes = walk_flash1(seq_q, seq_kv, d, br, bc)
    count = bounds.flash1(seq_q, seq_kv, d, block_n=bc)
    assert (count.reads, count.writes) == (reads, writes)


@given(lengths, lengths, dims, blocks, blocks)
def test_flash2_equals_its_walk_for_any_block_n(seq_q: int, seq_kv: int, d: int, br: int, bc: int) -> None:
    reads, writes = walk_flash2(seq_q, seq_kv, d, br, bc)
    count = bounds.flash2(seq_q, seq_kv, d, block_m=br)
    assert (count.reads, count.writes) == (reads, writes)


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


def test_flash2_by_hand() -> None:
    # N = 1024, d = 64, Br = 64: Q and O 2 N d = 131,072, K and V 16 times 2 N d = 2,097,152, LSE 1024
    assert bounds.flash2(1024, 1024, 64, 64).total == 2_229_248


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


def walk_backward(seq_q: int, seq_kv: int, d: int, br: int, bc: int) -> tuple[Counter[str], Counter[str]]:
    """The loops of Algorithm 4 of FlashAttention: K and V outside, all that has rows of Q inside."""
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    for cols in tiles(seq_kv, bc):
        reads.update(K=cols * d, V=cols * d)
        for rows in tiles(seq_q, br):
            reads.update(Q=rows * d, O=rows * d, dO=rows * d, dQ=rows * d, l=rows, m=rows)
            writes.update(dQ=rows * d)
        writes.update(dK=cols * d, dV=cols * d)
    return reads, writes


@given(lengths, lengths, dims, blocks, blocks)
def test_flash_backward_equals_its_walk_for_any_block_m(seq_q: int, seq_kv: int, d: int, br: int, bc: int) -> None:
    reads, writes = walk_backward(seq_q, seq_kv, d, br, bc)
    first = bounds.flash1_backward(seq_q, seq_kv, d, block_n=bc)
    assert (first.reads, first.writes) == (reads, writes)
    # FlashAttention-2 has L and D for l and m, and D is computed from O and dO before.
    second = bounds.flash2_backward(seq_q, seq_kv, d, block_n=bc)
    assert second.loaded == first.loaded + 2 * seq_q * d
    assert second.stored == first.stored + seq_q


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


def test_theorem_2_in_elements_and_in_bytes_differ_by_the_itemsize() -> None:
    # N = 1024, d = 64, M = 163 KiB of fp16 = 83,456 elements: 2^20 * 2^12 / 83,456 = 51,463
    # with a remainder of 71,168.
    elements = bounds.flash1_theorem2(1024, 1024, 64, bounds.sram_elements(163 * 1024, 2))
    in_bytes = bounds.flash1_theorem2_m_in_bytes(1024, 1024, 64, 163 * 1024)
    assert elements == 51463 + 71168 / 83456
    assert in_bytes == elements / 2


def test_the_constant_that_theorem_2_leaves_out() -> None:
    # fp16, N = 4096, d = 64, M = 192 KiB: the theorem says 0.042 N^2, Algorithm 1 moves 0.56 N^2.
    # Bc = 98,304 / 256 = 384, so 11 passes: 2 N d + 11 N (3d + 4) = N (128 + 2156) = 2284 N; 2284 / 4096 = 0.558
    m = bounds.sram_elements(192 * 1024, 2)
    _, block_n = bounds.flash1_blocks(m, 64)
    assert block_n == 384
    assert bounds.flash1(4096, 4096, 64, block_n).total == 2284 * 4096
    assert bounds.flash1_theorem2(4096, 4096, 64, m) / 4096**2 == pytest.approx(0.0417, abs=1e-4)
