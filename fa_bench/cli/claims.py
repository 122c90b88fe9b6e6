"""``fa-bench claims``: statements about FlashAttention that are often made, each judged by numbers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output


class Lang(StrEnum):
    """The language of what is said; figures and derivations are the same in both."""

    EN = "en"
    ZH = "zh"
    BOTH = "both"


def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Letters or names of claims; all if none is given.", metavar="CLAIM"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every figure and how it was computed, and the right form.")
    ] = False,
    lang: Annotated[Lang, typer.Option("--lang", help="English, Chinese, or both.")] = Lang.EN,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Judge statements about FlashAttention that are often made.

    Each statement is tested by figures that are computed now, by formulas, in float64 and by kernels that run in the
    emulator: it holds, holds if it is read in a certain way, or does not hold. A statement that does not hold is a
    result: the exit code is 0.
    """
    from fa_bench.claims.claim import LANGUAGES
    from fa_bench.claims.registry import chosen, judge
    from fa_bench.report.claims import SCHEMA, document, explained, flat_rows, overview, page

    output = Output(fmt, quiet)
    letters = chosen(names or ())
    output.start_progress()
    try:
        judged = list(judge(letters, output.progress))
    finally:
        output.stop_progress()
    languages = LANGUAGES if lang is Lang.BOTH else tuple(known for known in LANGUAGES if known == lang.value)
    if explain and fmt is Format.MD:
        output.write(page(judged, languages))
        return 0
    tables = [
        table
        for language in languages
        for table in (
            [part for each in judged for part in explained(each, language)] if explain else [overview(judged, language)]
        )
    ]
    output.emit(
        tables,
        [row for language in languages for row in flat_rows(judged, language)],
        {"schema": SCHEMA, "claims": [one for language in languages for one in document(judged, language)]},
    )
    return 0
