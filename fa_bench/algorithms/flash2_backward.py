"""FlashAttention-2's backward pass: scores made again tile by tile, deterministically or with atomics.

S and P of the forward pass are not kept: every kernel makes its tile of them again, from Q, K and LSE. Deterministic,
two kernels do so, one that owns K/V tiles (dK, dV: four products) and one that owns Q tiles (dQ: three). With atomics
the first also adds its share of dQ to an fp32 buffer: five products, but the order of these sums is the hardware's.
Sliding windows and dropout are in the kernels for fp16 and bf16.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from fa_bench.algorithms.base import SECTOR_BYTES, Buffer, KernelSpec, Launch, Op, Program, Scalar, TensorBytes, Work
from fa_bench.algorithms.flash2_backward_plan import ROW_WARP_ROWS, ROW_WARPS, BackwardPlan
from fa_bench.algorithms.slices import row_vector_sectors, tensor_sectors
from fa_bench.algorithms.tensors import (
    ELEMENT_DEFINES,
    attention_tensor,
    dropout_arguments,
    qkvo,
    row_vector,
    stride_arguments,
    window_arguments,
    window_defines,
)
from fa_bench.algorithms.tiles import (
    WARP_SIZE,
    covering_power,
    default_stages,
    preferred_tile,
    refusal,
    resolved_tile,
    row_sizes,
    row_unit,
)
from fa_bench.cases import Case, Tile
from fa_bench.errors import UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.sizes import choose

PREPROCESS: Final = "flash2_bwd_preprocess"
DKDV: Final = "flash2_bwd_dkdv"
DQ: Final = "flash2_bwd_dq"
ATOMIC: Final = "flash2_bwd_atomic"
CONVERT: Final = "flash2_bwd_convert"

_Sectors = dict[tuple[str, str, Op], int]


@dataclass(frozen=True, slots=True)
class _Tensors:
    q: Buffer
    k: Buffer
    v: Buffer
    o: Buffer
    lse: Buffer
    do: Buffer
    dq: Buffer
    dk: Buffer
    dv: Buffer
    delta: Buffer
    dq_acc: Buffer


def _tensors(case: Case) -> _Tensors:
    shape = case.shape
    q, k, v, o = qkvo(case)
    heads, seq, dim = shape.heads_q, shape.seq_q, shape.head_dim
    sums = Buffer("dQ_acc", "fp32", (shape.batch, heads, seq, dim), (heads * seq * dim, seq * dim, dim, 1), "workspace")
    return _Tensors(
        *(q, k, v, replace(o, role="output" if case.forward else "workspace")),
        lse=row_vector("LSE", case, "output" if case.forward else "workspace"),
        do=attention_tensor("dO", case, heads, seq, "input"),
        dq=attention_tensor("dQ", case, heads, seq, "output"),
        dk=attention_tensor("dK", case, shape.heads_kv, shape.seq_kv, "output"),
        dv=attention_tensor("dV", case, shape.heads_kv, shape.seq_kv, "output"),
        delta=row_vector("delta", case, "workspace"),
        dq_acc=sums,
    )


class Backward:
    """The backward part of a case of :class:`fa_bench.algorithms.flash2.Flash2`, whose methods these are.

    Parameters
    ----------
    atomic : bool
        dQ by atomic additions, in one kernel with dK and dV.
    """

    def __init__(self, *, atomic: bool) -> None:
        self._atomic = atomic

    # --- tiles --------------------------------------------------------------------------------------------------

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The `preferred_tile` of a list.

        Four warps of 16 rows are what registers hold: dK and dV alone take head_dim of them per thread. 64 rows on the
        other side balance the two kernels, and are enough for L2: a step of four products reads 64 rows of Q and dO in
        the time of 64 · 64 · 4 · head_dim multiply-adds, 16 bytes per clock and SM at an A100's tensor rate of 1024,
        of the 47 that its L2 has for each (5120 bytes per clock, NVIDIA's A100 white paper). Two CTAs of four warps per
        SM let one compute while the other waits.
        """
        # 16x16 needs 66 KiB at most: only GPUs before Ampere, which are refused, have less.
        smem = {tile: self._plan(case, tile).smem_bytes for tile in self._candidates(case)}
        return preferred_tile(smem, gpu)

    def _candidates(self, case: Case) -> Iterator[Tile]:
        sizes = [(64, 64), (32, 64), (32, 32), (16, 64), (16, 32), (32, 16), (16, 16)]
        for block_m, block_n in sizes:
            tile = Tile(block_m, block_n, default_stages(case))
            if (block_m <= covering_power(case.shape.seq_q) or block_m <= self._rows_unit(case)) and self._stageable(
                case, tile
            ):
                yield self.resolve(case, tile)

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps``: four, along each side that has rows for them, if registers hold these.

        Raises
        ------
        UsageError
            If the tile names more warps than either side has rows for.
        """
        unit, most = row_unit(case), 8 // self._plan(case, tile).column_warps
        sides = (tile.block_m, tile.block_n)
        legal = [n for n in (4, 8, 2, 1) if n <= most and any(rows % (n * unit) == 0 for rows in sides)]
        if tile.num_warps:
            if tile.num_warps not in legal:
                raise UsageError(
                    f"{case.impl} gives each warp a multiple of {unit} rows of Q, or of K: "
                    f"a tile of {tile} doesn't divide among {tile.num_warps} warps.",
                    hint=f"num_warps can be {', '.join(map(str, sorted(legal)))} here.",
                )
            return tile
        named = [replace(tile, num_warps=n) for n in legal]
        fitting = [t for t in named if not self._plan(case, t).spills]
        return fitting[0] if fitting else max(named, key=lambda t: t.num_warps)

    def smem_bytes(self, case: Case) -> int:
        """Largest shared memory of one CTA in bytes."""
        return self._plan(case).smem_bytes

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        plan = self._plan(case)
        if not self._stageable(case, plan.tile):
            return (
                f"Tile {plan.tile}: {case.impl} stages dS with rows of whole 64 bytes, "
                f"so block_m is a multiple of {self._rows_unit(case)} in {case.dtype}."
            )

        def smem(tile: Tile) -> int:
            return self._plan(case, tile).smem_bytes if self._stageable(case, tile) else sys.maxsize

        return refusal(case, gpu, smem, plan.registers)

    def _plan(self, case: Case, tile: Tile | None = None) -> BackwardPlan:
        return BackwardPlan(case, resolved_tile(case) if tile is None else tile, self._atomic)

    def _rows_unit(self, case: Case) -> int:
        """Rows of Q that a tile is a multiple of: the swizzle of dSᵀ wants rows of whole 64 bytes."""
        return 64 // case.itemsize if self._atomic else 16

    def _stageable(self, case: Case, tile: Tile) -> bool:
        return tile.block_m % self._rows_unit(case) == 0

    # --- program ------------------------------------------------------------------------------------------------

    def buffers(self, case: Case) -> tuple[Buffer, ...]:
        """Inputs, what the forward pass leaves, gradients, workspaces."""
        t = _tensors(case)
        sums = (t.dq_acc,) if self._atomic else ()
        return (t.q, t.k, t.v, t.do, t.o, t.lse, t.dq, t.dk, t.dv, t.delta, *sums)

    def launches(self, case: Case) -> tuple[Launch, ...]:
        """The launches of the backward pass, in order."""
        shape, t, plan = case.shape, _tensors(case), self._plan(case)
        tile, suffix = plan.tile, "_fp32" if case.dtype == "fp32" else ""
        element = {ELEMENT_DEFINES[case.dtype]: 1, "DIM": plan.dim}
        tiled = {
            **element,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "STAGES": tile.stages,
            "CAUSAL": int(shape.causal),
            **({} if suffix else {**window_defines(shape), "DROPOUT": int(case.features.dropout_p > 0)}),
        }
        columns = {} if suffix else {"COLUMN_WARPS": plan.column_warps}
        owner_defines = {**tiled, **columns, "NUM_WARPS": plan.owner_warps, "STRIP": plan.owner_strip}
        sizes = [Scalar("i32", n) for n in (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv, shape.head_dim)]
        rows = [Scalar("i32", n) for n in (shape.heads_q, shape.seq_q, shape.head_dim)]
        scale = Scalar("f32", 1 / math.sqrt(shape.head_dim))
        pairs = () if suffix else (*window_arguments(shape), *dropout_arguments(case))

        def launch(spec: KernelSpec, ctas: int, warps: int, smem_bytes: int, *args: str | Scalar) -> Launch:
            heads = shape.heads_kv if spec.entry in (DKDV, ATOMIC) else shape.heads_q
            # A CTA of a K/V head works for all query heads of its group: then slices can't be run one by one.
            by_slice = choose(shape.group == 1, ctas, 0)
            return Launch(
                spec, (shape.batch * heads * ctas, 1, 1), (warps * WARP_SIZE, 1, 1), smem_bytes, args, by_slice
            )

        preprocess = launch(
            _spec("preprocess", {**element, "NUM_WARPS": ROW_WARPS, "ATOMIC": int(self._atomic)}),
            *(plan.row_blocks, ROW_WARPS, 0),
            *("O", "dO", "delta", *(["dQ_acc"] if self._atomic else [])),
            *stride_arguments(t.o, t.do),
            *rows,
        )
        owner = launch(
            _spec("atomic" if self._atomic else "dkdv", owner_defines, suffix),
            *(plan.kv_tiles, plan.owner_warps * plan.column_warps, plan.owner_smem_bytes),
            *("Q", "K", "V", "dO", "LSE", "delta", "dK", "dV", *(["dQ_acc"] if self._atomic else [])),
            *stride_arguments(t.q, t.k, t.v, t.do, t.dk, t.dv),
            *(*sizes, scale, *pairs),
        )
        if self._atomic:
            convert = launch(
                _spec("convert", {**element, "NUM_WARPS": ROW_WARPS}),
                *(plan.row_blocks, ROW_WARPS, 0),
                *("dQ_acc", "dQ"),
                *stride_arguments(t.dq),
                *(*rows, scale),
            )
            return preprocess, owner, convert
        dq = launch(
            _spec("dq", {**tiled, "NUM_WARPS": plan.dq_warps, "STRIP": plan.dq_strip}, suffix),
            *(plan.q_blocks, plan.dq_warps, plan.dq_smem_bytes),
            *("Q", "K", "V", "dO", "LSE", "delta", "dQ"),
            *stride_arguments(t.q, t.k, t.v, t.do, t.dq),
            *(*sizes, scale, *pairs),
        )
        return preprocess, owner, dq

    # --- bytes and FLOPs ----------------------------------------------------------------------------------------

    def traffic(self, case: Case) -> tuple[TensorBytes, ...]:
        """Exact global traffic of the backward pass in bytes.

        Let σ(n) be the sectors of a slice's first n rows of a matrix as in
        :meth:`fa_bench.algorithms.flash2.Flash2.traffic`, and λ(n, w) those of the first n floats of a vector of seq_q
        when warps take w of them, 32 at a time, from the slice's first row on
        (:func:`fa_bench.algorithms.slices.row_vector_sectors`). A vector starts anywhere in a sector.

        Preprocess: O and dO once, σ(seq_q) per slice; delta written by warps of 32 rows, λ(seq_q, 32). With atomics
        dQ_acc is zeroed, seq_q · head_dim floats; its rows start on a sector.

        The kernel that owns K/V tiles (`flash2_bwd_dkdv`, `flash2_bwd_atomic`): K and V once per K/V head. Tile t
        takes the Q tiles from the first to the last that see one of its keys, which are rows s(t) to e(t). Query i sees
        keys j of ``i + seq_kv - seq_q - left <= j <= i + seq_kv - seq_q + right``, so with j0 and j1 the tile's first
        and last key s(t) is ``max(0, j0 - seq_kv + seq_q - right)`` rounded down to block_m, and e(t) is
        ``max(0, j1 + 1 - seq_kv + seq_q + left)`` rounded up, at most seq_q; 0 and seq_q where a side has no limit. So
        Q and dO are Σ_t σ(e(t)) - σ(s(t)) per query head, LSE and delta Σ_t λ(e(t), block_m) - λ(s(t), block_m). dK
        and dV are written once. With atomics each step adds its rows of dQ, one instruction to four whole sectors:
        Σ_t (e(t) - s(t)) · head_dim floats, which count as read and as written.

        The dQ kernel: as in the forward pass, Q and dO (with dQ in place of O) σ(seq_q), K and V Σ_t σ(n(t)) - σ(f(t))
        per query head, rows f(t) to n(t) being those of the K/V tiles that Q tile t sees something of; LSE and delta
        λ(seq_q, w), w rows per warp. Or, with atomics, the conversion: dQ_acc read and dQ written once, four elements
        per lane. Dropout moves nothing.

        Where all is aligned and without a mask, Q, dO, K and V of a square problem are
        2 N² · head_dim · itemsize · (1/block_m + 1/block_n) beside once each: what recomputation reads instead of the
        4 N² elements of P, dP and dS.
        """
        return tuple(
            TensorBytes(kernel, tensor, op, sectors * SECTOR_BYTES)
            for (kernel, tensor, op), sectors in self._sectors(case).items()
        )

    def _sectors(self, case: Case) -> _Sectors:
        plan, t, shape = self._plan(case), _tensors(case), case.shape
        copy, block_m, queries = plan.copy, plan.tile.block_m, plan.query_reach()
        row_sectors = shape.head_dim * 4 // SECTOR_BYTES  # of dQ_acc

        def streamed(buffer: Buffer) -> int:
            return tensor_sectors(buffer, copy, queries)

        def streamed_vector(buffer: Buffer) -> int:
            return row_vector_sectors(buffer, block_m, queries)

        owner = ATOMIC if self._atomic else DKDV
        zeroed: _Sectors = {(PREPROCESS, "dQ_acc", "write"): shape.slices * shape.seq_q * row_sectors}
        sectors: _Sectors = {
            (PREPROCESS, "O", "read"): tensor_sectors(t.o, copy),
            (PREPROCESS, "dO", "read"): tensor_sectors(t.do, copy),
            (PREPROCESS, "delta", "write"): row_vector_sectors(t.delta, ROW_WARP_ROWS),
            **(zeroed if self._atomic else {}),
            (owner, "Q", "read"): streamed(t.q),
            (owner, "K", "read"): tensor_sectors(t.k, copy),
            (owner, "V", "read"): tensor_sectors(t.v, copy),
            (owner, "dO", "read"): streamed(t.do),
            (owner, "LSE", "read"): streamed_vector(t.lse),
            (owner, "delta", "read"): streamed_vector(t.delta),
            (owner, "dK", "write"): tensor_sectors(t.dk, plan.store),
            (owner, "dV", "write"): tensor_sectors(t.dv, plan.store),
        }
        if self._atomic:
            added = queries.rows(shape.seq_q) * shape.slices * row_sectors
            narrow, wide = plan.convert
            return sectors | {
                (ATOMIC, "dQ_acc", "read"): added,
                (ATOMIC, "dQ_acc", "write"): added,
                (CONVERT, "dQ_acc", "read"): tensor_sectors(t.dq_acc, wide),
                (CONVERT, "dQ", "write"): tensor_sectors(t.dq, narrow),
            }
        keys = plan.key_reach()

        def seen(buffer: Buffer) -> int:
            return tensor_sectors(buffer, copy, keys) * shape.group

        return sectors | {
            (DQ, "Q", "read"): tensor_sectors(t.q, copy),
            (DQ, "K", "read"): seen(t.k),
            (DQ, "V", "read"): seen(t.v),
            (DQ, "dO", "read"): tensor_sectors(t.do, copy),
            (DQ, "LSE", "read"): row_vector_sectors(t.lse, plan.dq_rows),
            (DQ, "delta", "read"): row_vector_sectors(t.delta, plan.dq_rows),
            (DQ, "dQ", "write"): tensor_sectors(t.dq, plan.store),
        }

    def work(self, case: Case, forward: Work) -> Work:
        """Whole tiles, padded columns and masked scores included, on top of ``forward``'s; two FLOPs per product.

        Per tile of S the kernel that owns K/V tiles makes four products (S, dP, dV, dK; with atomics dQ too) and the
        dQ kernel three (S, dP, dQ). Warps that split the columns of dK and dV make S, dP and P once each. One
        exponential per score: LSE is known, so that nothing is rescaled.
        """
        plan, shape, fp32 = self._plan(case), case.shape, case.dtype == "fp32"
        pairs, columns = plan.tile.block_m * plan.tile.block_n, plan.column_warps
        owner_tiles = plan.query_reach().blocks * shape.slices
        products = [(ATOMIC if self._atomic else DKDV, 2 * columns + (3 if self._atomic else 2), columns, owner_tiles)]
        if not self._atomic:
            products.append((DQ, 3, 1, plan.key_reach().blocks * shape.slices))
        kernels = []
        for name, count, exponentials, tiles in products:
            flops, exps = 2 * count * tiles * pairs * plan.dim, exponentials * tiles * pairs
            kernels.append((name, *((0, flops) if fp32 else (flops, 0)), exps))
        convert = [(CONVERT, 0, 0, 0)] if self._atomic else []
        per_kernel = ((PREPROCESS, 0, 0, 0), *kernels, *convert)
        return Work(
            forward.flops_executed + sum(tensor + fma for _, tensor, fma, _ in per_kernel),
            forward.exp_count + sum(exps for *_, exps in per_kernel),
            (*forward.per_kernel, *per_kernel),
        )

    def explain(self, case: Case) -> str:
        """The derivation of :meth:`traffic` with the numbers of ``case`` put in."""
        plan, shape = self._plan(case), case.shape
        tile, once, kv_once = plan.tile, f"Σ_slices σ({shape.seq_q})", f"Σ_kv-heads σ({shape.seq_kv})"
        queries, keys = plan.query_reach().rows(shape.seq_q), plan.key_reach().rows(shape.seq_kv)
        # Without a limit to the left all tiles end, and begin, with the tensor.
        left = shape.window_left is not None
        last, skipped = ("e(t)", " - σ(f(t))") if left else (f"{shape.seq_q}", "")
        streamed = f"Σ_slices Σ_t σ({last}) - σ(s(t))"
        vector = f"Σ_slices Σ_t λ({last}, {tile.block_m}) - λ(s(t), {tile.block_m})"
        rows = f"{shape.slices} x {shape.seq_q} rows x {shape.head_dim * 4} bytes"
        added = f"{shape.slices} x {queries} rows x {shape.head_dim * 4} bytes"
        texts: dict[tuple[str, str], str] = {
            **{(PREPROCESS, name): once for name in ("O", "dO")},
            (PREPROCESS, "delta"): f"Σ_slices λ({shape.seq_q}, {ROW_WARP_ROWS})",
            (PREPROCESS, "dQ_acc"): rows,
            **{(name, tensor): streamed for name in (DKDV, ATOMIC) for tensor in ("Q", "dO")},
            **{(name, tensor): vector for name in (DKDV, ATOMIC) for tensor in ("LSE", "delta")},
            **{(name, tensor): kv_once for name in (DKDV, ATOMIC) for tensor in ("K", "V", "dK", "dV")},
            (ATOMIC, "dQ_acc"): added,
            **{(DQ, tensor): once for tensor in ("Q", "dO", "dQ")},
            **{(DQ, tensor): f"Σ_slices Σ_t σ(n(t)){skipped}" for tensor in ("K", "V")},
            **{(DQ, tensor): f"Σ_slices λ({shape.seq_q}, {plan.dq_rows})" for tensor in ("LSE", "delta")},
            (CONVERT, "dQ_acc"): rows,
            (CONVERT, "dQ"): once,
        }
        named = (*shape.named, *case.features.named)
        asked = f" with {', '.join(named)}" if named else ""
        lines = [
            f"{case.impl} backward{asked}, tile {tile}, up to {tile.num_warps} warps per side: {plan.kv_tiles} K/V "
            f"tiles per K/V head, {plan.q_blocks} Q tiles per slice; slices: {shape.slices}, K/V heads: "
            f"{shape.batch * shape.heads_kv}.",
            row_sizes(case, Program(self.buffers(case), ())),
            f"A warp instruction copies {plan.copy.group_rows} rows x {plan.copy.column_bytes} bytes; σ(n) = sectors "
            "of a slice's first n rows, λ(n, w) of its first n floats, by warps of w.",
            f"K/V tiles read rows s(t) to {last} of Q, {queries} in all; Q tiles read rows {'f(t)' if left else 0} to "
            f"n(t) of K and V, {keys} in all.",
        ]
        for (kernel, tensor, op), n in self._sectors(case).items():
            text = texts[kernel, tensor]
            lines.append(f"{kernel:<21} {tensor:<6} {op:<5}  {text} = {n} sectors = {n * SECTOR_BYTES} bytes")
        return "\n".join(lines)


def _spec(stem: str, defines: dict[str, int], suffix: str = "") -> KernelSpec:
    named = tuple((name, str(value)) for name, value in defines.items())
    return KernelSpec(f"flash2/flash2_bwd_{stem}{suffix}.cu", f"flash2_bwd_{stem}", named)
