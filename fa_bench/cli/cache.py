"""``fa-bench cache``: the folders of compiled kernels."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output
from fa_bench.report.tables import Column, Table


class Action(StrEnum):
    """What to do with the cache."""

    INFO = "info"
    CLEAR = "clear"


def cache(
    action: Annotated[Action, typer.Argument(help="Show where it is and how large, or empty it.")] = Action.INFO,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> None:
    """Show or empty the caches: kernels as NVRTC compiled them, and the emulator's machine code.

    They are bounded, and whatever is removed is made again when it is needed. FA_BENCH_CACHE sets their folder.
    """
    from fa_bench.filecache import CACHES, cache_dir
    from fa_bench.units import format_bytes, format_count

    output = Output(fmt, quiet)
    if action is Action.CLEAR:
        removed = sum(cache.clear() for cache in CACHES)
        output.say(f"Removed {format_count(removed)} entries.")
    states = {cache.name: cache.info() for cache in CACHES}
    columns = (Column("cache"), Column("entries", "right"), Column("size", "right"), Column("limit", "right"))
    lines = tuple(
        (name, format_count(state.entries), format_bytes(state.nbytes), format_bytes(state.limit_bytes))
        for name, state in states.items()
    )
    rows = [
        {
            "cache": name,
            "folder": str(state.folder),
            "entries": state.entries,
            "nbytes": state.nbytes,
            "limit_bytes": state.limit_bytes,
        }
        for name, state in states.items()
    ]
    output.emit([Table("", columns, lines, f"Below {cache_dir()}")], rows)
