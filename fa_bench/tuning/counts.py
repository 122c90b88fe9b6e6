"""What a small run of a tile says of a large one: correct or not, what the compiler gave it, what it counts.

A tile is run on a ragged case, where the result and the bytes must be right, and on squares of one, two and three
tiles. In the loops of our kernels each counter of a slice is a constant, plus a part for each tile of Q, plus a part
for the matrix products that are executed: every tile of scores costs the same, and with a causal mask so do those on
the diagonal. Three squares settle the three parts, and with them the counter of any length that is a multiple of the
tile, exactly. A ragged end is taken for a whole tile, as are the CTAs at the start of ``flash1`` that rows shorter than
64 columns share: a small error in a small part. ``flash2`` shrinks O only in tiles that raise a maximum, as nearly all
of so few do: for a long case its instructions are those of the worst data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from fa_bench.algorithms.base import Algorithm, TensorBytes
from fa_bench.algorithms.tiles import resolved_tile
from fa_bench.backends.base import Backend, Resources, RunResult
from fa_bench.cases import AttentionShape, Case
from fa_bench.errors import FaBenchError, Unsupported
from fa_bench.model.gpu import Gpu

#: ``unknown``: it could not be run, so nothing is known for or against it.
Status = Literal["ok", "wrong_result", "wrong_bytes", "failed", "unknown"]
Counter = Literal["wavefronts", "conflicts", "instructions", "float_instructions"]
COUNTERS: Final[tuple[Counter, ...]] = ("wavefronts", "conflicts", "instructions", "float_instructions")

#: Squares of one, two and three of the larger side.
_SQUARES: Final = (1, 2, 3)
#: ptxas makes most moves of PTX vanish.
_VANISHING: Final = "instructions_move"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a tile's small runs.

    Parameters
    ----------
    case : Case
        The case that was asked about, not one of the small ones.
    status : Status
    reason : str
        A sentence unless ``status`` is ok.
    resources : Resources, optional
        What the compiler said.
    counters : mapping of str to mapping
        Kernel -> counter -> its value for the whole of ``case``; empty where nothing was counted.
    """

    case: Case
    status: Status
    reason: str = ""
    resources: Resources | None = None
    counters: Mapping[str, Mapping[Counter, float]] = field(default_factory=dict)

    def total(self, counter: Counter) -> float | None:
        """A counter over all kernels, None where it was not counted."""
        return sum(found[counter] for found in self.counters.values()) if self.counters else None


def trial(case: Case, algorithm: Algorithm, backend: Backend, gpu: Gpu) -> Trial:
    """Run the small cases of a tile; whatever fails is a status.

    Parameters
    ----------
    case : Case
        With its tile; its lengths need not be small.
    algorithm : Algorithm
        The one of ``case``; it must have traffic and work.
    backend : Backend
        Counts, or only verifies.
    gpu : Gpu
    """
    resources: Resources | None = None
    squares: list[tuple[Case, RunResult]] = []
    try:
        for number, small in enumerate(small_cases(case)):
            result = backend.run(small, gpu)
            resources = resources or result.resources
            status, reason = _verdict(small, algorithm, result)
            if status != "ok":
                return Trial(case, status, reason, resources)
            if number:
                squares.append((small, result))
    except Unsupported as error:
        return Trial(case, "unknown", error.message, resources)
    except FaBenchError as error:
        return Trial(case, "failed", error.message, resources)
    return Trial(case, "ok", "", resources, scaled(case, algorithm, [(c, counted(r)) for c, r in squares]))


def small_cases(case: Case) -> tuple[Case, ...]:
    """A ragged case of two heads that share K and V, then squares of one slice; tile, type and mask are those of
    ``case``.
    """
    tile, shape = resolved_tile(case), case.shape
    side = max(tile.block_m, tile.block_n)
    rows = tile.block_m + tile.block_m // 2 + 3, tile.block_n + tile.block_n // 2 + 5
    ragged = AttentionShape(1, 2, 1, *rows, shape.head_dim, shape.causal)
    squares = (AttentionShape(1, 1, 1, k * side, k * side, shape.head_dim, shape.causal) for k in _SQUARES)
    return tuple(replace(case, shape=small) for small in (ragged, *squares))


def scaled(
    case: Case, algorithm: Algorithm, squares: Sequence[tuple[Case, Mapping[str, Mapping[Counter, int]]]]
) -> dict[str, dict[Counter, float]]:
    """Counters of ``case`` from those of three squares, per kernel; empty if the squares were not counted.

    Per slice, counter = a + b · (tiles of Q) + c · (FLOPs executed): three equations for a, b and c.
    """
    if any(not counted for _, counted in squares):
        return {}
    rows = np.array([_basis(small, algorithm) for small, _ in squares])
    asked = np.array(_basis(case, algorithm)) * case.shape.slices
    weights = np.linalg.solve(rows.T, asked)
    kernels = squares[0][1]
    return {
        kernel: {
            name: float(sum(w * counted[kernel][name] for w, (_, counted) in zip(weights, squares, strict=True)))
            for name in COUNTERS
        }
        for kernel in kernels
    }


def _basis(case: Case, algorithm: Algorithm) -> tuple[float, float, float]:
    """One, tiles of Q and executed FLOPs of a slice; FLOPs in tiles, so that all three are of one size."""
    tile, work = resolved_tile(case), algorithm.work(case)
    assert work is not None
    per_tile = 4 * tile.block_m * tile.block_n * case.shape.head_dim
    tiles_of_q = math.ceil(case.shape.seq_q / tile.block_m)
    return 1.0, float(tiles_of_q), work.flops_executed / case.shape.slices / per_tile


def counted(result: RunResult) -> dict[str, dict[Counter, int]]:
    """The counters of a run by kernel; empty where the backend counts no instructions."""
    extra = {} if result.counts is None else result.counts.extra
    return {
        kernel: {
            "wavefronts": found["shared_wavefronts"],
            "conflicts": found["shared_conflicts"],
            "instructions": sum(n for name, n in found.items() if _is_instruction(name)),
            "float_instructions": found.get("instructions_fma", 0),
        }
        for kernel, found in extra.items()
    }


def _is_instruction(name: str) -> bool:
    return name.startswith("instructions_") and name != _VANISHING


def _verdict(case: Case, algorithm: Algorithm, result: RunResult) -> tuple[Status, str]:
    shape, found = case.shape, result.verification
    where = f"At {shape.seq_q} x {shape.seq_kv}"
    if found is None:
        return "failed", f"{where} the output was not verified."
    if not found.passed:
        return "wrong_result", f"{where} the result is wrong. {found.detail}".strip()
    if result.counts is not None:
        counted, predicted = (_by_tensor(part) for part in (result.counts.traffic["global"], algorithm.traffic(case)))
        for key in dict.fromkeys((*predicted, *counted)):
            if (here := counted.get(key, 0)) != (there := predicted.get(key, 0)):
                kernel, tensor, op = key
                return "wrong_bytes", f"{where} {kernel} moves {here} bytes of {tensor} ({op}), not {there}."
    return "ok", ""


def _by_tensor(parts: Iterable[TensorBytes] | None) -> dict[tuple[str, str, str], int]:
    total: dict[tuple[str, str, str], int] = {}
    for part in parts or ():
        key = (part.kernel, part.tensor, part.op)
        total[key] = total.get(key, 0) + part.bytes
    return total
