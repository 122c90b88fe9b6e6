"""Two run folders: verdicts on sample files with known answers, and what bars them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sample_runs import BIMODAL, CONSTANT, DRIFT, NOISE, failed, record, timed, write, write_timed

from fa_bench.comparison.compare import Comparison, compare
from fa_bench.comparison.runs import load


def compared(tmp_path: Path, before: Any, after: Any, **options: Any) -> Comparison:
    """Compare two timed rows: ``(samples, fields of the record, about the run)``, the last two as they are needed."""
    paths = []
    for name, (times, *more) in (("a", before), ("b", after)):
        fields, about = [*more, {}, {}][:2]
        paths.append(write_timed(tmp_path / name, times, about=about, **fields))
    return compare(*map(load, paths), **options)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (CONSTANT, [1.1 * t for t in CONSTANT], "slower"),
        (CONSTANT, [0.9 * t for t in CONSTANT], "faster"),
        (CONSTANT, [1.01 * t for t in CONSTANT], "same"),
        (NOISE, NOISE, "same"),
        (NOISE, [1.025 * t for t in NOISE], "ambiguous"),
        (BIMODAL, BIMODAL, "ambiguous"),
        (CONSTANT, DRIFT, "ambiguous"),
        (CONSTANT, CONSTANT[:1], "unknown"),
        (CONSTANT[:1], CONSTANT, "unknown"),
    ],
)
def test_verdicts_on_files(tmp_path: Path, before: Any, after: Any, verdict: str) -> None:
    (pair,) = compared(tmp_path, (before,), (after,)).pairs
    assert pair.time.verdict == verdict
    assert (pair.time.ratio is None) == (verdict == "unknown")
    if after is DRIFT:
        assert pair.time.reason == f"times drift in {tmp_path / 'b'}"


def test_the_margin_decides_what_counts_as_none(tmp_path: Path) -> None:
    (pair,) = compared(tmp_path, (NOISE,), (NOISE,), margin=Fraction(5, 1000)).pairs
    assert pair.time.verdict == "ambiguous"


def test_without_times_there_is_no_verdict(tmp_path: Path) -> None:
    a, b = (write(tmp_path / name, [record()]) for name in "ab")
    (pair,) = compare(load(a), load(b)).pairs
    assert (pair.time.verdict, pair.time.ratio, pair.changed) == ("none", None, ())


def test_a_row_that_failed_has_no_time_to_compare(tmp_path: Path) -> None:
    a = write_timed(tmp_path / "a", CONSTANT)
    b = write(tmp_path / "b", [failed("oom")])
    (pair,) = compare(load(a), load(b)).pairs
    assert pair.time.verdict == "unknown"
    assert pair.time.reason == f"{b} has no time"


@pytest.mark.parametrize(
    ("fields", "warning", "what"),
    [
        ({"device": "another GPU"}, "Not the same: device a GPU, now another GPU (1 pair).", "device"),
        ({"time_source": "host-clock"}, "Not the same: timer cuda-events, now host-clock (1 pair).", "timer"),
        ({"l2_state": "warm"}, "Not the same: L2 state cold, now warm (1 pair).", "L2 state"),
        ({"l2_state": None}, "Not the same: L2 state cold, now not known (1 pair).", "L2 state"),
    ],
)
def test_times_of_other_devices_timers_and_l2_states_are_not_compared(
    tmp_path: Path, fields: dict[str, Any], warning: str, what: str
) -> None:
    found = compared(tmp_path, (CONSTANT,), (CONSTANT, fields))
    assert found.warnings == (f"{warning} Times are not compared.",)
    assert found.pairs[0].time.verdict == "unknown"
    assert found.pairs[0].time.reason == f"another {what}"


@pytest.mark.parametrize(
    ("fields", "about", "warning"),
    [
        ({"sm_clock_mhz": 1380.0}, {}, "Not the same: SM clock 1.41 GHz, now 1.38 GHz (1 pair)."),
        ({"sm_clock_mhz": None}, {}, "Not the same: SM clock 1.41 GHz, now not known (1 pair)."),
        ({"throttled": True}, {}, "Not the same: throttled no, now yes (1 pair)."),
        ({"noisy": True}, {}, "Not the same: noisy no, now yes (1 pair)."),
        ({"launch_bound": True}, {}, "Not the same: launch-bound no, now yes (1 pair)."),
        ({"nvrtc_version": "12.9"}, {}, "Not the same: NVRTC 13.0, now 12.9 (1 pair)."),
        ({"impl_version": "2"}, {}, "Not the same: version of flash2 1, now 2 (1 pair)."),
        ({"err_reference": "part"}, {}, "Not the same: reference of the error fp64, now part (1 pair)."),
        ({"gpu": "h100-sxm"}, {}, "Not the same: target GPU a100-sxm-80, now h100-sxm (1 pair)."),
        ({}, {"driver": "560.1"}, "Not the same: driver 550.54, now 560.1 (1 pair)."),
        ({}, {"driver": None}, "Not the same: driver 550.54, now not known (1 pair)."),
        ({}, {"tool_version": "0.2.0"}, "Not the same: fa-bench 0.1.0, now 0.2.0 (1 pair)."),
    ],
)
def test_other_conditions_are_said_and_the_times_compared(
    tmp_path: Path, fields: dict[str, Any], about: dict[str, Any], warning: str
) -> None:
    found = compared(tmp_path, (CONSTANT,), (CONSTANT, fields, about))
    assert found.warnings == (warning,)
    assert found.pairs[0].time.verdict == "same"


def test_a_clock_within_2_percent_is_the_same(tmp_path: Path) -> None:
    # 2 % of 1410 MHz are 28.2 MHz.
    assert compared(tmp_path, (CONSTANT,), (CONSTANT, {"sm_clock_mhz": 1382.0})).warnings == ()


def test_what_both_sides_have_is_said_too(tmp_path: Path) -> None:
    found = compared(tmp_path, (CONSTANT, {"throttled": True}), (CONSTANT, {"throttled": True}))
    assert found.warnings == ("Mind: throttled in both (1 pair).",)


def test_one_warning_for_all_pairs_and_bars_first(tmp_path: Path) -> None:
    rows = [timed(CONSTANT, case_id=c, sm_clock_mhz=1410.0 + k) for k, c in enumerate("xyz")]
    others = [timed(CONSTANT, case_id=c, sm_clock_mhz=1000.0 + k, device="B") for k, c in enumerate("xyz")]
    found = compare(load(write(tmp_path / "a", rows)), load(write(tmp_path / "b", others)))
    assert found.warnings == (
        "Not the same: device a GPU, now B (3 pairs). Times are not compared.",
        "Not the same: SM clock 1.41 GHz, now 1.00 GHz (3 pairs).",
    )


def test_the_cpu_that_counts_bytes_does_not_matter(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [record(backend="emulator", device="one CPU")])
    b = write(tmp_path / "b", [record(backend="emulator", device="another CPU")], driver=None)
    assert compare(load(a), load(b)).warnings == ()


def test_rows_without_a_partner_of_the_same_case_may_have_one_of_the_same_shape(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [record(case_id="x", block_m=64)])
    b = write(tmp_path / "b", [record(case_id="y", block_m=128)])
    found = compare(load(a), load(b))
    assert found.warnings == ("1 row without a partner has one of the same shape: --by shape pairs them.",)
    assert (len(found.pairs), len(found.only_before), len(found.only_after)) == (0, 1, 1)
    assert len(compare(load(a), load(b), "shape").pairs) == 1
    c = write(tmp_path / "c", [record(case_id="z", seq_q=7)])
    assert compare(load(a), load(c), "shape").warnings == ("No two rows pair.",)
