"""Runs a plan: one row per case, on disk before the next case starts, whatever happens to the case."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from fa_bench.backends.base import Backend
from fa_bench.records import FAILED_STATUSES, Record
from fa_bench.sweep.build import Predictor, Site
from fa_bench.sweep.case import CaseRows, run_case, unrun_rows
from fa_bench.sweep.journal import Journal, Key, key_of
from fa_bench.sweep.plan import PlannedCase, SweepPlan
from fa_bench.sweep.predict import predict as predict_by_models

INTERRUPTED_EXIT_CODE: Final = 130


class Observer(Protocol):
    """Is told of a sweep as it goes."""

    def started(self, planned: PlannedCase) -> None:
        """A case is about to run, or its row about to be written if the plan skips it."""

    def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
        """The case's row is on disk; ``seconds`` is all the time that it took."""


class Silent:
    """An observer that does nothing."""

    def started(self, planned: PlannedCase) -> None:
        """Nothing."""

    def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a sweep left.

    Parameters
    ----------
    records : tuple of Record
        Rows of the plan's cases that are on disk, those of an earlier run first.
    kept : int
        How many of them are of an earlier run.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    records: tuple[Record, ...]
    kept: int
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 1 if a row failed (an error, a wrong result, an impossible time), else 0."""
        if self.interrupted:
            return INTERRUPTED_EXIT_CODE
        return int(any(record.status in FAILED_STATUSES for record in self.records))


def run_plan(
    plan: SweepPlan,
    backends: Sequence[Backend],
    journal: Journal,
    *,
    observer: Observer | None = None,
    predict: Predictor = predict_by_models,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> SweepOutcome:
    """Run what the journal does not hold yet, in the plan's order.

    A case that fails is a row, and the sweep goes on: out of memory (``oom``), unsupported, an output beyond its
    bound (``wrong_result``), impossible times (``invalid_timing``), any other exception (``error``, with its type
    and place). Ctrl-C ends the sweep; the case that was running becomes an ``interrupted`` row.

    Parameters
    ----------
    plan : SweepPlan
    backends : sequence of Backend
        Those that the plan was made with.
    journal : Journal
        Open; stays open.
    observer : Observer, optional
    predict : callable, optional
        (case, gpu) -> Prediction; the algorithms and models of fa-bench by default.
    clock, now : callable
        Seconds, and the time of a row.

    Raises
    ------
    FaBenchError
        If a row cannot be written.
    """
    backend_of = {backend.name: backend for backend in backends}
    observer = observer or Silent()
    todo = missing(plan, journal)
    kept = len(plan.cases) - len(todo)

    def site(planned: PlannedCase) -> Site:
        device = backend_of[planned.backend].device
        return Site(journal.manifest.run_id, now(), planned.backend, device, plan.gpu)

    def commit(rows: CaseRows) -> Record:
        journal.append(rows.record, rows.traffic, rows.samples)
        return rows.record

    interrupted = False
    running: PlannedCase | None = None
    try:
        for running in todo:
            observer.started(running)
            start = clock()
            record = commit(run_case(running, backend_of[running.backend], site(running), predict))
            observer.finished(running, record, clock() - start)
        journal.finish(now().isoformat(timespec="seconds"))
    except KeyboardInterrupt:
        interrupted = True
        if running is not None and not journal.holds(_key(running)):
            commit(unrun_rows(running, site(running), "interrupted", "Ctrl-C ended it."))
    keys = planned_keys(plan)
    return SweepOutcome(tuple(r for r in journal.records if key_of(r) in keys), kept, interrupted)


def planned_keys(plan: SweepPlan) -> frozenset[Key]:
    """Resume keys of the plan's cases."""
    return frozenset(_key(planned) for planned in plan.cases)


def missing(plan: SweepPlan, journal: Journal) -> tuple[PlannedCase, ...]:
    """The plan's cases that have no row in the journal yet."""
    return tuple(planned for planned in plan.cases if not journal.holds(_key(planned)))


def _key(planned: PlannedCase) -> Key:
    return planned.case.case_id, planned.backend
