"""Runs a plan: one row per case, on disk before the next case (or group of cases) starts, whatever happens to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from fa_bench.backends.base import Backend, BackendName
from fa_bench.lanes import Started, run_in_lanes
from fa_bench.records import FAILED_STATUSES, Record
from fa_bench.sweep.build import Predictor, Site
from fa_bench.sweep.case import run_group, unrun_rows
from fa_bench.sweep.groups import Group, backends_by_name, group_keys, groups_of, key_of_planned
from fa_bench.sweep.journal import CaseRows, Journal, Key, key_of
from fa_bench.sweep.plan import PlannedCase, SweepPlan
from fa_bench.sweep.predict import predict as predict_by_models

INTERRUPTED_EXIT_CODE: Final = 130

#: One set of backends.
_Lane = Mapping[BackendName, Backend]


class Observer(Protocol):
    """Is told of a sweep as it goes."""

    def started(self, planned: PlannedCase) -> None:
        """A case is about to run, alone or in its group, or its row about to be written if the plan skips it."""

    def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
        """The case's row is on disk; ``seconds`` is all the time that it took, or its share of its group's."""


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
        Rows of the plan's cases that are on disk, in the plan's order.
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


@dataclass(frozen=True, slots=True)
class _Done:
    """A group has run: a row for each of its cases, and how long all of it took."""

    group: Group
    rows: Sequence[CaseRows]
    seconds: float


def run_plan(
    plan: SweepPlan,
    backends: Sequence[Backend],
    journal: Journal,
    *,
    beside: Sequence[Sequence[Backend]] = (),
    observer: Observer | None = None,
    predict: Predictor = predict_by_models,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> SweepOutcome:
    """Run what the journal does not hold yet, in the plan's order, cases that are compared together in turns.

    A case that fails is a row, and the sweep goes on: out of memory (``oom``), unsupported, an output beyond its
    bound (``wrong_result``), impossible times (``invalid_timing``), any other exception (``error``, with its type
    and place). Ctrl-C ends the sweep; the cases that were running become ``interrupted`` rows, all of a group, since
    none of them was timed to its end beside the others.

    Parameters
    ----------
    plan : SweepPlan
    backends : sequence of Backend
        Those that the plan was made with.
    journal : Journal
        Open; stays open.
    beside : sequence of sequences of Backend
        More of the same backends, each sequence for a group at the same time as the others' (other devices, other
        processes). Rows are then in the order in which they were done.
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
    lanes = [backends_by_name(lane) for lane in (backends, *beside)]
    observer = observer or Silent()
    todo = missing(groups_of(plan, lanes[0]), journal)
    kept = len(plan.cases) - sum(map(len, todo))

    def site(planned: PlannedCase) -> Site:
        device = lanes[0][planned.backend].device
        return Site(journal.manifest.run_id, now(), planned.backend, device, plan.gpu)

    def run(group: Group, lane: _Lane) -> _Done:
        start = clock()
        rows = run_group(group, lane[group[0].backend], site(group[0]), predict)
        return _Done(group, rows, clock() - start)

    interrupted = False
    running: list[Group] = []
    try:
        for event in run_in_lanes(todo, lanes, run):
            if isinstance(event, Started):
                running.append(event.item)
                for planned in event.item:
                    observer.started(planned)
                continue
            journal.append_together(event.rows)
            running.remove(event.group)
            for planned, rows in zip(event.group, event.rows, strict=True):
                observer.finished(planned, rows.record, event.seconds / len(event.rows))
        journal.finish(now().isoformat(timespec="seconds"))
    except KeyboardInterrupt:
        interrupted = True
        for group in running:
            if not any(journal.holds(key_of_planned(planned)) for planned in group):
                journal.append_together(
                    [unrun_rows(planned, site(planned), "interrupted", "Ctrl-C ended it.") for planned in group]
                )
    place = {key_of_planned(planned): index for index, planned in enumerate(plan.cases)}
    records = sorted((r for r in journal.records if key_of(r) in place), key=lambda record: place[key_of(record)])
    return SweepOutcome(tuple(records), kept, interrupted)


def planned_keys(plan: SweepPlan, backends: Sequence[Backend]) -> tuple[frozenset[Key], ...]:
    """Resume keys of the plan's cases, by the groups that run together."""
    return group_keys(groups_of(plan, backends_by_name(backends)))


def missing(groups: Sequence[Group], journal: Journal) -> tuple[Group, ...]:
    """The cases of each group that have no row in the journal yet; groups that have all are left out."""
    left = (tuple(p for p in group if not journal.holds(key_of_planned(p))) for group in groups)
    return tuple(group for group in left if group)
