"""When enough samples were taken: one pure object, three verbs, no clock of its own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final

from fa_bench.measure.statistics import MIN_INTERVAL_SAMPLES, median_noise

#: The noise is looked at again when there are so many times more samples: it costs sorting all of them, and the more
#: often one looks, the sooner one meets a lucky moment.
_GROWTH: Final = 1.1


class StoppingRule:
    """Stop when the median is known well enough, or at a time limit.

    `fresh` begins a case, `add` takes one sample, `finished` says whether to stop. `is_noisy` says of any samples
    whether their median's noise is above the threshold (or can't be judged).

    Parameters
    ----------
    max_noise : float
        Threshold of the median's relative standard error.
    min_sampled_ms : float
        Time that must have been sampled, as the sum of the samples, before the noise is believed: it averages over
        clock ramps.
    max_elapsed_ms : float
        Limit on the whole case's sampling, everything between the samples included: a flush that takes longer than
        the kernel does not count as sampled, but it can't make a case endless.
    min_samples : int
        Fewer samples say nothing about noise.
    """

    def __init__(
        self,
        *,
        max_noise: float = 0.005,
        min_sampled_ms: float = 500.0,
        max_elapsed_ms: float = 5000.0,
        min_samples: int = MIN_INTERVAL_SAMPLES,
    ) -> None:
        self._max_noise = max_noise
        self._min_sampled_ms = min_sampled_ms
        self._max_elapsed_ms = max_elapsed_ms
        self._min_samples = min_samples
        self._begin()

    def _begin(self) -> None:
        self._times: list[float] = []
        self._sampled_ms = 0.0
        self._next_look = 1

    def fresh(self) -> StoppingRule:
        """The same rule for another case: same thresholds, no samples."""
        other = copy.copy(self)
        other._begin()
        return other

    @property
    def times_ms(self) -> Sequence[float]:
        """The samples, in the order they were taken."""
        return self._times

    def add(self, time_ms: float) -> None:
        """Take one sample."""
        self._times.append(time_ms)
        self._sampled_ms += time_ms

    def finished(self, elapsed_ms: float) -> bool:
        """Whether to stop, ``elapsed_ms`` after the case began by the caller's clock. Never before the first sample."""
        count = len(self._times)
        if count == 0:
            return False
        if elapsed_ms >= self._max_elapsed_ms:
            return True
        if self._sampled_ms < self._min_sampled_ms or count < self._next_look:
            return False
        if not self.is_noisy(self._times):
            return True
        self._next_look = int(count * _GROWTH) + 1
        return False

    def is_noisy(self, times: Sequence[float]) -> bool:
        """Whether the noise of the median of times, in the order they were taken, is above the threshold or unknown."""
        return len(times) < self._min_samples or median_noise(times) >= self._max_noise
