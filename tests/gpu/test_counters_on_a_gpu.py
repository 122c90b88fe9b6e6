"""On a real GPU with Nsight Compute that may read counters: measured bytes against the model and against each other."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import Op
from fa_bench.backends.base import HardwareCounts, Level
from fa_bench.backends.counter_sources import NcuCounters
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.measure.ncu import probe
from fa_bench.model.gpu import Gpu
from fa_bench.sweep.counters import checked
from fa_bench.sweep.predict import predict

pytestmark = pytest.mark.gpu

TILE = Tile(64, 64, 1, 4)
SHAPE = AttentionShape(2, 8, 2, 1024, 1024, 64)


@pytest.fixture(scope="module")
def ncu() -> NcuCounters:
    found = probe()
    if found.path is None or found.refused:
        pytest.skip(f"Hardware counters can't be read: ncu is {found.sentence}.")
    return NcuCounters()


def counted(ncu: NcuCounters, case: Case, gpu: Gpu) -> HardwareCounts:
    found = checked(ncu.count(case, gpu), case, predict(case, gpu).compulsory_read_bytes)
    assert found.status == "ok", found.reason
    return found


def total(found: HardwareCounts, level: Level, op: Op) -> int:
    assert found.counts is not None
    return sum(part.bytes for part in found.counts.traffic[level] if part.op == op)


@pytest.mark.parametrize("impl", algorithms.names("fwd"))
@pytest.mark.parametrize("causal", [False, True])
def test_measured_global_bytes_are_the_models(ncu: NcuCounters, target: Gpu, impl: str, causal: bool) -> None:
    shape = AttentionShape(2, 8, 2, 1000, 1000, 40, causal)
    case = Case(impl, shape, tile=TILE)
    found = counted(ncu, case, target)
    model = algorithms.get(impl).traffic(case)
    for op in ("read", "write"):
        assert total(found, "global", op) == sum(part.bytes for part in model if part.op == op)
    assert found.kernels == len(algorithms.get(impl).program(case).launches)


def test_two_measurements_agree(ncu: NcuCounters, target: Gpu) -> None:
    case = Case("flash2", SHAPE, tile=TILE)
    first, second = (counted(ncu, case, target) for _ in range(2))
    assert total(first, "global", "read") == total(second, "global", "read")
    assert total(first, "dram", "read") == pytest.approx(total(second, "dram", "read"), rel=0.05)


def test_caches_only_take_away(ncu: NcuCounters, target: Gpu) -> None:
    found = counted(ncu, Case("flash2", SHAPE, tile=TILE), target)
    # The kernel spills nothing and passes L1 by; constants and instructions are little.
    assert total(found, "l2", "read") == pytest.approx(total(found, "global", "read"), rel=0.04)
    assert total(found, "dram", "read") < total(found, "l2", "read")


def test_a_librarys_kernels_are_counted(ncu: NcuCounters, target: Gpu) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("The installed PyTorch has no CUDA support.")
    found = counted(ncu, Case("torch-flash", SHAPE), target)
    assert found.kernels and total(found, "dram", "read") > 0
