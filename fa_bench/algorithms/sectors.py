"""How many 32-byte sectors warp instructions ask for when they copy rows: exact, for any alignment.

A warp instruction asks for each sector that it touches once, however many of its lanes touch it; the next
instruction asks again. Kernels copy matrices row by row: one instruction covers ``group_rows`` consecutive rows of at
most ``column_bytes`` bytes each, and a matrix is cut into such pieces from its first row and its first column on.

Rows need not start on a sector (fp16 with head_dim 40 has rows of 80 bytes). Only the start address modulo 32, the
*phase*, matters, and the phases of successive pieces repeat after at most 32 pieces: counts are sums over phases, not
over rows.

Sizes may be arrays with one element for each case (:mod:`fa_bench.sizes`). Phases are then an axis before that one.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Final

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
    row_bytes: npt.ArrayLike,
    pitch_bytes: npt.ArrayLike,
    group_rows: int,
    column_bytes: int,
) -> IntArray:
    """Sectors asked for by the instructions that copy the first ``rows`` rows of a matrix.

    Parameters
    ----------
    phase : array_like of int
        Address of the first row modulo 32; broadcast with ``rows``, ``row_bytes`` and ``pitch_bytes``.
    rows : array_like of int
        Rows that are copied, at least 0; the last piece may be cut short.
    row_bytes : array_like of int
        Bytes that are copied of each row.
    pitch_bytes : array_like of int
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
    start, count, width, pitch = (np.asarray(given, np.int64) for given in (phase, rows, row_bytes, pitch_bytes))
    # A gap of a whole sector or more between rows is as good as one.
    gap = pitch - width
    kinds = width * _GAPS + np.where(gap < SECTOR_BYTES, gap, SECTOR_BYTES + gap % SECTOR_BYTES)

    def copied(kind: int, start: IntArray, count: IntArray) -> IntArray:
        width, gap = divmod(kind, _GAPS)
        return _copied(start, count, width, width + gap, group_rows, column_bytes)

    if not kinds.ndim:
        return copied(int(kinds), start, count)
    start, count, kinds = np.broadcast_arrays(start, count, kinds)
    sectors = np.empty(kinds.shape, np.int64)
    first = int(kinds.min())
    for kind in np.flatnonzero(np.bincount((kinds - first).ravel())).tolist():
        here = kinds == first + kind
        sectors[here] = copied(first + kind, start[here], count[here])
    return sectors


#: Gaps between rows that matter.
_GAPS: Final = 2 * SECTOR_BYTES


def _copied(
    start: IntArray, rows: IntArray, row_bytes: int, pitch_bytes: int, group_rows: int, column_bytes: int
) -> IntArray:
    """`copy_sectors` of rows of one kind."""
    table = _piece_table(row_bytes, pitch_bytes, group_rows, column_bytes)
    pieces, tail = np.divmod(rows, group_rows)
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
    phases : ndarray of int64
        The slices' start addresses modulo 32 that occur.
    counts : ndarray of int64
        How many slices have each; ``[phase, case]`` where sizes are arrays.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    (batch, heads, *_), (batch_step, head_step, row_step, *_) = buffer.shape, (n * itemsize for n in buffer.strides)
    unit = _common_power(batch_step, head_step, first_row * row_step)
    classes = SECTOR_BYTES // unit
    within = np.arange(classes)
    if np.array_equal(heads * head_step, batch_step):  # slices follow each other
        counts = _progression(batch * heads, head_step // unit, classes)
    else:
        by_head = _progression(heads, head_step // unit, classes)
        by_batch = _progression(batch, batch_step // unit, classes)
        counts = sum((by_head[(within - k) % classes] * by_batch[k] for k in range(classes)), np.zeros_like(by_head))
    if first_row:
        counts = counts[(within - first_row * row_step // unit) % classes]
    occur = np.flatnonzero(counts.reshape(classes, -1).any(axis=1))
    return occur * unit, counts[occur]


def _common_power(*steps: int) -> int:
    """The largest power of two, up to a sector, that divides all of ``steps``."""
    bits = SECTOR_BYTES
    for step in steps:
        bits |= int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(step % SECTOR_BYTES, np.int64))))
    return bits & -bits


def _progression(size: int, step: int, classes: int) -> IntArray:
    """How many of 0, step, 2·step, ... (``size`` terms) are 0, 1, ... modulo ``classes``, a power of two."""
    terms, stride = np.broadcast_arrays(size, step % classes)
    first, shift = (table[..., stride] for table in _first_terms(classes))
    # Terms first, first + period, first + 2 period, ... are alike.
    return np.asarray(np.where(first < classes, ((terms - 1 - first) >> shift) + 1, 0), np.int64)


@functools.cache
def _first_terms(classes: int) -> tuple[IntArray, IntArray]:
    """Of ``i · step`` modulo ``classes``, by step: the first i that gives a class, ``[class, step]``, and the period.

    The period is a power of two, whose exponent is given. ``classes`` stands for a class that no term gives.
    """
    first = np.full((classes, classes), classes, np.int64)
    for i, step in itertools.product(range(classes - 1, -1, -1), range(classes)):
        first[i * step % classes, step] = i
    periods = (classes // math.gcd(step, classes) for step in range(classes))
    return first, np.array([period.bit_length() - 1 for period in periods], np.int64)
