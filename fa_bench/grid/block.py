"""A block of predicted cases, column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fa_bench.cases import Case
from fa_bench.sweep.plan import PlanStatus


@dataclass(frozen=True, slots=True)
class Block:
    """Cases that were planned alike.

    Parameters
    ----------
    count : int
        Cases.
    status : {"run", "skipped", "unsupported"}
        Of all of them; ``reason`` says why they can't run, and is empty if they can.
    case : Case
        The case, or one that stands for all: its sizes are arrays.
    columns : mapping
        Column of ``records.csv`` -> a value that all cases share, or an array with one for each; None for what is not
        known.
    """

    count: int
    status: PlanStatus
    reason: str
    case: Case
    columns: Mapping[str, Any]
