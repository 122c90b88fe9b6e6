"""What both passes of standard attention share: its square matrices, how rows of them are shared out, shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fa_bench.algorithms.base import SECTOR_BYTES, Buffer, KernelSpec
from fa_bench.algorithms.tiles import CHUNK_BYTES, FP32_STORE, WARP_SIZE, Access, TilePlan
from fa_bench.sizes import ceil_div, covering_power_up_to, is_array

#: Rows of S, P, dP and dS start at multiples of this many elements.
PITCH_ELEMENTS: Final = 64

#: Warps of the kernels that go over rows of the square matrices.
ROW_WARPS: Final = 8
#: Elements of a row that a lane of such a kernel keeps in registers at most.
_LANE_ELEMENTS: Final = 64


@dataclass(frozen=True, slots=True)
class RowSplit:
    """How a kernel shares out a row of a square matrix; names as in ``softmax.cu``."""

    warps_per_row: int
    chunks: int
    #: Elements of a row that its lanes hold at a time, and how many such segments the row has.
    segment: int
    segments: int

    @property
    def rows(self) -> int:
        """Rows per CTA."""
        return ROW_WARPS // self.warps_per_row

    @property
    def reread(self) -> int:
        """Elements of a row that are read once more, all segments but the last."""
        return (self.segments - 1) * self.segment

    @property
    def defines(self) -> dict[str, int]:
        """What the kernels are compiled with."""
        return {"NUM_WARPS": ROW_WARPS, "WARPS_PER_ROW": self.warps_per_row, "CHUNKS": self.chunks}


@dataclass(frozen=True, slots=True)
class Plan(TilePlan):
    """The numbers of standard attention that follow from a case's tile."""

    @property
    def pitch(self) -> int:
        """Elements from row to row of S and P."""
        return ceil_div(self.case.shape.seq_kv, PITCH_ELEMENTS) * PITCH_ELEMENTS

    @property
    def row_sectors(self) -> int:
        """Sectors of a row of S or P: rows start on a sector and are read and written in whole chunks."""
        return ceil_div(self.case.shape.seq_kv * self.case.itemsize, SECTOR_BYTES)

    @property
    def split(self) -> RowSplit:
        """As few warps per row as can hold it; chunks per lane in powers of two, so that lengths share kernels."""
        chunk_elements = CHUNK_BYTES // self.case.itemsize
        per_lane = ceil_div(ceil_div(self.case.shape.seq_kv, chunk_elements), WARP_SIZE)
        most = _LANE_ELEMENTS // chunk_elements
        chunks = covering_power_up_to(per_lane, most)
        warps = covering_power_up_to(ceil_div(per_lane, most), ROW_WARPS)
        segment = warps * chunks * WARP_SIZE * chunk_elements
        return RowSplit(warps, chunks, segment, ceil_div(self.case.shape.seq_kv, segment))

    @property
    def row_blocks(self) -> int:
        """CTAs per slice of a kernel that goes over rows of the square matrices."""
        return ceil_div(self.case.shape.seq_q, self.split.rows)

    @property
    def matrix_sectors(self) -> int:
        """Sectors of a square matrix of all slices: one pass over it."""
        return self.case.shape.slices * self.case.shape.seq_q * self.row_sectors

    @property
    def reread_sectors(self) -> int:
        """Sectors of a square matrix that a kernel which goes over rows reads once more."""
        return self.case.shape.slices * self.case.shape.seq_q * (self.split.reread * self.case.itemsize // SECTOR_BYTES)

    def matrix(self, name: str) -> Buffer:
        """A ``[batch, heads_q, seq_q, pitch]`` workspace."""
        shape = self.case.shape
        dims = (shape.batch, shape.heads_q, shape.seq_q, self.pitch)
        strides = (shape.heads_q * shape.seq_q * self.pitch, shape.seq_q * self.pitch, self.pitch, 1)
        return Buffer(name, self.case.dtype, dims, strides, "workspace")

    @property
    def o_store(self) -> Access:
        """The same for O."""
        return FP32_STORE if self.case.dtype == "fp32" else self.v_copy

    @property
    def matrix_tile_bytes(self) -> int:
        """Shared memory of a tile of a square matrix: the swizzle wants rows of a multiple of 64 bytes."""
        return self.tile.block_m * ceil_div(self.tile.block_n * self.case.itemsize, 64) * 64

    @property
    def square_smem_bytes(self) -> int:
        """What makes a tile of S from Q and K, or of dP from dO and V; the 16-bit kernels stage it in their place."""
        operands = (self.tile.block_m + self.tile.block_n) * self.dim * self.case.itemsize
        return max(operands, 0 if self.case.dtype == "fp32" else self.matrix_tile_bytes)

    @property
    def rows_smem_bytes(self) -> int:
        """``stages`` tiles of P and V, or of dS and K; the 16-bit kernels stage O or dQ in their place."""
        row = self.dim_v * self.case.itemsize
        staged = 0 if self.case.dtype == "fp32" else self.tile.block_m * row
        return max(self.tile.stages * (self.matrix_tile_bytes + self.tile.block_n * row), staged)


def spec(stem: str, entry: str, defines: Mapping[str, int | str]) -> KernelSpec:
    """The kernel ``entry`` of ``kernels/standard``; what differs among the cases of a grid has no text."""
    texts = ((name, "" if is_array(value) else str(value)) for name, value in defines.items())
    return KernelSpec(f"standard/{stem}.cu", entry, tuple(texts))
