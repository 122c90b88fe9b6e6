"""``doctor --peaks`` and ``--peaks measured``: measured on a fake, kept, shown, used. The figures are made up."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from fa_bench import backends
from fa_bench.backends import cuda
from fa_bench.model import gpus
from fa_bench.model.peaks import MeasuredPeaks
from fa_bench.stored_peaks import store, stored

PEAKS = MeasuredPeaks(
    device="NVIDIA A100-SXM4-80GB",
    identity="GPU-1",
    measured_at="2026-01-02T03:04:05+00:00",
    fp16_tensor_tflops=156.0,  # half of the data sheet's
    bf16_tensor_tflops=280.0,
    fp32_tflops=19.0,
    read_gbs=1019.5,  # half
    write_gbs=1000.0,
    copy_gbs=900.0,
    sm_clock_mhz=1410.0,
    mem_clock_mhz=1593.0,
)
SWEEP = ("--seq", "512", "--impl", "flash2", "--gpu", "a100-sxm-80")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards, of which the second is unknown to the registry."""

    class Backend:
        def __init__(self, ordinal: int) -> None:
            self.peaks = PEAKS if ordinal == 0 else replace(PEAKS, device="A card of tomorrow", identity="GPU-2")
            self.device = self.peaks.device

        def measure_peaks(self, now: datetime) -> MeasuredPeaks:
            return replace(self.peaks, measured_at=now.isoformat())

        def close(self) -> None:
            pass

    runtime = SimpleNamespace(getDeviceCount=lambda: 2)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))  # type: ignore[arg-type]
    monkeypatch.setattr(backends, "why_not", lambda name: None)
    monkeypatch.setattr(cuda, "CudaBackend", Backend)


def test_without_a_gpu_peaks_are_exit_code_3_and_one_sentence(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "why_not", lambda name: "The NVIDIA driver finds no GPU.")
    ran = cli("doctor", "--peaks")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("Error: The NVIDIA driver finds no GPU.")
    assert stored() == ()


def test_every_gpu_is_measured_kept_and_shown(cli: Callable, two_gpus: None) -> None:
    ran = cli("doctor", "--peaks")
    assert ran.code == 0
    assert "A100-SXM4-80GB" in ran.out and "A card of tomorrow" in ran.out
    assert "50.0 %" in ran.out and "1410 MHz" in ran.out and "not in the registry" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert {peaks.identity for peaks in stored()} == {"GPU-1", "GPU-2"}


def test_peaks_as_data(cli: Callable, two_gpus: None) -> None:
    first, second = json.loads(cli("doctor", "--peaks", "--format", "json").out)
    assert (first["fp16_tensor_tflops"], first["fp16_tensor_tflops_datasheet"]) == (156.0, 312.0)
    assert (first["read_gbs_datasheet"], first["inconsistent"]) == (2039.0, None)
    assert (second["fp32_tflops"], second["fp32_tflops_datasheet"]) == (19.0, None)
    rows = list(csv.DictReader(io.StringIO(cli("doctor", "--peaks", "--format", "csv").out)))
    assert [(row["fp16_tensor_tflops"], row["fp16_tensor_tflops_datasheet"]) for row in rows] == [
        ("156.0", "312.0"),
        ("156.0", ""),
    ]
    assert "| fp16 tensor | 156 TFLOP/s | 312 TFLOP/s | 50.0 % |" in cli("doctor", "--peaks", "--format", "md").out


def peaks_finding(cli: Callable) -> dict[str, str]:
    return next(found for found in json.loads(cli("doctor", "--format", "json").out) if found["subject"] == "peaks")


def test_doctor_shows_what_was_measured(cli: Callable) -> None:
    assert peaks_finding(cli)["state"] == "missing"
    store(PEAKS)
    found = peaks_finding(cli)
    assert found["state"] == "ok" and found["advice"] == ""
    assert found["detail"] == "NVIDIA A100-SXM4-80GB: 156 TFLOP/s fp16, 1.02 TB/s (2026-01-02)"


def test_peaks_above_the_data_sheet_are_marked(cli: Callable, two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store(replace(PEAKS, read_gbs=2500.0))
    assert peaks_finding(cli)["advice"].startswith("Inconsistent: memory read: 2.50 TB/s measured, at most 2.04 TB/s")
    ran = cli("io-model", *SWEEP, "--no-measure", "--peaks", "measured")
    assert ran.code == 0 and "inconsistent" in ran.err


def roofline(record: dict[str, str]) -> tuple[float, str]:
    return float(record["roofline_ms"]), record["roofline_source"]


def test_a_sweep_by_measured_peaks_says_so_in_each_row(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    fakes(emulator())
    store(PEAKS)
    found = []
    for which in ("datasheet", "measured"):
        ran = cli("sweep", *SWEEP, "--peaks", which, "--out", which)
        assert ran.code == 0
        assert ("Rooflines rest on measured peaks: NVIDIA A100" in ran.err) is (which == "measured")
        with (tmp_path / which / "records.csv").open(newline="") as file:
            (record,) = csv.DictReader(file)
        found.append(roofline(record))
    (by_sheet, sheet), (by_measure, measured) = found
    assert (sheet, measured) == ("datasheet", "measured")
    # One head of 512: DRAM and tensor cores both have half the rate, so the least time is twice as long.
    assert by_measure == pytest.approx(2 * by_sheet)


def test_a_run_does_not_go_on_with_other_peaks(
    cli: Callable, fakes: Callable, emulator: Callable, tmp_path: Path
) -> None:
    fakes(emulator())
    store(PEAKS)
    assert cli("sweep", *SWEEP, "--out", "run").code == 0
    ran = cli("sweep", *SWEEP, "--out", "run", "--resume", "--peaks", "measured")
    assert ran.code == 2 and "--peaks" in ran.err


def test_io_model_names_the_source_of_its_roofline(cli: Callable) -> None:
    store(PEAKS)
    command = ("io-model", *SWEEP, "--no-measure")
    (sheet,) = json.loads(cli(*command, "--format", "json").out)["cases"]
    (measured,) = json.loads(cli(*command, "--format", "json", "--peaks", "measured").out)["cases"]
    assert (sheet["roofline_source"], measured["roofline_source"]) == ("datasheet", "measured")
    assert measured["roofline_ms"] == pytest.approx(2 * sheet["roofline_ms"])
    assert "peaks that were measured" in " ".join(cli(*command, "--peaks", "measured").out.split())


def test_peaks_that_nobody_measured_are_refused(cli: Callable) -> None:
    ran = cli("io-model", *SWEEP, "--no-measure", "--peaks", "measured")
    assert ran.code == 2 and "no peaks of NVIDIA A100-SXM4-80GB were measured" in ran.err
    assert "doctor --peaks" in ran.err


def test_peaks_of_something_else_are_refused(cli: Callable) -> None:
    ran = cli("io-model", *SWEEP, "--no-measure", "--peaks", "measure")
    assert ran.code == 2 and "Did you mean 'measured'?" in ran.err


def test_the_target_of_the_tests_is_the_card_of_the_figures() -> None:
    assert gpus.find(PEAKS.device) == gpus.get("a100-sxm-80")
