"""Sizes of many cases, and the shape that stands for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from fa_bench.cases import AttentionShape, Case

IntArray = npt.NDArray[np.int64]

#: No count of a case is larger than this many per pair of a query and a key, padded to tiles, and column: a backward
#: pass on top of a forward one makes 12 products, two FLOPs for each multiply-add.
_COUNTS_PER_PAIR_AND_COLUMN: Final = 32
_TILE_ROWS: Final = 256
_MOST: Final = 2.0**62


@dataclass(frozen=True, slots=True)
class Sizes:
    """Batch, heads and lengths of many cases, an element of each array for a case."""

    batch: IntArray
    heads_q: IntArray
    heads_kv: IntArray
    seq_q: IntArray
    seq_kv: IntArray

    def __len__(self) -> int:
        return len(self.batch)

    def chosen(self, where: npt.NDArray[np.bool_]) -> Sizes:
        """Those of some cases."""
        return Sizes(*(values[where] for values in self.by_name.values()))

    @property
    def by_name(self) -> dict[str, IntArray]:
        """The arrays under the names that `AttentionShape` and records have for them."""
        return {name: getattr(self, name) for name in self.__slots__}

    def exceed_64_bits(self, columns: int) -> npt.NDArray[np.bool_]:
        """Which cases may have counts beyond 64 bits, with so many columns of Q or V, padding included."""
        queries, keys = (lengths.astype(np.float64) + _TILE_ROWS for lengths in (self.seq_q, self.seq_kv))
        return self.batch * self.heads_q * queries * keys * (columns * _COUNTS_PER_PAIR_AND_COLUMN) > _MOST

    def case(self, kind: Case, index: int) -> Case:
        """One of them, with all else of ``kind``."""
        batch, heads_q, heads_kv, seq_q, seq_kv = (int(values[index]) for values in self.by_name.values())
        shape = replace(kind.shape, batch=batch, heads_q=heads_q, heads_kv=heads_kv, seq_q=seq_q, seq_kv=seq_kv)
        return replace(kind, shape=shape)


@dataclass(frozen=True, slots=True)
class ShapeGrid(AttentionShape):
    """The shapes of many cases: ``batch``, ``heads_q``, ``heads_kv``, ``seq_q`` and ``seq_kv`` are arrays.

    They are annotated as what they stand for. Every property of `AttentionShape` that is a formula of sizes then is an
    array too.
    """

    def __post_init__(self) -> None:
        """Nothing is checked: a `SweepRequest` checks its axes."""


def grid_case(kind: Case, sizes: Sizes) -> Case:
    """A case whose shape stands for those of ``sizes``, with all else of ``kind``."""
    shape = kind.shape
    batch, heads_q, heads_kv, seq_q, seq_kv = (cast(int, values) for values in sizes.by_name.values())
    mask = (shape.causal, shape.window_left, shape.window_right, shape.head_dim_v)
    return replace(kind, shape=ShapeGrid(batch, heads_q, heads_kv, seq_q, seq_kv, shape.head_dim, *mask))
