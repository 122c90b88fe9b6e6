"""Standard attention: S = Q·Kᵀ, P = softmax(S), O = P·V as three kernels with S and P in HBM (``kernels/standard``).

The five kernels of the backward pass are in :mod:`fa_bench.algorithms.standard_backward`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from fa_bench.algorithms import standard_backward as backward
from fa_bench.algorithms import standard_softmax as softmax
from fa_bench.algorithms.base import (
    SECTOR_BYTES,
    Buffer,
    Launch,
    Op,
    Program,
    Scalar,
    TensorBytes,
    Work,
)
from fa_bench.algorithms.slices import tensor_sectors
from fa_bench.algorithms.standard_plan import Plan, spec
from fa_bench.algorithms.standard_softmax import SOFTMAX
from fa_bench.algorithms.tensors import (
    ELEMENT_DEFINES,
    feature_tensors,
    padded_head_dim,
    qkvo,
    row_vector,
    stride_arguments,
)
from fa_bench.algorithms.tiles import (
    REGISTER_BUDGET,
    WARP_SIZE,
    covering_power,
    grid_refusal,
    refusal,
    resolve_warps,
    resolved_tile,
    row_sizes,
)
from fa_bench.cases import Case, Direction, Tile
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu

SCORES: Final = "standard_scores"
PV: Final = "standard_pv"

#: The square matrices.
_MATRICES: Final = ("S", "P", "P_drop", "dP", "dS")
#: What the backward kernels know beside sizes and a causal mask; a window is in P already.
_BACKWARD: Final = frozenset({"window", "dropout"})


class Standard:
    """Standard attention, the Algorithm of the room (see :mod:`fa_bench.algorithms.base`)."""

    name = "standard"
    version = "1"
    summary = "Q·Kᵀ, softmax and P·V as three kernels; S and P go through HBM"
    uses_tile = True
    directions: tuple[Direction, ...] = ("fwd", "bwd", "fwd+bwd")
    fused: Mapping[Direction, frozenset[str]] = MappingProxyType(
        {
            "fwd": _BACKWARD | {"head_dim_v", "softcap", "bias", "alibi", "sinks"},
            "bwd": _BACKWARD,
            "fwd+bwd": _BACKWARD,
        }
    )

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The first of a list, best first, that keeps eight warps on an SM; else the first that fits.

        Tall and wide tiles re-read Q, K and V less often; two stages hide the loads of P·V (and of the
        gradients' products) where they fit.
        """
        fitting = []
        for tile in self._candidates(case):
            nbytes = _smem_bytes(case, tile)
            if nbytes > gpu.smem_per_block_bytes or _registers(case, tile) > REGISTER_BUDGET:
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
        rows, keys = map(covering_power, (shape.seq_q, shape.seq_kv))
        for block_m, block_n in ((128, 128), (128, 64), (64, 64), (64, 32), (32, 32), (16, 32), (16, 16)):
            for stages in (2, 1):
                if block_m <= rows and block_n <= keys:
                    yield self.resolve(case, Tile(block_m, block_n, stages))

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps``, for the kernels of the products that own rows of Q."""
        warps = resolve_warps(case, tile, lambda n: _row_registers(case, tile, n))
        return Tile(tile.block_m, tile.block_n, tile.stages, warps)

    def smem_bytes(self, case: Case) -> int:
        """The most that one of the products needs."""
        return _smem_bytes(case, resolved_tile(case))

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        tile = resolved_tile(case)
        reason = refusal(case, gpu, lambda other: _smem_bytes(case, other), _registers(case, tile))
        return reason or grid_refusal(self.program(case))

    def program(self, case: Case) -> Program:
        """Buffers and launches of ``case``: three forward, five backward."""
        plan = Plan(case, resolved_tile(case))
        forward = self._forward(case)
        if not case.backward:
            return Program(_buffers(plan), forward)
        gradients = backward.launches(plan)
        launches, setup = ((*forward, *gradients), ()) if case.forward else (gradients, forward)
        return Program(backward.buffers(plan), launches, setup)

    def _forward(self, case: Case) -> tuple[Launch, ...]:
        shape, tile = case.shape, resolved_tile(case)
        plan = Plan(case, tile)
        q, k, v, o = qkvo(case)
        suffix = "_fp32" if case.dtype == "fp32" else ""
        products = {
            ELEMENT_DEFINES[case.dtype]: 1,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "NUM_WARPS": tile.num_warps,
        }

        def sizes(head_dim: int) -> list[Scalar]:
            numbers = (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv, head_dim, plan.pitch)
            return [Scalar("i32", number) for number in numbers]

        tiles = plan.q_blocks * plan.kv_tiles
        return (
            Launch(
                kernel=spec(
                    f"scores{suffix}",
                    SCORES,
                    {"ENTRY": SCORES, "SCORES": 1, **products, "DIM": plan.dim, "CAUSAL": int(shape.causal)},
                ),
                grid=(shape.slices * tiles, 1, 1),
                block=(tile.num_warps * WARP_SIZE, 1, 1),
                smem_bytes=plan.square_smem_bytes,
                args=(
                    *("Q", "K", "S"),
                    *stride_arguments(q, k),
                    *sizes(shape.head_dim),
                    Scalar("f32", 1 / math.sqrt(shape.head_dim)),
                ),
                ctas_per_slice=tiles,
            ),
            softmax.launch(plan),
            Launch(
                kernel=spec(
                    f"pv{suffix}",
                    PV,
                    {"ENTRY": PV, "SCALED": 0, **products, "DIM": plan.dim_v, "STAGES": tile.stages},
                ),
                grid=(shape.slices * plan.q_blocks, 1, 1),
                block=(tile.num_warps * WARP_SIZE, 1, 1),
                smem_bytes=plan.rows_smem_bytes,
                args=(
                    *(softmax.weights(case), "V", "O"),
                    *stride_arguments(v, o),
                    *sizes(shape.dim_v),
                    Scalar("f32", 1.0),
                ),
                ctas_per_slice=plan.q_blocks,
            ),
        )

    def traffic(self, case: Case) -> tuple[TensorBytes, ...]:
        """Exact global traffic in bytes.

        Let σ(n) be the sectors of a slice's first n rows of Q, K, V or O when they are copied through ``CopyMap`` of
        ``tile.cuh`` (:func:`fa_bench.algorithms.sectors.copy_sectors`; fp32 stores of O: 4 rows of 128 bytes per
        instruction), and ρ = ceil(seq_kv · itemsize / 32) those of a row of S or P. Rows of S and P start on a
        sector, because the pitch is 64 elements, and every instruction covers whole sectors of them but for the end
        of the row; the last 16-byte chunk is read and written whole, the rest of the pitch never. With
        Tq = ceil(seq_q / block_m), Tkv = ceil(seq_kv / block_n), per slice:

        * scores: a CTA per tile of S reads its rows of Q and of K: Q is read Tkv times, K Tq times, σ each. All of
          S is written once: seq_q · ρ.
        * softmax: S is read once and P written once, seq_q · ρ each, and LSE with a sector per row; what longer rows
          and features add is derived in :func:`fa_bench.algorithms.standard_softmax.sectors`.
        * P·V: a CTA per block_m rows of O reads its rows of P, or of P_drop, and all of V: P once, seq_q · ρ; V Tq
          times σ(seq_kv). O is written once, σ(seq_q). V and O have head_dim_v columns.

        No tile is left out: under a causal mask and outside a window S is computed, written and read as everywhere
        else, as a framework does that multiplies matrices.

        Query heads that share a K/V head each read it. Where rows start on a sector and sizes are multiples of the
        tile, that is 4 N² elements for S and P, and N² D (1/block_n + 2/block_m) for Q, K and V: the papers'
        Θ(ND + N²), whose constant hides that a matrix product re-reads its operands once per tile.

        The backward pass is derived in :func:`fa_bench.algorithms.standard_backward.sectors`.
        """
        plan = Plan(case, resolved_tile(case))
        sectors = (_sectors(plan) if case.forward else {}) | (backward.sectors(plan) if case.backward else {})
        return tuple(TensorBytes(kernel, tensor, op, n * SECTOR_BYTES) for (kernel, tensor, op), n in sectors.items())

    def work(self, case: Case) -> Work:
        """Whole tiles, padded columns and masked scores included; two FLOPs per product.

        The exponentials are those of :func:`fa_bench.algorithms.standard_softmax.exponentials`. The backward pass has
        four products and no exponential.
        """
        plan = Plan(case, resolved_tile(case))
        tile = plan.tile
        pairs = case.shape.slices * plan.q_blocks * plan.kv_tiles * tile.block_m * tile.block_n

        def product(dim: int) -> tuple[int, int, int]:
            flops = 2 * pairs * dim
            return (0, flops, 0) if case.dtype == "fp32" else (flops, 0, 0)

        exps = softmax.exponentials(plan) if case.forward else 0
        forward = ((SCORES, *product(plan.dim)), (SOFTMAX, 0, 0, exps), (PV, *product(plan.dim_v)))
        kernels = (
            *(forward if case.forward else ()),
            *(backward.work(product(plan.dim)) if case.backward else ()),
        )
        return Work(sum(tensor + fma for _, tensor, fma, _ in kernels), exps, kernels)

    def explain(self, case: Case) -> str:
        """The derivation of :meth:`traffic` with the numbers of ``case`` put in."""
        plan = Plan(case, resolved_tile(case))
        shape, tile, split = case.shape, plan.tile, plan.split
        matrix = f"{shape.seq_q} rows x {plan.row_sectors} sectors per slice"
        again = f", and {split.reread} elements of each row again" if split.reread else ""
        derivations = {
            (SCORES, "Q", "read"): f"Σ_slices {plan.kv_tiles}·σ({shape.seq_q})",
            (SCORES, "K", "read"): f"Σ_slices {plan.q_blocks}·σ({shape.seq_kv})",
            (SCORES, "S", "write"): matrix,
            **softmax.derivations(plan, matrix, again),
            (PV, softmax.weights(case), "read"): matrix,
            (PV, "V", "read"): f"Σ_slices {plan.q_blocks}·σ({shape.seq_kv})",
            (PV, "O", "write"): f"Σ_slices σ({shape.seq_q})",
        }
        sectors = (_sectors(plan) if case.forward else {}) | (backward.sectors(plan) if case.backward else {})
        if case.backward:
            derivations |= backward.derivations(plan, matrix, again)
        names = [name for name in _MATRICES if any(name == tensor for _, tensor, _ in sectors)]
        asked = ", ".join((*shape.named, *case.features.named))
        lines = [
            f"standard{f' with {asked}' if asked else ''}, tile {tile}, {tile.num_warps} warps: {plan.q_blocks} x "
            f"{plan.kv_tiles} tiles of S per slice; slices: {shape.slices}.",
            row_sizes(case, self.program(case)),
            f"Rows of {', '.join(names[:-1])} and {names[-1]}: {shape.seq_kv} elements, {plan.pitch} apart: "
            f"{plan.row_sectors} sectors. The kernels that go over rows hold {split.segment} elements of one in "
            f"{split.warps_per_row * WARP_SIZE} lanes.",
            f"A warp instruction copies {plan.copy.group_rows} rows x {plan.copy.column_bytes} bytes of Q, K or V; "
            "σ(n) = sectors of a slice's first n rows.",
        ]
        width = max(len(kernel) for kernel, _, _ in sectors)
        for (kernel, tensor, op), n in sectors.items():
            text = derivations[kernel, tensor, op]
            lines.append(f"{kernel:<{width}} {tensor:<6} {op:<5}  {text} = {n} sectors = {n * SECTOR_BYTES} bytes")
        return "\n".join((*lines, _passes(plan, sectors)))


def _passes(plan: Plan, sectors: dict[tuple[str, str, Op], int]) -> str:
    """How often ``sectors`` go over each square matrix, and their share of all: one sentence."""
    matrices = [(tensor, op, n) for (_, tensor, op), n in sectors.items() if tensor in _MATRICES]
    parts = []
    for name in dict.fromkeys(tensor for tensor, _, _ in matrices):
        ops = [op for tensor, op, _ in matrices if tensor == name]
        counts = (f"{verb} {ops.count(op)}x" for op, verb in (("write", "written"), ("read", "read")) if op in ops)
        parts.append(f"{name} {', '.join(counts)}")
    one, moved = plan.matrix_sectors * SECTOR_BYTES, sum(n for _, _, n in matrices) * SECTOR_BYTES
    share = moved / (sum(sectors.values()) * SECTOR_BYTES)
    return (
        f"Passes over a square matrix of {one} bytes: {'; '.join(parts)}: {len(matrices)} in all, "
        f"{moved} bytes, {share:.0%} of the traffic."
    )


def _smem_bytes(case: Case, tile: Tile) -> int:
    plan = Plan(case, tile)
    forward = max(plan.square_smem_bytes, plan.rows_smem_bytes)
    return max(forward, backward.smem_bytes(plan)) if case.backward else forward


def _row_registers(case: Case, tile: Tile, warps: int) -> int:
    """Registers per thread for the accumulators of S or O, whichever are more, and fp32's operand micro-tile."""
    rows = tile.block_m // warps
    accumulators = rows * max(tile.block_n, padded_head_dim(case.shape.dim_v)) // WARP_SIZE
    return accumulators + (rows if case.dtype == "fp32" else 0)


def _registers(case: Case, tile: Tile) -> int:
    """The most that one of the products needs; dP and dQ need what S and O do."""
    rows = _row_registers(case, tile, tile.num_warps)
    return max(rows, backward.registers(Plan(case, tile))) if case.backward else rows


def _buffers(plan: Plan) -> tuple[Buffer, ...]:
    """Q, K, V, O, LSE, what features take, and the square matrices."""
    case = plan.case
    return (*qkvo(case), row_vector("LSE", case, "output"), *feature_tensors(case), *softmax.matrices(plan))


def _sectors(plan: Plan) -> dict[tuple[str, str, Op], int]:
    """Sectors of all slices per kernel, tensor and direction; derived in :meth:`Standard.traffic`."""
    shape = plan.case.shape
    q, k, v, o = qkvo(plan.case)
    return {
        (SCORES, "Q", "read"): tensor_sectors(q, plan.copy) * plan.kv_tiles,
        (SCORES, "K", "read"): tensor_sectors(k, plan.copy) * shape.group * plan.q_blocks,
        (SCORES, "S", "write"): plan.matrix_sectors,
        **softmax.sectors(plan),
        (PV, softmax.weights(plan.case), "read"): plan.matrix_sectors,
        (PV, "V", "read"): tensor_sectors(v, plan.v_copy) * shape.group * plan.q_blocks,
        (PV, "O", "write"): tensor_sectors(o, plan.o_store),
    }
