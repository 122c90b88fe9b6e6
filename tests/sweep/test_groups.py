"""Cases that are compared run together, are written together, and are redone together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sweep import REQUEST, FakeBackend, FakeTurns, fake_backends, fake_plan, run

from fa_bench.backends.base import RunResult
from fa_bench.cases import Case
from fa_bench.errors import KernelFault, OutOfMemory, Unsupported
from fa_bench.records import RECORDS
from fa_bench.sweep.groups import MOST_TOGETHER, backends_by_name, groups_of
from fa_bench.sweep.journal import read_run

#: Three implementations at two lengths: two groups of three.
TWO = replace(REQUEST, seqs=(128, 256), causal=(False,))


def sizes(request: object, *backends: FakeBackend) -> list[int]:
    planned = fake_plan(request, backends)
    return [len(group) for group in groups_of(planned, backends_by_name(backends))]


def raising(error: BaseException, impl: str, seq: int) -> Callable[[Case, RunResult], RunResult]:
    def outcome(case: Case, result: RunResult) -> RunResult:
        if (case.impl, case.shape.seq_q) == (impl, seq):
            raise error
        return result

    return outcome


def statuses(folder: Path) -> list[str]:
    return [record.status for record in read_run(folder).records]


def test_neighbours_of_one_shape_are_a_group_on_a_backend_that_takes_turns() -> None:
    # 2 lengths x (full, causal) x 3 implementations.
    assert sizes(replace(REQUEST, seqs=(128, 256)), FakeTurns()) == [3, 3, 3, 3]
    assert sizes(replace(TWO, dtypes=("fp16", "bf16"), layouts=("bhsd", "bshd")), FakeTurns()) == 8 * [3]
    # flash1 and flash2 on an emulator that has no time to take turns with, numpy on the host.
    assert sizes(TWO, *fake_backends()) == 6 * [1]


def test_many_tiles_of_one_shape_are_split_evenly_and_in_order() -> None:
    # 9 tiles of flash1, then 9 of flash2, then numpy: 19 cases are 3 groups of at most 8.
    blocks = tuple((16 * m, 16 * n) for m in (1, 2, 3) for n in (1, 2, 3))
    request = replace(REQUEST, seqs=(128,), causal=(False,), blocks=blocks)
    backends = backends_by_name([FakeTurns()])
    groups = groups_of(fake_plan(request, list(backends.values())), backends)
    assert [len(group) for group in groups] == [6, 6, 7]
    assert max(map(len, groups)) <= MOST_TOGETHER
    assert [planned for group in groups for planned in group] == list(fake_plan(request, list(backends.values())).cases)


def test_a_group_runs_together_and_its_rows_are_written_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeTurns()
    written: list[int] = []
    line = RECORDS.line

    class Listener:
        def started(self, planned: object) -> None:
            written.append(len(read_run(tmp_path).records))

        def finished(self, planned: object, record: object, seconds: float) -> None:
            pass

    outcome = run(tmp_path, backends=[backend], request=TWO, observer=Listener())
    assert [[case.impl for case in cases] for cases in backend.together] == 2 * [["flash1", "flash2", "numpy"]]
    assert written == [0, 0, 0, 3, 3, 3]
    data = read_run(tmp_path)
    assert (data.records, len(data.samples)) == (outcome.records, 6)
    text = (tmp_path / "records.csv").read_text(encoding="utf-8")
    assert text == RECORDS.header + "".join(map(line, outcome.records))


def test_one_case_that_fails_leaves_the_others_of_its_group(tmp_path: Path) -> None:
    run(tmp_path, backends=[FakeTurns(outcome=raising(KernelFault("Bad."), "flash2", 128))], request=TWO)
    assert statuses(tmp_path) == ["ok", "error", "ok", "ok", "ok", "ok"]


def test_what_the_plan_skips_is_a_row_of_its_group_and_does_not_run(tmp_path: Path) -> None:
    # Tiles of 128 rows need more shared memory than there is: only 64x32 of each implementation runs.
    backend = FakeTurns()
    run(tmp_path, backends=[backend], request=replace(TWO, seqs=(128,), blocks=((128, 32), (64, 32))))
    assert statuses(tmp_path) == ["skipped", "ok", "skipped", "ok", "ok"]
    assert [len(cases) for cases in backend.together] == [3]


def test_a_group_with_a_row_to_redo_is_timed_again_as_a_whole(tmp_path: Path) -> None:
    run(tmp_path, backends=[FakeTurns(outcome=raising(KernelFault("Once."), "flash2", 128))], request=TWO)
    backend = FakeTurns()
    resumed = run(tmp_path, backends=[backend], request=TWO, resume=True)
    assert [[case.impl for case in cases] for cases in backend.together] == [["flash1", "flash2", "numpy"]]
    assert (resumed.kept, [record.seq_q for record in resumed.records]) == (3, 3 * [128] + 3 * [256])
    assert {record.status for record in resumed.records} == {"ok"}


@pytest.mark.parametrize("error", [OutOfMemory("Big."), Unsupported("No.")])
def test_rows_without_a_time_stay_when_their_group_is_timed_again(tmp_path: Path, error: Exception) -> None:
    run(tmp_path, backends=[FakeTurns(outcome=raising(error, "flash1", 128))], request=TWO)
    path = tmp_path / "records.csv"
    # The last row of the first group, numpy's, is lost.
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]), encoding="utf-8")
    backend = FakeTurns()
    resumed = run(tmp_path, backends=[backend], request=TWO, resume=True)
    assert [[case.impl for case in cases] for cases in backend.together] == [["flash2", "numpy"]]
    assert (resumed.kept, len(resumed.records)) == (4, 6)


def test_a_new_implementation_is_timed_in_turns_with_those_that_were_there(tmp_path: Path) -> None:
    run(tmp_path, backends=[FakeTurns()], request=replace(TWO, impls=("flash1", "numpy")))
    backend = FakeTurns()
    resumed = run(tmp_path, backends=[backend], request=TWO, resume=True)
    assert (resumed.kept, [len(cases) for cases in backend.together]) == (0, [3, 3])


def test_ctrl_c_inside_a_group_interrupts_all_of_it(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", backends=[FakeTurns()], request=TWO).records
    folder = tmp_path / "cut"
    cut = run(folder, backends=[FakeTurns(outcome=raising(KeyboardInterrupt(), "flash2", 256))], request=TWO)
    assert (cut.exit_code, statuses(folder)) == (130, 3 * ["ok"] + 3 * ["interrupted"])
    resumed = run(folder, backends=[FakeTurns()], request=TWO, resume=True)
    assert (resumed.kept, resumed.records) == (3, whole)


def test_a_backend_that_breaks_while_a_group_runs_fails_each_of_its_cases(tmp_path: Path) -> None:
    class Broken(FakeTurns):
        def run_together(self, cases: object, gpu: object) -> list[RunResult]:
            raise RuntimeError("defect")

    run(tmp_path, backends=[Broken()], request=TWO)
    records = read_run(tmp_path).records
    assert [record.status for record in records] == 6 * ["error"]
    assert all(str(record.status_reason).startswith("RuntimeError: defect (test_groups.py:") for record in records)
