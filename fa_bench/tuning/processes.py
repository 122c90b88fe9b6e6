"""Trials in several processes: the emulator's JIT lets one thread of a process compile at a time.

The processes are those of `fa_bench.backends.remote`: one that dies is replaced and its tile tried once more, Ctrl-C is
not theirs, and they end with this one, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from functools import partial

from fa_bench import algorithms, backends
from fa_bench.backends.base import Backend
from fa_bench.cases import Case
from fa_bench.lanes import Started, run_in_lanes
from fa_bench.model.gpu import Gpu
from fa_bench.tuning.counts import Trial, trial


def trials(
    cases: Sequence[Case],
    gpu: Gpu,
    jobs: int,
    opener: Callable[[], Backend] | None = None,
) -> Generator[Trial, None, None]:
    """The trials of cases, as they are done, by at most ``jobs`` processes; closing the iterator ends them.

    Parameters
    ----------
    cases : sequence of Case
    gpu : Gpu
    jobs : int
    opener : callable, optional
        Opens a backend in a process of its own; the emulator with one thread by default.
    """
    opener = opener or partial(backends.open_apart, "emulator", jobs=1)
    # Large tiles compile longest; the last ones should not.
    waiting = sorted(cases, key=_size, reverse=True)
    with ExitStack() as stack:
        lanes = [stack.enter_context(closing(_Process(opener))) for _ in range(min(jobs, len(cases)))]
        events = stack.enter_context(closing(run_in_lanes(waiting, lanes, partial(_trial, gpu))))
        yield from (event for event in events if not isinstance(event, Started))


def _size(case: Case) -> int:
    return 0 if case.tile is None else case.tile.block_m * case.tile.block_n // max(1, case.tile.num_warps)


class _Process:
    """One that starts when it is used first, so that all start at the same time."""

    def __init__(self, opener: Callable[[], Backend]) -> None:
        self._opener = opener
        self._backend: Backend | None = None
        self._closed = False

    def backend(self) -> Backend:
        """The backend in it."""
        if self._backend is None:
            self._backend = self._opener()
            if self._closed:
                self._backend.close()
        return self._backend

    def close(self) -> None:
        """End it, in the middle of a trial too, or as soon as it has started."""
        self._closed = True
        if self._backend is not None:
            self._backend.close()


def _trial(gpu: Gpu, case: Case, process: _Process) -> Trial:
    return trial(case, algorithms.get(case.impl), process.backend(), gpu)
