"""What a pair of rows says beside its time: bytes by source, by tensor where that is known, resources, error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.records import RECORDS, Record, Source, TensorTraffic

_BYTES: Final = re.compile(r"(?P<level>[a-z0-9]+)_(?P<op>read|write)_bytes_(?P<source>model|emulated|measured)")
#: Column of a record -> what it is called, also in ``--fail-on``.
RESOURCES: Final[Mapping[str, str]] = {
    "registers": "registers",
    "spill_bytes": "spills",
    "smem_bytes": "smem",
    "max_abs_err": "error",
}

Number = int | float


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure on both sides; None where a side does not know it.

    Parameters
    ----------
    name : str
        ``global read``, ``global K read``, ``registers`` ...
    before, after : int or float, optional
        Bytes, registers, or the largest absolute error.
    sources : tuple of str
        Which of ``model``, ``emulated`` and ``measured`` say exactly this; empty for what has one source only.
    """

    name: str
    before: Number | None
    after: Number | None
    sources: tuple[Source, ...] = ()

    @property
    def delta(self) -> Number | None:
        """After less before."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def changed(self) -> bool:
        """Whether the two sides do not say the same."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Total:
    """Bytes of one level by one source, read and written; None where a side lacks a direction that the other knows."""

    level: str
    source: Source
    before: int | None
    after: int | None


def columns_of_bytes() -> dict[tuple[str, Source], dict[str, str]]:
    """(level, source) -> direction -> column of the records, for every level that they have."""
    found: dict[tuple[str, Source], dict[str, str]] = {}
    for column in RECORDS.columns:
        if match := _BYTES.fullmatch(column):
            source: Source = match["source"]  # type: ignore[assignment]  # one of the three, by the pattern
            found.setdefault((match["level"], source), {})[match["op"]] = column
    return found


def totals(before: Record, after: Record) -> tuple[Total, ...]:
    """Read and written bytes together, of every level and source that a side knows.

    A direction that neither side knows is left out.
    """
    found = []
    for (level, source), columns in columns_of_bytes().items():
        pairs = [(getattr(before, column), getattr(after, column)) for column in columns.values()]
        known = [pair for pair in pairs if pair != (None, None)]
        if known:
            old, new = zip(*known, strict=True)
            found.append(Total(level, source, _sum(old), _sum(new)))
    return tuple(found)


def byte_figures(
    before: Record, after: Record, traffic: tuple[Sequence[TensorTraffic] | None, Sequence[TensorTraffic] | None]
) -> tuple[Figure, ...]:
    """Bytes that are not the same: of each tensor where both sides have their traffic, else of the whole.

    Sources that say the same of a tensor are one figure. A whole whose tensors do not account for its change stands
    beside them. Where a side has lost lines, it knows the bytes of no tensor.

    Parameters
    ----------
    before, after : Record
    traffic : pair of sequences of TensorTraffic or None
        Of the two cases; empty where there is none, None where a part of it is lost.
    """
    figures: list[Figure] = []
    for (level, source), columns in columns_of_bytes().items():
        for op, column in columns.items():
            whole = Figure(f"{level} {op}", getattr(before, column), getattr(after, column), (source,))
            old, new = (None if lines is None else _tensors(lines, level, op, source) for lines in traffic)
            parts = [
                Figure(
                    f"{level} {tensor} {op}",
                    None if old is None else old.get(tensor, 0),
                    None if new is None else new.get(tensor, 0),
                    (source,),
                )
                for tensor in dict.fromkeys([*(old or ()), *(new or ())])
            ]
            compared = (old is None or old) and (new is None or new)
            named = [part for part in parts if part.changed] if compared else []
            if whole.changed and (whole.delta is None or whole.delta != sum(part.delta or 0 for part in named)):
                named.append(whole)
            figures += named
    return tuple(_merged(figures))


def resource_figures(before: Record, after: Record) -> tuple[Figure, ...]:
    """Registers, spilled bytes, shared memory and error, changed or not."""
    return tuple(Figure(name, getattr(before, column), getattr(after, column)) for column, name in RESOURCES.items())


def _tensors(lines: Sequence[TensorTraffic], level: str, op: str, source: Source) -> dict[str, int]:
    """Bytes of each tensor, all kernels of the case together; hardware counters know no tensors."""
    found: dict[str, int] = {}
    for line in lines:
        if (line.level, line.op, line.source) == (level, op, source) and source != "measured":
            found[line.tensor] = found.get(line.tensor, 0) + line.bytes
    return found


def _merged(figures: Sequence[Figure]) -> list[Figure]:
    """Figures that differ in nothing but their source as one, in the order of the first."""
    sources: dict[tuple[str, Number | None, Number | None], tuple[Source, ...]] = {}
    for figure in figures:
        key = (figure.name, figure.before, figure.after)
        sources[key] = (*sources.get(key, ()), *figure.sources)
    return [Figure(*key, found) for key, found in sources.items()]


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
