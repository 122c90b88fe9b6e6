"""What a case does to scores beside scaling them, in float64: masks, softcap, bias, ALiBi, sinks and dropout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.cases import AttentionShape, Case, Features
from fa_bench.random_bits import keep_mask
from fa_bench.storage import decode

Array = NDArray[Any]
Float64 = NDArray[np.float64]

_NONE: Final = Features()


def alibi_slopes(heads: int) -> NDArray[np.float32]:
    """Slopes of ALiBi, one per head: a geometric sequence from 2^(-8/n) with that ratio for n = 2^k heads.

    Between powers of two, those of the next smaller power, then every other one of the next larger (O. Press et al.,
    "Train short, test long", arXiv 2108.12409, and its published code).
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    slopes += [2.0 ** (-8.0 * (2 * head + 1) / (2 * power)) for head in range(heads - power)]
    return np.array(slopes, dtype=np.float32)


def visible_bounds(shape: AttentionShape, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First visible key of each query row and the first one after it that is not, neither held within the keys."""
    here = rows + shape.diagonal
    first = np.zeros_like(here) if shape.window_left is None else here - shape.window_left
    end = np.full_like(here, shape.seq_kv) if shape.right is None else here + shape.right + 1
    return first, end


@dataclass(frozen=True, slots=True)
class Scoring:
    """What a case does to scores beside scaling and masking: its features with their tensors.

    Parameters
    ----------
    features : Features
    seed : int
        Of dropout.
    tensors : mapping
        ``bias``, ``slopes`` and ``sinks`` of the inputs, where the features want them.
    """

    features: Features = _NONE
    seed: int = 0
    tensors: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, inputs: Mapping[str, Array]) -> Scoring:
        """That of a case with its inputs."""
        names = ("bias", "slopes", "sinks")
        return cls(case.features, case.seed, {name: inputs[name] for name in names if name in inputs})

    def scores(self, scaled: Float64, head: int, rows: NDArray[np.intp], diagonal: int) -> tuple[Float64, Float64]:
        """Scores of query rows of a head from the scaled products, before masking, and the largest value on the way."""
        f, scores = self.features, scaled
        size = np.abs(scaled)
        if f.softcap:
            scores = f.softcap * np.tanh(scores / f.softcap)
        if f.bias:
            bias = decode(self.tensors["bias"][0, head, rows, : scaled.shape[1]], np.float64)
            scores, size = scores + bias, np.maximum(size, np.abs(bias))
        if f.alibi:
            distance = np.abs(rows[:, None] + diagonal - np.arange(scaled.shape[1]))
            sloped = float(self.tensors["slopes"][0, head, 0]) * distance
            scores, size = scores - sloped, np.maximum(size, sloped)
        return scores, size

    def sink(self, head: int) -> float:
        """The logit that takes part in the normaliser, -inf where there is none."""
        return float(self.tensors["sinks"][0, head, 0]) if self.features.sinks else -np.inf

    def kept(self, batch: int, head: int, rows: NDArray[np.intp], keys: int) -> Float64 | float:
        """What probabilities are multiplied by: 0 where a pair is dropped, 1 / (1 - p) where it is kept."""
        p = self.features.dropout_p
        return keep_mask(self.seed, batch, head, rows, keys, p) / (1 - p) if p else 1.0


#: Scaling and masking alone.
PLAIN: Final = Scoring()
