"""Timing by CUDA graphs on a fake CuPy and a fake driver: what is captured, what is refused. No figure is a GPU's."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_cuda import CASE, LAUNCH, FakeCupy, FakeDriver, FakeNvml, FakeTorch, make

from fa_bench.backends.base import RunResult, Samples
from fa_bench.backends.cuda_driver import Driver, DriverSilent
from fa_bench.backends.cuda_tensors import prepare_tensors
from fa_bench.cases import Case
from fa_bench.errors import DeviceLost, FaBenchError
from fa_bench.model.gpu import Gpu
from fa_bench.reference import make_inputs

TORCH_CASE = Case("torch-math", CASE.shape, "fp32")
REPLAY = ["replay", *LAUNCH]


def samples_of(result: RunResult) -> Samples:
    assert result.samples is not None
    assert result.verification is not None and result.verification.passed, result.verification
    return result.samples


def after_warm_up(cupy: FakeCupy) -> list[str]:
    """The log from behind the case's three warm-up launches, without the launch floor, which ends with an event."""
    log = cupy.log[cupy.log.index("init") + 3 * len(LAUNCH) :]
    begin, end = log.index("empty"), len(log) - log[::-1].index("empty")
    assert log[end] == "event"
    return log[:begin] + log[end + 1 :]


def test_a_cold_graph_is_one_launch_behind_a_flush_that_is_not_timed(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    samples = samples_of(make(cupy, timer="graph").run(CASE, any_gpu))
    assert (samples.source, samples.fallback, samples.times_ms) == ("cuda-graph", "", (1.0, 1.0))
    # Captured, which launches nothing; replayed three times to warm up, once more when all cases have started, and
    # sampled twice. Then the output is poisoned, and the replay, not a launch, has to write it anew.
    sample = ["flush", "hold", "event", *REPLAY, "event"]
    end = [*["fill 0xff"] * 3, *sample, *["download"] * 2, "release"]
    assert after_warm_up(cupy) == [*REPLAY * 4, *sample * 2, *end]


def test_a_warm_graph_holds_ten_launches_and_a_time_is_the_share_of_one(any_gpu: Gpu) -> None:
    cupy = FakeCupy(durations={"attend": 0.5})
    samples = samples_of(make(cupy, timer="graph", l2="warm").run(CASE, any_gpu))
    assert samples.times_ms == (0.5, 0.5) and samples.l2_state == "warm"
    replay = ["replay", *LAUNCH * 10]
    # One launch between two events says that it is short.
    sample = [*replay, "hold", "event", *replay, "event"]
    end = [*replay, *["fill 0xff"] * 3, "hold", "event", *replay, "event", *["download"] * 2, "release"]
    assert after_warm_up(cupy) == ["hold", "event", *LAUNCH, "event", *replay * 4, *sample * 2, *end]


def test_a_long_warm_launch_is_a_graph_of_its_own(any_gpu: Gpu) -> None:
    cupy = FakeCupy(durations={"attend": 1.0})
    assert samples_of(make(cupy, timer="graph", l2="warm").run(CASE, any_gpu)).times_ms == (1.0, 1.0)
    assert after_warm_up(cupy)[: 6 + 2 * len(REPLAY)] == ["hold", "event", *LAUNCH, "event", *REPLAY * 2]


@pytest.mark.parametrize(("lost", "found"), [(1, 2), (3, 0)])
def test_a_capture_without_all_of_the_programs_kernels_falls_back_to_events(
    any_gpu: Gpu, lost: int, found: int
) -> None:
    cupy = FakeCupy(lost_kernels=lost)
    samples = samples_of(make(cupy, timer="graph").run(CASE, any_gpu))
    assert samples.source == "cuda-events" and samples.times_ms == (1.0, 1.0)
    assert samples.fallback == f"Events instead of a graph: the graph holds {found} kernels, not 3."
    assert "replay" not in cupy.log
    assert cupy.graphs == {}  # destroyed


def test_strict_timer_makes_a_fallback_a_failure(any_gpu: Gpu) -> None:
    with pytest.raises(FaBenchError, match=r"flash2 can't be timed as asked\. Events instead of a graph: the graph"):
        make(FakeCupy(lost_kernels=3), timer="graph", strict_timer=True).run(CASE, any_gpu)
    samples = samples_of(make(FakeCupy(), timer="graph", strict_timer=True).run(CASE, any_gpu))
    assert samples.source == "cuda-graph"


def test_what_cuda_refuses_to_capture_is_timed_by_events(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    cupy.refuse_capture = True
    samples = samples_of(make(cupy, timer="graph").run(CASE, any_gpu))
    assert samples.source == "cuda-events"
    assert "CUDA could not capture it (cudaErrorStreamCaptureInvalidated" in samples.fallback


def test_a_graph_that_nobody_can_look_into_is_not_trusted(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    backend = make(cupy, timer="graph", driver=FakeDriver(cupy, "the driver's library can't be asked (no libcuda)"))
    samples = samples_of(backend.run(CASE, any_gpu))
    assert samples.source == "cuda-events"
    assert samples.fallback.startswith("Events instead of a graph: what the graph holds is not known: the driver's")


def test_a_replay_that_stopped_writing_fails(any_gpu: Gpu) -> None:
    # The kernel writes twice, before the capture: its replays leave the poison where it is.
    result = make(FakeCupy(stale=True), timer="graph").run(CASE, any_gpu)
    assert result.samples is not None and result.samples.source == "cuda-graph"
    assert result.verification is not None and not result.verification.passed
    assert "not finite" in result.verification.detail


def test_the_launch_floor_is_taken_by_the_same_timer(any_gpu: Gpu) -> None:
    cupy = FakeCupy(durations={"empty": 0.002})
    samples = samples_of(make(cupy, timer="graph").run(CASE, any_gpu))
    flush = cupy.log.index("flush")
    assert cupy.log[flush : flush + 8] == ["flush", "hold", "event", "replay", *["empty"] * 3, "event"]
    assert samples.floor_ms == pytest.approx(0.006)


def test_graphs_are_destroyed_with_their_cases(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    make(cupy, timer="graph").run(CASE, any_gpu)
    assert (cupy.graphs, cupy.executables) == ({}, {})


# --- through PyTorch -------------------------------------------------------------------------------------------------


def test_torch_is_captured_by_its_own_means(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    FakeTorch(cupy).install(monkeypatch)
    samples = samples_of(make(cupy, timer="graph").run(TORCH_CASE, any_gpu))
    assert (samples.source, samples.times_ms) == ("cuda-graph", (1.0, 1.0))
    sample = ["flush", "hold", "event", "replay", "attend", "event"]
    assert cupy.log[-21:] == [*sample * 2, "fill nan", "malloc", *sample, "release"]


def test_energy_is_of_the_replay_and_its_result_is_the_one_that_is_verified(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = FakeCupy(durations={"attend": 0.5})
    FakeTorch(cupy).install(monkeypatch)
    result = make(cupy, FakeNvml(), timer="graph", l2="warm").run(TORCH_CASE, any_gpu)
    assert samples_of(result).source == "cuda-graph"
    # A replay is ten launches, 5 ms: two of them stand between two readings, each 600 mJ above the one before.
    assert (result.energy_mj, result.energy_launches) == (30.0, 20)
    replay = ["replay", *["attend"] * 10]
    poisoned = cupy.log.index("fill nan")
    # The batch of four replays, behind it the one that warms the cache.
    assert cupy.log[poisoned - 5 * len(replay) : poisoned] == replay * 5


def test_a_replay_after_other_launches_still_has_the_result_that_it_writes(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTorch(cupy := FakeCupy()).install(monkeypatch)
    inputs = make_inputs(TORCH_CASE)
    with make(cupy)._device as device:
        device.driver = FakeDriver(cupy)  # type: ignore[assignment]
        prepared = prepare_tensors(device, TORCH_CASE, inputs)
        replay = prepared.capture(1)
        for step in (prepared.launch, replay, prepared.poison, replay):
            step()
        assert prepared.verify(inputs).passed


def test_what_a_capture_allocates_is_in_the_peak(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch(cupy := FakeCupy()).install(monkeypatch)
    torch.cuda.max_memory_allocated = lambda device: 1200 if "replay" in cupy.log else 900
    # 100 bytes were allocated before the case.
    assert make(cupy, timer="graph").run(TORCH_CASE, any_gpu).mem_peak_bytes == 1100


def test_a_graph_has_a_cublas_workspace_of_its_own(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch(cupy := FakeCupy()).install(monkeypatch)
    runtime, held = cupy.cuda.runtime, []
    begin, instantiate = runtime.streamBeginCapture, runtime.graphInstantiate
    runtime.streamBeginCapture = lambda *args: held.append(torch.cublas) or begin(*args)
    runtime.graphInstantiate = lambda *args: held.append(torch.cublas) or instantiate(*args)
    make(cupy, timer="graph").run(TORCH_CASE, any_gpu)
    # When the case's capture begins and when it is over; the launch floor's come after it.
    assert held[:2] == [None, None]


def test_after_a_capture_that_torch_could_not_end_the_next_case_asks_for_another_process(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTorch(cupy := FakeCupy()).install(monkeypatch)
    cupy.refuse_capture = True
    backend = make(cupy, timer="graph")
    before, refused, after = backend.run_together([CASE, TORCH_CASE, replace(TORCH_CASE, seed=1)], any_gpu)
    assert isinstance(before, RunResult) and isinstance(refused, RunResult)
    assert samples_of(before).source == samples_of(refused).source == "cuda-events"
    assert "PyTorch could not capture it" in samples_of(refused).fallback
    assert isinstance(after, DeviceLost) and "could not be captured" in after.message
    with pytest.raises(DeviceLost, match="could not be captured"):
        backend.run(CASE, any_gpu)
    backend.close()


def test_the_floor_is_taken_by_the_timer_that_the_case_fell_back_to(any_gpu: Gpu) -> None:
    class Missing(FakeDriver):
        def kernel_nodes(self, graph: int) -> int:
            kernels = self.cupy.graphs[graph]
            return 0 if case_is_missed and kernels[0][0] == "init" else len(kernels)

    cupy = FakeCupy()
    backend = make(cupy, driver=Missing(cupy), timer="graph")
    case_is_missed = True
    assert samples_of(backend.run(CASE, any_gpu)).source == "cuda-events"
    assert "replay" not in cupy.log
    case_is_missed = False  # as many launches, and another floor
    assert samples_of(backend.run(CASE, any_gpu)).source == "cuda-graph"
    assert "replay empty" in " ".join(cupy.log)


def test_torch_kernels_that_went_elsewhere_are_missed(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(lost_kernels=1)
    FakeTorch(cupy).install(monkeypatch)
    samples = samples_of(make(cupy, timer="graph").run(TORCH_CASE, any_gpu))
    assert samples.source == "cuda-events"
    assert samples.fallback == "Events instead of a graph: the graph holds 0 kernels, not at least 1."


def test_a_torch_whose_graphs_cannot_be_looked_into_is_timed_by_events(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = FakeCupy()
    FakeTorch(cupy, can_show_graphs=False).install(monkeypatch)
    samples = samples_of(make(cupy, timer="graph").run(TORCH_CASE, any_gpu))
    assert samples.source == "cuda-events" and "PyTorch could not capture it" in samples.fallback


# --- the driver's library --------------------------------------------------------------------------------------------


class Library:
    """libcuda with one graph: two kernels (type 0), a memset (2) and a memcpy (1)."""

    kinds = (0, 2, 0, 1)

    def __init__(self, code: int = 0) -> None:
        self.code, self.resets = code, 0

    def cuGraphGetNodes(self, graph: Any, nodes: Any, count: Any) -> int:  # noqa: N802
        assert graph.value == 7
        ctypes.cast(count, ctypes.POINTER(ctypes.c_size_t))[0] = len(self.kinds)
        for place in range(len(self.kinds) if nodes is not None else 0):
            nodes[place] = place + 1
        return self.code

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:  # noqa: N802
        ctypes.cast(kind, ctypes.POINTER(ctypes.c_int))[0] = self.kinds[node.value - 1]
        return 0

    def cuCtxResetPersistingL2Cache(self) -> int:  # noqa: N802
        self.resets += 1
        return 801  # CUDA_ERROR_NOT_SUPPORTED


def test_kernels_of_a_graph_are_counted_and_nothing_else() -> None:
    assert Driver(Library()).kernel_nodes(7) == 2


def test_a_driver_that_does_not_answer_is_silent_in_a_sentence() -> None:
    with pytest.raises(DriverSilent, match="answers cuGraphGetNodes with error 1"):
        Driver(Library(code=1)).kernel_nodes(7)
    with pytest.raises(DriverSilent, match="can't be asked"):
        Driver(SimpleNamespace()).kernel_nodes(7)


def test_resetting_persisting_lines_never_fails() -> None:
    library = Library()
    Driver(library).reset_persisting_l2()  # refused by a GPU that has none
    assert library.resets == 1
    Driver(SimpleNamespace()).reset_persisting_l2()  # a library that has no such function
