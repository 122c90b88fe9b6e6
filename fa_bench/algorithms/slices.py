"""Sectors of whole tensors: what the instructions of all (batch, head) slices ask for, from one slice's derivation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fa_bench.algorithms.base import ELEMENT_BYTES, SECTOR_BYTES, Buffer
from fa_bench.algorithms.sectors import IntArray, copy_sectors, slice_phases
from fa_bench.algorithms.tiles import WARP_SIZE, Access


def tensor_sectors(buffer: Buffer, access: Access, rows: npt.ArrayLike | None = None, first_row: int = 0) -> int:
    """Σ over the slices of ``buffer`` and over ``rows`` of σ(rows), the sectors of a slice's first ``rows`` rows.

    Parameters
    ----------
    buffer : Buffer
        A ``[batch, heads, seq, columns]`` matrix of which whole rows are copied.
    access : Access
        What an instruction covers, counted from the slice's first row and column.
    rows : array_like of int, optional
        All rows, once, by default.
    first_row : int
        Where a slice begins: a sequence of packed tensors.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    phases, slices = slice_phases(buffer, first_row)
    sizes, times = np.unique(buffer.shape[2] if rows is None else rows, return_counts=True)
    sectors = copy_sectors(
        phases[:, None],
        sizes,
        row_bytes=buffer.shape[3] * itemsize,
        pitch_bytes=buffer.strides[2] * itemsize,
        group_rows=access.group_rows,
        column_bytes=access.column_bytes,
    )
    # In Python's integers: a slice of the longest sequence fits 64 bits, all slices together may not.
    return sum(int(n) * int(count) for n, count in zip(slices, sectors @ times, strict=True))


def row_vector_sectors(buffer: Buffer, warp_rows: int, rows: npt.ArrayLike | None = None, first_row: int = 0) -> int:
    """Sectors of a ``[batch, heads, seq]`` fp32 vector, summed over its slices and over ``rows``.

    A warp covers its ``warp_rows`` rows 32 at a time and the rest with its last instruction; warps follow each other
    from a slice's first row on, cut at a slice's first ``rows`` rows. Slices start where the one before ends, so
    anywhere in a sector.

    Parameters
    ----------
    buffer : Buffer
    warp_rows : int
        Consecutive rows that a warp accesses.
    rows : array_like of int, optional
        All rows, once, by default.
    first_row : int
        Where a slice begins: a sequence of packed tensors.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    phases, slices = slice_phases(buffer, first_row)
    sizes, times = np.unique(buffer.shape[2] if rows is None else rows, return_counts=True)
    whole, tail = np.divmod(sizes, warp_rows)
    step = warp_rows * itemsize
    sectors = np.zeros((len(phases), len(sizes)), np.int64)
    for n in np.unique(tail):
        cut = tail == n
        sectors[:, cut] = _warp_sectors((phases[:, None] + whole[cut] * step) % SECTOR_BYTES, int(n))
    for k in range(period := SECTOR_BYTES // itemsize):  # warps k, k + period, ... start at the same phase
        sectors += _warp_sectors(phases + k * step, warp_rows)[:, None] * ((whole - k + period - 1) // period)
    return sum(int(n) * int(count) for n, count in zip(slices, sectors @ times, strict=True))


def _warp_sectors(address: IntArray, rows: int) -> IntArray:
    """Sectors of a warp that accesses ``rows`` floats from each ``address`` on, 32 at a time."""
    first = np.arange(0, rows, WARP_SIZE)
    end = np.minimum(first + WARP_SIZE, rows)
    itemsize = ELEMENT_BYTES["fp32"]
    last_sector = (address[..., None] + end * itemsize - 1) // SECTOR_BYTES
    touched = last_sector - (address[..., None] + first * itemsize) // SECTOR_BYTES + 1
    return np.asarray(touched.sum(axis=-1), np.int64)
