"""Host memory: what is free, what a call took."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fa_bench.measure.memory import available_bytes, rss_peak, traced_peak


@pytest.fixture
def system(tmp_path: Path) -> Path:
    (tmp_path / "meminfo").write_text("MemTotal:       2000 kB\nMemFree:         100 kB\nMemAvailable:    700 kB\n")
    return tmp_path


def cgroup(folder: Path, limit: str, current: str) -> Path:
    (folder / "memory.max").write_text(limit + "\n")
    (folder / "memory.current").write_text(current + "\n")
    return folder


def test_available_is_what_the_system_says(system: Path) -> None:
    assert available_bytes(system / "meminfo", system / "nowhere") == 700 * 1024


@pytest.mark.parametrize(
    ("limit", "current", "expected"),
    [
        ("500000", "100000", 400_000),  # the container leaves less than the system's 716,800
        ("9000000", "100000", 716_800),  # more: the system decides
        ("100000", "150000", 0),  # over its limit already: nothing, not less
        ("max", "100000", 716_800),
        ("garbage", "100000", 716_800),
    ],
)
def test_a_container_may_leave_less(system: Path, limit: str, current: str, expected: int) -> None:
    assert available_bytes(system / "meminfo", cgroup(system, limit, current)) == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has a call of its own")
def test_unknown_is_none(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "meminfo", tmp_path) is None


def test_traced_peak_is_exact_for_arrays() -> None:
    def run() -> int:
        a = np.ones(1_000_000, np.uint8)
        b = np.ones(500_000, np.uint8)
        del a
        c = np.ones(700_000, np.uint8)
        return int(b[0] + c[0])

    result, peak = traced_peak(run)
    # a and b: 1.5 MB; b and c: 1.2 MB. Small Python objects add a little.
    assert result == 2 and 1_500_000 <= peak < 1_510_000


def test_traced_peak_survives_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        traced_peak(lambda: 1 // 0)
    assert traced_peak(lambda: np.ones(10**6, np.uint8).size)[1] < 1_010_000


def test_rss_peak_sees_a_short_peak() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system cannot reset its high-water mark")

    def run() -> int:
        held = np.ones(64 * 2**20, np.uint8)
        return int(held[-1])

    rss_peak(lambda: np.ones(200 * 2**20, np.uint8)[-1])  # an earlier, higher peak does not hide it
    result, peak = rss_peak(run)
    assert result == 1 and peak is not None
    assert 60 * 2**20 < peak < 80 * 2**20


def test_rss_peak_is_none_where_the_mark_did_not_rise(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("VmHWM:   9000 kB\nVmRSS:   5000 kB\n")
    assert rss_peak(lambda: 1, tmp_path) == (1, None)


def test_rss_peak_counts_from_the_present_resident_set(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("VmHWM:   5200 kB\nVmRSS:   5000 kB\n")
    result, peak = rss_peak(lambda: status.write_text("VmHWM:   9000 kB\nVmRSS:   5100 kB\n"), tmp_path)
    assert result > 0 and peak == 4000 * 1024
    assert (tmp_path / "clear_refs").read_text() == "5"
