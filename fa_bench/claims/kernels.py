"""Claims on kernels, counted in the emulator: (p) what is fused, (q) what FlashAttention-2 changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fa_bench import algorithms, reference
from fa_bench.algorithms.ladder import RUNGS, Rung, ladder_case
from fa_bench.cases import AttentionShape, Case, Features, Tile
from fa_bench.claims import emulated
from fa_bench.claims.cases import FP16, FP32, M_BYTES, D, Known, N, a100, known
from fa_bench.claims.online import Float64
from fa_bench.claims.result import Check, Figure, Judgement, judged, ratio
from fa_bench.model import bounds
from fa_bench.storage import decode, encode

#: A case that the emulator runs in a second.
SMALL_N: Final = 256
#: The tile in which flash1 and flash2 are compared.
TILE: Final = Tile(64, 64)
#: Warps of its CTAs; bytes that shared memory moves in a clock.
TILE_WARPS, SHARED_BYTES = 4, 128
#: V is multiplied by this: exact in fp16, and no activation function commutes with it.
FACTOR: Final = -2.0
#: What the emulator's classes call arithmetic that is no matrix product: FMA, special functions, conversions.
NON_MATMUL: Final = ("fma", "sfu", "convert")
#: What counts as more.
MORE: Final = 1.01
#: Counted for each mma.
MMA: Final = "per mma.m16n8k16"


@dataclass(frozen=True, slots=True)
class _SplitK(Rung):
    """A rung that is none: the same loop with the keys of a tile, not the queries, divided among warps."""

    @property
    def source(self) -> str:
        """Path below ``kernels/``."""
        return "split_k/split_k_fwd.cu"


SPLIT_Q: Final = next(rung for rung in RUNGS if rung.name == "08_swizzle")
SPLIT_K: Final = _SplitK("split_k", "the keys of a tile divided among warps", o_sectors=SPLIT_Q.o_sectors)


def fused_steps(activation: bool = False) -> Judgement:
    """(p) One kernel does QKᵀ, softmax with mask and dropout, PV, and an activation function.

    An activation φ is not linear: φ(−2·x) is not −2·φ(x). So O of V and O of −2·V say whether there is one.

    Parameters
    ----------
    activation : bool
        Put a ReLU behind the kernel, to see that it would be found.
    """
    gpu, flash2 = a100(), algorithms.get("flash2")
    standard = known("standard", N)
    shape = AttentionShape(1, 1, 1, N, N, D, causal=True)
    featured = Case("flash2", shape, features=Features(dropout_p=0.1))
    featured = replace(featured, tile=flash2.resolve(featured, flash2.auto_tile(featured, gpu)))
    launches = Figure(
        "launches", len(flash2.program(featured).launches), "count", "flash2, causal, dropout, one launch for all"
    )
    three = Figure("launches_standard", len(standard.program.launches), "count", "standard: QKᵀ, softmax, PV")
    saved = _saved(standard)
    checks = [Check("launch", (launches,), high=1)]
    outputs = _outputs()
    if outputs is None:
        return judged(checks, three, *saved, lacking=("compiler",))
    once, scaled = (np.maximum(o, 0) if activation else o for o in outputs)
    difference = float(np.abs(scaled - FACTOR * once).max() / np.abs(scaled).max())
    found = Figure(
        "nonlinear",
        difference,
        "error",
        f"max |O({FACTOR:g}·V) − {FACTOR:g}·O(V)| / max |O|, flash2 emulated, N = {SMALL_N}",
    )
    return judged((*checks, Check("activation", (found,), low=0.01)), three, *saved)


def _saved(standard: Known) -> list[Figure]:
    """Elements that fusing each step saves, beside a launch: in passes over N², a read or a write of a matrix."""
    matrix = N * N * FP16
    between = {
        tensor: (standard.moved(tensor, "write") + standard.moved(tensor, "read")) / matrix for tensor in ("S", "P")
    }
    steps = {
        "softmax": (between["S"], "S written and read"),
        "product": (between["P"], "P written and read"),
        # As an operator of its own each reads and writes the matrix; dropout also writes a byte per pair.
        "mask": (2.0, "S read and written once more"),
        "dropout": (2.5, "P read and written once more, a byte per pair"),
        "activation": (2 * D / N, "O would be read and written once more, 2·N·d"),
    }
    return [
        Figure(f"saved_{step}", passes, "n2", f"a launch; {how}; {passes * matrix / 1e6:,.1f} MB, fp16, one head")
        for step, (passes, how) in steps.items()
    ]


def _outputs() -> tuple[Float64, Float64] | None:
    """O of flash2 for V, and for `FACTOR` times V."""
    case = known("flash2", SMALL_N).case
    program, inputs = algorithms.get("flash2").program(case), reference.make_inputs(case)
    more = {**inputs, "V": encode(FACTOR * decode(inputs["V"], np.float64), "fp16")}
    runs = [emulated.run_program(case, program, given) for given in (inputs, more)]
    first, second = runs
    if first is None or second is None:
        return None
    return decode(first.output, np.float64), decode(second.output, np.float64)


def second_version(split_k: Rung = SPLIT_K, split_q: Rung = SPLIT_Q) -> Judgement:
    """(q) FlashAttention-2: less work beside the products, CTAs along the sequence, split-Q in the place of split-K.

    Our flash1 divides queries among warps as flash2 does, so split-K is counted in a kernel of its own, which differs
    from rung 08 of the ladder in nothing else.
    """
    ctas = [
        Figure(f"ctas_{impl}", math.prod(known(impl, N).program.launches[-1].grid), "count", f"grid, one head, N = {N}")
        for impl in ("flash1", "flash2")
    ]
    checks = [Check("parallelism", (ratio("ctas", ctas[1], ctas[0]),), low=MORE)]
    elements = _elements()
    runs = [emulated.run(known(impl, SMALL_N, tile=TILE).case) for impl in ("flash1", "flash2")]
    case = ladder_case(SMALL_N, SMALL_N)
    inputs = reference.make_inputs(case)
    runs += [emulated.run_program(case, rung.program(case), inputs) for rung in (split_k, split_q)]
    found = [run for run in runs if run is not None]
    if len(found) < len(runs):
        return judged(checks, *ctas, elements, lacking=("compiler",))
    first, second, keys, queries = found
    where = f"tiles of {TILE}, N = {SMALL_N}, d = {D}"
    work = [
        Figure(
            f"work_{impl}",
            run.per_mma(*NON_MATMUL),
            "number",
            f"{' + '.join(NON_MATMUL)} {MMA}, {impl}, {where}, {run.compiler}",
        )
        for impl, run in (("flash1", first), ("flash2", second))
    ]
    shared = [
        Figure(
            f"wavefronts_{name}",
            run.shared_wavefronts / run.instructions["tensor"],
            "number",
            f"shared wavefronts {MMA}, {what}, {where}, {run.compiler}",
        )
        for name, run, what in (("k", keys, "split-K"), ("q", queries, "split-Q (rung 08)"))
    ]
    # What split-K can't do without, wherever its operands are: each warp's part of a tile's O, written and read.
    warps, rows, columns = TILE_WARPS, TILE.block_m, D
    per_tile = 2 * rows * TILE.block_n * columns / (16 * 8 * 16)
    exchanged = Figure(
        "exchanged",
        2 * warps * rows * columns * FP32 / SHARED_BYTES / per_tile,
        "number",
        f"2 · {warps} warps · {rows} · {columns} · {FP32} B / {SHARED_BYTES} B, over {per_tile:.0f} mma of a tile",
    )
    moved = [
        Figure(f"bytes_{impl}", sum(part.bytes for part in run.traffic), "bytes", f"{impl}, emulated, {where}")
        for impl, run in (("flash1", first), ("flash2", second))
    ]
    checks = [
        Check("work", (ratio("work", work[1], work[0]),), high=1 / MORE),
        *checks,
        Check("shared", (ratio("shared", shared[1], shared[0]),), high=1 / MORE),
    ]
    return judged(
        checks, *work, *ctas, *shared, exchanged, elements, ratio("emulated_bytes", moved[1], moved[0]), *moved
    )


def _elements() -> Figure:
    """What the second algorithm moves over what the first moves in the largest blocks that M allows."""
    block_n = bounds.flash1_blocks(bounds.sram_elements(M_BYTES, FP16), D)[1]
    first, second = bounds.flash1(N, N, D, block_n).total, bounds.flash2(N, N, D, 128).total
    how = f"{second / N**2:.2f} N², block_m = 128, over {first / N**2:.2f} N², block_n = {block_n}, N = {N}"
    return Figure("elements", second / first, "times", how)
