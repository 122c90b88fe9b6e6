"""The files of ``fa_bench/data``: what others measured, what was fitted to it, and counts of our kernels."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from importlib import resources


def text(name: str) -> str:
    """A file's text."""
    return (resources.files("fa_bench") / "data" / name).read_text(encoding="utf-8")


def rows(name: str) -> Iterator[Mapping[str, str]]:
    """Rows of a CSV file; a cell that is not known is empty."""
    yield from csv.DictReader(text(name).splitlines())
