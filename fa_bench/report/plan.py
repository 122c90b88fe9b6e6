"""The table of a plan: what would run, how much memory it takes, what doesn't run and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fa_bench.report.names import FACTS, case_name, identity_columns, varying
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_bytes

if TYPE_CHECKING:
    from fa_bench.sweep.plan import PlannedCase, SweepPlan


def plan_table(plan: SweepPlan) -> Table:
    """The plan, in the order in which it runs."""
    names = [case_name(planned.case) for planned in plan.cases]
    facts = varying(names)
    constant = [names[0].facts[fact] for fact in FACTS if fact not in facts] if names else []
    rows = tuple(
        (
            name.shape(facts),
            name.impl,
            planned.backend,
            UNKNOWN if planned.required_bytes is None else format_bytes(planned.required_bytes),
            planned.reason or planned.status,
        )
        for name, planned in zip(names, plan.cases, strict=True)
    )
    columns = (
        Column("seq"),
        Column("implementation"),
        Column("backend"),
        Column("memory", "right"),
        Column("plan"),
    )
    note = f"{len(plan.runnable)} of {len(plan.cases)} cases would run; nothing was run or written."
    return Table("; ".join([plan.gpu.slug, ", ".join(constant)]), columns, rows, note)


def plan_rows(plan: SweepPlan) -> list[dict[str, object]]:
    """The plan as flat rows."""
    return [_row(planned) for planned in plan.cases]


def _row(planned: PlannedCase) -> dict[str, object]:
    case, tile = planned.case, planned.case.tile
    return {
        "case_id": case.case_id,
        "impl": case.impl,
        "backend": planned.backend,
        **identity_columns(case),  # impl stands where it is above
        "block_m": None if tile is None else tile.block_m,
        "block_n": None if tile is None else tile.block_n,
        "stages": None if tile is None else tile.stages,
        "num_warps": None if tile is None else tile.num_warps,
        "required_bytes": planned.required_bytes,
        "plan": planned.status,
        "reason": planned.reason or None,
    }


def unrun_reasons(plan: SweepPlan) -> Sequence[str]:
    """A sentence per reason for which cases don't run, with how many they are."""
    counts: dict[tuple[str, str, str], int] = {}
    for planned in plan.cases:
        if planned.status != "run":
            key = (planned.status, planned.case.impl, planned.reason)
            counts[key] = counts.get(key, 0) + 1
    return [f"{count} {status} ({impl}): {reason}" for (status, impl, reason), count in counts.items()]
