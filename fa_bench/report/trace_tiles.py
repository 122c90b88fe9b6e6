"""Which tile of S is computed when: steps joined tile by tile, the loops' order, how far each is at equal bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fa_bench.algorithms.base import Op
from fa_bench.tracing.result import Range, Step, Trace


@dataclass(frozen=True, slots=True)
class Visit:
    """Steps of a kernel in a row that belong to the same tile, or to the same rows.

    ``first`` and ``last`` number the steps; ``so_far_bytes`` is what the algorithm has moved after the last.
    """

    kernel: str
    first: int
    last: int
    rows: Range | None
    keys: Range | None
    read: tuple[str, ...]
    written: tuple[str, ...]
    nbytes: int
    so_far_bytes: int


def visits(trace: Trace) -> list[Visit]:
    """The steps of a trace, tile by tile.

    A step without a product (a load) belongs to the next one of its CTA that has one, else (a store) to the last.
    Steps of the softmax kernel, which sees whole rows, count as one visit per block_m rows.
    """
    tile = trace.case.tile
    assert tile is not None
    found, so_far = [], 0
    for (kernel, *_), group in itertools.groupby(_placed(trace.steps, tile.block_m), key=lambda item: item[0]):
        numbered = [(number, step) for _, number, step in group]
        steps = [step for _, step in numbered]
        nbytes = sum(touch.nbytes for step in steps for touch in step.touches)
        so_far += nbytes
        rows = [step.rows for step in steps if step.rows is not None]
        keys = [step.keys for step in steps if step.keys is not None]
        found.append(
            Visit(
                kernel=kernel,
                first=numbered[0][0],
                last=numbered[-1][0],
                rows=_hull(rows),
                keys=_hull(keys),
                read=_tensors(trace, steps, "read"),
                written=_tensors(trace, steps, "write"),
                nbytes=nbytes,
                so_far_bytes=so_far,
            )
        )
    return found


def _placed(steps: Sequence[Step], block_m: int) -> Iterator[tuple[tuple[str, int, int], int, Step]]:
    """Each step with its kernel, and the number of the tile of rows and the first key that it works on; -1: none."""
    places: list[tuple[int, int] | None] = [
        None if step.rows is None or step.keys is None else (step.rows[0] // block_m, step.keys[0]) for step in steps
    ]
    ctas = [(step.kernel, step.cta) for step in steps]
    for number in reversed(range(len(steps) - 1)):
        if places[number] is None and ctas[number] == ctas[number + 1]:
            places[number] = places[number + 1]
    for number, step in enumerate(steps):
        if places[number] is None and number and ctas[number] == ctas[number - 1]:
            places[number] = places[number - 1]
        yield (step.kernel, *(places[number] or (-1, -1))), number, step


def order_map(trace: Trace, every: int = 1) -> list[str]:
    """The number of each tile of S, or of those in every so-many-th row and column of them, line by line."""
    numbers = {place: number for number, place in enumerate(_order(trace, len(trace.steps)), 1)}
    width = len(str(len(numbers)))
    rows, columns = tile_counts(trace)
    return [
        " ".join(str(numbers.get((i, j), "·")).rjust(width) for j in range(0, columns, every))
        for i in range(0, rows, every)
    ]


def progress(trace: Trace, moved: int, every: int = 1) -> list[str]:
    """One character per tile of S, thinned out as in `order_map`, for the steps done after ``moved`` bytes."""
    rows, columns = tile_counts(trace)
    tile, shape, values = trace.case.tile, trace.case.shape, trace.values
    assert tile is not None
    so_far = np.cumsum([sum(touch.nbytes for touch in step.touches) for step in trace.steps])
    done = int(np.searchsorted(so_far, moved, side="right"))
    scored = set(_order(trace, done))
    lines = []
    for i in range(0, rows, every):
        # Standard attention has the state of a whole row at its last tile.
        row = min((i + 1) * tile.block_m, shape.seq_q) - 1
        normalised = np.isnan(values.factor).all() and 0 <= values.state_step[row, -1] < done
        lines.append(
            "".join(
                "█"
                if 0 <= values.output_step[row, j] < done
                else "▒"
                if normalised
                else "░"
                if (i, j) in scored
                else "·"
                for j in range(0, columns, every)
            )
        )
    return lines


def _order(trace: Trace, steps: int) -> list[tuple[int, int]]:
    """Row and column of each tile of S that the first steps compute, in their order."""
    tile = trace.case.tile
    assert tile is not None
    return [
        (step.rows[0] // tile.block_m, step.keys[0] // tile.block_n)
        for step in trace.steps[:steps]
        if "S" in step.computed and step.rows is not None and step.keys is not None
    ]


def tile_counts(trace: Trace) -> tuple[int, int]:
    """Rows and columns of tiles."""
    tile, shape = trace.case.tile, trace.case.shape
    assert tile is not None
    return math.ceil(shape.seq_q / tile.block_m), math.ceil(shape.seq_kv / tile.block_n)


def _tensors(trace: Trace, steps: Sequence[Step], op: Op) -> tuple[str, ...]:
    """Tensors that some steps read or write, in the program's order."""
    touched = {touch.tensor for step in steps for touch in step.touches if touch.op == op}
    return tuple(buffer.name for buffer in trace.program.buffers if buffer.name in touched)


def _hull(ranges: Sequence[Range]) -> Range | None:
    return (min(first for first, _ in ranges), max(last for _, last in ranges)) if ranges else None
