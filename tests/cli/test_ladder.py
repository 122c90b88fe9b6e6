"""``fa-bench ladder``: formats, exit codes, what it says. What is counted is tested in tests/test_ladder.py."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator

import pytest

from fa_bench import ladder, nvrtc
from fa_bench.algorithms.ladder import RUNGS
from fa_bench.backends.base import Verification
from fa_bench.cases import Case
from fa_bench.ladder import Counted, Step
from fa_bench.model.gpu import Gpu


def answer(step: Step, *, extra_bytes: int = 0, passed: bool = True) -> Counted:
    """Counts that were not made by running anything: those of the formula, and a few round ones."""
    traffic = {(moved.tensor, moved.op): moved.bytes for moved in step.traffic}
    traffic["Q", "read"] += extra_bytes
    verification = Verification(1e-4, 1e-4, 1e-3, "fp64", passed, "" if passed else "O[0] is off")
    return Counted(
        step, 1024.0, traffic, {"tensor": 1024, "fma": 4096, "sync": 512, "control": 512}, 3072, 2048, 512, None, 24576,
        0, "13.0", verification,
    )  # fmt: skip


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the kernel of this name be off by so much, and all others right."""

    def install(name: str = "", **off: object) -> None:
        def run(step: Step, case: Case, gpu: Gpu, jobs: int) -> Counted:
            return answer(step, **(off if step.name == name else {}))  # type: ignore[arg-type]

        monkeypatch.setattr(ladder, "run", run)

    return install


def test_the_tables_fit_80_columns(cli: Callable, runs: Callable) -> None:
    runs()
    ran = cli("ladder")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    # A row of its own in each table, unfolded. 3072 requests, 2048 wavefronts, 512 conflicts, work of 1024 mma.
    for rung in RUNGS:
        assert sum(row[:1] == [rung.name] for row in rows) == 3
    assert ["3.00", "2.00", "0.500", "-", "24", "KiB", "0", "B"] in [row[-8:] for row in rows]
    # All, mma, fp32, sfu, load-store, integer, conversions, moves, and synchronisation with control.
    assert ["08_swizzle", "6.00", "1.00", "4.00", "0", "0", "0", "0", "0", "1.00"] in rows


def test_markdown(cli: Callable, runs: Callable) -> None:
    runs()
    out = cli("ladder", "--format", "md").out
    # 16 sectors: 128 MiB of K three times, and V; a warp of 32 queries reads 1024 · 64 · 32 bytes.
    assert "| +14 −12 | read: 258 MiB → 130 MiB |" in out
    assert "NVRTC 13.0 for sm_80" in out


def test_csv_and_json(cli: Callable, runs: Callable) -> None:
    runs()
    rows = list(csv.DictReader(io.StringIO(cli("ladder", "--format", "csv").out)))
    assert [row["rung"] for row in rows] == [*(rung.name for rung in RUNGS), "flash2 64x64", "flash2 128x64"]
    assert (rows[0]["source"], rows[0]["figure"], rows[0]["registers"]) == ("ladder/01_naive.cu", "", "")
    assert rows[1]["global_write_bytes_emulated"] == str(1024 * 64 * 32 + 4096)
    assert [row["instructions_load_store"] for row in rows[:1]] == ["0"]
    (first, *_) = json.loads(cli("ladder", "--format", "json").out)
    assert (first["instructions"], first["instructions_tensor"], first["bytes_equal"]) == (6144, 1024, True)


@pytest.mark.parametrize(
    ("off", "said"),
    [
        ({"extra_bytes": 32}, "07_async_copy: global bytes differ from the formula"),
        ({"passed": False}, "07_async_copy: O[0] is off"),
    ],
)
def test_a_kernel_that_is_off_is_exit_code_1(off: dict, said: str, cli: Callable, runs: Callable) -> None:
    runs("07_async_copy", **off)
    ran = cli("ladder", "--quiet")
    assert ran.code == 1
    assert said in ran.err


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without NVRTC."""
    monkeypatch.setenv(nvrtc.HIDE, "1")
    nvrtc.load.cache_clear()
    yield
    nvrtc.load.cache_clear()


def test_without_a_compiler_it_says_so(cli: Callable, hidden: None) -> None:
    ran = cli("ladder")
    assert (ran.code, ran.out) == (3, "")
    assert "There is no compiler (NVRTC) here" in ran.err
