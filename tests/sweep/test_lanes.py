"""Several sets of backends at the same time: every case once, one journal, and an end after a defect or Ctrl-C."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from fake_sweep import EPOCH, REQUEST, FakeBackend, FakeTurns, fake_plan, manifest, predict, run

from fa_bench.backends.base import RunResult
from fa_bench.cases import Case
from fa_bench.sweep.journal import open_journal, read_run
from fa_bench.sweep.plan import PlannedCase
from fa_bench.sweep.runner import Silent, SweepOutcome, planned_keys, run_plan


def run_beside(folder: Path, backends: list[FakeBackend], observer: Silent | None = None) -> SweepOutcome:
    planned = fake_plan(REQUEST, backends[:1])
    with open_journal(folder, manifest(backends[:1]), planned_keys(planned, backends[:1]), resume=True) as journal:
        return run_plan(
            planned,
            backends[:1],
            journal,
            beside=[[backend] for backend in backends[1:]],
            observer=observer,
            predict=predict,
            clock=lambda: 0.0,
            now=lambda: EPOCH,
        )


def test_two_sets_share_the_cases_and_give_the_same_rows(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=60)
    first: set[int] = set()

    def meet(case: Case, result: RunResult) -> RunResult:
        # The first case of each set waits for the other's: they do run at the same time.
        me = threading.get_ident()
        if me not in first:
            first.add(me)
            meeting.wait()
        return result

    backends: list[FakeBackend] = [FakeTurns(outcome=meet), FakeTurns(outcome=meet)]
    outcome = run_beside(tmp_path / "two", backends)
    assert all(backend.ran for backend in backends)
    whole = run(tmp_path / "one", backends=[FakeTurns()])
    assert outcome.records == whole.records  # in the plan's order, whoever was first
    assert sorted(read_run(tmp_path / "two").samples, key=str) == sorted(read_run(tmp_path / "one").samples, key=str)
    assert sum(len(backend.ran) for backend in backends) == len(whole.records)


def test_rows_are_written_and_shown_in_one_thread(tmp_path: Path) -> None:
    seen: set[int] = set()

    class Listener(Silent):
        def started(self, planned: PlannedCase) -> None:
            seen.add(threading.get_ident())

        def finished(self, planned: PlannedCase, record: object, seconds: float) -> None:
            seen.add(threading.get_ident())

    run_beside(tmp_path, [FakeTurns(), FakeTurns(), FakeTurns()], Listener())
    assert seen == {threading.get_ident()}


def test_ctrl_c_interrupts_what_all_sets_run(tmp_path: Path) -> None:
    release = threading.Event()

    def wait(case: Case, result: RunResult) -> RunResult:
        release.wait(timeout=60)
        return result

    class Impatient(Silent):
        groups: frozenset[int] = frozenset()

        def started(self, planned: PlannedCase) -> None:
            self.groups |= {planned.case.shape.seq_q + planned.case.shape.causal}
            if len(self.groups) == 2:  # a group in each set
                raise KeyboardInterrupt

    outcome = run_beside(tmp_path, [FakeTurns(outcome=wait), FakeTurns(outcome=wait)], Impatient())
    release.set()
    assert outcome.exit_code == 130
    assert [record.status for record in outcome.records] == 6 * ["interrupted"]  # two groups of three
    assert run_beside(tmp_path, [FakeTurns()]).records == run(tmp_path / "whole", backends=[FakeTurns()]).records


def test_what_is_no_outcome_of_a_case_ends_the_sweep(tmp_path: Path) -> None:
    class Exit(FakeTurns):
        def run_together(self, cases: object, gpu: object) -> list[RunResult]:
            raise SystemExit("gone")

    with pytest.raises(SystemExit, match="gone"):
        run_beside(tmp_path, [Exit(), Exit()])
