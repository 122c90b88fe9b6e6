"""Tables, rows and the document of ``fa-bench trace``: the order of the tiles, steps, one row's state, the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.report.trace_tiles import order_map, progress, tile_counts, visits
from fa_bench.report.trace_words import TENSORS, doing, title
from fa_bench.tracing.result import Comparison, Range, Trace
from fa_bench.units import format_bytes, format_count, format_error, format_ratio

#: Version of the JSON document, described in docs/trace.md.
SCHEMA: Final = 1
_WIDTH: Final = 80
#: Rows of tiles that the picture of all algorithms at the same bytes has at most.
_RACE_ROWS: Final = 8
#: Elements of O that the table shows.
_ELEMENTS: Final = 3
#: Groups of rows that the table of a bug's errors has at most.
_GROUPS: Final = 16


def trace_tables(comparison: Comparison, steps: int) -> list[Table]:
    """Tables of 80 columns.

    Parameters
    ----------
    comparison : Comparison
    steps : int
        How many visits to tiles to show of each algorithm.
    """
    shown = comparison.shown
    return [
        _order_table(comparison),
        _race_table(comparison),
        *(_visits_table(trace, steps) for trace in shown if steps),
        _row_table(comparison),
        *([] if comparison.mistake is None else [_errors_table(comparison, comparison.mistake.name)]),
        _bytes_table(comparison),
        _verdict_table(comparison),
    ]


def _order_table(comparison: Comparison) -> Table:
    """Which tile of S is computed when: the loops, side by side, thinned out until they fit."""
    every = 1
    while True:
        maps = [order_map(trace, every) for trace in comparison.shown]
        if sum(max(map(len, lines)) + 3 for lines in maps) <= _WIDTH:
            break
        every += 1
    columns = tuple(Column(trace.case.impl) for trace in comparison.shown)
    rows = tuple(tuple(cells) for cells in zip(*maps, strict=True))
    note = "Order in which tiles of S are computed: queries downwards, keys to the right."
    return Table(title(comparison), columns, rows, note + _thinned(comparison, every))


def _thinned(comparison: Comparison, every: int) -> str:
    """What a picture of tiles leaves out, as a sentence with a blank before it; empty if nothing."""
    if every == 1:
        return ""
    rows, columns = tile_counts(comparison.shown[0])
    return f" Of the {rows}x{columns} tiles one in {every} is shown, either way."


def _race_table(comparison: Comparison) -> Table:
    """How far each algorithm is when all have moved equally much."""
    shown = comparison.shown
    rows, columns = tile_counts(shown[0])
    widest = (_WIDTH - 12) // len(shown) - 3
    every = max(math.ceil(rows / _RACE_ROWS), math.ceil(columns / widest))
    most, lines = max(trace.total_bytes for trace in shown), []
    for quarter in range(1, 5):
        moved = most * quarter // 4
        maps = [progress(trace, moved, every) for trace in shown]
        for number, cells in enumerate(zip(*maps, strict=True)):
            lines.append((format_bytes(moved) if number == 0 else "", *cells))
    heads = (Column("moved", "right"), *(Column(trace.case.impl) for trace in shown))
    note = "Tiles when each has moved as much: ░ S is computed, ▒ P is in memory, █ P·V is added to O, · not yet."
    return Table("", heads, tuple(lines), note + _thinned(comparison, every))


def _visits_table(trace: Trace, most: int) -> Table:
    found = visits(trace)
    columns = (
        Column("tile", "right"),
        Column("kernel"),
        Column("queries", "right"),
        Column("keys", "right"),
        Column("read"),
        Column("written"),
        Column("bytes", "right"),
        Column("so far", "right"),
    )
    rows = tuple(
        (
            str(number),
            visit.kernel.removeprefix(f"{trace.case.impl}_"),
            UNKNOWN if visit.rows is None else _text(visit.rows),
            UNKNOWN if visit.keys is None else _text(visit.keys),
            " ".join(visit.read),
            " ".join(visit.written),
            format_bytes(visit.nbytes),
            format_bytes(visit.so_far_bytes),
        )
        for number, visit in enumerate(found[:most], 1)
    )
    left = len(found) - len(rows)
    note = f"{left} more, to {format_bytes(trace.total_bytes)}; --steps {len(found)} shows all." if left > 0 else ""
    return Table(_name(trace), columns, rows, note)


def _row_table(comparison: Comparison) -> Table:
    """m, l, the rescale factor and O of the row that is followed, tile by tile."""
    columns = (
        Column("algorithm"),
        Column("keys", "right"),
        Column("m", "right"),
        Column("l", "right"),
        Column("rescale", "right"),
        *(Column(f"O[{d}]", "right") for d in range(_ELEMENTS)),
        Column("error", "right"),
    )
    rows = [
        (
            trace.case.impl,
            _text(state["keys"]),
            *(_number(state[name]) for name in ("m", "l", "rescale")),
            *(_number(value) for value in _padded(state["o"])),
            UNKNOWN if state["error"] is None else format_error(state["error"]),
        )
        for trace in comparison.shown
        for state in row_states(trace, comparison.row)
    ]
    exact = comparison.right[0].exact[comparison.row]
    rows.append(("float64", "all", *[UNKNOWN] * 3, *(_number(value) for value in _padded(exact.tolist())), UNKNOWN))
    note = (
        "After each tile: maximum and sum of the exponentials, the factor by which O and l shrank before it, O (of "
        "flash2 divided by l), and its largest distance from float64."
    )
    return Table(f"Row {comparison.row}", columns, tuple(rows), note)


def row_states(trace: Trace, row: int) -> list[dict[str, Any]]:
    """What one row's registers held after each tile that it saw; None where an algorithm has no such value."""
    tile, values = trace.case.tile, trace.values
    assert tile is not None
    errors = trace.running_errors[row]
    states = []
    for block in np.flatnonzero((values.state_step[row] >= 0) | (values.output_step[row] >= 0)).tolist():
        o = trace.running[row, block]
        states.append(
            {
                "keys": (block * tile.block_n, min((block + 1) * tile.block_n, trace.case.shape.seq_kv)),
                **{
                    name: _known(array[row, block])
                    for name, array in (("m", values.m), ("l", values.l), ("rescale", values.factor))
                },
                "o": None if values.output_step[row, block] < 0 else o.tolist(),
                "error": _known(errors[block]),
            }
        )
    return states


def _errors_table(comparison: Comparison, bug: str) -> Table:
    """Largest error of groups of rows, right and with the bug."""
    rows = comparison.right[0].case.shape.seq_q
    size = math.ceil(rows / _GROUPS)
    columns = [Column("rows", "right")]
    parts = []
    for trace in comparison.right:
        columns += [Column(trace.case.impl, "right"), Column("bug", "right")]
        parts += [trace, comparison.wrong.get(trace.case.impl)]
    lines = []
    for first in range(0, rows, size):
        group = slice(first, first + size)
        cells = [UNKNOWN if part is None else _error(float(part.row_errors[group].max())) for part in parts]
        lines.append((_text((first, min(rows, first + size))), *cells))
    note = " ".join(
        f"{right.case.impl}: on average {format_ratio(float(wrong.row_errors.mean() / right.row_errors.mean()))} the "
        f"right run's error{', which the number format still explains' if wrong.verification.passed else ''}."
        for right in comparison.right
        if (wrong := comparison.wrong.get(right.case.impl)) is not None and np.isfinite(wrong.row_errors).all()
    )
    return Table(f"Largest error of O against float64, right and with {bug}", tuple(columns), tuple(lines), note)


def _bytes_table(comparison: Comparison) -> Table:
    """What each algorithm moved of each tensor, in both directions."""
    names = [
        name for name in TENSORS if any(part.tensor == name for trace in comparison.right for part in trace.traffic)
    ]
    columns = [Column("tensor")]
    for trace in comparison.right:
        columns += [Column(trace.case.impl, "right"), Column("written", "right")]
    rows = []
    for name in [*names, "all"]:
        cells = []
        for trace in comparison.right:
            for op in ("read", "write"):
                parts = [p.counted_bytes for p in trace.traffic if p.op == op and name in (p.tensor, "all")]
                cells.append(format_bytes(sum(parts)) if parts or name == "all" else UNKNOWN)
        rows.append((name, *cells))
    return Table("Bytes read, and written", tuple(columns), tuple(rows))


def _verdict_table(comparison: Comparison) -> Table:
    columns = (
        Column("algorithm"),
        Column("model B", "right"),
        Column("counted B", "right"),
        Column("largest error", "right"),
        Column("bound", "right"),
        Column("verdict"),
    )
    rows = []
    for trace in [*comparison.right, *comparison.wrong.values()]:
        verification = trace.verification
        rows.append(
            (
                _name(trace),
                format_count(sum(part.predicted_bytes for part in trace.traffic)),
                format_count(trace.total_bytes),
                _error(verification.max_abs_err),
                format_error(verification.bound),
                "differs" if not trace.equal else "ok" if verification.passed else "wrong_result",
            )
        )
    return Table("The model's bytes and those of the steps; O against float64", columns, tuple(rows))


def step_rows(comparison: Comparison) -> list[dict[str, object]]:
    """One flat row per step, for CSV."""
    rows: list[dict[str, object]] = []
    for trace in comparison.shown:
        so_far = 0
        for number, step in enumerate(trace.steps):
            moved = {op: sum(t.nbytes for t in step.touches if t.op == op) for op in ("read", "write")}
            so_far += sum(moved.values())
            rows.append(
                {
                    "impl": trace.case.impl,
                    "bug": trace.bug or None,
                    "step": number,
                    "kernel": step.kernel,
                    "cta": step.cta,
                    "doing": doing(step),
                    **_ends("query", step.rows),
                    **_ends("key", step.keys),
                    "read_bytes": moved["read"],
                    "write_bytes": moved["write"],
                    "so_far_bytes": so_far,
                }
            )
    return rows


def trace_document(comparison: Comparison) -> dict[str, object]:
    """All of it, for JSON; described in docs/trace.md."""
    shape, tile = comparison.right[0].case.shape, comparison.right[0].case.tile
    assert tile is not None
    return {
        "schema": SCHEMA,
        "passed": comparison.passed,
        "bug": None if comparison.mistake is None else comparison.mistake.name,
        "row": comparison.row,
        "dtype": comparison.right[0].case.dtype,
        **asdict(shape),
        "block_m": tile.block_m,
        "block_n": tile.block_n,
        "runs": [_run(trace, comparison.row) for trace in [*comparison.right, *comparison.wrong.values()]],
        "exact": comparison.right[0].exact[comparison.row].tolist(),
    }


def _run(trace: Trace, row: int) -> dict[str, object]:
    return {
        "impl": trace.case.impl,
        "bug": trace.bug or None,
        "steps": [{"doing": doing(step), **asdict(step)} for step in trace.steps],
        "row_states": row_states(trace, row),
        "row_errors": trace.row_errors.tolist(),
        "traffic": [asdict(part) for part in trace.traffic],
        "equal": trace.equal,
        "verification": asdict(trace.verification),
    }


def _name(trace: Trace) -> str:
    return f"{trace.case.impl}, {trace.bug}" if trace.bug else trace.case.impl


def _ends(name: str, found: Range | None) -> dict[str, object]:
    first, last = found if found is not None else (None, None)
    return {f"{name}_first": first, f"{name}_last": None if last is None else last - 1}


def _text(found: Range) -> str:
    return f"{found[0]}–{found[1] - 1}"


def _known(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)


def _padded(values: Sequence[float] | None) -> list[float | None]:
    return [None] * _ELEMENTS if values is None else list(values[:_ELEMENTS])


def _number(value: float | None) -> str:
    """Four significant digits, as a state's values are compared by eye."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return "−∞" if value < 0 else "∞"
    return f"{value:#.4g}" if value else "0"


def _error(value: float) -> str:
    return format_error(value) if math.isfinite(value) else "not finite"
