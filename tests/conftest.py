"""For the tests of all rooms: nobody else's kernels, a stand-in for ncu alone on PATH, kernels with a mistake."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from fa_bench import algorithms
from fa_bench.backends.emulator import Compile
from fa_bench.compiler import compile_kernel, kernels_dir

# The same examples in every run: what fails then fails because of a change, and not of a draw.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# A shell starts what is behind an & with SIGINT ignored, and what tests start and then interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FAKE = Path(__file__).with_name("fake_ncu.py")


class FakeNcu:
    """The fake on PATH, alone; what it answers can be changed between two runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "ncu"
        self.folder.mkdir()
        self._answer = self.folder / "answer.json"
        self._log = self.folder / "log"
        self.path = self.folder / "ncu"
        self.path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        self.path.chmod(0o755)
        monkeypatch.setenv("PATH", str(self.folder))
        monkeypatch.setenv("FAKE_NCU", str(self._answer))
        self.answers()

    def answers(self, **answer: Any) -> None:
        """See fake_ncu.py for the keys."""
        self._answer.write_text(json.dumps({"log": str(self._log), **answer}))

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What it was called with, so far; asking for the version is no run."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []


@pytest.fixture(autouse=True)
def nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's kernel that a test adds is gone after it: ``added`` is of the process, and tests share theirs."""
    monkeypatch.setattr(algorithms, "_added", {})


@pytest.fixture
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    """Let ``ncu`` on PATH be the fake."""
    if os.name != "posix":
        pytest.skip("The stand-in for ncu is a shell script.")
    return FakeNcu(tmp_path, monkeypatch)


@pytest.fixture
def mutant(tmp_path: Path) -> Callable[..., Compile]:
    """``mutant(source, (old, new), ...)``: a compiler of the kernels with ``new`` for each ``old`` in ``source``."""

    def compiler(source: str, *changes: tuple[str, str]) -> Compile:
        root = shutil.copytree(kernels_dir(), tmp_path / "kernels")
        text = (root / source).read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (root / source).write_text(text, encoding="utf-8")
        return partial(compile_kernel, folder=root)

    return compiler
