"""Take out each guard against a known pitfall, and see whether its test notices.

    python scripts/break_guards.py               every guard
    python scripts/break_guards.py 21 25..29     those of some pitfalls, by number
    python scripts/break_guards.py --write-docs  write docs/pitfalls.md anew from tests/pitfalls/*.toml

A pitfall is a way in which others measured, computed or recorded something wrong. The files in tests/pitfalls/ hold for
each what happens, where it was reported, what is done about it here, and its guards: a test, and an edit of the source
that takes away what the test holds. The tree is copied once. There the tests must pass, and with an edit its test must
fail; one that the edit keeps from being collected proves nothing. Exit code 1 says that a guard can be lost unnoticed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = "docs/pitfalls.md"
#: The files of pitfalls, in the order of the document.
GROUPS: Final = ("timing", "correctness", "memory", "counters", "environment", "sweeps", "theory")
#: What a copy of the tree does without.
_LEFT_OUT: Final = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "dist", "build")
#: For one guard's test, and for all tests without an edit.
_LIMIT_S, _LIMIT_OF_ALL_S = 300, 1800

Outcome = Literal[
    "noticed", "not noticed", "no test ran", "fails without the edit", "the edit does not fit", "needs a GPU"
]
#: Anything else is a failure of the guard or of its description.
GOOD: Final[frozenset[Outcome]] = frozenset({"noticed", "needs a GPU"})


@dataclass(frozen=True, slots=True)
class Guard:
    """A test, and what to replace in a file so that it has to fail."""

    test: str
    file: str
    old: str
    new: str

    @property
    def needs_gpu(self) -> bool:
        """Whether the test runs on hardware only."""
        return self.test.startswith("tests/gpu/")

    def fits(self, tree: Path = ROOT) -> bool:
        """Whether the text to replace stands once in its file."""
        return (tree / self.file).read_text(encoding="utf-8").count(self.old) == 1


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One way of going wrong. Its number is its name, and numbers have gaps."""

    number: int
    title: str
    sources: tuple[str, ...]
    happens: str
    answer: str
    guards: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The pitfalls of one file."""

    title: str
    pitfalls: tuple[Pitfall, ...]


def read_groups(folder: Path = ROOT / "tests" / "pitfalls") -> tuple[Group, ...]:
    """All pitfalls, as the files hold them."""
    tables = (tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8")) for name in GROUPS)
    return tuple(Group(table["title"], tuple(map(_pitfall, table["pitfall"]))) for table in tables)


def _pitfall(table: Mapping[str, Any]) -> Pitfall:
    return Pitfall(
        number=table["number"],
        title=table["title"],
        sources=tuple(table["sources"]),
        happens=table["happens"],
        answer=table["answer"],
        guards=tuple(Guard(**guard) for guard in table["guard"]),
    )


# --- breaking --------------------------------------------------------------------------------------------------------


def break_all(pitfalls: Iterable[Pitfall], tree: Path) -> Iterator[tuple[Pitfall, Guard, Outcome]]:
    """Break each guard in ``tree``, a copy that may be written to, one at a time.

    Raises
    ------
    RuntimeError
        If pytest cannot run the tests as the tree is.
    """
    guards = [(pitfall, guard) for pitfall in pitfalls for guard in pitfall.guards]
    tests = sorted({guard.test for _, guard in guards if not guard.needs_gpu})
    failing = failing_tests(tests, tree) if tests else frozenset()
    for pitfall, guard in guards:
        if guard.needs_gpu:
            yield pitfall, guard, "needs a GPU"
        elif guard.test in failing:
            yield pitfall, guard, "fails without the edit"
        elif not guard.fits(tree):
            yield pitfall, guard, "the edit does not fit"
        else:
            with edited(guard, tree):
                outcome = outcome_of(*_pytest([guard.test], tree, _LIMIT_S))
            yield pitfall, guard, outcome


def failing_tests(tests: Sequence[str], tree: Path) -> frozenset[str]:
    """Those of ``tests`` that fail in ``tree`` as it is."""
    code, output = _pytest(tests, tree, _LIMIT_OF_ALL_S)
    if code not in (0, 1):
        raise RuntimeError(f"pytest ended with {code}:\n{output[-3000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, flags=re.MULTILINE)
    return frozenset(
        test for test in tests if any(f"{name}[".startswith(f"{test}[") or name == test for name in failed)
    )


@contextmanager
def edited(guard: Guard, tree: Path) -> Iterator[None]:
    """``tree`` without what the guard's test holds."""
    path = tree / guard.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(guard.old, guard.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def outcome_of(code: int | None, output: str) -> Outcome:
    """What pytest's exit code (None: it took too long) and its last line say of one edit."""
    counted = set(re.findall(r"\d+ (passed|failed)\b", output.rpartition("\n=")[2]))
    if code == 1 and "failed" in counted:
        return "noticed"
    return "not noticed" if code == 0 and "passed" in counted else "no test ran"


def _pytest(tests: Sequence[str], tree: Path, limit_s: float) -> tuple[int | None, str]:
    """Run tests of ``tree`` on the package of ``tree``; exit code, None if it took too long, and output."""
    # Edits follow each other within a second and may keep a file's size: bytecode files would be taken for current.
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-p", "no:cacheprovider", "-m", "slow or not slow", "--tb=no", "--no-header", "--color=no"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=tree, env=env, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


# --- the document ----------------------------------------------------------------------------------------------------

_INTRODUCTION: Final = """
# Pitfalls

What goes wrong when people time attention kernels, count their bytes and compare results, as reported in public, and
what fa-bench does about it. Each of these {pitfalls} has its guards: tests that fail if the code that answers it is
taken out.
[`scripts/break_guards.py`](../scripts/break_guards.py) takes it out and looks, with {guards} edits; the tests of {gpu}
of them need a GPU to be seen failing. Figures are those of the reports. Numbers are names, and have gaps.

This page is made from [`tests/pitfalls/`](../tests/pitfalls) by `python scripts/break_guards.py --write-docs`.
"""


def document(groups: Sequence[Group]) -> str:
    """The text of docs/pitfalls.md."""
    pitfalls = [pitfall for group in groups for pitfall in group.pitfalls]
    guards = [guard for pitfall in pitfalls for guard in pitfall.guards]
    numbers = {"guards": len(guards), "pitfalls": len(pitfalls), "gpu": sum(guard.needs_gpu for guard in guards)}
    parts = [_filled(paragraph) for paragraph in _INTRODUCTION.format(**numbers).strip().split("\n\n")]
    for group in groups:
        parts.append(f"## {group.title}")
        parts += [_section(pitfall) for pitfall in group.pitfalls]
    return "\n\n".join(parts) + "\n"


def _section(pitfall: Pitfall) -> str:
    tests = ", ".join(dict.fromkeys(map(_link, pitfall.guards)))
    sources = ", ".join(f"[{source_name(source)}]({source})" for source in pitfall.sources)
    paragraphs = (
        f"{pitfall.happens.strip()} ({sources})",
        f"**Here:** {pitfall.answer.strip()}",
        f"Guarded by {tests}.",
    )
    return "\n\n".join((f"### {pitfall.number}. {pitfall.title}", *map(_filled, paragraphs)))


def _link(guard: Guard) -> str:
    file, _, name = guard.test.partition("::")
    return f"[`{name.partition('[')[0]}`](../{file}){' (on a GPU)' if guard.needs_gpu else ''}"


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), width=120, break_long_words=False, break_on_hyphens=False)


def source_name(url: str) -> str:
    """``owner/repository#number`` of a thread on GitHub, the host of any other page."""
    thread = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", url)
    return f"{thread[1]}#{thread[2]}" if thread else url.split("/")[2]


# --- the command -----------------------------------------------------------------------------------------------------


def chosen(pitfalls: Sequence[Pitfall], numbers: Sequence[str]) -> tuple[Pitfall, ...]:
    """Those of the numbers, given as ``7`` or ``3..9``; all without numbers.

    Raises
    ------
    ValueError
        If one is no number, or no pitfall has it.
    """
    if not numbers:
        return tuple(pitfalls)
    wanted: set[int] = set()
    for text in numbers:
        first, _, last = text.partition("..")
        found = {p.number for p in pitfalls if int(first) <= p.number <= int(last or first)}
        if not found:
            raise ValueError(f"No pitfall has the number {text}.")
        wanted |= found
    return tuple(pitfall for pitfall in pitfalls if pitfall.number in wanted)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="pitfalls, as 21 or 25..29; all by default")
    parser.add_argument("--write-docs", action="store_true", help=f"write {DOCUMENT} and break nothing")
    options = parser.parse_args(argv)
    groups = read_groups()
    if options.write_docs:
        (ROOT / DOCUMENT).write_text(document(groups), encoding="utf-8")
        return 0
    bad = 0
    with tempfile.TemporaryDirectory(prefix="fa-bench-guards-") as folder:
        tree = shutil.copytree(ROOT, Path(folder) / "tree", ignore=_LEFT_OUT)
        pitfalls = chosen([pitfall for group in groups for pitfall in group.pitfalls], options.numbers)
        for pitfall, guard, outcome in break_all(pitfalls, tree):
            bad += outcome not in GOOD
            print(f"{pitfall.number:>3}  {outcome:<22}  {guard.file:<36}  {guard.test}", flush=True)
    print(f"{bad} of the guards can be lost unnoticed." if bad else "Each broken guard made its test fail.")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
