"""FlashAttention-2 forward with windows, softcap, bias, ALiBi, sinks, dropout, a head_dim of V, and packed batches.

The kernel is ``kernels/flash2/flash2_fused.cu``; :mod:`fa_bench.algorithms.flash2` hands cases to it that ask for any
of these. It is for fp16 and bf16.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fa_bench.algorithms.base import SECTOR_BYTES, Buffer, KernelSpec, Launch, Op, Program, Scalar, TensorBytes, Work
from fa_bench.algorithms.sectors import IntArray, copy_sectors, slice_phases
from fa_bench.algorithms.slices import over_slices, row_vector_sectors, tensor_sectors
from fa_bench.algorithms.tensors import (
    ELEMENT_DEFINES,
    dropout_arguments,
    feature_defines,
    feature_tensors,
    padded_head_dim,
    qkvo,
    row_vector,
    stride_arguments,
    window_arguments,
)
from fa_bench.algorithms.tiles import (
    CHUNK_BYTES,
    WARP_SIZE,
    Access,
    StreamPlan,
    copy_access,
    covering_power,
    grid_refusal,
    refusal,
    resolve_warps,
    resolved_tile,
    row_sizes,
)
from fa_bench.cases import Case, Features, Tile
from fa_bench.model.gpu import Gpu
from fa_bench.sizes import ceil_div, least, most

KERNEL: Final = "flash2_fused"

#: Registers per thread that accumulators may take beside all that is done to scores; found by compiling for sm_80.
_REGISTER_BUDGET: Final = 120
_CHUNK_ELEMENTS: Final = 8
#: Of a packed batch: rows that sequences begin with.
_STARTS: Final = ("cu_seqlens_q", "cu_seqlens_kv")
#: Arguments after LSE that are null where they are not asked for.
_POINTERS: Final = ("bias", "slopes", "sinks", *_STARTS)


def fused(case: Case) -> bool:
    """Whether a case asks for something that the plain kernel has not."""
    shape = case.shape
    return case.features != Features() or shape.windowed or shape.dim_v != shape.head_dim or shape.seqlens is not None


@dataclass(frozen=True, slots=True)
class _Plan(StreamPlan):
    @property
    def bias_row_bytes(self) -> int:
        """Bytes of a row of the bias tile in shared memory."""
        return ceil_div(self.tile.block_n, 32) * 4 * CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class _Part:
    """Slices of the same length: all of a case, or those of one sequence of a packed batch."""

    plan: _Plan
    #: Rows of the tensors that the slices begin with.
    first_query: int = 0
    first_key: int = 0


def _parts(case: Case) -> Iterator[_Part]:
    """All of a case, in parts whose slices do the same."""
    tile = resolved_tile(case)
    if case.shape.seqlens is None:
        yield _Part(_Plan(case, tile))
        return
    for batch, (query, key) in enumerate(zip(*(starts[:-1] for starts in case.shape.cu_seqlens), strict=True)):
        yield _Part(_Plan(replace(case, shape=case.shape.sequence(batch)), tile), query, key)


class Fused:
    """The forward pass of a case that `fused` says yes to; the methods are those of an Algorithm."""

    def candidates(self, case: Case) -> Iterator[Tile]:
        """Tiles, best first: as tall as registers allow beside what is done to scores."""
        for block_m, block_n in ((128, 64), (64, 64), (64, 32), (32, 64), (32, 32), (16, 64), (16, 32), (16, 16)):
            if block_m <= covering_power(case.shape.seq_q):
                yield self.resolve(case, Tile(block_m, block_n, 1))

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps``."""
        warps = resolve_warps(case, tile, lambda n: _registers(case, tile, n), _REGISTER_BUDGET)
        return Tile(tile.block_m, tile.block_n, tile.stages, warps)

    def smem_bytes(self, case: Case) -> int:
        """Q tile, or O in its place, and ``stages`` tiles of K, V and bias."""
        return _smem_bytes(case, resolved_tile(case))

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        if case.dtype == "fp32":
            asked = "windows, fused features, packed batches and a head_dim_v of its own"
            return f"{case.impl} has {asked} for fp16 and bf16 only."
        tile = resolved_tile(case)
        registers = _registers(case, tile, tile.num_warps)
        reason = refusal(case, gpu, lambda other: _smem_bytes(case, other), registers)
        return reason or grid_refusal(self.program(case))

    def program(self, case: Case) -> Program:
        """Buffers and the one launch of ``case``."""
        shape, features, tile = case.shape, case.features, resolved_tile(case)
        plan = _Plan(case, tile)
        everything = _buffers(case)
        buffers, extra = everything[:5], everything[5:]
        defines = {
            ELEMENT_DEFINES[case.dtype]: 1,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "DIM": plan.dim,
            "DIM_V": plan.dim_v,
            "STAGES": tile.stages,
            "NUM_WARPS": tile.num_warps,
            **feature_defines(case),
            "VARLEN": int(shape.seqlens is not None),
        }
        there = {buffer.name: buffer for buffer in extra}
        bias = there["bias"].strides[1:3] if "bias" in there else (0, 0)
        launch = Launch(
            kernel=KernelSpec(
                "flash2/flash2_fused.cu", KERNEL, tuple((name, str(value)) for name, value in defines.items())
            ),
            grid=(shape.slices * plan.q_blocks, 1, 1),
            block=(tile.num_warps * WARP_SIZE, 1, 1),
            smem_bytes=_smem_bytes(case, tile),
            args=(
                *(buffer.name for buffer in buffers),
                *(name if name in there else Scalar("u64", 0) for name in _POINTERS),
                *stride_arguments(*buffers[:4]),
                Scalar("i64", buffers[4].strides[1]),
                *(Scalar("i64", stride) for stride in bias),
                *(Scalar("i32", size) for size in (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv)),
                *(Scalar("i32", dim) for dim in (shape.head_dim, shape.dim_v)),
                Scalar("f32", 1 / math.sqrt(shape.head_dim)),
                *window_arguments(shape),
                Scalar("f32", features.softcap),
                *dropout_arguments(case),
            ),
            ctas_per_slice=plan.q_blocks,
        )
        return Program(everything, (launch,))

    def traffic(self, case: Case) -> tuple[TensorBytes, ...]:
        """Exact global traffic in bytes.

        As in :meth:`fa_bench.algorithms.flash2.Flash2.traffic`, with σ_v in the place of σ for V and O, whose rows have
        head_dim_v columns, and with K/V tiles from f(t) on: of a window of ``left`` keys, tile t skips those before
        ``max(0, m0 + seq_kv - seq_q - left)``, m0 its first row.

        * K, V: tile t reads rows f(t) · block_n to n(t). A tile begins where an instruction does, so these are
          Σ_t σ(n(t)) - σ(f(t) · block_n).
        * bias: each tile of S reads its rows of the tile's columns, cut at the next 8 columns behind the last key,
          through ``CopyMap``; rows are 16-byte chunks apart, so a head's first row may start in mid-sector. Each batch
          reads it again.
        * slopes, sinks: each warp reads its head's number, one sector.
        * cu_seqlens_q, cu_seqlens_kv of a packed batch: each warp reads where its sequence begins and ends, a sector
          each, of the keys only if its CTA has queries.

        A packed batch moves the sum over its sequences, each of which starts at its own row: σ of its rows from there.

        Softcap, ALiBi, windows and dropout move nothing: their numbers follow from the position.
        """
        return tuple(
            TensorBytes(KERNEL, tensor, op, sectors * SECTOR_BYTES)
            for (tensor, op), sectors in _sectors(case).items()
            if np.any(sectors)
        )

    def work(self, case: Case) -> Work:
        """As the plain kernel's, over the tiles that are visited; softcap takes one exponential more per score."""
        plan = _Plan(case, resolved_tile(case))
        tile = plan.tile
        tiles, _ = _tiles(case)
        flops = 2 * tiles * tile.block_m * tile.block_n * (plan.dim + plan.dim_v)
        per_score = 2 if case.features.softcap else 1
        exps = tiles * tile.block_m * (tile.block_n * per_score + 4)
        return Work(flops, exps, ((KERNEL, flops, 0, exps),))

    def explain(self, case: Case) -> str:
        """The derivation of :meth:`traffic` with the numbers of ``case`` put in."""
        plan = _Plan(case, resolved_tile(case))
        shape, tile = case.shape, plan.tile
        visited, there = _tiles(case)
        asked = ", ".join((*shape.named, *case.features.named))
        lines = [
            f"flash2 with {asked}, tile {tile}, {tile.num_warps} warps: {plan.q_blocks} Q tiles per slice"
            f"{'' if shape.seqlens is None else ' of the longest sequence'}; {visited} of {there} pairs of a Q and a "
            f"K/V tile are visited; slices: {shape.slices}.",
            row_sizes(case, self.program(case)),
            f"A warp instruction copies {plan.copy.group_rows} rows x {plan.copy.column_bytes} bytes of Q and K, "
            f"{plan.v_copy.group_rows} x {plan.v_copy.column_bytes} of V and O.",
        ]
        for (tensor, op), n in _sectors(case).items():
            if n:
                lines.append(f"{KERNEL} {tensor:<6} {op:<5}  {n} sectors = {n * SECTOR_BYTES} bytes")
        return "\n".join(lines)


def _buffers(case: Case) -> tuple[Buffer, ...]:
    """Q, K, V, O, LSE, then what the features take."""
    sizes = (1, 1, case.shape.batch + 1)
    starts = [Buffer(name, "i32", sizes, (0, 0, 1), "input") for name in _STARTS] if case.shape.seqlens else []
    return (*qkvo(case), row_vector("LSE", case, "output"), *feature_tensors(case), *starts)


def _registers(case: Case, tile: Tile, warps: int) -> int:
    """Registers per thread for the accumulators of S and O."""
    return tile.block_m // warps * (tile.block_n + padded_head_dim(case.shape.dim_v)) // WARP_SIZE


def _smem_bytes(case: Case, tile: Tile) -> int:
    plan = _Plan(case, tile)
    row = max(plan.dim, plan.dim_v) * case.itemsize
    bias = tile.block_m * plan.bias_row_bytes if case.features.bias else 0
    stage = tile.block_n * (plan.dim + plan.dim_v) * case.itemsize + bias
    return tile.block_m * row + tile.stages * stage


def _tiles(case: Case) -> tuple[int, int]:
    """Pairs of a Q and a K/V tile of all slices: those that are visited, and those that there are."""
    visited = there = 0
    for plan in (part.plan for part in _parts(case)):
        shape = plan.case.shape
        visited += plan.key_reach().blocks * shape.slices
        there += plan.q_blocks * plan.kv_tiles * shape.slices
    return visited, there


def _sectors(case: Case) -> dict[tuple[str, Op], int]:
    """Sectors of all slices per tensor and direction; derived in :meth:`Fused.traffic`."""
    buffers = {buffer.name: buffer for buffer in _buffers(case)}
    sectors: Counter[tuple[str, Op]] = Counter()
    for part in _parts(case):
        sectors.update(_part_sectors(part, buffers))
    if case.shape.seqlens is not None:
        plan = _Plan(case, resolved_tile(case))
        sectors["cu_seqlens_q", "read"] = 2 * case.shape.slices * plan.q_blocks * plan.tile.num_warps
    return sectors


def _part_sectors(part: _Part, buffers: Mapping[str, Buffer]) -> dict[tuple[str, Op], int]:
    plan = part.plan
    shape = plan.case.shape
    keys = plan.key_reach()
    warps = shape.slices * plan.q_blocks * plan.tile.num_warps
    first_query = part.first_query

    def streamed(name: str, access: Access) -> int:
        rows = tensor_sectors(buffers[name], access, keys, rows=shape.seq_kv, first_row=part.first_key)
        return rows * shape.group

    sectors: dict[tuple[str, Op], int] = {
        ("Q", "read"): tensor_sectors(buffers["Q"], plan.copy, rows=shape.seq_q, first_row=first_query),
        ("K", "read"): streamed("K", plan.copy),
        ("V", "read"): streamed("V", plan.v_copy),
        ("O", "write"): tensor_sectors(buffers["O"], plan.v_copy, rows=shape.seq_q, first_row=first_query),
        ("LSE", "write"): row_vector_sectors(buffers["LSE"], plan.warp_rows, rows=shape.seq_q, first_row=first_query),
    }
    if "bias" in buffers:
        sectors["bias", "read"] = _bias_sectors(plan, buffers["bias"])
    sectors.update({(name, "read"): warps for name in ("slopes", "sinks") if name in buffers})
    if shape.seqlens is not None:
        sectors["cu_seqlens_kv", "read"] = 2 * warps
    return sectors


def _bias_sectors(plan: _Plan, bias: Buffer) -> int:
    """Sectors of the bias that the slices of ``plan`` read.

    A tile of S reads as many of its rows and columns as there are. The last Q tile is cut at the last query, and visits
    K/V tiles to the last one, which is cut at the last key where that ends a chunk.
    """
    shape, tile, itemsize = plan.case.shape, plan.tile, plan.case.itemsize
    access, keys = copy_access(plan.bias_row_bytes), plan.key_reach()
    phases, heads = slice_phases(bias)
    cut_columns = ceil_div(shape.seq_kv % tile.block_n, _CHUNK_ELEMENTS) * _CHUNK_ELEMENTS
    cut = keys.to_end * (cut_columns > 0)
    first_row = (plan.q_blocks - 1) * tile.block_m
    left = None if shape.window_left is None else first_row + shape.diagonal - shape.window_left
    skipped = 0 if left is None else most(0, left) // tile.block_n
    last, last_cut = least(1, plan.q_blocks), least(1, plan.q_blocks) * (cut_columns > 0)
    last_whole = last * (plan.kv_tiles - skipped) - last_cut
    last_rows = shape.seq_q - last * first_row

    def read(rows: int, columns: int) -> IntArray:
        return copy_sectors(
            phases[:, None],
            rows,
            row_bytes=columns * itemsize,
            pitch_bytes=bias.strides[2] * itemsize,
            group_rows=access.group_rows,
            column_bytes=access.column_bytes,
        )

    per_head = (
        (keys.blocks - cut - last_whole) * read(tile.block_m, tile.block_n)
        + (cut - last_cut) * read(tile.block_m, cut_columns)
        + last_whole * read(last_rows, tile.block_n)
        + last_cut * read(last_rows, cut_columns)
    )
    return shape.batch * over_slices(heads, per_head)
