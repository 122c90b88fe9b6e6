"""Sectors of whole tensors: what the instructions of all (batch, head) slices ask for, from one slice's derivation."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from fa_bench.algorithms.base import ELEMENT_BYTES, SECTOR_BYTES, Buffer
from fa_bench.algorithms.reach import ONCE, UNIT_ROWS, Reach
from fa_bench.algorithms.sectors import IntArray, copy_sectors, slice_phases
from fa_bench.algorithms.tiles import WARP_SIZE, Access


def tensor_sectors(
    buffer: Buffer, access: Access, reach: Reach = ONCE, *, rows: int | None = None, first_row: int = 0
) -> int:
    """Sectors of the rows of ``reach``, Σ over the slices of ``buffer``.

    With σ(n) the sectors of a slice's first n rows: a run that ends at row n and starts at row m has σ(n) - σ(m),
    because blocks begin where an instruction does. 16 rows are whole instructions, and as many bytes modulo 32 as none
    (elements have two bytes at least), so that σ of a multiple of 16 rows is that multiple of σ(16).

    Parameters
    ----------
    buffer : Buffer
        A ``[batch, heads, seq, columns]`` matrix of which whole rows are copied.
    access : Access
        What an instruction covers, counted from the slice's first row and column; its ``group_rows`` divide 16.
    reach : Reach
        All rows, once, by default.
    rows : int, optional
        Rows of a slice; those of ``buffer`` by default.
    first_row : int
        Where a slice begins: a sequence of packed tensors.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    phases, slices = slice_phases(buffer, first_row)

    def copied(n: int) -> IntArray:
        return copy_sectors(
            phases[:, None],
            n,
            row_bytes=buffer.shape[3] * itemsize,
            pitch_bytes=buffer.strides[2] * itemsize,
            group_rows=access.group_rows,
            column_bytes=access.column_bytes,
        )

    sectors = reach.to_end * copied(buffer.shape[2] if rows is None else rows)
    if reach is not ONCE:
        sectors = sectors + reach.inside // UNIT_ROWS * copied(UNIT_ROWS)
    return over_slices(slices, sectors)


def row_vector_sectors(
    buffer: Buffer, warp_rows: int, reach: Reach = ONCE, *, rows: int | None = None, first_row: int = 0
) -> int:
    """Sectors of a ``[batch, heads, seq]`` fp32 vector, summed over its slices and over the rows of ``reach``.

    A warp covers its ``warp_rows`` rows 32 at a time and the rest with its last instruction; warps follow each other
    from a slice's first row on, cut at its last one. Slices start where the one before ends, so anywhere in a sector.

    Parameters
    ----------
    buffer : Buffer
    warp_rows : int
        Consecutive rows that a warp accesses.
    reach : Reach
        All rows, once, by default; else of blocks of ``warp_rows``, which are whole sectors.
    rows : int, optional
        Rows of a slice; those of ``buffer`` by default.
    first_row : int
        Where a slice begins: a sequence of packed tensors.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    phases, slices = slice_phases(buffer, first_row)
    length = np.asarray(buffer.shape[2] if rows is None else rows, np.int64)
    whole, tail = np.divmod(length, warp_rows)
    step = warp_rows * itemsize
    start = phases[:, None]
    sectors = _warp_sectors((start + whole * step) % SECTOR_BYTES, tail)
    period = SECTOR_BYTES // math.gcd(step, SECTOR_BYTES)
    for k in range(period):  # warps k, k + period, ... start at the same phase
        sectors = sectors + _warp_sectors(start + k * step, warp_rows) * ((whole - k + period - 1) // period)
    if reach is not ONCE:
        sectors = reach.to_end * sectors + reach.inside // warp_rows * _warp_sectors(start, warp_rows)
    return over_slices(slices, sectors)


def over_slices(slices: IntArray, sectors: IntArray) -> int:
    """Σ over alignment classes of the slices in each, times the sectors of one.

    Parameters
    ----------
    slices : ndarray of int64
        ``[phase]``, or ``[phase, case]``.
    sectors : ndarray of int64
        ``[phase, 1]``, or ``[phase, case]``.
    """
    if slices.ndim == 1:
        # In Python's integers: a slice of the longest sequence fits 64 bits, all slices together may not.
        return sum(int(n) * int(count) for n, (count,) in zip(slices, sectors, strict=True))
    total: Any = (slices * sectors).sum(axis=0)
    return cast(int, total)


def _warp_sectors(address: IntArray, rows: int | IntArray) -> IntArray:
    """Sectors of a warp that accesses ``rows`` floats from each ``address`` on, 32 at a time.

    32 floats are four sectors, and a fifth where they start within one.
    """
    itemsize = ELEMENT_BYTES["fp32"]
    within = address % SECTOR_BYTES
    whole, rest = np.divmod(rows, WARP_SIZE)
    full = WARP_SIZE * itemsize // SECTOR_BYTES + (within > 0)
    cut = np.where(rest > 0, (within + rest * itemsize - 1) // SECTOR_BYTES + 1, 0)
    return np.asarray(whole * full + cut, np.int64)
