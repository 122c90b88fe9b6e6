"""Counts beside a timed run: whose kernels they are of, what a missing figure does, and when they are taken."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from fake_cuda import CASE, LAUNCH, FakeCupy, make

from fa_bench.algorithms.base import ALL_TENSORS, TensorBytes
from fa_bench.backends import ncu_target
from fa_bench.backends.base import BackendName, Counts, HardwareCounts, Outcome, RunResult, TakesTurns, Verification
from fa_bench.backends.counter_sources import EmulatedCounts, NcuCounters, kernel_name
from fa_bench.backends.counting import advice, counting
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import KernelFault, Unsupported
from fa_bench.measure.ncu import KernelBytes, Profile
from fa_bench.model.gpu import Gpu

FLASH = Case("flash2", AttentionShape(1, 1, 1, 64, 64, 64), tile=Tile(64, 64, 1, 4))
STANDARD = Case("standard", AttentionShape(1, 1, 1, 64, 64, 64), tile=Tile(64, 64, 1, 4))
TORCH = Case("torch-math", AttentionShape(1, 1, 1, 64, 64, 64))
QUANTITIES = (
    *("global_read", "global_read_hit", "global_write", "local_read", "local_write"),
    *("l2_read", "l2_read_hit", "l2_write", "l2_total", "dram_read", "dram_write"),
)


def launch(name: str, **nbytes: int | None) -> KernelBytes:
    """A launch with 1 byte of each quantity that is not given."""
    return KernelBytes(name, dict.fromkeys(QUANTITIES, 1) | nbytes)


class Answers:
    """An Ncu that answers with these launches."""

    mode = "a mode"

    def __init__(self, *kernels: KernelBytes, status: str = "ok", reason: str = "") -> None:
        self.answer = Profile(status, reason, kernels)  # type: ignore[arg-type]
        self.programs: list[tuple[Sequence[str], int]] = []

    def profile(self, program: Sequence[str], sm: int) -> Profile:
        self.programs.append((program, sm))
        return self.answer


def counted(case: Case, gpu: Gpu, *kernels: KernelBytes) -> HardwareCounts:
    return NcuCounters(ncu=Answers(*kernels)).count(case, gpu)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("flash2_fwd", "flash2_fwd"),
        ("flash2_fwd(const __half *, float, int)", "flash2_fwd"),
        ("void pytorch_flash::flash_fwd_kernel<Traits<64, (bool)1>, 0>(Params)", "flash_fwd_kernel"),
        ("void <unnamed>::softmax<(anonymous namespace)::Add, float>(float *)", "softmax"),
        ("void (anonymous namespace)::softmax<float>(float *)", "softmax"),
        ("ampere_s16816gemm_fp16_64x64_ldg8_nn", "ampere_s16816gemm_fp16_64x64_ldg8_nn"),
    ],
)  # fmt: skip
def test_kernels_are_known_by_their_bare_names(text: str, name: str) -> None:
    assert kernel_name(text) == name


def test_the_three_kernels_of_standard_attention_are_summed_and_nothing_else(any_gpu: Gpu) -> None:
    found = counted(
        STANDARD,
        any_gpu,
        launch("standard_scores(const __half *)", dram_read=100),
        launch("void cupy_fill<float>(float *)", dram_read=10_000),
        launch("standard_softmax(float *)", dram_read=20),
        launch("standard_pv(float *)", dram_read=3),
    )
    assert found.counts is not None and (found.status, found.kernels, found.mode) == ("ok", 3, "a mode")
    dram = [part for part in found.counts.traffic["dram"] if part.op == "read"]
    assert [(part.kernel, part.bytes) for part in dram] == [
        ("standard_scores", 100),
        ("standard_softmax", 20),
        ("standard_pv", 3),
    ]
    assert {part.tensor for parts in found.counts.traffic.values() for part in parts} == {ALL_TENSORS}


def test_of_a_library_all_kernels_count_but_those_that_clear_and_draw(any_gpu: Gpu) -> None:
    found = counted(
        TORCH,
        any_gpu,
        launch("void cutlass::Kernel2<gemm>(Params)", l2_read=64),
        launch("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", l2_read=7),
        launch(
            "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float>()", l2_read=7
        ),
        launch("void softmax_warp_forward<float>(float *)", l2_read=32),
    )
    assert found.counts is not None and found.kernels == 2
    assert sum(part.bytes for part in found.counts.traffic["l2"] if part.op == "read") == 96


def test_launches_of_one_kernel_are_summed_with_what_caches_answered(any_gpu: Gpu) -> None:
    part = launch("flash2_fwd", l2_read=100, l2_read_hit=60, local_write=5, l2_total=200)
    found = counted(FLASH, any_gpu, part, part)
    assert found.counts is not None and found.kernels == 2
    read, written = found.counts.traffic["l2"]
    assert read == TensorBytes("flash2_fwd", ALL_TENSORS, "read", 200, hit_bytes=120)
    assert (written.op, written.hit_bytes) == ("write", None)
    assert found.counts.extra["flash2_fwd"] == {"local_read_bytes": 2, "local_write_bytes": 10, "l2_total_bytes": 400}


def test_what_one_kernel_lacks_is_not_known_of_the_case(any_gpu: Gpu) -> None:
    found = counted(
        STANDARD,
        any_gpu,
        launch("standard_scores", dram_read=100),
        launch("standard_softmax", dram_read=None, dram_write=0),
    )
    assert found.counts is not None
    assert [(part.op, part.bytes) for part in found.counts.traffic["dram"]] == [("write", 1), ("write", 0)]


def test_kernels_of_others_alone_are_none(any_gpu: Gpu) -> None:
    found = counted(FLASH, any_gpu, launch("void cupy_fill<float>(float *)"))
    assert (found.status, found.counts) == ("no_kernels", None)
    assert found.reason.endswith("is the implementation's: cupy_fill.")


def test_a_failure_is_handed_on_with_one_piece_of_advice(any_gpu: Gpu) -> None:
    source = NcuCounters(ncu=Answers(status="no_permission", reason="ncu may not."))  # type: ignore[arg-type]
    assert source.advice == ""
    for _ in range(2):
        assert source.count(FLASH, any_gpu) == HardwareCounts("no_permission", "ncu may not.", "a mode")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in source.advice
    assert "--cap-add SYS_ADMIN" in source.advice


@pytest.mark.parametrize("error", [OSError("no space left on device"), ZeroDivisionError("division by zero")])
def test_whatever_goes_wrong_while_counting_costs_no_row(any_gpu: Gpu, error: Exception) -> None:
    class Broken(Answers):
        def profile(self, program: Sequence[str], sm: int) -> Profile:
            raise error

    backend = counting(Turns([]), [NcuCounters(ncu=Broken())])  # type: ignore[arg-type]
    assert isinstance(backend, TakesTurns)
    for outcome in backend.run_together([FLASH, STANDARD], any_gpu):
        assert isinstance(outcome, RunResult) and outcome.hardware is not None
        assert outcome.hardware.status == "failed" and str(error) in outcome.hardware.reason


def test_after_a_timeout_only_smaller_cases_of_the_implementation_are_tried(any_gpu: Gpu) -> None:
    ncu = Answers(status="timeout", reason="ncu was ended after 300 s.")
    source = NcuCounters(ncu=ncu)  # type: ignore[arg-type]
    small, large = (Case("flash2", AttentionShape(1, 1, 1, s, s, 64), tile=Tile(64, 64, 1, 4)) for s in (32, 128))
    tried = []
    for case in (FLASH, FLASH, large, STANDARD, small):
        before = len(ncu.programs)
        assert source.count(case, any_gpu).status == "timeout"
        tried.append(len(ncu.programs) > before)
    assert tried == [True, False, False, True, True]
    assert source.count(small, any_gpu).reason.endswith("so this one was not tried.")


def test_the_program_is_this_python_with_one_case(any_gpu: Gpu) -> None:
    ncu = Answers(launch("flash2_fwd"))
    NcuCounters(3, ncu=ncu).count(FLASH, any_gpu)  # type: ignore[arg-type]
    ((program, sm),) = ncu.programs
    assert (program[:3], sm) == ([sys.executable, "-m", "fa_bench.backends.ncu_target"], 80)


# --- the program under ncu --------------------------------------------------------------------------------------------


def test_the_range_holds_one_launch_of_the_case_after_its_warm_up(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    make(cupy).profile(CASE, any_gpu)
    end = [*LAUNCH, "profiler start", *LAUNCH, "profiler stop"]
    assert cupy.log[-len(end) :] == end
    assert "flush" not in cupy.log and "event" not in cupy.log


def test_the_target_profiles_the_case_that_it_was_sent(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Backend:
        def __init__(self, ordinal: int) -> None:
            seen.append(ordinal)

        def profile(self, case: Case, gpu: Gpu) -> None:
            seen.extend((case, gpu))

        def close(self) -> None:
            seen.append("closed")

    class InThisProcess(Answers):
        def profile(self, program: Sequence[str], sm: int) -> Profile:
            ncu_target.main(program[3])
            return super().profile(program, sm)

    monkeypatch.setattr("fa_bench.backends.cuda.CudaBackend", Backend)
    NcuCounters(3, ncu=InThisProcess(launch("flash2_fwd"))).count(FLASH, any_gpu)  # type: ignore[arg-type]
    assert seen == [3, FLASH, any_gpu, "closed"]


def test_the_target_says_in_one_line_why_it_could_not_launch(tmp_path: Any) -> None:
    with pytest.raises(SystemExit, match=r"^ERROR: "):
        ncu_target.main(str(tmp_path / "missing"))


# --- around a backend -------------------------------------------------------------------------------------------------


class Plain:
    """A backend that verifies everything but ``wrong``."""

    name: BackendName = "cuda"
    device = "a test"

    def __init__(self, log: list[str], wrong: str = "") -> None:
        self.log, self.wrong = log, wrong

    def implementations(self) -> Sequence[str]:
        return ("flash2", "standard", "torch-math")

    def free_memory_bytes(self) -> int | None:
        return 7

    def required_bytes(self, case: Case) -> int:
        return 5

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        self.log.append(f"run {case.impl}")
        return RunResult(verification=Verification(0.0, 0.0, 1.0, "fp64", passed=case.impl != self.wrong))

    def close(self) -> None:
        self.log.append("close")


class Turns(Plain):
    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        return [KernelFault("no") if case.impl == "torch-math" else self.run(case, gpu) for case in cases]


class Source:
    def __init__(self, log: list[str], answer: HardwareCounts | Counts | None, advice: str = "") -> None:
        self.log, self.answer, self.advice = log, answer, advice

    def count(self, case: Case, gpu: Gpu) -> HardwareCounts | Counts | None:
        self.log.append(f"count {case.impl}")
        return self.answer

    def close(self) -> None:
        self.log.append("source closed")


def test_counting_comes_after_the_timed_run_and_after_all_that_take_turns(any_gpu: Gpu) -> None:
    log: list[str] = []
    hardware, emulated = HardwareCounts("absent", "none"), Counts({})
    backend = counting(Turns(log), [Source(log, hardware), Source(log, emulated), Source(log, None)])
    assert isinstance(backend, TakesTurns)
    first, second, third = backend.run_together([FLASH, STANDARD, TORCH], any_gpu)
    counts = [*["count flash2"] * 3, *["count standard"] * 3]
    assert log == ["run flash2", "run standard", *counts]
    assert isinstance(first, RunResult) and (first.hardware, first.emulated) == (hardware, emulated)
    assert isinstance(second, RunResult) and isinstance(third, KernelFault)


def test_a_wrong_result_is_not_counted(any_gpu: Gpu) -> None:
    log: list[str] = []
    result = counting(Plain(log, wrong="flash2"), [Source(log, Counts({}))]).run(FLASH, any_gpu)
    assert log == ["run flash2"] and result.emulated is None


def test_a_backend_without_sources_is_itself_and_one_with_them_is_like_it() -> None:
    plain = Plain([])
    assert counting(plain, []) is plain
    wrapped = counting(plain, [Source(plain.log, None)])
    assert not isinstance(wrapped, TakesTurns)
    assert (wrapped.name, wrapped.device, wrapped.free_memory_bytes(), wrapped.required_bytes(FLASH)) == (
        "cuda", "a test", 7, 5,
    )  # fmt: skip
    wrapped.close()
    assert plain.log == ["source closed", "close"]


def test_advice_is_given_once() -> None:
    opened = [counting(Plain([]), [Source([], None, "Do this."), Source([], None)]) for _ in range(2)]
    assert advice([*opened, Plain([])]) == ("Do this.",)


# --- the emulator beside a GPU ----------------------------------------------------------------------------------------


class Emulator(Plain):
    counts = Counts({"global": [TensorBytes("k", "Q", "read", 32)]})
    error: Exception | None = None

    def implementations(self) -> Sequence[str]:
        return ("flash2",)

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        if self.error is not None:
            raise self.error
        return RunResult(counts=self.counts)


def test_the_emulator_counts_our_kernels_beside_a_gpu(any_gpu: Gpu) -> None:
    log: list[str] = []
    source = EmulatedCounts(lambda: Emulator(log))
    assert source.count(FLASH, any_gpu) == Emulator.counts
    assert source.count(TORCH, any_gpu) is None
    assert (source.advice, log) == ("", ["close", "close"])


def test_what_the_emulator_cannot_do_is_said_and_costs_no_row(any_gpu: Gpu) -> None:
    emulator = Emulator([])
    emulator.error = ZeroDivisionError("division by zero")
    assert EmulatedCounts(lambda: emulator).count(FLASH, any_gpu) is None
    emulator.error = Unsupported("No such tile.")
    source = EmulatedCounts(lambda: emulator)
    assert source.count(FLASH, any_gpu) is None
    assert source.advice == "The emulator did not count flash2: No such tile."
