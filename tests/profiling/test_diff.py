"""Two profiles compared: totals, lines, rules."""

from __future__ import annotations

from dataclasses import replace

import made_profiles as reports
import pytest
from made_profiles import LINES

from fa_bench.errors import UsageError
from fa_bench.profiling.diff import METRICS, LaunchDiff, compare, parse_rules
from fa_bench.profiling.result import Line, Resources


def diff(before: tuple[Line, ...] = LINES, after: tuple[Line, ...] = LINES, **changes: object) -> LaunchDiff:
    (found,) = compare(
        reports.profile(reports.launch(lines=before)), reports.profile(reports.launch(lines=after, **changes))
    )
    return found


def broken(found: LaunchDiff, rules: str) -> list[str]:
    return [sentence for rule in parse_rules(rules) if (sentence := rule.broken(found)) is not None]


def test_the_same_is_no_change() -> None:
    found = diff()
    assert not found.changed
    assert (found.traffic, found.classes, found.lines, found.other) == ((), (), (), ())
    assert broken(found, "bytes:0,conflicts:0,registers:0,spills:0,instructions:0,wavefronts:0,smem:0") == []


def test_a_change_is_found_on_its_line_although_lines_moved() -> None:
    # Two lines were put in before the store, whose conflicts and bytes grew.
    after = (
        *LINES[:3],
        Line("k.cu", 7, "int j = i * 32;", 5, 160),
        replace(LINES[3], line=9, conflicts=33, wavefronts=35, write_sectors=64),
    )
    found = diff(after=after)
    assert {change.name: change.delta for change in found.metrics if change.delta} == {
        "bytes": 56 * 32,
        "instructions": 5,
        "conflicts": 31,
        "wavefronts": 31,
    }
    assert [(change.name, change.before, change.after) for change in found.traffic] == [("out write", 256, 2048)]
    store, added = found.lines
    assert (store.before, store.after) == (LINES[3], after[4])
    assert (store.delta("bytes"), store.delta("conflicts"), store.delta("instructions")) == (56 * 32, 31, 0)
    assert (added.before, added.after, added.delta("instructions")) == (None, after[3], 5)
    assert broken(found, "bytes:0,conflicts:0") == [
        "k: bytes grew from 512 to 2,304, most at k.cu:9: out[i] = tile[i * 2];",
        "k: conflicts grew from 2 to 33, most at k.cu:9: out[i] = tile[i * 2];",
    ]


@pytest.mark.parametrize("metric", ["bytes", "conflicts", "instructions", "wavefronts"])
def test_changes_of_lines_add_up_to_the_change(metric: str) -> None:
    after = (replace(LINES[0], instructions=99), replace(LINES[3], text="out[i] = 0;", wavefronts=9, conflicts=5))
    found = diff(after=after)
    (total,) = (change.delta for change in found.metrics if change.name == metric)
    assert sum(line.delta(metric) for line in found.lines) == total


def test_a_rewritten_line_stands_against_what_it_was() -> None:
    after = (*LINES[:3], replace(LINES[3], text="out[i] = tile[i];", conflicts=0, wavefronts=2))
    (change,) = diff(after=after).lines
    assert (change.before, change.after) == (LINES[3], after[3])
    assert change.delta("conflicts") == -2


def test_live_registers_of_lines_matter_where_the_kernels_number_changed() -> None:
    after = (replace(LINES[0], live_registers=9), *LINES[1:])
    assert diff(after=after).lines == ()
    found = diff(after=after, resources=Resources(24, 0, 256, 0))
    (change,) = found.lines
    assert change.delta("registers") == 5
    assert "registers" in found.line_metrics
    # Live registers do not add up: a line that was put in changes nothing but by what it does.
    added = Line("k.cu", 4, "int j = 0;", 1, 32, live_registers=8)
    changes = diff(after=(LINES[0], added, *LINES[1:]), resources=Resources(24, 0, 256, 0)).lines
    assert [(change.after, change.delta("registers")) for change in changes] == [(added, 0)]
    assert broken(found, "registers:0") == [
        "k: registers grew from 16 to 24, the most are live at k.cu:3: int i = threadIdx.x;"
    ]
    assert broken(found, "registers:8") == []


def test_what_is_not_known_cannot_be_held() -> None:
    found = diff(resources=Resources(None, None, 256, 0))
    assert broken(found, "registers:0") == ["k: registers can't be compared, because a profile does not know them."]
    assert broken(found, "bytes:0") == []


def test_limits() -> None:
    after = (replace(LINES[0], instructions=11), *LINES[1:])
    # 64 instructions became 65: 1.5625 % more.
    found = diff(after=after)
    assert broken(found, "instructions:0") != []
    assert broken(found, "instructions:1") == []
    assert broken(found, "instructions:1%") != []
    assert broken(found, "instructions:1.5625%") == []
    # What shrinks breaks nothing.
    assert broken(diff(before=after, after=LINES), "instructions:0") == []
    # Of nothing every share is nothing.
    grown = diff(before=tuple(replace(line, conflicts=0) for line in LINES))
    assert broken(grown, "conflicts:50%") != []


def test_every_metric_can_be_limited() -> None:
    found = diff()
    for metric in METRICS:
        assert broken(found, f"{metric}:0") == []


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("byte:0", "there is no metric 'byte'"),
        ("bytes", "bytes needs a limit"),
        ("bytes:x", "is not a whole number"),
        ("", "there is no metric ''"),
        ("bytes:0,", "there is no metric ''"),
        ("bytes:-1", "is not a whole number"),
    ],
)
def test_what_is_no_rule(rules: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_rules(rules)


def test_what_makes_profiles_hard_to_compare_is_said() -> None:
    before = reports.profile()
    after = reports.profile(
        reports.launch(grid=(4, 1, 1), compiler="NVRTC 12.9", arguments={"in": "f32[128]", "out": "f32[64]"}),
        gpu="h100-sxm",
    )
    (found,) = compare(before, after)
    assert found.other == (
        "GPU a100-sxm-80, now h100-sxm",
        "grid 2,1,1, now 4,1,1",
        "compiler NVRTC 13.5, now NVRTC 12.9",
        "arguments f32[64],f32[64], now f32[128],f32[64]",
    )
    with pytest.raises(UsageError, match="1 and 2 launches"):
        compare(before, reports.profile(reports.launch(), reports.launch()))
