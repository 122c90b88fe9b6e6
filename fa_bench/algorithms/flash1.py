"""FlashAttention-1: one CTA per slice, K/V blocks outside, Q inside; O, l, m through HBM (``kernels/flash1``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from fa_bench.algorithms.base import (
    PLAIN,
    SECTOR_BYTES,
    Buffer,
    KernelSpec,
    Launch,
    Op,
    Program,
    Scalar,
    TensorBytes,
    Work,
)
from fa_bench.algorithms.slices import row_vector_sectors, tensor_sectors
from fa_bench.algorithms.tensors import ELEMENT_DEFINES, padded_head_dim, qkvo, row_vector, stride_arguments
from fa_bench.algorithms.tiles import (
    REGISTER_BUDGET,
    WARP_SIZE,
    TilePlan,
    flash_registers,
    grid_refusal,
    refusal,
    resolve_warps,
    resolved_tile,
    row_sizes,
)
from fa_bench.cases import Case, Direction, Tile
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu
from fa_bench.sizes import ceil_div

INIT: Final = "flash1_init"
FORWARD: Final = "flash1_fwd"

_INIT_WARPS: Final = 8
#: Registers that accumulators may take where ptxas leaves them fewer than elsewhere; found by compiling.
_REGISTER_BUDGETS: Final = {"sm_100": 168}
#: What an instruction covers of O_acc: whole sectors of a row, which start on a sector and are multiples of one.
_O_ACC_SECTOR_COLUMNS: Final = SECTOR_BYTES // 4


@dataclass(frozen=True, slots=True)
class _Plan(TilePlan):
    @property
    def init_ctas(self) -> int:
        """CTAs of flash1_init per slice: a thread clears 16 bytes of O_acc."""
        return ceil_div(self.case.shape.seq_q * self.case.shape.head_dim // 4, _INIT_WARPS * WARP_SIZE)

    def buffers(self) -> tuple[Buffer, ...]:
        """Q, K, V, O, LSE, O_acc, l, m."""
        shape = self.case.shape
        row = shape.head_dim
        o_acc = Buffer(
            "O_acc",
            "fp32",
            (shape.batch, shape.heads_q, shape.seq_q, row),
            (shape.heads_q * shape.seq_q * row, shape.seq_q * row, row, 1),
            "workspace",
        )
        return (
            *qkvo(self.case),
            row_vector("LSE", self.case, "output"),
            o_acc,
            row_vector("l", self.case, "workspace"),
            row_vector("m", self.case, "workspace"),
        )


class Flash1:
    """FlashAttention-1 forward, the Algorithm of the room (see :mod:`fa_bench.algorithms.base`)."""

    name = "flash1"
    version = "1"
    summary = "One CTA per slice, K/V blocks in the outer loop, Q in the inner; O, l, m through HBM at each visit"
    uses_tile = True
    directions: tuple[Direction, ...] = ("fwd",)
    fused = PLAIN

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The paper's block sizes for ``gpu``, Bc = ceil(M / 4d) and Br = min(Bc, d), made legal.

        M is the target's shared memory per block in elements of the case's type. Both are rounded down to multiples
        of 16 (at least 16) and cut at 256; then the rows are lowered until each warp's accumulators fit its
        registers, and the columns until the tiles of Q, K and V (padded in head_dim) fit the shared memory.
        """
        head_dim = case.shape.head_dim
        budget = _REGISTER_BUDGETS.get(gpu.sm, REGISTER_BUDGET)
        paper_n = math.ceil(gpu.smem_per_block_bytes // case.itemsize / (4 * head_dim))
        for block_n in range(_legal_block(paper_n), 0, -16):
            for block_m in range(_legal_block(min(paper_n, head_dim)), 0, -16):
                tile = self.resolve(case, Tile(block_m, block_n))
                if (
                    _smem_bytes(case, tile) <= gpu.smem_per_block_bytes
                    and flash_registers(case, tile, tile.num_warps) <= budget
                ):
                    return tile
        raise Unsupported(f"No tile of flash1 with head_dim {head_dim} fits on {gpu.name}.")

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps``, and with one stage: a K/V block is loaded once for a whole pass over Q."""
        warps = resolve_warps(case, tile, lambda n: flash_registers(case, tile, n))
        return Tile(tile.block_m, tile.block_n, 1, warps)

    def smem_bytes(self, case: Case) -> int:
        """One tile each of Q, K and V."""
        return _smem_bytes(case, resolved_tile(case))

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        tile = resolved_tile(case)
        registers = flash_registers(case, tile, tile.num_warps)
        reason = refusal(case, gpu, lambda other: _smem_bytes(case, other), registers, with_stages=False)
        return reason or grid_refusal(self.program(case))

    def program(self, case: Case) -> Program:
        """Buffers and the two launches of ``case``."""
        shape, tile = case.shape, resolved_tile(case)
        plan = _Plan(case, tile)
        buffers = plan.buffers()
        defines = {
            ELEMENT_DEFINES[case.dtype]: 1,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "DIM": plan.dim,
            "NUM_WARPS": tile.num_warps,
            "CAUSAL": int(shape.causal),
        }
        sizes = (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv, shape.head_dim)
        launches = (
            Launch(
                kernel=KernelSpec("flash1/flash1_init.cu", INIT, (("NUM_WARPS", str(_INIT_WARPS)),)),
                grid=(shape.slices * plan.init_ctas, 1, 1),
                block=(_INIT_WARPS * WARP_SIZE, 1, 1),
                smem_bytes=0,
                args=("O_acc", "l", "m", Scalar("i32", shape.seq_q), Scalar("i32", shape.head_dim)),
                ctas_per_slice=plan.init_ctas,
            ),
            Launch(
                kernel=KernelSpec(
                    "flash1/flash1_fwd_fp32.cu" if case.dtype == "fp32" else "flash1/flash1_fwd.cu",
                    FORWARD,
                    tuple((name, str(value)) for name, value in defines.items()),
                ),
                grid=(shape.slices, 1, 1),
                block=(tile.num_warps * WARP_SIZE, 1, 1),
                smem_bytes=_smem_bytes(case, tile),
                args=(
                    *(buffer.name for buffer in buffers),
                    *stride_arguments(*buffers[:4]),
                    *(Scalar("i32", size) for size in sizes),
                    Scalar("f32", 1 / math.sqrt(shape.head_dim)),
                ),
                ctas_per_slice=1,
            ),
        )
        return Program(buffers, launches)

    def traffic(self, case: Case) -> tuple[TensorBytes, ...]:
        """Exact global traffic in bytes.

        Let σ(n) be the sectors of a slice's first n rows of Q, K, V or O when they are copied through ``CopyMap`` of
        ``tile.cuh`` (:func:`fa_bench.algorithms.sectors.copy_sectors`; fp32 stores of O: 4 rows of 128 bytes per
        instruction), and T = ceil(seq_kv / block_n) the number of K/V blocks. Per slice:

        * K, V: each block once, σ(seq_kv) in all. Query heads that share a K/V head each read it.
        * Q: all rows for each K/V block, T · σ(seq_q). Nothing is skipped under a causal mask.
        * O_acc: fp32, read at each of the T visits and written at all but the last, where the finished row goes to
          O. Rows are multiples of 32 bytes and start on a sector (head_dim is a multiple of 8), and an instruction
          covers whole sectors of each of its rows: seq_q · head_dim / 8 sectors per visit, for every head_dim.
        * l, m: read T times and written T - 1 times, by lanes that each own a row: a warp covers its block_m /
          num_warps consecutive rows 32 at a time. Vectors of seq_q floats start anywhere in a sector, so that an
          instruction may touch one more than its bytes fill.
        * O and LSE: once, at the last K/V block. LSE is written by the lanes that own l and m.
        * flash1_init writes O_acc, l and m once; 32 rows of l and m per instruction.

        Where everything starts on a sector, that is Nd·2 elements for K and V and, per K/V block, Nd for Q, 2·Nd
        fp32 for O and 4·N fp32 for l and m: the papers' Θ(N²d²/M) with T = 4Nd/M.
        """
        return tuple(
            TensorBytes(kernel, tensor, op, sectors * SECTOR_BYTES)
            for (kernel, tensor, op), sectors in _sectors(case).items()
            if np.any(sectors)
        )

    def work(self, case: Case) -> Work:
        """Whole tiles, padded columns and masked scores included; two products per pair and column, two FLOPs each.

        Exponentials: one per score, and one per row and tile for the weight of what was there, which each of the
        lanes that share the row computes (4 with mma accumulators, 8 in fp32).
        """
        plan = _Plan(case, resolved_tile(case))
        tile, fp32 = plan.tile, case.dtype == "fp32"
        tiles = case.shape.slices * plan.q_blocks * plan.kv_tiles
        flops = 4 * tiles * tile.block_m * tile.block_n * plan.dim
        exps = tiles * tile.block_m * (tile.block_n + (8 if fp32 else 4))
        product = (0, flops) if fp32 else (flops, 0)
        return Work(flops, exps, ((INIT, 0, 0, 0), (FORWARD, *product, exps)))

    def explain(self, case: Case) -> str:
        """The derivation of :meth:`traffic` with the numbers of ``case`` put in."""
        plan = _Plan(case, resolved_tile(case))
        shape, tile, visits = case.shape, plan.tile, plan.kv_tiles
        o_acc = f"{shape.seq_q} rows x {shape.head_dim // _O_ACC_SECTOR_COLUMNS} sectors per slice"
        vector = f"{shape.seq_q} x 4 bytes per slice"
        derivations = {
            (INIT, "O_acc", "write"): o_acc,
            (INIT, "l", "write"): vector,
            (INIT, "m", "write"): vector,
            (FORWARD, "K", "read"): f"Σ_slices σ({shape.seq_kv})",
            (FORWARD, "V", "read"): f"Σ_slices σ({shape.seq_kv})",
            (FORWARD, "Q", "read"): f"Σ_slices {visits}·σ({shape.seq_q})",
            (FORWARD, "O_acc", "read"): f"{visits} x {o_acc}",
            (FORWARD, "O_acc", "write"): f"{visits - 1} x {o_acc}",
            (FORWARD, "l", "read"): f"{visits} x {vector}",
            (FORWARD, "l", "write"): f"{visits - 1} x {vector}",
            (FORWARD, "m", "read"): f"{visits} x {vector}",
            (FORWARD, "m", "write"): f"{visits - 1} x {vector}",
            (FORWARD, "O", "write"): f"Σ_slices σ({shape.seq_q})",
            (FORWARD, "LSE", "write"): vector,
        }
        lines = [
            f"flash1, tile {tile}, {tile.num_warps} warps: T = ceil({shape.seq_kv}/{tile.block_n}) = {visits} visits "
            f"of each row of Q; slices: {shape.slices}.",
            row_sizes(case, self.program(case)),
            f"A warp instruction copies {plan.copy.group_rows} rows x {plan.copy.column_bytes} bytes of Q, K or V; "
            "σ(n) = sectors of a slice's first n rows.",
            f"A warp owns {plan.warp_rows} rows; its instructions cover l and m of {min(plan.warp_rows, WARP_SIZE)}.",
        ]
        for (kernel, tensor, op), n in _sectors(case).items():
            text = derivations[kernel, tensor, op]
            lines.append(f"{kernel:<11} {tensor:<5} {op:<5}  {text} = {n} sectors = {n * SECTOR_BYTES} bytes")
        return "\n".join(lines)


def _legal_block(size: int) -> int:
    """``size`` rounded down to what a tile may have: multiples of 16 from 16 to 256."""
    return max(16, min(256, size // 16 * 16))


def _smem_bytes(case: Case, tile: Tile) -> int:
    rows = tile.block_m + 2 * tile.block_n
    return rows * padded_head_dim(case.shape.head_dim) * case.itemsize


def _sectors(case: Case) -> dict[tuple[str, str, Op], int]:
    """Sectors of all slices per kernel, tensor and direction; derived in :meth:`Flash1.traffic`."""
    plan = _Plan(case, resolved_tile(case))
    shape, visits = case.shape, plan.kv_tiles
    q, k, v, o, vector, *_ = plan.buffers()  # LSE, l and m are alike
    owned, cleared = (row_vector_sectors(vector, rows) for rows in (plan.warp_rows, WARP_SIZE))
    o_acc = shape.slices * shape.seq_q * shape.head_dim // _O_ACC_SECTOR_COLUMNS
    return {
        (INIT, "O_acc", "write"): o_acc,
        (INIT, "l", "write"): cleared,
        (INIT, "m", "write"): cleared,
        (FORWARD, "Q", "read"): tensor_sectors(q, plan.copy) * visits,
        (FORWARD, "K", "read"): tensor_sectors(k, plan.copy) * shape.group,
        (FORWARD, "V", "read"): tensor_sectors(v, plan.copy) * shape.group,
        (FORWARD, "O_acc", "read"): o_acc * visits,
        (FORWARD, "O_acc", "write"): o_acc * (visits - 1),
        (FORWARD, "l", "read"): owned * visits,
        (FORWARD, "l", "write"): owned * (visits - 1),
        (FORWARD, "m", "read"): owned * visits,
        (FORWARD, "m", "write"): owned * (visits - 1),
        (FORWARD, "O", "write"): tensor_sectors(o, plan.store),
        (FORWARD, "LSE", "write"): owned,
    }
