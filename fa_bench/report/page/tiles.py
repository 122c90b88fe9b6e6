"""Block heat maps: one figure of one implementation and length over the tiles that were run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from fa_bench.records import Record, Source
from fa_bench.report.page.figures import BYTES, MS, SOURCES, Panel, Row, Unit, tile_of, total


@dataclass(frozen=True, slots=True)
class Cell:
    """The least figure of the tiles of one size, and the stages that it is of."""

    block_m: int
    block_n: int
    value: float
    tile: str


@dataclass(frozen=True, slots=True)
class Blank:
    """A place of the map without a figure: a word that stands there, and the reason."""

    block_m: int
    block_n: int
    word: str
    reason: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Cells of one implementation, run and length by one source; at least two.

    ``origin`` says where the figures are from if that is not one of the sources; ``framed`` is the place with the frame
    if that is not the least figure's.
    """

    key: str
    title: str
    impl: str
    seq: int
    source: Source
    unit: Unit
    cells: tuple[Cell, ...]
    blanks: tuple[Blank, ...] = ()
    origin: str = ""
    framed: tuple[int, int] | None = None


_Value = Callable[[Record], tuple[float, Source] | None]


def heat_maps(panel: Panel) -> tuple[HeatMap, ...]:
    """Time where there is one, then global and DRAM bytes, of every length that ran with several tiles."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in panel.rows:
        groups[(row.record.impl, row.run, row.record.seq_q)].append(row)
    return tuple(
        made
        for (impl, run, seq), rows in groups.items()
        for key, title, unit, value in _FIGURES
        for made in _maps(" ".join([impl, run]).strip(), impl, seq, key, title, unit, value, rows)
    )


def _maps(
    label: str, impl: str, seq: int, key: str, title: str, unit: Unit, value: _Value, rows: Iterable[Row]
) -> Iterable[HeatMap]:
    best: dict[Source, dict[tuple[int, int], Cell]] = defaultdict(dict)
    for row in rows:
        record = row.record
        found = value(record)
        if found is None or record.block_m is None or record.block_n is None:
            continue
        figure, source = found
        place = (record.block_m, record.block_n)
        if place not in best[source] or figure < best[source][place].value:
            best[source][place] = Cell(*place, figure, tile_of(record))
    for source in SOURCES:
        if len(best[source]) > 1:
            yield HeatMap(key, f"{label}: {title}", impl, seq, source, unit, tuple(best[source].values()))


def _time(record: Record) -> tuple[float, Source] | None:
    return None if record.time_ms is None or record.status != "ok" else (record.time_ms, "measured")


def _bytes(level: str) -> _Value:
    def value(record: Record) -> tuple[float, Source] | None:
        for source in reversed(SOURCES):
            if nbytes := total(record, level, source):
                return nbytes, source
        return None

    return value


_FIGURES: Final[tuple[tuple[str, str, Unit, _Value], ...]] = (
    ("time", "time", MS, _time),
    ("global", "global bytes", BYTES, _bytes("global")),
    ("dram", "DRAM bytes", BYTES, _bytes("dram")),
)
