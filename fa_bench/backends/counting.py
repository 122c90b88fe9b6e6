"""A backend whose cases are counted as well: after a case was timed and verified, each source counts it once more.

So the run that gives the times is like any other, and nothing of a profiled run but its counters is kept. Which sources
there are, and how they count, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fa_bench.backends.base import (
    Backend,
    BackendName,
    CounterSource,
    HardwareCounts,
    Outcome,
    RunResult,
    TakesTurns,
)
from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu


def counting(backend: Backend, sources: Sequence[CounterSource]) -> Backend:
    """``backend`` with sources that count what it has run; it takes turns if that one does."""
    if not sources:
        return backend
    return CountingTurns(backend, sources) if isinstance(backend, TakesTurns) else Counting(backend, sources)


def advice(backends: Iterable[Backend]) -> tuple[str, ...]:
    """What the sources of backends advise, each sentence once."""
    made = (source.advice for backend in backends if isinstance(backend, Counting) for source in backend.sources)
    return tuple(dict.fromkeys(filter(None, made)))


class Counting:
    """The backend of `counting`."""

    def __init__(self, backend: Backend, sources: Sequence[CounterSource]) -> None:
        self.name: BackendName = backend.name
        self.device = backend.device
        self.sources = tuple(sources)
        self._backend = backend

    def implementations(self) -> Sequence[str]:
        """As the backend says."""
        return self._backend.implementations()

    def free_memory_bytes(self) -> int | None:
        """As the backend says."""
        return self._backend.free_memory_bytes()

    def required_bytes(self, case: Case) -> int:
        """As the backend says; counting is done when the case's own run is over."""
        return self._backend.required_bytes(case)

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Run ``case``, then count it."""
        return self._counted(case, gpu, self._backend.run(case, gpu))

    def close(self) -> None:
        """End what still counts, and close the backend."""
        for source in self.sources:
            source.close()
        self._backend.close()

    def _counted(self, case: Case, gpu: Gpu, result: RunResult) -> RunResult:
        """``result`` with what the sources say; of a wrong result nobody wants the bytes."""
        if result.verification is None or not result.verification.passed:
            return result
        for source in self.sources:
            found = source.count(case, gpu)
            if isinstance(found, HardwareCounts):
                result = replace(result, hardware=found)
            elif found is not None:
                result = replace(result, emulated=found)
        return result


class CountingTurns(Counting):
    """A `Counting` backend that takes turns."""

    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        """Run cases together; when all of them are done, count each."""
        assert isinstance(self._backend, TakesTurns)
        outcomes = self._backend.run_together(cases, gpu)
        return [
            self._counted(case, gpu, outcome) if isinstance(outcome, RunResult) else outcome
            for case, outcome in zip(cases, outcomes, strict=True)
        ]
