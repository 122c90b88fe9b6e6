"""Run the command line in this process, on backends that answer at once with figures of the test's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fa_bench import algorithms, backends
from fa_bench.algorithms.base import TensorBytes
from fa_bench.backends.base import BackendName, Counts, RunResult, Samples, Verification
from fa_bench.cases import Case
from fa_bench.cli.app import run
from fa_bench.model.gpu import Gpu


@dataclass(frozen=True)
class Ran:
    """What one command left."""

    code: int
    out: str
    err: str


@dataclass
class FakeBackend:
    """Answers with the model's own counts, plus ``extra_bytes`` for the first tensor, or with a time of 1 s.

    ``wrong`` makes the error too large. ``on_run`` may raise; ``ran`` lists the cases that were asked for.
    """

    name: BackendName = "emulator"
    device: str = "a test"
    impls: Sequence[str] = ()
    wrong: bool = False
    extra_bytes: int = 0
    free_bytes: int | None = None
    on_run: Callable[[Case], None] = lambda case: None
    ran: list[Case] = field(default_factory=list)
    closed: bool = False

    def implementations(self) -> Sequence[str]:
        return self.impls or algorithms.names()

    def free_memory_bytes(self) -> int | None:
        return self.free_bytes

    def required_bytes(self, case: Case) -> int:
        return case.shape.slices * case.shape.seq_q * case.shape.seq_kv

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        self.on_run(case)
        self.ran.append(case)
        error = 3.0 if self.wrong else 1e-4
        verification = Verification(error, error, bound=1e-3, reference="fp64", passed=not self.wrong)
        if self.name != "emulator":
            source = "cuda-events" if self.name == "cuda" else "host-clock"
            return RunResult(samples=Samples((900.0, 1000.0, 1100.0), source), verification=verification)
        first, *rest = algorithms.get(case.impl).traffic(case)
        counted = [TensorBytes(first.kernel, first.tensor, first.op, first.bytes + self.extra_bytes), *rest]
        return RunResult(counts=Counts({"global": counted}), verification=verification)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Run ``fa-bench`` with these arguments, in an empty folder, as in a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*args: str) -> Ran:
        capsys.readouterr()
        code = run(args)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let ``auto`` stand for these backends, and every other device for the one of that name."""

    def install(*opened: FakeBackend) -> None:
        by_name = {backend.name: backend for backend in opened}

        def resolve(device: str) -> tuple[BackendName, ...]:
            return tuple(by_name) if device == "auto" else tuple(name for name in by_name if name == device)

        monkeypatch.setattr(backends, "resolve_device", resolve)
        monkeypatch.setattr(backends, "why_not", lambda name: None)
        for opener in ("open_backend", "open_apart"):
            monkeypatch.setattr(backends, opener, lambda name, **options: by_name[name])

    return install


@pytest.fixture
def emulator() -> Callable[..., FakeBackend]:
    """Make a fake emulator; keyword arguments are those of `FakeBackend`."""
    return FakeBackend


@pytest.fixture
def host() -> Callable[..., FakeBackend]:
    """Make a fake host with NumPy's implementations and, if asked, others."""

    def make(*others: str) -> FakeBackend:
        return FakeBackend("host", impls=("numpy-standard", "numpy-flash", *others))

    return make
