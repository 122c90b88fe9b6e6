"""Tables, rows, document and test cases of ``fa-bench compare``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from fa_bench.comparison.compare import Comparison, PairResult, TimeVerdict
from fa_bench.comparison.figures import Figure
from fa_bench.comparison.rules import Outcome, undecided
from fa_bench.records import Record
from fa_bench.report.junit import JUnitCase
from fa_bench.report.names import FACTS, record_name, varying
from fa_bench.report.tables import UNKNOWN, Column, Table, pairs_table
from fa_bench.units import format_count, format_error, format_ms, format_percent, format_ratio

SCHEMA: Final = 1
#: In the order in which they are counted up.
_VERDICTS: Final[tuple[TimeVerdict, ...]] = ("same", "faster", "slower", "ambiguous", "unknown")
_SHAPE: Final = (
    *("dtype", "layout", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "causal", "seed"),
    *("block_m", "block_n", "stages", "num_warps"),
)


class Names:
    """What the tables and sentences of one comparison call its rows: facts that never vary are left out."""

    def __init__(self, comparison: Comparison) -> None:
        records = (record for pair in comparison.pairs for record in (pair.before, pair.after))
        everything = (*records, *comparison.only_before, *comparison.only_after)
        self._facts = varying(map(record_name, everything))

    def shape(self, record: Record) -> str:
        """The sequence length and what else varies."""
        return record_name(record).shape(self._facts)

    def pair(self, pair: PairResult, facts: Sequence[str] | None = None) -> str:
        """Implementation, its tile where both have the same, and shape."""
        shape = record_name(pair.after).shape(self._facts if facts is None else facts)
        return f"{impl(pair)}, {shape}"


def impl(pair: PairResult) -> str:
    """``flash2 64x64/1``, or ``flash2`` where the tile is not the same."""
    return pair.after.impl if pair.tile else record_name(pair.after).impl


# --- for people ------------------------------------------------------------------------------------------------------


def comparison_tables(comparison: Comparison) -> tuple[Table, ...]:
    """An overview, the times, what changed in each pair, and rows without a partner."""
    names = Names(comparison)
    tables = [_overview(comparison), _times(comparison, names)]
    tables += [_changes(pair, names) for pair in comparison.pairs if _has_changed(pair)]
    tables.append(_alone(comparison, names))
    return tuple(table for table in tables if table.rows)


def broken_sentences(comparison: Comparison, outcomes: Iterable[Outcome]) -> list[str]:
    """One sentence per broken rule and pair."""
    names = Names(comparison)
    return [
        f"{outcome.detail if outcome.pair is None else f'{names.pair(outcome.pair)}: {outcome.detail}'}."
        for outcome in outcomes
        if outcome.state == "broken"
    ]


def undecided_sentences(outcomes: Iterable[Outcome]) -> list[str]:
    """One sentence per rule on time that the samples do not decide in some pairs."""
    counts = Counter(str(outcome.rule) for outcome in outcomes if undecided(outcome))
    return [
        f"{rule} is not decided in {count} {'pair' if count == 1 else 'pairs'}: "
        "more samples would tell, and ambiguous:0 would make it a failure."
        for rule, count in counts.items()
    ]


def _overview(comparison: Comparison) -> Table:
    counts = comparison.verdicts
    times = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if verdict in counts)
    changed = sum(bool(pair.bytes) for pair in comparison.pairs)
    known = any(pair.totals for pair in comparison.pairs)
    return pairs_table(
        f"{comparison.before}, now {comparison.after}",
        (
            ("pairs", f"{len(comparison.pairs)}, by {comparison.by}"),
            ("time", times or "none has one"),
            ("bytes", f"changed in {changed}" if changed else "nothing changed" if known else "not known"),
            (f"only in {comparison.before}", str(len(comparison.only_before))),
            (f"only in {comparison.after}", str(len(comparison.only_after))),
        ),
    )


def _times(comparison: Comparison, names: Names) -> Table:
    timed = [pair for pair in comparison.pairs if pair.time.verdict != "none"]
    reasons = dict.fromkeys(f"{pair.time.verdict}: {pair.time.reason}." for pair in timed if pair.time.reason)
    note = (
        "now/before: of the medians, and between which limits it lies; each holds with 95 %. "
        f"same: within {format_percent(float(comparison.margin))}; faster, slower: wholly beyond it."
    )
    return Table(
        "Time",
        (
            Column("seq"),
            Column("implementation"),
            Column("before", "right"),
            Column("now", "right"),
            Column("now/before"),
            Column("verdict"),
        ),
        tuple(
            (
                names.shape(pair.after),
                impl(pair),
                _ms(pair.before.time_ms),
                _ms(pair.after.time_ms),
                _ratio(pair),
                pair.time.verdict,
            )
            for pair in timed
        ),
        "\n".join([note, *reasons]),
    )


def _ratio(pair: PairResult) -> str:
    ratio = pair.time.ratio
    if ratio is None:
        return UNKNOWN
    return f"{format_ratio(ratio.middle)} ({ratio.low:.3f} to {ratio.high:.3f})"


def _has_changed(pair: PairResult) -> bool:
    return bool(pair.changed) or pair.before.status != pair.after.status


def _changes(pair: PairResult, names: Names) -> Table:
    tile = "".join(f"; {name} {old}, now {new}" for name, old, new in pair.tile)
    rows = [
        (
            figure.name,
            ", ".join(figure.sources),
            _number(figure.before),
            _number(figure.after),
            _change(figure),
        )
        for figure in pair.changed
    ]
    if pair.before.status != pair.after.status:
        rows.insert(0, ("status", "", pair.before.status, pair.after.status, ""))
    reason = pair.after.status_reason if pair.after.status != "ok" else None
    return Table(f"{names.pair(pair)}{tile}", _CHANGES, tuple(rows), f"{pair.after.status}: {reason}" if reason else "")


_CHANGES: Final = (
    Column("figure"),
    Column("source"),
    Column("before", "right"),
    Column("now", "right"),
    Column("change", "right"),
)


def _alone(comparison: Comparison, names: Names) -> Table:
    sides = ((comparison.before, comparison.only_before), (comparison.after, comparison.only_after))
    return Table(
        "Rows without a partner",
        (Column("only in"), Column("implementation"), Column("seq"), Column("status")),
        tuple(
            (path, record_name(record).impl, names.shape(record), record.status)
            for path, records in sides
            for record in records
        ),
    )


def _ms(time_ms: float | None) -> str:
    return UNKNOWN if time_ms is None else format_ms(time_ms)


def _number(value: int | float | None) -> str:
    if value is None:
        return UNKNOWN
    return format_error(value) if isinstance(value, float) else format_count(value)


def _change(figure: Figure) -> str:
    if figure.before is None or figure.after is None:
        return UNKNOWN
    if isinstance(figure.before, float):
        return format_percent(figure.after / figure.before - 1.0, signed=True) if figure.before else UNKNOWN
    return f"{figure.after - figure.before:+,}"


# --- for machines ----------------------------------------------------------------------------------------------------


def comparison_rows(comparison: Comparison) -> list[dict[str, object]]:
    """One flat row per pair for its time, one per figure that changed, and one per row without a partner."""
    rows = []
    for pair in comparison.pairs:
        ratio = pair.time.ratio
        rows.append(
            _row(pair.before, pair.after)
            | {
                "figure": "time_ms",
                "before": pair.before.time_ms,
                "after": pair.after.time_ms,
                "ratio": None if ratio is None else ratio.middle,
                "ratio_low": None if ratio is None else ratio.low,
                "ratio_high": None if ratio is None else ratio.high,
                "verdict": pair.time.verdict,
                "reason": pair.time.reason or None,
            }
        )
        rows += [
            _row(pair.before, pair.after)
            | {"figure": figure.name, "sources": figure.sources, "before": figure.before, "after": figure.after}
            for figure in pair.changed
        ]
    rows += [_row(record, None) for record in comparison.only_before]
    return rows + [_row(None, record) for record in comparison.only_after]


#: Columns of the CSV.
HEADER: Final = (
    *("impl", "backend", "case_id_before", "case_id_after", "status_before", "status_after", "dtype", "layout"),
    *("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "causal", "seed"),
    *("block_m_before", "block_m_after", "block_n_before", "block_n_after", "stages_before", "stages_after"),
    *("num_warps_before", "num_warps_after", "figure", "sources", "before", "after"),
    *("ratio", "ratio_low", "ratio_high", "verdict", "reason"),
)
_SIDES: Final = ("case_id", "status", "block_m", "block_n", "stages", "num_warps")


def _row(before: Record | None, after: Record | None) -> dict[str, object]:
    either = after or before
    assert either is not None
    row: dict[str, object] = {name: getattr(either, name) for name in ("impl", "backend", *_SHAPE[:10])}
    for name in _SIDES:
        row[f"{name}_before"] = None if before is None else getattr(before, name)
        row[f"{name}_after"] = None if after is None else getattr(after, name)
    return row


def document(comparison: Comparison, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The JSON document; its fields are described in docs/compare.md."""
    return {
        "schema": SCHEMA,
        "before": comparison.before,
        "after": comparison.after,
        "by": comparison.by,
        "margin": float(comparison.margin),
        "verdicts": comparison.verdicts,
        "warnings": list(comparison.warnings),
        "broken_rules": broken_sentences(comparison, outcomes),
        "rules": [
            {
                "rule": str(outcome.rule),
                "state": outcome.state,
                "detail": outcome.detail,
                "case_id_before": None if outcome.pair is None else outcome.pair.before.case_id,
            }
            for outcome in outcomes
        ],
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "only_before": [_record(record) for record in comparison.only_before],
        "only_after": [_record(record) for record in comparison.only_after],
    }


def junit_cases(comparison: Comparison, outcomes: Iterable[Outcome]) -> list[JUnitCase]:
    """One test per rule and pair, and one per rule on the whole comparison."""
    names = Names(comparison)
    return [
        JUnitCase(
            "all rows" if outcome.pair is None else names.pair(outcome.pair, FACTS),
            str(outcome.rule),
            outcome.state,
            outcome.detail,
        )
        for outcome in outcomes
    ]


def _pair(pair: PairResult) -> dict[str, Any]:
    ratio = pair.time.ratio
    return {
        "before": _record(pair.before),
        "after": _record(pair.after),
        "time": {
            "verdict": pair.time.verdict,
            "reason": pair.time.reason or None,
            "before_ms": pair.before.time_ms,
            "after_ms": pair.after.time_ms,
            "ratio": None if ratio is None else ratio.middle,
            "ratio_low": None if ratio is None else ratio.low,
            "ratio_high": None if ratio is None else ratio.high,
        },
        "figures": [
            {
                "figure": figure.name,
                "sources": list(figure.sources),
                "before": figure.before,
                "after": figure.after,
                "delta": figure.delta,
            }
            for figure in pair.changed
        ],
        "conditions": [
            {"what": difference.what, "before": difference.before, "after": difference.after}
            for difference in pair.differences
        ],
    }


def _record(record: Record) -> dict[str, Any]:
    names = ("case_id", "run_id", "impl", "backend", "status", *_SHAPE)
    return {name: getattr(record, name) for name in names}
