"""Claims on tiles: (f) which fit and which is best, (g) how often a block is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.claims.cases import FP16, M_BYTES, D, N, a100, known
from fa_bench.claims.result import Check, Figure, Judgement, judged
from fa_bench.model import bounds
from fa_bench.tuning.rules import square_side
from fa_bench.tuning.tiles import candidates, grid

#: The tile that is given as an example, beside the constraint that forbids it.
EXAMPLE = Tile(128, 128)
#: By how much the best tile may be missed.
CLOSE = 1.1


def printed_demand(tile: Tile, head_dim: int) -> float:
    """What a tile is often said to need of M, in elements: the product of its three sizes."""
    return tile.block_m * tile.block_n * head_dim


def best_tile(
    printed_side: Callable[[int, int], float] = square_side,
    demand: Callable[[Tile, int], float] = printed_demand,
) -> Judgement:
    """(f) Tiles satisfy ``block_m · block_n · d ≤ M``; the best has sides of ``√(M / 4d)``.

    Legal tiles are those that `tune` tries: sides of 16 to 256 whose shared memory a CTA of an A100 may have. The
    side is rounded down to one of these; bytes are exact.
    """
    m = bounds.sram_elements(M_BYTES, FP16)
    need = demand(EXAMPLE, D)
    gpu, flash2 = a100(), algorithms.get("flash2")
    example = known("flash2", N, tile=EXAMPLE)
    example_smem = flash2.smem_bytes(example.case)
    stated = Figure("example_over_m", need / m, "times", f"{need:,.0f} / {m:,}, tile {EXAMPLE}, d = {D}, fp16")
    real = Figure(
        "example_smem",
        example_smem / gpu.smem_per_block_bytes,
        "percent",
        f"{example_smem // 1024} KiB of {gpu.smem_per_block_bytes // 1024} KiB, Q, K and V of flash2",
    )
    side = printed_side(m, D)
    checks = [Check("example", (stated,), high=1)]
    more = [real, Figure("side", side, "number", f"√({m} / (4 · {D}))")]
    for impl in ("flash2", "flash1"):
        algorithm = algorithms.get(impl)
        bare = Case(impl, AttentionShape(1, 1, 1, N, N, D))
        legal = {
            case.tile: known(impl, N, tile=case.tile) for case in candidates(bare, algorithm, gpu, grid((1,))).cases
        }
        moved = {tile: case.global_bytes for tile, case in legal.items() if tile is not None}
        best = min(moved, key=lambda tile: (moved[tile], tile.block_m * tile.block_n))
        rule = _nearest_below(side, moved)
        obeying = [tile for tile in moved if demand(tile, D) <= m]
        off = Figure(
            f"{impl}_off", moved[rule] / moved[best], "times", f"{rule}: {moved[rule]:,} B / {best}: {moved[best]:,} B"
        )
        checks.append(Check(impl, (off,), high=CLOSE))
        more.append(Figure(f"{impl}_obeying", len(obeying), "count", f"of {len(moved)} legal tiles"))
    # By the papers' formulas, whose N²-terms are 2·N²·d/block_m and N²·(3·d + 4)/block_n; standard attention has 4 N².
    by_bytes = printed_side(M_BYTES, D)
    for name, size in (("elements", side), ("bytes", by_bytes)):
        more.append(Figure(f"q_outer_{name}", 2 * D / size, "n2", f"2 · {D} / {size:.1f}"))
        more.append(Figure(f"k_outer_{name}", (3 * D + 4) / size, "n2", f"(3 · {D} + 4) / {size:.1f}"))
    more.append(Figure("standard", bounds.standard(N, N, D).total / N**2, "n2", f"4 + 4 · {D} / {N}"))
    return judged(checks, *more)


def _nearest_below(side: float, tiles: dict[Tile, int]) -> Tile:
    """The square tile of the largest side that is not above ``side``; the smallest if all are above."""
    squares = sorted(tile.block_m for tile in tiles if tile.block_m == tile.block_n)
    chosen = max((size for size in squares if size <= side), default=squares[0])
    return next(tile for tile in tiles if (tile.block_m, tile.block_n) == (chosen, chosen))


def loads_of_a_block(most: float = 1.0) -> Judgement:
    """(g) Each block is loaded into on-chip memory at most ``most`` times: reads of a tensor over its size."""
    loads = {}
    for impl in ("flash1", "flash2"):
        case = known(impl, N)
        tile = case.case.tile
        assert tile is not None
        for tensor in "QKV":
            moved, size = case.moved(tensor, "read"), case.program.buffer(tensor).nbytes
            how = f"{moved:,} B / {size:,} B, tiles of {tile}"
            loads[impl, tensor] = Figure(f"{impl}_{tensor.lower()}", moved / size, "times", how)
        outer, block = ("T_c", tile.block_n) if impl == "flash1" else ("T_r", tile.block_m)
        passes = Figure(f"{impl}_passes", math.ceil(N / block), "count", f"{outer} = ⌈{N} / {block}⌉")
        loads[impl, outer] = passes
    checks = [Check(impl, tuple(loads[impl, tensor] for tensor in "QKV"), high=most) for impl in ("flash1", "flash2")]
    return judged(checks, loads["flash1", "T_c"], loads["flash2", "T_r"])
