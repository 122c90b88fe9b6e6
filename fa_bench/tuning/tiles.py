"""The tiles that are tried, and why the others can't run on the target."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from fa_bench.algorithms.base import Algorithm
from fa_bench.algorithms.tiles import GRID_LIMIT
from fa_bench.cases import Case, Tile
from fa_bench.model.gpu import Gpu

#: Rows of Q and of K/V that are tried; most published tiles are of these.
BLOCKS: Final = (16, 32, 64, 128, 256)
#: What a tile that can't run lacks.
Lack = Literal["smem", "registers", "grid"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A tile that can't run on the target: what it lacks, and the sentence that says so with figures."""

    tile: Tile
    lack: Lack
    reason: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """Cases of one shape, one per tile that can run, and the tiles that can't."""

    cases: tuple[Case, ...]
    refused: tuple[Refused, ...]


def grid(stages: Iterable[int]) -> tuple[Tile, ...]:
    """Every tile of the map, by rows of Q, then of K/V, then stages; warps are the algorithm's choice."""
    return tuple(Tile(*sizes) for sizes in itertools.product(BLOCKS, BLOCKS, stages))


def candidates(bare: Case, algorithm: Algorithm, gpu: Gpu, tiles: Sequence[Tile]) -> Candidates:
    """Divide ``tiles`` into those that can run and those that can't; what resolves to the same tile counts once.

    Parameters
    ----------
    bare : Case
        The shape and type; its tile is ignored.
    algorithm : Algorithm
    gpu : Gpu
    tiles : sequence of Tile
        Those without ``num_warps`` get the algorithm's choice.
    """
    cases: dict[Case, None] = {}
    refused: dict[Tile, Refused] = {}
    for tile in tiles:
        case = replace(bare, tile=algorithm.resolve(bare, tile))
        reason = algorithm.unsupported(case, gpu)
        if reason is None:
            cases[case] = None
        elif case.tile is not None:
            refused[case.tile] = Refused(case.tile, _lack(case, algorithm, gpu), reason)
    return Candidates(tuple(cases), tuple(refused.values()))


def _lack(case: Case, algorithm: Algorithm, gpu: Gpu) -> Lack:
    if algorithm.smem_bytes(case) > gpu.smem_per_block_bytes:
        return "smem"
    if any(launch.grid[0] > GRID_LIMIT for launch in algorithm.program(case).launches):
        return "grid"
    return "registers"
