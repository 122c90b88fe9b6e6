"""FlashAttention-2: one CTA per Q tile, K and V streamed past it (``kernels/flash2``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from fa_bench.algorithms.base import (
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
from fa_bench.algorithms.flash2_backward import Backward
from fa_bench.algorithms.flash2_fused import Fused, fused
from fa_bench.algorithms.sectors import slice_phases
from fa_bench.algorithms.slices import row_vector_sectors, tensor_sectors
from fa_bench.algorithms.tensors import ELEMENT_DEFINES, padded_head_dim, qkvo, row_vector, stride_arguments
from fa_bench.algorithms.tiles import (
    REGISTER_BUDGET,
    WARP_SIZE,
    StreamPlan,
    covering_power,
    default_stages,
    flash_registers,
    grid_refusal,
    preferred_tile,
    refusal,
    resolve_warps,
    resolved_tile,
    row_sizes,
)
from fa_bench.cases import Case, Direction, Tile
from fa_bench.model.gpu import Gpu

KERNEL: Final = "flash2_fwd"
#: What the backward kernels know beside sizes and a causal mask.
_BACKWARD: Final = frozenset({"window", "dropout"})


class Flash2:
    """FlashAttention-2, forward and backward, the Algorithm of the room (see :mod:`fa_bench.algorithms.base`)."""

    name = "flash2"
    version = "1"
    summary = "Q tile per CTA, K/V streamed through cp.async, online softmax, O written once; backward by recomputation"
    uses_tile = True
    directions: tuple[Direction, ...] = ("fwd", "bwd", "fwd+bwd")
    fused: Mapping[Direction, frozenset[str]] = MappingProxyType(
        {
            "fwd": _BACKWARD | {"head_dim_v", "packed", "softcap", "bias", "alibi", "sinks"},
            "bwd": _BACKWARD,
            "fwd+bwd": _BACKWARD,
        }
    )
    _fused = Fused()
    _backward = Backward(atomic=False)

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The `preferred_tile` of a list.

        Tall tiles re-read K and V less often, and use each fragment of them for several rows. Two CTAs of four warps
        per SM let one compute while the other waits. What the list's tiles cost in instructions, wavefronts of shared
        memory and bytes is counted in ``kernels/README.md``, and what is chosen for which GPU stands there too.
        """
        if case.backward:
            return self._backward.auto_tile(case, gpu)
        smem = {tile: self.smem_bytes(replace(case, tile=tile)) for tile in self._candidates(case)}
        return preferred_tile(smem, gpu)

    def _candidates(self, case: Case) -> Iterator[Tile]:
        if fused(case):
            yield from self._fused.candidates(case)
            return
        sizes = [(128, 64), (128, 32), (64, 64), (64, 32), (32, 64), (32, 32), (32, 16), (16, 64), (16, 32), (16, 16)]
        # Warps of 32 rows use each mma fragment of K and V twice as often as those of 16: where 128x64 needs eight for
        # its accumulators and 128x32 does not, the latter reads less of shared memory.
        wide, narrow = (self.resolve(case, Tile(*size)).num_warps for size in sizes[:2])
        if case.dtype != "fp32" and narrow < wide:
            sizes = sizes[1:]
        # Where both need eight, a wider one reads no fragment more often and saves instructions, if registers hold it.
        widest = Tile(128, 128, num_warps=8)
        if case.dtype != "fp32" and narrow == 8 and flash_registers(case, widest, 8) <= REGISTER_BUDGET:
            sizes = [(128, 128), *sizes]
        for block_m, block_n in sizes:
            if block_m <= covering_power(case.shape.seq_q):
                yield self.resolve(case, Tile(block_m, block_n, default_stages(case)))

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps``: four if each warp then has whole mma rows that fit its registers."""
        if case.backward:
            return self._backward.resolve(case, tile)
        if fused(case):
            return self._fused.resolve(case, tile)
        warps = resolve_warps(case, tile, lambda n: flash_registers(case, tile, n))
        return Tile(tile.block_m, tile.block_n, tile.stages, warps)

    def smem_bytes(self, case: Case) -> int:
        """Q tile, and ``stages`` tiles of K and of V; the backward kernels need more."""
        if case.backward:
            return self._backward.smem_bytes(case)
        if fused(case):
            return self._fused.smem_bytes(case)
        return _smem_bytes(case, resolved_tile(case))

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        if case.backward:
            forward = self.unsupported(self._forward_part(case), gpu)
            return self._backward.unsupported(case, gpu) or forward or grid_refusal(self.program(case))
        if fused(case):
            return self._fused.unsupported(case, gpu)
        tile = resolved_tile(case)
        registers = flash_registers(case, tile, tile.num_warps)
        reason = refusal(case, gpu, lambda other: _smem_bytes(case, other), registers)
        return reason or grid_refusal(self.program(case))

    def program(self, case: Case) -> Program:
        """Buffers and launches of ``case``; the forward pass is one launch."""
        if case.backward:
            forward = self.program(self._forward_part(case)).launches
            backward = self._backward.launches(case)
            launches, setup = ((*forward, *backward), ()) if case.forward else (backward, forward)
            return Program(self._backward.buffers(case), launches, setup)
        if fused(case):
            return self._fused.program(case)
        shape, tile = case.shape, resolved_tile(case)
        q, k, v, o = qkvo(case)
        lse = row_vector("LSE", case, "output")
        plan = StreamPlan(case, tile)
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
            block=(tile.num_warps * WARP_SIZE, 1, 1),
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

    def _forward_part(self, case: Case) -> Case:
        """The forward pass of ``case``: in the backward's tile, with its own number of warps."""
        forward = replace(case, direction="fwd", tile=None)
        tile = resolved_tile(case)
        return replace(forward, tile=self.resolve(forward, Tile(tile.block_m, tile.block_n, tile.stages)))

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
        * LSE: four bytes per row; a warp writes its block_m / num_warps consecutive rows 32 at a time, in vectors
          of seq_q floats that start anywhere in a sector.

        Where rows start on a sector, σ(n) · 32 = n · head_dim · itemsize, and K plus V of a square problem without
        a mask are seq_q · seq_kv · head_dim · itemsize · 2 / block_m: the papers' N²d/M with M = block_m · d.

        The backward pass is derived in :meth:`fa_bench.algorithms.flash2_backward.Backward.traffic`, windows and what
        else is fused in :meth:`fa_bench.algorithms.flash2_fused.Fused.traffic`.
        """
        if case.backward:
            forward = self.traffic(self._forward_part(case)) if case.forward else ()
            return (*forward, *self._backward.traffic(case))
        if fused(case):
            return self._fused.traffic(case)
        return tuple(
            TensorBytes(KERNEL, tensor, op, sectors * SECTOR_BYTES) for (tensor, op), sectors in _sectors(case).items()
        )

    def work(self, case: Case) -> Work:
        """Whole tiles, padded columns and masked scores included; two products per pair and column, two FLOPs each.

        Exponentials: one per score, and one per row for the factor that shrinks O, which each of the lanes that share
        the row computes: in fp32 for each tile, in 8 lanes; on tensor cores, in 4 lanes, for the first tile and for
        those in which a maximum rises, which depend on the data and are not counted.
        """
        if case.backward:
            return self._backward.work(case, self.work(self._forward_part(case)) if case.forward else Work(0, 0))
        if fused(case):
            return self._fused.work(case)
        plan = StreamPlan(case, resolved_tile(case))
        tile, fp32 = plan.tile, case.dtype == "fp32"
        reach = plan.key_reach()
        tiles = reach.blocks * case.shape.slices
        flops = 4 * tiles * tile.block_m * tile.block_n * plan.dim
        factors = 8 * tiles if fp32 else 4 * reach.seeing * case.shape.slices
        exps = tile.block_m * (tiles * tile.block_n + factors)
        return Work(flops, exps, ((KERNEL, 0 if fp32 else flops, flops if fp32 else 0, exps),))

    def explain(self, case: Case) -> str:
        """The derivation of :meth:`traffic` with the numbers of ``case`` put in."""
        if case.backward:
            forward = [self.explain(self._forward_part(case))] if case.forward else []
            return "\n".join((*forward, self._backward.explain(case)))
        if fused(case):
            return self._fused.explain(case)
        plan = StreamPlan(case, resolved_tile(case))
        shape, tile = case.shape, plan.tile
        q, k, *_ = qkvo(case)
        sizes, tiles = np.unique(plan.kv_range()[1], return_counts=True)
        terms = [f"{n}·σ({rows})" for rows, n in zip(sizes.tolist(), tiles.tolist(), strict=True)]
        streamed = f"Σ_slices {' + '.join(terms if len(terms) <= 4 else [*terms[:2], '…', terms[-1]])}"
        derivations = {
            ("Q", "read"): f"Σ_slices σ({shape.seq_q})",
            ("K", "read"): streamed,
            ("V", "read"): streamed,
            ("O", "write"): f"Σ_slices σ({shape.seq_q})",
            ("LSE", "write"): f"{shape.seq_q} x 4 bytes per slice",
        }
        lines = [
            f"flash2, tile {tile}, {tile.num_warps} warps: T = ceil({shape.seq_q}/{tile.block_m}) = {plan.q_blocks} "
            f"Q tiles per slice; slices: {shape.slices}.",
            row_sizes(case, self.program(case)),
            f"A warp instruction copies {plan.copy.group_rows} rows x {plan.copy.column_bytes} bytes; "
            "σ(n) = sectors of a slice's first n rows.",
            f"Slices start, in bytes within a sector: {_phases(q)} (Q, O); {_phases(k)} (K, V).",
            f"A warp owns {plan.warp_rows} rows; its instructions cover LSE of {min(plan.warp_rows, WARP_SIZE)}.",
        ]
        for (tensor, op), n in _sectors(case).items():
            text = derivations[tensor, op]
            lines.append(f"{KERNEL} {tensor:<3} {op:<5}  {text} = {n} sectors = {n * SECTOR_BYTES} bytes")
        return "\n".join(lines)


class Flash2Atomic(Flash2):
    """FlashAttention-2 whose backward pass adds up dQ with atomics, in one kernel with dK and dV."""

    name = "flash2-atomic"
    summary = "Backward in one kernel per K/V tile: dQ by red.add into fp32, not deterministic"
    directions = ("bwd", "fwd+bwd")
    _backward = Backward(atomic=True)


def _phases(buffer: Buffer) -> str:
    """Where slices start within a sector, in words: ``6 at 0, 6 at 16``."""
    phases, slices = slice_phases(buffer)
    return ", ".join(f"{n} at {phase}" for phase, n in zip(phases.tolist(), slices.tolist(), strict=True))


def _smem_bytes(case: Case, tile: Tile) -> int:
    rows = tile.block_m + 2 * tile.stages * tile.block_n
    return rows * padded_head_dim(case.shape.head_dim) * case.itemsize


def _sectors(case: Case) -> dict[tuple[str, Op], int]:
    """Sectors of all slices per tensor and direction; derived in :meth:`Flash2.traffic`."""
    plan = StreamPlan(case, resolved_tile(case))
    q, k, v, o = qkvo(case)
    lse = row_vector("LSE", case, "output")
    group, keys = case.shape.group, plan.key_reach()
    return {
        ("Q", "read"): tensor_sectors(q, plan.copy),
        ("K", "read"): tensor_sectors(k, plan.copy, keys) * group,
        ("V", "read"): tensor_sectors(v, plan.copy, keys) * group,
        ("O", "write"): tensor_sectors(o, plan.store),
        ("LSE", "write"): row_vector_sectors(lse, plan.warp_rows),
    }
