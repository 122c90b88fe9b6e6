"""The kernel that lets the host get ahead, on a fake CuPy whose host takes time too. No figure here is a GPU's."""

from __future__ import annotations

import pytest
from fake_cuda import CASE, FakeCupy, FakeTorch, make

from fa_bench.backends.cuda_launch import HOLD
from fa_bench.cases import Case
from fa_bench.compiler import compile_kernel, nvrtc_available
from fa_bench.model.gpu import Gpu
from fa_bench.ptx.isa_row import PtxError
from fa_bench.ptx.parser import load

TORCH_CASE = Case("torch-math", CASE.shape, "fp32")


@pytest.mark.parametrize("l2", ["cold", "warm"])
@pytest.mark.parametrize("timer", ["events", "graph"])
def test_what_the_host_takes_to_enqueue_a_short_call_is_not_timed(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, timer: str, l2: str
) -> None:
    # The host takes 0.6 ms for a call that takes 0.25 on the GPU, and 0.3 for a replay; a flush covers 0.035 of that.
    cupy = FakeCupy(durations={"attend": 0.25, "flush": 0.035}, enqueuing={"attend": 0.6, "replay": 0.3})
    FakeTorch(cupy).install(monkeypatch)
    result = make(cupy, clock=cupy.host_seconds, samples=0.05, timer=timer, l2=l2).run(TORCH_CASE, any_gpu)
    assert result.samples is not None and result.verification is not None and result.verification.passed
    assert len(result.samples.times_ms) > 5 and {round(ms, 9) for ms in result.samples.times_ms} == {0.25}


def test_it_holds_for_twice_what_the_host_took_and_a_little(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(enqueuing={"attend": 0.6, "empty": 0.004})
    FakeTorch(cupy).install(monkeypatch)
    make(cupy, clock=cupy.host_seconds, samples=0.05).run(TORCH_CASE, any_gpu)
    # In front of the floor's kernel 2 · 0.004 + 0.05 ms, in front of the case's 2 · 0.6 + 0.05.
    assert sorted(set(cupy.held_ms)) == pytest.approx([0.058, 1.25])


def test_a_host_that_waits_for_the_gpu_itself_is_not_waited_for(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(enqueuing={"attend": 700.0})
    FakeTorch(cupy).install(monkeypatch)
    make(cupy, clock=cupy.host_seconds).run(TORCH_CASE, any_gpu)
    assert max(cupy.held_ms) == 10.0


def test_the_first_launch_which_loads_and_allocates_does_not_lengthen_it(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = FakeCupy()
    FakeTorch(cupy).install(monkeypatch)
    enqueue = cupy.enqueue

    def slow_at_first(word: str, effect: object) -> None:
        cupy.host_ms += 0.1 if "attend" in cupy.log or word != "attend" else 250.0
        enqueue(word, effect)  # type: ignore[arg-type]

    cupy.enqueue = slow_at_first  # type: ignore[method-assign, assignment]
    make(cupy, clock=cupy.host_seconds, samples=0.05).run(TORCH_CASE, any_gpu)
    assert max(cupy.held_ms) == pytest.approx(0.25)  # 2 · 0.1 + 0.05


@pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))
@pytest.mark.parametrize("sm", ["sm_75", "sm_90", "sm_120"])
def test_its_kernel_reads_the_gpus_clock_in_its_loop_and_touches_no_memory(sm: str) -> None:
    ptx = compile_kernel(HOLD, sm).ptx
    loop = ptx[ptx.index("$L__BB0_1:") :]
    # A compiler that took the reading out of the loop would leave one that never ends.
    assert "%globaltimer" in loop and "bra" in loop
    assert "ld.global" not in ptx and "st.global" not in ptx


@pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))
def test_the_emulator_which_has_no_clock_refuses_it() -> None:
    with pytest.raises(PtxError, match="unknown operand '%globaltimer'"):
        load(compile_kernel(HOLD, "sm_90").ptx)
