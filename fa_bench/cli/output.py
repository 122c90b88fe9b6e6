"""The only place that prints: data on stdout, talk on stderr.

A command builds an :class:`Output` from ``--format`` and ``--quiet`` and hands it tables for people, flat rows for
CSV and a document for JSON; what is shown, and how, is decided here. rich is imported when a table or a progress
line is really drawn.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TextIO

from fa_bench.report.export import csv_text, json_text
from fa_bench.report.tables import Table

if TYPE_CHECKING:
    import typer
    from rich.console import Console
    from rich.progress import Progress

#: Words of our tables that deserve a colour where the terminal has some.
_STYLES: Final[Mapping[str, str]] = {
    "ok": "green",
    "pass": "green",
    "skipped": "yellow",
    "unsupported": "yellow",
    "oom": "yellow",
    "interrupted": "yellow",
    "missing": "yellow",
    "error": "bold red",
    "wrong_result": "bold red",
    "invalid_timing": "bold red",
    "differs": "bold red",
    "FAIL": "bold red",
    "holds": "green",
    "成立": "green",
    "holds if": "yellow",
    "有条件成立": "yellow",
    "does not hold": "bold red",
    "不成立": "bold red",
}


#: Columns of text that is no table.
WIDTH: Final = 80

#: What stands for a sign of ours where standard output lacks it: shades of maps, × and others.
_STAND_INS: Final = str.maketrans({"░": ".", "▒": ":", "▓": "+", "█": "#", "×": "x", "√": "sqrt", "─": "-", "·": "*"})


class Format(StrEnum):
    """How data is written on stdout."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MD = "md"


class Output:
    """Where one command's data and talk go.

    Parameters
    ----------
    fmt : Format
        How data is written.
    quiet : bool
        Leave out the talk: progress, notes, where files are. Errors are said all the same.
    """

    def __init__(self, fmt: Format, quiet: bool = False) -> None:
        self.fmt = fmt
        self.quiet = quiet
        self._progress: Progress | None = None

    def emit(
        self,
        tables: Sequence[Table],
        rows: Sequence[Mapping[str, object]],
        document: object = None,
        header: Sequence[str] = (),
    ) -> None:
        """Write a command's data in the format asked for.

        Parameters
        ----------
        tables : sequence of Table
            For ``table`` and ``md``.
        rows : sequence of mappings
            For ``csv``, and for ``json`` where there is no ``document``.
        document : object, optional
            For ``json``.
        header : sequence of str, optional
            Column order of the CSV.
        """
        with self._paused():
            if self.fmt is Format.TABLE:
                _put("\n".join(_drawn(table) for table in tables))
            elif self.fmt is Format.MD:
                _put("\n\n".join(table.markdown() for table in tables) + "\n")
            elif self.fmt is Format.CSV:
                _put(csv_text(rows, header))
            else:
                _put(json_text(list(rows) if document is None else document))

    def write(self, text: str) -> None:
        """Write finished text on stdout, as it is."""
        with self._paused():
            _put(text)

    def start_rows(self, table: Table) -> None:
        """Draw the title and the head of a table whose rows come one by one (``add_row``)."""
        self.write(_wrapped(table.title) + _grid(table, streamed=True))

    def add_row(self, table: Table, row: tuple[str, ...]) -> None:
        """Draw one row below the head that ``start_rows`` drew."""
        self.write(_grid(Table("", table.columns, (row,)), streamed=True, head=False))

    def end_rows(self, table: Table) -> None:
        """Draw the note below the rows, and the gap before what follows."""
        self.write(_wrapped(table.note, "dim") + "\n")

    def say(self, text: str) -> None:
        """Say something on stderr, unless ``--quiet``."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Say something on stderr that ``--quiet`` does not silence."""
        with self._paused():
            print(_for_stderr(text), file=sys.stderr, flush=True)

    def start_progress(self) -> None:
        """Show a status line on stderr, if that is a terminal and ``--quiet`` was not given."""
        if self.quiet or not sys.stderr.isatty():
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=_console(sys.stderr),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            refresh_per_second=4,
        )
        self._progress.add_task("")
        self._progress.start()

    def progress(self, text: str, *, milestone: bool = False, clock_goes_on: bool = False) -> None:
        """Replace the status line's text; where there is no status line, say it if it is a milestone.

        The line's clock starts anew, as for a case of its own, unless ``clock_goes_on``.
        """
        if self._progress is not None:
            change = self._progress.update if clock_goes_on else self._progress.reset
            change(self._progress.task_ids[0], description=text)
        elif milestone:
            self.say(text)

    def stop_progress(self) -> None:
        """Remove the status line."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Take the status line away while something else is written to the same terminal."""
        if self._progress is None:
            yield
            return
        self._progress.stop()
        yield
        self._progress.start()


def print_error(message: str, hint: str = "") -> None:
    """Say on stderr what went wrong and, where there is one, the next step."""
    print(_for_stderr(f"Error: {message}", " " * 7), file=sys.stderr)
    if hint:
        print(_for_stderr(f"       {hint}", " " * 7), file=sys.stderr, flush=True)


def print_version(version: str) -> None:
    """Write the version on stdout."""
    print(f"fa-bench {version}")


def print_help(ctx: typer.Context) -> None:
    """Write a command's help on stdout."""
    text = ctx.get_help()
    if text:  # typer's rich formatter has written it already and gives an empty text
        print(text)


def make_streams_safe() -> None:
    """Let a terminal that lacks a character show a substitute instead of raising UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def folded(text: str, width: int = WIDTH) -> str:
    """``text`` in lines of at most ``width`` columns; what goes on from a longer line is indented. Words stay whole."""
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def _put(text: str) -> None:
    sys.stdout.write(_shown(text))
    sys.stdout.flush()


def _shown(text: str) -> str:
    """``text`` with stand-ins for our signs where standard output has no such characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_STAND_INS)
    return text


def _for_stderr(text: str, indent: str = "") -> str:
    """``text`` in lines of the terminal's width, where there is one; words stay whole, since some are paths."""
    if not sys.stderr.isatty():
        return text
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False)


def _drawn(table: Table) -> str:
    """Title, grid and note."""
    title = _wrapped(table.title) if table.title else ""
    return title + _grid(table) + (_wrapped(table.note, "dim") if table.note else "")


def _wrapped(text: str, style: str = "") -> str:
    """``text`` in lines of the terminal's width."""
    console = _console(sys.stdout)
    with console.capture() as capture:
        console.print(text, style=style)
    return capture.get()


def _grid(table: Table, *, streamed: bool = False, head: bool = True) -> str:
    """Head and rows, as wide as they must be; columns have their own widths where rows come one by one."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    console = _console(sys.stdout)
    roomy = not streamed and _natural_width(table) + 2 * len(table.columns) <= console.width
    grid = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, show_header=head, padding=(0, int(roomy), 0, 0), pad_edge=False
    )
    for column in table.columns:
        width = column.width if streamed else None
        grid.add_column(Text(column.title), justify=column.align, width=width, overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    with console.capture() as capture:
        console.print(grid)
    return capture.get()


def _natural_width(table: Table) -> int:
    lines = [[column.title for column in table.columns], *table.rows]
    return sum(max(map(len, cells)) for cells in zip(*lines, strict=True))
