"""Flat rows and documents as CSV and JSON text: full precision, empty or null where a value isn't known."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_text(rows: Sequence[Mapping[str, object]], header: Sequence[str] = ()) -> str:
    """Comma-separated text with a header line.

    Parameters
    ----------
    rows : sequence of mappings
        Column name -> value; ``None`` is written as an empty field, booleans as ``true`` and ``false``.
    header : sequence of str, optional
        Column order; the keys of the first row if not given.
    """
    columns = list(header) or (list(rows[0]) if rows else [])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_field(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def csv_lines(columns: Sequence[Any], count: int) -> str:
    """``count`` lines of comma-separated text, without a header.

    Parameters
    ----------
    columns : sequence
        A value that all lines share, written as :func:`csv_text` does, or a NumPy array with one for each line:
        numbers, NaN for none, or words that need no quotes.
    """
    fields: list[Iterable[str]] = []
    for is_array, together in itertools.groupby(columns, lambda column: hasattr(column, "tolist")):
        if is_array:
            # Python's numbers, whose text keeps every digit; NaN differs from itself, and stands for what isn't known.
            fields += [(str(value) if value == value else "" for value in column.tolist()) for column in together]
        else:
            # With an empty field behind them: of one empty field alone the writer makes a quoted one.
            shared = csv_text([], [*map(_csv_field, together), ""]).removesuffix(",\n")
            fields.append(itertools.repeat(shared, count))
    return "".join(f"{','.join(line)}\n" for line in zip(*fields, strict=True))


def json_text(document: object) -> str:
    """Indented JSON. A float that is no number is written as null: JSON has no NaN."""
    return json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _csv_field(value: object) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ";".join(_csv_field(item) for item in value)
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
