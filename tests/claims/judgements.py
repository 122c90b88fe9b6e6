"""Shorthands for looking at judgements."""

from __future__ import annotations

from fa_bench.claims.result import Judgement


def values(judgement: Judgement) -> dict[str, float]:
    """Name of a figure -> its value."""
    return {figure.name: figure.value for figure in judgement.figures}


def passed(judgement: Judgement) -> set[str]:
    """Names of the readings that hold."""
    return {check.name for check in judgement.checks if check.passed}
