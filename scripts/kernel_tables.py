"""Write the tables of main loops, default tiles and conflicts in kernels/README.md anew, counted in the emulator.

python scripts/kernel_tables.py
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench import algorithms, nvrtc, ptx, reference
from fa_bench.algorithms.base import Launch
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.backends.programs import arguments, put_inputs
from fa_bench.cases import AttentionShape, Case, Features, Tile
from fa_bench.compiler import CompiledKernel, compile_kernel
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import occupancy
from fa_bench.ptx.program import Instruction
from fa_bench.report.default_tiles import words
from fa_bench.tuning.defaults import around, weigh

DOCUMENT: Final = Path(__file__).resolve().parents[1] / "kernels" / "README.md"
#: What stands between the two lines is this script's.
BLOCK: Final = r"(?ms)(?<=^<!-- scripts/kernel_tables.py: {} -->\n).*?(?=^<!-- end -->$)"
A100: Final = gpus.get("a100-sxm-80")
EMULATOR: Final = EmulatorBackend(all_slices=True)

#: Families of instructions, by the start of their opcodes; the first that fits.
FAMILIES: Final = {
    "mma": r"mma",
    "ldmatrix": r"ldmatrix",
    "cp.async": r"cp\.async\.cg",
    "ex2": r"ex2",
    "shuffle": r"shfl",
    "pack": r"cvt\.rn",
    "fp32": r"(?:fma|mul|add|sub|neg|max|min|setp|selp)\.(?:\w+\.)*f32",
    "barrier, branch": r"bar|cp\.async|vote|bra|@",
    "mov": r"mov",
    "integer": r"",
}
#: One GPU of each generation.
GENERATIONS: Final = ("a100-sxm-80", "rtx-3090", "rtx-4090", "h100-sxm", "b200-sxm", "rtx-5090", "gb10")
#: Tiles of K and V after which the loop is in its stride, and how many are counted then.
BEFORE, COUNTED = 4, 4

#: head_dim, tile and number of warps of the first table; the first of a head_dim is the default.
LOOPS: Final = (
    (64, Tile(128, 64, 2, 4)),
    (64, Tile(128, 64, 2, 8)),
    (64, Tile(128, 32, 2, 4)),
    (64, Tile(64, 64, 2, 4)),
    (128, Tile(128, 32, 1, 4)),
    (128, Tile(128, 64, 1, 8)),
    (128, Tile(128, 64, 1, 4)),
    (128, Tile(64, 64, 1, 4)),
)

#: The GPUs of the second table.
SHOWN: Final = {
    "A100": "a100-sxm-80",
    "H100": "h100-sxm",
    "B200": "b200-sxm",
    "RTX 4090": "rtx-4090",
    "RTX 5090": "rtx-5090",
}
#: Its head dimensions.
HEAD_DIMS: Final = (32, 64, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class Loop:
    """What one iteration of a main loop executes.

    Parameters
    ----------
    kernel : CompiledKernel
    per_mma : mapping of str to float
        Warp instructions for each mma, by family.
    wavefronts, conflicts : float
        Of shared memory, for each mma.
    """

    kernel: CompiledKernel
    per_mma: Mapping[str, float]
    wavefronts: float
    conflicts: float


def family(instruction: Instruction) -> str:
    """The family that an instruction counts in."""
    opcode = re.sub(r"^@!?\S+\s+", "", instruction.text)
    return next(name for name, pattern in FAMILIES.items() if re.match(pattern, opcode))


def monotone(case: Case, sign: int) -> dict[str, NDArray[Any]]:
    """Q, K and V whose scores rise with each key, or fall: the maxima rise in every tile, or in the first alone."""
    shape = case.shape
    keys = sign * np.arange(shape.seq_kv) / 1024  # exact in fp16
    q, k, v = (np.zeros((1, 1, rows, shape.head_dim), np.float16) for rows in (shape.seq_q, shape.seq_kv, shape.seq_kv))
    q[..., 0], k[..., 0] = 1, keys
    return {"Q": q, "K": k, "V": v}


def executed(case: Case, inputs: Mapping[str, NDArray[Any]]) -> Iterator[tuple[Launch, CompiledKernel, Any, Any]]:
    """Runs a case: each launch, its kernel compiled and parsed, and what it counted."""
    program, memory = algorithms.get(case.impl).program(case), ptx.Memory()
    put_inputs(program, {b.name: memory.allocate(b.name, b.nbytes) for b in program.buffers}, inputs)
    for launch in program.launches:
        compiled = compile_kernel(launch.kernel, A100.sm)
        kernel = ptx.load(compiled.ptx).kernel(compiled.entry)
        counters = ptx.launch(
            kernel,
            grid=launch.grid,
            block=launch.block,
            args=arguments(launch, lambda name: np.uint64(memory.address(name))),
            smem_bytes=launch.smem_bytes,
            memory=memory,
            per_instruction=True,
        )
        yield launch, compiled, kernel, counters


def main_loop(head_dim: int, tile: Tile, sign: int) -> Loop:
    """flash2's main loop: what more tiles of K and V add to one tile of Q."""
    counts = []
    for blocks in (BEFORE, BEFORE + COUNTED):
        case = Case("flash2", AttentionShape(1, 1, 1, tile.block_m, blocks * tile.block_n, head_dim), tile=tile)
        ((_, compiled, kernel, counters),) = executed(case, monotone(case, sign))
        counts.append(counters)
    families: Counter[str] = Counter()
    for instruction, few, many in zip(kernel.instructions, *(c.by_instruction for c in counts), strict=True):
        families[family(instruction)] += many.executions - few.executions
    few, many = (c.shared for c in counts)
    mma = families["mma"]
    return Loop(
        compiled,
        {name: families[name] / mma for name in FAMILIES},
        (many.wavefronts - few.wavefronts) / mma,
        (many.conflicts - few.conflicts) / mma,
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A Markdown table whose first ``words`` columns are words and the others numbers."""
    rule = ["---" if column < words else "---:" for column in range(len(head))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))


def loop_cells(head_dim: int, tile: Tile) -> list[str]:
    """A row of the first table, without spills."""
    steady, rising = main_loop(head_dim, tile, -1), main_loop(head_dim, tile, 1)
    return [
        *(f"{sum(loop.per_mma.values()):.2f}" for loop in (steady, rising)),
        *(f"{steady.per_mma[name]:.2f}" for name in FAMILIES if name != "mma"),
        *(f"{figure:.2f}" for figure in (steady.wavefronts, steady.conflicts)),
    ]


def spilled(head_dim: int, tile: Tile) -> int:
    """The most bytes that a thread spills on any generation."""
    case = Case("flash2", AttentionShape(1, 1, 1, 1024, 1024, head_dim), tile=tile)
    (launch,) = algorithms.get("flash2").program(case).launches
    return max(compile_kernel(launch.kernel, gpus.get(slug).sm).spill_bytes or 0 for slug in GENERATIONS)


def loops() -> str:
    """Instructions and wavefronts for each mma."""
    rows = [
        [str(d), f"{tile}/{tile.stages}", str(tile.num_warps), *loop_cells(d, tile), str(spilled(d, tile))]
        for d, tile in LOOPS
    ]
    head = ["d", "tile", "warps", "all", "all, rising", *(name for name in FAMILIES if name != "mma")]
    return table([*head, "wavefronts", "conflicts", "spills"], rows, 2)


def defaults() -> str:
    """What ``auto`` takes on one GPU of each kind, and why."""

    def cell(gpu: Gpu, head_dim: int) -> str:
        tile = default_tile(gpu, head_dim)
        case = Case("flash2", AttentionShape(1, 1, 1, 1024, 1024, head_dim), tile=tile)
        (launch,) = algorithms.get("flash2").program(case).launches
        registers = compile_kernel(launch.kernel, gpu.sm).registers or 0
        fit = occupancy(gpu, threads=launch.block[0], smem_bytes=launch.smem_bytes, registers=registers)
        return f"{tile}/{tile.stages}, {fit.blocks_per_sm} x {tile.num_warps}"

    rows = [[str(d), *(cell(gpus.get(slug), d) for slug in SHOWN.values()), reasons(d)] for d in HEAD_DIMS]
    return table(["d", *SHOWN, "on an A100, against the tiles around it"], rows, 7)


def reasons(head_dim: int) -> str:
    """What speaks first against each tile around the default of an A100, as ``kernels --explain`` has it."""
    flash2, bare = algorithms.get("flash2"), Case("flash2", AttentionShape(1, 1, 1, 1024, 1024, head_dim))
    default, *others = (weigh(bare, tile, flash2, EMULATOR, A100) for tile in around(bare, flash2, A100))
    found: dict[str, list[str]] = {}
    for one in others:
        against = words(one, default)
        name = f"{one.tile}/{one.tile.stages}"
        found.setdefault(against[0] if against else "nothing", []).append(f"{name} x {one.tile.num_warps}")
    return "; ".join(f"{word}: {', '.join(tiles)}" for word, tiles in found.items())


def default_tile(gpu: Gpu, head_dim: int) -> Tile:
    """What ``auto`` takes for fp16."""
    return algorithms.get("flash2").auto_tile(Case("flash2", AttentionShape(1, 1, 1, 1024, 1024, head_dim)), gpu)


def conflicts() -> str:
    """Wavefronts of shared memory and those that are conflicts, of every forward kernel."""
    found: dict[str, list[str]] = {}
    for impl, softcap in (("standard", 0.0), ("flash1", 0.0), ("flash2", 0.0), ("flash2", 30.0)):
        for head_dim in (64, 128):
            case = Case(impl, AttentionShape(1, 1, 1, 256, 256, head_dim), features=Features(softcap=softcap))
            case = replace(case, tile=algorithms.get(impl).auto_tile(case, A100))
            for launch, _, _, counters in executed(case, reference.make_inputs(case)):
                shared = counters.shared
                found.setdefault(launch.kernel.entry, []).extend([str(shared.wavefronts), str(shared.conflicts)])
    rows = [[entry, *cells] for entry, cells in found.items()]
    return table(["kernel", "d = 64: wavefronts", "conflicts", "d = 128: wavefronts", "conflicts"], rows, 1)


BLOCKS: Final = {"loops": loops, "defaults": defaults, "conflicts": conflicts}


def main() -> None:
    """Replace the blocks."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, made in BLOCKS.items():
        text, blocks = re.subn(BLOCK.format(name), made(), text, count=1)
        if blocks != 1:
            sys.exit(f"{DOCUMENT} has no place for {name}.")
    text = re.sub(r"(?<=Compiled by NVRTC )[\d.]+(?= for sm_80)", nvrtc.load().version, text)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
