"""What is printed where the terminal is narrow, or lacks characters; and the clock of the status line."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from fa_bench.cli.output import Format, Output, folded, print_error
from fa_bench.report.tables import Column, Table

SENTENCE = "Registers are not known, so that nothing is said of how many CTAs an SM holds; see a-path/that-is/whole."


class Terminal(io.StringIO):
    """A stream that says it is a terminal; its width is that of the environment."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_talk_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    Output(Format.TABLE).say(f"{SENTENCE}\nA line of its own.")
    *lines, last = terminal.getvalue().splitlines()
    assert last == "A line of its own."
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == SENTENCE


def test_an_error_is_indented_below_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    print_error(SENTENCE, SENTENCE)
    first, *others = terminal.getvalue().splitlines()
    assert first.startswith("Error: Registers ")
    assert all(line.startswith(" " * 7) and len(line) <= 40 for line in others)
    assert " ".join(terminal.getvalue().split()) == f"Error: {SENTENCE} {SENTENCE}"


def test_what_is_no_terminal_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    print_error(SENTENCE, "A hint.")
    assert file.getvalue() == f"Error: {SENTENCE}\n       A hint.\n"


@pytest.mark.parametrize(
    ("encoding", "cell"),
    [("ascii", "1.33x ::"), ("utf-8", "1.33\u00d7 \u2592\u2592"), ("cp437", "1.33x ::")],
)
def test_a_shade_that_cannot_be_written_has_a_stand_in(
    monkeypatch: pytest.MonkeyPatch, encoding: str, cell: str
) -> None:
    """IBM's code page 437 has shades and no multiplication sign, so all signs are replaced."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    monkeypatch.setattr(sys, "stdout", stream)
    Output(Format.TABLE).emit([Table("", (Column("a"),), (("1.33\u00d7 \u2592\u2592",),))], [])
    stream.flush()
    written: Any = stream.buffer
    text = written.getvalue().decode(encoding)
    assert cell in text
    assert "?" not in text


def test_the_status_line_s_clock_goes_on_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    output = Output(Format.TABLE)
    output.start_progress()
    assert output._progress is not None
    now = 100.0
    monkeypatch.setattr(output._progress, "get_time", lambda: now)
    (task,) = output._progress.tasks
    monkeypatch.setattr(task, "_get_time", lambda: now)
    output.progress("the first")
    now = 107.0
    output.progress("the second", clock_goes_on=True)
    assert (task.elapsed, task.description) == (7.0, "the second")
    output.progress("the third")
    assert task.elapsed == 0.0
    output.stop_progress()


def test_what_is_folded_goes_on_indented() -> None:
    # 12 columns: the second line's words go on four deeper than it, and a word that is too long stays whole.
    assert folded("one two\n  three four five\n\nundividedwords six", 12) == (
        "one two\n  three four\n      five\n\nundividedwords\n    six"
    )
    assert folded("read  Q    1,024", 80) == "read  Q    1,024"
