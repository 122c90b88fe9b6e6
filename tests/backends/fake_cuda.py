"""The part of CuPy, of the driver and of NVML that the cuda backend uses, made up. No figure here is a GPU's.

Kernels take the time that a test gives them, on a clock of the fake's own; events read that clock. The host has another
one: what it takes to enqueue something is nothing unless a test says so, and the stream waits for it. Everything that
is enqueued is logged by name, and must be on the one stream of the one device.
"""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fa_bench.algorithms.base import PLAIN, KernelSpec, Launch, Program, Scalar
from fa_bench.algorithms.tensors import qkvo, row_vector
from fa_bench.backends.cuda import CudaBackend
from fa_bench.backends.cuda_device import MIN_FLUSH_BYTES
from fa_bench.backends.cuda_driver import DriverSilent
from fa_bench.backends.programs import tensor_view
from fa_bench.cases import AttentionShape, Case
from fa_bench.compiler import CompiledKernel
from fa_bench.measure.nvml import Nvml
from fa_bench.measure.readings import Reading
from fa_bench.measure.stopping import StoppingRule
from fa_bench.model.gpu import Gpu
from fa_bench.reference import attention_fp64, make_inputs
from fa_bench.storage import encode

CASE = Case("flash2", AttentionShape(1, 2, 1, 8, 8, 16), "fp16", layout="bshd")
L2_BYTES = 40 * 2**20
FLUSH_BYTES = 2 * L2_BYTES
SMEM = 100_000

#: What one launch of `Algorithm` enqueues, and what stands around it when it is timed from a cold cache.
LAUNCH = ["init", "attend", "finish"]
TIMED = ["flush", "hold", "event", *LAUNCH, "event"]
#: The launch floor of such a case: as many empty kernels, taken in the same way.
FLOOR = [*["empty"] * 9, "flush", "hold", "event", *["empty"] * 3, "event"]


class Algorithm:
    """Three launches, the middle one with much shared memory. ``attend`` is the name of that one."""

    directions = ("fwd",)
    fused = PLAIN

    def __init__(self, reason: str | None = None, attend: str = "attend", error: Exception | None = None) -> None:
        self.reason, self.attend, self.error = reason, attend, error

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        return self.reason

    def program(self, case: Case) -> Program:
        def launch(entry: str, smem: int, *args: Any) -> Launch:
            return Launch(KernelSpec("fake.cu", entry), (2, 3, 1), (128, 1, 1), smem, args)

        if self.error is not None:
            raise self.error
        return Program(
            (*qkvo(case), row_vector("LSE", case, "output"), row_vector("l", case, "workspace")),
            (
                launch("init", 0, "l"),
                launch(self.attend, SMEM, "Q", "K", "V", "O", "LSE", Scalar("f32", 0.25), Scalar("i64", 8)),
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
        self.cupy, self.nbytes = cupy, nbytes
        self.host = np.zeros(0 if nbytes >= MIN_FLUSH_BYTES else nbytes, np.uint8)

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
        flush = nbytes >= MIN_FLUSH_BYTES
        self.cupy.say("flush" if flush else f"fill {value:#x}", stream)
        self.cupy.flushed_bytes = nbytes if flush else self.cupy.flushed_bytes
        self.host[:] = value


class Event:
    """Where on the stream's own clock it was recorded."""

    def __init__(self, cupy: FakeCupy) -> None:
        assert cupy.current[:1] == ["device 1"], "an event belongs to the device that is current when it is made"
        self.cupy, self.at_ms, self.has_come = cupy, 0.0, False

    def record(self, stream: Any) -> None:
        self.cupy.say("event", stream)
        self.at_ms, self.has_come = self.cupy.now_ms, False

    def synchronize(self) -> None:
        self.cupy.wait()
        self.has_come = True


#: What a graph holds: names, and what each does.
Kernels = list[tuple[str, Callable[[], None]]]


class FakeCupy:
    """CuPy, on a device 1 that is no GPU.

    Parameters
    ----------
    memory : int
        Bytes of the device.
    fault : str
        Kernel whose launch is an illegal access that destroys the context.
    stale : bool
        Whether ``attend`` writes during its first two launches only.
    lost_kernels : int
        How many of a captured graph's kernels are not in it.
    durations : mapping of str to float or iterable of float
        ms by kernel: 1 for every ``attend``, none for the rest. The flush takes 50, which no time may hold.
    enqueuing : mapping of str to float
        ms that the host takes before a kernel is enqueued, none where it is not said. A replay is one of them.
    """

    def __init__(
        self,
        memory: int = 10**9,
        fault: str = "",
        stale: bool = False,
        lost_kernels: int = 0,
        durations: dict[str, float | Iterable[float]] | None = None,
        enqueuing: dict[str, float] | None = None,
    ) -> None:
        self.log: list[str] = []
        self.current: list[Any] = []
        self.arrays: weakref.WeakSet[Array] = weakref.WeakSet()
        self.memory, self.fault, self.stale, self.dead = memory, fault, stale, False
        self.lost_kernels = lost_kernels
        self.loaded: dict[str, str] = {}
        self.attributes: dict[str, int] = {}
        self.args: dict[str, tuple[Any, ...]] = {}
        self.attended = 0
        self.flushed_bytes = 0
        self.now_ms = self.host_ms = 0.0
        self.enqueuing = enqueuing or {}
        self.held_ms: list[float] = []
        self.persisting_bytes = 0
        self.durations: dict[str, Iterator[float]] = {}
        for word, ms in {"attend": 1.0, "empty": 0.001, "flush": 50.0, **(durations or {})}.items():
            self.durations[word] = itertools.repeat(ms) if isinstance(ms, (int, float)) else iter(ms)
        self.capturing: Kernels | None = None
        self.graphs: dict[int, Kernels] = {}
        self.executables: dict[int, Kernels] = {}
        self.handles = itertools.count(100)
        self.refuse_capture = False
        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            driverGetVersion=lambda: 13000,
            getDeviceProperties=lambda ordinal: {
                "name": b"Fake GPU" if ordinal == 1 else b"Another GPU",
                "l2CacheSize": L2_BYTES, "sharedMemPerBlockOptin": 2 * SMEM, "uuid": bytes(range(1, 17)),
            },
            deviceGetLimit=self._limit,
            profilerStart=lambda: self.log.append("profiler start"),
            profilerStop=lambda: self.log.append("profiler stop"),
            streamCaptureModeRelaxed=2,
            streamBeginCapture=self._begin_capture,
            streamEndCapture=self._end_capture,
            graphInstantiate=self._instantiate,
            graphLaunch=self._replay,
            graphDestroy=self.graphs.pop,
            graphExecDestroy=self.executables.pop,
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=runtime,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            Device=self._device,
            Stream=self._stream,
            Event=lambda: Event(self),
            get_elapsed_time=self._elapsed,
        )

    def say(self, word: str, stream: Any) -> None:
        """Something is enqueued: it takes its time on the stream."""
        assert stream is self.stream and self.current == ["device 1", stream], "not on the one stream"
        assert self.capturing is None or word == "captured", "nothing but launches may happen during a capture"
        self.log.append(word)
        kernel = "attend" if word.startswith("attend") and word not in self.durations else word
        self.now_ms = max(self.now_ms, self.host_ms)  # a stream that is idle waits for the host
        self.now_ms += next(self.durations.get(kernel, itertools.repeat(0.0)))

    def wait(self) -> None:
        """The host waits for all that is enqueued."""
        self.host_ms = max(self.host_ms, self.now_ms)

    def host_seconds(self) -> float:
        """The host's clock, for tests in which it plays a part."""
        return self.host_ms / 1e3

    def enqueue(self, word: str, effect: Callable[[], None]) -> None:
        """A kernel is launched on the current stream: now, or whenever the graph that it goes into is replayed."""
        self.host_ms += self.enqueuing.get(word, 0.0)
        if self.capturing is None:
            self._run(word, effect)
        else:
            self.capturing.append((word, effect))

    def _run(self, word: str, effect: Callable[[], None]) -> None:
        self.say(word, self.stream)
        effect()

    def _elapsed(self, begin: Event, end: Event) -> float:
        assert end.has_come, "nobody waited: the GPU may not have begun"
        return end.at_ms - begin.at_ms

    # ------------------------------------------------------------------------------------------- graphs

    def _begin_capture(self, stream: int, mode: int) -> None:
        assert (stream, mode) == (77, 2) and self.capturing is None
        self.capturing = []

    def _end_capture(self, stream: int) -> int:
        kernels, self.capturing = self.capturing or [], None
        if self.refuse_capture:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated: operation failed due to a previous error")
        handle = next(self.handles)
        self.graphs[handle] = kernels[self.lost_kernels :]
        return handle

    def _instantiate(self, graph: int) -> int:
        handle = next(self.handles)
        self.executables[handle] = self.graphs[graph]
        return handle

    def _replay(self, executable: int, stream: int) -> None:
        assert stream == 77
        self.host_ms += self.enqueuing.get("replay", 0.0)
        self.log.append("replay")
        for word, effect in self.executables[executable]:
            self._run(word, effect)

    # ------------------------------------------------------------------------------------------- device

    def _limit(self, limit: int) -> int:
        assert limit == 6, "cudaLimitPersistingL2CacheSize"
        return self.persisting_bytes

    def _device(self, ordinal: int) -> Any:
        return _Context(
            self,
            f"device {ordinal}",
            compute_capability="90",
            pci_bus_id="0000:41:00.0",
            mem_info=(self.memory, self.memory),
        )

    def _stream(self, non_blocking: bool) -> Any:
        assert self.current == ["device 1"], "the stream must belong to the device"
        self.stream = _Context(self, None, ptr=77, synchronize=self._synchronize)
        return self.stream

    def _synchronize(self) -> None:
        self.wait()
        if self.dead:
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    def empty(self, nbytes: int, dtype: type) -> Array:
        assert dtype is np.uint8
        assert self.current == ["device 1", self.stream], "memory must be the device's"
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

    def RawModule(self, *, path: str) -> Any:  # noqa: N802 - CuPy's name
        assert self.current == ["device 1", self.stream], "a module is loaded into the current device's context"
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
    """A kernel. Those whose names start with ``attend`` compute attention."""

    def __init__(self, cupy: FakeCupy, entry: str) -> None:
        self.__dict__.update(cupy=cupy, entry=entry)

    def __setattr__(self, name: str, value: int) -> None:
        assert name == "max_dynamic_shared_size_bytes"
        self.cupy.attributes[self.entry] = value

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        cupy = self.cupy
        cupy.args[self.entry] = tuple(None if isinstance(arg, Array) else arg for arg in args)  # keep no memory alive
        if self.entry.startswith("attend"):
            assert (grid, block, shared_mem) == ((2, 3, 1), (128, 1, 1), SMEM)
            assert cupy.attributes[self.entry] >= SMEM, "CUDA_ERROR_INVALID_VALUE: more than the function may have"
        cupy.enqueue(self.entry, partial(self._run, args))

    def _run(self, args: Any) -> None:
        cupy = self.cupy
        if self.entry == "hold":
            assert type(args[0]) is np.uint64
            cupy.held_ms.append(args[0] / 1e6)
            cupy.now_ms += cupy.held_ms[-1]
        if self.entry == cupy.fault:
            cupy.dead = True
        if cupy.dead:
            raise CUDADriverError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
        if self.entry.startswith("attend"):
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


class FakeDriver:
    """The driver's library: counts the kernels of the fake's graphs."""

    def __init__(self, cupy: FakeCupy, silent: str = "") -> None:
        self.cupy, self.silent = cupy, silent

    def kernel_nodes(self, graph: int) -> int:
        if self.silent:
            raise DriverSilent(self.silent)
        return len(self.cupy.graphs[graph])

    def reset_persisting_l2(self) -> None:
        self.cupy.log.append("reset")


class FakeTorch:
    """PyTorch with one implementation, ``attend``, and its graphs; results are arrays on the host.

    Parameters
    ----------
    cupy : FakeCupy
        Whose stream it must run on.
    can_show_graphs : bool
        Whether its graphs can be looked into, which those of old versions cannot.
    ceases_writing : str
        An implementation whose ``attend`` writes during its first three launches only.
    """

    def __init__(self, cupy: FakeCupy, can_show_graphs: bool = True, ceases_writing: str = "") -> None:
        self.cupy, self.entered, self.peaks_of = cupy, [], []  # type: ignore[var-annotated]
        self.live_bytes, self.peak_bytes, self.current_device = 100, 900, "cuda:0"
        self.initialized, self.capture_under_way, self.ceases_writing = False, False, ceases_writing
        self.blocks: list[tuple[np.ndarray, Any]] = []
        self.cublas: Block | None = None  # cuBLAS's workspace, which stays when a case is gone
        fake = self

        class CUDAGraph:
            def __init__(self, **options: bool) -> None:
                if options and not can_show_graphs:
                    raise TypeError("unexpected keyword argument 'keep_graph'")

            def raw_cuda_graph(self) -> int:
                return self.handle

            def instantiate(self) -> None:
                self.executable = cupy.cuda.runtime.graphInstantiate(self.handle)

            def replay(self) -> None:
                assert fake.entered == [(77, "cuda:1")]
                cupy.cuda.runtime.graphLaunch(self.executable, 77)

        @contextmanager
        def graph(captured: CUDAGraph, stream: tuple[int, str]) -> Iterator[None]:
            assert self.current_device == "cuda:1", "a capture waits for the current device"
            with fake.on_stream(stream):
                self.empty_cache()
                cupy.cuda.runtime.streamBeginCapture(77, 2)
                self.capture_under_way = True
                try:
                    yield
                finally:
                    captured.handle = cupy.cuda.runtime.streamEndCapture(77)  # type: ignore[attr-defined]
                    self.capture_under_way = False

        self._C = SimpleNamespace(_cuda_clearCublasWorkspaces=self._clear_workspaces)
        self.cuda = SimpleNamespace(
            is_available=lambda: True, init=self._init, empty_cache=self.empty_cache,
            reset_peak_memory_stats=self._reset_peak, memory_reserved=lambda device: len(self.blocks),
            memory_allocated=lambda device: self.live_bytes, max_memory_allocated=lambda device: self.peak_bytes,
            ExternalStream=lambda pointer, device: (pointer, device), stream=self.on_stream,
            CUDAGraph=CUDAGraph, graph=graph, device=self._device,
        )  # fmt: skip

    # Its allocator: blocks of one result each. What is free is kept, and handed out again, oldest first.

    def _init(self) -> None:
        self.initialized = True

    def _reset_peak(self, device: str) -> None:
        if not self.initialized:
            raise RuntimeError("Invalid device argument 1: did you call init?")
        self.peaks_of.append(device)

    def allocate(self, number: int) -> Block:
        """A block of so many numbers, with what the last one who had it left there."""
        free = (i for i, (memory, user) in enumerate(self.blocks) if memory.size == number and user() is None)
        if (place := next(free, None)) is None:
            self.cupy.log.append("malloc")
            block = Block(np.full(number, np.nan))
            self.blocks.append((block.memory, weakref.ref(block)))
            return block
        block = Block(self.blocks[place][0])
        self.blocks[place] = block.memory, weakref.ref(block)
        return block

    def empty_cache(self) -> None:
        if not self.initialized:
            return
        if self.capture_under_way:
            raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")
        self.blocks = [(memory, user) for memory, user in self.blocks if user() is not None]

    def _clear_workspaces(self) -> None:
        self.cublas = None

    @contextmanager
    def _device(self, name: str) -> Iterator[None]:
        self.current_device = name
        try:
            yield
        finally:
            self.current_device = "cuda:0"

    @contextmanager
    def on_stream(self, stream: tuple[int, str]) -> Iterator[None]:
        self.entered.append(stream)
        try:
            yield
        finally:
            self.entered.pop()

    def attention(self, case: Case, inputs: Any, device: str) -> Any:
        """Stands in for `fa_bench.backends.torch_impls.TorchAttention`."""
        assert self.entered == [(77, "cuda:1")] and device == "cuda:1"  # 77 is the pointer of CuPy's stream
        assert self.initialized, "tensors come after init"
        return _FakeAttention(self, inputs, case)

    def install(self, patch: Any) -> FakeTorch:
        """Make ``import torch`` find it."""
        patch.setitem(sys.modules, "torch", self)
        patch.setitem(sys.modules, "fa_bench.backends.torch_impls", SimpleNamespace(TorchAttention=self.attention))
        return self


class Block:
    """Memory that is the fake PyTorch's again when nobody refers to this."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory


class _FakeAttention:
    def __init__(self, torch: FakeTorch, inputs: Any, case: Case) -> None:
        self.torch, self.inputs, self.case = torch, inputs, case
        self.attended = 0

    def __call__(self) -> Any:
        assert self.torch.entered == [(77, "cuda:1")]
        torch, result = self.torch, self._new()
        torch.cublas = torch.cublas or torch.allocate(1)
        torch.allocate(len(self.case.impl))  # a workspace of its own size, free again when the call returns

        def attend() -> None:
            self.attended += 1
            if torch.ceases_writing != self.case.impl or self.attended <= 3:
                q, k, v = (self.inputs[name] for name in "QKV")
                o, lse = attention_fp64(q, k, v, self.case.shape)
                result.memory[:] = np.concatenate([o.ravel(), lse.ravel()])

        torch.cupy.enqueue("attend", attend)
        return result

    def _new(self) -> Block:
        s = self.case.shape
        return self.torch.allocate(s.batch * s.heads_q * s.seq_q * (s.head_dim + 1))

    def poison(self, result: Block) -> None:
        self.torch.cupy.say("fill nan", self.torch.cupy.stream)
        result.memory.fill(np.nan)

    def poisoned_like(self, result: Block) -> Block:
        spare = self._new()
        spare.memory.fill(np.nan)
        return spare

    def to_numpy(self, result: Block) -> Any:
        s = self.case.shape
        o, lse = np.split(result.memory.astype(np.float32), [s.batch * s.heads_q * s.seq_q * s.head_dim])
        return o.reshape(s.batch, s.heads_q, s.seq_q, s.head_dim), lse.reshape(s.batch, s.heads_q, s.seq_q)


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
            missing=dict,
            memory_source="nvmlDeviceGetMemoryInfo_v2",
        )

    def driver_version(self) -> str:
        return "580.1"

    def close(self) -> None:
        pass


def compiler(spec: KernelSpec, sm: str, *, major: int) -> CompiledKernel:
    assert (sm, major) == ("sm_90", 13)
    return CompiledKernel(spec.entry, "", f"cubin of {spec.entry}".encode(), 64, 0, 0, "13.0", 1.0)


def make(
    cupy: FakeCupy,
    nvml: Any = None,
    algorithm: Algorithm | None = None,
    *,
    algorithms: dict[str, Algorithm] | None = None,
    samples: int = 2,
    driver: Any = None,
    clock: Callable[[], float] | None = None,
    **options: Any,
) -> CudaBackend:
    """A backend that takes ``samples`` samples per case.

    The clock ticks 1 s per look, and a sample is between two looks: the limit ends the case after so many.
    """
    ticks = itertools.count()
    default = algorithm or Algorithm()
    return CudaBackend(
        1,
        rule=StoppingRule(max_elapsed_ms=samples * 1000.0, min_samples=10**6),
        cupy=cupy,
        driver=driver or FakeDriver(cupy),  # type: ignore[arg-type]
        nvml=nvml or Nvml(types.SimpleNamespace(NVMLError=OSError, nvmlInit=_no_nvml)),
        compiler=compiler,
        lookup=lambda name: (algorithms or {}).get(name, default),  # type: ignore[arg-type, return-value]
        clock=clock or (lambda: float(next(ticks))),
        **options,
    )


def _no_nvml() -> None:
    raise OSError("no driver")
