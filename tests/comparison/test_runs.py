"""Reading one side: folders, files, what is torn."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_runs import CONSTANT, NOISE, failed, moved, record, timed, write, write_timed

from fa_bench.comparison.compare import compare
from fa_bench.comparison.intervals import Interval
from fa_bench.comparison.runs import load
from fa_bench.errors import UsageError
from fa_bench.records import RECORDS


def test_a_folder_is_read_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    row = timed(NOISE)
    run = load(write(tmp_path / "a", [row], [(row, NOISE)], [moved("K", "read", 64)], driver="550"))
    assert run.records == (row,)
    assert run.times_ms == {("c", "cuda"): NOISE}
    assert [line.bytes for line in run.traffic["c"]] == [64]
    assert run.facts == {"fa-bench": "0.1.0", "driver": "550"}
    assert run.notes == ()
    # Ranks 6 and 16 of 21.
    assert run.interval(row) == Interval(pytest.approx(0.995), pytest.approx(1.0), pytest.approx(1.005))


def test_a_file_alone_has_its_quintiles(tmp_path: Path) -> None:
    folder = write_timed(tmp_path / "a", NOISE)
    run = load(folder / "records.csv")
    # The 5th and the 17th of 21: p20 lies exactly 0.2 · 20 = 4 places behind the first.
    assert run.interval(run.records[0]) == Interval(pytest.approx(0.994), pytest.approx(1.0), pytest.approx(1.006))
    assert run.facts == {}


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(NOISE[:-1], id="of another run of the case"),
        pytest.param((*NOISE[:-1], float("nan")), id="not a number"),
        pytest.param((*NOISE[:-1], 0.0), id="no time"),
    ],
)
def test_samples_that_are_not_the_rows_do_not_count(tmp_path: Path, samples: tuple[float, ...]) -> None:
    row = timed(NOISE)
    run = load(write(tmp_path / "a", [row], [(row, samples)]))
    interval = run.interval(row)
    assert isinstance(interval, Interval)
    assert interval.low == pytest.approx(0.994)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (record(), "has no time"),
        (timed(CONSTANT, status="wrong_result", status_reason="Off"), "it is wrong_result"),
        (timed(NOISE[:1]), "has 1 sample, too few"),
        (timed(NOISE[:5]), "has 5 samples, too few"),
        (timed(NOISE[:10]), "has 10 samples, none of them kept, too few"),
        (timed(NOISE, time_samples=None), "has no samples, too few"),
    ],
)
def test_why_there_is_no_interval(tmp_path: Path, row: object, reason: str) -> None:
    run = load(write(tmp_path / "a", [row]))  # type: ignore[list-item]
    interval = run.interval(run.records[0])
    assert isinstance(interval, str)
    assert reason in interval


def test_a_torn_file_gives_what_is_whole_and_says_so(tmp_path: Path) -> None:
    whole, torn = record(case_id="whole"), record(case_id="torn")
    folder = write(tmp_path / "a", [whole])
    with (folder / "records.csv").open("a") as file:
        file.write("only,three,cells\n" + RECORDS.line(torn)[:40])
    with (folder / "samples.jsonl").open("a") as file:
        file.write('{"case_id": "wh')
    run = load(folder)
    assert [row.case_id for row in run.records] == ["whole"]
    malformed, cut, samples = run.notes
    assert malformed.startswith(f"{folder / 'records.csv'}: row 3: 3 cells where there are")
    assert cut == f"{folder / 'records.csv'}: the last row is cut off and left out."
    assert samples == f"{folder / 'samples.jsonl'}: the last line is cut off and left out."
    assert load(folder / "records.csv").notes == (malformed, cut)


def test_a_run_of_an_older_schema_is_compared_in_what_it_knows(tmp_path: Path) -> None:
    """Versions of fa-bench that write more columns are what a baseline is held against."""
    a, b = (write(tmp_path / name, [record(registers=128)]) for name in "ab")
    header, line = (a / "records.csv").read_text().splitlines()
    place = header.split(",").index("registers")
    (a / "records.csv").write_text(
        "".join(",".join(x for k, x in enumerate(text.split(",")) if k != place) + "\n" for text in (header, line))
    )
    (pair,) = compare(load(a), load(b)).pairs
    assert [(f.name, f.before, f.after) for f in pair.changed] == [("registers", None, 128)]


def test_of_a_case_that_stands_twice_the_last_row_counts(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", [record(registers=1), record(registers=2)])
    for path in (folder, folder / "records.csv"):
        run = load(path)
        assert [row.registers for row in run.records] == [2]
        assert "cases stand there again (1 in all)" in run.notes[0]


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Cannot read"):
        load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no run folder"):
        load(tmp_path)
    with pytest.raises(UsageError, match="no rows"):
        load(write(tmp_path / "empty", []))
    alone = write(tmp_path / "alone", [record()])
    (alone / "run.json").unlink()
    with pytest.raises(UsageError, match=r"it has no run\.json") as error:
        load(alone)
    assert error.value.hint == f"Give {alone / 'records.csv'} alone."
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="other columns"):
        load(other)
    half = write(tmp_path / "half", [failed()])
    (half / ".accepted").mkdir()
    with pytest.raises(UsageError, match="baseline accept"):
        load(half)
