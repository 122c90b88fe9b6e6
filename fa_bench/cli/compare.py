"""``fa-bench compare``: two runs side by side."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption, file
from fa_bench.cli.output import Format, Output


class By(StrEnum):
    """What rows are paired by."""

    CASE = "case"
    SHAPE = "shape"


def compare(
    before: Annotated[Path, typer.Argument(help="A run folder, or its records.csv.", metavar="A", show_default=False)],
    after: Annotated[Path, typer.Argument(help="A later one.", metavar="B", show_default=False)],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            help="Exit with 1 if this is broken, as in slower:2% or bytes:0; may be repeated.",
            metavar="RULE",
        ),
    ] = None,
    by: Annotated[
        By, typer.Option("--by", help="Pair rows of the same case, or of the same shape whatever their tile.")
    ] = By.CASE,
    margin: Annotated[
        str, typer.Option("--margin", help="The change of a time that counts as none.", metavar="PERCENT")
    ] = "2%",
    junit: Annotated[
        Path | None,
        typer.Option("--junit", parser=file, help="Write the rules' outcome for a CI, as JUnit XML.", metavar="FILE"),
    ] = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Compare two runs: times beyond their noise, bytes by tensor, registers, spills, errors, missing rows.

    A time is faster or slower only if its interval lies wholly beyond the margin. Times of different devices, timers
    or L2 states are not compared. Exits with 1 if a rule of --fail-on is broken.
    """
    from fa_bench.cli.pictures import write_text
    from fa_bench.comparison.compare import compare as compared
    from fa_bench.comparison.rules import judge, parse_rules
    from fa_bench.comparison.runs import load
    from fa_bench.errors import UsageError
    from fa_bench.limits import parse_percent
    from fa_bench.report.comparison import (
        HEADER,
        broken_sentences,
        comparison_rows,
        comparison_tables,
        document,
        junit_cases,
        undecided_sentences,
    )
    from fa_bench.report.junit import junit_xml

    output = Output(fmt, quiet)
    rules = parse_rules(fail_on or ())
    if junit is not None and not rules:
        raise UsageError("--junit has nothing to say without rules.", hint="Add some, as in --fail-on bytes:0.")
    share = parse_percent(margin)
    if share is None:
        raise UsageError(f"--margin is a share such as 2%, not {margin!r}.")
    comparison = compared(load(before), load(after), by.value, share)
    outcomes = judge(comparison, rules)
    if junit is not None:
        text = junit_xml(f"fa-bench compare {before} {after}", junit_cases(comparison, outcomes))
        write_text(junit, text, "--junit")
    output.emit(
        comparison_tables(comparison), comparison_rows(comparison), document(comparison, outcomes), header=HEADER
    )
    for sentence in (
        *comparison.warnings,
        *undecided_sentences(outcomes),
        *broken_sentences(comparison, outcomes),
    ):
        output.warn(sentence)
    return int(any(outcome.state == "broken" for outcome in outcomes))
