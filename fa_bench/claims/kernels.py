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
from fa_bench.claims.cases import FP16, M_BYTES, D, N, a100, known
from fa_bench.claims.online import Float64
from fa_bench.claims.result import Check, Figure, Judgement, judged
from fa_bench.model import bounds
from fa_bench.storage import decode, encode

#: A case that the emulator runs in a second.
SMALL_N: Final = 256
#: The tile in which flash1 and flash2 are compared.
TILE: Final = Tile(64, 64)
#: V is multiplied by this: exact in fp16, and no activation function commutes with it.
FACTOR: Final = -2.0
#: What the emulator's classes call arithmetic that is no matrix product: FMA, special functions, conversions.
NON_MATMUL: Final = ("fma", "sfu", "convert")
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
    pass_bytes = N * N * FP16
    # A mask or dropout as an operator of its own reads and writes the matrix; dropout writes a byte per pair as well.
    saved = [
        Figure(
            f"saved_{step}",
            passes,
            "n2",
            f"{how}; {passes * pass_bytes / 1e6:,.1f} MB at N = {N}, fp16, one head",
        )
        for step, passes, how in (
            (
                "softmax",
                _passes(standard.moved("S", "write") + standard.moved("S", "read")),
                "a launch; S written and read",
            ),
            (
                "product",
                _passes(standard.moved("P", "write") + standard.moved("P", "read")),
                "a launch; P written and read",
            ),
            ("mask", 2.0, "a launch; S read and written once more"),
            ("dropout", 2.5, "a launch; P read and written once more, a byte per pair"),
            ("activation", 0.0, "a launch; O would be read and written, 2·N·d and no N²"),
        )
    ]
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


def _passes(nbytes: int) -> float:
    return nbytes / (N * N * FP16)


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
    ctas = {impl: math.prod(known(impl, N).program.launches[-1].grid) for impl in ("flash1", "flash2")}
    parallel = Figure(
        "ctas", ctas["flash2"] / ctas["flash1"], "times", f"{ctas['flash2']} / {ctas['flash1']} CTAs, one head, N = {N}"
    )
    ideal_n = bounds.flash1_blocks(bounds.sram_elements(M_BYTES, FP16), D)[1]
    first, second = bounds.flash1(N, N, D, ideal_n), bounds.flash2(N, N, D, 128)
    elements = Figure(
        "elements", second.total / first.total, "times",
        f"{second.total / N**2:.2f} N², block_m = 128, over {first.total / N**2:.2f} N², block_n = {ideal_n}, N = {N}",
    )  # fmt: skip
    parallelism = Check("parallelism", (parallel,), low=1.01)
    runs = {impl: emulated.run(known(impl, SMALL_N, tile=TILE).case) for impl in ("flash1", "flash2")}
    case = ladder_case(SMALL_N, SMALL_N)
    inputs = reference.make_inputs(case)
    split = {
        name: emulated.run_program(case, rung.program(case), inputs) for name, rung in (("k", split_k), ("q", split_q))
    }
    one, two, keys, queries = runs["flash1"], runs["flash2"], split["k"], split["q"]
    if one is None or two is None or keys is None or queries is None:
        return judged((parallelism,), elements, lacking=("compiler",))
    where = f"tiles of {TILE}, N = {SMALL_N}, d = {D}"
    per_mma = [
        Figure(
            f"work_{impl}",
            run.per_mma(*NON_MATMUL),
            "number",
            f"{' + '.join(NON_MATMUL)} {MMA}, {impl}, {where}, {run.compiler}",
        )
        for impl, run in (("flash1", one), ("flash2", two))
    ]
    waves = [
        Figure(
            f"wavefronts_{name}",
            run.shared_wavefronts / run.instructions["tensor"],
            "number",
            f"shared wavefronts {MMA}, {what}, {where}, {run.compiler}",
        )
        for name, run, what in (("k", keys, "split-K"), ("q", queries, "split-Q (rung 08)"))
    ]
    work = Figure("work", per_mma[1].value / per_mma[0].value, "times", f"{per_mma[1].text} / {per_mma[0].text}")
    shared = Figure("shared", waves[1].value / waves[0].value, "times", f"{waves[1].text} / {waves[0].text}")
    moved = {impl: sum(part.bytes for part in run.traffic) for impl, run in (("flash1", one), ("flash2", two))}
    emulated_bytes = Figure(
        "emulated_bytes",
        moved["flash2"] / moved["flash1"],
        "times",
        f"{moved['flash2']:,} B / {moved['flash1']:,} B, {where}",
    )
    return judged(
        (Check("work", (work,), high=0.99), parallelism, Check("shared", (shared,), high=0.99)),
        *per_mma,
        *waves,
        elements,
        emulated_bytes,
    )
