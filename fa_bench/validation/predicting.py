"""What predicts times for a validation: handed in, so that a source knows no model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu


class PredictedTime(Protocol):
    """A predicted time: the middle and the ends of its interval in ms, and what limits it."""

    @property
    def ms(self) -> float: ...
    @property
    def low_ms(self) -> float: ...
    @property
    def high_ms(self) -> float: ...
    @property
    def limiter(self) -> str: ...


#: Predicts a case on a GPU; raises `fa_bench.errors.Unsupported` with a sentence where it has no model.
PredictTime = Callable[[Case, Gpu], PredictedTime]
