"""What charts are made of as SVG: a frame with logarithmic axes, marks by source, names beside lines.

Everything is text in the coordinates of a box of ``WIDTH`` units, so that a chart is as sharp on paper as on a screen.
Colours are CSS variables of the page; `standalone` puts their light values in, for files that are looked at alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from fa_bench.records import Source
from fa_bench.report.page.scales import LogScale, spread

WIDTH: Final = 400
HEIGHT: Final = 290
LEFT: Final = 62
RIGHT: Final = 318
TOP: Final = 14
BOTTOM: Final = 250

WEB: Final = Path(__file__).parent / "web"
BASE_STYLE: Final = Path(__file__).parents[1] / "web" / "base.css"
#: Implementations whose colour the trace page has too.
_NAMED: Final = ("standard", "flash1", "flash2")
_OTHERS: Final = 7
#: Height of a line of text and the width of a letter of a name, about.
_LINE: Final = 13
_LETTER: Final = 7.2


def colours(impls: Iterable[str]) -> dict[str, str]:
    """A CSS colour for each implementation, the same wherever it is drawn; beyond ten they come again."""
    others = sorted(set(impls) - set(_NAMED))
    return {name: f"var(--{name})" for name in _NAMED} | {
        name: f"var(--series{i % _OTHERS + 1})" for i, name in enumerate(others)
    }


@dataclass(frozen=True, slots=True)
class Label:
    """A name beside the end of a line."""

    text: str
    y: float
    colour: str


def figure(title: str, parts: Iterable[str], height: float = HEIGHT, width: float = WIDTH) -> str:
    """The SVG element around the parts of a chart."""
    return (
        f'<svg class="chart" viewBox="0 0 {_number(width)} {_number(height)}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def grid(
    x: LogScale,
    y: LogScale,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    x_title: str,
    y_title: str = "",
) -> str:
    """Lines and texts of both axes."""
    parts = []
    for value, label in y_ticks:
        at = _number(y(value))
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(text(LEFT - 6, y(value) + 3.5, label, anchor="end"))
    for value, label in x_ticks:
        at = _number(x(value))
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{BOTTOM}"/>')
        parts.append(text(x(value), BOTTOM + 15, label, anchor="middle"))
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 32, x_title, anchor="middle"))
    if y_title:
        parts.append(text(LEFT + 5, TOP + 10, y_title))
    return "".join(parts)


def text(x: float, y: float, content: str, *, anchor: str = "start", colour: str = "", kind: str = "") -> str:
    """A line of text."""
    style = f' style="fill:{colour}"' if colour else ""
    name = f' class="{kind}"' if kind else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_number(x)}" y="{_number(y)}"{place}{name}{style}>{escape(content)}</text>'


def line(points: Sequence[tuple[float, float]], colour: str, kind: str) -> str:
    """A line through points; ``kind`` is its class: ``model``, ``measured``, ``floor``, ``roof``."""
    path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    return f'<polyline class="line {kind}" points="{path}" style="stroke:{colour}"/>'


def whisker(x: float, low: float, high: float, colour: str) -> str:
    """From where to where a figure may lie."""
    x0, x1 = _number(x - 3), _number(x + 3)
    a, b = _number(low), _number(high)
    return f'<path class="whisker" style="stroke:{colour}" d="M{x0} {a}H{x1}M{_number(x)} {a}V{b}M{x0} {b}H{x1}"/>'


def mark(x: float, y: float, source: Source, colour: str, tip: str, size: float = 4.2) -> str:
    """A point: a circle if emulated, a filled diamond if measured, a square if predicted; ``tip`` says what it is."""
    shape = {
        "emulated": f'<circle class="emulated" r="{size}"/>',
        "measured": f'<path class="measured" d="M0 {-1.25 * size}L{1.25 * size} 0 0 {1.25 * size} {-1.25 * size} 0Z"/>',
        "model": f'<rect class="model" x="{-size}" y="{-size}" width="{2 * size}" height="{2 * size}"/>',
    }[source]
    return _placed(x, y, colour, tip, shape)


def spot(x: float, y: float, tip: str) -> str:
    """An invisible place of a line that says what lies there."""
    return _placed(x, y, "none", tip, "")


def _placed(x: float, y: float, colour: str, tip: str, shape: str) -> str:
    return (
        f'<g class="mark" transform="translate({_number(x)} {_number(y)})" style="color:{colour}">'
        f'<title>{escape(tip)}</title><circle class="hit" r="9"/>{shape}</g>'
    )


def names(labels: Sequence[Label], x: float = RIGHT + 7) -> str:
    """Names beside the ends of lines, moved apart where they would overlap."""
    gap = min(_LINE, (BOTTOM - TOP) / max(1, len(labels)))
    places = spread([label.y for label in labels], gap, TOP + 4, BOTTOM)
    return "".join(
        text(x, place + 3.5, label.text, colour=label.colour, kind="name")
        for label, place in zip(labels, places, strict=True)
    )


def width_with(labels: Sequence[Label]) -> float:
    """The width of a chart beside which these names stand."""
    return max(WIDTH, RIGHT + 12 + _LETTER * max(len(label.text) for label in labels))


def standalone(chart: str, title: str) -> str:
    """A chart as a file of its own, with its style inside and a white ground, for any program that reads SVG."""
    known = _light()
    style = (WEB / "chart.css").read_text(encoding="utf-8").split("/* chart */")[1]
    inside = chart.replace(">", f"><title>{escape(title)}</title><style>{style}</style>{_GROUND}", 1)
    return _substituted(inside, known) + "\n"


_GROUND: Final = '<rect width="100%" height="100%" style="fill:var(--card)"/>'


def _substituted(markup: str, values: Mapping[str, str]) -> str:
    return re.sub(r"var\((--[\w-]+)\)", lambda match: values[match[1]], markup)


@cache
def _light() -> dict[str, str]:
    """The light values of the page's variables."""
    values: dict[str, str] = {}
    for path in (BASE_STYLE, WEB / "chart.css"):
        root = path.read_text(encoding="utf-8").split(":root {", 1)[1].split("}", 1)[0]
        values |= dict(re.findall(r"(--[\w-]+): ([^;]+);", root))
    return values


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
