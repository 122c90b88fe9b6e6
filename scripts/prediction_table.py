#!/usr/bin/env python3
"""Write the table of errors in docs/prediction.md from the stored residuals."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RESIDUALS: Final = ROOT / "fa_bench" / "data" / "prediction_residuals.csv"
DOCUMENT: Final = ROOT / "docs" / "prediction.md"
COLUMNS: Final = ("fitted", "length_out", "curve_out", "publication_out", "gpu_out")
_START: Final = "<!-- errors -->\n"
_END: Final = "<!-- /errors -->\n"


def table() -> str:
    """Errors by implementation, by GPU, and of all."""
    with RESIDUALS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = [
        "| of | points | fitted | left out: length | curve | publication | GPU |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for column in ("constants", "gpu", None):
        for name in dict.fromkeys("all" if column is None else row[column] for row in rows):
            inside = [row for row in rows if column is None or row[column] == name]
            cells = (sum(abs(float(row[key]) - 1) for row in inside) / len(inside) for key in COLUMNS)
            shown = f"**{name}**" if column is None else f"`{name}`"
            lines.append(f"| {shown} | {len(inside)} | " + " | ".join(f"{100 * cell:.1f}" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def documented(text: str) -> str:
    """The document's text with the table as it is now."""
    before, _, rest = text.partition(_START)
    return before + _START + table() + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
