"""Trials in several processes: the emulator's JIT lets one thread of a process compile at a time."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from fa_bench import algorithms
from fa_bench.backends import open_backend
from fa_bench.backends.base import Backend
from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu
from fa_bench.tuning.counts import Trial, trial


def trials(cases: Sequence[Case], gpu: Gpu, jobs: int) -> Iterator[Trial]:
    """The trials of cases in the emulator, as they are done, by at most ``jobs`` processes."""
    # Forking a process with threads is not safe.
    pool = ProcessPoolExecutor(min(jobs, len(cases)), get_context("spawn"), _start)
    try:
        # Large tiles compile longest; the last ones should not.
        waiting = sorted(cases, key=_size, reverse=True)
        for done in as_completed([pool.submit(_trial_in_process, case, gpu) for case in waiting]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _size(case: Case) -> int:
    return 0 if case.tile is None else case.tile.block_m * case.tile.block_n // max(1, case.tile.num_warps)


_own: Backend | None = None


def _start() -> None:
    """Prepare a process; an interrupt is the main process' affair."""
    global _own
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _own = open_backend("emulator", jobs=1)


def _trial_in_process(case: Case, gpu: Gpu) -> Trial:
    assert _own is not None
    return trial(case, algorithms.get(case.impl), _own, gpu)
