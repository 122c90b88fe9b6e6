"""Charts as SVG: a figure against the length, a roofline, a map of tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from fa_bench.records import Source
from fa_bench.report.page.figures import Chart, Point, Series
from fa_bench.report.page.roof import Roof, RoofPoint, Track
from fa_bench.report.page.scales import (
    LogScale,
    binary_ticks,
    decimal_ticks,
    length_text,
    length_ticks,
    spanned,
)
from fa_bench.report.page.svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Label,
    figure,
    grid,
    line,
    mark,
    names,
    spot,
    text,
    whisker,
    width_with,
)
from fa_bench.report.page.tiles import Blank, Cell, HeatMap
from fa_bench.units import format_count, format_int, format_si

#: What a source is called beside a figure.
WORDS: Final[Mapping[Source, str]] = {"model": "model", "emulated": "emulated", "measured": "measured"}
_FLOOR: Final = "var(--kept)"
_X_TICKS: Final = 7
_Y_TICKS: Final = 6


def line_chart(chart: Chart, colour: Mapping[str, str]) -> str:
    """One figure against the sequence length: the model as a dashed line, what was counted or measured as marks."""
    points = [point for series in chart.series for point in series.points]
    lengths = [point.seq for point in points]
    values = [value for point in points for value in (point.value, point.low, point.high) if value]
    values += [value for _, value in chart.floor]
    low, high = spanned(values)
    x = LogScale(*_padded(min(lengths), max(lengths)), LEFT, RIGHT)
    y = LogScale(low, high, BOTTOM, TOP)
    ticks = (binary_ticks if chart.unit.binary else decimal_ticks)(low, high, _Y_TICKS)
    parts = [
        grid(
            x,
            y,
            [(float(seq), length_text(seq)) for seq in length_ticks(lengths, _X_TICKS)],
            [(tick, chart.unit.short(tick)) for tick in ticks],
            "sequence length N",
        )
    ]
    ends: dict[str, Label] = {}
    if chart.floor:
        parts.append(_floor(chart, x, y))
        ends["compulsory"] = Label("compulsory", y(chart.floor[-1][1]), "var(--soft)")
    for series in chart.series:
        parts.append(_line(series, chart, x, y, colour[series.impl]))
        # A name stands once: beside what was measured, else counted, else predicted.
        ends[series.label] = Label(series.label, y(series.points[-1].value), colour[series.impl])
    parts += [_marks(series, chart, x, y, colour[series.impl]) for series in chart.series]
    labels = list(ends.values())
    return figure(chart.title, [*parts, names(labels)], width=width_with(labels))


def tip(series: Series, chart: Chart, point: Point) -> str:
    """What stands beside a point that is pointed at."""
    head = " ".join(part for part in (series.label, point.tile) if part)
    lines = [f"{head}, N = {format_count(point.seq)}", f"{WORDS[series.source]}: {chart.unit.exact(point.value)}"]
    if point.low is not None and point.high is not None:
        lines.append(f"from {chart.unit.exact(point.low)} to {chart.unit.exact(point.high)}")
    return "\n".join([*lines, *([point.detail] if point.detail else [])])


def _padded(low: float, high: float) -> tuple[float, float]:
    """Limits of the lengths, so that no mark lies on the frame."""
    room = (high / low) ** 0.04 if high > low else 1.0
    return low / room, high * room


def _floor(chart: Chart, x: LogScale, y: LogScale) -> str:
    places = [(x(seq), y(value)) for seq, value in chart.floor]
    if len(places) == 1:
        places = [(LEFT, places[0][1]), (RIGHT, places[0][1])]
    below = [*places, (places[-1][0], BOTTOM), (places[0][0], BOTTOM)]
    area = " ".join(f"{a:.1f},{b:.1f}" for a, b in below)
    spots = "".join(
        spot(
            x(seq),
            y(value),
            f"compulsory, N = {format_count(seq)}\n{chart.unit.exact(value)}\nQ, K, V read and O written once",
        )
        for seq, value in chart.floor
    )
    return f'<polygon class="below" points="{area}"/>{line(places, _FLOOR, "floor")}{spots}'


def _line(series: Series, chart: Chart, x: LogScale, y: LogScale, colour: str) -> str:
    """The line of a series: dashed for a prediction, none between counts."""
    if series.source == "emulated":
        return ""
    places = [(x(point.seq), y(point.value)) for point in series.points]
    if series.source == "measured":
        return line(places, colour, "measured")
    spots = "".join(spot(*place, tip(series, chart, point)) for place, point in zip(places, series.points, strict=True))
    return line(places, colour, "model") + spots


def _marks(series: Series, chart: Chart, x: LogScale, y: LogScale, colour: str) -> str:
    if series.source == "model" and len(series.points) > 1:
        return ""
    parts = []
    for point in series.points:
        if point.low and point.high:
            parts.append(whisker(x(point.seq), y(point.low), y(point.high), colour))
        parts.append(mark(x(point.seq), y(point.value), series.source, colour, tip(series, chart, point)))
    return "".join(parts)


# --- roofline ---------------------------------------------------------------------------------------------------------


def roof_chart(roof: Roof, colour: Mapping[str, str]) -> str:
    """Nominal FLOP/s against FLOP/B: marks below the two peaks; a hollow square is a prediction."""
    points = [point for track in roof.tracks for point in track.points]
    x_low, x_high = spanned([*(point.intensity for point in points), roof.ridge / 4, roof.ridge], 2)
    y_low, y_high = spanned([*(point.flop_per_s for point in points), roof.peak, roof.bound(x_low)], 1.6)
    x = LogScale(x_low, x_high, LEFT, RIGHT)
    y = LogScale(y_low, y_high, BOTTOM, TOP)
    corners = [(x(at), y(roof.bound(at))) for at in (x_low, roof.ridge, x_high)]
    parts = [
        grid(
            x,
            y,
            [(tick, f"{tick:g}") for tick in decimal_ticks(x_low, x_high, _X_TICKS)],
            [(tick, format_si(tick, "")) for tick in decimal_ticks(y_low, y_high, _Y_TICKS)],
            f"FLOP per byte at {_level(roof)}",
            "FLOP/s",
        ),
        line(corners, "var(--ink)", "roof"),
        spot(
            *corners[1],
            f"ridge: {roof.ridge:.4g} FLOP/B\n{format_si(roof.peak, 'FLOP/s')} {roof.dtype} and "
            f"{format_si(roof.bandwidth, 'B/s')} by the data sheet",
        ),
        text(RIGHT - 4, corners[1][1] - 9, f"{format_si(roof.peak, 'FLOP/s')} peak", anchor="end"),
        _slope(corners, f"{format_si(roof.bandwidth, 'B/s')} DRAM", -6 if roof.level == "dram" else 14),
    ]
    parts += [_track(track, roof, x, y, colour[track.impl]) for track in roof.tracks]
    parts.append(_lengths(roof, x, y))
    ends = {
        track.label: Label(track.label, y(track.points[-1].flop_per_s), colour[track.impl]) for track in roof.tracks
    }
    labels = list(ends.values())
    title = f"Roofline of {roof.gpu.name} at {_level(roof)}"
    return figure(title, [*parts, names(labels)], width=width_with(labels))


def roof_tip(track: Track, point: RoofPoint, roof: Roof) -> str:
    """What stands beside a point of a roofline."""
    head = " ".join(part for part in (track.label, point.tile) if part)
    rate = format_si(point.flop_per_s, "FLOP/s")
    return "\n".join(
        (
            f"{head}, N = {format_count(point.seq)}",
            f"{rate}, {'a prediction: the least time of the roofline' if track.source == 'model' else 'measured'}",
            f"{point.intensity:.4g} FLOP/B on {point.bytes_source} bytes at {_level(roof)}",
        )
    )


def _level(roof: Roof) -> str:
    return "DRAM" if roof.level == "dram" else "global memory"


def _slope(corners: Sequence[tuple[float, float]], words: str, below: float) -> str:
    """A text along the bandwidth's line, on the side where no marks are expected."""
    (x0, y0), (x1, y1) = corners[:2]
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    return f'<g transform="translate({x:.1f} {y:.1f}) rotate({angle:.1f})">{text(0, below, words, anchor="middle")}</g>'


def _track(track: Track, roof: Roof, x: LogScale, y: LogScale, colour: str) -> str:
    """Points of one implementation, joined by length."""
    places = [(x(point.intensity), y(point.flop_per_s)) for point in track.points]
    parts = [line(places, colour, "track")] if len(places) > 1 else []
    for place, point in zip(places, track.points, strict=True):
        parts.append(mark(*place, track.source, colour, roof_tip(track, point, roof)))
    return "".join(parts)


def _lengths(roof: Roof, x: LogScale, y: LogScale) -> str:
    """The shortest and the longest length of each track below its mark, where no other is written."""
    taken: list[tuple[float, float]] = []
    parts = []
    for track in roof.tracks:
        for point in (track.points[0], track.points[-1]):
            place = x(point.intensity), y(point.flop_per_s) + 17
            if all(abs(place[0] - other[0]) > 24 or abs(place[1] - other[1]) > 12 for other in taken):
                taken.append(place)
                parts.append(text(*place, length_text(point.seq), anchor="middle"))
    return "".join(parts)


# --- tiles ------------------------------------------------------------------------------------------------------------

_CELL_HEIGHT: Final = 34
#: Share of the colour in the least and in the largest cell; text stays legible on both.
_SHADES: Final = (0.06, 0.5)


def heat_chart(heat: HeatMap) -> str:
    """Tiles by block_m, downwards, and block_n; the darker the more, and a frame around the least, or another."""
    places: list[Cell | Blank] = [*heat.cells, *heat.blanks]
    rows = sorted({place.block_m for place in places})
    columns = sorted({place.block_n for place in places})
    width = (WIDTH - LEFT - 10) / len(columns)
    low, high = (bound(cell.value for cell in heat.cells) for bound in (min, max))
    parts = [text(LEFT - 6, TOP + 12, "block_m", anchor="end"), text(LEFT, TOP - 2, "block_n")]
    for j, block_n in enumerate(columns):
        parts.append(text(LEFT + (j + 0.5) * width, TOP + 12, str(block_n), anchor="middle"))
    for i, block_m in enumerate(rows):
        parts.append(text(LEFT - 6, _top(i) + _CELL_HEIGHT / 2 + 4, str(block_m), anchor="end"))
    for cell in heat.cells:
        place = LEFT + columns.index(cell.block_n) * width, _top(rows.index(cell.block_m))
        framed = cell.value == low < high if heat.framed is None else (cell.block_m, cell.block_n) == heat.framed
        parts.append(_cell(heat, cell, place, width, _share(cell.value, low, high), framed))
    for blank in heat.blanks:
        parts.append(_blank(blank, LEFT + columns.index(blank.block_n) * width, _top(rows.index(blank.block_m)), width))
    return figure(f"{heat.title}, N = {format_int(heat.seq)}", parts, _top(len(rows)) + 6)


def _top(row: int) -> float:
    return TOP + 20 + row * _CELL_HEIGHT


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, 0 to 1: by ratio, but by difference where there is a zero.

    Where the most is not even twice the least, the darkest shade is not used: a few percent are no contrast.
    """
    if high == low:
        return 0.0
    return math.log(value / low) / math.log(max(high / low, 2)) if low > 0 else (value - low) / (high - low)


def _blank(blank: Blank, x: float, y: float, width: float) -> str:
    words = f"{blank.block_m}x{blank.block_n}\n{blank.reason}"
    return (
        f'<g class="mark"><title>{escape(words)}</title><rect class="blank" {_box(x, y, width)}/>'
        + text(x + width / 2, y + _CELL_HEIGHT / 2 + 4, blank.word, anchor="middle")
        + "</g>"
    )


def _box(x: float, y: float, width: float) -> str:
    return f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{_CELL_HEIGHT - 2}" rx="3"'


def heat_words(heat: HeatMap) -> str:
    """Where the figures of a map are from."""
    return heat.origin or WORDS[heat.source]


def _cell(heat: HeatMap, cell: Cell, place: tuple[float, float], width: float, share: float, framed: bool) -> str:
    x, y = place
    shade = _SHADES[0] + share * (_SHADES[1] - _SHADES[0])
    words = f"{heat.impl} {cell.tile}\n{heat_words(heat)}: {heat.unit.exact(cell.value)}"
    box = _box(x, y, width)
    return (
        f'<g class="mark"><title>{escape(words)}</title>'
        f'<rect class="cell" {box} style="fill-opacity:{shade:.3f}"/>'
        + (f'<rect class="least" {box}/>' if framed else "")
        + text(x + width / 2, y + _CELL_HEIGHT / 2 + 4, heat.unit.short(cell.value), anchor="middle", kind="value")
        + "</g>"
    )
