"""``--devices``, on fakes: which GPUs run cases, what fits beside each other, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fa_bench import backends


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, emulator: Callable) -> Callable[..., list]:
    """Let CUDA find GPUs of these names."""

    def install(*names: str, **options: object) -> list:
        opened = [emulator("cuda", name, **options) for name in names]
        monkeypatch.setattr(backends, "resolve_device", lambda device: ("cuda",))
        monkeypatch.setattr(backends, "device_count", lambda name: len(names))
        monkeypatch.setattr(backends, "open_apart", lambda name, *, ordinal, **options: opened[ordinal])
        return opened

    return install


GPU_SWEEP = ("sweep", "--device", "cuda", "--impl", "flash2", "--seq", "1k..4k", "--batch", "1", "--heads", "1")


@pytest.mark.parametrize(("devices", "used"), [("all", [0, 1, 2]), ("0,2", [0, 2]), ("1", [1])])
def test_a_case_runs_on_the_gpus_that_were_named(
    cli: Callable, gpus: Callable, tmp_path: Path, devices: str, used: list[int]
) -> None:
    opened = gpus(*3 * ["NVIDIA A100-SXM4-80GB"])
    assert cli(*GPU_SWEEP, "--devices", devices, "--out", "run").code == 0
    assert (tmp_path / "run" / "records.csv").read_text(encoding="utf-8").count("\n") == 1 + 3
    assert [number for number, gpu in enumerate(opened) if gpu.closed] == used
    assert sum(len(gpu.ran) for gpu in opened) == sum(len(opened[number].ran) for number in used) == 3


def test_gpus_of_different_names_are_refused(cli: Callable, gpus: Callable, tmp_path: Path) -> None:
    opened = gpus("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
    ran = cli(*GPU_SWEEP, "--devices", "all")
    assert ran.code == 2
    assert "GPU 0 is a NVIDIA A100-SXM4-80GB, GPU 2 a NVIDIA H100 80GB HBM3" in ran.err
    assert all(gpu.closed for gpu in opened)
    assert not list(tmp_path.iterdir())


def test_the_fullest_gpu_decides_what_is_skipped(cli: Callable, gpus: Callable) -> None:
    # The fake says that a case takes seq_q · seq_kv bytes: 16 MiB at 4k.
    full, empty = gpus(*2 * ["NVIDIA A100-SXM4-80GB"])
    full.free_bytes, empty.free_bytes = 1 << 20, 1 << 30
    ran = cli(*GPU_SWEEP, "--devices", "all", "--dry-run")
    assert "1 of 3 cases would run" in ran.out


def test_a_process_of_the_emulator_has_its_share_of_the_memory(
    cli: Callable, fakes: Callable, emulator: Callable
) -> None:
    # 1 MiB, 4 MiB and 16 MiB are needed, of 8 MiB each of two has 4 MiB.
    fakes(emulator(free_bytes=8 << 20))
    ran = cli("sweep", "--device", "emulator", *GPU_SWEEP[3:], "--devices", "0,1", "--dry-run")
    assert "2 of 3 cases would run" in ran.out


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ("0,0", "--devices: a number is there twice."),
        ("0,x", "--devices takes all, or numbers as in 0,2; not 'x'."),
        ("0,", "not ''."),
        ("all,0", "not 'all'."),
        ("1k", "not '1k'."),
        ("0," + 5000 * "9", "not '9"),
        ("0,5", "--devices: there is no GPU 5."),
    ],
)
def test_numbers_that_are_off_are_a_sentence(cli: Callable, gpus: Callable, devices: str, said: str) -> None:
    gpus(*2 * ["NVIDIA A100-SXM4-80GB"])
    ran = cli(*GPU_SWEEP, "--devices", devices)
    assert ran.code == 2
    assert said in ran.err


def test_what_the_host_times_is_not_run_beside_others(
    cli: Callable, fakes: Callable, emulator: Callable, host: Callable
) -> None:
    fakes(emulator(), host())
    ran = cli("sweep", "--seq", "16", "--devices", "0,1")
    assert ran.code == 2
    assert "--devices: what is timed on the host can't run beside other processes." in ran.err


def test_rows_are_listed_in_the_plans_order(cli: Callable, gpus: Callable, tmp_path: Path) -> None:
    gpus(*3 * ["NVIDIA A100-SXM4-80GB"])
    document = json.loads(cli(*GPU_SWEEP, "--devices", "all", "--out", "run", "--format", "json").out)
    assert [record["seq_q"] for record in document["records"]] == [1024, 2048, 4096]


def test_resuming_with_another_setting_is_refused(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    fakes(emulator())
    arguments = ("sweep", "--seq", "16", "--impl", "flash2", "--out", "run")
    assert cli(*arguments, "--counters", "full", "--device", "emulator").code == 0
    before = (tmp_path / "run" / "records.csv").read_bytes()
    ran = cli(*arguments, "--resume", "--device", "emulator")
    assert ran.code == 2
    assert "it was made with --counters full, this run has global" in ran.err
    assert (tmp_path / "run" / "records.csv").read_bytes() == before
    assert cli(*arguments, "--resume", "--counters", "full", "--device", "emulator", "--check").code == 2
