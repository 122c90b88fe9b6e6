"""When enough samples were taken: one pure object, three verbs, no clock of its own."""

from __future__ import annotations

import bisect
import copy
from collections.abc import Sequence

from fa_bench.measure.statistics import median_noise


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
        min_samples: int = 5,
    ) -> None:
        self._max_noise = max_noise
        self._min_sampled_ms = min_sampled_ms
        self._max_elapsed_ms = max_elapsed_ms
        self._min_samples = min_samples
        self._ordered: list[float] = []
        self._sampled_ms = 0.0
        self._elapsed_ms = 0.0

    def fresh(self) -> StoppingRule:
        """The same rule for another case: same thresholds, no samples."""
        other = copy.copy(self)
        other._ordered, other._sampled_ms, other._elapsed_ms = [], 0.0, 0.0
        return other

    def add(self, time_ms: float, elapsed_ms: float) -> None:
        """Take one sample.

        Parameters
        ----------
        time_ms : float
        elapsed_ms : float
            Time that the case has taken so far, from the caller's clock.
        """
        bisect.insort(self._ordered, time_ms)
        self._sampled_ms += time_ms
        self._elapsed_ms = elapsed_ms

    def finished(self) -> bool:
        """Whether to stop. Never before the first sample."""
        if not self._ordered:
            return False
        if self._elapsed_ms >= self._max_elapsed_ms:
            return True
        return self._sampled_ms >= self._min_sampled_ms and not self.is_noisy(self._ordered)

    def is_noisy(self, ordered: Sequence[float]) -> bool:
        """Whether the noise of the median of an ascending sequence is above the threshold, or unknown."""
        return len(ordered) < self._min_samples or median_noise(ordered) >= self._max_noise
