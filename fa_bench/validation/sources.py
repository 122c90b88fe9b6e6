"""The sources of published figures, by name. A new one is a module with ``NAME`` and ``validate``, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from fa_bench.errors import UsageError, nearest
from fa_bench.validation import fa1_figure2, fa1_memory, gb10, ncu_traffic, times
from fa_bench.validation.predicting import PredictTime
from fa_bench.validation.result import Validation
from fa_bench.validation.run import Runner


@dataclass(frozen=True, slots=True)
class Tools:
    """What sources are handed.

    Parameters
    ----------
    predict : callable
        Predicts a case's time on a GPU.
    runner : callable
        Gives the runner that counts; made when it is first asked for.
    quick : bool
        Whether a part that takes seconds will do.
    """

    predict: PredictTime
    runner: Callable[[], Runner]
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A source: what compares it, and whether kernels have to be run for that."""

    validate: Callable[[Tools], Validation]
    runs: bool = False


#: Name on the command line -> the source; those that run nothing come first.
SOURCES: Final[dict[str, Source]] = {
    fa1_figure2.NAME: Source(lambda tools: fa1_figure2.validate(tools.predict)),
    fa1_memory.NAME: Source(lambda tools: fa1_memory.validate()),
    times.FA1_NAME: Source(lambda tools: times.validate_fa1(tools.predict)),
    times.NAME: Source(lambda tools: times.validate(tools.predict)),
    times.HELD_OUT_NAME: Source(lambda tools: times.validate_held_out(tools.predict)),
    ncu_traffic.NAME: Source(lambda tools: ncu_traffic.validate(tools.runner(), tools.quick), runs=True),
    gb10.NAME: Source(lambda tools: gb10.validate(tools.runner(), tools.quick), runs=True),
}


def chosen(names: Iterable[str]) -> list[str]:
    """The sources that were asked for, each once; all of them if none was named.

    Raises
    ------
    UsageError
        If there is no such source.
    """
    found = list(dict.fromkeys(names)) or list(SOURCES)
    for name in found:
        if name not in SOURCES:
            raise UsageError(f"There is no source {name!r}.", hint=nearest(name, SOURCES))
    return found
