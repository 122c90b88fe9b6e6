"""Cases that run together on a fake CuPy: turns, what one's failure means for the others, memory. No GPU's figures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from fake_cuda import CASE, FLUSH_BYTES, Algorithm, FakeCupy, FakeNvml, FakeTorch, make

from fa_bench import reference
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
    # Three warm-ups each, one launch when both have started, three turns, and one more, whose output is verified.
    assert attended(cupy) == "aaabbbababababab"
    assert verified(outcomes) == [True, True]
    assert [o.samples.times_ms for o in outcomes if isinstance(o, RunResult) and o.samples] == [(2.0,) * 3, (3.0,) * 3]


def test_all_inputs_are_in_place_before_the_turns_and_each_turn_flushes_first(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    make(cupy, algorithms=NAMED).run_together([A, B], any_gpu)
    turn = [["flush", "hold", "event", "init", f"attend_{name}", "finish", "event"] for name in "ab"]
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


TORCH_CASES = [Case(impl, CASE.shape, "fp32") for impl in ("torch-math", "torch-flash-blocked")]


def test_what_the_start_of_another_case_took_from_torchs_cache_is_allocated_before_the_turns(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = FakeCupy()
    FakeTorch(cupy).install(monkeypatch)
    assert verified(make(cupy).run_together(TORCH_CASES, any_gpu)) == [True, True]
    events = [place for place, word in enumerate(cupy.log) if word == "event"]
    between = [cupy.log[begin + 1 : end] for begin, end in zip(events[::2], events[1::2], strict=True)]
    # The floor's sample, two of each case and the last ones: kernels alone, and no allocation.
    assert between == [["empty"], *[["attend"]] * 6]


def test_when_the_turns_are_over_nothing_is_kept_from_a_process_beside_this_one(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = FakeTorch(cupy := FakeCupy()).install(monkeypatch)
    with closing(make(cupy)) as backend:
        backend.run_together(TORCH_CASES, any_gpu)
        assert (torch.blocks, torch.cublas, cupy.used()) == ([], None, 0)


def test_a_right_result_that_a_failed_neighbour_left_in_torchs_cache_does_not_pass(
    any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = FakeCupy()
    FakeTorch(cupy, ceases_writing="torch-flash-blocked").install(monkeypatch)
    verify, errors = reference.verify, iter([OutOfMemory("The first case has no memory for its verification.")])

    def verify_or_fail(*args: Any) -> Any:
        for error in errors:
            raise error
        return verify(*args)

    monkeypatch.setattr(reference, "verify", verify_or_fail)
    with closing(make(cupy)) as backend:
        _, stale = backend._together(TORCH_CASES, any_gpu)  # run_together gives the first case another try
    assert isinstance(stale, RunResult) and stale.verification is not None
    assert not stale.verification.passed and "not finite" in stale.verification.detail


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
    assert attended(cupy) == "aaabbbababababccccccc"
    assert [o.mem_peak_bytes for o in outcomes if isinstance(o, RunResult)] == [CASE_BYTES] * 3


def test_a_case_that_fits_nowhere_is_out_of_memory_and_frees_what_it_held(any_gpu: Gpu) -> None:
    cupy = FakeCupy(memory=FLUSH_BYTES + 1308)
    outcomes = make(cupy, algorithms=NAMED).run_together([A, B], any_gpu)
    assert [type(o) for o in outcomes] == [OutOfMemory, OutOfMemory]
    assert cupy.held_at_release == 0


def test_a_failed_cases_traceback_keeps_nobodys_buffers(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    times = itertools.chain([1.0] * 5, iter(()))  # four untimed and one sample; then the clock of B has nothing to say
    cupy.durations["attend_b"] = times
    outcomes = make(cupy, algorithms=NAMED, samples=5).run_together([A, B], any_gpu)
    assert verified(outcomes) == [True, False]
    assert cupy.used() == 0, "outcomes are alive, what they ran on must not be"


def test_after_a_fault_the_unfinished_cases_ask_for_another_process(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    backend = make(cupy, algorithms=NAMED, samples=5)
    launched = itertools.count(1)

    def fault_at_its_second_sample() -> object:
        for _ in launched:
            if next(counted) == 6:
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
    # 4 untimed launches at 1 ms, 6 samples at 1 ms, then 1.2 ms: the last third of 12 is 20 % above the first.
    slowing = itertools.chain([1.0] * 10, itertools.repeat(1.2))
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
