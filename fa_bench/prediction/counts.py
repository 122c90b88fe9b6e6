"""What our kernels execute per tile: counted in the emulator once, by ``scripts/count_kernels.py``, and shipped.

So a prediction runs nothing. Of a kernel and tile, a counter of one slice is

    a + b · (tiles of Q) + c · (tiles of scores that are multiplied)

which three small squares settle, see `fa_bench.tuning.counts`. Counted are PTX instructions, without moves, which ptxas
makes vanish, and wavefronts of shared memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fa_bench import algorithms, datafiles
from fa_bench.algorithms.tensors import padded_head_dim
from fa_bench.cases import Case

FILE: Final = "kernel_counts.csv"
COUNTERS: Final = ("instructions", "float_instructions", "wavefronts")
_KEY: Final = ("impl", "direction", "head_dim", "causal", "block_m", "block_n", "stages", "num_warps")
_RESOURCES: Final = ("threads", "registers", "smem_bytes")
COLUMNS: Final = (
    *_KEY,
    "kernel",
    *_RESOURCES,
    *(f"{counter}_per_{part}" for counter in COUNTERS for part in ("slice", "q_tile", "tile")),
)


@dataclass(frozen=True, slots=True)
class Counted:
    """One kernel of a case.

    Parameters
    ----------
    threads, registers, smem_bytes : int
        Of a CTA, a thread and a CTA of the case's largest kernel.
    coefficients : mapping of str to tuple of float
        Counter -> per slice, per tile of Q, per tile of scores.
    """

    threads: int
    registers: int
    smem_bytes: int
    coefficients: Mapping[str, tuple[float, float, float]]

    def total(self, counter: str, case: Case) -> float:
        """A counter over all slices of a case."""
        parts = zip(self.coefficients[counter], basis(case), strict=True)
        return case.shape.slices * sum(weight * value for weight, value in parts)


def basis(case: Case) -> tuple[float, float, float]:
    """One, tiles of Q and tiles of scores of a slice; the latter from the FLOPs that are executed."""
    work, tile = algorithms.get(case.impl).work(case), case.tile
    assert work is not None and tile is not None
    per_tile = 4 * tile.block_m * tile.block_n * padded_head_dim(case.shape.head_dim)
    return 1.0, float(math.ceil(case.shape.seq_q / tile.block_m)), work.flops_executed / case.shape.slices / per_tile


def counted_kernels(case: Case) -> Mapping[str, Counted]:
    """Kernel -> its counts; empty where the case's tile was not counted. Nothing was for fp32."""
    shape, tile = case.shape, case.tile
    if tile is None or case.dtype == "fp32":
        return {}
    rows = (tile.block_m, tile.block_n, tile.stages, tile.num_warps)
    # A window is masked like a causal edge.
    masked = shape.causal or shape.windowed
    return _shipped().get((case.impl, case.direction, padded_head_dim(shape.head_dim), int(masked), *rows), {})


@functools.cache
def _shipped() -> Mapping[tuple[object, ...], Mapping[str, Counted]]:
    found: dict[tuple[object, ...], dict[str, Counted]] = {}
    for row in datafiles.rows(FILE):
        key = (row["impl"], row["direction"], *(int(row[name]) for name in _KEY[2:]))
        coefficients = {}
        for counter in COUNTERS:
            a, b, c = (float(row[f"{counter}_per_{part}"]) for part in ("slice", "q_tile", "tile"))
            coefficients[counter] = (a, b, c)
        threads, registers, smem_bytes = (int(row[name]) for name in _RESOURCES)
        found.setdefault(key, {})[row["kernel"]] = Counted(threads, registers, smem_bytes, coefficients)
    return found
