"""What all rooms say about tiles: what a warp copies of them, why one does not fit, which would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fa_bench.algorithms.base import Program
from fa_bench.algorithms.reach import Reach, reach
from fa_bench.algorithms.tensors import padded_head_dim
from fa_bench.cases import Case, Tile
from fa_bench.errors import UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.sizes import ceil_div
from fa_bench.units import format_bytes

CHUNK_BYTES: Final = 16
WARP_SIZE: Final = 32

#: Registers per thread that accumulators may take beside all else without spills (found by compiling; a kernel with
#: less beside them has room for more), and beyond which the accumulators alone can't stay in a thread's 255.
REGISTER_BUDGET: Final = 176
REGISTER_LIMIT: Final = 232

#: The longest side of a tile in an algorithm's list that depends on lengths.
_LONGEST_SIDE: Final = 128

#: CTAs of a grid's x axis.
GRID_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Access:
    """What one warp instruction covers of a matrix: consecutive rows, and bytes of each."""

    group_rows: int
    column_bytes: int


#: fp32 stores of O from registers: 4 rows of 8 chunks.
FP32_STORE: Final = Access(4, 8 * CHUNK_BYTES)


def copy_access(tile_row_bytes: int) -> Access:
    """What a warp instruction covers of a tile that is copied through ``CopyMap`` of ``tile.cuh``."""
    chunks = tile_row_bytes // CHUNK_BYTES
    columns = min(chunks & -chunks, WARP_SIZE)
    return Access(WARP_SIZE // columns, columns * CHUNK_BYTES)


def row_sizes(case: Case, program: Program) -> str:
    """One line for ``explain``: how long rows of Q, K, V and O are and how far apart."""
    q, k = (program.buffer(name).strides[2] * case.itemsize for name in ("Q", "K"))
    row = f"{case.shape.head_dim} x {case.itemsize} = {case.shape.head_dim * case.itemsize}"
    return f"Rows are {row} bytes, {q} (Q, O) and {k} (K, V) bytes apart."


def resolved_tile(case: Case) -> Tile:
    """The case's tile, which must name its warps.

    Raises
    ------
    ValueError
        If the case has no tile or one that no algorithm has resolved.
    """
    if case.tile is None or not case.tile.num_warps:
        raise ValueError(f"{case.impl} needs a case with a resolved tile")
    return case.tile


def row_unit(case: Case) -> int:
    """Rows of Q that a warp owns come in multiples of this: mma tiles, or the four lane rows of fp32 kernels."""
    return 4 if case.dtype == "fp32" else 16


def covering_power(size: int) -> int:
    """The smallest power of two, at least 16, that is not below ``size``: a larger tile would be half empty."""
    return max(16, 1 << (size - 1).bit_length())


def length_kind(seq: int) -> int:
    """What a default tile may ask of a length: lengths of a kind have the same one."""
    return min(covering_power(seq), _LONGEST_SIDE)


def default_stages(case: Case) -> int:
    """Depth of the K/V buffering: a second buffer where it costs neither a CTA per SM nor registers of accumulators."""
    return 2 if case.dtype != "fp32" and padded_head_dim(case.shape.head_dim) <= 64 else 1


def preferred_tile(smem_bytes: Mapping[Tile, int], gpu: Gpu) -> Tile:
    """The first of some tiles, best first, that fits; or one of at least half its area that keeps eight warps on an SM.

    The last one where none fits.

    Parameters
    ----------
    smem_bytes : mapping of Tile to int
        Shared memory of one CTA in bytes.
    """
    tiles = list(smem_bytes)
    fitting = [tile for tile in tiles if smem_bytes[tile] <= gpu.smem_per_block_bytes] or tiles[-1:]
    first = fitting[0]
    for tile in fitting:
        # The driver keeps 1 KiB of shared memory per CTA.
        warps = gpu.smem_per_sm_bytes // (smem_bytes[tile] + 1024) * tile.num_warps
        if warps >= 8 and 2 * tile.block_m * tile.block_n >= first.block_m * first.block_n:
            return tile
    return first


def resolve_warps(case: Case, tile: Tile, registers: Callable[[int], int], budget: int = REGISTER_BUDGET) -> int:
    """Warps for ``tile``: four if each then has whole mma rows that fit its registers, else more, else fewer.

    Parameters
    ----------
    registers : callable
        Registers per thread that accumulators take, for a number of warps.
    budget : int
        How many of them the algorithm's kernels hold without spills.

    Raises
    ------
    UsageError
        If the tile names a number of warps that does not divide its rows.
    """
    legal = [warps for warps in (4, 8, 2, 1) if tile.block_m % (row_unit(case) * warps) == 0]
    if tile.num_warps:
        if tile.num_warps not in legal:
            raise UsageError(
                f"{case.impl} gives each warp a multiple of {row_unit(case)} rows of Q: "
                f"{tile.block_m} rows don't divide among {tile.num_warps} warps.",
                hint=f"num_warps can be {', '.join(map(str, sorted(legal)))} here.",
            )
        return tile.num_warps
    fitting = [warps for warps in legal if registers(warps) <= budget]
    return fitting[0] if fitting else max(legal)


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The numbers of a case that follow from its tile: what the kernels call by the same names."""

    case: Case
    tile: Tile

    @property
    def dim(self) -> int:
        """head_dim of the tile in shared memory."""
        return padded_head_dim(self.case.shape.head_dim)

    @property
    def dim_v(self) -> int:
        """The same of V and O."""
        return padded_head_dim(self.case.shape.dim_v)

    @property
    def q_blocks(self) -> int:
        """Q tiles of a slice."""
        return ceil_div(self.case.shape.seq_q, self.tile.block_m)

    @property
    def kv_tiles(self) -> int:
        """K/V tiles of a K/V head."""
        return ceil_div(self.case.shape.seq_kv, self.tile.block_n)

    @property
    def warp_rows(self) -> int:
        """Consecutive rows of Q that a warp owns, and with them those of LSE, l and m."""
        return self.tile.block_m // self.tile.num_warps

    @property
    def copy(self) -> Access:
        """What an instruction covers of Q, K and V."""
        return copy_access(self.dim * self.case.itemsize)

    @property
    def v_copy(self) -> Access:
        """What an instruction covers of V, where it has columns of its own number."""
        return copy_access(self.dim_v * self.case.itemsize)

    @property
    def store(self) -> Access:
        """The same for O of as many columns as Q."""
        return FP32_STORE if self.case.dtype == "fp32" else self.copy


@dataclass(frozen=True, slots=True)
class StreamPlan(TilePlan):
    """The plan of a kernel that owns a Q tile and streams past it what K/V tiles its mask and window reach.

    `key_reach` is what all tiles together read; `q_rows`, `kv_blocks` and `kv_range` say it tile by tile, for one case.
    """

    def key_reach(self) -> Reach:
        """Rows of K and V that the Q tiles of a slice read."""
        shape, tile = self.case.shape, self.tile
        sides = shape.window_left, shape.right
        return reach(self.q_blocks, tile.block_m, shape.seq_kv, tile.block_n, shape.diagonal, *sides)

    def q_rows(self) -> npt.NDArray[np.int64]:
        """Rows of each Q tile."""
        first = np.arange(self.q_blocks, dtype=np.int64) * self.tile.block_m
        return np.minimum(self.tile.block_m, self.case.shape.seq_q - first)

    def kv_blocks(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First K/V tile that each Q tile visits, and the first one behind it that it does not."""
        shape, n = self.case.shape, self.tile.block_n
        first_row = np.arange(self.q_blocks, dtype=np.int64) * self.tile.block_m
        here = first_row + shape.diagonal
        visible = np.full_like(here, shape.seq_kv)
        if shape.right is not None:
            visible = np.clip(here + self.q_rows() + shape.right, 0, shape.seq_kv)
        end = -(-visible // n)
        first = np.zeros_like(end)
        if shape.window_left is not None:
            first = np.maximum(0, here - shape.window_left) // n
        return np.minimum(first, end), end

    def kv_range(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of K and V that each Q tile reads, from and to."""
        n, keys = self.tile.block_n, self.case.shape.seq_kv
        first, end = self.kv_blocks()
        return np.minimum(first * n, keys), np.minimum(end * n, keys)


def flash_registers(case: Case, tile: Tile, warps: int) -> int:
    """Registers per thread for the accumulators of S and O, and for the fp32 kernels' Q micro-tile."""
    rows = tile.block_m // warps
    accumulators = rows * (tile.block_n + padded_head_dim(case.shape.head_dim)) // WARP_SIZE
    return accumulators + (rows if case.dtype == "fp32" else 0)


def refusal(
    case: Case, gpu: Gpu, smem: Callable[[Tile], int], registers: int, *, with_stages: bool = True
) -> str | None:
    """Why no kernel of ``case`` can run on ``gpu``, or None.

    Parameters
    ----------
    smem : callable
        Shared memory of one CTA in bytes, for a tile.
    registers : int
        Registers per thread that the case's accumulators take.
    with_stages : bool
        Whether the algorithm buffers K/V in stages, so that they are worth naming.
    """
    tile = resolved_tile(case)
    if gpu.compute_capability < (8, 0):
        major, minor = gpu.compute_capability
        return (
            f"{case.impl} needs cp.async and mma.m16n8k16, so compute capability 8.0; {gpu.name} has {major}.{minor}."
        )
    needed, limit = smem(tile), gpu.smem_per_block_bytes
    if needed > limit:
        stages = f" with {_stages(tile.stages)}" if with_stages else ""
        return (
            f"Tile {tile}{stages} needs {format_bytes(needed)} of shared memory per block, "
            f"{gpu.name} has {format_bytes(limit)}; {_largest(tile, limit, smem, with_stages)}."
        )
    if registers > REGISTER_LIMIT:
        return (
            f"Tile {tile} with {tile.num_warps} warps needs {registers} registers per thread for accumulators "
            f"alone, of 255; use fewer rows, or a multiple of {row_unit(case) * 8} so that 8 warps share them."
        )
    return None


def grid_refusal(program: Program) -> str | None:
    """Why no GPU can launch ``program``, or None: all CTAs lie along x, which has a limit of its own."""
    for launch in program.launches:
        if launch.grid[0] > GRID_LIMIT:
            return f"{launch.kernel.entry} needs {launch.grid[0]} CTAs, a grid holds {GRID_LIMIT}; use a larger tile."
    return None


def _largest(tile: Tile, limit: int, smem: Callable[[Tile], int], with_stages: bool) -> str:
    """The largest tile, none of its sides longer than the one refused, that fits ``limit`` bytes, in words."""
    for stages in range(tile.stages, 0, -1):
        fitting = [t for t in _smaller(tile, stages) if smem(t) <= limit]
        if fitting:
            best = max(fitting, key=lambda t: (t.block_m * t.block_n, t.block_m))
            named = f"{best} with {_stages(stages)}" if with_stages else f"{best}"
            return f"the largest that fits is {named} ({format_bytes(smem(best))})"
    return "no smaller tile fits"


def _smaller(tile: Tile, stages: int) -> Iterator[Tile]:
    for block_m in range(16, tile.block_m + 1, 16):
        for block_n in range(16, tile.block_n + 1, 16):
            yield Tile(block_m, block_n, stages)


def _stages(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"
