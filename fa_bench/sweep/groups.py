"""Which cases of a plan run together, so that what is compared was timed in turns.

Groups follow from the plan and the kind of its backends alone, never from what is on disk: a sweep that is resumed
has the groups that it had before.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from fa_bench.backends.base import Backend, BackendName, TakesTurns
from fa_bench.sweep.journal import Key
from fa_bench.sweep.plan import PlannedCase, SweepPlan

#: Cases that run together at most: their buffers are on the device at the same time.
MOST_TOGETHER: Final = 8

Group = tuple[PlannedCase, ...]


def backends_by_name(backends: Sequence[Backend]) -> dict[BackendName, Backend]:
    """The backends of a sweep, by the name that a plan uses."""
    return {backend.name: backend for backend in backends}


def groups_of(plan: SweepPlan, backends: Mapping[BackendName, Backend]) -> tuple[Group, ...]:
    """The plan's cases in their order, neighbours that are to be timed in turns as one group, others alone.

    Neighbours are of one shape, type, layout, direction and set of features, on one backend that takes turns. More than
    `MOST_TOGETHER` of them, as of many tiles of one implementation, are split evenly.
    """
    return tuple(_groups(plan.cases, {name for name, made in backends.items() if isinstance(made, TakesTurns)}))


def _groups(cases: Sequence[PlannedCase], take_turns: Collection[BackendName]) -> Iterator[Group]:
    for (name, *_), same in itertools.groupby(cases, _compared):
        neighbours = tuple(same)
        count = len(neighbours)
        parts = -(-count // MOST_TOGETHER) if name in take_turns else count
        ends = [part * count // parts for part in range(parts + 1)]
        yield from (neighbours[start:end] for start, end in itertools.pairwise(ends))


def _compared(planned: PlannedCase) -> tuple[object, ...]:
    """What cases share that are compared with each other."""
    case = planned.case
    return planned.backend, case.shape, case.dtype, case.layout, case.direction, case.features


def group_keys(groups: Sequence[Group]) -> tuple[frozenset[Key], ...]:
    """Resume keys of the cases of each group."""
    return tuple(frozenset(key_of_planned(planned) for planned in group) for group in groups)


def key_of_planned(planned: PlannedCase) -> Key:
    """The part of a planned case's resume key that is its own."""
    return planned.case.case_id, planned.backend
