"""Sectors of whole tensors, against hand-counted cases and against a set of touched sectors per instruction."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fa_bench.algorithms.base import Buffer
from fa_bench.algorithms.reach import Reach
from fa_bench.algorithms.slices import row_vector_sectors, tensor_sectors
from fa_bench.algorithms.tiles import Access, copy_access


def vector(batch: int, heads: int, seq: int) -> Buffer:
    return Buffer("m", "fp32", (batch, heads, seq), (heads * seq, seq, 1), "workspace")


def matrix(dtype: str, batch: int, heads: int, seq: int, dim: int) -> Buffer:
    return Buffer("Q", dtype, (batch, heads, seq, dim), (heads * seq * dim, seq * dim, dim, 1), "input")


def test_aligned_rows_of_a_vector_fill_their_sectors() -> None:
    # 64 floats are 256 bytes, 8 sectors; warps of 16 rows touch 2 sectors each, 4 times.
    assert row_vector_sectors(vector(1, 1, 64), 16) == 8


def test_a_misaligned_slice_costs_one_more_sector_per_instruction() -> None:
    # Slice 0: 33 floats from byte 0: 32 in 4 sectors, then 1. Slice 1 starts at byte 132: its first 32 floats are
    # bytes 132..259, sectors 4..8, five; the last is in sector 8, asked for again.
    assert row_vector_sectors(vector(1, 2, 33), 32) == (4 + 1) + (5 + 1)


def test_a_warp_of_48_rows_takes_two_instructions() -> None:
    # One slice of 96 rows, two warps: 32 rows (4 sectors) and 16 rows (2 sectors) each.
    assert row_vector_sectors(vector(1, 1, 96), 48) == 2 * (4 + 2)


@given(st.integers(1, 2), st.integers(1, 5), st.integers(1, 200), st.sampled_from([16, 20, 32, 48, 64, 96]))
def test_row_vectors_equal_a_count_of_touched_sectors(batch: int, heads: int, seq: int, warp_rows: int) -> None:
    expected = 0
    for start in range(0, batch * heads * seq, seq):
        for warp in range(0, seq, warp_rows):
            for first in range(warp, min(warp + warp_rows, seq), 32):
                rows = range(first, min(first + 32, warp + warp_rows, seq))
                expected += len({(start + row) * 4 // 32 for row in rows})
    assert row_vector_sectors(vector(batch, heads, seq), warp_rows) == expected


def test_the_first_rows_of_a_vector_are_summed() -> None:
    # 20 floats from 0 on, and 20 from byte 80, 16 within a sector. The first 16 rows: 2 sectors, and 3 (bytes 80-143);
    # all 20: 2 + 1 and 3 + 1. Two runs of 16, and one to the end.
    runs = Reach(inside=32, to_end=1, blocks=4, seeing=3)
    assert row_vector_sectors(vector(1, 2, 20), 16, runs) == 2 * (2 + 3) + (3 + 4)
    # Of a run from row 16 to the end what is left: 1 + 1.
    assert row_vector_sectors(vector(1, 2, 20), 16, Reach(-16, 1, 1, 1)) == 2


def test_long_vectors_of_many_slices_are_quick_and_exact() -> None:
    # 2³⁰ floats are 2³² bytes, 2²⁷ sectors, per slice; 2³¹ aligned slices of them are beyond 64 bits with 2⁶ heads.
    assert row_vector_sectors(vector(2**31, 2**6, 2**30), 32) == 2 ** (27 + 31 + 6)
    # The same of rows of 32 bytes: one sector each.
    assert tensor_sectors(matrix("fp16", 2**31, 2**6, 2**30, 16), Access(4, 128)) == 2 ** (30 + 31 + 6)


def test_copy_access_is_the_largest_power_of_two_of_chunks() -> None:
    # fp16 D=64: 8 chunks, 4 rows of 128 bytes. D=96: 12 = 4·3 chunks. fp32 D=256: 64 chunks, more than a warp.
    assert copy_access(128) == Access(4, 128)
    assert copy_access(192) == Access(8, 64)
    assert copy_access(1024) == Access(1, 512)


def test_80_byte_rows_share_sectors_inside_an_instruction_only() -> None:
    # Eight rows of 80 bytes by instructions of four rows (320 bytes, 10 sectors each, both aligned).
    assert tensor_sectors(matrix("fp16", 1, 1, 8, 40), Access(4, 128)) == 20
    # Six rows: the second instruction's two rows are 160 bytes from byte 320 on, 5 sectors.
    assert tensor_sectors(matrix("fp16", 1, 1, 6, 40), Access(4, 128)) == 15
    # Three such slices of 5 rows (400 bytes) start at bytes 0, 400, 800, i.e. at 0, 16, 0 in a sector. At 0: 10 + 3
    # sectors. At 16: bytes 16..335 touch 11, and the fifth row 336..415 3.
    assert tensor_sectors(matrix("fp16", 1, 3, 5, 40), Access(4, 128)) == 13 + 14 + 13


def test_row_counts_are_summed() -> None:
    # 128-byte rows: 4 sectors each, whatever covers them. 16 + 32 + 32 rows.
    runs = Reach(inside=16, to_end=2, blocks=5, seeing=3)
    assert tensor_sectors(matrix("fp16", 1, 2, 32, 64), Access(4, 128), runs) == 2 * 80 * 4


def test_arrays_of_sizes_are_summed_case_by_case() -> None:
    # bshd, fp16, D = 40: heads lie side by side, 80 bytes apart, and rows are as many times 80 bytes apart. Alignment
    # classes and pitches differ from case to case.
    batch, heads, seq = (np.array(values) for values in ([1, 2, 3, 2], [1, 2, 3, 8], [5, 6, 33, 1]))

    def tensor(batch: Any, heads: Any, seq: Any) -> Buffer:
        return Buffer("Q", "fp16", (batch, heads, seq, 40), (heads * seq * 40, 40, heads * 40, 1), "input")

    access, runs = Access(4, 128), Reach(32, 2, 4, 3)
    together = tensor_sectors(tensor(batch, heads, seq), access, runs)
    alone = [
        tensor_sectors(tensor(*sizes), access, runs)
        for sizes in zip(batch.tolist(), heads.tolist(), seq.tolist(), strict=True)
    ]
    assert together.tolist() == alone
    # By hand, the last: 2 x 8 slices of one row of 80 bytes, 80 apart: half of them at 0 in a sector, half at 16, 3
    # sectors each; twice, and 32 rows of pitch 640: 16 in a sector or 0, each 3 sectors.
    assert alone[-1] == 16 * (2 * 3 + 32 * 3)
