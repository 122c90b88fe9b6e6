"""``--fail-on``: which rules a comparison breaks.

A rule holds for every pair of which at least one side knows the figure; one that the other side does not know breaks
it, since unknown is no pass. A rule that no pair could be held to is broken as well: it guards nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.comparison.compare import Comparison, PairResult
from fa_bench.comparison.figures import Figure
from fa_bench.comparison.intervals import verdict
from fa_bench.errors import UsageError
from fa_bench.limits import Limit
from fa_bench.units import format_error, format_percent

#: Metric of a rule -> level of the bytes that it limits, read and written together, for each source on its own.
LEVELS: Final = {"bytes": "global", "l2": "l2", "dram": "dram"}
#: Metrics that are a figure of every pair.
RESOURCES: Final = ("registers", "spills", "smem", "error")
#: Metrics that are counted over the whole comparison.
COUNTS: Final = ("missing", "status", "ambiguous")
METRICS: Final = ("slower", *LEVELS, *RESOURCES, *COUNTS)

State = Literal["passed", "broken", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one rule in one pair, or in the whole comparison.

    Parameters
    ----------
    rule : Limit
    state : {"passed", "broken", "skipped"}
        ``skipped`` where neither side knows the figure, or where the samples do not decide.
    pair : PairResult, optional
        None for a rule on the whole comparison.
    detail : str
        A clause that says why, without the pair's name; empty where the rule holds.
    """

    rule: Limit
    state: State
    pair: PairResult | None = None
    detail: str = ""


def parse_rules(texts: Sequence[str]) -> tuple[Limit, ...]:
    """Read ``--fail-on``, given any number of times, each a list such as ``slower:2%,bytes:0``.

    Raises
    ------
    UsageError
        If a metric does not exist or has a limit that means nothing for it.
    """
    rules = tuple(rule for text in texts for rule in Limit.parse(text, METRICS))
    for rule in rules:
        if rule.metric == "slower" and not rule.relative:
            raise UsageError("--fail-on: slower is limited by a share of the time, as in slower:2%.")
        if rule.metric in COUNTS and rule.relative:
            raise UsageError(f"--fail-on: {rule.metric} is limited by a number of rows, as in {rule.metric}:0.")
    return rules


def judge(comparison: Comparison, rules: Sequence[Limit]) -> tuple[Outcome, ...]:
    """Hold a comparison to every rule, rule by rule, pair by pair."""
    outcomes: list[Outcome] = []
    for rule in rules:
        if rule.metric in COUNTS:
            outcomes.append(_counted(rule, comparison))
            continue
        held = [_held(rule, pair) for pair in comparison.pairs]
        outcomes += held
        if all(outcome.state == "skipped" and not undecided(outcome) for outcome in held):
            outcomes.append(Outcome(rule, "broken", None, f"{rule}: no pair has such a figure"))
    return tuple(outcomes)


def undecided(outcome: Outcome) -> bool:
    """Whether a rule on time was held, and the samples do not decide."""
    held = outcome.pair is not None and outcome.pair.time.ratio is not None
    return outcome.rule.metric == "slower" and outcome.state == "skipped" and held


def _held(rule: Limit, pair: PairResult) -> Outcome:
    if rule.metric == "slower":
        return _slower(rule, pair)
    if rule.metric in LEVELS:
        return _bytes(rule, pair)
    (figure,) = (figure for figure in pair.resources if figure.name == rule.metric)
    if figure.before is None and figure.after is None:
        return Outcome(rule, "skipped", pair, f"neither side knows {rule.metric}")
    if figure.before is None or figure.after is None:
        return Outcome(
            rule, "broken", pair, f"{rule.metric} can't be compared, because {_unknown(figure.before)} knows them"
        )
    if rule.allows(figure.before, figure.after):
        return Outcome(rule, "passed", pair)
    text = format_error if rule.metric == "error" else "{:,}".format
    grew = f"{rule.metric} grew from {text(figure.before)} to {text(figure.after)}"
    return Outcome(rule, "broken", pair, f"{grew}{_because(pair)}")


def _slower(rule: Limit, pair: PairResult) -> Outcome:
    time = pair.time
    if time.verdict == "none":
        return Outcome(rule, "skipped", pair, "neither side has a time")
    if time.ratio is None:
        return Outcome(rule, "broken", pair, f"times can't be compared: {time.reason}")
    low, high = (format_percent(end - 1.0, signed=True) for end in (time.ratio.low, time.ratio.high))
    answer = verdict(time.ratio, float(rule.allowed))
    if answer == "slower":
        slower = format_percent(time.ratio.middle - 1.0)
        return Outcome(rule, "broken", pair, f"{slower} slower, between {low} and {high}{_because(pair)}")
    if answer == "ambiguous" and time.ratio.high > 1.0 + float(rule.allowed):
        return Outcome(rule, "skipped", pair, f"ambiguous: between {low} and {high}")
    return Outcome(rule, "passed", pair)


def _bytes(rule: Limit, pair: PairResult) -> Outcome:
    level = LEVELS[rule.metric]
    found = [total for total in pair.totals if total.level == level]
    if not found:
        return Outcome(rule, "skipped", pair, f"neither side knows {level} bytes")
    clauses: dict[str, list[str]] = {}
    for total in found:
        if total.before is None or total.after is None:
            clause = f"{level} bytes can't be compared, because {_unknown(total.before)} knows them"
        elif not rule.allows(total.before, total.after):
            clause = f"{level} bytes grew from {total.before:,} to {total.after:,}"
        else:
            continue
        clauses.setdefault(clause, []).append(total.source)
    for figure in pair.bytes:
        # A whole that one side does not know is among the totals.
        if figure.name.startswith(f"{level} ") and len(figure.name.split()) > 2 and figure.delta is None:
            clause = f"{level} bytes by tensor can't be compared, because {_unknown(figure.before)} knows them"
            said = clauses.setdefault(clause, [])
            said += [source for source in figure.sources if source not in said]
    if not clauses:
        return Outcome(rule, "passed", pair)
    worst = max(
        (figure for figure in pair.bytes if figure.name.startswith(f"{level} ") and (figure.delta or 0) > 0),
        key=lambda figure: figure.delta or 0,
        default=None,
    )
    most = "" if worst is None else f", most in {describe(worst, pair)}"
    text = "; ".join(f"{clause} ({', '.join(sources)})" for clause, sources in clauses.items())
    return Outcome(rule, "broken", pair, f"{text}{most}")


def describe(figure: Figure, pair: PairResult) -> str:
    """A changed figure as a clause: ``global K read 16,384 -> 32,768 (+16,384, block_m 128 -> 64)``."""
    before, after = (_number(value) for value in (figure.before, figure.after))
    inside = [] if figure.delta is None or isinstance(figure.delta, float) else [f"{figure.delta:+,}"]
    inside += [f"{name} {old} -> {new}" for name, old, new in pair.tile]
    return f"{figure.name} {before} -> {after}" + (f" ({', '.join(inside)})" if inside else "")


def _number(value: int | float | None) -> str:
    if value is None:
        return "not known"
    return format_error(value) if isinstance(value, float) else f"{value:,}"


def _because(pair: PairResult) -> str:
    return "".join(f", {name} {old} -> {new}" for name, old, new in pair.tile)


def _unknown(before: int | float | None) -> str:
    return "only the second run" if before is None else "only the first run"


def _counted(rule: Limit, comparison: Comparison) -> Outcome:
    before, after = comparison.before, comparison.after
    if rule.metric == "missing":
        count, what = len(comparison.only_before), f"of {before} missing in {after}"
    elif rule.metric == "status":
        count = sum(pair.before.status == "ok" != pair.after.status for pair in comparison.pairs)
        what = f"ok in {before} and not in {after}"
    else:
        count, what = comparison.verdicts.get("ambiguous", 0), "with ambiguous times"
    if count <= rule.allowed:
        return Outcome(rule, "passed")
    return Outcome(rule, "broken", None, f"{rule}: {count} {'row' if count == 1 else 'rows'} {what}")
