"""The cuda backend on a fake CuPy: order of calls, routing, argument types, failures. No figure here is a GPU's."""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fa_bench.algorithms.base import KernelSpec, Launch, Program, Scalar
from fa_bench.algorithms.tensors import qkvo, row_vector
from fa_bench.backends import cuda
from fa_bench.backends.cuda import CudaBackend
from fa_bench.backends.programs import tensor_view
from fa_bench.cases import AttentionShape, Case
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import KernelFault, OutOfMemory, Unsupported
from fa_bench.measure.nvml import Nvml, Reading
from fa_bench.measure.stopping import StoppingRule
from fa_bench.model.gpu import Gpu
from fa_bench.reference import attention_fp64, encode, make_inputs

CASE = Case("flash2", AttentionShape(1, 2, 1, 8, 8, 16), "fp16", layout="bshd")
ATTEND = KernelSpec("fake.cu", "attend")
L2_BYTES = 4096
SMEM = 100_000


class Algorithm:
    """Three launches, the middle one with much shared memory."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        return self.reason

    def program(self, case: Case) -> Program:
        def launch(entry: str, smem: int, *args: Any) -> Launch:
            return Launch(KernelSpec("fake.cu", entry), (2, 3, 1), (128, 1, 1), smem, args)

        return Program(
            (*qkvo(case), row_vector("LSE", case, "output"), row_vector("l", case, "workspace")),
            (
                launch("init", 0, "l"),
                launch("attend", SMEM, "Q", "K", "V", "O", "LSE", Scalar("f32", 0.25), Scalar("i64", 8)),
                launch("finish", 0, "l", Scalar("i32", 3)),
            ),
        )


class OutOfMemoryError(MemoryError):
    pass


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class Array:
    """Device memory: host bytes, and a log of what happens to them."""

    def __init__(self, cupy: FakeCupy, nbytes: int) -> None:
        self.cupy, self.nbytes, self.host = cupy, nbytes, np.zeros(nbytes, np.uint8)

    @property
    def data(self) -> Any:
        return SimpleNamespace(memset_async=self._memset)

    def set(self, values: np.ndarray, stream: Any) -> None:
        self.cupy.say("upload", stream)
        self.host[:] = values

    def get(self, stream: Any) -> np.ndarray:
        self.cupy.say("download", stream)
        return self.host.copy()

    def _memset(self, value: int, nbytes: int, stream: Any) -> None:
        assert nbytes == self.nbytes
        self.cupy.say("flush" if nbytes == 2 * L2_BYTES else f"fill {value:#x}", stream)
        self.host[:] = value


class FakeCupy:
    """The part of CuPy that the backend uses. Times are 1 ms, but 0.001 ms for the empty kernel."""

    def __init__(self, memory: int = 10**6, fault: str = "", stale: bool = False) -> None:
        self.log: list[str] = []
        self.current: list[Any] = []
        self.arrays: weakref.WeakSet[Array] = weakref.WeakSet()
        self.memory, self.fault, self.stale, self.dead = memory, fault, stale, False
        self.loaded: dict[str, str] = {}
        self.attributes: dict[str, int] = {}
        self.last_kernel = ""
        self.args: dict[str, tuple[Any, ...]] = {}
        self.attended = 0
        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            driverGetVersion=lambda: 13000,
            getDeviceProperties=lambda ordinal: {
                "name": b"Fake GPU", "l2CacheSize": L2_BYTES, "sharedMemPerBlockOptin": 2 * SMEM,
                "uuid": bytes(range(1, 17)),
            },
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=runtime,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            Device=self._device,
            Stream=self._stream,
            Event=lambda: SimpleNamespace(record=lambda stream: self.say("event", stream), synchronize=lambda: None),
            get_elapsed_time=lambda begin, end: 0.001 if self.last_kernel == "empty" else 1.0,
        )

    def say(self, word: str, stream: Any) -> None:
        assert stream is self.stream and self.current == ["device 1", stream], "not on the one stream"
        self.log.append(word)

    def _device(self, ordinal: int) -> Any:
        return _Context(
            self, f"device {ordinal}", compute_capability="90", pci_bus_id="0000:41:00.0", mem_info=(self.memory, 10**6)
        )

    def _stream(self, non_blocking: bool) -> Any:
        assert self.current == ["device 1"], "the stream must belong to the device"
        self.stream = _Context(self, None, ptr=77, synchronize=self._synchronize)
        return self.stream

    def _synchronize(self) -> None:
        if self.dead:
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    def empty(self, nbytes: int, dtype: type) -> Array:
        assert dtype is np.uint8
        if self.used() + nbytes > self.memory:
            raise OutOfMemoryError(f"out of memory allocating {nbytes} bytes")
        array = Array(self, nbytes)
        self.arrays.add(array)
        return array

    def used(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(used_bytes=self.used, free_bytes=lambda: 5, free_all_blocks=self._release)

    def _release(self) -> None:
        self.log.append("release")
        self.held_at_release = self.used()

    def RawModule(self, *, path: str) -> Any:  # noqa: N802
        self.loaded[Path(path).name] = Path(path).read_bytes().decode()
        return SimpleNamespace(get_function=lambda entry: Function(self, entry))


class _Context(SimpleNamespace):
    def __init__(self, cupy: FakeCupy, item: Any, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._cupy, self._item = cupy, item

    def __enter__(self) -> _Context:
        self._cupy.current.append(self._item or self)
        return self

    def __exit__(self, *_: object) -> None:
        self._cupy.current.pop()


class Function:
    def __init__(self, cupy: FakeCupy, entry: str) -> None:
        self.__dict__.update(cupy=cupy, entry=entry)

    def __setattr__(self, name: str, value: int) -> None:
        assert name == "max_dynamic_shared_size_bytes"
        self.cupy.attributes[self.entry] = value

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        cupy = self.cupy
        cupy.say(self.entry, cupy.stream)
        cupy.last_kernel = self.entry
        cupy.args[self.entry] = args
        if self.entry == cupy.fault:
            cupy.dead = True
            raise CUDADriverError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
        if self.entry == "attend":
            assert (grid, block, shared_mem) == ((2, 3, 1), (128, 1, 1), SMEM)
            cupy.attended += 1
            if not (cupy.stale and cupy.attended > 2):
                self._attend(args)

    def _attend(self, args: Any) -> None:
        inputs, program = make_inputs(CASE), Algorithm().program(CASE)
        for name, array in zip("QKV", args[:3], strict=True):
            np.testing.assert_array_equal(tensor_view(program.buffer(name), array.host), inputs[name])
        o, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], CASE.shape)
        tensor_view(program.buffer("O"), args[3].host)[...] = encode(o, CASE.dtype)
        tensor_view(program.buffer("LSE"), args[4].host)[...] = lse


class FakeNvml:
    """NVML with one card at the bus id of the fake device."""

    def __init__(self, throttle: tuple[str, ...] = ()) -> None:
        self.asked: list[tuple[str | None, str | None]] = []
        self.used = itertools.chain([1000], itertools.repeat(5000))
        self.energy = itertools.count(0, 600)
        self.throttle = throttle

    def device(self, uuid: str | None, pci_bus_id: str | None) -> Any:
        self.asked.append((uuid, pci_bus_id))
        return SimpleNamespace(
            read=lambda: Reading(next(self.used), 300.0, 1500.0, 2600.0, 60.0, self.throttle),
            energy_mj=lambda: next(self.energy),
        )

    def driver_version(self) -> str:
        return "580.1"

    def close(self) -> None:
        pass


def compiler(spec: KernelSpec, sm: str, *, major: int) -> CompiledKernel:
    assert (sm, major) == ("sm_90", 13)
    return CompiledKernel(spec.entry, "", f"cubin of {spec.entry}".encode(), 64, 0, 0, "13.0", 1.0)


def make(cupy: FakeCupy, nvml: Any = None, algorithm: Algorithm | None = None, **options: Any) -> CudaBackend:
    ticks = itertools.count()
    # The clock ticks 1 s per look (one at the start, one per sample): two samples, then the limit.
    return CudaBackend(
        1,
        rule=StoppingRule(max_elapsed_ms=2000.0, min_samples=10**6),
        cupy=cupy,
        nvml=nvml or Nvml(types.SimpleNamespace(NVMLError=OSError, nvmlInit=_no_nvml)),
        compiler=compiler,
        lookup=lambda name: algorithm or Algorithm(),  # type: ignore[arg-type, return-value]
        clock=lambda: float(next(ticks)),
        **options,
    )


def _no_nvml() -> None:
    raise OSError("no driver")


LAUNCH = ["init", "attend", "finish"]
TIMED = ["flush", "event", *LAUNCH, "event"]


def test_the_order_of_a_cold_case(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    result = make(cupy).run(CASE, any_gpu)
    floor = ["flush", "event", "empty", "event"]
    assert cupy.log == [
        *floor,  # the empty kernel, under the same clock: its 200 ms are over after one sample
        *["upload"] * 3,
        *["fill 0xff"] * 3,  # O, LSE and l: never the inputs
        *LAUNCH * 3,
        *TIMED * 2,
        *["fill 0xff"] * 3,
        *TIMED,
        *["download"] * 2,
        "release",
    ]
    samples = result.samples
    assert samples is not None
    assert (samples.times_ms, samples.source, samples.l2_state) == ((1.0, 1.0, 1.0), "cuda-events", "cold")
    assert samples.noisy and not samples.launch_bound  # 1 ms is far above three times 0.001 ms
    assert result.verification is not None and result.verification.passed


def test_a_warm_cache_is_never_flushed(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    result = make(cupy, l2="warm").run(CASE, any_gpu)
    assert "flush" not in cupy.log
    assert result.samples is not None and result.samples.l2_state == "warm"


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


def test_modules_are_loaded_once_and_named_by_content(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    backend = make(cupy)
    backend.run(CASE, any_gpu)
    assert sorted(cupy.loaded.values()) == [f"cubin of {entry}" for entry in ("attend", "empty", "finish", "init")]
    first = dict(cupy.loaded)
    cupy.loaded.clear()
    backend.run(CASE, any_gpu)
    assert cupy.loaded == {} and len(first) == 4


def test_ptx_without_a_cubin_is_the_drivers_to_compile(any_gpu: Gpu) -> None:
    def ptx_only(spec: KernelSpec, sm: str, *, major: int) -> CompiledKernel:
        made = compiler(spec, sm, major=major)
        return made if spec.entry == "empty" else CompiledKernel(spec.entry, "ptx", b"", None, None, None, "", None)

    cupy = FakeCupy()
    backend = make(cupy)
    backend._compiler = ptx_only
    result = backend.run(CASE, any_gpu)
    assert {(Path(name).suffix, text) for name, text in cupy.loaded.items()} == {
        (".ptx", "ptx"),
        (".cubin", "cubin of empty"),
    }
    assert cupy.attributes == {"attend": SMEM}
    assert result.resources is not None and result.resources.registers is None


def test_short_cases_are_launch_bound(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    cupy.cuda.get_elapsed_time = lambda begin, end: 0.5 if cupy.last_kernel == "empty" else 1.0
    result = make(cupy).run(CASE, any_gpu)
    assert result.samples is not None and result.samples.launch_bound  # 1.0 < 3 · 0.5


def test_memory_is_the_pools_without_the_flush_buffer(any_gpu: Gpu) -> None:
    backend = make(FakeCupy())
    result = backend.run(CASE, any_gpu)
    # Q and O: 2 heads · 8 · 16 · 2 = 512 bytes each; K and V 256 each; LSE and l 2 · 8 · 4 = 64 each.
    assert result.mem_peak_bytes == 2 * 512 + 2 * 256 + 2 * 64 == 1664
    assert result.mem_source == "cupy-pool"
    assert backend.free_memory_bytes() == 10**6 + 5


def test_nvml_is_asked_by_uuid_and_bus_id_and_fills_its_columns(any_gpu: Gpu) -> None:
    nvml = FakeNvml()
    result = make(FakeCupy(), nvml).run(CASE, any_gpu)
    assert nvml.asked == [("GPU-01020304-0506-0708-090a-0b0c0d0e0f10", "0000:41:00.0")]
    assert result.nvml_mem_peak_bytes == 4000  # 5000 while it ran, 1000 before
    assert (result.power_w, result.sm_clock_mhz, result.mem_clock_mhz, result.temperature_c) == (300, 1500, 2600, 60)
    assert result.throttle_reasons == ""
    assert result.energy_mj is None  # with a flush between launches the counter says nothing of the kernel


def test_energy_is_per_launch_where_nothing_else_ran(any_gpu: Gpu) -> None:
    result = make(FakeCupy(), FakeNvml(), l2="warm").run(CASE, any_gpu)
    assert result.energy_mj == 300.0  # 600 mJ over two samples


def test_throttled_throughout_keeps_the_samples_and_says_so(any_gpu: Gpu) -> None:
    result = make(FakeCupy(), FakeNvml(("sw_power_cap",))).run(CASE, any_gpu)
    assert result.throttle_reasons == "sw_power_cap"
    assert result.samples is not None and len(result.samples.times_ms) == 3


def test_without_nvml_the_columns_are_empty(any_gpu: Gpu) -> None:
    result = make(FakeCupy()).run(CASE, any_gpu)
    assert result.power_w is None and result.nvml_mem_peak_bytes is None
    assert result.verification is not None and result.verification.passed


def test_a_uuid_cut_short_is_not_used() -> None:
    cupy = FakeCupy()
    properties = cupy.cuda.runtime.getDeviceProperties(1) | {"uuid": b"\x01\x02"}
    cupy.cuda.runtime.getDeviceProperties = lambda ordinal: properties
    nvml = FakeNvml()
    make(cupy, nvml)
    assert nvml.asked == [(None, "0000:41:00.0")]


def test_out_of_memory_frees_and_the_next_case_runs(any_gpu: Gpu) -> None:
    # The flush buffer (8192) and Q, K, V (1024) fit into 9500 bytes; O (512) does not.
    cupy = FakeCupy(memory=9500)
    backend = make(cupy)
    with pytest.raises(OutOfMemory, match="flash2 ran out of memory on Fake GPU"):
        backend.run(CASE, any_gpu)
    # The buffers that did fit were gone when the pool was told to free its blocks, although the error, which refers
    # to where it was raised, was not.
    assert cupy.log[-1] == "release" and cupy.held_at_release == 2 * L2_BYTES
    cupy.memory = 10**6
    result = backend.run(CASE, any_gpu)
    assert result.verification is not None and result.verification.passed


def test_running_out_of_host_memory_is_told_apart(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(case: Case) -> None:
        raise MemoryError

    monkeypatch.setattr(cuda.reference, "make_inputs", fail)
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


def test_an_error_that_leaves_the_context_alive_does_not_end_the_sweep(any_gpu: Gpu) -> None:
    cupy = FakeCupy(fault="attend")
    backend = make(cupy)
    with pytest.raises(KernelFault):
        cupy.stream.synchronize = lambda: None
        backend.run(CASE, any_gpu)
    cupy.fault = ""
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


def test_torch_runs_on_the_same_stream(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy, entered, peaks = FakeCupy(), [], []

    @contextmanager
    def on_stream(stream: tuple[int, str]) -> Iterator[None]:
        entered.append(stream)
        yield
        entered.pop()

    def attention(case: Case, inputs: Any, device: str) -> Any:
        assert entered == [(77, "cuda:1")] and device == "cuda:1"  # 77 is the pointer of CuPy's stream

        def attend() -> Any:
            assert entered == [(77, "cuda:1")]
            cupy.say("attend", cupy.stream)
            return attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape)

        return attend

    torch = SimpleNamespace(
        cuda=SimpleNamespace(
            is_available=lambda: True, empty_cache=lambda: None, reset_peak_memory_stats=peaks.append,
            memory_allocated=lambda device: 100, max_memory_allocated=lambda device: 900,
            ExternalStream=lambda pointer, device: (pointer, device), stream=on_stream,
        )
    )  # fmt: skip
    impls = SimpleNamespace(TorchAttention=attention, to_numpy=lambda x: x.astype(np.float32))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "fa_bench.backends.torch_impls", impls)  # type: ignore[arg-type]
    result = make(cupy).run(Case("torch-math", CASE.shape, "fp32"), any_gpu)
    floor = ["flush", "event", "empty", "event"]
    assert cupy.log == [*floor, *["attend"] * 3, *["flush", "event", "attend", "event"] * 3, "release"]
    assert result.verification is not None and result.verification.passed, result.verification
    assert (result.mem_peak_bytes, result.mem_source, peaks) == (800, "torch", ["cuda:1"])
    assert result.resources is None
    torch.cuda.is_available = lambda: False
    with pytest.raises(Unsupported, match="no CUDA support"):
        make(FakeCupy()).run(Case("torch-math", CASE.shape, "fp32"), any_gpu)


def test_the_compiler_follows_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {13}
    monkeypatch.setattr(cuda, "nvrtc_available", lambda major: None if major in installed else "missing")
    assert cuda._nvrtc_major(13) == 13
    installed = {12}
    assert cuda._nvrtc_major(13) == 12  # a cubin of 12 loads on a driver of 13
    assert cuda._nvrtc_major(12) == 12
    installed = {13}
    assert cuda._nvrtc_major(12) == 12  # not the other way round: then NVRTC 12 is what is missing
