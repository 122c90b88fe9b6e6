"""For the tests of all rooms that ask hardware counters: a PATH with nothing but a stand-in for ncu on it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    """Let ``ncu`` on PATH be the fake."""
    if os.name != "posix":
        pytest.skip("The stand-in for ncu is a shell script.")
    return FakeNcu(tmp_path, monkeypatch)
