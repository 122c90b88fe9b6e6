"""A backend and a predictor that answer at once with figures of the test's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import TensorBytes
from fa_bench.backends.base import BackendName, Counts, RunResult, Verification
from fa_bench.cases import Case
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu


@dataclass
class FullBackend:
    """Counts what the algorithm's formula says, and ``extra`` more bytes for the first tensor, by level.

    DRAM sees each tensor's bytes at most once, less ``dirty`` bytes of the first output.
    """

    name: BackendName = "emulator"
    device: str = "a test"
    extra: dict[str, int] = field(default_factory=dict)
    dirty: int = 0
    passed: bool = True
    levels: Sequence[str] = ("global", "l2", "dram")
    ran: list[tuple[Case, str]] = field(default_factory=list)
    closed: bool = False

    def implementations(self) -> Sequence[str]:
        return algorithms.names()

    def free_memory_bytes(self) -> int | None:
        return None

    def required_bytes(self, case: Case) -> int:
        return 0

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        self.ran.append((case, gpu.slug))
        algorithm = algorithms.get(case.impl)
        asked = algorithm.traffic(case)
        sizes = {buffer.name: buffer.nbytes for buffer in algorithm.program(case).buffers}
        dram = [replace(part, bytes=min(part.bytes, sizes[part.tensor])) for part in asked]
        dram = [replace(part, bytes=part.bytes - self.dirty * (part.tensor == "O")) for part in dram]
        traffic = {
            level: self._more(parts, level)
            for level, parts in (("global", asked), ("l2", asked), ("dram", dram))
            if level in self.levels
        }
        extra = {asked[0].kernel: {"l2_dirty_bytes": self.dirty}}
        return RunResult(
            counts=Counts(traffic, 1.0, extra),
            verification=Verification(1e-4, 1e-4, 1e-3, "fp64", self.passed, "" if self.passed else "O is off."),
        )

    def _more(self, parts: Sequence[TensorBytes], level: str) -> list[TensorBytes]:
        first, *others = parts
        return [replace(first, bytes=first.bytes + self.extra.get(level, 0)), *others]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def full_backend() -> Callable[..., FullBackend]:
    """Make one; keyword arguments are those of `FullBackend`."""
    return FullBackend


@dataclass(frozen=True)
class Predicted:
    """A time with an interval of a tenth to either side."""

    ms: float
    limiter: str = "a test"

    @property
    def low_ms(self) -> float:
        return 0.9 * self.ms

    @property
    def high_ms(self) -> float:
        return 1.1 * self.ms


@dataclass
class Predictor:
    """Says ``ms`` of every case, and that there is no model for the implementations in ``without``."""

    ms: float = 1.0
    without: Sequence[str] = ()
    asked: list[tuple[Case, str]] = field(default_factory=list)

    def __call__(self, case: Case, gpu: Gpu) -> Predicted:
        self.asked.append((case, gpu.slug))
        if case.impl in self.without:
            raise Unsupported(f"There is no time model of {case.impl}.")
        return Predicted(self.ms)


@pytest.fixture
def predictor() -> Callable[..., Predictor]:
    """Make one; keyword arguments are those of `Predictor`."""
    return Predictor
