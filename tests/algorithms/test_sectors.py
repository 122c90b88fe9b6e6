"""Sectors of copied rows: by hand, and against sets of touched sectors, instruction by instruction."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fa_bench.algorithms.base import Buffer
from fa_bench.algorithms.sectors import copy_sectors, slice_phases


def touched(phase: int, rows: int, row_bytes: int, pitch_bytes: int, group_rows: int, column_bytes: int) -> int:
    """The definition: per instruction, the set of sectors of every byte that it covers."""
    total = 0
    for first in range(0, rows, group_rows):
        for column in range(0, row_bytes, column_bytes):
            total += len(
                {
                    (phase + row * pitch_bytes + byte) // 32
                    for row in range(first, min(first + group_rows, rows))
                    for byte in range(column, min(column + column_bytes, row_bytes))
                }
            )
    return total


def test_aligned_rows_cost_what_they_hold() -> None:
    # 128-byte rows are 4 sectors each, whatever an instruction covers.
    for group_rows, column_bytes in ((4, 128), (1, 32), (8, 64)):
        sectors = copy_sectors(0, 10, row_bytes=128, pitch_bytes=128, group_rows=group_rows, column_bytes=column_bytes)
        assert int(sectors) == 40


def test_a_phase_of_16_bytes_costs_a_sector_per_row_and_column_piece() -> None:
    # A row of 128 bytes from byte 16 on touches 5 sectors. In four contiguous rows the last sector of each is the
    # first of the next: 512 bytes from 16 on touch 17. In column pieces of 64 bytes, 3 + 3 per row; an instruction of
    # two rows shares nothing, its pieces are 128 bytes apart.
    args = {"row_bytes": 128, "pitch_bytes": 128}
    assert int(copy_sectors(16, 1, **args, group_rows=4, column_bytes=128)) == 5
    assert int(copy_sectors(16, 4, **args, group_rows=4, column_bytes=128)) == 17
    assert int(copy_sectors(16, 2, **args, group_rows=2, column_bytes=64)) == 12


def test_several_tiny_rows_share_one_sector() -> None:
    # head_dim 8 in fp16: two 16-byte rows per sector. Rows 0-1, 2-3, 4 are 3 sectors.
    assert int(copy_sectors(0, 5, row_bytes=16, pitch_bytes=16, group_rows=8, column_bytes=64)) == 3


def test_no_rows_cost_nothing() -> None:
    assert int(copy_sectors(7, 0, row_bytes=128, pitch_bytes=128, group_rows=4, column_bytes=128)) == 0


def test_phases_and_rows_broadcast() -> None:
    sectors = copy_sectors([[0], [16]], [1, 2], row_bytes=80, pitch_bytes=80, group_rows=1, column_bytes=128)
    # From 0: bytes 0-79 touch 3 sectors, 80-159 3. From 16: 16-95 touch 3, 96-175 3.
    assert sectors.tolist() == [[3, 6], [3, 6]]


@settings(max_examples=300, deadline=None)
@given(
    phase=st.integers(0, 31),
    rows=st.integers(0, 70),
    row_chunks=st.integers(1, 20),
    gap=st.integers(0, 40),
    unit=st.sampled_from([2, 4, 16]),
    group_rows=st.sampled_from([1, 2, 4, 8, 32]),
    column_bytes=st.sampled_from([4, 32, 64, 128, 512]),
)
def test_any_copy_equals_a_count_of_touched_sectors(
    phase: int, rows: int, row_chunks: int, gap: int, unit: int, group_rows: int, column_bytes: int
) -> None:
    row_bytes = unit * row_chunks
    args = (row_bytes, row_bytes + unit * gap, group_rows, column_bytes)
    names = ("row_bytes", "pitch_bytes", "group_rows", "column_bytes")
    assert int(copy_sectors(phase, rows, **dict(zip(names, args, strict=True)))) == touched(phase, rows, *args)


def test_slices_by_where_they_start() -> None:
    # Slices of 3 rows of 80 bytes are 240 bytes: they start at 0, 240, 480, 720, that is 0, 16, 0, 16 mod 32.
    buffer = Buffer("Q", "fp16", (2, 2, 3, 40), (240, 120, 40, 1), "input")
    phases, counts = slice_phases(buffer)
    assert (phases.tolist(), counts.tolist()) == ([0, 16], [2, 2])


def test_sequences_by_where_they_start() -> None:
    # Row 1 of two heads with rows of 80 bytes, side by side: 160 and 240, that is 0 and 16 mod 32.
    buffer = Buffer("Q", "fp16", (1, 2, 3, 40), (240, 40, 80, 1), "input")
    phases, counts = slice_phases(buffer, first_row=1)
    assert (phases.tolist(), counts.tolist()) == ([0, 16], [1, 1])


@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(1, 300), st.integers(1, 300), st.sampled_from(["fp16", "fp32"])
)
def test_slice_phases_count_every_slice(batch: int, heads: int, batch_stride: int, stride: int, dtype: str) -> None:
    buffer = Buffer("m", dtype, (batch, heads, 1), (batch_stride, stride, 1), "workspace")
    itemsize = 2 if dtype == "fp16" else 4
    starts = [(b * batch_stride + h * stride) * itemsize % 32 for b in range(batch) for h in range(heads)]
    phases, counts = slice_phases(buffer)
    assert dict(zip(phases.tolist(), counts.tolist(), strict=True)) == {p: starts.count(p) for p in starts}


def test_long_sequences_and_many_heads_are_quick_and_exact() -> None:
    # 2^20 rows of 80 bytes per phase, four per instruction: 10 sectors from 0; from 16, bytes 16-335 touch 11.
    sectors = copy_sectors([0, 16], 2**20, row_bytes=80, pitch_bytes=80, group_rows=4, column_bytes=128)
    assert sectors.tolist() == [10 * 2**18, 11 * 2**18]
    heads = Buffer("K", "fp16", (64, 2048, 5, 40), (2048 * 200, 200, 40, 1), "input")
    assert int(np.sum(slice_phases(heads)[1])) == 64 * 2048
