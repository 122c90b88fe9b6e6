"""Tiles with figures of the test's choice, and a backend that counts by a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fa_bench import algorithms
from fa_bench.algorithms.base import TensorBytes, Work
from fa_bench.backends.base import BackendName, Counts, Resources, RunResult, Verification
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import Occupancy
from fa_bench.records import Record
from fa_bench.tuning.counts import Status, Trial
from fa_bench.tuning.known import Known
from fa_bench.tuning.predict import Prediction

SHAPE = AttentionShape(1, 1, 1, 1024, 1024, 64)


def known(
    block_m: int = 64,
    block_n: int = 64,
    *,
    ms: float | None = None,
    nbytes: int = 2**20,
    spill: int | None = 0,
    status: Status = "ok",
    blocks: int = 2,
) -> Known:
    """A tile that takes ``ms`` by prediction; None where nothing was counted."""
    case = Case("flash2", SHAPE, tile=Tile(block_m, block_n, 1, 4))
    prediction = None if ms is None else Prediction(ms, {"tensor": ms / 2, "shared": ms / 4}, 1.0)
    resources = None if spill is None else Resources("13.0", 128, 128, 48 * 1024, spill, 1.0)
    trial = Trial(case, status, "" if status == "ok" else "It failed.", resources)
    return Known(
        trial,
        Work(4 * 1024 * 1024 * 64, 1024 * 1024),
        global_bytes=nbytes,
        dram_bytes=nbytes // 2,
        smem_bytes=48 * 1024,
        occupancy=None if spill is None else Occupancy(blocks, 4 * blocks, 4 * blocks / 64, ("shared memory",)),
        waves=0.5,
        prediction=prediction,
    )


def timed(made: Known, ms: float, status: str = "ok") -> Known:
    """The same with what a GPU might say of it; this is no record of any hardware."""
    ok = status == "ok"
    record = Record(
        run_id="r", case_id="c", timestamp="t", impl="flash2", backend="cuda", device="d", dtype="fp16",
        direction="fwd", layout="bhsd", batch=1, heads_q=1, heads_kv=1, seq_q=1, seq_kv=1, head_dim=64, causal=False,
        seed=0, status=status, status_reason=None if ok else "It is off.", max_abs_err=1e-4, err_reference="fp64",
        **({"time_ms": ms, "time_p20_ms": ms, "time_p80_ms": ms, "time_source": "cuda-events"} if ok else {}),
    )  # type: ignore[arg-type]  # fmt: skip
    return replace(made, record=record)


@dataclass
class CountingBackend:
    """An emulator that counts, per slice, 3 + 5 per tile of Q + 7 per tile of scores wavefronts, all squares alike.

    ``change`` may alter a result; ``ran`` lists the cases.
    """

    name: BackendName = "emulator"
    device: str = "a test"
    registers: int = 128
    spill_bytes: int = 0
    change: Callable[[Case, RunResult], RunResult] = lambda case, result: result
    ran: list[Case] = field(default_factory=list)

    def implementations(self) -> Sequence[str]:
        return algorithms.names()

    def free_memory_bytes(self) -> int | None:
        return None

    def required_bytes(self, case: Case) -> int:
        return 0

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        self.ran.append(case)
        algorithm = algorithms.get(case.impl)
        assert case.tile is not None
        work, traffic = algorithm.work(case), algorithm.traffic(case)
        assert work is not None and traffic is not None
        q_tiles = math.ceil(case.shape.seq_q / case.tile.block_m) * case.shape.slices
        tiles = work.flops_executed // (4 * case.tile.block_m * case.tile.block_n * case.shape.head_dim)
        extra = {
            "shared_wavefronts": 3 * case.shape.slices + 5 * q_tiles + 7 * tiles,
            "shared_conflicts": q_tiles,
            "instructions_fma": 20 * tiles,
            "instructions_tensor": 10 * tiles,
            "instructions_move": 1000 * tiles,
        }
        threads = case.tile.num_warps * 32
        result = RunResult(
            counts=Counts({"global": traffic}, extra={traffic[0].kernel: extra}),
            verification=Verification(1e-4, 1e-4, 1e-3, "fp64", True),
            resources=Resources(
                "13.0", threads, self.registers, algorithm.smem_bytes(case), self.spill_bytes, compile_ms=1.0
            ),
        )
        return self.change(case, result)

    def close(self) -> None:
        """Nothing is held."""


def wrong(result: RunResult) -> RunResult:
    """The same with an error that is too large."""
    return replace(result, verification=Verification(3.0, 3.0, 1e-3, "fp64", False, "Row 3 is off."))


def with_a_byte_more(result: RunResult) -> RunResult:
    """The same with a sector of the first tensor too many."""
    assert result.counts is not None
    first, *rest = result.counts.traffic["global"]
    more = TensorBytes(first.kernel, first.tensor, first.op, first.bytes + 32)
    return replace(result, counts=replace(result.counts, traffic={"global": [more, *rest]}))
