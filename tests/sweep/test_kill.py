"""A sweep in a process of its own is killed or interrupted, and goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_sweep import fake_plan, run

import fa_bench
from fa_bench.sweep.journal import read_run

PROGRAM = Path(__file__).with_name("fake_sweep.py")
TOTAL = len(fake_plan().cases)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither SIGKILL nor SIGINT for a child")


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(fa_bench.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), *options], stdout=subprocess.PIPE, text=True, env=env
    )


def wait_for_cases(process: subprocess.Popen[str], count: int) -> None:
    """Read the line that the program prints when a case starts, ``count`` times."""
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline() == "case\n"


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_a_random_point_it_goes_on_to_the_same_rows(tmp_path: Path, seed: int) -> None:
    whole = run(tmp_path / "whole").records
    folder = tmp_path / "killed"
    # A row takes a few milliseconds: the kill falls into a case, a write, a flush, or between them.
    chance = random.Random(seed)
    process = start(folder)
    cases = chance.randint(1, 11)
    wait_for_cases(process, cases)
    time.sleep(chance.uniform(0, 0.01))
    process.kill()
    process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0)  # it may have been done before
    # Emulated cases announce themselves; each but the last one has its row, and so have the host's before it.
    left = read_run(folder)
    assert left.records == whole[: len(left.records)]
    assert len([record for record in left.records if record.backend == "emulator"]) >= cases - 1
    assert all("is cut off" in sentence for sentence in left.unread)

    assert run(folder, resume=True).records == whole
    for name in ("records.csv", "traffic.csv", "samples.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_sigint_ends_with_130_and_the_rows_that_were_done(tmp_path: Path) -> None:
    process = start(tmp_path, "--hang-at", "3")
    wait_for_cases(process, 3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    records = read_run(tmp_path).records
    assert [record.status for record in records] == ["ok"] * 3 + ["interrupted"]  # flash1 flash2 numpy flash1
    assert run(tmp_path, resume=True).exit_code == 0
    assert len(read_run(tmp_path).records) == TOTAL
