"""How many 32-byte sectors warp instructions ask for when they copy rows: exact, for any alignment.

A warp instruction asks for each sector that it touches once, however many of its lanes touch it; the next
instruction asks again. Kernels copy matrices row by row: one instruction covers ``group_rows`` consecutive rows of at
most ``column_bytes`` bytes each, and a matrix is cut into such pieces from its first row and its first column on.

Rows need not start on a sector (fp16 with head_dim 40 has rows of 80 bytes). Only the start address modulo 32, the
*phase*, matters, and the phases of successive pieces repeat after at most 32 pieces: counts are sums over phases, not
over rows.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from fa_bench.algorithms.base import ELEMENT_BYTES, SECTOR_BYTES, Buffer

IntArray = npt.NDArray[np.int64]


@functools.lru_cache(maxsize=256)
def _piece_table(row_bytes: int, pitch_bytes: int, group_rows: int, column_bytes: int) -> IntArray:
    """Sectors of ``[phase, n]``: the instructions that copy ``n`` rows (0 … group_rows) from address ``phase`` on.

    The rows of one column piece are ascending, disjoint byte intervals. An interval from sector f to sector l has
    l - f + 1 sectors, and shares one with the interval before it exactly if that one ends in sector f.
    """
    table = np.zeros((SECTOR_BYTES, group_rows + 1), np.int64)
    address = np.arange(SECTOR_BYTES)[:, None] + pitch_bytes * np.arange(group_rows)
    for column in range(0, row_bytes, column_bytes):
        width = min(column_bytes, row_bytes - column)
        first = (address + column) // SECTOR_BYTES
        last = (address + column + width - 1) // SECTOR_BYTES
        sectors = last - first + 1
        sectors[:, 1:] -= first[:, 1:] == last[:, :-1]
        table[:, 1:] += sectors.cumsum(axis=1)
    table.setflags(write=False)
    return table


def copy_sectors(
    phase: npt.ArrayLike,
    rows: npt.ArrayLike,
    *,
    row_bytes: int,
    pitch_bytes: int,
    group_rows: int,
    column_bytes: int,
) -> IntArray:
    """Sectors asked for by the instructions that copy the first ``rows`` rows of a matrix.

    Parameters
    ----------
    phase : array_like of int
        Address of the first row modulo 32; broadcast with ``rows``.
    rows : array_like of int
        Rows that are copied, at least 0; the last piece may be cut short.
    row_bytes : int
        Bytes that are copied of each row.
    pitch_bytes : int
        Bytes from row to row, at least ``row_bytes`` (rows must not overlap).
    group_rows : int
        Rows that one instruction covers.
    column_bytes : int
        Bytes of each row that one instruction covers.

    Returns
    -------
    ndarray of int64
        Sectors, for each (phase, rows).

    Examples
    --------
    Two rows of 80 bytes, 80 bytes apart, by one instruction: 160 bytes are 5 sectors. One row per instruction takes
    3 + 3, because both ask for the sector in the middle:

    >>> int(copy_sectors(0, 2, row_bytes=80, pitch_bytes=80, group_rows=2, column_bytes=128))
    5
    >>> int(copy_sectors(0, 2, row_bytes=80, pitch_bytes=80, group_rows=1, column_bytes=128))
    6
    """
    table = _piece_table(row_bytes, pitch_bytes, group_rows, column_bytes)
    pieces, tail = np.divmod(np.asarray(rows, np.int64), group_rows)
    start = np.asarray(phase, np.int64)
    step = group_rows * pitch_bytes % SECTOR_BYTES
    period = SECTOR_BYTES // math.gcd(step, SECTOR_BYTES)
    total = table[(start + pieces * step) % SECTOR_BYTES, tail]
    for k in range(period):  # whole pieces k, k + period, k + 2·period, ... start at the same phase
        total = total + table[(start + k * step) % SECTOR_BYTES, group_rows] * ((pieces - k + period - 1) // period)
    return np.asarray(total, np.int64)


def slice_phases(buffer: Buffer, first_row: int = 0) -> tuple[IntArray, IntArray]:
    """Alignment classes of a buffer's (batch, head) slices.

    Parameters
    ----------
    buffer : Buffer
        Its first three axes are batch, head and row; its base address is a multiple of 256.
    first_row : int
        Row that a slice begins with: that of a sequence, in packed tensors.

    Returns
    -------
    phases, counts : ndarray of int64
        The slices' start addresses modulo 32 that occur, and how many slices have each.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    counts = np.zeros(SECTOR_BYTES, np.int64)
    counts[first_row * buffer.strides[2] * itemsize % SECTOR_BYTES] = 1
    for size, stride in zip(buffer.shape[:2], buffer.strides[:2], strict=True):
        # Places k, k + 32, k + 64, ... along the axis start at the same phase.
        place = np.arange(min(size, SECTOR_BYTES), dtype=np.int64)
        step, times = place * (stride * itemsize % SECTOR_BYTES), (size - 1 - place) // SECTOR_BYTES + 1
        moved = np.zeros_like(counts)
        for phase in np.flatnonzero(counts):
            np.add.at(moved, (phase + step) % SECTOR_BYTES, counts[phase] * times)
        counts = moved
    phases = np.flatnonzero(counts)
    return phases.astype(np.int64), counts[phases]
