"""Why a default tile is the default: its figures beside those of the tiles around it, compiled and counted.

Around it are the tiles of twice and of half its rows, or its columns, with as many warps as the algorithm gives them
and with as many as the default has; and the default itself with the other number of stages, or twice or half the warps.
"""

from __future__ import annotations

from collections.abc import Iterator

from fa_bench.algorithms.base import Algorithm
from fa_bench.algorithms.tiles import resolved_tile
from fa_bench.backends.base import Backend
from fa_bench.cases import Case, Tile
from fa_bench.errors import UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import occupancy
from fa_bench.tuning.tiles import BLOCKS, candidates
from fa_bench.tuning.weighed import Weighed


def around(bare: Case, algorithm: Algorithm, gpu: Gpu) -> tuple[Tile, ...]:
    """The default tile of a case, then those around it, each once, with warps."""
    default = algorithm.auto_tile(bare, gpu)
    found = {default: None}
    for tile in _variants(default):
        try:
            found[algorithm.resolve(bare, tile)] = None
        except UsageError:  # so many warps don't divide its rows
            continue
    return tuple(found)


def _variants(default: Tile) -> Iterator[Tile]:
    m, n, stages, warps = default.block_m, default.block_n, default.stages, default.num_warps
    for block_m, block_n in ((2 * m, n), (m // 2, n), (m, 2 * n), (m, n // 2)):
        if all(side % 16 == 0 and 16 <= side <= BLOCKS[-1] for side in (block_m, block_n)):
            yield from (Tile(block_m, block_n, stages), Tile(block_m, block_n, stages, warps))
    yield Tile(m, n, 3 - stages, warps)
    yield from (Tile(m, n, stages, other) for other in (2 * warps, warps // 2) if other in (1, 2, 4, 8))


def weigh(bare: Case, tile: Tile, algorithm: Algorithm, backend: Backend, gpu: Gpu) -> Weighed:
    """Compile, run and count a tile.

    Parameters
    ----------
    bare : Case
        Its tile is ignored; small, since all of it is run.
    tile : Tile
    algorithm : Algorithm
        With a model of its traffic.
    backend : Backend
        Counts instructions, of every slice.
    gpu : Gpu
    """
    divided = candidates(bare, algorithm, gpu, (tile,))
    if not divided.cases:
        (refused,) = divided.refused
        return Weighed(refused.tile, refused.lack)
    (case,) = divided.cases
    result = backend.run(case, gpu)
    made, counts = result.resources, result.counts
    fit = None
    if made is not None and made.registers is not None and made.smem_bytes is not None:
        fit = occupancy(gpu, threads=made.threads, smem_bytes=made.smem_bytes, registers=made.registers)
    scores = case.shape.slices * case.shape.seq_q * case.shape.seq_kv
    extra = {} if counts is None else counts.extra
    warps = sum(n for one in extra.values() for name, n in one.items() if name.startswith("instructions_"))
    return Weighed(
        resolved_tile(case),
        registers=None if made is None else made.registers,
        spill_bytes=None if made is None else made.spill_bytes,
        blocks_per_sm=None if fit is None else fit.blocks_per_sm,
        warps_per_sm=None if fit is None else fit.warps_per_sm,
        global_bytes=sum(part.bytes for part in algorithm.traffic(case) or ()),
        instructions_per_score=None if not extra else warps * 32 / scores,
        wavefronts_per_score=None if not extra else sum(one["shared_wavefronts"] for one in extra.values()) / scores,
    )
