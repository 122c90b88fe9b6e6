"""Trials in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from workers import GPU, Dying

import fa_bench
from fa_bench import algorithms
from fa_bench.backends import open_backend
from fa_bench.backends.remote import open_remote
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import nvrtc_available
from fa_bench.model import gpus
from fa_bench.tuning.counts import trial
from fa_bench.tuning.processes import trials


def test_processes_say_what_this_one_says() -> None:
    if (missing := nvrtc_available()) is not None:
        pytest.skip(missing)
    gpu = gpus.get("a100")
    shape = AttentionShape(1, 1, 1, 64, 64, 16)
    cases = [Case("flash2", shape, tile=Tile(16, block_n, 1, 1)) for block_n in (16, 32)]
    backend = open_backend("emulator", jobs=1)
    here = {case: trial(case, algorithms.get("flash2"), backend, gpu) for case in cases}
    there = {made.case: made for made in trials(cases, gpu, jobs=2)}
    assert {made.status for made in there.values()} == {"ok"}
    assert there == here


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes import what this folder has."""
    folders = Path(fa_bench.__file__).parents[1], Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))


needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither SIGKILL nor SIGINT for a child")


@needs_signals
def test_a_process_that_is_killed_costs_at_most_its_tile(importable: None, tmp_path: Path) -> None:
    """Tiles of 32 rows kill each process that runs them; one of 64 rows kills the first and passes in the second."""
    shape = AttentionShape(1, 1, 1, 256, 256, 64)
    cases = [Case("flash2", shape, tile=Tile(block_m, 16, 1, block_m // 16)) for block_m in (16, 32, 64)]
    made = {made.case: made for made in trials(cases, GPU, 2, partial(open_remote, partial(Dying, tmp_path)))}
    assert [made[case].status for case in cases] == ["ok", "failed", "ok"]
    assert "flash2: the process that ran it died of SIGKILL" in made[cases[1]].reason
    assert (tmp_path / "died").exists()


def started(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A tuning whose two processes have come to what never ends, and these."""
    program = Path(__file__).parent / "workers.py"
    tuning = subprocess.Popen([sys.executable, str(program), str(folder)], stdout=subprocess.PIPE, text=True)
    wait_until(lambda: len(list(folder.iterdir())) == 2)
    return tuning, [int(path.name) for path in folder.iterdir()]


def wait_until(true: Callable[[], bool]) -> None:
    """Give up after a minute, whatever the machine does meanwhile."""
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    pytest.fail("It did not happen.")


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@needs_signals
@pytest.mark.parametrize("pause_s", [0.0, 0.1])
def test_ctrl_c_twice_ends_with_what_was_tried_and_no_process(importable: None, tmp_path: Path, pause_s: float) -> None:
    tuning, processes = started(tmp_path)
    tuning.send_signal(signal.SIGINT)
    time.sleep(pause_s)
    tuning.send_signal(signal.SIGINT)
    said, _ = tuning.communicate(timeout=60)
    # The second may come when all is said, or while it is.
    assert tuning.returncode in (0, -signal.SIGINT)
    assert said in ("", "interrupted=True tried=3\n")
    wait_until(lambda: all(map(gone, processes)))


@needs_signals
def test_processes_end_with_one_that_is_killed(importable: None, tmp_path: Path) -> None:
    tuning, processes = started(tmp_path)
    tuning.kill()
    tuning.communicate()
    wait_until(lambda: all(map(gone, processes)))
