"""Times on a real GPU behave like times: known durations, flushes, all kinds of caches, places in a sweep, graphs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.user import load
from fa_bench.backends.base import RunResult
from fa_bench.backends.cuda import CudaBackend
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_launch import EMPTY, HOLD, prepare_empty, prepare_hold
from fa_bench.backends.cuda_timing import L2State, TimedLaunch
from fa_bench.cases import AttentionShape, Case
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import time_on_gpu
from fa_bench.model.gpu import Gpu

pytestmark = pytest.mark.gpu

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "row_attention.toml"


@pytest.fixture
def backend() -> Iterator[CudaBackend]:
    with closing(CudaBackend(rule=StoppingRule(max_elapsed_ms=1000.0, min_sampled_ms=100.0))) as opened:
        yield opened


@pytest.fixture
def spun_ms(backend: CudaBackend) -> Callable[..., float]:
    """Time a kernel that takes as long as it is told: ``spun_ms(microseconds, cold=True)``."""
    device = backend._device

    def timed(microseconds: int, cold: bool = True) -> float:
        with device:
            device.prepare_flush()
            spin = prepare_hold(device, backend._compile(HOLD))

            def launch() -> None:
                spin(microseconds / 1e3)

            before = device.flush if cold else launch
            return statistics.median(
                time_on_gpu(launch, device, StoppingRule(max_elapsed_ms=300.0), before=before).times_ms
            )

    return timed


def flash2(n: int, target: Gpu, heads: int = 16) -> Case:
    case = Case("flash2", AttentionShape(1, heads, heads, n, n, 64))
    algorithm = algorithms.get("flash2")
    return replace(case, tile=algorithm.resolve(case, algorithm.auto_tile(case, target)))


def median_ms(result: object) -> float:
    assert isinstance(result, RunResult) and result.samples is not None
    assert result.verification is not None and result.verification.passed, result.verification
    return statistics.median(result.samples.times_ms)


@pytest.mark.parametrize("microseconds", [1000, 2000, 5000])
def test_a_kernel_of_known_duration_takes_that_long(spun_ms: Callable[..., float], microseconds: int) -> None:
    # globaltimer may advance in steps of a microsecond, and in those of 32 on some; the launch adds a few.
    assert 0.96 * microseconds < 1e3 * spun_ms(microseconds) < microseconds + 100


@pytest.mark.parametrize("l2", ["cold", "warm"])
def test_a_host_that_is_slow_to_enqueue_is_not_timed(backend: CudaBackend, l2: L2State) -> None:
    device = backend._device
    with device:
        device.prepare_flush()
        spin = prepare_hold(device, backend._compile(HOLD))

        def launch() -> None:
            time.sleep(0.002)
            spin(0.2)

        slow = replace(prepare_empty(device, backend._compile(EMPTY), 1), launch=launch)
        timed = TimedLaunch(device, slow, spin, l2=l2, timer="events", clock=time.perf_counter)
        times_ms = [timed.sample() for _ in range(50)]
    # 0.2 ms of the GPU, in steps of the globaltimer, behind 2 ms of the host.
    assert 0.19 < statistics.median(times_ms) < 0.3


def test_the_flush_is_not_in_the_time_of_a_short_kernel(backend: CudaBackend, spun_ms: Callable[..., float]) -> None:
    device = backend._device
    with device:
        device.prepare_flush()
        flush_ms = statistics.median(time_on_gpu(device.flush, device, StoppingRule(max_elapsed_ms=300.0)).times_ms)
    cold, warm = spun_ms(5), spun_ms(5, cold=False)
    # It touches no memory, so the cache plays no part; a flush that leaked in would add all of its own time.
    assert abs(cold - warm) < max(0.005, 0.25 * flush_ms)


def test_a_case_takes_as_long_alone_as_anywhere_in_a_sweep(backend: CudaBackend, target: Gpu) -> None:
    case = flash2(2048, target)
    alone = median_ms(backend.run(case, target))
    others = [flash2(512, target), flash2(4096, target)]
    for other in others:
        backend.run(other, target)
    later = median_ms(backend.run(case, target))
    standard = Case("standard", case.shape)
    standard = replace(standard, tile=algorithms.get("standard").auto_tile(standard, target))
    for group in ([case, standard], [standard, case]):
        in_turns = median_ms(backend.run_together(group, target)[group.index(case)])
        assert in_turns == pytest.approx(alone, rel=0.05)
    assert later == pytest.approx(alone, rel=0.05)


def test_a_cold_and_a_hot_kernel_cache_give_the_same_time(
    backend: CudaBackend, target: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path))
    case = flash2(2048, target)
    cold = backend.run(case, target)
    hot = backend.run(case, target)
    assert cold.resources is not None and cold.resources.compile_ms is not None
    assert median_ms(cold) == pytest.approx(median_ms(hot), rel=0.05)
    assert median_ms(cold) < cold.resources.compile_ms


@pytest.mark.parametrize("timer", ["events", "graph"])
def test_a_kernel_that_stops_writing_is_found_by_either_timer(target: Gpu, tmp_path: Path, timer: str) -> None:
    # Writes during its first 20 launches only: all warm-ups, and none of the last ones.
    source = EXAMPLE.with_suffix(".cu").read_text()
    head, signature, body = source.partition('extern "C"')
    body = body.replace(
        "    __shared__ element k_tile",
        "    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) atomicAdd(&launches, 1);\n"
        "    if (*(volatile int*)&launches > 20) return;\n    __shared__ element k_tile",
        1,
    )
    (tmp_path / "row_attention.cu").write_text(f"{head}__device__ int launches;\n{signature}{body}")
    (tmp_path / "row_attention.toml").write_text(EXAMPLE.read_text())
    algorithm = load(tmp_path / "row_attention.toml")
    case = Case("row_attention", AttentionShape(1, 4, 4, 300, 300, 64), "fp16")
    case = replace(case, tile=algorithm.auto_tile(case, target))
    rule = StoppingRule(max_elapsed_ms=300.0, min_samples=30)
    options = {"timer": timer, "rule": rule, "lookup": lambda name: algorithm}
    with closing(CudaBackend(**options)) as stopping:  # type: ignore[arg-type]
        result = stopping.run(case, target)
    assert result.verification is not None and not result.verification.passed
    assert "not finite" in result.verification.detail


def test_graphs_and_events_agree_on_a_long_kernel_and_graphs_win_on_short_programs(target: Gpu) -> None:
    rule = StoppingRule(max_elapsed_ms=1000.0, min_sampled_ms=100.0)
    long, short = flash2(8192, target), flash2(64, target, heads=1)
    with closing(CudaBackend(rule=rule)) as events, closing(CudaBackend(rule=rule, timer="graph")) as graph:
        result = graph.run(long, target)
        assert result.samples is not None and (result.samples.source, result.samples.fallback) == ("cuda-graph", "")
        assert median_ms(result) == pytest.approx(median_ms(events.run(long, target)), rel=0.05)
        assert median_ms(graph.run(short, target)) < 1.5 * median_ms(events.run(short, target))


@pytest.mark.parametrize("impl", ["torch-math", "torch-flash"])
def test_torch_can_be_captured(target: Gpu, impl: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("The installed PyTorch has no CUDA support.")
    rule = StoppingRule(max_elapsed_ms=300.0, min_sampled_ms=50.0)
    with closing(CudaBackend(rule=rule, timer="graph")) as graph:
        result = graph.run(Case(impl, AttentionShape(1, 8, 8, 1024, 1024, 64), "fp16"), target)
    assert median_ms(result) > 0
    # An older PyTorch can't show what a graph holds; then the row says so.
    assert result.samples is not None
    assert (result.samples.source == "cuda-graph") == (result.samples.fallback == "")


def test_two_devices_give_the_same_kind_of_time(target: Gpu) -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("There is one GPU here.")
    names = {CudaDevice(cupy, ordinal).name for ordinal in (0, 1)}
    rule = StoppingRule(max_elapsed_ms=300.0, min_sampled_ms=50.0)
    times = []
    for ordinal in (0, 1):
        with closing(CudaBackend(ordinal, rule=rule)) as one:
            times.append(median_ms(one.run(flash2(2048, target), target)))
    assert min(times) > 0.0
    if len(names) == 1:
        assert times[0] == pytest.approx(times[1], rel=0.2)
