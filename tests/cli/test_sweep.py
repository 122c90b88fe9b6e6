"""``fa-bench sweep`` from the command line to the files, on fake backends."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fa_bench.cases import Case
from fa_bench.errors import KernelFault
from fa_bench.records import RECORDS

OURS = ["standard", "flash1", "flash2"]
HOST = ["numpy-standard", "numpy-flash"]


def records(folder: Path) -> list[dict[str, str]]:
    with (folder / "records.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_files_and_summary(
    cli: Callable, fakes: Callable, emulator: Callable, host: Callable, tmp_path: Path
) -> None:
    opened = (emulator(), host())
    fakes(*opened)
    ran = cli("sweep", "--seq", "256,512", "--out", "run")
    assert ran.code == 0
    assert [row["impl"] for row in records(tmp_path / "run")] == 2 * [*OURS, *HOST]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "records.csv", "run.json", "samples.jsonl", "traffic.csv",
    ]  # fmt: skip
    lines = ran.out.splitlines()
    assert lines[0] == "emulated for a100-sxm-80; fp16, D=64, full, bhsd, B=1, H=1"
    assert sum("= model ok 1.0e-04" in line for line in lines) == 6
    assert any(line.split() == ["256", "numpy-flash", "1.00", "s", "-", "-", "-", "ok", "1.0e-04"] for line in lines)
    assert any(line.startswith("Global bytes") for line in lines)
    assert "10 ok. Files: run" in ran.err
    assert max(map(len, lines)) <= 80
    assert all(backend.closed for backend in opened)


def test_the_command_that_repeats_the_run_is_the_one_given(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    fakes(emulator())
    cli("sweep", "--seq", "16", "--impl", "flash2", "--out", "a run")
    manifest = json.loads((tmp_path / "a run" / "run.json").read_text())
    assert manifest["command"] == "fa-bench sweep --seq 16 --impl flash2 --out 'a run'"


def test_without_out_the_folder_is_named_after_the_run(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    fakes(emulator())
    ran = cli("sweep", "--seq", "16", "--impl", "flash2", "--format", "json", "--quiet")
    run_id = json.loads(ran.out)["run_id"]
    assert [path.name for path in (tmp_path / "results").iterdir()] == [run_id]
    assert ran.err == ""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"wrong": True}, "wrong_result"),
        ({"extra_bytes": 32}, "the bytes counted are not those of the model"),
    ],
)
def test_a_failed_row_is_said_and_the_code_is_1(
    fault: dict, said: str, cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    fakes(emulator(**fault))
    ran = cli("sweep", "--seq", "16,32", "--impl", "flash2", "--out", "run", "--quiet")
    assert ran.code == 1
    assert ran.err.count(said) == 2
    assert len(records(tmp_path / "run")) == 2


def test_one_fault_is_one_row_and_the_sweep_goes_on(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    def fault(case: Case) -> None:
        if case.impl == "flash1":
            raise KernelFault("Warp 3 waits at barrier 1.")

    fakes(emulator(on_run=fault))
    ran = cli("sweep", "--seq", "16", "--out", "run")
    assert ran.code == 1
    assert "flash1" in ran.err
    assert "Warp 3 waits at barrier 1." in ran.err
    assert [row["status"] for row in records(tmp_path / "run")] == ["ok", "error", "ok"]


def test_what_does_not_fit_is_skipped_with_its_reason_and_is_no_failure(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    # The fake says that a case takes seq_q · seq_kv bytes: 64 · 64 = 4 KiB fit in 4 KiB, 128 · 128 = 16 KiB don't.
    fakes(emulator(free_bytes=4096))
    ran = cli("sweep", "--seq", "64,128", "--impl", "flash2", "--out", "run")
    assert ran.code == 0
    assert "1 skipped (flash2): It needs 16 KiB of memory; 4 KiB are free." in ran.err
    assert [row["status"] for row in records(tmp_path / "run")] == ["ok", "skipped"]


def test_dry_run_shows_the_plan_and_writes_nothing(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    backend = emulator(free_bytes=4096)
    fakes(backend)
    ran = cli("sweep", "--seq", "64,128", "--impl", "flash2", "--dry-run")
    assert ran.code == 0
    assert "1 of 2 cases would run" in ran.out
    assert "4 KiB" in ran.out
    flat = cli("sweep", "--seq", "64,128", "--impl", "flash2", "--dry-run", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(flat.out)))
    assert [(row["plan"], row["required_bytes"]) for row in rows] == [("run", "4096"), ("skipped", "16384")]
    assert rows[1]["reason"] == "It needs 16 KiB of memory; 4 KiB are free."
    assert not backend.ran
    assert not list(tmp_path.iterdir())


def test_csv_is_what_the_file_holds(
    cli: Callable, fakes: Callable, emulator: Callable, host: Callable, tmp_path: Path
) -> None:
    fakes(emulator(), host())
    ran = cli("sweep", "--seq", "64", "--out", "run", "--format", "csv")
    assert ran.out == (tmp_path / "run" / "records.csv").read_text(encoding="utf-8")


def test_json_and_markdown(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator())
    document = json.loads(cli("sweep", "--seq", "64", "--out", "a", "--format", "json").out)
    assert (document["schema"], document["folder"], document["interrupted"]) == (1, "a", False)
    assert [record["impl"] for record in document["records"]] == OURS
    assert tuple(document["records"][0]) == RECORDS.columns
    markdown = cli("sweep", "--seq", "64", "--out", "b", "--format", "md").out
    assert "| 64 | flash2 " in markdown
    assert "| seq | standard | flash1 | flash2 |" in markdown


def test_an_interrupted_sweep_keeps_its_rows_and_resumes(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    def interrupt(case: Case) -> None:
        if case.shape.seq_q == 64:
            raise KeyboardInterrupt

    fakes(emulator(on_run=interrupt))
    ran = cli("sweep", "--seq", "32,64,128", "--impl", "flash2", "--out", "run")
    assert ran.code == 130
    assert "--resume --out run" in ran.err
    assert [row["status"] for row in records(tmp_path / "run")] == ["ok", "interrupted"]

    resumed = emulator()
    fakes(resumed)
    ran = cli("sweep", "--seq", "32,64,128", "--impl", "flash2", "--out", "run", "--resume")
    assert ran.code == 0
    assert [case.shape.seq_q for case in resumed.ran] == [64, 128]
    assert "3 ok (1 of them from before)" in ran.err
    assert [row["status"] for row in records(tmp_path / "run")] == 3 * ["ok"]

    # Now it is finished: no row is left to run, so there is no head of a table either.
    again = cli("sweep", "--seq", "32,64,128", "--impl", "flash2", "--out", "run", "--resume")
    assert (again.code, resumed.ran[2:]) == (0, [])
    assert ("flash2" in ran.out, "flash2" in again.out) == (True, False)
    assert "3 ok (3 of them from before)" in again.err


def test_resuming_what_is_not_there_says_that_a_run_starts(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator())
    sweep = ("sweep", "--seq", "32", "--impl", "flash2", "--out", "nope", "--resume")
    note = "nope holds no run to go on with: a new one starts there."
    assert note in cli(*sweep).err
    assert note not in cli(*sweep).err


def test_on_a_gpu_the_default_shape_is_the_papers(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    # 16k tokens at seq 2k are a batch of 8, a hidden size of 2048 at D = 128 is 16 heads.
    backend = emulator("cuda", "NVIDIA A100-SXM4-80GB")
    fakes(backend)
    ran = cli("sweep", "--seq", "2k", "--head-dim", "128", "--impl", "flash2", "--out", "run")
    assert ran.code == 0
    assert [(case.shape.batch, case.shape.heads_q) for case in backend.ran] == [(8, 16)]
    assert ran.out.startswith("on a100-sxm-80; ")
    assert "1.00 s" in ran.out


def test_a_gpu_shape_that_was_given_stays(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator("cuda", "NVIDIA A100-SXM4-80GB")
    fakes(backend)
    cli("sweep", "--seq", "32k", "--impl", "flash2", "--out", "a", "--heads", "3")
    cli("sweep", "--seq", "64", "--impl", "flash2", "--out", "b", "--batch", "2")
    # 32k is more than 16k tokens: a batch of one.
    assert [(case.shape.batch, case.shape.heads_q) for case in backend.ran] == [(1, 3), (2, 32)]


def test_a_packed_batch_is_one_case_and_its_lengths_are_in_the_row(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    # On a GPU too, where a batch follows from tokens otherwise.
    backend = emulator("cuda", "NVIDIA A100-SXM4-80GB")
    fakes(backend)
    ran = cli("sweep", "--seqlens", "128,0x64,300x200", "--impl", "flash2,standard", "--heads", "2", "--out", "run")
    assert ran.code == 0
    assert [case.shape.batch for case in backend.ran] == [3]
    assert "standard has no packed batch in its fwd pass." in ran.err
    ours = next(row for row in records(tmp_path / "run") if row["impl"] == "flash2")
    assert ours["seqlens"] == "128x128 0x64 300x200"
    assert (ours["batch"], ours["seq_q"], ours["seq_kv"]) == ("3", "300", "200")
    assert "B=3 (128x128 0x64 300x200)" in ran.out


def test_a_gpu_that_the_registry_lacks_is_named(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator("cuda", "NVIDIA Unheard 9000"))
    ran = cli("sweep", "--seq", "64", "--impl", "flash2")
    assert ran.code == 2
    assert "'NVIDIA Unheard 9000'" in ran.err
    assert "--gpu" in ran.err


def test_an_absent_device_is_exit_code_3(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench import backends
    from fa_bench.errors import DeviceUnavailable

    def absent(device: str) -> None:
        raise DeviceUnavailable("CuPy is not installed.", hint="Use --device emulator.")

    monkeypatch.setattr(backends, "resolve_device", absent)
    ran = cli("sweep", "--device", "cuda")
    assert ran.code == 3
    assert ran.err.splitlines() == ["Error: CuPy is not installed.", "       Use --device emulator."]


def test_all_is_everything_here_and_auto_is_ours_and_numpy(
    cli: Callable, fakes: Callable, emulator: Callable, host: Callable
) -> None:
    host = host("torch-math")
    fakes(emulator(), host)
    for impl, expected in (("auto", [*OURS, *HOST]), ("all", [*OURS, *HOST, "torch-math"]), ("all,flash2", None)):
        document = json.loads(cli("sweep", "--seq", "16", "--impl", impl, "--out", impl, "--format", "json").out)
        assert [record["impl"] for record in document["records"]] == (expected or [*OURS, *HOST, "torch-math"])


def test_without_a_compiler_numpy_runs_and_a_sentence_says_why(
    cli: Callable, fakes: Callable, host: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fa_bench import backends

    fakes(host())
    monkeypatch.setattr(backends, "why_not", lambda name: "NVRTC is not installed.")
    ran = cli("sweep", "--seq", "16", "--out", "run")
    assert ran.code == 0
    assert "Our kernels are left out: NVRTC is not installed." in ran.err
    assert ran.out.startswith("on the host; ")


def test_a_kernel_of_ours_that_nothing_here_can_run_is_exit_code_3(
    cli: Callable, fakes: Callable, host: Callable
) -> None:
    fakes(host())
    ran = cli("sweep", "--impl", "flash2")
    assert ran.code == 3
    assert "flash2 needs a GPU or the emulator" in ran.err
    assert cli("sweep", "--impl", "flash2", "--device", "host").code == 2  # here the words are off


def test_torch_that_is_not_here_is_exit_code_3(
    cli: Callable, fakes: Callable, emulator: Callable, host: Callable
) -> None:
    fakes(emulator(), host())
    ran = cli("sweep", "--impl", "torch-math")
    assert ran.code == 3
    assert "torch-math does not run here" in ran.err


def test_rows_that_would_be_too_wide_get_a_heading(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator())
    ran = cli("sweep", "--seq", "64", "--head-dim", "64,128", "--dtype", "fp16,fp32", "--causal", "both", "--out", "r")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "seq 64, fp32, D=128, causal" in lines
    assert lines.count("seq 64, fp16, D=64, full") == 1


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_status_line_and_stdout_stays_clean(
    cli: Callable, fakes: Callable, monkeypatch: pytest.MonkeyPatch, emulator: Callable
) -> None:
    fakes(emulator())
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ran = cli("sweep", "--seq", "16,32,64,128", "--impl", "flash2", "--out", "run", "--format", "csv")
    assert "done; flash2" in terminal.getvalue()
    assert len(ran.out.splitlines()) == 5
    assert "\x1b" not in ran.out


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process")
def test_a_real_interrupt(tmp_path: Path) -> None:
    """Ctrl-C in a process of its own: the finished rows stay, exit code 130."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from conftest import FakeBackend
from fa_bench import backends
from fa_bench.cli.app import main

def interrupt(case):
    if case.shape.seq_q == 64:
        os.kill(os.getpid(), signal.SIGINT)

backends.resolve_device = lambda device: ("emulator",)
backends.open_backend = lambda name, **options: FakeBackend(on_run=interrupt)
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "sweep", "--seq", "32,64,128", "--impl", "flash2", "--out", "run"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert [row["status"] for row in records(tmp_path / "run")] == ["ok", "interrupted"]


def test_full_counters_need_the_emulator(cli: Callable, fakes: Callable, host: Callable) -> None:
    fakes(host())
    ran = cli("sweep", "--seq", "64", "--device", "host", "--counters", "full")
    assert ran.code == 2
    assert "--counters full needs the emulator." in ran.err
