"""A tuning as one HTML page that needs nothing but itself, and its maps as one picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final

from fa_bench.report.page.charts import heat_chart, heat_words
from fa_bench.report.page.document import shell, table_html
from fa_bench.report.page.svg import WIDTH, standalone
from fa_bench.report.page.tiles import HeatMap
from fa_bench.report.tables import Column, Table
from fa_bench.report.tune import heading, reasons, rules_table, top_table
from fa_bench.report.tune_maps import heat_maps, tile_name
from fa_bench.tuning.result import Tuning

#: Maps beside each other on the picture, and the room between them.
_ACROSS: Final = 3
_GAP: Final = 18
_TITLE_HEIGHT: Final = 22
_NOTE: Final = "Each place shows the better of its stages; darker is more, the frame is around the recommendation."


def tune_page(tuning: Tuning, command: str) -> str:
    """The page: recommendation, maps, tiles, rules, tiles that can't run, and the command that made it."""
    said = reasons(tuning)
    cards = [_card(heat) for heat in heat_maps(tuning)]
    body = [
        f"<h1>{escape(heading(tuning))}</h1>",
        f'<div class="card"><p><b>{escape(said[0])}</b></p>'
        f"{''.join(f'<p>{escape(sentence)}</p>' for sentence in said[1:])}</div>",
        f'<section><h2>Every tile</h2><p class="soft">{escape(_NOTE)}</p><div class="cards">{"".join(cards)}</div>'
        "</section>",
        *(_section(table) for table in (top_table(tuning), rules_table(tuning), _refused_table(tuning)) if table.rows),
        f'<section class="card"><h2>To repeat it</h2><pre>{escape(command)}</pre></section>',
    ]
    return shell(f"fa-bench tune: {heading(tuning)}", body)


def tune_picture(tuning: Tuning) -> str:
    """All maps as one SVG file."""
    parts = []
    charts = [(heat, heat_chart(heat)) for heat in heat_maps(tuning)]
    height = max((_height(chart) for _, chart in charts), default=0.0) + _TITLE_HEIGHT
    for number, (heat, chart) in enumerate(charts):
        x = _GAP + number % _ACROSS * (WIDTH + _GAP)
        y = _GAP + number // _ACROSS * (height + _GAP)
        words = f"{heat.title} ({heat_words(heat)})"
        placed = chart.replace("<svg ", f'<svg x="{x}" y="{y + _TITLE_HEIGHT:.1f}" width="{WIDTH}" '
                               f'height="{_height(chart):.1f}" ', 1)  # fmt: skip
        parts.append(f'<text class="name" x="{x}" y="{y + 12:.1f}">{escape(words)}</text>{placed}')
    rows = -(-len(charts) // _ACROSS)
    size = f"{_GAP + min(_ACROSS, max(1, len(charts))) * (WIDTH + _GAP)} {_GAP + rows * (height + _GAP):.1f}"
    title = f"Tiles: {heading(tuning)}"
    picture = (
        f'<svg class="chart" viewBox="0 0 {size}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
    return standalone(picture, title)


def _height(chart: str) -> float:
    found = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', chart)
    assert found is not None, "every chart says its size"
    return float(found[1])


def _card(heat: HeatMap) -> str:
    table = Table(
        "",
        (Column("tile"), Column(heat.title, "right")),
        tuple((cell.tile, heat.unit.exact(cell.value)) for cell in sorted(heat.cells, key=lambda cell: cell.value)),
    )
    title = heat.title[0].upper() + heat.title[1:]
    return (
        f'<div class="card"><h3>{escape(title)}</h3><p class="soft">{escape(heat_words(heat))}</p>'
        f"{heat_chart(heat)}<details><summary>The figures</summary>{table_html(table)}</details></div>"
    )


def _section(table: Table) -> str:
    return f'<section class="card"><h2>{escape(table.title)}</h2>{table_html(table)}</section>'


def _refused_table(tuning: Tuning) -> Table:
    rows: Sequence[tuple[str, str]] = [(tile_name(refused.tile), refused.reason) for refused in tuning.refused]
    return Table("Tiles that can't run", (Column("tile"), Column("why")), tuple(rows))
