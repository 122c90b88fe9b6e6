"""Measured peaks on disk: kept per device, found again by name or target. The figures are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fa_bench.errors import FaBenchError, UsageError
from fa_bench.filecache import PEAKS
from fa_bench.model import gpus
from fa_bench.model.peaks import MeasuredPeaks
from fa_bench.stored_peaks import find, store, stored

A100 = gpus.get("a100-sxm-80")
PEAK = MeasuredPeaks(
    device="NVIDIA A100-SXM4-80GB",
    identity="GPU-1/a",
    measured_at="2026-01-02T03:04:05+00:00",
    fp32_tflops=19.0,
    read_gbs=1800.0,
    write_gbs=1800.0,
    copy_gbs=1700.0,
)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path))
    return tmp_path / "peaks"


def test_what_was_stored_is_found_whole(folder: Path) -> None:
    store(PEAK)
    assert stored() == (PEAK,)
    assert [path.name for path in folder.iterdir()] == ["NVIDIA-A100-SXM4-80GB-GPU-1-a.json"]


def test_each_device_has_one_entry_and_the_latest_comes_first() -> None:
    newer = replace(PEAK, fp32_tflops=18.0, measured_at="2026-03-01T00:00:00+00:00")
    other = replace(PEAK, identity="GPU-2", measured_at="2026-02-01T00:00:00+00:00")
    for peaks in (PEAK, other, newer):
        store(peaks)
    assert stored() == (newer, other)


@pytest.mark.parametrize("content", ["", "{", "[]", "5", '{"device": "x"}', '{"fp64_tflops": 1}'])
def test_a_file_that_is_off_is_none(folder: Path, content: str) -> None:
    store(PEAK)
    (folder / "other.json").write_text(content)
    assert stored() == (PEAK,)


def test_found_by_the_device_first_then_by_the_target() -> None:
    unknown = replace(PEAK, device="A card of tomorrow")
    store(PEAK)
    store(unknown)
    assert find(A100) == PEAK
    assert find(A100, "A card of tomorrow") == unknown  # whose target is the nearest that the registry has
    assert find(A100, "NVIDIA A100 without an entry") == PEAK


def test_nothing_measured_is_a_sentence_and_a_step() -> None:
    store(PEAK)
    with pytest.raises(UsageError, match="no peaks of NVIDIA H100") as info:
        find(gpus.get("h100-sxm"))
    assert "doctor --peaks" in info.value.hint


def test_a_folder_that_cannot_be_written_is_said(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(FaBenchError, match="can't be kept"):
        store(PEAK)
    assert stored() == () and PEAKS.entries() == ()
