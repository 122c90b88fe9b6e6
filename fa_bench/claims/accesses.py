"""Claims on how much is stored and moved: (a) the size of S and P, (b) to (d) accesses of standard and flash."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from fa_bench.cases import DType
from fa_bench.claims import emulated
from fa_bench.claims.cases import FP16, FP32, M_BYTES, D, Known, N, a100, exponent, known
from fa_bench.claims.result import Check, Figure, Judgement, by_a_factor, judged, within
from fa_bench.model import bounds
from fa_bench.units import format_int

#: Lengths whose K and V of one head an A100's L2 holds, and lengths whose K and V it does not.
IN_L2, BEYOND_L2 = (1024, 2048, 4096, 8192, 16384, 32768), (2**18, 2**19, 2**20, 2**21, 2**22)
#: A case small enough to be executed in a second.
SMALL_N: Final = 256

#: Elements of one slice, from N and d.
Elements = Callable[[int, int], float]


def score_matrix(stated_bytes: float = 67e6) -> Judgement:
    """(a) S or P takes ``stated_bytes`` at N = 4096.

    Sizes are those of the buffers that our standard attention allocates, S and P in the inputs' type.
    """
    asked = within(0.01, stated_bytes)
    readings: dict[str, tuple[DType, int, str]] = {
        "one_fp32": ("fp32", 1, "S"),
        "both_fp16": ("fp16", 1, "SP"),
        "one_fp16": ("fp16", 1, "S"),
        "both_fp32": ("fp32", 1, "SP"),
        "one_fp16_16_heads": ("fp16", 16, "S"),
    }
    checks = []
    for name, (dtype, heads, buffers) in readings.items():
        case = known("standard", N, heads=heads, dtype=dtype)
        nbytes = sum(case.program.buffer(buffer).nbytes for buffer in buffers)
        how = f"{len(buffers)} · {heads} · {N}² · {case.case.itemsize} B"
        checks.append(Check(name, (Figure(name, nbytes, "megabytes", how),), *asked))
    return judged(checks)


def printed_standard(n: int, d: int) -> float:
    """The count that is often given for standard attention: Q, K, V read; S written and read; O written."""
    return 3 * n * d + 2 * n**2 + n * d


def standard_accesses(printed: Elements = printed_standard) -> Judgement:
    """(b) Standard attention moves ``3·N·d + 2·N² + N·d`` elements.

    Held against Algorithm 0 of the first paper, access by access, and against what S and P cost the emulated kernels.
    """
    counted = bounds.standard(N, N, D)
    stated = Figure("printed", printed(N, D) / N**2, "n2", f"3·N·d + 2·N² + N·d, N = {N}, d = {D}")
    count = Figure("counted", counted.total / N**2, "n2", f"4·N² + 4·N·d = {counted.total:,} elements")
    share = Figure("share", printed(N, D) / counted.total, "percent", f"{printed(N, D):,.0f} / {counted.total:,}")
    # a·N² + b·N at N and 2N leaves 2·a·N² once twice the first is taken from the second.
    leading = (printed(2 * N, D) - 2 * printed(N, D)) / (2 * N**2)
    passes = Figure("passes_printed", leading, "number", "(f(2N) − 2·f(N)) / 2N²")
    checks = [Check("count", (share,), *within(0.05, 1))]
    run = emulated.run(known("standard", SMALL_N).case)
    if run is None:
        return judged(checks, stated, count, passes, lacking=("compiler",))
    moved = {(part.tensor, part.op): part.bytes / FP16 / SMALL_N**2 for part in run.traffic if part.tensor in "SP"}
    emulated_passes = Figure(
        "passes_emulated",
        sum(moved.values()),
        "number",
        " + ".join(f"{tensor} {op} {value:.0f}" for (tensor, op), value in moved.items())
        + f", emulated at N = {SMALL_N}",
    )
    checks.append(Check("passes", (passes,), *within(0.01, emulated_passes.value)))
    return judged(checks, stated, count, emulated_passes)


def flash_accesses(stated: float = 0.02) -> Judgement:
    """(c) FlashAttention moves ``N·T_c·d = N²·d²/M`` elements, ``stated`` · N² for d = 64 and M = 192 KiB."""
    elements = {size: bounds.sram_elements(M_BYTES, size) for size in (FP16, FP32)}
    m = elements[FP16]
    theorem = [
        Figure(
            "theorem_m_bytes", bounds.flash1_theorem2_m_in_bytes(N, N, D, M_BYTES) / N**2, "n2", f"{D}² / {M_BYTES}"
        ),
        *(
            Figure(f"theorem_fp{8 * size}", bounds.flash1_theorem2(N, N, D, of) / N**2, "n2", f"{D}² / {of}")
            for size, of in elements.items()
        ),
    ]
    proved = bounds.proved_bound(N * N, D, m) / N**2
    bound = Figure("bound", proved, "n2", f"d²/M − M/N², M = {m} elements, N = {N}")
    possible = Figure("over_bound", stated / proved, "times", f"{stated:.4g} N² / {bound.text}")
    # N·T_c·d = N²·d²/M asks for T_c = N·d/M, that is block_n = M/d.
    block_n = m / D
    fill = Figure("tiles_over_m", 4 * block_n * D / m, "number", f"4 · block_n · d / M, block_n = M/d = {block_n:.0f}")
    side = math.sqrt(m / D)
    square = Figure("square_blocks", D / side, "n2", f"d / √(M/d) = {D} / {side:.1f}")
    _, paper_n = bounds.flash1_blocks(m, D)
    passes = math.ceil(N / paper_n)
    q_alone = Figure("q_alone", passes * D / N, "n2", f"T_c · d / N = {passes} · {D} / {N}, block_n = {paper_n}")
    algorithm = bounds.flash1(N, N, D, paper_n)
    exact = Figure(
        "algorithm1",
        algorithm.total / N**2,
        "n2",
        f"2·N·d + T_c·N·(3·d + 4) = {algorithm.total:,} elements, T_c = {passes}",
    )
    ours = known("flash1", N)
    kernel = Figure(
        "kernel",
        ours.global_bytes / FP16 / N**2,
        "n2",
        f"{ours.global_bytes:,} B / 2 B, flash1 in tiles of {ours.case.tile}, O_acc in fp32",
    )
    off = Figure("off_by", exact.value / stated, "times", f"{exact.text} / {stated:.4g} N²")
    return judged(
        (
            Check("possible", (possible,), low=1),
            Check("fits", (fill,), high=1),
            Check("algorithm", (exact,), *by_a_factor(2, stated)),
            Check("kernel", (kernel,), *by_a_factor(2, stated)),
        ),
        bound,
        *theorem,
        square,
        q_alone,
        off,
    )


def linear_accesses(most: float = 1.1) -> Judgement:
    """(d) HBM accesses fall from O(N²) to O(N): their power of N is at most ``most``.

    Accesses are global bytes, exact; DRAM bytes behind the L2 of an A100 are the model's estimate.
    """
    span = f"N = {format_int(IN_L2[0])} … {format_int(IN_L2[-1])}"
    far = f"N = {format_int(BEYOND_L2[0])} … {format_int(BEYOND_L2[-1])}"
    gpu = a100()

    def power(impl: str, nbytes: Callable[[Known], int]) -> float:
        return exponent(IN_L2, lambda n: nbytes(known(impl, n)))

    grows = {
        f"{impl}_accesses": Figure(
            f"{impl}_accesses",
            power(impl, lambda one: one.global_bytes),
            "power",
            f"fit of global bytes, {span}",
        )
        for impl in ("standard", "flash1", "flash2")
    }
    memory = [
        Figure(
            f"{impl}_memory",
            power(impl, lambda one: one.extra_bytes),
            "power",
            f"fit of all buffers but Q, K, V, O, {span}",
        )
        for impl in ("standard", "flash1", "flash2")
    ]
    near_dram, far_dram = (
        Figure(
            name,
            exponent(lengths, lambda n: known("flash2", n).dram_bytes(gpu)),
            "power",
            f"fit of DRAM bytes (model), one head, {gpu.slug}, {over}",
        )
        for name, lengths, over in (("flash2_dram", IN_L2, span), ("flash2_dram_far", BEYOND_L2, far))
    )
    checks = [
        Check("flash1", (grows["flash1_accesses"],), high=most),
        Check("flash2", (grows["flash2_accesses"],), high=most),
        Check("dram", (near_dram,), high=most),
        Check("dram_far", (far_dram,), high=most),
    ]
    return judged(checks, grows["standard_accesses"], *memory)
