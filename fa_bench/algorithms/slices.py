"""Sectors of whole tensors: what the instructions of all (batch, head) slices ask for, from one slice's derivation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fa_bench.algorithms.base import ELEMENT_BYTES, SECTOR_BYTES, Buffer
from fa_bench.algorithms.sectors import copy_sectors, slice_phases
from fa_bench.algorithms.tiles import WARP_SIZE, Access


def tensor_sectors(buffer: Buffer, access: Access, rows: npt.ArrayLike | None = None) -> int:
    """Σ over the slices of ``buffer`` and over ``rows`` of σ(rows), the sectors of a slice's first ``rows`` rows.

    Parameters
    ----------
    buffer : Buffer
        A ``[batch, heads, seq, columns]`` matrix of which whole rows are copied.
    access : Access
        What an instruction covers, counted from the slice's first row and column.
    rows : array_like of int, optional
        All rows, once, by default.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    phases, slices = slice_phases(buffer)
    sizes, times = np.unique(buffer.shape[2] if rows is None else rows, return_counts=True)
    sectors = copy_sectors(
        phases[:, None],
        sizes,
        row_bytes=buffer.shape[3] * itemsize,
        pitch_bytes=buffer.strides[2] * itemsize,
        group_rows=access.group_rows,
        column_bytes=access.column_bytes,
    )
    return int(slices @ sectors @ times)


def row_vector_sectors(buffer: Buffer, warp_rows: int) -> int:
    """Sectors of a ``[batch, heads, seq]`` fp32 vector when each warp accesses its own ``warp_rows`` rows once.

    A warp covers its rows 32 at a time and the rest with its last instruction; warps follow each other from a slice's
    first row on, cut at ``seq``. Slices start where the one before ends, so anywhere in a sector.
    """
    seq = buffer.shape[2]
    warps = np.arange(0, seq, warp_rows)[:, None]
    first = warps + np.arange(0, warp_rows, WARP_SIZE)
    end = np.minimum(np.minimum(first + WARP_SIZE, warps + warp_rows), seq)
    first, end = first[first < seq], end[first < seq]
    itemsize = ELEMENT_BYTES[buffer.dtype]
    phases, slices = slice_phases(buffer)
    address = phases[:, None]
    last_sector = (address + end * itemsize - 1) // SECTOR_BYTES
    sectors = last_sector - (address + first * itemsize) // SECTOR_BYTES + 1
    return int(slices @ sectors.sum(axis=1))
