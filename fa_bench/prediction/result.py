"""What a prediction says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fa_bench.cases import Case
from fa_bench.prediction.timing import KernelTime, Pipe


@dataclass(frozen=True, slots=True)
class TimePrediction:
    """A predicted time and what it comes of.

    Parameters
    ----------
    ms : float
    low_ms, high_ms : float
        Between these nine in ten published times of this kind were, when their publication (or their GPU, where nothing
        was fitted on this one) was left out of the fit. Of what was published later, fewer are.
    limiter : Pipe
        The pipe that is busy longest.
    terms_ms : mapping of Pipe to float
        Each pipe alone, with all SMs busy, over all kernels.
    balance : float
        Mean work of an SM over that of the one that ends last, of the longest kernel.
    waves : float or None
        CTAs of the longest kernel over those that the GPU holds at a time; None for passes over memory.
    clock_mhz : float
    tflops : float
        Nominal FLOPs over ``ms``.
    advice : tuple of str
        What would have to change for it to be faster.
    notes : tuple of str
        Whose constants these are, where they aren't its own.
    kernels : tuple of KernelTime
    """

    ms: float
    low_ms: float
    high_ms: float
    limiter: Pipe
    terms_ms: Mapping[Pipe, float]
    balance: float
    waves: float | None
    clock_mhz: float
    tflops: float
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    kernels: tuple[KernelTime, ...]

    @property
    def tail(self) -> float:
        """Share of the longest kernel's time for which SMs wait for the last one, on average over SMs."""
        return 1 - self.balance


@dataclass(frozen=True, slots=True)
class Predicted:
    """A case on a GPU, by its slug, and its time; or why it has none."""

    gpu: str
    case: Case
    time: TimePrediction | None
    reason: str = ""
