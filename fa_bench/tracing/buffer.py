"""The buffer that traced kernels write (`trace.cuh`): where what lies, and what a step left there."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.algorithms.base import Buffer
from fa_bench.backends.programs import POISON
from fa_bench.cases import Case
from fa_bench.tracing.result import Product, Range, Values, as_range

NAME: Final = "trace"

_SECTOR_FLOATS: Final = 8
_UNWRITTEN: Final = np.uint32(int.from_bytes(bytes([POISON]) * 4, "little"))
#: What a part of the buffer means for a step; the factor comes with the state.
_PRODUCTS: Final[dict[str, Product]] = {"m": "state", "S": "S", "P": "P", "O": "O"}


@dataclass(slots=True)
class TraceBuffer:
    """The layout for one case, and which of its floats were seen.

    Parameters
    ----------
    case : Case
        Of one slice, its tile resolved.
    """

    case: Case
    shapes: dict[str, tuple[int, ...]] = field(init=False)
    starts: dict[str, int] = field(init=False)
    size: int = field(init=False)
    _seen: NDArray[np.bool_] = field(init=False)
    _steps: dict[str, NDArray[np.int32]] = field(init=False)

    def __post_init__(self) -> None:
        assert self.case.tile is not None
        shape, block_n = self.case.shape, self.case.tile.block_n
        rows, blocks = shape.seq_q, math.ceil(shape.seq_kv / block_n)
        state, matrix, output = (rows, blocks), (rows, blocks * block_n), (rows, blocks, shape.head_dim)
        # The order of trace.cuh.
        self.shapes = {"m": state, "l": state, "factor": state, "S": matrix, "P": matrix, "O": output}
        self.starts, self.size = {}, 0
        for name, extents in self.shapes.items():
            self.starts[name] = self.size
            self.size += math.prod(extents)
        self._seen = np.zeros(self.size, np.bool_)
        self._steps = {name: np.full(state, -1, np.int32) for name in ("m", "O")}

    @property
    def buffer(self) -> Buffer:
        """As a launch takes it."""
        return Buffer(NAME, "fp32", (1, 1, 1, self.size), (self.size, self.size, self.size, 1), "workspace")

    def new(
        self, raw: NDArray[np.uint8], offsets: NDArray[Any], step: int
    ) -> tuple[tuple[Product, ...], Range | None, Range | None]:
        """What a step left for the first time, and the rows and keys that it belongs to.

        Parameters
        ----------
        raw : ndarray of uint8
            The buffer.
        offsets : ndarray of int
            Byte offsets of the sectors that the step wrote.
        step : int
            Its number, kept for what it left.
        """
        floats = (np.unique(offsets)[:, None] // 4 + np.arange(_SECTOR_FLOATS)).ravel()
        floats = floats[floats < self.size]
        floats = floats[~self._seen[floats] & (self._bits(raw)[floats] != _UNWRITTEN)]
        self._seen[floats] = True
        products: list[Product] = []
        rows, keys = [], []
        for name, product in _PRODUCTS.items():
            extents, start = self.shapes[name], self.starts[name]
            inside = floats[(floats >= start) & (floats < start + math.prod(extents))] - start
            if not inside.size:
                continue
            products.append(product)
            row, place = np.unravel_index(inside, extents)[:2]
            rows.append(row)
            if name in self._steps:
                self._steps[name][row, place] = step
                keys.append(place * self._block_n)
                keys.append((place + 1) * self._block_n - 1)
            else:
                keys.append(place)
        if not products:
            return (), None, None
        first, last = as_range(np.concatenate(keys))
        order: tuple[Product, ...] = ("S", "state", "P", "O")
        return (
            tuple(product for product in order if product in products),
            as_range(np.concatenate(rows)),
            (first, min(last, self.case.shape.seq_kv)),
        )

    def values(self, raw: NDArray[np.uint8]) -> Values:
        """All that was left; a copy."""
        bits = self._bits(raw)
        floats = np.where(bits == _UNWRITTEN, np.float32(np.nan), bits.view(np.float32))
        parts = {
            name: floats[self.starts[name] : self.starts[name] + math.prod(extents)].reshape(extents)
            for name, extents in self.shapes.items()
        }
        return Values(**parts, state_step=self._steps["m"].copy(), output_step=self._steps["O"].copy())

    def _bits(self, raw: NDArray[np.uint8]) -> NDArray[np.uint32]:
        return raw[: 4 * self.size].view(np.uint32)

    @property
    def _block_n(self) -> int:
        assert self.case.tile is not None
        return self.case.tile.block_n
