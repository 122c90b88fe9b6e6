"""FlashAttention-2: one CTA per Q tile, K and V streamed past it (``kernels/flash2``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from fa_bench.algorithms.base import (
    ELEMENT_BYTES,
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
from fa_bench.algorithms.sectors import IntArray, copy_sectors, slice_phases
from fa_bench.algorithms.tensors import (
    ELEMENT_DEFINES,
    padded_head_dim,
    qkvo,
    row_vector,
    stride_arguments,
)
from fa_bench.cases import Case, Tile
from fa_bench.errors import UsageError
from fa_bench.model.gpu import Gpu

KERNEL: Final = "flash2_fwd"

_CHUNK_BYTES: Final = 16
_WARP_SIZE: Final = 32
#: Registers per thread that accumulators (and, in fp32, the Q micro-tile) may take beside all else, without spills.
_REGISTER_BUDGET: Final = 192
#: Beyond this many the accumulators alone can't stay in the 255 registers of a thread.
_REGISTER_LIMIT: Final = 232


@dataclass(frozen=True, slots=True)
class _Plan:
    """The numbers of a case that follow from its tile: what the kernels call by the same names."""

    case: Case
    tile: Tile

    @property
    def dim(self) -> int:
        return padded_head_dim(self.case.shape.head_dim)

    @property
    def q_blocks(self) -> int:
        return math.ceil(self.case.shape.seq_q / self.tile.block_m)

    @property
    def copy(self) -> dict[str, int]:
        """Rows and bytes of each row that one warp instruction copies (``CopyMap`` in ``tile.cuh``)."""
        chunks = self.dim * self.case.itemsize // _CHUNK_BYTES
        columns = min(chunks & -chunks, _WARP_SIZE)
        return {"group_rows": _WARP_SIZE // columns, "column_bytes": columns * _CHUNK_BYTES}

    @property
    def store(self) -> dict[str, int]:
        """The same for O: fp32 stores from registers, 4 rows of 8 chunks; 16-bit types as they are copied."""
        return {"group_rows": 4, "column_bytes": 128} if self.case.dtype == "fp32" else self.copy

    @property
    def lse_rows(self) -> int:
        """Rows of LSE that one instruction writes: the largest power of two in a warp's rows, at most 32."""
        rows = self.tile.block_m // self.tile.num_warps
        return min(rows & -rows, _WARP_SIZE)

    def kv_blocks(self) -> IntArray:
        """K/V tiles that each Q tile visits: none behind its last row's diagonal."""
        shape = self.case.shape
        end = np.minimum((np.arange(self.q_blocks, dtype=np.int64) + 1) * self.tile.block_m, shape.seq_q)
        visible = np.clip(end + shape.diagonal, 0, shape.seq_kv) if shape.causal else np.full_like(end, shape.seq_kv)
        return -(-visible // self.tile.block_n)

    def kv_rows(self) -> IntArray:
        """Rows of K (and of V) that each Q tile reads: whole tiles, cut at the end of the tensor."""
        return np.minimum(self.kv_blocks() * self.tile.block_n, self.case.shape.seq_kv)


class Flash2:
    """FlashAttention-2 forward, the Algorithm of the room (see :mod:`fa_bench.algorithms.base`)."""

    name = "flash2"
    version = "1"
    summary = "Q tile per CTA, K/V streamed through cp.async, online softmax, O written once"
    uses_tile = True

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The first tile of a list, best first, that fits; or one of at least half its area that keeps eight warps
        on an SM.

        Tall tiles re-read K and V less often, and use each fragment of them for several rows. Two CTAs of four warps
        per SM let one compute while the other waits.
        """
        fitting = [t for t in self._candidates(case) if _smem_bytes(case, t) <= gpu.smem_per_block_bytes]
        first = fitting[0]  # 16x16 needs 48 KiB at most, which every GPU has
        for tile in fitting:
            # The driver keeps 1 KiB of shared memory per CTA.
            warps = gpu.smem_per_sm_bytes // (_smem_bytes(case, tile) + 1024) * tile.num_warps
            if warps >= 8 and 2 * tile.block_m * tile.block_n >= first.block_m * first.block_n:
                return tile
        return first

    def _candidates(self, case: Case) -> Iterator[Tile]:
        sizes = [(128, 64), (128, 32), (64, 64), (64, 32), (32, 64), (32, 32), (32, 16), (16, 64), (16, 32), (16, 16)]
        rows = max(16, 1 << (case.shape.seq_q - 1).bit_length())
        # A second buffer pays where it costs neither a CTA per SM nor registers that the accumulators need.
        stages = 2 if case.dtype != "fp32" and padded_head_dim(case.shape.head_dim) <= 64 else 1
        for block_m, block_n in sizes:
            if block_m <= rows:
                yield self.resolve(case, Tile(block_m, block_n, stages))

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps``: four if each warp then has whole mma rows that fit its registers.

        Raises
        ------
        UsageError
            If ``num_warps`` is given and does not divide the rows of the tile.
        """
        legal = [warps for warps in (4, 8, 2, 1) if tile.block_m % (_row_unit(case) * warps) == 0]
        if tile.num_warps:
            if tile.num_warps not in legal:
                raise UsageError(
                    f"flash2 gives each warp a multiple of {_row_unit(case)} rows of Q: "
                    f"{tile.block_m} rows don't divide among {tile.num_warps} warps.",
                    hint=f"num_warps can be {', '.join(map(str, sorted(legal)))} here.",
                )
            return tile
        fitting = [warps for warps in legal if _registers(case, tile, warps) <= _REGISTER_BUDGET]
        return Tile(tile.block_m, tile.block_n, tile.stages, fitting[0] if fitting else max(legal))

    def smem_bytes(self, case: Case) -> int:
        """Q tile, and ``stages`` tiles of K and of V."""
        return _smem_bytes(case, _tile(case))

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        tile = _tile(case)
        if gpu.compute_capability < (8, 0):
            major, minor = gpu.compute_capability
            return f"flash2 needs compute capability 8.0 (cp.async, mma.m16n8k16); {gpu.name} has {major}.{minor}."
        needed, limit = _smem_bytes(case, tile), gpu.smem_per_block_bytes
        if needed > limit:
            return (
                f"Tile {tile} with {_stages(tile.stages)} needs {_kib(needed)} of shared memory per block, "
                f"{gpu.name} has {_kib(limit)}; {_largest(case, tile, limit)}."
            )
        if (registers := _registers(case, tile, tile.num_warps)) > _REGISTER_LIMIT:
            return (
                f"Tile {tile} with {tile.num_warps} warps needs {registers} registers per thread for accumulators "
                f"alone, of 255; use fewer rows, or a multiple of {_row_unit(case) * 8} so that 8 warps share them."
            )
        return None

    def program(self, case: Case) -> Program:
        """Buffers and the one launch of ``case``."""
        shape, tile = case.shape, _tile(case)
        q, k, v, o = qkvo(case)
        lse = row_vector("LSE", case, "output")
        plan = _Plan(case, tile)
        fp32 = case.dtype == "fp32"
        defines = {
            ELEMENT_DEFINES[case.dtype]: 1,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "DIM": plan.dim,
            "STAGES": tile.stages,
            "NUM_WARPS": tile.num_warps,
            "CAUSAL": int(shape.causal),
        }
        spec = KernelSpec(
            source="flash2/flash2_fwd_fp32.cu" if fp32 else "flash2/flash2_fwd.cu",
            entry=KERNEL,
            defines=tuple((name, str(value)) for name, value in defines.items()),
        )
        sizes = (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv, shape.head_dim)
        launch = Launch(
            kernel=spec,
            grid=(shape.slices * plan.q_blocks, 1, 1),
            block=(tile.num_warps * _WARP_SIZE, 1, 1),
            smem_bytes=_smem_bytes(case, tile),
            args=(
                *(buffer.name for buffer in (q, k, v, o, lse)),
                *stride_arguments(q, k, v, o),
                *(Scalar("i32", size) for size in sizes),
                Scalar("f32", 1 / math.sqrt(shape.head_dim)),
            ),
            ctas_per_slice=plan.q_blocks,
        )
        return Program((q, k, v, o, lse), (launch,))

    def traffic(self, case: Case) -> tuple[TensorBytes, ...]:
        """Exact global traffic in bytes.

        Every copy of rows between global and shared memory goes through ``CopyMap`` of ``tile.cuh``: a warp
        instruction covers ``group_rows`` consecutive rows and ``column_bytes`` of each, counted from the first row
        of the slice (tiles start at multiples of 16 rows, ``group_rows`` divides 16). Chunks beyond the last row or
        beyond ``head_dim`` are copies of size 0. So the sectors of a slice's first n rows, σ(n), are those of
        :func:`fa_bench.algorithms.sectors.copy_sectors`, a function of n and of where the slice starts in a sector.
        With T = ceil(seq_q / block_m) Q tiles, and v(t) visible keys for the last row of tile t:

        * Q: each row once, σ(seq_q) per slice, also where a tile sees no key.
        * K, V: tile t reads n(t) = min(seq_kv, block_n · ceil(v(t) / block_n)) rows, Σ_t σ(n(t)) per query head:
          query heads that share a K/V head each read it.
        * O: each row once, stored through the same map (fp32: 4 rows of 128 bytes per instruction).
        * LSE: four bytes per row, the largest power of two in a warp's rows (at most 32) per instruction.

        Where rows start on a sector, σ(n) · 32 = n · head_dim · itemsize, and K plus V of a square problem without
        a mask are seq_q · seq_kv · head_dim · itemsize · 2 / block_m: the papers' N²d/M with M = block_m · d.
        """
        counts = _sectors(case)
        return tuple(TensorBytes(KERNEL, tensor, op, n * SECTOR_BYTES) for (tensor, op), n in counts.items())

    def work(self, case: Case) -> Work:
        """Whole tiles, padded columns and masked scores included; two products per pair and column, two FLOPs each.

        Exponentials: one per score, and one per row and tile for the factor that shrinks O, which each of the lanes
        that share the row computes (4 with mma accumulators, 8 in fp32).
        """
        plan = _Plan(case, _tile(case))
        tile, fp32 = plan.tile, case.dtype == "fp32"
        tiles = int(plan.kv_blocks().sum()) * case.shape.slices
        flops = 4 * tiles * tile.block_m * tile.block_n * plan.dim
        exps = tiles * tile.block_m * (tile.block_n + (8 if fp32 else 4))
        return Work(flops, exps, ((KERNEL, 0 if fp32 else flops, flops if fp32 else 0, exps),))

    def explain(self, case: Case) -> str:
        """The derivation of :meth:`traffic` with the numbers of ``case`` put in."""
        plan = _Plan(case, _tile(case))
        shape, tile = case.shape, plan.tile
        q, k, *_ = self.program(case).buffers
        row_bytes = shape.head_dim * case.itemsize
        counts = _sectors(case)
        sizes, tiles = np.unique(plan.kv_rows(), return_counts=True)
        per_tile = " + ".join(f"{n}·σ({rows})" for rows, n in zip(sizes[:3].tolist(), tiles[:3].tolist(), strict=True))
        if len(sizes) > 3:
            per_tile += f" + … + {tiles[-1]}·σ({sizes[-1]})"

        def total(tensor: str, op: Op) -> str:
            n = counts[tensor, op]
            return f"{n} sectors = {n * SECTOR_BYTES} bytes"

        def classes(buffer: Buffer) -> str:
            phases, slices = slice_phases(buffer)
            return ", ".join(f"{n} at {phase}" for phase, n in zip(phases.tolist(), slices.tolist(), strict=True))

        return "\n".join(
            (
                f"flash2, tile {tile}, {tile.num_warps} warps: T = ceil({shape.seq_q}/{tile.block_m}) = "
                f"{plan.q_blocks} Q tiles per slice, {shape.slices} slices.",
                f"Rows are {shape.head_dim} x {case.itemsize} = {row_bytes} bytes, {q.strides[2] * case.itemsize} "
                f"(Q, O) and {k.strides[2] * case.itemsize} (K, V) bytes apart.",
                f"A warp instruction copies {plan.copy['group_rows']} rows x {plan.copy['column_bytes']} bytes; "
                "σ(n) = sectors of a slice's first n rows.",
                f"Slices by start address mod 32: Q, O {classes(q)}; K, V {classes(k)}.",
                f"Q    read   Σ_slices σ({shape.seq_q}) = {total('Q', 'read')}",
                f"K    read   Σ_slices Σ_tiles σ(rows), {per_tile} per slice = {total('K', 'read')}",
                f"V    read   the same = {total('V', 'read')}",
                f"O    write  Σ_slices σ({shape.seq_q}) = {total('O', 'write')}",
                f"LSE  write  {shape.seq_q} x 4 bytes per slice, {plan.lse_rows} rows per instruction = "
                f"{total('LSE', 'write')}",
            )
        )


def _tile(case: Case) -> Tile:
    if case.tile is None or not case.tile.num_warps:
        raise ValueError("flash2 needs a case with a resolved tile")
    return case.tile


def _smem_bytes(case: Case, tile: Tile) -> int:
    rows = tile.block_m + 2 * tile.stages * tile.block_n
    return rows * padded_head_dim(case.shape.head_dim) * case.itemsize


def _row_unit(case: Case) -> int:
    """Rows of Q that a warp owns come in multiples of this: mma tiles, or the four lane rows of the fp32 kernel."""
    return 4 if case.dtype == "fp32" else 16


def _registers(case: Case, tile: Tile, warps: int) -> int:
    """Registers per thread for the accumulators of S and O, and for the fp32 kernel's Q micro-tile."""
    rows = tile.block_m // warps
    accumulators = rows * (tile.block_n + padded_head_dim(case.shape.head_dim)) // _WARP_SIZE
    return accumulators + (rows if case.dtype == "fp32" else 0)


def _largest(case: Case, tile: Tile, limit: int) -> str:
    """The largest tile, none of its sides longer than the one refused, that fits ``limit`` bytes, in words."""
    for stages in range(tile.stages, 0, -1):
        fitting = [
            candidate
            for block_m in range(16, tile.block_m + 1, 16)
            for block_n in range(16, tile.block_n + 1, 16)
            if _smem_bytes(case, candidate := Tile(block_m, block_n, stages)) <= limit
        ]
        if fitting:
            best = max(fitting, key=lambda t: (t.block_m * t.block_n, t.block_m))
            return f"the largest that fits is {best} with {_stages(stages)} ({_kib(_smem_bytes(case, best))})"
    return "no smaller tile fits"


def _stages(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"


def _kib(nbytes: int) -> str:
    return f"{nbytes / 1024:g} KiB"


def _sectors(case: Case) -> dict[tuple[str, Op], int]:
    """Sectors of all slices, per tensor and direction; derived in :meth:`Flash2.traffic`."""
    plan = _Plan(case, _tile(case))
    q, k, v, o = qkvo(case)
    lse = row_vector("LSE", case, "output")
    group, seq_q, kv_rows = case.shape.group, np.array([case.shape.seq_q]), plan.kv_rows()
    return {
        ("Q", "read"): _slice_sectors(q, seq_q, **plan.copy),
        ("K", "read"): _slice_sectors(k, kv_rows, **plan.copy) * group,
        ("V", "read"): _slice_sectors(v, kv_rows, **plan.copy) * group,
        ("O", "write"): _slice_sectors(o, seq_q, **plan.store),
        ("LSE", "write"): _slice_sectors(lse, seq_q, group_rows=plan.lse_rows, column_bytes=4),
    }


def _slice_sectors(buffer: Buffer, rows: IntArray, *, group_rows: int, column_bytes: int) -> int:
    """Σ over the slices of ``buffer`` and over ``rows`` of σ(rows)."""
    itemsize = ELEMENT_BYTES[buffer.dtype]
    row_elements = buffer.shape[3] if len(buffer.shape) == 4 else 1
    phases, slices = slice_phases(buffer)
    sizes, times = np.unique(rows, return_counts=True)
    sectors = copy_sectors(
        phases[:, None],
        sizes,
        row_bytes=row_elements * itemsize,
        pitch_bytes=buffer.strides[2] * itemsize,
        group_rows=group_rows,
        column_bytes=column_bytes,
    )
    return int(slices @ sectors @ times)
