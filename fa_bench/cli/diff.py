"""``fa-bench diff``: two profiles side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output


def diff(
    before: Annotated[str, typer.Argument(help="A profile that --save kept.", metavar="A", show_default=False)],
    after: Annotated[str, typer.Argument(help="A later one.", metavar="B", show_default=False)],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            help="Exit with 1 if a figure grew by more, as in bytes:0,instructions:1%; may be repeated.",
            metavar="RULES",
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", min=1, help="Source lines to show.", metavar="N")] = 20,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Compare two profiles: bytes, instructions, registers and conflicts, each change on its source line.

    Exits with 1 if a rule of --fail-on is broken.
    """
    from fa_bench.profiling.diff import compare, parse_rules
    from fa_bench.profiling.saved import load
    from fa_bench.report.diff import diff_rows, diff_tables, document

    output = Output(fmt, quiet)
    rules = [rule for text in fail_on or () for rule in parse_rules(text)]
    old, new = load(before), load(after)
    diffs = compare(old, new)
    broken = [sentence for found in diffs for rule in rules if (sentence := rule.broken(found)) is not None]
    output.emit(diff_tables(diffs, (old.source, new.source), lines), diff_rows(diffs), document(diffs, broken))
    for sentence in broken:
        output.warn(sentence)
    return int(bool(broken))
