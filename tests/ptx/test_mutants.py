"""Mutated PTX never crashes the process, never hangs, and is refused or diagnosed in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MUTANTS = Path(__file__).parent / "mutants.py"


@pytest.mark.parametrize("count, seed", [(60, 1), pytest.param(1000, 2, marks=pytest.mark.slow)])
def test_mutants_are_refused_diagnosed_or_run(count: int, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, str(MUTANTS), str(count), str(seed)], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tally = dict(item.split("=") for item in done.stdout.split())
    assert sum(int(n) for n in tally.values()) == count
    # All three outcomes occur, so the mutations are neither too mild nor too wild.
    assert all(int(n) > count // 30 for n in tally.values()), tally
