"""A real emulator sweep in a process of its own, killed with SIGKILL anywhere, and what ``--resume`` makes of it.

Many small cases, so that writing rows is a good part of the run. Half of the kills come at a random time, the others
when traffic.csv has just grown past a random size, which is while a row is written.
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fa_bench
from fa_bench.compiler import ptx_available
from fa_bench.records import RECORDS
from fa_bench.sweep.journal import read_run

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
    pytest.mark.skipif(ptx_available() is not None, reason=f"no PTX here: {ptx_available()}"),
]

#: Columns that differ between two runs of the same cases. The emulator has no times.
VOLATILE = ("run_id", "timestamp", "compile_ms")


def start(folder: Path, seqs: str, *more: str) -> subprocess.Popen[bytes]:
    """Cases of a few milliseconds each, four per length of ``seqs``."""
    arguments = ["sweep", "--device", "emulator", "--jobs", "1", "--impl", "standard,flash2", "--seq", seqs]
    arguments += ["--head-dim", "16", "--causal", "both", "--quiet", "--out", str(folder), *more]
    env = {**os.environ, "PYTHONPATH": str(Path(fa_bench.__file__).parents[1])}
    program = "import sys; from fa_bench.cli.app import main; main()"
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.DEVNULL, env=env)


def run(folder: Path, seqs: str, *more: str) -> float:
    """Seconds of a whole sweep."""
    begin = time.monotonic()
    assert start(folder, seqs, *more).wait() == 0
    return time.monotonic() - begin


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def kill(folder: Path, seqs: str, chance: random.Random, seconds: float, whole_size: int) -> bool:
    """Start a sweep and kill it at a random point of its run or of its writing; whether a row was being written."""
    process = start(folder, seqs)
    if chance.random() < 0.5:
        moment = time.monotonic() + chance.uniform(0, seconds)
        while time.monotonic() < moment and process.poll() is None:
            time.sleep(0.001)
    else:
        # Of the files of a row it is written first.
        enough = chance.randrange(whole_size)
        while size(folder / "traffic.csv") <= enough and process.poll() is None:
            pass
    process.kill()
    process.wait()
    return left_unfinished(folder)


def left_unfinished(folder: Path) -> bool:
    """Whether something of a case is on disk, or a part of a line, and not its record."""
    if not (folder / "run.json").exists():
        return False
    data = read_run(folder)
    recorded = {record.case_id for record in data.records}
    path = folder / "traffic.csv"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    without_record = {line.partition(",")[0] for line in text.splitlines()[1:]} - recorded
    return bool(data.unread or without_record)


def steady(folder: Path) -> list[dict[str, str]]:
    with (folder / "records.csv").open(encoding="utf-8", newline="") as file:
        return [{name: cell for name, cell in row.items() if name not in VOLATILE} for row in csv.DictReader(file)]


def kill_and_resume(tmp_path: Path, seqs: str, seeds: range) -> list[bool]:
    """Kill a sweep once per seed and resume it; each must end as one that was never killed.

    Returns for each kill whether it fell inside the writing of a row.
    """
    whole = tmp_path / "whole"
    seconds = run(whole, seqs)
    kills = []
    for seed in seeds:
        folder = tmp_path / f"killed-{seed}"
        kills.append(kill(folder, seqs, random.Random(seed), seconds, size(whole / "traffic.csv")))
        run(folder, seqs, "--resume")
        assert steady(folder) == steady(whole)
        assert (folder / "traffic.csv").read_bytes() == (whole / "traffic.csv").read_bytes()
        data = read_run(folder)
        assert (data.unread, data.manifest.finished is None) == ((), False)
        assert all(
            (folder / name).read_text(encoding="utf-8").endswith("\n") for name in ("records.csv", "traffic.csv")
        )
        assert (folder / "records.csv").read_text(encoding="utf-8").startswith(RECORDS.header)
    return kills


def test_an_emulator_sweep_killed_anywhere_resumes_to_the_same_rows(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, "16,32", range(2))


@pytest.mark.slow
def test_fifty_kills_of_an_emulator_sweep_resume_to_the_same_rows(tmp_path: Path) -> None:
    run(tmp_path / "warm", "16..256:16")  # fills the cache of compiled kernels, so that the next one's time is typical
    kills = kill_and_resume(tmp_path, "16..256:16", range(50))
    sys.stdout.write(f"{sum(kills)} of {len(kills)} kills fell inside the writing of a row\n")
    assert 0 < sum(kills) < len(kills) == 50
