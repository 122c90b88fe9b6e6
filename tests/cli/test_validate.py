"""``fa-bench validate``: formats, exit codes, and what it says. What is counted is tested in tests/validation."""

from __future__ import annotations

import csv
import io
import json
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from fa_bench import algorithms, backends
from fa_bench.algorithms.base import TensorBytes
from fa_bench.backends import spills
from fa_bench.backends.base import BackendName, Counts, RunResult
from fa_bench.cases import Case
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu
from fa_bench.validation.sources import SOURCES


@dataclass
class FullBackend:
    """Counts what the algorithm's formula says at every level, and ``extra_bytes`` more global reads."""

    extra_bytes: int = 0
    name: BackendName = "emulator"
    device: str = "a test"
    closed: bool = False

    def implementations(self) -> Sequence[str]:
        return algorithms.names()

    def free_memory_bytes(self) -> int | None:
        return None

    def required_bytes(self, case: Case) -> int:
        return 0

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        first, *others = asked = list(algorithms.get(case.impl).traffic(case))
        more = [TensorBytes(first.kernel, first.tensor, first.op, first.bytes + self.extra_bytes), *others]
        return RunResult(counts=Counts({"global": more, "l2": asked, "dram": asked}))

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class Predicted:
    """A second, give or take."""

    ms: float = 1000.0
    low_ms: float = 900.0
    high_ms: float = 1100.0
    limiter: str = "a test"


@pytest.fixture(autouse=True)
def predict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time is a second: what is predicted is tested with the predictions."""
    module = types.ModuleType("fa_bench.prediction")
    module.predict_time = lambda case, gpu: Predicted()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fa_bench.prediction", module)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[FullBackend], dict[str, object]]:
    """Let this backend stand for the emulator; what it was opened with is in the dictionary."""

    def use(backend: FullBackend) -> dict[str, object]:
        asked: dict[str, object] = {}

        def open_backend(name: str, **options: object) -> FullBackend:
            asked.update(options, name=name)
            return backend

        monkeypatch.setattr(backends, "resolve_device", lambda device: (device,))
        monkeypatch.setattr(backends, "why_not", lambda name: None)
        monkeypatch.setattr(backends, "open_backend", open_backend)
        monkeypatch.setattr(spills, "dram_bytes", lambda case, gpu, stores: 6_300_000)
        return asked

    return use


def test_the_tables_fit_80_columns(cli: Callable, install: Callable) -> None:
    backend = FullBackend()
    asked = install(backend)
    ran = cli("validate", "--quick", "--jobs", "1")
    assert ran.code == 0
    assert (asked["name"], asked["counters"], asked["jobs"]) == ("emulator", "full", 1)
    assert backend.closed
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if (line.startswith((*SOURCES, "Summary")) and ":" in line) or line == "Summary"]
    assert titles == [
        "fa1-figure2: HBM traffic",
        "fa1-figure2: FLOPs, left out of every mean",
        "fa1-figure2: Time of forward and backward",
        "fa1-figure2: left out",
        "fa1-memory: Memory of forward and backward",
        "fa1-memory: left out",
        "fa1-runtimes: Times, by publication and GPU",
        "fa1-runtimes: Times, by implementation",
        "fa1-runtimes: left out",
        "times: Times, by publication and GPU",
        "times: Times, by implementation",
        "times: left out",
        "held-out: Times, by publication and GPU",
        "held-out: Times, by implementation",
        "held-out: left out",
        "ncu-traffic: Reads by the SMs in 10^6 bytes: global, and from L2",
        "ncu-traffic: DRAM, read and written, in 10^6 bytes",
        "ncu-traffic: left out",
        "gb10: 32-byte sectors at L2, read and written",
        "Summary",
    ]
    # No row of a comparison is folded: each begins with its test, or with its tile.
    rows = [line for line in lines if "37.75" in line]
    assert len(rows) == 2
    assert all(line.startswith("window-") for line in rows)


def test_the_full_tables_fit_80_columns_too(cli: Callable, install: Callable) -> None:
    install(FullBackend())
    ran = cli("validate", "gb10")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "K and V that no longer stay in L2" in ran.out


def test_csv_and_json(cli: Callable, install: Callable) -> None:
    install(FullBackend())
    rows = list(csv.DictReader(io.StringIO(cli("validate", "ncu-traffic", "--quick", "--format", "csv").out)))
    assert [row["comparison"] for row in rows] == ["reads"] * 6 + ["dram"] * 6
    assert [row["global_read_bytes_emulated"] for row in rows[:4]] == ["25165824", "18874368", "37748736", "25165824"]
    assert rows[0]["dram_bytes_published"] == ""
    document = json.loads(cli("validate", "gb10", "--quick", "--format", "json").out)
    assert document["passed"] is True
    assert [source["source"] for source in document["sources"]] == ["gb10"]


def test_markdown_has_the_notes(cli: Callable, install: Callable) -> None:
    install(FullBackend())
    ran = cli("validate", "gb10", "--quick", "--format", "md")
    assert ran.out.startswith("**gb10: 32-byte sectors at L2, read and written**\n\n| T | S | causal |")
    assert "arXiv 2601.16032" in ran.out


def test_a_global_byte_that_differs_is_exit_code_1(cli: Callable, install: Callable) -> None:
    install(FullBackend(extra_bytes=32 * 1024))
    ran = cli("validate", "ncu-traffic", "--quick", "--format", "json")
    assert ran.code == 1
    assert "ncu-traffic, window-512.base, seq 512, full: global reads are off by" in ran.err
    assert json.loads(ran.out)["passed"] is False


def test_an_unknown_source_is_exit_code_2(cli: Callable, install: Callable) -> None:
    install(FullBackend())
    ran = cli("validate", "ncu")
    assert ran.code == 2
    assert "There is no source 'ncu'." in ran.err
    assert ran.out == ""


def test_without_an_emulator_it_is_exit_code_3(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "why_not", lambda name: "The emulator isn't here.")
    ran = cli("validate", "gb10", "--quick")
    assert ran.code == 3
    assert "The emulator isn't here." in ran.err


def test_without_an_emulator_and_a_name_the_others_run(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "why_not", lambda name: "The emulator isn't here.")
    ran = cli("validate", "--format", "json")
    assert ran.code == 0
    assert "Left out: ncu-traffic, gb10. The emulator isn't here." in ran.err
    sources = [source["source"] for source in json.loads(ran.out)["sources"]]
    assert sources == ["fa1-figure2", "fa1-memory", "fa1-runtimes", "times", "held-out"]


def test_what_is_predicted_needs_no_emulator(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "open_backend", lambda *args, **options: pytest.fail("opened"))
    monkeypatch.setattr(backends, "why_not", lambda name: "The emulator isn't here.")
    ran = cli("validate", "times", "fa1-memory")
    assert (ran.code, ran.err) == (0, "")
    assert "published by" in ran.out


def test_csv_has_a_row_for_every_published_time(cli: Callable) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("validate", "times", "--format", "csv").out)))
    # 493 figures, of which 54 are no cases.
    assert len(rows) == 439
    assert rows[0]["published_by"] == "FlashAttention-2 fig. 4"
    assert float(rows[0]["time_ms_model"]) == 1000


def test_a_source_that_fails_costs_no_other(cli: Callable, install: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FullBackend()
    install(backend)

    def refuse(case: Case, gpu: Gpu) -> RunResult:
        raise Unsupported("This kernel was not compiled.", hint="Install NVRTC.")

    monkeypatch.setattr(backend, "run", refuse)
    ran = cli("validate", "ncu-traffic", "fa1-memory", "--format", "json")
    assert ran.code == 1
    assert "ncu-traffic: This kernel was not compiled. Install NVRTC." in ran.err
    assert [source["source"] for source in json.loads(ran.out)["sources"]] == ["fa1-memory"]
