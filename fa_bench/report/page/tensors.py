"""Which tensor a kernel's global bytes are of, at the longest length of a panel: bars, one per tensor and direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from fa_bench.algorithms.base import ALL_TENSORS
from fa_bench.records import Source
from fa_bench.report.page.figures import BYTES, SOURCES, Panel
from fa_bench.report.page.svg import TOP, WIDTH, figure, text
from fa_bench.units import format_int

_PITCH: Final = 17
_GAP: Final = 24
#: Right of the bars, for their figures.
_FIGURES: Final = 66
#: Width of a letter left of the bars, about.
_LETTER: Final = 6.2


@dataclass(frozen=True, slots=True)
class Bar:
    """Bytes of one tensor in one direction, over all kernels, by source."""

    tensor: str
    op: str
    nbytes: Mapping[Source, int]

    @property
    def best(self) -> tuple[Source, int]:
        """Measured bytes, else emulated ones, else the model's."""
        return next((source, self.nbytes[source]) for source in reversed(SOURCES) if source in self.nbytes)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The bars of one implementation, in the order in which its kernels touch the tensors."""

    impl: str
    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Tensors:
    """Breakdowns of a panel at one length."""

    seq: int
    breakdowns: tuple[Breakdown, ...]


def tensors(panel: Panel) -> Tensors | None:
    """Bars of the longest length that has lines in ``traffic.csv``; None if no row has any."""
    lengths = [row.record.seq_q for row in panel.chosen if any(line.level == "global" for line in row.traffic)]
    if not lengths:
        return None
    found: dict[tuple[str, str], dict[tuple[str, str], dict[Source, int]]] = {}
    for row in panel.chosen:
        if row.record.seq_q != max(lengths):
            continue
        bars: dict[tuple[str, str], dict[Source, int]] = defaultdict(lambda: defaultdict(int))
        for line in row.traffic:
            # What a failed run counted counts for nothing, and hardware counters can't tell tensors apart.
            told = line.level == "global" and line.tensor != ALL_TENSORS
            if told and (line.source == "model" or row.record.status == "ok"):
                bars[(line.tensor, line.op)][line.source] += line.bytes
        if bars:
            found[(row.record.impl, row.run)] = bars
    return Tensors(
        max(lengths),
        tuple(
            Breakdown(
                impl,
                " ".join([impl, run]).strip(),
                tuple(Bar(tensor, op, dict(nbytes)) for (tensor, op), nbytes in bars.items()),
            )
            for (impl, run), bars in found.items()
        ),
    )


def tensor_chart(made: Tensors, colour: Mapping[str, str]) -> str:
    """Bars as long as their bytes: full where they were counted, dashed outlines where they are the model's."""
    largest = max(nbytes for part in made.breakdowns for bar in part.bars for nbytes in bar.nbytes.values())
    left = max(12 + _LETTER * len(f"{bar.tensor} {bar.op}") for part in made.breakdowns for bar in part.bars)
    scale = (WIDTH - left - _FIGURES) / (largest or 1)
    parts = []
    y = float(TOP)
    for part in made.breakdowns:
        parts.append(text(0, y + 4, part.label, colour=colour[part.impl], kind="name"))
        for bar in part.bars:
            y += _PITCH
            parts.append(_bar(bar, left, y, scale, colour[part.impl], part.label))
        y += _GAP
    return figure(f"Global bytes by tensor, N = {format_int(made.seq)}", parts, y - _GAP + 14)


def _bar(bar: Bar, left: float, y: float, scale: float, colour: str, label: str) -> str:
    source, nbytes = bar.best
    words = "\n".join(
        [
            f"{label}: {bar.tensor} {bar.op}",
            *(f"{source}: {BYTES.exact(bar.nbytes[source])}" for source in SOURCES if source in bar.nbytes),
        ]
    )
    shapes = []
    if source != "model":
        shapes.append(_rect("full", left, y, nbytes * scale))
    if "model" in bar.nbytes:
        shapes.append(_rect("outline", left, y, bar.nbytes["model"] * scale))
    end = left + scale * max(bar.nbytes.values()) + 6
    return (
        text(left - 6, y + 4, f"{bar.tensor} {bar.op}", anchor="end")
        + f'<g class="mark" style="color:{colour}"><title>{escape(words)}</title>{"".join(shapes)}</g>'
        + text(end, y + 4, BYTES.short(nbytes))
    )


def _rect(kind: str, x: float, y: float, width: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y - 5:.1f}" width="{max(width, 1):.1f}" height="11"/>'
