"""CTAs of a launch that stand for all, and when each of them is done with what it reads and writes.

Figures of samples are arrays ``[sample, case]``.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias, cast

import numpy as np

from fa_bench.model.l2 import Moment, Stage
from fa_bench.sizes import settled

#: An array ``[sample, case]``, annotated as what stands in it.
Samples: TypeAlias = float

SAMPLES: Final = 48
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_NUMBERS: Final = np.arange(SAMPLES)[:, None]
#: CTAs before each sample, as a share of all.
_DONE: Final = cast(float, (_NUMBERS + 0.5) / SAMPLES)
#: How far a sample is into its CTA: multiples of the golden ratio are even at every length.
_INSIDE: Final = cast(float, (0.5 + _NUMBERS * _GOLDEN) % 1)
#: One for each sample.
ALL: Final = cast(float, np.ones((SAMPLES, 1)))
#: Between CTAs of different length, what of the K/V heads of those in flight is still to come when one of them ends.
_HALF_WAVE: Final = 0.5


class Timing:
    """First and last use of each sample in a launch."""

    def __init__(self, index: int, stage: Stage) -> None:
        self._index, self._stage = index, stage
        self._one_by_one = not stage.in_step and settled(stage.ctas_per_slice > 1)
        if self._one_by_one:
            self.begin = self._end = Moment(index, _DONE, _DONE, _DONE, _DONE)
            return
        waves, passes = stage.waves, stage.passes
        wave, size, _ = _place(stage, _DONE * stage.ctas)
        looped = (wave + _INSIDE * size) / waves
        first, last = ((wave + share * size) / waves for share in (_INSIDE / passes, 1 - (1 - _INSIDE) / passes))
        # Where a CTA loops over its slice, outputs leave in the last pass.
        written = wave / waves
        self.begin = Moment(index, first, looped, first, written)
        self._end = Moment(index, last, looped, last, looped if settled(stage.ctas_per_slice == 1) else written)
        self._looped = looped

    def end(self, is_written: bool, heads: int) -> Moment:
        """The last use; of outputs that leave with a page of so many heads."""
        stage = self._stage
        if self._one_by_one or not is_written or settled(stage.ctas_per_slice == 1):
            return self._end
        # Outputs leave at the end of a wave, with the page's first head.
        cta = _DONE * stage.ctas
        if not settled(heads == 1):
            cta = cta - np.floor(cta / stage.ctas_per_slice) % heads * stage.ctas_per_slice
        wave, size, before = _place(stage, cta)
        streamed = shared = (wave + size) / stage.waves
        if np.any(stage.rolling):
            # As many CTAs have started as have ended and are in flight.
            rolled = np.minimum(1.0, (wave + before + np.array([1.0, _HALF_WAVE])[:, None, None]) / stage.waves)
            streamed, shared = np.where(stage.rolling, rolled, streamed)
        return Moment(self._index, streamed, self._looped, shared, (wave + before) / stage.waves)


def total(samples: Samples) -> float:
    """The sum over samples, in their order: of one case and of many the same to the last digit."""
    # A single column NumPy would add up in another order.
    figures = np.asarray(samples)
    return cast(float, np.add.reduce(figures, axis=0) if figures.shape[1] > 1 else np.cumsum(figures, axis=0)[-1])


def start_of(index: int) -> Moment:
    """Before all of a launch."""
    return Moment(index, 0.0, 0.0, 0.0, 0.0)


def end_of(index: int) -> Moment:
    """After it."""
    return Moment(index, 1.0, 1.0, 1.0, 1.0)


def _place(stage: Stage, cta: Samples) -> tuple[Samples, Samples, Samples]:
    """Where a CTA is: its wave, that wave's size and the part of it before the CTA, in waves."""
    wave = np.floor(cta / stage.wave)
    return wave, np.minimum(1.0, stage.waves - wave), cta / stage.wave - wave
