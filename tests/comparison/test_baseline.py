"""Accepting a run: what is replaced, what stays, what is refused, and that nothing is ever half done."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sample_runs import CONSTANT, NOISE, failed, moved, record, timed, write, write_timed

from fa_bench.comparison import baseline
from fa_bench.comparison.baseline import Acceptance, accept
from fa_bench.comparison.runs import load
from fa_bench.errors import UsageError
from fa_bench.sweep.journal import read_run

NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def two_runs(tmp_path: Path, **about: object) -> tuple[Path, Path]:
    """A baseline of the cases x and y, and a later run of y and z."""
    old = [timed(CONSTANT, case_id=c, run_id="old") for c in "xy"]
    new = [timed(NOISE, case_id=c, run_id="new") for c in "yz"]
    a = write(tmp_path / "a", old, [(row, CONSTANT) for row in old], [moved("K", "read", 1, case_id=c) for c in "xy"])
    b = write(
        tmp_path / "b", new, [(row, NOISE) for row in new], [moved("K", "read", 2, case_id=c) for c in "yz"], **about
    )
    return a, b


def test_a_baseline_is_made(tmp_path: Path) -> None:
    b = write_timed(tmp_path / "b", NOISE)
    a = tmp_path / "new" / "a"
    assert accept(a, b, now=NOW) == Acceptance(rows=1, replaced=0, kept=0)
    assert {name: text for name, text in files(a).items() if name != "run.json"} == {
        name: text for name, text in files(b).items() if name != "run.json"
    }
    (note,) = read_run(a).manifest.accepted
    assert note == {
        "at": "2026-02-03T04:05:06+00:00",
        "run_id": "b",
        "created": "2026-01-01T00:00:00+00:00",
        "command": "fa-bench sweep --out b",
        "git_commit": "abc",
        "rows": 1,
        "not_ok": 0,
    }


def test_rows_of_the_same_case_are_replaced_and_others_stay(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    (a / "README.md").write_text("the user's own")
    assert accept(a, b, now=NOW) == Acceptance(rows=2, replaced=1, kept=1)
    data = read_run(a)
    assert [(r.case_id, r.run_id) for r in data.records] == [("x", "old"), ("y", "new"), ("z", "new")]
    assert sorted((line.case_id, line.bytes) for line in data.traffic) == [("x", 1), ("y", 2), ("z", 2)]
    assert [(line.case_id, line.times_ms) for line in data.samples] == [("x", CONSTANT), ("y", NOISE), ("z", NOISE)]
    assert data.manifest.run_id == "a"
    assert [note["run_id"] for note in data.manifest.accepted] == ["b"]
    assert sorted(files(a)) == ["README.md", "records.csv", "run.json", "samples.jsonl", "traffic.csv"]
    # Then the run is what it is held against.
    assert load(a).interval(data.records[1]) == load(b).interval(read_run(b).records[0])


def test_a_case_on_two_backends_keeps_what_each_of_them_counted(tmp_path: Path) -> None:
    """A line of traffic.csv names no backend: the model's would stand twice."""
    rows = [record(case_id="x", backend=backend) for backend in ("cuda", "emulator")]
    lines = [moved("K", "read", 1, case_id="x", source=source) for source in ("model", "emulated", "measured")]
    a = write(tmp_path / "a", rows, traffic=lines)
    newer = [moved("K", "read", 2, case_id="x", source=source) for source in ("model", "emulated")]
    accept(a, write(tmp_path / "b", rows[1:], traffic=newer), now=NOW)
    assert sorted((line.source, line.bytes) for line in read_run(a).traffic) == [
        ("emulated", 2), ("measured", 1), ("model", 2),
    ]  # fmt: skip


def test_a_run_of_all_cases_takes_the_baselines_place_whatever_made_it(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    accept(a, b, now=NOW)
    c = write(
        tmp_path / "c", [timed(CONSTANT, case_id=k) for k in "xyz"], nvrtc_version="13.1", driver="600", gpu="h100-sxm"
    )
    assert accept(a, c, now=NOW) == Acceptance(rows=3, replaced=3, kept=0)
    manifest = read_run(a).manifest
    assert manifest.identity.nvrtc_version == "13.1"
    assert [note["run_id"] for note in manifest.accepted] == ["b", "c"]


@pytest.mark.parametrize(
    ("about", "difference"),
    [
        ({"nvrtc_version": "13.1"}, "NVRTC 13.0, this run has 13.1"),
        ({"devices": {"cuda": "another GPU"}}, "another GPU"),
        ({"driver": "600"}, "driver 550.54, this run has 600"),
    ],
)
def test_rows_of_different_runs_do_not_stand_together(
    tmp_path: Path, about: dict[str, object], difference: str
) -> None:
    a, b = two_runs(tmp_path, **about)
    before = files(a)
    with pytest.raises(UsageError, match=r"1 row that .* lacks") as error:
        accept(a, b, now=NOW)
    assert difference in error.value.message
    assert files(a) == before


def test_what_is_not_ok_is_accepted_by_force_only(tmp_path: Path) -> None:
    rows = [record(case_id="x"), failed("oom", case_id="y"), failed("error", case_id="z")]
    bad = write(tmp_path / "bad", rows)
    unfinished = write(tmp_path / "unfinished", [record()], finished=False)
    torn = write(tmp_path / "torn", [record()])
    with (torn / "records.csv").open("a") as file:
        file.write("no,row\n")
    for source, sentence in ((bad, "1 oom, 1 error"), (unfinished, "not finished"), (torn, "can't be read")):
        a = tmp_path / f"baseline-{source.name}"
        with pytest.raises(UsageError, match=sentence):
            accept(a, source, now=NOW)
        assert not a.exists()
        accept(a, source, force=True, now=NOW)
        assert read_run(a).records == read_run(source).records
    assert read_run(tmp_path / "baseline-bad").manifest.accepted[0]["not_ok"] == 2


@pytest.mark.parametrize("name", ["records.csv", "traffic.csv"])
def test_a_torn_run_is_accepted_by_force_only_and_lost_lines_do_not_look_whole(tmp_path: Path, name: str) -> None:
    rows = [record(case_id=c) for c in "xy"]
    lines = [moved(tensor, "read", 8, case_id=c) for c in "xy" for tensor in "QK"]
    torn, a = write(tmp_path / "torn", rows, traffic=lines), tmp_path / "a"
    path = torn / name
    path.write_text(path.read_text()[:-3])
    with pytest.raises(UsageError, match=f"can't be read in full.*{name}: the last row is cut off") as error:
        accept(a, torn, now=NOW)
    assert error.value.hint == "--force accepts what is left."
    assert not a.exists()
    accept(a, torn, force=True, now=NOW)
    data = read_run(a)
    assert [row.case_id for row in data.records] == (["x"] if name == "records.csv" else ["x", "y"])
    assert [(line.case_id, line.tensor) for line in data.traffic] == [("x", "Q"), ("x", "K")]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [record()])
    with pytest.raises(UsageError, match="is the run itself"):
        accept(run, run)
    with pytest.raises(UsageError, match="is no folder"):
        accept(run / "records.csv", run)
    with pytest.raises(UsageError, match="no run folder"):
        accept(tmp_path / "a", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no rows"):
        accept(tmp_path / "a", write(tmp_path / "empty", []), force=True)
    assert not (tmp_path / "a").exists()


class Killed(BaseException):
    """What no handler of the program knows: the process is gone."""


class Failing:
    """Lets the Nth rename of a file or folder raise, before or after it was done."""

    def __init__(self, at: int, error: type[BaseException], done: bool) -> None:
        self.calls = 0
        self._at, self._error, self._done = at, error, done

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("rename", "replace"):
            patch.setattr(Path, name, self._around(getattr(Path, name)))

    def _around(self, original):  # type: ignore[no-untyped-def]
        def call(path: Path, target: Path) -> Path:
            self.calls += 1
            if self.calls == self._at and not self._done:
                raise self._error
            moved = original(path, target)
            if self.calls == self._at:
                raise self._error
            return moved

        return call


#: Four files are staged, the folder is committed, four files are installed.
RENAMES = 9


def interrupted(tmp_path: Path, at: int, error: type[BaseException], done: bool) -> tuple[Path, Path]:
    a, b = two_runs(tmp_path)
    failing = Failing(at, error, done)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(error):
        failing.install(patch)
        if error is Killed:  # a dead process cleans nothing up
            patch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
        accept(a, b, now=NOW)
    assert failing.calls >= at
    return a, b


def expected(tmp_path: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of the baseline before and after."""
    a, b = two_runs(tmp_path)
    before = files(a)
    assert accept(a, b, now=NOW).rows == 2
    return before, files(a)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(1, RENAMES + 1))
def test_ctrl_c_leaves_the_old_baseline_or_the_new_one(tmp_path: Path, at: int, done: bool) -> None:
    before, after = expected(tmp_path / "whole")
    a, _ = interrupted(tmp_path / "cut", at, KeyboardInterrupt, done)
    committed = at > 5 or (at == 5 and done)
    assert files(a) == (after if committed else before)
    load(a)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(1, RENAMES + 1))
def test_after_a_kill_the_next_acceptance_goes_on(tmp_path: Path, at: int, done: bool) -> None:
    before, after = expected(tmp_path / "whole")
    a, b = interrupted(tmp_path / "cut", at, Killed, done)
    committed = at > 5 or (at == 5 and done)
    if committed:
        # It goes on before anything else, also where it then refuses.
        with pytest.raises(UsageError, match="baseline accept"):
            load(a)
        with pytest.raises(UsageError, match="no run folder"):
            accept(a, tmp_path / "nowhere", now=NOW)
        assert files(a) == after
    else:
        assert {name: text for name, text in files(a).items() if "/" not in name} == before
        accept(a, b, now=NOW)
        assert files(a) == after


def test_the_number_of_renames_is_the_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = two_runs(tmp_path)
    counting = Failing(0, Killed, False)
    counting.install(monkeypatch)
    accept(a, b, now=NOW)
    assert counting.calls == RENAMES


def test_a_disk_that_refuses_leaves_the_old_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = two_runs(tmp_path)
    before = files(a)

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(baseline, "replace_text", full)
    with pytest.raises(UsageError, match="No space left"):
        accept(a, b, now=NOW)
    assert files(a) == before
