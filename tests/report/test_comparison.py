"""What people, CSV, JSON and a CI are shown of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_runs import BIMODAL, CONSTANT, NOISE, failed, moved, record, timed, write

from fa_bench.cli.output import Format, Output
from fa_bench.comparison.compare import Comparison, compare
from fa_bench.comparison.rules import judge, parse_rules
from fa_bench.comparison.runs import load
from fa_bench.report import comparison as report


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """One pair that is slower, one ambiguous, one that moves other bytes in another tile, one that broke, two alone."""
    monkeypatch.chdir(tmp_path)
    slower = timed(CONSTANT, case_id="s"), timed([1.1 * t for t in CONSTANT], case_id="s", registers=140)
    two_modes = timed(BIMODAL, case_id="m", seq_q=8192, seq_kv=8192)
    sizes = 2**34, 2**35
    tiles = [
        record(case_id="t0", impl="flash1", block_m=128, global_read_bytes_model=sizes[0]),
        record(case_id="t1", impl="flash1", block_m=64, global_read_bytes_model=sizes[1], max_abs_err=2e-4),
    ]
    broke = record(case_id="b", impl="standard"), failed(case_id="b", impl="standard", registers=128)
    alone = record(case_id="x", causal=True), record(case_id="y", dtype="bf16")
    sides = []
    for k, name in enumerate(("before", "after")):
        rows = [slower[k], two_modes, tiles[k], broke[k], alone[k]]
        times = [(slower[k], [CONSTANT, [1.1 * t for t in CONSTANT]][k]), (two_modes, BIMODAL)]
        traffic = [moved("K", "read", sizes[k], case_id=f"t{k}")]
        write(Path(name), rows, times, traffic)  # type: ignore[arg-type]
        sides.append(load(Path(name)))
    return compare(*sides, "shape")


def drawn(compared: Comparison, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    Output(Format.TABLE).emit(report.comparison_tables(compared), [])
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


def test_tables_fit_80_columns(
    compared: Comparison, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = drawn(compared, capsys, monkeypatch)
    assert max(map(len, text.splitlines())) <= 80
    assert "1 slower, 1 ambiguous" in text
    assert "1.10× (1.100 to 1.100)" in text
    assert "1.00× (0.833 to 1.200)" in text
    assert "flash1, 4k fp16 full; block_m 128, now 64" in text
    (line,) = (line for line in text.splitlines() if line.startswith("global K read"))
    assert line.split() == ["global", "K", "read", "model", "17,179,869,184", "34,359,738,368", "+17,179,869,184"]
    errors = [line.split() for line in text.splitlines() if line.startswith("error  ")]
    assert errors == [["error", "1.0e-04", "2.0e-04", "+100.0", "%"], ["error", "1.0e-04", "-", "-"]]
    assert "error: It broke" in text
    (before, after) = (line for line in text.splitlines() if line.startswith(("before  ", "after  ")))
    assert "causal" in before
    assert "bf16" in after


def test_runs_that_are_the_same_have_little_to_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (load(write(tmp_path / name, [record()])) for name in "ab")
    found = compare(a, b)
    assert len(report.comparison_tables(found)) == 1
    text = drawn(found, capsys, monkeypatch)
    assert "none has one" in text
    assert "not known" in text
    one = record(global_read_bytes_model=1, global_write_bytes_model=1)
    c, d = (load(write(tmp_path / name, [one])) for name in "cd")
    assert "nothing changed" in drawn(compare(c, d), capsys, monkeypatch)


def test_sentences(compared: Comparison) -> None:
    outcomes = judge(compared, parse_rules(["slower:2%", "bytes:0", "dram:0", "missing:0", "registers:0"]))
    assert report.broken_sentences(compared, outcomes) == [
        "flash2 128x64/1, 4k fp16 full: 10.0 % slower, between +10.0 % and +10.0 %.",
        "flash1, 4k fp16 full: global bytes grew from 17,179,869,184 to 34,359,738,368 (model), most in "
        "global K read 17,179,869,184 -> 34,359,738,368 (+17,179,869,184, block_m 128 -> 64).",
        "dram:0: no pair has such a figure.",
        "missing:0: 1 row of before missing in after.",
        "flash2 128x64/1, 4k fp16 full: registers grew from 128 to 140.",
    ]
    assert report.undecided_sentences(outcomes) == [
        "slower:2% is not decided in 1 pair: more samples would tell, and ambiguous:0 would make it a failure."
    ]


def test_rows(compared: Comparison) -> None:
    rows = report.comparison_rows(compared)
    assert set().union(*rows) == set(report.HEADER)
    by_figure = [(row["impl"], row.get("figure"), row.get("before"), row.get("after")) for row in rows]
    assert ("flash1", "global K read", 2**34, 2**35) in by_figure
    assert ("flash2", "registers", 128, 140) in by_figure
    (slower,) = (row for row in rows if row.get("verdict") == "slower")
    assert (slower["ratio"], slower["ratio_low"], slower["ratio_high"]) == (pytest.approx(1.1),) * 3
    tile = next(row for row in rows if row["impl"] == "flash1")
    assert (tile["block_m_before"], tile["block_m_after"]) == (128, 64)
    assert [(row["case_id_before"], row["case_id_after"]) for row in rows[-2:]] == [("x", None), (None, "y")]


def test_document(compared: Comparison) -> None:
    outcomes = judge(compared, parse_rules(["slower:2%"]))
    found = report.document(compared, outcomes)
    assert (found["before"], found["after"], found["by"], found["margin"]) == ("before", "after", "shape", 0.02)
    assert found["verdicts"] == {"slower": 1, "ambiguous": 1, "none": 2}
    assert [rule["state"] for rule in found["rules"]] == ["broken", "skipped", "skipped", "skipped"]
    assert len(found["broken_rules"]) == 1
    flash1 = found["pairs"][2]
    assert flash1["figures"][0] == {
        "figure": "global K read", "sources": ["model"], "before": 2**34, "after": 2**35, "delta": 2**34,
    }  # fmt: skip
    assert [row["case_id"] for row in found["only_before"]] == ["x"]


def test_there_is_a_test_case_per_pair_and_rule(compared: Comparison) -> None:
    cases = report.junit_cases(compared, judge(compared, parse_rules(["registers:0", "missing:0"])))
    assert [(case.group, case.name, case.state) for case in cases] == [
        ("flash2 128x64/1, 4k fp16 D=64 full bhsd B=1 H=1", "registers:0", "broken"),
        ("flash2 128x64/1, 8k fp16 D=64 full bhsd B=1 H=1", "registers:0", "passed"),
        ("flash1, 4k fp16 D=64 full bhsd B=1 H=1", "registers:0", "passed"),
        ("standard 128x64/1, 4k fp16 D=64 full bhsd B=1 H=1", "registers:0", "passed"),
        ("all rows", "missing:0", "broken"),
    ]


def test_markdown_has_the_same_tables(compared: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.MD).emit(report.comparison_tables(compared), [])
    assert "| global K read | model | 17,179,869,184 | 34,359,738,368 | +17,179,869,184 |" in capsys.readouterr().out


def test_noise_is_shown_as_what_it_is(tmp_path: Path) -> None:
    rows = [timed(NOISE)], [timed(NOISE, device="B")]
    a, b = (load(write(tmp_path / name, row, [(row[0], NOISE)])) for name, row in zip("ab", rows, strict=True))
    (_, times) = report.comparison_tables(compare(a, b))
    assert times.rows == (("4k", "flash2 128x64/1", "1.00 ms", "1.00 ms", "-", "unknown"),)
    assert "unknown: another device." in times.note
