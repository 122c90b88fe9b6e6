"""Maps of a tuning: one figure of every tile, for the page, a picture and the terminal.

A place of a map is rows of Q by rows of K and V. Of its depths of buffering it shows the one that the order prefers,
the same one on every map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fa_bench.cases import Tile
from fa_bench.records import Source
from fa_bench.report.page.figures import BYTES, MS, Unit
from fa_bench.report.page.tiles import Blank, Cell, HeatMap
from fa_bench.report.tables import Column, Table
from fa_bench.tuning.known import Known
from fa_bench.tuning.result import Tuning
from fa_bench.units import format_count, format_ratio

COUNT: Final = Unit(lambda value: format_count(round(value)), lambda value: format_count(round(value)))
RATE: Final = Unit(lambda value: f"{value:.2f}", lambda value: f"{value:.6g}")
_WORDS: Final = {"smem": "smem", "registers": "regs", "grid": "grid"}
#: From the least to the most, in the terminal.
_SHADES: Final = " ░▒▓█"


@dataclass(frozen=True, slots=True)
class MapFigure:
    """A figure that has a map: what it is of a tile, and where it is from."""

    key: str
    title: str
    unit: Unit
    source: Source
    origin: str
    of: Callable[[Known], float | None]


MAP_FIGURES: Final = (
    MapFigure("time", "time", MS, "measured", "", lambda known: known.time_ms),
    MapFigure(
        "predicted", "predicted time", MS, "model", "predicted, not measured",
        lambda known: None if known.prediction is None else known.prediction.ms,
    ),
    MapFigure("global", "global bytes", BYTES, "model", "", lambda known: known.global_bytes),
    MapFigure("dram", "DRAM bytes", BYTES, "model", "model, an estimate", lambda known: known.dram_bytes),
    MapFigure(
        "ctas", "CTAs per SM", COUNT, "model", "from what the compiler says",
        lambda known: None if known.occupancy is None else known.occupancy.blocks_per_sm,
    ),
    MapFigure(
        "warps", "warps per SM", COUNT, "model", "from what the compiler says",
        lambda known: None if known.occupancy is None else known.occupancy.warps_per_sm,
    ),
    MapFigure("registers", "registers per thread", COUNT, "model", "compiler", lambda known: known.registers),
    MapFigure("spills", "spilled bytes per thread", COUNT, "model", "compiler", lambda known: known.spill_bytes),
    MapFigure("smem", "shared memory per CTA", BYTES, "model", "layout", lambda known: known.smem_bytes),
    MapFigure(
        "wavefronts", "shared-memory clocks per mma", RATE, "emulated", "", lambda known: known.wavefronts_per_mma
    ),
    MapFigure("conflicts", "bank conflicts", COUNT, "emulated", "", lambda known: known.conflicts),
    MapFigure("instructions", "instructions per mma", RATE, "emulated", "", lambda known: known.instructions_per_mma),
)  # fmt: skip


def tile_name(tile: Tile) -> str:
    """Such as ``128x64/1``: rows of Q by rows of K and V, in stages."""
    return f"{tile}/{tile.stages}"


def places(tuning: Tuning) -> dict[tuple[int, int], Known]:
    """The tile that each place of the map shows, also one that could not be run but is not wrong.

    A rule's tile that is not one of the map has no place.
    """
    found: dict[tuple[int, int], Known] = {}
    for made in tuning.tried:
        if _on_map(made) and not made.wrong:
            found.setdefault((made.tile.block_m, made.tile.block_n), made)
    return found


def _on_map(made: Known) -> bool:
    """Whether both sides are of the map: powers of two."""
    return all(side & (side - 1) == 0 for side in (made.tile.block_m, made.tile.block_n))


def blanks(tuning: Tuning, shown: dict[tuple[int, int], Known]) -> tuple[Blank, ...]:
    """Places that have no tile: refused, or wrong."""
    made: dict[tuple[int, int], Blank] = {}
    for refused in tuning.refused:
        place = refused.tile.block_m, refused.tile.block_n
        if place not in shown:
            made.setdefault(place, Blank(*place, _WORDS[refused.lack], refused.reason))
    for known in tuning.ranking.out:
        place = known.tile.block_m, known.tile.block_n
        if place not in shown and _on_map(known):
            made[place] = Blank(*place, "wrong", known.fault)
    return tuple(made.values())


def heat_maps(tuning: Tuning) -> tuple[HeatMap, ...]:
    """A map for each figure that two tiles have at least; the frame is around the recommendation."""
    shown = places(tuning)
    empty = blanks(tuning, shown)
    best = tuning.ranking.best
    framed = None if best is None else (best.tile.block_m, best.tile.block_n)
    made = []
    for figure in MAP_FIGURES:
        cells, spilling = [], []
        for place, known in shown.items():
            value = figure.of(known)
            if figure.key == "predicted" and known.spill_bytes and tuning.ranking.ratio(known) is None:
                spilling.append(_spilling(place, known))
            elif value is not None:
                name = f"{tile_name(known.tile)}, {known.tile.num_warps} warps"
                cells.append(Cell(*place, float(value), name))
        if len(cells) > 1:
            made.append(
                HeatMap(
                    figure.key, figure.title, tuning.bare.impl, tuning.bare.shape.seq_q, figure.source, figure.unit,
                    tuple(cells), (*empty, *spilling), figure.origin, framed,
                )
            )  # fmt: skip
    return tuple(made)


def map_table(tuning: Tuning, title: str) -> Table:
    """The map that the order is by, for a terminal: every tile over the least, the darker the more."""
    shown = places(tuning)
    ratios = {place: ratio for place, known in shown.items() if (ratio := tuning.ranking.ratio(known)) is not None}
    spilling = [_spilling(place, known) for place, known in shown.items() if place not in ratios and known.spill_bytes]
    words = {(blank.block_m, blank.block_n): blank.word for blank in (*blanks(tuning, shown), *spilling)}
    every = sorted({*shown, *words})
    columns = sorted({block_n for _, block_n in every})
    best = tuning.ranking.best
    rows = []
    for block_m in sorted({block_m for block_m, _ in every}):
        cells = [str(block_m)]
        for block_n in columns:
            place = block_m, block_n
            if place in ratios:
                chosen = best is not None and place == (best.tile.block_m, best.tile.block_n)
                cells.append(_shaded(ratios[place], max(ratios.values()), chosen))
            else:
                cells.append(words.get(place, "?" if place in shown else ""))
        rows.append(tuple(cells))
    return Table(
        title,
        (Column("block_m \\ block_n"), *(Column(str(block_n), "right") for block_n in columns)),
        tuple(rows),
        "The better of its stages; darker is more. * is the recommendation. smem, regs: needs more than there is. "
        "spills: what that costs is not predicted.",
    )


def _spilling(place: tuple[int, int], known: Known) -> Blank:
    reason = f"It spills {format_count(known.spill_bytes or 0)} bytes per thread; what that costs is not predicted."
    return Blank(*place, "spills", reason)


def _shaded(ratio: float, most: float, chosen: bool) -> str:
    share = (ratio - 1) / (most - 1) if most > 1 else 0.0
    shade = _SHADES[min(len(_SHADES) - 1, max(0, int(share * len(_SHADES))))]
    return f"{'*' if chosen else ''}{format_ratio(ratio)} {shade * 2}"
