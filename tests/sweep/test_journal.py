"""The run folder: what is on disk after success, failure, a torn file, and resuming."""

from __future__ import annotations

import csv
import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_sweep import EPOCH, GPU, REQUEST, fake_backends, fake_plan, manifest, predict

from fa_bench.cases import Case
from fa_bench.errors import FaBenchError, UsageError
from fa_bench.measure.environment import environment
from fa_bench.records import RECORDS, TRAFFIC, Record, Status, TensorTraffic
from fa_bench.sweep.build import Site, traffic_rows, unrun_record
from fa_bench.sweep.journal import (
    CaseRows,
    CaseSamples,
    Journal,
    key_of,
    newest_unfinished,
    open_journal,
    read_run,
    replace_text,
)
from fa_bench.sweep.manifest import Manifest, describe
from fa_bench.sweep.runner import planned_keys

CASES = [planned.case for planned in fake_plan().cases if planned.backend == "emulator"]
KEYS = planned_keys(fake_plan(), fake_backends())


def row(case: Case, status: Status = "skipped") -> Record:
    return unrun_record(Site("run", EPOCH, "emulator", "CPU", GPU), case, status, "Why.", predict(case, GPU))


def traffic(case: Case) -> list[TensorTraffic]:
    return traffic_rows(case, predict(case, GPU).traffic, "model")


def samples(case: Case) -> CaseSamples:
    return CaseSamples(case.case_id, "host", "host-clock", None, (0.1 + 0.2, 1.0))


def filled(folder: Path, *rows: Record) -> Path:
    cases = {case.case_id: case for case in CASES}
    with Journal.create(folder, manifest()) as journal:
        for record in rows:
            journal.append(record, traffic(cases[record.case_id]), samples(cases[record.case_id]))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_row_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "a" / "b", manifest()) as journal:
        for case in CASES[:2]:
            journal.append(row(case), traffic(case), samples(case))
            data = read_run(journal.folder)
            assert data.records[-1] == row(case)
            assert data.traffic[-1] == traffic(case)[-1]
            assert data.samples[-1] == samples(case)
    assert sorted(contents(journal.folder)) == ["records.csv", "run.json", "samples.jsonl", "traffic.csv"]


def test_the_record_is_written_last_and_each_file_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("traffic.csv", "samples.jsonl", "records.csv")
    holding: list[list[str]] = []

    def fsync(descriptor: int) -> None:
        holding.append([name for name in names if CASES[0].case_id in (tmp_path / name).read_text()])

    with Journal.create(tmp_path, manifest()) as journal:
        monkeypatch.setattr(os, "fsync", fsync)
        journal.append(row(CASES[0]), traffic(CASES[0]), samples(CASES[0]))
    assert holding == [["traffic.csv"], ["traffic.csv", "samples.jsonl"], list(names)]


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]))
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=r"already holds a run \(run\.json\)"):
        Journal.create(tmp_path, manifest())
    assert contents(tmp_path) == before


@pytest.mark.parametrize("resume", [False, True])
def test_rows_without_run_json_are_left_alone_and_what_is_missing_is_said(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "records.csv").write_text(RECORDS.header)
    with pytest.raises(UsageError, match=r"has records\.csv but no run\.json") as error:
        open_journal(tmp_path, manifest(), KEYS, resume=resume)
    assert error.value.hint is not None
    assert "--resume" not in error.value.hint
    assert sorted(contents(tmp_path)) == ["records.csv"]


def test_other_files_in_the_folder_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    filled(tmp_path, row(CASES[0]))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="Cannot write to "):
            open_journal(folder, manifest(), KEYS)


class FullDisk:
    """A file that takes half of what it is given, then nothing."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: memoryview) -> int:
        if self._full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._full = True
        return int(self._file.write(data[: len(data) // 2]))


@pytest.mark.parametrize("name", ["_traffic", "_samples", "_records"])
def test_a_full_disk_leaves_whole_rows(tmp_path: Path, name: str) -> None:
    with Journal.create(tmp_path, manifest()) as journal:
        journal.append(row(CASES[0]), traffic(CASES[0]), samples(CASES[0]))
        before = contents(tmp_path)
        file = getattr(journal, name)
        file._file = FullDisk(file._file)
        with pytest.raises(FaBenchError, match=r"Cannot write to .*: No space left on device"):
            journal.append(row(CASES[1]), traffic(CASES[1]), samples(CASES[1]))
        assert contents(tmp_path) == before
        assert not journal.holds(key_of(row(CASES[1])))


def test_an_interrupt_while_a_row_is_written_takes_it_back(tmp_path: Path) -> None:
    class Interrupting(FullDisk):
        def write(self, data: memoryview) -> int:
            self._file.write(data)
            raise KeyboardInterrupt

    with Journal.create(tmp_path, manifest()) as journal:
        before = contents(tmp_path)
        journal._records._file = Interrupting(journal._records._file)
        with pytest.raises(KeyboardInterrupt):
            journal.append(row(CASES[0]), traffic(CASES[0]), samples(CASES[0]))
        assert contents(tmp_path) == before


def test_resuming_redoes_what_failed_and_keeps_what_would_come_out_again(tmp_path: Path) -> None:
    statuses: list[Status] = ["skipped", "error", "oom", "interrupted", "unsupported", "invalid_timing", "wrong_result"]
    filled(tmp_path, *(row(case, status) for case, status in zip(CASES, statuses, strict=False)))
    with Journal.resume(tmp_path, manifest(), KEYS) as journal:
        assert [record.status for record in journal.records] == ["skipped", "oom", "unsupported", "wrong_result"]
        kept = {record.case_id for record in journal.records}
        assert [journal.holds((case.case_id, "emulator")) for case in CASES] == [c.case_id in kept for c in CASES]
        data = read_run(tmp_path)
        assert {line.case_id for line in data.traffic} == {line.case_id for line in data.samples} == kept
        journal.append(row(CASES[1], "skipped"))
    assert [record.status for record in read_run(tmp_path).records].count("skipped") == 2


def test_resuming_a_part_of_a_sweep_keeps_failures_outside_of_it(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0], "error"), row(CASES[1], "error"))
    with Journal.resume(tmp_path, manifest(), [{(CASES[0].case_id, "emulator")}]) as journal:
        assert [record.case_id for record in journal.records] == [CASES[1].case_id]


def test_resuming_changes_no_byte_of_what_stays(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]), row(CASES[1]))
    before = contents(tmp_path)
    Journal.resume(tmp_path, manifest(), KEYS).close()
    after = contents(tmp_path)
    assert before.pop("run.json") != after.pop("run.json")
    assert after == before


@pytest.mark.parametrize("name", ["records.csv", "traffic.csv", "samples.jsonl"])
def test_a_torn_last_line_is_dropped(tmp_path: Path, name: str) -> None:
    filled(tmp_path, row(CASES[0]), row(CASES[1]))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-10])
    Journal.resume(tmp_path, manifest(), KEYS).close()
    data = read_run(tmp_path)
    # A row without its record goes, a record without its raw times stays. One that lost traffic runs again: its four
    # other lines would look like all of them.
    assert len(data.records) == (2 if name == "samples.jsonl" else 1)
    assert len(data.samples) == 1
    assert len(data.traffic) == (10 if name == "samples.jsonl" else 5)
    assert all(path.read_bytes().endswith(b"\n") for path in tmp_path.iterdir())


def cut(path: Path, text: bytes) -> None:
    """End a file just before the last place where it says ``text``."""
    path.write_bytes(path.read_bytes().rpartition(text)[0])


@pytest.mark.parametrize(
    "end",
    [CASES[1].case_id[3:].encode(), b",", b"\n"],
    ids=["inside the name of the case", "inside a cell", "before a line end"],
)
def test_a_torn_traffic_file_is_partial_in_the_case_that_is_cut(tmp_path: Path, end: bytes) -> None:
    filled(tmp_path, row(CASES[0]), row(CASES[1]))
    assert (read_run(tmp_path).partial, read_run(tmp_path).unread) == (frozenset(), ())
    cut(tmp_path / "traffic.csv", end)
    data = read_run(tmp_path)
    assert data.partial == {CASES[1].case_id}
    assert data.whole_traffic == tuple(traffic(CASES[0]))
    assert data.unread == (f"{tmp_path / 'traffic.csv'}: the last row is cut off and left out.",)


def test_a_row_that_lost_traffic_and_is_not_planned_stays_without(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]), row(CASES[1]))
    cut(tmp_path / "traffic.csv", b",")
    Journal.resume(tmp_path, manifest(), []).close()
    data = read_run(tmp_path)
    assert (len(data.records), data.traffic) == (2, tuple(traffic(CASES[0])))


def test_cases_behind_the_cut_are_partial_too_and_those_of_malformed_rows(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]), row(CASES[1]), row(CASES[2]))
    path = tmp_path / "traffic.csv"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(f"\n{CASES[1].case_id}".encode()) + 4])
    # Three letters of the second case are left, nothing of the third.
    assert read_run(tmp_path).partial >= {CASES[1].case_id, CASES[2].case_id}
    path.write_bytes(whole.replace(f"{CASES[1].case_id},".encode(), f"{CASES[1].case_id},,".encode(), 1))
    assert read_run(tmp_path).partial == {CASES[1].case_id}


def test_what_a_kill_left_of_a_case_without_record_makes_no_other_partial(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]))
    with (tmp_path / "traffic.csv").open("a") as file:
        file.write(TRAFFIC.line(traffic(CASES[1])[0])[:-5])
    assert read_run(tmp_path).partial == frozenset()


def test_broken_samples_are_named_with_their_file(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]))
    path = tmp_path / "samples.jsonl"
    with path.open("a") as file:
        file.write("{}\nno json\n")
    said = f"{path}: 2 lines are left out, which hold no samples of a case; the first is line 2."
    assert read_run(tmp_path).unread == (said,)
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match=r"Cannot read .*samples\.jsonl"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["traffic.csv", "samples.jsonl", "records.csv"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_kill_inside_a_row_leaves_the_rows_before_it(tmp_path: Path, name: str, share: float) -> None:
    # Files are written in this order, so a kill in one leaves those before it whole and those after it as they were.
    order = ["traffic.csv", "samples.jsonl", "records.csv"]
    before = contents(filled(tmp_path / "before", row(CASES[0])))
    after = contents(filled(tmp_path / "after", row(CASES[0]), row(CASES[1])))
    folder = filled(tmp_path / "killed", row(CASES[0]), row(CASES[1]))
    for file in order[order.index(name) + 1 :]:
        (folder / file).write_bytes(before[file])
    grown = len(after[name]) - len(before[name])
    (folder / name).write_bytes(after[name][: len(before[name]) + int(share * grown)])

    data = read_run(folder)
    assert (data.records, data.traffic, data.samples) == (
        (row(CASES[0]),),
        tuple(traffic(CASES[0])),
        (samples(CASES[0]),),
    )
    with Journal.resume(folder, manifest(), KEYS) as journal:
        journal.append(row(CASES[1]), traffic(CASES[1]), samples(CASES[1]))
    assert {file: contents(folder)[file] for file in order} == {file: after[file] for file in order}


def timed(case: Case) -> CaseRows:
    record = replace(
        row(case, "error"), status="ok", status_reason=None, max_abs_err=0.1, rel_err=0.1, err_reference="fp64",
        time_ms=0.2, time_p20_ms=0.1, time_p80_ms=0.3, time_source="host-clock", backend="host",
    )  # fmt: skip
    return CaseRows(record, tuple(traffic(case)[:1]), samples(case))


def cuts(content: bytes, start: int) -> list[int]:
    """Sizes that a kill can leave of a file that had ``start`` bytes: every fifth, and those beside each line end."""
    ends = [place for place in range(start, len(content)) if content[place : place + 1] == b"\n"]
    near = {end + step for end in ends for step in (0, 1, 2)}
    return sorted(size for size in {*range(start, len(content), 5), *near} if start <= size < len(content))


def test_a_kill_anywhere_in_a_group_resumes_to_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # thousands of them; no power fails here
    groups = [[timed(case) for case in CASES[:2]], [timed(case) for case in CASES[2:4]]]
    planned = [frozenset(key_of(rows.record) for rows in group) for group in groups]

    def appended(folder: Path, *groups: list[CaseRows]) -> dict[str, bytes]:
        with Journal.create(folder, manifest()) as journal:
            for group in groups:
                journal.append_together(group)
        return contents(folder)

    before, after = appended(tmp_path / "before", groups[0]), appended(tmp_path / "after", *groups)
    order = ["traffic.csv", "samples.jsonl", "records.csv"]
    folder = tmp_path / "killed"
    folder.mkdir()
    for index, name in enumerate(order):
        for size in cuts(after[name], len(before[name])):
            # Files are written in this order: those before are whole, those after as they were.
            (folder / "run.json").write_bytes(after["run.json"])
            for file in order:
                (folder / file).write_bytes((after if order.index(file) < index else before)[file])
            (folder / name).write_bytes(after[name][:size])
            with Journal.resume(folder, manifest(), planned) as journal:
                # A whole first row of the group does not stay: it was timed beside the one that is lost.
                assert journal.records == tuple(rows.record for rows in groups[0])
                journal.append_together(groups[1])
            assert {file: (folder / file).read_bytes() for file in order} == {file: after[file] for file in order}


def test_a_full_disk_leaves_none_of_a_group(tmp_path: Path) -> None:
    with Journal.create(tmp_path, manifest()) as journal:
        before = contents(tmp_path)
        journal._records._file = FullDisk(journal._records._file)
        with pytest.raises(FaBenchError, match="No space left on device"):
            journal.append_together([timed(case) for case in CASES[:2]])
        assert (contents(tmp_path), journal.records) == (before, ())


def test_traffic_without_a_record_is_not_read(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]))
    with (tmp_path / "traffic.csv").open("a") as file:
        file.writelines(map(TRAFFIC.line, traffic(CASES[1])))
    assert read_run(tmp_path).traffic == tuple(traffic(CASES[0]))


def test_a_row_that_cannot_be_read_is_named_and_redone(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]), row(CASES[1]))
    path = tmp_path / "records.csv"
    path.write_text(path.read_text().replace(RECORDS.line(row(CASES[0])), "1,2,3\n"))
    assert read_run(tmp_path).unread == (f"{path}: row 2: 3 cells where there are {len(RECORDS.columns)} columns.",)
    with Journal.resume(tmp_path, manifest(), KEYS) as journal:
        assert journal.records == (row(CASES[1]),)


@pytest.mark.parametrize(
    ("identity", "sentence"),
    [
        ({"tool_version": "0.2.0"}, "it was made with fa-bench 0.1.0, this run has 0.2.0"),
        ({"nvrtc_version": None}, "it was made with NVRTC 13.0, this run has none"),
        ({"gpu": "h100-sxm"}, "it was made with target GPU a100-sxm-80, this run has h100-sxm"),
        ({"devices": {"host": "Other"}}, "it was made with devices emulator: .*, this run has host: Other"),
        ({"settings": {"--counters": "full"}}, "it was made with --counters global, this run has full"),
        ({"settings": {"--check": "yes"}}, "it was made with --check no, this run has yes"),
        ({"settings": {"--l2": "warm"}}, "it was made with --l2 cold, this run has warm"),
        ({"settings": {"--timer": "graph"}}, "it was made with --timer events, this run has graph"),
    ],
)
def test_another_sweep_is_refused_and_left_alone(tmp_path: Path, identity: dict[str, Any], sentence: str) -> None:
    filled(tmp_path, row(CASES[0], "error"))
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=f"(?s)holds another sweep: {sentence}"):
        Journal.resume(tmp_path, manifest(**identity), KEYS)
    assert contents(tmp_path) == before


def test_another_driver_is_refused(tmp_path: Path) -> None:
    Journal.create(tmp_path, replace(manifest(), environment={"driver": "575.51"})).close()
    with pytest.raises(UsageError, match=r"it was made with driver 575\.51, this run has 580\.10"):
        Journal.resume(tmp_path, replace(manifest(), environment={"driver": "580.10"}), KEYS)


def test_what_an_older_run_json_does_not_say_is_no_difference(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]))
    path = tmp_path / "run.json"
    content = json.loads(path.read_text())
    del content["identity"]["settings"]
    path.write_text(json.dumps(content))
    assert Manifest.read(path).identity.settings == {}
    with Journal.resume(tmp_path, manifest(), KEYS) as journal:
        assert len(journal.records) == 1


@pytest.mark.parametrize("name", ["records.csv", "traffic.csv"])
def test_other_columns_are_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    filled(tmp_path, row(CASES[0], "error"))
    path = tmp_path / name
    path.write_text(path.read_text().replace("case_id", "case", 1))
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="missing: case_id; unknown: case"):
        Journal.resume(tmp_path, manifest(), KEYS)
    assert contents(tmp_path) == before


def test_rows_are_never_appended_below_an_older_header(tmp_path: Path) -> None:
    filled(tmp_path, row(CASES[0]), row(CASES[1], "error"))
    path = tmp_path / "records.csv"
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    # As before schema 3: without the column that came last.
    place = RECORDS.columns.index("roofline_source")
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(cells[:place] + cells[place + 1 :] for cells in lines)
    assert "roofline_source" not in path.read_text(encoding="utf-8")
    with Journal.resume(tmp_path, manifest(), KEYS) as journal:
        journal.append(row(CASES[1]), traffic(CASES[1]), samples(CASES[1]))
    assert path.read_text(encoding="utf-8").startswith(RECORDS.header)
    data = read_run(tmp_path)
    assert (data.unread, data.records) == ((), (row(CASES[0]), row(CASES[1])))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "run_id": "x"}'])
def test_a_broken_run_json_is_a_sentence(tmp_path: Path, text: str) -> None:
    filled(tmp_path, row(CASES[0]))
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=r"run\.json"):
        Journal.resume(tmp_path, manifest(), KEYS)


def test_resume_starts_where_nothing_is(tmp_path: Path) -> None:
    with open_journal(tmp_path / "new", manifest(), KEYS, resume=True) as journal:
        assert journal.records == ()
    assert read_run(tmp_path / "new").records == ()


def test_resume_without_a_folder_takes_the_run_started_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="No unfinished run in results to go on with"):
        open_journal(None, manifest(), KEYS, resume=True)
    for name, created, finished in (
        ("zulu", "2025-01-01T00:00:00+00:00", None),
        ("alpha", "2025-01-02T00:00:00+00:00", None),
        ("mike", "2025-01-03T00:00:00+00:00", "2025-01-03T01:00:00+00:00"),
    ):
        Journal.create(Path("results", name), replace(manifest(), created=created, finished=finished)).close()
    Path("results", "broken").mkdir()
    Path("results", "broken", "run.json").write_text("{")
    assert newest_unfinished(Path("results")) == Path("results", "alpha")
    with open_journal(None, manifest(), KEYS, resume=True) as journal:
        assert journal.folder == Path("results", "alpha")


def test_a_new_run_goes_to_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_journal(None, manifest(), KEYS) as journal:
        assert journal.folder == Path("results", "20250102-030405-ab12")


def test_names_that_are_no_utf8_do_not_end_a_run(tmp_path: Path) -> None:
    record = replace(row(CASES[0]), device="caf\udce9")
    with Journal.create(tmp_path, manifest()) as journal:
        journal.append(record)
    assert read_run(tmp_path).records[0].device == "caf\\udce9"


def test_the_manifest_says_what_the_run_is_and_how_to_repeat_it(tmp_path: Path) -> None:
    devices = {backend.name: backend.device for backend in fake_backends()}
    argv = ["sweep", "--seq", "512..16k", "--out", "my runs"]
    made = describe(fake_plan(), devices, argv, environment(), nvrtc_version="13.0", now=EPOCH)
    assert made.run_id.startswith("20250102-030405-")
    assert made.command == "fa-bench sweep --seq 512..16k --out 'my runs'"
    assert made.identity.devices == devices
    assert made.request["seqs"] == list(REQUEST.seqs)
    assert made.gpu["slug"] == GPU.slug
    assert made.environment["python"]
    Journal.create(tmp_path, made).close()
    assert Manifest.read(tmp_path / "run.json") == made
    assert json.loads((tmp_path / "run.json").read_text())["finished"] is None
    other = describe(fake_plan(), devices, argv, environment(), now=EPOCH)
    assert other.run_id != made.run_id


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="There are no named pipes here.")
def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opened to read first, so that opening it to write doesn't wait.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_text(pipe, "all of it")
        assert os.read(reader, 100) == b"all of it"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(os.name == "nt", reason="Links take a privilege there.")
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_stays_a_link(tmp_path: Path, there: bool) -> None:
    (tmp_path / "data").mkdir()
    file, link = tmp_path / "data" / "file", tmp_path / "link"
    if there:
        file.write_text("old")
    link.symlink_to(file)
    replace_text(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_what_could_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "page.html").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_text(tmp_path / "page.html", "new")
    assert contents(tmp_path) == {"page.html": b"old"}
