"""What a table is: titled columns of finished text, for a terminal or a Markdown file.

Cells are text already (numbers are made into text by :mod:`fa_bench.units`); a table knows nothing of terminals.
Tables of records are built in :mod:`fa_bench.report.records`, :mod:`fa_bench.report.io_model` and others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

#: Shown where a value isn't known.
UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title, its side, and its width in characters where rows are shown one by one."""

    title: str
    align: Literal["left", "right"] = "left"
    width: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Finished text in rows and columns.

    Parameters
    ----------
    title : str
        One line above the table; may be empty.
    columns : tuple of Column
    rows : tuple of tuple of str
        Each as long as ``columns``.
    note : str
        What the reader must know below the table; may be empty.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title!r}: a row has {len(row)} cells for {len(self.columns)} columns.")

    def markdown(self) -> str:
        """The table in GitHub's Markdown, title and note as paragraphs."""
        rule = ["---:" if column.align == "right" else ":---" for column in self.columns]
        lines = [_markdown_row(column.title for column in self.columns), "| " + " | ".join(rule) + " |"]
        lines += [_markdown_row(row) for row in self.rows]
        return "\n\n".join(
            part for part in (f"**{self.title}**" if self.title else "", "\n".join(lines), self.note) if part
        )


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def pairs_table(title: str, pairs: Mapping[str, str] | Sequence[tuple[str, str]], note: str = "") -> Table:
    """A table of two columns, a name and its value."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return Table(title, (Column("field"), Column("value")), tuple(items), note)
