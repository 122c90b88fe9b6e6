"""``--counters ncu``: columns, failures that cost no row, and the grammar. The GPU and ncu are stand-ins of ours."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fa_bench import backends
from fa_bench.cases import Case
from fa_bench.cli.counters import Counters, parsed
from fa_bench.errors import UsageError
from fa_bench.measure import ncu_process

A100 = "NVIDIA A100-SXM4-80GB"
SWEEP = (
    "sweep",
    "--device",
    "cuda",
    "--seq",
    "128",
    "--batch",
    "1",
    "--heads",
    "1",
    "--impl",
    "flash2",
    "--out",
    "run",
)
IO_MODEL = ("io-model", "--seq", "128", "--impl", "flash2", "--block", "64x64")
#: Of 128 queries, D = 64, tile 64x64, fp16: Q once, K and V by each of the two tiles of Q; O once, LSE in fp32.
READ, WRITTEN = 128 * 128 + 2 * 2 * 128 * 128, 128 * 128 + 4 * 128
PERMISSION = [
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
]


@pytest.fixture
def gpu(fakes: Callable, emulator: Callable) -> list[Case]:
    """A GPU that times, and an emulator that counts; what the GPU ran."""
    cuda = emulator("cuda", device=A100)
    fakes(cuda, emulator())
    return cuda.ran  # type: ignore[no-any-return]


def rows(name: str = "records") -> list[dict[str, str]]:
    with Path(f"run/{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_measured_columns_stand_beside_the_model(cli: Callable, gpu: list[Case], fake_ncu: Any) -> None:
    fake_ncu.answers(like_the_model=True)
    ran = cli(*SWEEP, "--block", "64x64", "--counters", "ncu")
    assert ran.code == 0, ran.err
    (row,) = rows()
    assert (row["counter_status"], row["counter_kernels"]) == ("ok", "1")
    assert row["counter_mode"] == "ncu 2024.3.2.0, kernel replay, caches flushed, clocks free"
    for level in ("global", "l2", "dram"):
        assert (int(row[f"{level}_read_bytes_measured"]), int(row[f"{level}_write_bytes_measured"])) == (READ, WRITTEN)
    assert row["global_read_bytes_measured"] == row["global_read_bytes_model"]
    # The time is the run's own, before ncu; nothing of the emulator was asked.
    assert (row["time_ms"], row["global_read_bytes_emulated"]) == ("1000.0", "")
    lines = [line for line in rows("traffic") if line["source"] == "measured"]
    assert {(line["kernel"], line["tensor"]) for line in lines} == {("flash2_fwd", "all")} and len(lines) == 6


def test_all_kernels_of_standard_attention_are_summed(cli: Callable, gpu: list[Case], fake_ncu: Any) -> None:
    fake_ncu.answers(like_the_model=True)
    assert cli(*(part if part != "flash2" else "standard" for part in SWEEP), "--counters", "ncu").code == 0
    (row,) = rows()
    assert row["counter_kernels"] == "3"
    assert row["global_read_bytes_measured"] == row["global_read_bytes_model"]


@pytest.mark.parametrize(
    ("answer", "status", "advice"),
    [
        ({"say": PERMISSION}, "no_permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ({"say": ["==ERROR== Cuda driver is not compatible with Nsight Compute."], "returncode": 11}, "incompatible",
         "of the driver's CUDA version"),
        ({"say": ["==ERROR== Unknown Error on device 0."]}, "failed", "counter_reason in records.csv"),
        ({"say": ["==WARNING== No kernels were profiled."], "returncode": 0}, "no_kernels", "by hand"),
        ({"kernels": [{"name": "flash2_fwd", "counts": {}}]}, "unreliable", ""),
        ({"kernels": [{"name": "somebody_elses", "counts": {}}]}, "no_kernels", "by hand"),
    ],
)  # fmt: skip
def test_a_failure_leaves_blanks_a_reason_and_one_hint(
    cli: Callable, gpu: list[Case], fake_ncu: Any, answer: dict[str, Any], status: str, advice: str
) -> None:
    fake_ncu.answers(**answer)
    ran = cli(*SWEEP, "--seq", "128,256", "--counters", "ncu")
    assert ran.code == 0, ran.err
    for row in rows():
        assert (row["status"], row["counter_status"]) == ("ok", status)
        assert row["counter_reason"]
        assert {value for column, value in row.items() if column.endswith("_measured")} == {""}
        assert row["time_ms"] and row["global_read_bytes_model"] and row["dram_read_bytes_model"]
    assert len(rows()) == 2
    assert ran.err.count("--counters ncu:") == (1 if advice else 0) and advice in ran.err


def test_without_ncu_times_and_predictions_are_written_all_the_same(
    cli: Callable, gpu: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu_process, "_PLACES", ())
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    ran = cli(*SWEEP, "--counters", "ncu")
    (row,) = rows()
    assert (ran.code, row["counter_status"], row["time_ms"]) == (0, "absent", "1000.0")
    assert "Install NVIDIA Nsight Compute" in ran.err


def test_required_counters_that_are_missing_are_exit_code_1(cli: Callable, gpu: list[Case], fake_ncu: Any) -> None:
    fake_ncu.answers(say=PERMISSION)
    for command in (SWEEP, IO_MODEL):
        assert cli(*command, "--counters", "ncu", "--require-counters").code == 1
    fake_ncu.answers(like_the_model=True)
    for command in ((*SWEEP[:-1], "other"), IO_MODEL):
        assert cli(*command, "--counters", "ncu", "--require-counters").code == 0
    ran = cli(*SWEEP, "--require-counters")
    assert ran.code == 2 and "Add --counters ncu." in ran.err


def test_a_metric_that_the_gpu_lacks_leaves_one_column_blank(cli: Callable, gpu: list[Case], fake_ncu: Any) -> None:
    fake_ncu.answers(like_the_model=True, unknown=["dram__bytes_read.sum", "dram__bytes_op_read.sum"])
    assert cli(*SWEEP, "--counters", "ncu").code == 0
    (row,) = rows()
    assert (row["counter_status"], row["counter_reason"]) == ("ok", "ncu has no figure here of: dram_read.")
    assert row["dram_read_bytes_measured"] == "" and row["dram_write_bytes_measured"] and row["l2_read_bytes_measured"]


@pytest.mark.parametrize("words", ["ncu,emulator", "ncu,full"])
def test_the_emulator_counts_beside(cli: Callable, gpu: list[Case], fake_ncu: Any, words: str) -> None:
    fake_ncu.answers(like_the_model=True)
    assert cli(*SWEEP, "--counters", words).code == 0
    (row,) = rows()
    assert row["global_read_bytes_emulated"] == row["global_read_bytes_model"] == row["global_read_bytes_measured"]
    assert (row["backend"], row["time_ms"]) == ("cuda", "1000.0")
    assert {line["source"] for line in rows("traffic")} == {"model", "emulated", "measured"}


def test_io_model_shows_the_three_sources_in_80_columns(cli: Callable, gpu: list[Case], fake_ncu: Any) -> None:
    fake_ncu.answers(like_the_model=True)
    ran = cli(*IO_MODEL, "--counters", "ncu,emulator")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert f"By level, {A100}" in lines
    assert ["global", "read", *[f"{READ:,}"] * 3, "0"] in [line.split() for line in lines]
    assert "Global: as expected, to the byte." in lines
    assert max(map(len, lines)) <= 80
    (case,) = json.loads(cli(*IO_MODEL, "--counters", "ncu", "--format", "json").out)["cases"]
    assert case["hardware"]["levels"][2] == {
        "level": "l2", "op": "read", "model_bytes": None, "emulated_bytes": None, "measured_bytes": READ,
    }  # fmt: skip
    assert case["source"] is None


def test_io_model_says_why_there_are_no_counts(cli: Callable, gpu: list[Case], fake_ncu: Any) -> None:
    fake_ncu.answers(say=PERMISSION)
    ran = cli(*IO_MODEL, "--counters", "ncu")
    assert ran.code == 0
    assert "Not measured, no_permission: ncu may not read the GPU's performance counters" in ran.out
    assert ran.err.count("--counters ncu:") == 1


def test_without_a_gpu_it_is_exit_code_3_and_says_what_to_use(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    why = {"cuda": "The NVIDIA driver finds no GPU."}
    monkeypatch.setattr(backends, "why_not", why.get)
    monkeypatch.setattr(backends, "resolve_device", lambda device: ("emulator",))
    for command in ("sweep", "io-model"):
        ran = cli(command, "--seq", "64", "--counters", "ncu")
        assert ran.code == 3
        assert "--counters ncu reads a GPU's hardware counters: The NVIDIA driver finds no GPU." in ran.err
        assert "--counters full" in ran.err
    ran = cli("sweep", "--seq", "64", "--device", "emulator", "--counters", "ncu,emulator")
    assert ran.code == 3 and "--device emulator has none." in ran.err


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("global", Counters("global", ncu=False, beside=False)),
        ("full", Counters("full", ncu=False, beside=False)),
        ("emulator", Counters("global", ncu=False, beside=True)),
        ("ncu", Counters("global", ncu=True, beside=False)),
        ("ncu,emulator", Counters("global", ncu=True, beside=True)),
        ("full, ncu", Counters("full", ncu=True, beside=True)),
        ("emulator,full", Counters("full", ncu=False, beside=True)),
    ],
)
def test_words_of_counters(text: str, asked: Counters) -> None:
    assert parsed(text) == asked


@pytest.mark.parametrize(
    ("text", "says"),
    [("ncuu", "no 'ncuu'"), ("", "no ''"), ("full,global", "one of the two"), ("ncu,ncu", "ncu is there twice")],
)
def test_words_that_mean_nothing_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parsed(text)
