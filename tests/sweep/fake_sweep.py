"""A deterministic sweep without kernels: a fake backend, a fake prediction, and a program that runs them.

The tests import it, and run it as a process of its own to kill it:
``python fake_sweep.py FOLDER [--hang-at N]`` prints a line when an emulated case starts, and never ends the Nth.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fa_bench.algorithms.base import PLAIN, TensorBytes, Work
from fa_bench.backends.base import Counts, Outcome, Resources, RunResult, Samples, Verification
from fa_bench.cases import Case, Tile
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.sweep.build import Prediction
from fa_bench.sweep.journal import Journal, open_journal
from fa_bench.sweep.manifest import Identity, Manifest
from fa_bench.sweep.plan import SweepPlan, SweepRequest, plan
from fa_bench.sweep.runner import Observer, SweepOutcome, planned_keys, run_plan

GPU = gpus.get("a100-sxm-80")
EPOCH = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
REQUEST = SweepRequest(seqs=(128, 256, 512), head_dims=(64,), causal=(False, True), impls=("flash1", "flash2", "numpy"))


class FakeAlgorithm:
    """flash1 has no auto tile for fp32; 128-row tiles need more shared memory than there is; sm_75 has no kernels."""

    version = "1"
    summary = "for tests"
    uses_tile = True
    directions = ("fwd",)
    fused = PLAIN

    def __init__(self, name: str) -> None:
        self.name = name

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        return Tile(64, 32, stages=1)

    def resolve(self, case: Case, tile: Tile) -> Tile:
        return replace(tile, num_warps=4)

    def smem_bytes(self, case: Case) -> int:
        assert case.tile is not None
        return 200_000 if case.tile.block_m > 64 else 50_000

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        if gpu.compute_capability < (8, 0):
            return "It needs sm_80."
        if self.smem_bytes(case) > gpu.smem_per_block_bytes:
            return f"It needs {self.smem_bytes(case)} bytes of shared memory; 64x64 fits."
        return None


def algorithm_of(impl: str) -> FakeAlgorithm | None:
    return FakeAlgorithm(impl) if impl.startswith("flash") else None


class FakeBackend:
    """Counts what the fake prediction says; ``outcome`` may return something else or raise, per case."""

    def __init__(
        self,
        name: str = "emulator",
        impls: Sequence[str] = ("flash1", "flash2"),
        *,
        device: str = 'Fake, "CPU"',
        free_bytes: int | None = None,
        outcome: Callable[[Case, RunResult], RunResult] = lambda case, result: result,
    ) -> None:
        self.name = name
        self.device = device
        self.ran: list[Case] = []
        self._impls = impls
        self._free_bytes = free_bytes
        self._outcome = outcome

    def implementations(self) -> Sequence[str]:
        return self._impls

    def free_memory_bytes(self) -> int | None:
        return self._free_bytes

    def required_bytes(self, case: Case) -> int:
        return 1000 * case.shape.seq_q

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        self.ran.append(case)
        return self._outcome(case, good_result(self.name, case))

    def close(self) -> None:
        pass


class FakeTurns(FakeBackend):
    """Takes turns: ``together`` lists the cases that ran together, by their implementations and lengths."""

    def __init__(
        self, name: str = "host", impls: Sequence[str] = ("numpy", "flash1", "flash2"), **options: Any
    ) -> None:
        super().__init__(name, impls, **options)
        self.together: list[tuple[Case, ...]] = []

    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        self.together.append(tuple(cases))
        outcomes: list[Outcome] = []
        for case in cases:
            try:
                outcomes.append(self.run(case, gpu))
            except Exception as error:
                outcomes.append(error)
        return outcomes


def good_result(backend: str, case: Case) -> RunResult:
    verification = Verification(max_abs_err=1e-4, rel_err=2e-4, bound=1e-3, reference="fp64 full", passed=True)
    if backend == "emulator":
        return RunResult(
            counts=Counts({"global": predict(case, GPU).traffic["global"]}, fraction=0.5),
            verification=verification,
            resources=Resources("13.0", threads=128, registers=128, smem_bytes=50_000, spill_bytes=0, compile_ms=12.5),
            mem_peak_bytes=4096,
            mem_source="allocator",
        )
    times = (0.25 * case.shape.seq_q, 0.5 * case.shape.seq_q, 0.125 * case.shape.seq_q)
    return RunResult(samples=Samples(times, "host-clock"), verification=verification)


def predict(case: Case, gpu: Gpu) -> Prediction:
    n, d = case.shape.seq_q, case.shape.head_dim
    common = Prediction(flops_nominal=4 * n * n * d, compulsory_read_bytes=6 * n * d, compulsory_write_bytes=2 * n * d)
    if case.tile is None:
        return common
    traffic = (
        TensorBytes("init", "O_acc", "write", 4 * n * d),
        TensorBytes("fwd", "Q", "read", 2 * n * d),
        TensorBytes("fwd", "O", "write", 2 * n * d),
    )
    return replace(
        common,
        impl_version="1",
        work=Work(flops_executed=5 * n * n * d, exp_count=n * n),
        traffic={"global": traffic, "dram": traffic[1:]},
        roofline_ms=0.5,
        roofline_limiter="dram",
        arithmetic_intensity=12.0,
    )


def fake_backends(**outcome: Callable[[Case, RunResult], RunResult]) -> list[FakeBackend]:
    return [FakeBackend(**outcome), FakeBackend("host", ("numpy",), device="Host, Inc.\nCPU")]


def fake_plan(request: SweepRequest = REQUEST, backends: Sequence[FakeBackend] | None = None) -> SweepPlan:
    return plan(request, backends or fake_backends(), GPU, algorithm_of)


def manifest(backends: Sequence[FakeBackend] | None = None, **identity: object) -> Manifest:
    devices = {backend.name: backend.device for backend in backends or fake_backends()}
    settings = {"--counters": "global", "--check": "no", "--l2": "cold", "--timer": "events"}
    fields = {
        "tool_version": "0.1.0", "nvrtc_version": "13.0", "gpu": GPU.slug, "devices": devices, "settings": settings,
    } | identity  # fmt: skip
    return Manifest(
        run_id="20250102-030405-ab12",
        created=EPOCH.isoformat(),
        identity=Identity(**fields),
        command="fa-bench sweep --seq 128",
        argv=("sweep", "--seq", "128"),
        request={"seqs": [128]},
        environment={},
        gpu={"slug": GPU.slug},
    )


def run(
    folder: Path,
    *,
    backends: Sequence[FakeBackend] | None = None,
    request: SweepRequest = REQUEST,
    resume: bool = False,
    observer: Observer | None = None,
) -> SweepOutcome:
    """Plan, open the folder and run, with time standing still."""
    backends = backends or fake_backends()
    planned = fake_plan(request, backends)
    with open_journal(folder, manifest(backends), planned_keys(planned, backends), resume=resume) as journal:
        return run_with(planned, backends, journal, observer)


def run_with(
    planned: SweepPlan, backends: Sequence[FakeBackend], journal: Journal, observer: Observer | None = None
) -> SweepOutcome:
    return run_plan(
        planned, backends, journal, observer=observer, predict=predict, clock=lambda: 0.0, now=lambda: EPOCH
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hang-at", type=int)
    options = parser.parse_args()
    started = itertools.count(1)

    def announced(case: Case, result: RunResult) -> RunResult:
        sys.stdout.write("case\n")
        sys.stdout.flush()
        if next(started) == options.hang_at:
            time.sleep(600)
        return result

    return run(options.folder, backends=fake_backends(outcome=announced)).exit_code


if __name__ == "__main__":
    sys.exit(main())
