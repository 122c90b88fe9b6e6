"""Nsight Compute's CSV as rows: one per profiled kernel launch, with the metrics that were asked for.

Two shapes are read. ``--page raw`` has one column per metric, a row of units under the header and a row per launch;
without it, and in old versions, there is a row per launch and metric (``Metric Name``, ``Metric Unit``,
``Metric Value``). Columns are found by name, because versions add some (``Block Size``, ``Device``, ``CC``, NVTX
ranges) and drop others (``Kernel Time``). Around the table are lines of ncu (``==PROF== ...``) and of the program.

Numbers come as the locale writes them, with thousands separators also where base units were asked for: ``6,302,976``
or ``6.302.976``. Reported by users and handled: both of these, and ``n/a`` for a metric that could not be read. Forms
after the tool's manual (docs.nvidia.com/nsight-compute/NsightComputeCli, "Output Pages", "Metrics and Units").
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

#: Units of counts, and how many of the base unit each is. ncu's prefixes are decimal.
_UNITS: Final[dict[str, int]] = {
    "": 1, "byte": 1, "sector": 1, "request": 1,
    **{f"{prefix}{unit}": 1000**power for unit in ("byte", "sector", "request")
       for power, prefix in enumerate(("K", "M", "G", "T"), start=1)},
}  # fmt: skip

_DIGITS: Final = re.compile(r"\d[\d.,]*")
#: Separators of thousands that are never decimal: spaces of all widths, apostrophes.
_GROUPING: Final = re.compile(r"(?<=\d)[\s\u00a0\u2009\u202f'’](?=\d)")


@dataclass(slots=True)
class KernelRow:
    """One launch: the kernel's name as ncu writes it, and counts by metric; None where ncu gave no number."""

    name: str
    counts: dict[str, int | None] = field(default_factory=dict)


def kernel_rows(text: str, metrics: Iterable[str]) -> list[KernelRow]:
    """The launches of ncu's output, in their order.

    Parameters
    ----------
    text : str
        Everything that ncu wrote.
    metrics : iterable of str
        Names of the metrics to read; all of them are counts.

    Returns
    -------
    list of KernelRow
        Empty if there is no table. A metric without a column is not in a row's counts.
    """
    wanted = frozenset(metrics)
    found: list[KernelRow] = []
    for header, rows in _tables(text):
        found += (_long if "Metric Name" in header else _wide)(header, rows, wanted)
    return found


def _tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Each table's header and the rows that are as wide as it."""
    header: list[str] = []
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("=="):
            continue
        cells = next(csv.reader([line]), [])
        if cells[:1] == ["ID"] and "Kernel Name" in cells:
            if header:
                yield header, rows
            header, rows = cells, []
        elif header and len(cells) == len(header):
            rows.append(cells)
    if header:
        yield header, rows


def _wide(header: Sequence[str], rows: Sequence[Sequence[str]], wanted: frozenset[str]) -> Iterator[KernelRow]:
    name = header.index("Kernel Name")
    columns = {column: metric for column, metric in enumerate(header) if metric in wanted}
    decimal = _decimal_separator(row[column] for row in rows for column in columns)
    units: Sequence[str] = [""] * len(header)
    for row in rows:
        if not row[0]:
            units = row
            continue
        counts = {metric: _count(row[column], units[column], decimal) for column, metric in columns.items()}
        yield KernelRow(row[name], counts)


def _long(header: Sequence[str], rows: Sequence[Sequence[str]], wanted: frozenset[str]) -> Iterator[KernelRow]:
    value = header.index("Metric Value")
    decimal = _decimal_separator(row[value] for row in rows)
    launches: dict[tuple[str, str], KernelRow] = {}
    for row in rows:
        cell = dict(zip(header, row, strict=True))
        launch = launches.setdefault((cell.get("Process ID", ""), cell["ID"]), KernelRow(cell["Kernel Name"]))
        if cell["Metric Name"] in wanted:
            launch.counts[cell["Metric Name"]] = _count(cell["Metric Value"], cell["Metric Unit"], decimal)
    yield from launches.values()


def _decimal_separator(cells: Iterable[str]) -> str:
    """The decimal separator of a table's values: the other one is repeated in a number, or comes before it."""
    for cell in cells:
        text = _GROUPING.sub("", cell.strip())
        if not _DIGITS.fullmatch(text):
            continue
        for grouping, decimal in ((",", "."), (".", ",")):
            if text.count(grouping) > 1 or -1 < text.find(grouping) < text.find(decimal):
                return decimal
    return "."


def _count(cell: str, unit: str, decimal: str) -> int | None:
    """A count in base units; None if the cell holds no such number.

    In base units a count has no fraction, so a lone separator before three digits groups thousands in any locale.
    """
    text = _GROUPING.sub("", cell.strip())
    scale = _UNITS.get(unit.strip())
    if scale is None or not _DIGITS.fullmatch(text):
        return None
    if scale == 1 and re.fullmatch(r"\d{1,3}[.,]\d{3}", text):
        return int(text.replace(",", "").replace(".", ""))
    whole, _, fraction = text.replace("," if decimal == "." else ".", "").partition(decimal)
    if not whole.isdecimal() or (fraction and not fraction.isdecimal()):
        return None
    value = Fraction(f"{whole}.{fraction or 0}")
    return round(value * scale) if scale > 1 or value.denominator == 1 else None
