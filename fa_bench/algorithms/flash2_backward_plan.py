"""Tiles of FlashAttention-2's backward kernels: warps, strips, registers and shared memory that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fa_bench.algorithms.reach import Reach, reach
from fa_bench.algorithms.tiles import WARP_SIZE, Access, StreamPlan, row_unit
from fa_bench.sizes import ceil_div

#: Warps of the kernels that go over rows once, and rows of each.
ROW_WARPS: Final = 4
ROW_WARP_ROWS: Final = 32

#: Registers per thread that accumulators may take beside all else without spills, and up to which strips are wide (the
#: atomic kernel needs more beside them). Found by compiling for sm_80, 86, 89 and 90.
_REGISTER_BUDGET: Final = 208
_FP32_REGISTER_BUDGET: Final = 144
_STRIP_BUDGET: Final = 160
_ATOMIC_STRIP_BUDGET: Final = 128


@dataclass(frozen=True, slots=True)
class BackwardPlan(StreamPlan):
    """The numbers of the backward kernels that follow from a case's tile.

    The kernel that owns K/V tiles is called owner here, the one that owns Q tiles is the dQ kernel.

    Parameters
    ----------
    atomic : bool
        The owner also adds up dQ.
    """

    atomic: bool

    @property
    def row_blocks(self) -> int:
        """CTAs per slice of the kernels that go over rows once."""
        return ceil_div(self.case.shape.seq_q, ROW_WARPS * ROW_WARP_ROWS)

    def query_reach(self) -> Reach:
        """Rows of Q that the K/V tiles of a K/V head read, for one query head: whole tiles, from that of the first row
        that sees one of a tile's keys to that of the last."""
        shape, tile = self.case.shape, self.tile
        # Query i sees keys up to i + diagonal + right, so key j is seen from query j - diagonal - right on.
        sides = shape.right, shape.window_left
        return reach(self.kv_tiles, tile.block_n, shape.seq_q, tile.block_m, -shape.diagonal, *sides)

    # --- warps and registers ------------------------------------------------------------------------------------

    @property
    def column_warps(self) -> int:
        """Warps that share rows of K and split the columns of dK and dV, which one thread can't hold for large heads.

        Each of them makes all of S and dP.
        """
        most = 128 if self.atomic else 192
        return 1 if self.case.dtype == "fp32" or self.dim <= most else 2

    def _warps(self, rows: int) -> int:
        unit = row_unit(self.case)
        return next(n for n in (8, 4, 2, 1) if n <= self.tile.num_warps and rows % (n * unit) == 0)

    @property
    def owner_warps(self) -> int:
        """Warps along the rows of K: as many as the tile names, if each gets whole units of them; else fewer."""
        return self._warps(self.tile.block_n)

    @property
    def dq_warps(self) -> int:
        """Warps along the rows of Q of the dQ kernel."""
        return self._warps(self.tile.block_m)

    @property
    def _owner_rows(self) -> int:
        return self.tile.block_n // self.owner_warps

    @property
    def dq_rows(self) -> int:
        """Rows of Q per warp of the dQ kernel."""
        return self.tile.block_m // self.dq_warps

    @property
    def _owner_accumulators(self) -> int:
        return 2 * self._owner_rows * self.dim // self.column_warps // WARP_SIZE

    @property
    def _dq_accumulators(self) -> int:
        return self.dq_rows * self.dim // WARP_SIZE

    @property
    def owner_strip(self) -> int:
        """Queries that the owner takes at a time."""
        budget = _ATOMIC_STRIP_BUDGET if self.atomic else _STRIP_BUDGET
        return _strip(self.tile.block_m, self._owner_rows, self._owner_accumulators, budget)

    @property
    def dq_strip(self) -> int:
        """Keys that the dQ kernel takes at a time."""
        return _strip(self.tile.block_n, self.dq_rows, self._dq_accumulators, _STRIP_BUDGET)

    @property
    def registers(self) -> int:
        """Registers per thread that accumulators take, in the kernel where they are most."""
        owner = self._owner_accumulators + _strip_registers(self._owner_rows, self.owner_strip)
        dq = self._dq_accumulators + _strip_registers(self.dq_rows, self.dq_strip)
        return owner if self.atomic else max(owner, dq)

    @property
    def spills(self) -> bool:
        """Whether that is more than a thread holds beside all else."""
        return self.registers > (_FP32_REGISTER_BUDGET if self.case.dtype == "fp32" else _REGISTER_BUDGET)

    # --- what instructions and CTAs hold ------------------------------------------------------------------------

    @property
    def convert(self) -> tuple[Access, Access]:
        """What an instruction of the last atomic kernel covers of dQ and of dQ_acc: four elements per lane."""
        quads = self.dim // 4
        columns = min(quads & -quads, WARP_SIZE)
        rows = WARP_SIZE // columns
        return Access(rows, columns * 4 * self.case.itemsize), Access(rows, columns * 16)

    @property
    def owner_smem_bytes(self) -> int:
        """Tiles of K and V; ``stages`` of Q and dO, and of LSE and delta; with atomics one of dSᵀ.

        In fp32 rows of dSᵀ are 8 floats longer, so that they start in different banks.
        """
        tile, itemsize = self.tile, self.case.itemsize
        rows = tile.block_n + tile.stages * tile.block_m
        pitch = tile.block_m + (8 if self.case.dtype == "fp32" else 0)
        ds = tile.block_n * pitch * itemsize if self.atomic else 0
        return 2 * rows * self.dim * itemsize + 2 * tile.stages * tile.block_m * 4 + ds

    @property
    def dq_smem_bytes(self) -> int:
        """Tiles of Q and dO, and ``stages`` tiles of K and V."""
        return 2 * (self.tile.block_m + self.tile.stages * self.tile.block_n) * self.dim * self.case.itemsize

    @property
    def smem_bytes(self) -> int:
        """Shared memory of the kernel that takes most."""
        return self.owner_smem_bytes if self.atomic else max(self.owner_smem_bytes, self.dq_smem_bytes)


def _strip(block: int, rows: int, accumulators: int, budget: int) -> int:
    """Columns of S and dP that a warp of ``rows`` rows makes at a time: a divisor of ``block``.

    S and dP of a whole tile would take the registers that dK, dV and dQ need. With 32 columns fragments of the kept
    operand serve twice as many products as with 16, which are for large heads.
    """
    fits = accumulators + _strip_registers(rows, 32) <= budget
    return 32 if block % 32 == 0 and fits else 16


def _strip_registers(rows: int, strip: int) -> int:
    return 2 * rows * strip // WARP_SIZE
