"""The cuda backend on a fake CuPy: order of calls, routing, argument types, failures. No figure here is a GPU's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import (
    CASE,
    FLOOR,
    FLUSH_BYTES,
    L2_BYTES,
    LAUNCH,
    SMEM,
    TIMED,
    Algorithm,
    FakeCupy,
    FakeNvml,
    FakeTorch,
    compiler,
    make,
)

from fa_bench.algorithms.base import KernelSpec, Program
from fa_bench.backends import cuda, turns
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import KernelFault, OutOfMemory, Unsupported
from fa_bench.model.gpu import Gpu


def test_the_order_of_a_cold_case(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    result = make(cupy).run(CASE, any_gpu)
    assert cupy.log == [
        *["upload"] * 3,  # what writes the inputs warms the cache: it comes before every flush
        *["fill 0xff"] * 3,  # O, LSE and l: never the inputs
        *LAUNCH * 3,
        *FLOOR,  # under the same clock: its 200 ms are over after one sample
        *LAUNCH,  # once more, when all cases have started
        *TIMED * 2,
        *["fill 0xff"] * 3,
        *TIMED,
        *["download"] * 2,
        "release",
    ]
    samples = result.samples
    assert samples is not None
    assert (samples.times_ms, samples.source, samples.l2_state) == ((1.0, 1.0), "cuda-events", "cold")
    assert samples.noisy and not samples.launch_bound  # 1 ms is far above three times 0.003 ms
    assert result.verification is not None and result.verification.passed


def test_what_a_backward_pass_is_given_is_made_anew_after_poisoning_and_never_timed(any_gpu: Gpu) -> None:
    class WithSetup(Algorithm):
        def program(self, case: Case) -> Program:
            whole = super().program(case)
            first, *rest = whole.launches
            return replace(whole, launches=tuple(rest), setup=(replace(first, args=("l",)),))

    cupy = FakeCupy()
    result = make(cupy, algorithm=WithSetup()).run(CASE, any_gpu)
    launch = ["attend", "finish"]
    timed = ["flush", "hold", "event", *launch, "event"]
    poisoned = [*["fill 0xff"] * 3, "init"]
    assert [word for word in cupy.log if word != "empty"] == [
        *["upload"] * 3, *poisoned, *launch * 3, "flush", "hold", "event", "event", *launch,
        *timed * 2, *poisoned, *timed, *["download"] * 2, "release",
    ]  # fmt: skip
    assert result.verification is not None and result.verification.passed


def test_everything_is_on_the_device_that_was_asked_for(any_gpu: Gpu) -> None:
    # The fake refuses memory, modules, streams, events, copies and launches unless device 1 and its stream are current.
    cupy, nvml = FakeCupy(), FakeNvml()
    backend = make(cupy, nvml)
    result = backend.run(CASE, any_gpu)
    assert result.samples is not None and min(result.samples.times_ms) > 0.0
    assert (backend.device, nvml.asked[0][1]) == ("Fake GPU", "0000:41:00.0")
    assert cupy.current == []  # and leaves the caller's device as it was


def test_a_time_is_read_when_its_second_event_has_come(any_gpu: Gpu) -> None:
    # 0.02 ms for a softmax that takes 0.59: the host went on. The fake refuses to tell a time that nobody waited for.
    cupy = FakeCupy(durations={"attend": 0.59})
    result = make(cupy).run(CASE, any_gpu)
    assert result.samples is not None and result.samples.times_ms == pytest.approx((0.59, 0.59))


def test_kernels_are_compiled_and_loaded_before_anything_of_the_case_is_timed(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    backend = make(cupy)

    def slow_compiler(spec: KernelSpec, sm: str, *, major: int) -> CompiledKernel:
        cupy.log.append(f"compile {spec.entry}")
        cupy.now_ms += 216.0  # ms of a first call that compiles, where 1.6 would be right
        return compiler(spec, sm, major=major)

    backend._compiler = slow_compiler
    result = backend.run(CASE, any_gpu)
    assert result.samples is not None and result.samples.times_ms == pytest.approx((1.0, 1.0))
    assert result.resources is not None and result.resources.compile_ms == 3.0  # its own column: 1 ms per kernel
    first_launch, first_of_the_case = cupy.log.index("init"), cupy.log.index("event", cupy.log.index("flush"))
    assert {f"compile {entry}" for entry in LAUNCH} <= set(cupy.log[:first_launch])
    assert not any(word.startswith("compile") for word in cupy.log[first_of_the_case:])


def test_a_warm_cache_is_what_the_same_launch_left_and_is_never_flushed(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    result = make(cupy, l2="warm").run(CASE, any_gpu)
    assert "flush" not in cupy.log
    assert result.samples is not None and result.samples.l2_state == "warm"
    once = [*LAUNCH, "hold", "event", *LAUNCH, "event"]
    end = [*LAUNCH, *["fill 0xff"] * 3, "hold", "event", *LAUNCH, "event", *["download"] * 2, "release"]
    # The poison comes after the launch that warms the cache, or that launch would write the output that is verified.
    assert cupy.log[-len(once) * 2 - len(end) :] == [*once * 2, *end]


def test_the_flush_is_twice_this_devices_l2_and_has_a_floor(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    make(cupy).run(CASE, any_gpu)
    assert cupy.flushed_bytes == 2 * L2_BYTES == 80 * 2**20
    # A virtual GPU that names 0 bytes of L2, and a small one with 4 MiB: 64 MiB all the same.
    for l2_bytes in (0, 4 * 2**20):
        cupy = FakeCupy()
        properties = cupy.cuda.runtime.getDeviceProperties(1) | {"l2CacheSize": l2_bytes}
        cupy.cuda.runtime.getDeviceProperties = lambda ordinal, given=properties: given
        make(cupy).run(CASE, any_gpu)
        assert cupy.flushed_bytes == 64 * 2**20


def test_persisting_lines_are_reset_before_a_flush_where_a_library_set_some_aside(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    cupy.persisting_bytes = 2**20
    make(cupy).run(CASE, any_gpu)
    before = [cupy.log[place - 1] for place, word in enumerate(cupy.log) if word == "flush"]
    assert before == ["reset"] * 4  # the floor's, two samples, the last launch

    def refuse(limit: int) -> int:
        raise cupy.cuda.runtime.CUDARuntimeError("cudaErrorUnsupportedLimit")

    cupy = FakeCupy()
    cupy.cuda.runtime.deviceGetLimit = refuse  # before compute capability 8.0
    make(cupy).run(CASE, any_gpu)
    assert "flush" in cupy.log and "reset" not in cupy.log


def test_a_kernel_that_stops_writing_fails(any_gpu: Gpu) -> None:
    # It writes twice, during warm-up; the poison before the last launch is what verification then finds.
    result = make(FakeCupy(stale=True)).run(CASE, any_gpu)
    assert result.verification is not None and not result.verification.passed
    assert "not finite" in result.verification.detail


def test_arguments_have_c_types_and_shared_memory_is_opted_in(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    make(cupy).run(CASE, any_gpu)
    assert [type(x) for x in cupy.args["attend"][5:]] == [np.float32, np.int64]
    assert cupy.args["attend"][5:] == (0.25, 8)
    assert type(cupy.args["finish"][1]) is np.int32
    assert cupy.attributes == {"attend": SMEM}  # beyond 48 KiB only


def test_a_case_with_less_shared_memory_takes_none_from_one_that_shares_the_function() -> None:
    cupy = FakeCupy()
    backend = make(cupy)
    with backend._device as device:
        kernel = backend._compile(KernelSpec("fake.cu", "attend"))
        functions = [device.load(kernel, nbytes) for nbytes in (SMEM, 60_000, 2 * SMEM)]
        assert functions[0] is functions[1] is functions[2]
        assert cupy.attributes == {"attend": 2 * SMEM}
        device.load(kernel, SMEM)
    assert cupy.attributes == {"attend": 2 * SMEM}


def test_modules_are_loaded_once_and_named_by_content(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    backend = make(cupy)
    backend.run(CASE, any_gpu)
    entries = "attend", "empty", "finish", "hold", "init"
    assert sorted(cupy.loaded.values()) == [f"cubin of {entry}" for entry in entries]
    first = dict(cupy.loaded)
    cupy.loaded.clear()
    backend.run(CASE, any_gpu)
    assert cupy.loaded == {} and len(first) == 5


def test_ptx_without_a_cubin_is_the_drivers_to_compile(any_gpu: Gpu) -> None:
    def ptx_only(spec: KernelSpec, sm: str, *, major: int) -> CompiledKernel:
        if spec.entry in ("empty", "hold"):
            return compiler(spec, sm, major=major)
        return CompiledKernel(spec.entry, "ptx", b"", None, None, None, "", None)

    cupy = FakeCupy()
    backend = make(cupy)
    backend._compiler = ptx_only
    result = backend.run(CASE, any_gpu)
    assert {(Path(name).suffix, text) for name, text in cupy.loaded.items()} == {
        (".ptx", "ptx"),
        (".cubin", "cubin of empty"),
        (".cubin", "cubin of hold"),
    }
    assert cupy.attributes == {"attend": SMEM}
    assert result.resources is not None and result.resources.registers is None


def test_a_time_below_three_times_as_many_empty_kernels_is_launch_bound(any_gpu: Gpu) -> None:
    # Three launches of 0.12 ms each take 0.36 ms: 1 ms is below three times that. At 0.11 ms it is not.
    for empty_ms, bound in ((0.12, True), (0.11, False)):
        result = make(FakeCupy(durations={"empty": empty_ms})).run(CASE, any_gpu)
        assert result.samples is not None and result.samples.launch_bound is bound
        assert result.samples.floor_ms == pytest.approx(3 * empty_ms)


def test_a_time_of_zero_is_handed_on_for_the_row_to_refuse(any_gpu: Gpu) -> None:
    result = make(FakeCupy(durations={"attend": 0.0, "empty": 0.0}), FakeNvml()).run(CASE, any_gpu)
    assert result.samples is not None and result.samples.times_ms == (0.0, 0.0)
    assert (result.samples.floor_ms, result.energy_mj) == (None, None)


def test_memory_is_the_pools_without_the_flush_buffer(any_gpu: Gpu) -> None:
    backend = make(FakeCupy())
    result = backend.run(CASE, any_gpu)
    # Q and O: 2 heads · 8 · 16 · 2 = 512 bytes each; K and V 256 each; LSE and l 2 · 8 · 4 = 64 each.
    assert result.mem_peak_bytes == 2 * 512 + 2 * 256 + 2 * 64 == 1664
    assert result.mem_source == "cupy-pool"
    assert backend.free_memory_bytes() == 10**9 + 5


def test_nvml_is_asked_by_uuid_and_bus_id_and_fills_its_columns(any_gpu: Gpu) -> None:
    nvml = FakeNvml()
    result = make(FakeCupy(), nvml).run(CASE, any_gpu)
    assert nvml.asked == [("GPU-01020304-0506-0708-090a-0b0c0d0e0f10", "0000:41:00.0")]
    assert result.nvml_mem_peak_bytes == 4000  # 5000 while it ran, 1000 before
    assert (result.power_w, result.sm_clock_mhz, result.mem_clock_mhz, result.temperature_c) == (300, 1500, 2600, 60)
    assert result.throttle_reasons == ""


def test_energy_is_of_a_batch_of_its_own_without_a_flush(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    result = make(cupy, FakeNvml()).run(CASE, any_gpu)
    # Launches take 1 ms here, so that 10 of them stand between two readings, each 600 mJ above the one before.
    assert (result.energy_mj, result.energy_launches) == (60.0, 10)
    # The second reading waits until the next ten are enqueued; then the output is poisoned for the last timed launch.
    last = cupy.log.index("fill 0xff", cupy.log.index("flush", cupy.log.index("upload")))
    assert cupy.log[last - 20 * len(LAUNCH) : last] == LAUNCH * 20


def test_throttled_throughout_keeps_the_samples_and_says_so(any_gpu: Gpu) -> None:
    result = make(FakeCupy(), FakeNvml(("sw_power_cap",))).run(CASE, any_gpu)
    assert result.throttle_reasons == "sw_power_cap"
    assert result.samples is not None and len(result.samples.times_ms) == 2


def test_without_nvml_the_columns_are_empty(any_gpu: Gpu) -> None:
    result = make(FakeCupy()).run(CASE, any_gpu)
    assert result.power_w is None and result.nvml_mem_peak_bytes is None
    assert result.verification is not None and result.verification.passed


@pytest.mark.parametrize(
    ("given", "uuid"),
    [
        (b"\x01\x02", None),
        (bytes(range(1, 17)), "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"),
        (bytes(range(1, 25)), "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"),  # on Windows, with the LUID behind it
    ],
)
def test_a_uuid_cut_short_is_not_used_and_one_too_long_is_cut(given: bytes, uuid: str | None) -> None:
    cupy = FakeCupy()
    properties = cupy.cuda.runtime.getDeviceProperties(1) | {"uuid": given}
    cupy.cuda.runtime.getDeviceProperties = lambda ordinal: properties
    nvml = FakeNvml()
    make(cupy, nvml)
    assert nvml.asked == [(uuid, "0000:41:00.0")]


def test_out_of_memory_frees_and_the_next_case_runs(any_gpu: Gpu) -> None:
    # The flush buffer and Q, K, V (1024) fit with 1308 bytes; O (512) does not.
    cupy = FakeCupy(memory=FLUSH_BYTES + 1308)
    backend = make(cupy)
    with pytest.raises(OutOfMemory, match="flash2 ran out of memory on Fake GPU"):
        backend.run(CASE, any_gpu)
    # The buffers that did fit were gone when the pool was told to free its blocks, although the error, which refers
    # to where it was raised, was not.
    assert cupy.log[-1] == "release" and cupy.held_at_release == 0
    cupy.memory = 10**9
    result = backend.run(CASE, any_gpu)
    assert result.verification is not None and result.verification.passed


def test_running_out_of_host_memory_is_told_apart(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(case: Case) -> None:
        raise MemoryError

    monkeypatch.setattr(turns.reference, "make_inputs", fail)
    with pytest.raises(OutOfMemory, match="flash2 ran out of memory on the host"):
        make(FakeCupy()).run(CASE, any_gpu)


def test_a_fault_is_blamed_and_the_dead_context_is_not_used_again(any_gpu: Gpu) -> None:
    cupy = FakeCupy(fault="attend")
    backend = make(cupy)
    with pytest.raises(KernelFault, match="flash2 failed on Fake GPU: CUDA_ERROR_ILLEGAL_ADDRESS"):
        backend.run(CASE, any_gpu)
    before = list(cupy.log)
    with pytest.raises(KernelFault, match="destroyed the CUDA context") as info:
        backend.run(CASE, any_gpu)
    assert "--resume" in info.value.hint and cupy.log == before
    backend.close()


def test_a_fault_that_one_of_our_own_errors_hides_is_a_fault(any_gpu: Gpu) -> None:
    class Hiding(Algorithm):
        def program(self, case: Case) -> Program:
            cupy.dead = True
            raise Unsupported("It has no kernel.")

    cupy = FakeCupy()
    backend = make(cupy, algorithm=Hiding())
    with pytest.raises(KernelFault, match=r"flash2 failed on Fake GPU: It has no kernel\.$"):
        backend.run(CASE, any_gpu)


def test_an_error_that_leaves_the_context_alive_does_not_end_the_sweep(any_gpu: Gpu) -> None:
    cupy = FakeCupy(fault="attend")
    backend = make(cupy)
    with pytest.raises(KernelFault):
        cupy.stream.synchronize = lambda: None
        backend.run(CASE, any_gpu)
    cupy.fault, cupy.dead = "", False
    result = backend.run(CASE, any_gpu)
    assert result.verification is not None and result.verification.passed


def test_refusals(any_gpu: Gpu) -> None:
    with pytest.raises(Unsupported, match="too wide"):
        make(FakeCupy(), algorithm=Algorithm("It is too wide.")).run(CASE, any_gpu)
    cupy = FakeCupy()
    properties = cupy.cuda.runtime.getDeviceProperties(1) | {"sharedMemPerBlockOptin": 99_999}
    cupy.cuda.runtime.getDeviceProperties = lambda ordinal: properties
    # The device itself is asked too: a target GPU may have been named that is another one.
    with pytest.raises(Unsupported, match=r"attend needs 100000 bytes .* has 99999"):
        make(cupy).run(CASE, any_gpu)


def test_torch_runs_on_the_one_stream(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    torch = FakeTorch(cupy).install(monkeypatch)
    result = make(cupy).run(Case("torch-math", CASE.shape, "fp32"), any_gpu)
    floor = [*["empty"] * 3, "flush", "hold", "event", "empty", "event"]  # how many kernels it launches is not known
    timed = ["flush", "hold", "event", "attend", "event"]
    # A result and two workspaces are allocated once. Before the last launch, blocks are until there is a fresh one.
    allocated = ["malloc"] * 3
    assert cupy.log == [
        *allocated, *["attend"] * 3, *floor, "attend", *timed * 2, "fill nan", "malloc", *timed, "release",
    ]  # fmt: skip
    assert result.verification is not None and result.verification.passed, result.verification
    assert (result.mem_peak_bytes, result.mem_source, torch.peaks_of) == (800, "torch", ["cuda:1"])
    assert result.resources is None
    torch.cuda.is_available = lambda: False
    with pytest.raises(Unsupported, match="no CUDA support"):
        make(FakeCupy()).run(Case("torch-math", CASE.shape, "fp32"), any_gpu)


def test_cublas_memory_is_each_cases_own_and_not_the_firsts(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch(cupy := FakeCupy()).install(monkeypatch)
    held_before = []
    torch.cuda.reset_peak_memory_stats = lambda device: held_before.append(torch.cublas)
    backend = make(cupy)
    for impl in ("torch-math", "torch-flash-blocked"):
        backend.run(Case(impl, CASE.shape, "fp32"), any_gpu)
    assert held_before == [None, None]
    # A PyTorch that has no such function keeps it.
    del torch._C._cuda_clearCublasWorkspaces
    assert backend.run(Case("torch-math", CASE.shape, "fp32"), any_gpu).verification is not None


def test_the_compiler_follows_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {13}
    monkeypatch.setattr(cuda, "nvrtc_available", lambda major: None if major in installed else "missing")
    assert cuda._nvrtc_major(13) == 13
    installed = {12}
    assert cuda._nvrtc_major(13) == 12  # a cubin of 12 loads on a driver of 13
    assert cuda._nvrtc_major(12) == 12
    installed = {13}
    assert cuda._nvrtc_major(12) == 12  # not the other way round: then NVRTC 12 is what is missing
