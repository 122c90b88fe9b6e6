"""Cases that run together on a fake CuPy: turns, what one's failure means for the others, memory. No GPU's figures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_cuda import CASE, FLUSH_BYTES, Algorithm, FakeCupy, FakeNvml, FakeTorch, make

from fa_bench.backends import turns
from fa_bench.backends.base import Outcome, RunResult, TakesTurns
from fa_bench.cases import Case
from fa_bench.errors import DeviceLost, KernelFault, OutOfMemory, Unsupported
from fa_bench.model.gpu import Gpu

A, B, C = (replace(CASE, impl=impl) for impl in ("flash2", "flash1", "standard"))
#: Each case has a kernel of its own name.
NAMED = {
    "flash2": Algorithm(attend="attend_a"),
    "flash1": Algorithm(attend="attend_b"),
    "standard": Algorithm(attend="attend_c"),
}
#: Q, O: 512 bytes each; K, V: 256 each; LSE and l: 64 each.
CASE_BYTES = 1664


def verified(outcomes: Sequence[Outcome]) -> list[bool]:
    return [isinstance(o, RunResult) and o.verification is not None and o.verification.passed for o in outcomes]


def attended(cupy: FakeCupy) -> str:
    return "".join(word[-1] for word in cupy.log if word.startswith("attend"))


def test_the_backend_takes_turns() -> None:
    assert isinstance(make(FakeCupy()), TakesTurns)


def test_compared_cases_are_interleaved_and_each_is_warmed_up_for_itself(any_gpu: Gpu) -> None:
    cupy = FakeCupy(durations={"attend_a": 2.0, "attend_b": 3.0})
    outcomes = make(cupy, algorithms=NAMED, samples=3).run_together([A, B], any_gpu)
    # Three warm-ups each, three turns, and one launch more of each, whose output is verified.
    assert attended(cupy) == "aaabbbabababab"
    assert verified(outcomes) == [True, True]
    assert [o.samples.times_ms for o in outcomes if isinstance(o, RunResult) and o.samples] == [(2.0,) * 3, (3.0,) * 3]


def test_all_inputs_are_in_place_before_the_turns_and_each_turn_flushes_first(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    make(cupy, algorithms=NAMED).run_together([A, B], any_gpu)
    turn = [["flush", "event", "init", f"attend_{name}", "finish", "event"] for name in "ab"]
    end = [["fill 0xff"] * 3 + taken + ["download"] * 2 for taken in turn]
    expected = [word for part in (*turn, *turn, *end) for word in part]
    # What is enqueued to make inputs, to poison and to warm up lies before the first flush of the turns.
    assert cupy.log[-len(expected) - 2 :] == [*expected, "release", "release"]


def test_inputs_are_made_once_for_cases_of_one_shape(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make_inputs = turns.reference.make_inputs
    monkeypatch.setattr(turns.reference, "make_inputs", lambda case: made.append(case.impl) or make_inputs(case))
    make(FakeCupy(), algorithms=NAMED).run_together([A, B, C], any_gpu)
    assert made == ["flash2"]


def test_memory_is_each_cases_own(any_gpu: Gpu) -> None:
    outcomes = make(FakeCupy(), algorithms=NAMED).run_together([A, B, C], any_gpu)
    assert [o.mem_peak_bytes for o in outcomes if isinstance(o, RunResult)] == [CASE_BYTES] * 3


def test_torchs_peak_is_read_before_the_next_case_allocates(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    torch = FakeTorch(cupy).install(monkeypatch)
    # PyTorch counts all live tensors: 100 bytes before the first case, and 900 more of that case before the second.
    live, peak = iter([100, 1000]), iter([800, 1500])
    torch.cuda.memory_allocated = lambda device: next(live)
    torch.cuda.max_memory_allocated = lambda device: next(peak)
    cases = [Case(impl, CASE.shape, "fp32") for impl in ("torch-math", "torch-flash-blocked")]
    outcomes = make(cupy).run_together(cases, any_gpu)
    assert [o.mem_peak_bytes for o in outcomes if isinstance(o, RunResult)] == [700, 500]


def test_a_case_that_is_refused_leaves_the_others_alone(any_gpu: Gpu) -> None:
    named = NAMED | {"flash1": Algorithm("It is too wide."), "standard": Algorithm(error=ValueError("a defect"))}
    outcomes = make(FakeCupy(), algorithms=named).run_together([B, A, C], any_gpu)
    assert isinstance(outcomes[0], Unsupported) and isinstance(outcomes[2], ValueError)
    assert verified(outcomes) == [False, True, False]


def test_a_case_that_does_not_fit_beside_the_others_runs_alone_after_them(any_gpu: Gpu) -> None:
    # Two cases fit beside the flush buffer, the third doesn't.
    cupy = FakeCupy(memory=FLUSH_BYTES + 2 * CASE_BYTES + 1000)
    backend = make(cupy, algorithms=NAMED)
    outcomes = backend.run_together([A, B, C], any_gpu)
    assert verified(outcomes) == [True, True, True]
    # A and B take turns; C runs when what they held is free.
    assert attended(cupy) == "aaabbbabababcccccc"
    assert [o.mem_peak_bytes for o in outcomes if isinstance(o, RunResult)] == [CASE_BYTES] * 3


def test_a_case_that_fits_nowhere_is_out_of_memory_and_frees_what_it_held(any_gpu: Gpu) -> None:
    cupy = FakeCupy(memory=FLUSH_BYTES + 1308)
    outcomes = make(cupy, algorithms=NAMED).run_together([A, B], any_gpu)
    assert [type(o) for o in outcomes] == [OutOfMemory, OutOfMemory]
    assert cupy.held_at_release == FLUSH_BYTES


def test_a_failed_cases_traceback_keeps_nobodys_buffers(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    times = itertools.chain([1.0] * 4, iter(()))  # warm-ups and one sample; then the clock of B has nothing to say
    cupy.durations["attend_b"] = times
    outcomes = make(cupy, algorithms=NAMED, samples=5).run_together([A, B], any_gpu)
    assert verified(outcomes) == [True, False]
    assert cupy.used() == FLUSH_BYTES, "outcomes are alive, what they ran on must not be"


def test_after_a_fault_the_unfinished_cases_ask_for_another_process(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    backend = make(cupy, algorithms=NAMED, samples=5)
    launched = itertools.count(1)

    def fault_at_its_second_sample() -> object:
        for _ in launched:
            if next(counted) == 5:
                cupy.fault = "attend_b"
            yield 1.0

    counted = itertools.count(1)
    cupy.durations["attend_b"] = fault_at_its_second_sample()  # type: ignore[assignment]
    outcomes = backend.run_together([A, B, C], any_gpu)
    # B is blamed, by name, for what it did; A and C had samples, but neither was verified.
    assert [type(o) for o in outcomes] == [DeviceLost, KernelFault, DeviceLost]
    assert "flash1 failed on Fake GPU: CUDA_ERROR_ILLEGAL_ADDRESS" in str(outcomes[1])
    assert [type(o) for o in backend.run_together([A], any_gpu)] == [DeviceLost]
    backend.close()


def test_a_clock_that_falls_while_cases_run_shows_as_drift(any_gpu: Gpu) -> None:
    # 3 warm-ups at 1 ms, 6 samples at 1 ms, then 1.2 ms: the last third of 12 is 20 % above the first.
    slowing = itertools.chain([1.0] * 9, itertools.repeat(1.2))
    cupy = FakeCupy(durations={"attend_a": slowing, "attend_b": 1.0})
    first, second = make(cupy, algorithms=NAMED, samples=12).run_together([A, B], any_gpu)
    assert isinstance(first, RunResult) and first.samples is not None and first.samples.drift == pytest.approx(0.2)
    assert isinstance(second, RunResult) and second.samples is not None and second.samples.drift == pytest.approx(0.0)


def test_nvmls_peak_is_each_cases_own_too(any_gpu: Gpu) -> None:
    cupy, nvml = FakeCupy(), FakeNvml()
    # NVML sees all that is allocated, the flush buffer and the case before included, and another program's 5000 bytes.
    nvml.used = iter(lambda: 5000 + cupy.used(), None)
    outcomes = make(cupy, nvml, algorithms=NAMED).run_together([A, B], any_gpu)
    assert [o.nvml_mem_peak_bytes for o in outcomes if isinstance(o, RunResult)] == [CASE_BYTES] * 2


def test_a_gpu_that_is_throttled_all_the_time_still_has_times(any_gpu: Gpu) -> None:
    outcomes = make(FakeCupy(), FakeNvml(("sw_power_cap",)), algorithms=NAMED).run_together([A, B], any_gpu)
    for outcome in outcomes:
        assert isinstance(outcome, RunResult) and outcome.samples is not None
        assert len(outcome.samples.times_ms) == 2 and outcome.samples.dropped == 0
        assert outcome.throttle_reasons == "sw_power_cap"
