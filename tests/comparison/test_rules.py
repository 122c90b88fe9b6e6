"""Which rules break, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample_runs import CONSTANT, NOISE, failed, moved, record, timed, write, write_timed

from fa_bench.comparison.compare import Comparison, compare
from fa_bench.comparison.rules import METRICS, judge, parse_rules
from fa_bench.comparison.runs import load
from fa_bench.errors import UsageError
from fa_bench.records import Record


def of(tmp_path: Path, before: Record, after: Record, **options: Any) -> Comparison:
    return compare(load(write(tmp_path / "a", [before])), load(write(tmp_path / "b", [after])), **options)


def states(comparison: Comparison, *rules: str) -> list[tuple[str, str]]:
    return [(outcome.state, outcome.detail) for outcome in judge(comparison, parse_rules(rules))]


def test_a_rule_on_bytes_names_tensor_and_tile(tmp_path: Path) -> None:
    """K is read once per tile of Q, so tiles of half the rows read it twice as often."""
    sizes = {"Q": (2**24, 2**24), "K": (2**24, 2**25)}
    old, new = (
        record(case_id=str(k), block_m=128 >> k, global_read_bytes_model=sum(s[k] for s in sizes.values()),
               global_write_bytes_model=0)
        for k in (0, 1)
    )  # fmt: skip
    a, b = (
        write(tmp_path / name, [row], traffic=[moved(t, "read", s[k], case_id=str(k)) for t, s in sizes.items()])
        for k, (name, row) in enumerate((("a", old), ("b", new)))
    )
    found = compare(load(a), load(b), "shape")
    assert states(found, "bytes:0") == [
        (
            "broken",
            "global bytes grew from 33,554,432 to 50,331,648 (model), most in "
            "global K read 16,777,216 -> 33,554,432 (+16,777,216, block_m 128 -> 64)",
        )
    ]
    # 16,777,216 of 33,554,432 are half.
    assert [state for state, _ in states(found, "bytes:50%", "bytes:49.9%", "bytes:16M", "bytes:16777215")] == [
        "passed", "broken", "passed", "broken",
    ]  # fmt: skip


def bytes_of(level: str, source: str, read: int | None, write: int | None) -> dict[str, Any]:
    return {f"{level}_read_bytes_{source}": read, f"{level}_write_bytes_{source}": write}


def test_each_source_is_held_on_its_own_and_what_shrinks_breaks_nothing(tmp_path: Path) -> None:
    old = record(**bytes_of("dram", "model", 100, 0), **bytes_of("dram", "measured", 100, 100))
    new = record(**bytes_of("dram", "model", 0, 0), **bytes_of("dram", "measured", 102, 100))
    found = of(tmp_path, old, new)
    assert states(found, "dram:1%") == [("passed", "")]
    assert states(found, "dram:0.5%") == [
        ("broken", "dram bytes grew from 200 to 202 (measured), most in dram read 100 -> 102 (+2)")
    ]


def test_sources_that_say_the_same_are_one_clause(tmp_path: Path) -> None:
    old, new = (
        record(**{k: v for source in ("model", "emulated") for k, v in bytes_of("global", source, read, 0).items()})
        for read in (10, 12)
    )
    assert states(of(tmp_path, old, new), "bytes:1") == [
        ("broken", "global bytes grew from 10 to 12 (model, emulated), most in global read 10 -> 12 (+2)")
    ]


def test_a_figure_that_one_side_does_not_know_breaks_its_rule(tmp_path: Path) -> None:
    known = record(**bytes_of("l2", "emulated", 1, 1))
    found = of(tmp_path, known, record(registers=None))
    assert states(found, "l2:0", "registers:0") == [
        ("broken", "l2 bytes can't be compared, because only the first run knows them (emulated)"),
        ("broken", "registers can't be compared, because only the first run knows them"),
    ]
    assert [state for state, _ in states(found, "smem:0")] == ["passed"]


def test_tensors_that_a_torn_file_lost_are_unknown_and_break_the_rule(tmp_path: Path) -> None:
    """Their sums would be too small, and a tensor without a line 0: nothing would have grown."""
    sides = []
    for name in "ab":
        row = record(**bytes_of("global", "model", 30, 8), **bytes_of("l2", "model", 5, 5))
        lines = [moved("Q", "read", 10), moved("K", "read", 20), moved("O", "write", 8)]
        sides.append(write(tmp_path / name, [row], traffic=lines))
    a, b = sides
    assert states(compare(load(a), load(b)), "bytes:0") == [("passed", "")]
    path = b / "traffic.csv"
    path.write_text(path.read_text()[:-5])
    found = compare(load(a), load(b))
    assert f"{path}: the last row is cut off and left out." in found.warnings
    (pair,) = found.pairs
    assert [(f.name, f.before, f.after) for f in pair.bytes] == [
        ("global Q read", 10, None), ("global K read", 20, None), ("global O write", 8, None),
    ]  # fmt: skip
    sentence = "global bytes by tensor can't be compared, because only the first run knows them (model)"
    assert states(found, "bytes:0", "l2:0") == [("broken", sentence), ("passed", "")]
    assert states(compare(load(b), load(a)), "bytes:0") == [("broken", sentence.replace("first", "second"))]
    # What neither side knows breaks nothing.
    assert states(compare(load(b), load(b)), "bytes:0") == [("passed", "")]


def test_a_rule_that_holds_no_pair_is_broken(tmp_path: Path) -> None:
    """An emulator's rows have no time, so a rule on time would guard nothing."""
    found = of(tmp_path, record(backend="emulator"), record(backend="emulator"))
    assert states(found, "slower:2%") == [
        ("skipped", "neither side has a time"),
        ("broken", "slower:2%: no pair has such a figure"),
    ]
    assert [state for state, _ in states(found, "dram:0")] == ["skipped", "broken"]


def test_rows_of_numpy_have_no_registers_and_break_nothing(tmp_path: Path) -> None:
    rows = [record(), record(case_id="n", impl="numpy-flash", backend="host", registers=None)]
    a, b = (load(write(tmp_path / name, rows)) for name in "ab")
    assert [state for state, _ in states(compare(a, b), "registers:0")] == ["passed", "skipped"]


@pytest.mark.parametrize(
    ("factor", "rule", "state"),
    [
        (1.1, "slower:2%", "broken"),
        (1.1, "slower:15%", "passed"),
        (0.5, "slower:0%", "passed"),
        # 1.0148 to 1.0353: not wholly beyond 2 %, and not within.
        (1.025, "slower:2%", "skipped"),
        (1.025, "slower:1%", "broken"),
        (1.025, "slower:4%", "passed"),
    ],
)
def test_slower(tmp_path: Path, factor: float, rule: str, state: str) -> None:
    a = write_timed(tmp_path / "a", NOISE)
    b = write_timed(tmp_path / "b", [factor * t for t in NOISE])
    ((found, detail),) = states(compare(load(a), load(b)), rule)
    assert found == state
    if factor == 1.1:
        assert detail == ("" if state == "passed" else "10.0 % slower, between +8.9 % and +11.1 %")
    if state == "skipped":
        assert detail == "ambiguous: between +1.5 % and +3.5 %"


@pytest.mark.parametrize("fields", [{"device": "B"}, {"time_source": "host-clock"}, {"l2_state": "warm"}])
def test_times_that_are_not_compared_break_a_rule_on_time(tmp_path: Path, fields: dict[str, Any]) -> None:
    a = write_timed(tmp_path / "a", CONSTANT)
    b = write_timed(tmp_path / "b", CONSTANT, **fields)
    ((state, detail),) = states(compare(load(a), load(b)), "slower:2%")
    assert state == "broken"
    assert detail.startswith("times can't be compared: another ")


def test_a_time_that_is_gone_or_has_too_few_samples_breaks_a_rule_on_time(tmp_path: Path) -> None:
    a = write_timed(tmp_path / "a", CONSTANT)
    for name, row in (("gone", failed()), ("few", timed(CONSTANT[:3]))):
        b = write(tmp_path / name, [row])
        ((state, _),) = states(compare(load(a), load(b)), "slower:2%")
        assert state == "broken"


def test_error_registers_and_spills(tmp_path: Path) -> None:
    old, new = record(), record(max_abs_err=1.2e-4, registers=140, spill_bytes=8)
    found = of(tmp_path, old, new)
    assert states(found, "error:10%", "registers:0", "spills:0") == [
        ("broken", "error grew from 1.0e-04 to 1.2e-04"),
        ("broken", "registers grew from 128 to 140"),
        ("broken", "spills grew from 0 to 8"),
    ]
    assert {state for state, _ in states(found, "error:20.1%", "registers:12", "spills:8")} == {"passed"}


def test_counts_over_the_whole_comparison(tmp_path: Path) -> None:
    before = [record(case_id="x"), record(case_id="y"), failed(case_id="z"), record(case_id="gone")]
    after = [record(case_id="x"), failed("oom", case_id="y"), failed(case_id="z"), record(case_id="new")]
    a, b = write(tmp_path / "a", before), write(tmp_path / "b", after)
    found = compare(load(a), load(b))
    assert states(found, "missing:0", "status:0", "missing:1", "status:1", "ambiguous:0") == [
        ("broken", f"missing:0: 1 row of {a} missing in {b}"),
        ("broken", f"status:0: 1 row ok in {a} and not in {b}"),
        ("passed", ""),
        ("passed", ""),
        ("passed", ""),
    ]


def test_ambiguous_can_be_made_a_failure(tmp_path: Path) -> None:
    a = write_timed(tmp_path / "a", NOISE)
    b = write_timed(tmp_path / "b", [1.025 * t for t in NOISE])
    assert states(compare(load(a), load(b)), "ambiguous:0") == [("broken", "ambiguous:0: 1 row with ambiguous times")]


def test_lists_and_repetition_are_the_same() -> None:
    assert parse_rules(["slower:2%,bytes:0", "error:10%"]) == parse_rules(["slower:2%", "bytes:0,error:10%"])
    assert [str(rule) for rule in parse_rules(["slower:2.5%, bytes:1k"])] == ["slower:2.5%", "bytes:1024"]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("faster:2%", "no metric 'faster'"),
        ("slower:1", "as in slower:2%"),
        ("missing:1%", "as in missing:0"),
        ("bytes", "bytes needs a limit"),
        ("bytes:-1", "--fail-on: bytes: '-1' is not a whole number"),
        ("", "no metric ''"),
    ],
)
def test_rules_that_are_none(rule: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_rules([rule])


def test_every_metric_holds_for_a_run_and_itself(tmp_path: Path) -> None:
    levels = {k: v for level in ("global", "l2", "dram") for k, v in bytes_of(level, "measured", 1, 1).items()}
    a, b = (write_timed(tmp_path / name, CONSTANT, **levels) for name in "ab")
    found = compare(load(a), load(b))
    for metric in METRICS:
        limit = "0%" if metric == "slower" else "0"
        assert states(found, f"{metric}:{limit}") == [("passed", "")], metric
