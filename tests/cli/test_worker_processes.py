"""``--devices`` with real processes of the emulator: the same rows as from one, also when one of them is killed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fa_bench.backends.base import RunResult
from fa_bench.backends.remote import RemoteBackend
from fa_bench.cases import Case
from fa_bench.cli.axes import merge_axes, sweep_request
from fa_bench.cli.planning import resolved, target_gpu
from fa_bench.cli.workers import opened_sets, planning_backends
from fa_bench.compiler import ptx_available
from fa_bench.measure.environment import environment
from fa_bench.model.gpu import Gpu
from fa_bench.sweep.journal import open_journal
from fa_bench.sweep.manifest import describe
from fa_bench.sweep.plan import plan
from fa_bench.sweep.runner import planned_keys, run_plan

#: Columns that differ between two runs of the same cases.
VOLATILE = ("run_id", "timestamp", "compile_ms")

SWEEP = ("sweep", "--device", "emulator", "--impl", "standard,flash2", "--seq", "16..64:16", "--head-dim", "16")

emulated = pytest.mark.skipif(ptx_available() is not None, reason=f"no PTX here: {ptx_available()}")


def steady(folder: Path) -> list[dict[str, str]]:
    with (folder / "records.csv").open(encoding="utf-8", newline="") as file:
        rows = [{name: cell for name, cell in row.items() if name not in VOLATILE} for row in csv.DictReader(file)]
    return sorted(rows, key=lambda row: row["case_id"])


def lines(path: Path) -> list[str]:
    return sorted(path.read_text(encoding="utf-8").splitlines())


@emulated
def test_processes_of_the_emulator_give_the_rows_of_one(cli: Callable, tmp_path: Path) -> None:
    assert cli(*SWEEP, "--out", "one").code == 0
    ran = cli(*SWEEP, "--out", "two", "--devices", "0,1")
    assert ran.code == 0
    assert "8 ok. Files: two" in ran.err
    assert steady(tmp_path / "two") == steady(tmp_path / "one")
    assert lines(tmp_path / "two" / "traffic.csv") == lines(tmp_path / "one" / "traffic.csv")


def kill_once_it_works(process: int) -> None:
    """kill -9 a process that has just been given its first case, once that has cost it 20 ms of CPU time.

    It first imports the emulator, which takes longer: so the case has begun and is not done.
    """

    def cpu_ticks() -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])

    before = cpu_ticks()
    while cpu_ticks() < before + 2:
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)


@emulated
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see that a process works")
@pytest.mark.parametrize("kills", [1, 2])
def test_a_worker_killed_in_the_middle_of_a_case_costs_nothing_and_twice_one_row(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    axes = merge_axes({"seq": "16..64:16", "head_dim": "16", "impl": "standard,flash2"})
    request = sweep_request(axes, "emulator", None)
    killed: list[int] = []
    with opened_sets("emulator", "0,1") as sets:
        planning = planning_backends(sets)
        made = plan(resolved(request, planning), planning, target_gpu(None, planning))
        victim = sets[0][0]
        assert isinstance(victim, RemoteBackend)
        run = victim._run

        def run_and_kill(case: Case, gpu: Gpu) -> RunResult:
            process = victim._running()._process.pid
            if len(killed) < kills:
                killed.append(process)
                threading.Thread(target=kill_once_it_works, args=(process,)).start()
            return run(case, gpu)

        monkeypatch.setattr(victim, "_run", run_and_kill)
        devices = {backend.name: backend.device for backend in sets[0]}
        manifest = describe(made, devices, ["sweep"], environment(None))
        with open_journal(tmp_path / "run", manifest, planned_keys(made, sets[0])) as journal:
            outcome = run_plan(made, sets[0], journal, beside=sets[1:])
    assert len(set(killed)) == kills  # each time another process
    failed = [record.status_reason for record in outcome.records if record.status != "ok"]
    if kills == 1:
        assert failed == []
        cli(*SWEEP, "--out", "whole", "--quiet")
        assert steady(tmp_path / "run") == steady(tmp_path / "whole")
        assert lines(tmp_path / "run" / "traffic.csv") == lines(tmp_path / "whole" / "traffic.csv")
    else:
        assert len(failed) == 1
        assert "the process that ran it died of SIGKILL" in str(failed[0])
    assert len(outcome.records) == 8


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


@emulated
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_ctrl_c_ends_all_processes_without_a_traceback(tmp_path: Path) -> None:
    program = "from fa_bench.cli.app import main; main()"
    arguments = ["sweep", "--device", "emulator", "--impl", "standard", "--seq", "8k,16k", "--devices", "0,1"]
    sweep = subprocess.Popen(
        [sys.executable, "-c", program, *arguments, "--out", str(tmp_path / "run"), "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # Both cases are on their way when run.json is there and both processes have started.
    while not ((tmp_path / "run" / "samples.jsonl").exists() and len(children(sweep.pid)) == 2):
        assert sweep.poll() is None
        time.sleep(0.01)
    workers = children(sweep.pid)
    for worker in workers:
        while int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[11]) < 30:
            time.sleep(0.01)
    os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, said
    assert "Traceback" not in said
    assert [row["status"] for row in steady(tmp_path / "run")] == 2 * ["interrupted"]
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@emulated
def test_one_process_is_enough(cli: Callable, tmp_path: Path) -> None:
    assert cli(*SWEEP, "--out", "run", "--devices", "1").code == 0
    assert len(steady(tmp_path / "run")) == 8
