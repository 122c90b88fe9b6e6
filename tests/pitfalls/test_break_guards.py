"""The pitfalls' guards: what their files say is there, the document is theirs, and the script can tell a bad guard."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fa_bench.compiler import nvrtc_available

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("break_guards", ROOT / "scripts" / "break_guards.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


SCRIPT = load()
PITFALLS = [pitfall for group in SCRIPT.read_groups() for pitfall in group.pitfalls]
GUARDS = [(pitfall, guard) for pitfall in PITFALLS for guard in pitfall.guards]


@cache
def functions_of(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


#: A number is a pitfall's name for good. One that goes is taken out here, and new ones come behind.
NUMBERS = frozenset(
    (
        *(1, 2, 4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19),
        *(21, 22, 24, 25, 27, 28, 29, 31, 32, 34, 36, 37, 38, 39, 41, 42, 44, 45, 47, 48),
        *(50, 51, 53, 55, 56, 58, 59, 61, 63, 65, 66, 67, 69, 70, 72, 73, 74, 76, 78, 80),
    )
)


def test_no_pitfall_is_missing_and_none_stands_twice() -> None:
    numbers = [pitfall.number for pitfall in PITFALLS]
    assert set(numbers) >= NUMBERS
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda pitfall: str(pitfall.number))
def test_a_pitfall_says_what_happens_where_and_what_holds_it(pitfall: Any) -> None:
    assert pitfall.title and pitfall.happens.strip() and pitfall.answer.strip()
    assert all(source.startswith("https://") for source in pitfall.sources)
    assert pitfall.sources
    # Guards that only a GPU could break would be guards that nobody has seen.
    assert any(not guard.needs_gpu for guard in pitfall.guards)


@pytest.mark.parametrize(("pitfall", "guard"), GUARDS, ids=lambda item: str(getattr(item, "number", "")))
def test_a_guards_test_exists_and_its_edit_fits(pitfall: Any, guard: Any) -> None:
    file, _, name = guard.test.partition("::")
    assert name.partition("[")[0] in functions_of(ROOT / file)
    assert guard.fits()
    assert guard.old != guard.new
    assert not guard.file.startswith("tests/")


def test_the_document_is_current() -> None:
    text = (ROOT / SCRIPT.DOCUMENT).read_text(encoding="utf-8")
    assert text == SCRIPT.document(SCRIPT.read_groups()), "python scripts/break_guards.py --write-docs"


def test_numbers_and_ranges_choose() -> None:
    def numbers(*texts: str) -> list[int]:
        return [pitfall.number for pitfall in SCRIPT.chosen(PITFALLS, texts)]

    assert numbers() == [pitfall.number for pitfall in PITFALLS]
    assert numbers("7") == [7]
    assert sorted(numbers("5..9", "21")) == [5, 6, 7, 9, 21]
    with pytest.raises(ValueError, match="No pitfall has the number 3"):
        numbers("3")


def test_sources_are_named_short() -> None:
    assert SCRIPT.source_name("https://github.com/a/b.c/pull/12") == "a/b.c#12"
    assert SCRIPT.source_name("https://forums.example.org/t/9") == "forums.example.org"


@pytest.mark.parametrize(
    ("code", "last_line", "outcome"),
    [
        (1, "= 1 failed, 2 passed in 0.1s =", "noticed"),
        (1, "= 1 failed, 1 error in 0.1s =", "noticed"),  # a file that the failing test left open
        (0, "= 2 passed in 0.1s =", "not noticed"),
        (0, "= 2 skipped in 0.1s =", "no test ran"),
        (1, "= 1 error in 0.1s =", "no test ran"),
        (2, "= 1 error in 0.1s =", "no test ran"),  # the edit does not even parse
        (None, "", "no test ran"),
    ],
)
def test_only_a_test_that_ran_and_failed_has_noticed(code: int | None, last_line: str, outcome: str) -> None:
    # Words in the report above the last line don't count.
    assert SCRIPT.outcome_of(code, f"\nFAILED tests/x.py::test_9 failed\n{last_line}\n") == outcome


def test_good_and_bad_guards_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "code.py").write_text("LIMIT = 3\nUNUSED = 1\n")
    (tmp_path / "tests" / "test_code.py").write_text(
        "import code_under_test\n\n\ndef test_limit():\n    assert code_under_test.LIMIT == 3\n\n\n"
        "def test_off():\n    assert False\n"
    )
    (tmp_path / "code.py").rename(tmp_path / "code_under_test.py")

    def guard(test: str, old: str, new: str) -> Any:
        return SCRIPT.Guard(f"tests/{test}", "code_under_test.py", old, new)

    guards = (
        guard("test_code.py::test_limit", "LIMIT = 3", "LIMIT = 4"),
        guard("test_code.py::test_limit", "UNUSED = 1", "UNUSED = 2"),
        guard("test_code.py::test_limit", "LIMIT = 3", "LIMIT = ="),
        guard("test_code.py::test_limit", "LIMIT = 5", "LIMIT = 6"),
        guard("test_code.py::test_off", "UNUSED = 1", "UNUSED = 2"),
        guard("gpu/test_code.py::test_limit", "LIMIT = 3", "LIMIT = 4"),
    )
    pitfall = SCRIPT.Pitfall(1, "title", ("https://example.org",), "happens", "answer", guards)
    outcomes = [outcome for _, _, outcome in SCRIPT.break_all([pitfall], tmp_path)]
    assert outcomes == [
        "noticed", "not noticed", "no test ran", "the edit does not fit", "fails without the edit", "needs a GPU",
    ]  # fmt: skip
    assert (tmp_path / "code_under_test.py").read_text() == "LIMIT = 3\nUNUSED = 1\n"


@pytest.mark.slow
@pytest.mark.skipif(nvrtc_available() is not None, reason="edits of kernels are compiled")
def test_each_broken_guard_makes_its_test_fail(capsys: pytest.CaptureFixture[str]) -> None:
    code = SCRIPT.main([])
    lines = [line for line in capsys.readouterr().out.splitlines() if re.match(r" *\d+  ", line)]
    assert code == 0, "\n".join(line for line in lines if not re.match(r" *\d+  (noticed|needs a GPU) ", line))
    assert len(lines) == len(GUARDS)
