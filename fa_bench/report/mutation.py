"""Tables, flat rows and a document of mutation tests: what caught how many mutants, and those that nothing caught."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fa_bench.mutation.result import CAUGHT, KINDS, VERDICTS, MutationTest, Outcome, Verdict
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_count

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1
_TITLES: Final[Mapping[Verdict, str]] = {
    **{verdict: verdict for verdict in VERDICTS},
    "missed": "MISSED",
    "work": "slower",
}
_NOTE: Final = (
    "Caught: checks, by a finding of the emulator's checks; fault, out of bounds, a deadlock, an endless loop; result, "
    "against fp64; bytes, against the model. Not caught: MISSED changed the output or the traffic; slower changed "
    "neither, and runs more instructions; none changed nothing in these cases."
)


def mutation_tables(test: MutationTest, every: bool = False) -> tuple[Table, ...]:
    """What caught how many, kernel by kernel and kind by kind; survivors, with reasons; all mutants if asked for."""
    tables = [_summary(test), _findings(test)]
    if test.missed:
        tables.append(_survivors("Changed something, and nothing noticed", test, "missed"))
    if any(not outcome.caught and outcome.verdict != "missed" for outcome in test.outcomes):
        tables.append(_survivors("Changed nothing that could be noticed, and why", test, "work", "none"))
    if every:
        tables.append(_every(test.outcomes))
    return tuple(tables)


def mutation_rows(test: MutationTest) -> list[dict[str, object]]:
    """One row per mutant."""
    return [
        {
            "kernel": outcome.kernel,
            "build": outcome.build,
            "kind": outcome.mutant.kind,
            "action": outcome.mutant.action,
            "instruction": outcome.mutant.instruction,
            "ptx_line": outcome.mutant.line,
            "source": outcome.mutant.source or None,
            "copies": outcome.mutant.copies,
            "verdict": outcome.verdict,
            "finding": outcome.finding or None,
            "case": outcome.case or None,
            "reason": outcome.sentence,
        }
        for outcome in test.outcomes
    ]


def mutation_document(test: MutationTest) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "schema": SCHEMA,
        "passed": not test.missed,
        "checks": test.checks,
        "total": test.total,
        "interrupted": test.interrupted,
        "cases": list(test.cases),
        "mutants": mutation_rows(test),
    }


def counted(test: MutationTest) -> str:
    """Such as ``A sample of 152 of 642 mutants: 140 caught, 0 missed, 2 slower, 10 without effect.``"""
    total = Counter(outcome.verdict for outcome in test.outcomes)
    caught = sum(total[verdict] for verdict in CAUGHT)
    return (
        f"{_extent(test)}: {caught} caught, {total['missed']} missed, "
        f"{total['work']} slower, {total['none']} without effect."
    )


def _extent(test: MutationTest) -> str:
    """How many mutants, and of how many where that is not all."""
    done, total = format_count(len(test.outcomes)), format_count(test.total)
    if test.interrupted:
        return f"Interrupted after {done} of {total} mutants"
    return f"A sample of {done} of {total} mutants" if len(test.outcomes) < test.total else f"{done} mutants"


def _summary(test: MutationTest) -> Table:
    columns = (
        Column("kernel"),
        Column("dropped"),
        Column("mutants", "right"),
        *(Column(_TITLES[verdict], "right") for verdict in VERDICTS),
    )
    rows = []
    for kernel in dict.fromkeys(outcome.kernel for outcome in test.outcomes):
        for kind in KINDS:
            some = [o for o in test.outcomes if o.kernel == kernel and o.mutant.kind == kind]
            if some:
                rows.append((kernel, kind, *_counts(some)))
    rows.append(("all", "", *_counts(test.outcomes)))
    sample = f"{_extent(test)}. " if len(test.outcomes) < test.total else ""
    checks = "" if test.checks else "The emulator's checks were off. "
    copies = sum(outcome.mutant.copies for outcome in test.outcomes) - len(test.outcomes)
    grouped = f" {format_count(copies)} more are copies of these by the compiler." if copies else ""
    return Table("Mutants by what caught them", columns, tuple(rows), sample + checks + _NOTE + grouped)


def _counts(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    total = Counter(outcome.verdict for outcome in outcomes)
    return (str(len(outcomes)), *(str(total[verdict]) if total[verdict] else UNKNOWN for verdict in VERDICTS))


def _findings(test: MutationTest) -> Table:
    """What the findings were."""
    found = Counter((o.mutant.kind, o.verdict, o.finding) for o in test.outcomes if o.caught)
    ordered = sorted(found, key=lambda key: (KINDS.index(key[0]), VERDICTS.index(key[1]), -found[key], key[2]))
    columns = (Column("dropped"), Column("caught by"), Column("as"), Column("mutants", "right"))
    return Table("Findings", columns, tuple((*key, str(found[key])) for key in ordered))


def _survivors(title: str, test: MutationTest, *verdicts: str) -> Table:
    """Rows of the same statement in several builds are one."""
    caught = {_statement(outcome) for outcome in test.outcomes if outcome.caught}
    groups: dict[tuple[str, ...], list[Outcome]] = defaultdict(list)
    for outcome in test.outcomes:
        if outcome.verdict in verdicts:
            reason = "saves instructions" if outcome.verdict == "work" else outcome.sentence
            groups[(*_statement(outcome), reason)].append(outcome)
    rows = []
    for key, outcomes in groups.items():
        first = outcomes[0]
        elsewhere = "; caught in another build" if key[:-1] in caught else ""
        what = f"{_opcode(first)}: {first.mutant.action}"
        where = _short(first.mutant.source) or f"PTX line {first.mutant.line}"
        rows.append((first.kernel, where, what, f"{first.sentence}{elsewhere}", str(len(outcomes))))
    columns = (Column("kernel"), Column("where"), Column("what"), Column("why"), Column("builds", "right"))
    return Table(title, columns, tuple(rows))


def _every(outcomes: Iterable[Outcome]) -> Table:
    columns = (Column("kernel"), Column("where"), Column("what"), Column("verdict"), Column("finding"))
    rows = tuple(
        (
            f"{o.kernel} {o.build}".strip(),
            _short(o.mutant.source) or f"PTX line {o.mutant.line}",
            f"{_opcode(o)}: {o.mutant.action}",
            _TITLES[o.verdict],
            o.finding or UNKNOWN,
        )
        for o in outcomes
    )
    return Table("Every mutant", columns, rows)


def _statement(outcome: Outcome) -> tuple[str, ...]:
    mutant = outcome.mutant
    opcode = _opcode(outcome).rpartition(" ")[2]
    return (outcome.kernel, mutant.source or str(mutant.line), opcode, mutant.kind, mutant.action)


def _opcode(outcome: Outcome) -> str:
    """The opcode with its guard."""
    words = outcome.mutant.instruction.split()
    return " ".join(words[: 2 if words[0].startswith("@") else 1])


def _short(source: str) -> str:
    """The innermost place that wraps no instruction, and the outermost one: ``tile.cuh:63 … flash2_fwd.cu:99``."""
    places = source.split(" from ")
    own = [place for place in places if not place.startswith(("ptx.cuh:", "predicated.cuh:"))] or places
    return own[0] if len(own) == 1 else f"{own[0]} … {own[-1]}"
