"""``fa-bench baseline``: what later runs are held against."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output


class Action(StrEnum):
    """What to do with a baseline."""

    ACCEPT = "accept"


def baseline(
    action: Annotated[Action, typer.Argument(help="Take over the rows of a run.", show_default=False)],
    folder: Annotated[
        Path, typer.Argument(help="The baseline: a run folder, or one to be made.", metavar="A", show_default=False)
    ],
    source: Annotated[
        Path, typer.Option("--from", help="The run folder whose rows are accepted.", metavar="B", show_default=False)
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Also accept an unfinished run, rows that are not ok, and torn files.")
    ] = False,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> None:
    """Accept an intended change: the rows of B become those of A, with their traffic and samples.

    Rows of the same case are replaced, others stay. run.json notes what was accepted, when and from which run. A is
    the old baseline or the new one, whenever this is interrupted.
    """
    from fa_bench.comparison.baseline import accept
    from fa_bench.report.tables import pairs_table

    output = Output(fmt, quiet)
    match action:
        case Action.ACCEPT:
            done = accept(folder, source, force=force)
    figures = {"rows": done.rows, "replaced": done.replaced, "kept": done.kept}
    output.emit(
        [pairs_table(f"{folder}, accepted from {source}", {name: str(value) for name, value in figures.items()})],
        [figures],
        {"schema": 1, **figures},
    )
