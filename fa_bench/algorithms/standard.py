"""Standard attention: S = Q·Kᵀ, P = softmax(S), O = P·V as three kernels with S and P in HBM (``kernels/standard``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fa_bench.algorithms.base import (
    SECTOR_BYTES,
    Buffer,
    KernelSpec,
    Launch,
    Op,
    Program,
    Role,
    Scalar,
    TensorBytes,
    Work,
)
from fa_bench.algorithms.slices import tensor_sectors
from fa_bench.algorithms.tensors import ELEMENT_DEFINES, padded_head_dim, qkvo, row_vector, stride_arguments
from fa_bench.algorithms.tiles import (
    CHUNK_BYTES,
    REGISTER_BUDGET,
    WARP_SIZE,
    TilePlan,
    grid_refusal,
    refusal,
    resolve_warps,
    resolved_tile,
    row_sizes,
)
from fa_bench.cases import Case, Tile
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu

SCORES: Final = "standard_scores"
SOFTMAX: Final = "standard_softmax"
PV: Final = "standard_pv"

#: Rows of S and P start at multiples of this many elements.
PITCH_ELEMENTS: Final = 64

_SOFTMAX_WARPS: Final = 8
#: Elements of a row that a lane of the softmax kernel keeps in registers at most.
_SOFTMAX_LANE_ELEMENTS: Final = 64


@dataclass(frozen=True, slots=True)
class _Softmax:
    """How the softmax kernel shares out a row; names as in ``softmax.cu``."""

    warps_per_row: int
    chunks: int
    #: Elements of a row that its lanes hold at a time, and how many such segments the row has.
    segment: int
    segments: int

    @property
    def rows(self) -> int:
        """Rows per CTA."""
        return _SOFTMAX_WARPS // self.warps_per_row


@dataclass(frozen=True, slots=True)
class _Plan(TilePlan):
    @property
    def kv_blocks(self) -> int:
        return math.ceil(self.case.shape.seq_kv / self.tile.block_n)

    @property
    def pitch(self) -> int:
        """Elements from row to row of S and P."""
        return math.ceil(self.case.shape.seq_kv / PITCH_ELEMENTS) * PITCH_ELEMENTS

    @property
    def row_sectors(self) -> int:
        """Sectors of a row of S or P: rows start on a sector and are read and written in whole chunks."""
        return math.ceil(self.case.shape.seq_kv * self.case.itemsize / SECTOR_BYTES)

    @property
    def softmax(self) -> _Softmax:
        """As few warps per row as can hold it; chunks per lane in powers of two, so that lengths share kernels."""
        chunk_elements = CHUNK_BYTES // self.case.itemsize
        row_chunks = math.ceil(self.case.shape.seq_kv / chunk_elements)
        most = _SOFTMAX_LANE_ELEMENTS // chunk_elements
        warps, chunks = 1, 1
        while warps * chunks * WARP_SIZE < row_chunks and (warps < _SOFTMAX_WARPS or chunks < most):
            if chunks < most:
                chunks *= 2
            else:
                warps *= 2
        segment = warps * chunks * WARP_SIZE * chunk_elements
        return _Softmax(warps, chunks, segment, math.ceil(self.case.shape.seq_kv / segment))

    def buffers(self) -> tuple[Buffer, ...]:
        """Q, K, V, O, LSE, S, P."""
        return (*qkvo(self.case), row_vector("LSE", self.case, "output"), self._matrix("S"), self._matrix("P"))

    def _matrix(self, name: str, role: Role = "workspace") -> Buffer:
        shape = self.case.shape
        dims = (shape.batch, shape.heads_q, shape.seq_q, self.pitch)
        strides = (shape.heads_q * shape.seq_q * self.pitch, shape.seq_q * self.pitch, self.pitch, 1)
        return Buffer(name, self.case.dtype, dims, strides, role)


class Standard:
    """Standard attention forward, the Algorithm of the room (see :mod:`fa_bench.algorithms.base`)."""

    name = "standard"
    version = "1"
    summary = "Q·Kᵀ, softmax and P·V as three kernels; S and P go through HBM"
    uses_tile = True

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The first of a list, best first, that keeps eight warps on an SM; else the first that fits.

        Tall and wide tiles re-read Q, K and V less often; two stages hide the loads of P·V where they fit.
        """
        fitting = []
        for tile in self._candidates(case):
            nbytes = _smem_bytes(case, tile)
            if nbytes > gpu.smem_per_block_bytes or _registers(case, tile, tile.num_warps) > REGISTER_BUDGET:
                continue
            fitting.append(tile)
            # The driver keeps 1 KiB of shared memory per CTA.
            if gpu.smem_per_sm_bytes // (nbytes + 1024) * tile.num_warps >= 8:
                return tile
        if not fitting:
            raise Unsupported(f"No tile of standard with head_dim {case.shape.head_dim} fits on {gpu.name}.")
        return fitting[0]

    def _candidates(self, case: Case) -> Iterator[Tile]:
        shape = case.shape
        rows, keys = (max(16, 1 << (size - 1).bit_length()) for size in (shape.seq_q, shape.seq_kv))
        for block_m, block_n in ((128, 128), (128, 64), (64, 64), (64, 32), (32, 32), (16, 32), (16, 16)):
            for stages in (2, 1):
                if block_m <= rows and block_n <= keys:
                    yield self.resolve(case, Tile(block_m, block_n, stages))

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps``, for the kernels of both products."""
        warps = resolve_warps(case, tile, lambda n: _registers(case, tile, n))
        return Tile(tile.block_m, tile.block_n, tile.stages, warps)

    def smem_bytes(self, case: Case) -> int:
        """The larger of what the two products need."""
        return _smem_bytes(case, resolved_tile(case))

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        tile = resolved_tile(case)
        registers = _registers(case, tile, tile.num_warps)
        reason = refusal(case, gpu, lambda other: _smem_bytes(case, other), registers)
        return reason or grid_refusal(self.program(case))

    def program(self, case: Case) -> Program:
        """Buffers and the three launches of ``case``."""
        shape, tile = case.shape, resolved_tile(case)
        plan = _Plan(case, tile)
        buffers = plan.buffers()
        q, k, v, o, *_ = buffers
        suffix = "_fp32" if case.dtype == "fp32" else ""
        products = {
            ELEMENT_DEFINES[case.dtype]: 1,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "DIM": plan.dim,
            "NUM_WARPS": tile.num_warps,
        }
        softmax = {
            ELEMENT_DEFINES[case.dtype]: 1,
            "NUM_WARPS": _SOFTMAX_WARPS,
            "WARPS_PER_ROW": plan.softmax.warps_per_row,
            "CHUNKS": plan.softmax.chunks,
        }
        sizes = (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv, shape.head_dim, plan.pitch)
        tiles, row_blocks = plan.q_blocks * plan.kv_blocks, math.ceil(shape.seq_q / plan.softmax.rows)
        launches = (
            Launch(
                kernel=_spec(f"scores{suffix}", SCORES, {**products, "CAUSAL": int(shape.causal)}),
                grid=(shape.slices * tiles, 1, 1),
                block=(tile.num_warps * WARP_SIZE, 1, 1),
                smem_bytes=_scores_smem_bytes(case, tile),
                args=(
                    *("Q", "K", "S"),
                    *stride_arguments(q, k),
                    *(Scalar("i32", size) for size in sizes),
                    Scalar("f32", 1 / math.sqrt(shape.head_dim)),
                ),
                ctas_per_slice=tiles,
            ),
            Launch(
                kernel=_spec("softmax", SOFTMAX, softmax),
                grid=(shape.slices * row_blocks, 1, 1),
                block=(_SOFTMAX_WARPS * WARP_SIZE, 1, 1),
                smem_bytes=0,
                args=(
                    *("S", "P", "LSE"),
                    *(Scalar("i32", size) for size in (shape.seq_q, shape.seq_kv, plan.pitch)),
                ),
                ctas_per_slice=row_blocks,
            ),
            Launch(
                kernel=_spec(f"pv{suffix}", PV, {**products, "STAGES": tile.stages}),
                grid=(shape.slices * plan.q_blocks, 1, 1),
                block=(tile.num_warps * WARP_SIZE, 1, 1),
                smem_bytes=_pv_smem_bytes(case, tile),
                args=(*("P", "V", "O"), *stride_arguments(v, o), *(Scalar("i32", size) for size in sizes)),
                ctas_per_slice=plan.q_blocks,
            ),
        )
        return Program(buffers, launches)

    def traffic(self, case: Case) -> tuple[TensorBytes, ...]:
        """Exact global traffic in bytes.

        Let σ(n) be the sectors of a slice's first n rows of Q, K, V or O when they are copied through ``CopyMap`` of
        ``tile.cuh`` (:func:`fa_bench.algorithms.sectors.copy_sectors`; fp32 stores of O: 4 rows of 128 bytes per
        instruction), and ρ = ceil(seq_kv · itemsize / 32) those of a row of S or P. Rows of S and P start on a
        sector, because the pitch is 64 elements, and every instruction covers whole sectors of them but for the end
        of the row; the last 16-byte chunk is read and written whole, the rest of the pitch never. With
        Tq = ceil(seq_q / block_m), Tkv = ceil(seq_kv / block_n), per slice:

        * scores: a CTA per tile of S reads its rows of Q and of K: Q is read Tkv times, K Tq times, σ each. All of
          S is written once, under a causal mask too: seq_q · ρ.
        * softmax: S is read once, seq_q · ρ, as long as a row fits the registers of its lanes (16,384 elements);
          of a longer row all segments but the last are read once more, (segments - 1) · segment · itemsize / 32
          sectors. P is written once, seq_q · ρ. LSE: a row's first lane writes its four bytes, one sector per row.
        * P·V: a CTA per block_m rows of O reads its rows of P and all of V: P once, seq_q · ρ; V Tq times σ(seq_kv).
          O is written once, σ(seq_q).

        Query heads that share a K/V head each read it. Where rows start on a sector and sizes are multiples of the
        tile, that is 4 N² elements for S and P, and N² D (1/block_n + 2/block_m) for Q, K and V: the papers'
        Θ(ND + N²), whose constant hides that a matrix product re-reads its operands once per tile.
        """
        return tuple(
            TensorBytes(kernel, tensor, op, sectors * SECTOR_BYTES)
            for (kernel, tensor, op), sectors in _sectors(case).items()
        )

    def work(self, case: Case) -> Work:
        """Whole tiles, padded columns and masked scores included; two FLOPs per product.

        Exponentials, per lane of the softmax kernel: one per element that its registers hold in each pass, one per
        segment to raise the running maximum, one to go from the lane's to the warp's maximum, one per warp of a row
        of several, and one for the factor of the last segment.
        """
        plan = _Plan(case, resolved_tile(case))
        tile, softmax, fp32 = plan.tile, plan.softmax, case.dtype == "fp32"
        tiles = case.shape.slices * plan.q_blocks * plan.kv_blocks
        flops = 2 * tiles * tile.block_m * tile.block_n * plan.dim
        lanes = case.shape.slices * math.ceil(case.shape.seq_q / softmax.rows) * _SOFTMAX_WARPS * WARP_SIZE
        elements = softmax.segment // (softmax.warps_per_row * WARP_SIZE)
        combine = softmax.warps_per_row if softmax.warps_per_row > 1 else 0
        exps = lanes * ((2 * softmax.segments - 1) * elements + softmax.segments + 2 + combine)
        product = (0, flops) if fp32 else (flops, 0)
        return Work(2 * flops, exps, ((SCORES, *product, 0), (SOFTMAX, 0, 0, exps), (PV, *product, 0)))

    def explain(self, case: Case) -> str:
        """The derivation of :meth:`traffic` with the numbers of ``case`` put in."""
        plan = _Plan(case, resolved_tile(case))
        shape, tile, softmax = case.shape, plan.tile, plan.softmax
        per_row = f"{shape.seq_q} rows x {plan.row_sectors} sectors per slice"
        reread = (softmax.segments - 1) * softmax.segment
        again = f", and {reread} elements of each row again" if reread else ""
        derivations = {
            (SCORES, "Q", "read"): f"Σ_slices {plan.kv_blocks}·σ({shape.seq_q})",
            (SCORES, "K", "read"): f"Σ_slices {plan.q_blocks}·σ({shape.seq_kv})",
            (SCORES, "S", "write"): per_row,
            (SOFTMAX, "S", "read"): per_row + again,
            (SOFTMAX, "P", "write"): per_row,
            (SOFTMAX, "LSE", "write"): f"{shape.seq_q} rows x 1 sector per slice",
            (PV, "P", "read"): per_row,
            (PV, "V", "read"): f"Σ_slices {plan.q_blocks}·σ({shape.seq_kv})",
            (PV, "O", "write"): f"Σ_slices σ({shape.seq_q})",
        }
        lines = [
            f"standard, tile {tile}, {tile.num_warps} warps: {plan.q_blocks} x {plan.kv_blocks} tiles of S per slice; "
            f"slices: {shape.slices}.",
            row_sizes(case, self.program(case)),
            f"Rows of S and P: {shape.seq_kv} elements, {plan.pitch} apart: {plan.row_sectors} sectors. In the softmax "
            f"kernel {softmax.warps_per_row * WARP_SIZE} lanes hold {softmax.segment} elements of a row.",
            f"A warp instruction copies {plan.copy.group_rows} rows x {plan.copy.column_bytes} bytes of Q, K or V; "
            "σ(n) = sectors of a slice's first n rows.",
        ]
        for (kernel, tensor, op), n in _sectors(case).items():
            text = derivations[kernel, tensor, op]
            lines.append(f"{kernel:<16} {tensor:<4} {op:<5}  {text} = {n} sectors = {n * SECTOR_BYTES} bytes")
        return "\n".join(lines)


def _spec(stem: str, entry: str, defines: dict[str, int]) -> KernelSpec:
    return KernelSpec(f"standard/{stem}.cu", entry, tuple((name, str(value)) for name, value in defines.items()))


def _tile_row_bytes(columns: int, itemsize: int) -> int:
    """Bytes of a row in shared memory: the swizzle wants a multiple of 64."""
    return math.ceil(columns * itemsize / 64) * 64


def _scores_smem_bytes(case: Case, tile: Tile) -> int:
    """Tiles of Q and K; the 16-bit kernel stages S in their place."""
    operands = (tile.block_m + tile.block_n) * padded_head_dim(case.shape.head_dim) * case.itemsize
    staged = 0 if case.dtype == "fp32" else tile.block_m * _tile_row_bytes(tile.block_n, case.itemsize)
    return max(operands, staged)


def _pv_smem_bytes(case: Case, tile: Tile) -> int:
    """``stages`` tiles of P and V; the 16-bit kernel stages O in their place."""
    v_row = padded_head_dim(case.shape.head_dim) * case.itemsize
    operands = tile.block_m * _tile_row_bytes(tile.block_n, case.itemsize) + tile.block_n * v_row
    staged = 0 if case.dtype == "fp32" else tile.block_m * v_row
    return max(tile.stages * operands, staged)


def _smem_bytes(case: Case, tile: Tile) -> int:
    return max(_scores_smem_bytes(case, tile), _pv_smem_bytes(case, tile))


def _registers(case: Case, tile: Tile, warps: int) -> int:
    """Registers per thread for the accumulators of S or O, whichever are more, and fp32's operand micro-tile."""
    rows = tile.block_m // warps
    accumulators = rows * max(tile.block_n, padded_head_dim(case.shape.head_dim)) // WARP_SIZE
    return accumulators + (rows if case.dtype == "fp32" else 0)


def _sectors(case: Case) -> dict[tuple[str, str, Op], int]:
    """Sectors of all slices per kernel, tensor and direction; derived in :meth:`Standard.traffic`."""
    plan = _Plan(case, resolved_tile(case))
    shape, softmax = case.shape, plan.softmax
    q, k, v, o, *_ = plan.buffers()
    rows = shape.slices * shape.seq_q
    once_more = (softmax.segments - 1) * softmax.segment * case.itemsize // SECTOR_BYTES
    return {
        (SCORES, "Q", "read"): tensor_sectors(q, plan.copy) * plan.kv_blocks,
        (SCORES, "K", "read"): tensor_sectors(k, plan.copy) * shape.group * plan.q_blocks,
        (SCORES, "S", "write"): rows * plan.row_sectors,
        (SOFTMAX, "S", "read"): rows * (plan.row_sectors + once_more),
        (SOFTMAX, "P", "write"): rows * plan.row_sectors,
        (SOFTMAX, "LSE", "write"): rows,
        (PV, "P", "read"): rows * plan.row_sectors,
        (PV, "V", "read"): tensor_sectors(v, plan.copy) * shape.group * plan.q_blocks,
        (PV, "O", "write"): tensor_sectors(o, plan.store),
    }
