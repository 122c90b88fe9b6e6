"""Running a plan: whatever happens to a case is a row, and the sweep goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sweep import REQUEST, FakeBackend, fake_backends, fake_plan, manifest, predict, run, run_with

from fa_bench.backends.base import RunResult, Verification
from fa_bench.cases import Case
from fa_bench.errors import CompileError, KernelFault, OutOfMemory, Unsupported
from fa_bench.records import Record
from fa_bench.sweep.journal import open_journal, read_run
from fa_bench.sweep.plan import PlannedCase
from fa_bench.sweep.runner import Silent, planned_keys, run_plan

TOTAL = len(fake_plan().cases)


def failing(error: BaseException, at: int) -> Callable[[Case, RunResult], RunResult]:
    """An outcome that raises ``error`` at the emulator's case number ``at`` and is good elsewhere."""
    seen: list[Case] = []

    def outcome(case: Case, result: RunResult) -> RunResult:
        seen.append(case)
        if len(seen) == at:
            raise error
        return result

    return outcome


def comparable(records: tuple[Record, ...]) -> list[Record]:
    return sorted(records, key=lambda record: record.case_id)


class Listener:
    """Remembers what it is told, and checks that a row is on disk by then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[str] = []

    def started(self, planned: PlannedCase) -> None:
        self.events.append(f"started {planned.case.case_id}")

    def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
        assert read_run(self.folder).records[-1] == record
        self.events.append(f"finished {record.case_id}")


def test_every_planned_case_has_its_row_in_order(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    outcome = run(tmp_path, observer=listener)
    ids = [planned.case.case_id for planned in fake_plan().cases]
    assert [record.case_id for record in outcome.records] == ids
    assert read_run(tmp_path).records == outcome.records
    assert {record.status for record in outcome.records} == {"ok"}
    assert (outcome.exit_code, outcome.kept, outcome.interrupted) == (0, 0, False)
    assert listener.events == [f"{what} {case_id}" for case_id in ids for what in ("started", "finished")]
    data = read_run(tmp_path)
    assert data.manifest.finished is not None
    assert all(record.run_id == data.manifest.run_id for record in data.records)


def test_traffic_and_samples_stand_beside_their_record(tmp_path: Path) -> None:
    run(tmp_path)
    data = read_run(tmp_path)
    by_impl = {record.case_id: record.impl for record in data.records}
    # Per emulated case: 3 model lines at global, 2 at dram, 3 emulated lines at global; 2 implementations x 6 shapes.
    assert len(data.traffic) == 12 * 8
    assert {by_impl[line.case_id] for line in data.traffic} == {"flash1", "flash2"}
    assert {by_impl[line.case_id] for line in data.samples} == {"numpy"}
    first = data.records[0]
    emulated = [t for t in data.traffic if (t.case_id, t.source, t.op) == (first.case_id, "emulated", "write")]
    assert sum(line.bytes for line in emulated) == first.global_write_bytes_emulated == first.global_write_bytes_model


@pytest.mark.parametrize(
    ("error", "status", "reason", "exit_code"),
    [
        (OutOfMemory("It needed 96 GiB."), "oom", "It needed 96 GiB.", 0),
        (MemoryError(), "oom", "The machine ran out of memory.", 0),
        (Unsupported("No bf16 here."), "unsupported", "No bf16 here.", 0),
        (CompileError("flash2.cu(3): error"), "error", "flash2.cu(3): error", 1),
        (KernelFault("ld.global at line 7"), "error", "ld.global at line 7", 1),
        (ZeroDivisionError("division by zero"), "error", "ZeroDivisionError: division by zero (test_runner.py:", 1),
    ],
)
def test_a_case_that_fails_is_a_row_and_the_sweep_goes_on(
    tmp_path: Path, error: Exception, status: str, reason: str, exit_code: int
) -> None:
    outcome = run(tmp_path, backends=fake_backends(outcome=failing(error, at=3)))
    assert len(outcome.records) == TOTAL
    (failed,) = [record for record in outcome.records if record.status != "ok"]
    assert failed.status == status
    assert failed.status_reason is not None
    assert failed.status_reason.startswith(reason)
    assert failed.global_read_bytes_model is not None  # the prediction is kept
    assert outcome.exit_code == exit_code
    assert read_run(tmp_path).manifest.finished is not None


def test_a_wrong_result_and_an_impossible_value_are_failures(tmp_path: Path) -> None:
    def outcome(case: Case, result: RunResult) -> RunResult:
        if case.shape.seq_q == 128:
            return replace(result, verification=Verification(1.0, 1.0, 1e-3, "fp64 full", passed=False))
        return replace(result, mem_peak_bytes=-1) if case.shape.seq_q == 256 else result

    records = run(tmp_path, backends=fake_backends(outcome=outcome)).records
    statuses = {record.seq_q: record.status for record in records if record.backend == "emulator"}
    assert statuses == {128: "wrong_result", 256: "error", 512: "ok"}
    reasons = {record.status_reason for record in records if record.seq_q == 256 and record.backend == "emulator"}
    assert all("mem_peak_bytes must be at least 0, not -1" in str(reason) for reason in reasons)


def test_what_the_plan_skips_is_a_row_with_its_prediction_and_never_runs(tmp_path: Path) -> None:
    backends = [FakeBackend(free_bytes=300_000), FakeBackend("host", ("numpy",))]
    outcome = run(tmp_path, backends=backends)
    skipped = [record for record in outcome.records if record.status == "skipped"]
    assert {record.seq_q for record in skipped} == {512}
    assert len(skipped) == 4
    assert all(record.status_reason == "It needs 500 KiB of memory; 293 KiB are free." for record in skipped)
    assert all(record.global_read_bytes_model for record in skipped)
    assert all(case.shape.seq_q < 512 for case in backends[0].ran)
    assert outcome.exit_code == 0


def test_ctrl_c_keeps_what_is_done_and_resuming_gives_the_same_rows(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole").records
    backends = fake_backends(outcome=failing(KeyboardInterrupt(), at=4))
    cut = run(tmp_path / "cut", backends=backends)
    assert (cut.interrupted, cut.exit_code) == (True, 130)
    assert [record.status for record in cut.records] == ["ok"] * 4 + ["interrupted"]  # flash1 flash2 numpy flash1
    assert read_run(tmp_path / "cut").records == cut.records
    assert read_run(tmp_path / "cut").manifest.finished is None

    backends = fake_backends()
    resumed = run(tmp_path / "cut", backends=backends, resume=True)
    assert (resumed.kept, resumed.exit_code) == (4, 0)
    assert resumed.records == whole
    assert sum(len(backend.ran) for backend in backends) == TOTAL - 4
    for name in ("records.csv", "traffic.csv", "samples.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_ctrl_c_between_two_cases_leaves_no_interrupted_row(tmp_path: Path) -> None:
    class Impatient(Listener):
        def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
            super().finished(planned, record, seconds)
            if len(self.events) == 4:
                raise KeyboardInterrupt

    outcome = run(tmp_path, observer=Impatient(tmp_path))
    assert [record.status for record in outcome.records] == ["ok", "ok"]
    assert outcome.exit_code == 130


@pytest.mark.parametrize("cut", [1, 2, 3, TOTAL - 1, TOTAL])
def test_resuming_after_any_row_gives_the_same_rows(tmp_path: Path, cut: int) -> None:
    class Quits(Listener):
        def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
            super().finished(planned, record, seconds)
            if len(self.events) == 2 * cut:
                raise KeyboardInterrupt

    run(tmp_path, observer=Quits(tmp_path))
    resumed = run(tmp_path, resume=True)
    assert resumed.kept == cut
    assert resumed.records == run(tmp_path / "whole").records


def test_an_error_is_redone_and_an_oom_is_not(tmp_path: Path) -> None:
    run(tmp_path, backends=fake_backends(outcome=failing(KernelFault("Once."), at=2)))
    resumed = run(tmp_path, resume=True)
    assert (resumed.kept, resumed.exit_code) == (TOTAL - 1, 0)
    assert comparable(resumed.records) == comparable(run(tmp_path / "whole").records)

    run(tmp_path / "oom", backends=fake_backends(outcome=failing(OutOfMemory("Big."), at=2)))
    backends = fake_backends()
    resumed = run(tmp_path / "oom", backends=backends, resume=True)
    assert resumed.kept == TOTAL
    assert [backend.ran for backend in backends] == [[], []]
    assert [record.status for record in resumed.records].count("oom") == 1


def test_a_wrong_result_that_is_kept_still_fails(tmp_path: Path) -> None:
    wrong = Verification(1.0, 1.0, 1e-3, "fp64 full", passed=False)
    run(tmp_path, backends=fake_backends(outcome=lambda case, result: replace(result, verification=wrong)))
    resumed = run(tmp_path, resume=True)
    assert (resumed.kept, resumed.exit_code) == (TOTAL, 1)


def test_resuming_with_more_axes_runs_only_what_is_new(tmp_path: Path) -> None:
    run(tmp_path, request=replace(REQUEST, seqs=(128,)))
    backends = fake_backends()
    resumed = run(tmp_path, backends=backends, request=replace(REQUEST, seqs=(128, 256)), resume=True)
    assert (resumed.kept, len(resumed.records)) == (6, 12)
    assert {case.shape.seq_q for backend in backends for case in backend.ran} == {256}


def test_a_defect_in_the_observer_is_not_swallowed(tmp_path: Path) -> None:
    class Broken(Listener):
        def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
            raise RuntimeError("cannot draw")

    with pytest.raises(RuntimeError, match="cannot draw"):
        run(tmp_path, observer=Broken(tmp_path))
    assert len(read_run(tmp_path).records) == 1


def test_the_seconds_of_a_case_are_those_of_the_clock(tmp_path: Path) -> None:
    seconds_seen = []

    class Timer(Silent):
        def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
            seconds_seen.append(seconds)

    planned, backends = fake_plan(), fake_backends()
    ticks = itertools.count(0.0, 7.0)
    with open_journal(tmp_path, manifest(), planned_keys(planned, backends)) as journal:
        run_plan(planned, backends, journal, observer=Timer(), predict=predict, clock=lambda: next(ticks))
    assert seconds_seen == [7.0] * TOTAL


def test_a_plan_that_is_done_runs_nothing_more(tmp_path: Path) -> None:
    planned, backends = fake_plan(), fake_backends()
    with open_journal(tmp_path, manifest(), planned_keys(planned, backends)) as journal:
        first = run_with(planned, backends, journal)
        again = run_with(planned, backends, journal)
    assert len(backends[0].ran) == 12
    assert (again.records, again.kept) == (first.records, TOTAL)
