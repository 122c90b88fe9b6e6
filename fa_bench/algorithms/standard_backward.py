"""Standard attention's backward pass: P of the forward pass, dP and dS as matrices in HBM (``kernels/standard``).

Algorithm 3 of FlashAttention (arXiv 2205.14135, appendix B), step by step: dV = Pᵀ·dO; dP = dO·Vᵀ;
dS = P ∘ (dP - rowsum(P ∘ dP)); dQ = scale · dS·K; dK = scale · dSᵀ·Q. Four products, since none is computed again, and
seven passes over matrices of seq_q x seq_kv. A causal mask leaves out none of it: behind the diagonal P and dS are 0,
and read and written as such.

dV and dK are one kernel, compiled under two names: both are a square matrix, transposed, times a matrix of queries. dP
is the forward pass' kernel of scores, with neither scale nor mask, and dQ that of P·V, with a scale.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from fa_bench.algorithms import standard_softmax as softmax
from fa_bench.algorithms.base import Buffer, Launch, Op, Scalar
from fa_bench.algorithms.slices import tensor_sectors
from fa_bench.algorithms.standard_plan import ROW_WARPS, Plan, spec
from fa_bench.algorithms.tensors import (
    ELEMENT_DEFINES,
    attention_tensor,
    dropout_arguments,
    qkvo,
    row_vector,
    stride_arguments,
)
from fa_bench.algorithms.tiles import REGISTER_BUDGET, WARP_SIZE
from fa_bench.sizes import choose

DV: Final = "standard_bwd_dv"
DP: Final = "standard_bwd_dp"
DS: Final = "standard_bwd_ds"
DQ: Final = "standard_bwd_dq"
DK: Final = "standard_bwd_dk"

#: Rows of dV and dK that a warp owns come in multiples of this, in fp32 too: a chunk of P for each of four lane rows.
_ROW_UNIT: Final = 16


def buffers(plan: Plan) -> tuple[Buffer, ...]:
    """Q, K, V, O, LSE, dO, dQ, dK, dV and square matrices; O and LSE are outputs if the forward pass is asked for."""
    case, shape = plan.case, plan.case.shape
    q, k, v, o = qkvo(case)
    role = o.role if case.forward else "workspace"
    return (
        *(q, k, v, replace(o, role=role), row_vector("LSE", case, role)),
        attention_tensor("dO", case, shape.heads_q, shape.seq_q, "input"),
        attention_tensor("dQ", case, shape.heads_q, shape.seq_q, "output"),
        attention_tensor("dK", case, shape.heads_kv, shape.seq_kv, "output"),
        attention_tensor("dV", case, shape.heads_kv, shape.seq_kv, "output"),
        *softmax.matrices(plan),
        *(plan.matrix(name) for name in ("dP", "dS")),
    )


def _key_warps(plan: Plan) -> int:
    """Warps of the kernels of dV and dK, which split the keys of a tile: four, if they have the rows and hold them."""
    legal = [warps for warps in (4, 8, 2, 1) if plan.tile.block_n % (_ROW_UNIT * warps) == 0]
    fitting = [warps for warps in legal if _key_registers(plan, warps) <= REGISTER_BUDGET]
    return fitting[0] if fitting else max(legal)


def _key_registers(plan: Plan, warps: int) -> int:
    rows = plan.tile.block_n // warps
    return rows * plan.dim // WARP_SIZE + (rows // 4 if plan.case.dtype == "fp32" else 0)


def registers(plan: Plan) -> int:
    """Registers per thread for the accumulators of dV or dK, and fp32's operand micro-tile."""
    return _key_registers(plan, _key_warps(plan))


def _key_smem_bytes(plan: Plan) -> int:
    """``stages`` tiles of P and dO, or of dS and Q; the 16-bit kernel stages dV or dK in their place."""
    row = plan.dim * plan.case.itemsize
    staged = 0 if plan.case.dtype == "fp32" else plan.tile.block_n * row
    return max(plan.tile.stages * (plan.matrix_tile_bytes + plan.tile.block_m * row), staged)


def smem_bytes(plan: Plan) -> int:
    """The most that one of the products needs, in bytes."""
    return max(_key_smem_bytes(plan), plan.square_smem_bytes, plan.rows_smem_bytes)


def launches(plan: Plan) -> tuple[Launch, ...]:
    """The five launches of the backward pass, in order."""
    case, shape, tile = plan.case, plan.case.shape, plan.tile
    tensors = {buffer.name: buffer for buffer in buffers(plan)}
    suffix = "_fp32" if case.dtype == "fp32" else ""
    element = {ELEMENT_DEFINES[case.dtype]: 1}
    product = {**element, "BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "DIM": plan.dim}
    staged = {**product, "STAGES": tile.stages}
    sizes = [
        Scalar("i32", size)
        for size in (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv, shape.head_dim, plan.pitch)
    ]
    scale = 1 / math.sqrt(shape.head_dim)
    tiles, warps = plan.q_blocks * plan.kv_tiles, _key_warps(plan)

    def strides(*names: str) -> tuple[Scalar, ...]:
        return stride_arguments(*(tensors[name] for name in names))

    def of_keys(entry: str, matrix: str, queries: str, gradient: str, factor: float) -> Launch:
        return Launch(
            kernel=spec(f"standard_bwd_dkdv{suffix}", entry, {"ENTRY": entry, **staged, "NUM_WARPS": warps}),
            grid=(shape.batch * shape.heads_kv * plan.kv_tiles, 1, 1),
            block=(warps * WARP_SIZE, 1, 1),
            smem_bytes=_key_smem_bytes(plan),
            args=(matrix, queries, gradient, *strides(queries, gradient), *sizes, Scalar("f32", factor)),
            # Else a CTA of a K/V head works for several slices.
            ctas_per_slice=choose(shape.group == 1, plan.kv_tiles, 0),
        )

    return (
        of_keys(DV, softmax.weights(case), "dO", "dV", 1.0),
        Launch(
            kernel=spec(
                f"scores{suffix}",
                DP,
                {"ENTRY": DP, "SCORES": 0, **product, "NUM_WARPS": tile.num_warps, "CAUSAL": 0},
            ),
            grid=(shape.slices * tiles, 1, 1),
            block=(tile.num_warps * WARP_SIZE, 1, 1),
            smem_bytes=plan.square_smem_bytes,
            args=("dO", "V", "dP", *strides("dO", "V"), *sizes, Scalar("f32", 1.0)),
            ctas_per_slice=tiles,
        ),
        Launch(
            kernel=spec(
                "standard_bwd_ds", DS, {**element, **plan.split.defines, "DROPOUT": int(case.features.dropout_p > 0)}
            ),
            grid=(shape.slices * plan.row_blocks, 1, 1),
            block=(ROW_WARPS * WARP_SIZE, 1, 1),
            smem_bytes=0,
            args=(
                *("P", "dP", "dS"),
                *(Scalar("i32", size) for size in (shape.heads_q, shape.seq_q, shape.seq_kv, plan.pitch)),
                *dropout_arguments(case),
            ),
            ctas_per_slice=plan.row_blocks,
        ),
        Launch(
            kernel=spec(f"pv{suffix}", DQ, {"ENTRY": DQ, "SCALED": 1, **staged, "NUM_WARPS": tile.num_warps}),
            grid=(shape.slices * plan.q_blocks, 1, 1),
            block=(tile.num_warps * WARP_SIZE, 1, 1),
            smem_bytes=plan.rows_smem_bytes,
            args=("dS", "K", "dQ", *strides("K", "dQ"), *sizes, Scalar("f32", scale)),
            ctas_per_slice=plan.q_blocks,
        ),
        of_keys(DK, "dS", "Q", "dK", scale),
    )


def sectors(plan: Plan) -> dict[tuple[str, str, Op], int]:
    """Sectors of all slices per kernel, tensor and direction.

    σ(n) and ρ as in :meth:`fa_bench.algorithms.standard.Standard.traffic`: sectors of a slice's first n rows of a
    tensor with head_dim columns, and of a row of a square matrix. A tile of a square matrix starts at a multiple of 16
    columns, so on a sector, and an instruction copies at least 64 bytes of a row: tiles side by side share no sector.
    With Tq = ceil(seq_q / block_m) and Tkv = ceil(seq_kv / block_n), per slice:

    * dV: a CTA per block_n rows of dV reads its columns of P and all of dO, of each query head that shares its K/V
      head: P, or with dropout P_drop, once, seq_q · ρ; dO Tkv times σ(seq_q). dV is written once per K/V head,
      σ(seq_kv): query heads add up inside the CTA.
    * dP: a CTA per tile of dP reads its rows of dO and of V: dO Tkv times σ(seq_q), V Tq times σ(seq_kv), by each query
      head. dP is written once, seq_q · ρ.
    * dS: P and dP are read once, seq_q · ρ each, as long as a row fits the registers of its lanes; of a longer row all
      segments but the last once more, as in the softmax. dS is written once. Which pairs dropout drops follows from
      their places and moves nothing.
    * dQ: a CTA per block_m rows of dQ reads its rows of dS and all of K: dS once, K Tq times σ(seq_kv), by each query
      head. dQ is written once, σ(seq_q).
    * dK: as dV, with dS for P and Q for dO.

    Where rows start on a sector and sizes are multiples of the tile, that is 7 N² elements for P, dP and dS, and
    N² D (2/block_m + 3/block_n) for the rest: the Θ(ND + N²) of the paper's Theorem 5.
    """
    shape, copy = plan.case.shape, plan.copy
    q, k, v, _ = qkvo(plan.case)
    matrix, again = plan.matrix_sectors, plan.reread_sectors
    by_keys = plan.kv_tiles * tensor_sectors(q, copy)  # of Q, and of dO, which lies in memory alike
    by_queries = plan.q_blocks * shape.group * tensor_sectors(k, copy)  # of K and V
    return {
        (DV, softmax.weights(plan.case), "read"): matrix,
        (DV, "dO", "read"): by_keys,
        (DV, "dV", "write"): tensor_sectors(v, plan.store),
        (DP, "dO", "read"): by_keys,
        (DP, "V", "read"): by_queries,
        (DP, "dP", "write"): matrix,
        (DS, "P", "read"): matrix + again,
        (DS, "dP", "read"): matrix + again,
        (DS, "dS", "write"): matrix,
        (DQ, "dS", "read"): matrix,
        (DQ, "K", "read"): by_queries,
        (DQ, "dQ", "write"): tensor_sectors(q, plan.store),
        (DK, "dS", "read"): matrix,
        (DK, "Q", "read"): by_keys,
        (DK, "dK", "write"): tensor_sectors(k, plan.store),
    }


def derivations(plan: Plan, matrix: str, again: str) -> dict[tuple[str, str, str], str]:
    """The summands of :func:`sectors` with the numbers of a case put in.

    Parameters
    ----------
    plan : Plan
    matrix, again : str
        One pass over a square matrix in words, and what a long row adds to it.
    """
    shape = plan.case.shape
    queries = f"Σ_slices {plan.kv_tiles}·σ({shape.seq_q})"
    keys = f"Σ_slices {plan.q_blocks}·σ({shape.seq_kv})"
    return {
        (DV, softmax.weights(plan.case), "read"): matrix,
        (DV, "dO", "read"): queries,
        (DV, "dV", "write"): f"Σ_kv-heads σ({shape.seq_kv})",
        (DP, "dO", "read"): queries,
        (DP, "V", "read"): keys,
        (DP, "dP", "write"): matrix,
        (DS, "P", "read"): matrix + again,
        (DS, "dP", "read"): matrix + again,
        (DS, "dS", "write"): matrix,
        (DQ, "dS", "read"): matrix,
        (DQ, "K", "read"): keys,
        (DQ, "dQ", "write"): f"Σ_slices σ({shape.seq_q})",
        (DK, "dS", "read"): matrix,
        (DK, "Q", "read"): queries,
        (DK, "dK", "write"): f"Σ_kv-heads σ({shape.seq_kv})",
    }


def work(product: tuple[int, int, int]) -> tuple[tuple[str, int, int, int], ...]:
    """FLOPs per kernel, from those of one product (tensor cores, FMA pipe, exponentials)."""
    return ((DV, *product), (DP, *product), (DS, 0, 0, 0), (DQ, *product), (DK, *product))
