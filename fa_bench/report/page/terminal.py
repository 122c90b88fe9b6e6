"""A chart in the terminal: braille dots for lines, a character per implementation for what was counted or measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fa_bench.report.page.figures import Chart, Series
from fa_bench.report.page.scales import (
    LogScale,
    binary_ticks,
    decimal_ticks,
    length_text,
    length_ticks,
    spanned,
)

#: Rows of the canvas, in characters of four dots.
_ROWS: Final = 16
#: Columns left of the canvas, for the texts of the y axis.
_MARGIN: Final = 11
_MARKS: Final = "ox+*#@%&"
#: Bits of a braille character, by dot row and dot column (Unicode, block Braille Patterns).
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class _Canvas:
    """Dots and characters; positions count in dots, two to a column and four to a row."""

    def __init__(self, columns: int, rows: int) -> None:
        self._dots = [[0] * columns for _ in range(rows)]
        self._characters = [[""] * columns for _ in range(rows)]

    def dot(self, x: float, y: float) -> None:
        i, j = round(x), round(y)
        self._dots[j // 4][i // 2] |= _DOTS[j % 4][i % 2]

    def line(self, start: tuple[float, float], end: tuple[float, float], every: int) -> None:
        """Dots from one place to another, each ``every``-th of them."""
        steps = max(1, round(max(abs(end[0] - start[0]), abs(end[1] - start[1]))))
        for i in range(0, steps + 1, every):
            self.dot(start[0] + (end[0] - start[0]) * i / steps, start[1] + (end[1] - start[1]) * i / steps)

    def character(self, x: float, y: float, character: str) -> None:
        self._characters[round(y) // 4][round(x) // 2] = character

    def rows(self) -> list[str]:
        return [
            "".join(
                character or (chr(0x2800 + dots) if dots else " ")
                for dots, character in zip(line, characters, strict=True)
            )
            for line, characters in zip(self._dots, self._characters, strict=True)
        ]


def plot(chart: Chart, title: str, width: int = 80) -> str:
    """A chart as text of at most ``width`` columns, with both axes logarithmic.

    Parameters
    ----------
    chart : Chart
    title : str
        What the chart is of, as in the heading of its panel.
    width : int
        Columns of the terminal, at least 40.
    """
    points = [point for series in chart.series for point in series.points]
    lengths = [point.seq for point in points]
    low, high = spanned([*(point.value for point in points), *(value for _, value in chart.floor)], 1.15)
    columns = width - _MARGIN - 2
    x = LogScale(min(lengths), max(lengths), 2, 2 * columns - 3)
    y = LogScale(low, high, 4 * _ROWS - 1, 0)
    canvas = _Canvas(columns, _ROWS)
    places = [(x(seq), y(value)) for seq, value in chart.floor]
    for start, end in pairwise(places):
        canvas.line(start, end, 6)
    names = list(dict.fromkeys(series.label for series in chart.series))
    marks = {name: _MARKS[i % len(_MARKS)] for i, name in enumerate(names)}
    for series in chart.series:
        _draw(canvas, series, marks[series.label], x, y)
    ticks = (binary_ticks if chart.unit.binary else decimal_ticks)(low, high, 6)
    left = {round(y(tick)) // 4: chart.unit.short(tick) for tick in ticks}
    lines = [f"{chart.title}: {title}"]
    for i, row in enumerate(canvas.rows()):
        lines.append(f"{left.get(i, ''):>{_MARGIN - 1}} {'┤' if i in left else '│'}{row}".rstrip())
    lines.append(" " * _MARGIN + "└" + "─" * columns)
    lines.append(_below(lengths, x, columns))
    legend = [f"{mark} {name}" for name, mark in marks.items()]
    return "\n".join([*lines, *_wrapped([*legend, *_key(chart)], width)]) + "\n"


def _draw(canvas: _Canvas, series: Series, mark: str, x: LogScale, y: LogScale) -> None:
    places = [(x(point.seq), y(point.value)) for point in series.points]
    if series.source != "emulated":
        for start, end in pairwise(places):
            canvas.line(start, end, 2 if series.source == "model" else 1)
    if series.source != "model" or len(places) == 1:
        for place in places:
            canvas.character(*place, mark)


def _below(lengths: Sequence[int], x: LogScale, columns: int) -> str:
    """The lengths below the axis, each centred on its place."""
    line = [" "] * (_MARGIN + 1 + columns)
    for seq in length_ticks(lengths, 8):
        text = length_text(seq)
        start = _MARGIN + 1 + round(x(seq)) // 2 - len(text) // 2
        start = max(0, min(start, len(line) - len(text)))
        line[start : start + len(text)] = text
    return "".join(line).rstrip()


def _key(chart: Chart) -> list[str]:
    sources = {series.source for series in chart.series}
    key = []
    if "model" in sources:
        key.append("⠄⠁⠄ model")
    if "emulated" in sources:
        key.append("marks: emulated")
    if "measured" in sources:
        key.append("marks on ⠤⠤⠤: measured")
    if chart.floor:
        key.append("⠄  ⠄ compulsory")
    return key


def _wrapped(parts: Sequence[str], width: int) -> list[str]:
    """Parts in lines, none of them broken."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}   {part}" if lines[-1] else part
        if len(longer) > width and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = longer
    return lines
