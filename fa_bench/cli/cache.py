"""``fa-bench cache``: the folder of compiled kernels."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output
from fa_bench.report.tables import pairs_table


class Action(StrEnum):
    """What to do with the cache."""

    INFO = "info"
    CLEAR = "clear"


def cache(
    action: Annotated[Action, typer.Argument(help="Show where it is and how large, or empty it.")] = Action.INFO,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> None:
    """Show or empty the cache of compiled kernels.

    It is bounded, and whatever is removed is compiled again when it is needed. FA_BENCH_CACHE sets its folder.
    """
    from fa_bench import compiler
    from fa_bench.units import format_bytes, format_count

    output = Output(fmt, quiet)
    if action is Action.CLEAR:
        output.say(f"Removed {format_count(compiler.clear_cache())} compiled kernels.")
    info = compiler.cache_info()
    facts = {
        "folder": str(info.folder),
        "entries": format_count(info.entries),
        "size": format_bytes(info.nbytes),
        "limit": format_bytes(info.limit_bytes),
    }
    row = {
        "folder": str(info.folder),
        "entries": info.entries,
        "nbytes": info.nbytes,
        "limit_bytes": info.limit_bytes,
    }
    output.emit([pairs_table("", facts)], [row], row)
