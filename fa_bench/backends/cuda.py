"""The cuda backend: our kernels as CuPy RawKernels, and PyTorch's attention, on a real NVIDIA GPU.

Per case: inputs -> compile -> warm-up -> [flush -> event -> launch -> event] × n -> NaN-poison the output -> one more
timed launch -> verify. A kernel that stopped writing cannot pass, and creating the inputs cannot warm the cache.
"""

from __future__ import annotations

import importlib
import statistics
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from numpy.typing import NDArray

from fa_bench import algorithms, reference
from fa_bench.algorithms.base import Algorithm, KernelSpec
from fa_bench.backends.base import BackendName, Resources, RunResult, Samples
from fa_bench.backends.baselines import TORCH_IMPLEMENTATIONS, torch_bytes, torch_implementations
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.programs import POISON, arguments, filled, has_buffer, output, resources
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel, compile_kernel, nvrtc_available
from fa_bench.errors import DeviceLost, FaBenchError, KernelFault, OutOfMemory, Unsupported
from fa_bench.measure.nvml import DeviceSummary, Nvml, NvmlDevice, Sampler, summarize_readings
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Clock, Timings, launch_bound, time_on_gpu
from fa_bench.model.gpu import Gpu

Array = NDArray[Any]
L2State = Literal["cold", "warm"]

WARM_UP_LAUNCHES: Final = 3
EMPTY: Final = KernelSpec("common/empty.cu", "empty")


@dataclass(slots=True)
class _Prepared:
    """A case whose inputs are on the device."""

    launch: Callable[[], None]
    poison: Callable[[], None]
    outputs: Callable[[], tuple[Array, Array | None]]
    peak_bytes: Callable[[], int]
    mem_source: str
    resources: Resources | None = None


class CudaBackend:
    """Runs our kernels and ``torch-*`` on one GPU.

    Parameters
    ----------
    ordinal : int
        CUDA's number of the device.
    l2 : {"cold", "warm"}
        Whether the L2 cache is flushed before each timed launch.
    rule : StoppingRule, optional
    cupy, nvml, compiler, lookup, clock
        Stand in for CuPy, NVML, `fa_bench.compiler.compile_kernel`, `fa_bench.algorithms.get` and the host
        clock in tests.
    """

    name: BackendName = "cuda"

    def __init__(
        self,
        ordinal: int = 0,
        *,
        l2: L2State = "cold",
        rule: StoppingRule | None = None,
        cupy: Any = None,
        nvml: Nvml | None = None,
        compiler: Callable[..., CompiledKernel] = compile_kernel,
        lookup: Callable[[str], Algorithm] = algorithms.get,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._cupy = importlib.import_module("cupy") if cupy is None else cupy
        self._device = CudaDevice(self._cupy, ordinal)
        self.device = self._device.name
        self._l2: L2State = l2
        self._rule = rule or StoppingRule()
        self._nvml = nvml or Nvml()
        self._nvml_device = self._nvml.device(self._device.uuid, self._device.pci_bus_id)
        self._compiler = compiler
        self._major = _nvrtc_major(self._device.driver_major)
        self._lookup = lookup
        self._clock = clock
        self._floor_ms: float | None = None
        self._lost = False

    def implementations(self) -> Sequence[str]:
        """Our kernels, the user's, and PyTorch's where it is installed."""
        return (*algorithms.names(), *algorithms.added(), *torch_implementations())

    def driver_version(self) -> str | None:
        """The NVIDIA driver's version, None if NVML does not say."""
        return self._nvml.driver_version()

    def free_memory_bytes(self) -> int | None:
        """Device memory that can be allocated now."""
        return self._device.free_bytes()

    def required_bytes(self, case: Case) -> int:
        """Device memory of ``case`` in bytes; verification runs on the host and needs none."""
        if case.impl in TORCH_IMPLEMENTATIONS:
            return torch_bytes(case)
        return self._lookup(case.impl).program(case).nbytes

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Run, time and verify ``case`` on the device; ``gpu`` is its entry in the registry."""
        if self._lost:
            raise DeviceLost("An earlier case's fault destroyed the CUDA context.", "Run again with --resume.")
        try:
            with self._device:
                return self._run(case, gpu)
        except FaBenchError:
            raise
        except MemoryError as error:  # CuPy's OutOfMemoryError is one
            traceback.clear_frames(error.__traceback__)  # they hold the buffers that did fit
            on_device = isinstance(error, self._cupy.cuda.memory.OutOfMemoryError)
            raise OutOfMemory(
                f"{case.impl} ran out of memory on {self.device if on_device else 'the host'}."
            ) from error
        except (self._cupy.cuda.runtime.CUDARuntimeError, self._cupy.cuda.driver.CUDADriverError) as error:
            self._lost = not self._alive()
            raise KernelFault(f"{case.impl} failed on {self.device}: {error}.") from error
        finally:
            if not self._lost:
                with self._device:
                    self._device.release()

    def _alive(self) -> bool:
        """Whether the context survived: after an illegal access every call fails."""
        try:
            self._device.synchronize()
        except Exception:
            return False
        return True

    def _run(self, case: Case, gpu: Gpu) -> RunResult:
        device, nvml = self._device, self._nvml_device
        if self._l2 == "cold":
            device.prepare_flush()
        flush = device.flush if self._l2 == "cold" else None
        floor_ms = self._launch_floor(flush)
        baseline = None if nvml is None else nvml.read().mem_used_bytes
        inputs = reference.make_inputs(case)
        prepare = self._torch if case.impl in TORCH_IMPLEMENTATIONS else self._kernels
        prepared = prepare(case, gpu, inputs)
        for _ in range(WARM_UP_LAUNCHES):
            prepared.launch()
        device.synchronize()
        timings, summary, energy_mj = self._time(prepared, flush, nvml, baseline)
        peak_bytes = prepared.peak_bytes()
        prepared.poison()
        final_ms = _once(prepared.launch, device, flush)
        o, lse = prepared.outputs()
        times_ms = (*timings.times_ms, final_ms)
        return RunResult(
            samples=Samples(
                times_ms,
                "cuda-events",
                self._l2,
                noisy=timings.noisy,
                launch_bound=launch_bound(statistics.median(times_ms), floor_ms),
            ),
            verification=reference.verify(case, o, lse, inputs),
            resources=prepared.resources,
            mem_peak_bytes=peak_bytes,
            mem_source=prepared.mem_source,
            nvml_mem_peak_bytes=summary.mem_peak_bytes,
            power_w=summary.power_w,
            energy_mj=energy_mj,
            sm_clock_mhz=summary.sm_clock_mhz,
            mem_clock_mhz=summary.mem_clock_mhz,
            temperature_c=summary.temperature_c,
            throttle_reasons=summary.throttle_reasons,
        )

    def _time(
        self,
        prepared: _Prepared,
        flush: Callable[[], None] | None,
        nvml: NvmlDevice | None,
        baseline: int | None,
    ) -> tuple[Timings, DeviceSummary, float | None]:
        """Sample until the rule is content, reading NVML meanwhile. Energy is per launch, in mJ."""
        if nvml is None:
            timings = time_on_gpu(prepared.launch, self._device, self._rule, flush=flush, clock=self._clock)
            return timings, DeviceSummary(), None
        before = nvml.energy_mj()
        with Sampler(nvml.read) as sampler:
            timings = time_on_gpu(
                prepared.launch,
                self._device,
                self._rule,
                flush=flush,
                throttled=sampler.throttled,
                clock=self._clock,
            )
        after = nvml.energy_mj()
        energy_mj = None
        # With a flush between the launches the counter holds the flush's energy too.
        if before is not None and after is not None and flush is None:
            energy_mj = (after - before) / (len(timings.times_ms) + timings.dropped)
        return timings, summarize_readings(sampler.readings, baseline, timings.throttled), energy_mj

    def _launch_floor(self, flush: Callable[[], None] | None) -> float:
        """Median time of an empty kernel in ms, measured once, in the same way as any case."""
        if self._floor_ms is None:
            empty = self._device.load(self._compile(EMPTY), 0)
            timings = time_on_gpu(
                lambda: empty((1, 1, 1), (32, 1, 1), ()),
                self._device,
                StoppingRule(max_elapsed_ms=200.0, min_sampled_ms=0.0, min_samples=50),
                flush=flush,
                clock=self._clock,
            )
            self._floor_ms = statistics.median(timings.times_ms)
        return self._floor_ms

    def _compile(self, spec: KernelSpec) -> CompiledKernel:
        return self._compiler(spec, self._device.sm, major=self._major)

    def _kernels(self, case: Case, gpu: Gpu, inputs: Mapping[str, Array]) -> _Prepared:
        """One of our algorithms: its program's buffers and launches."""
        algorithm, device = self._lookup(case.impl), self._device
        if reason := algorithm.unsupported(case, gpu):
            raise Unsupported(reason)
        program = algorithm.program(case)
        before = device.used_bytes()
        arrays = {}
        for buffer in program.buffers:
            arrays[buffer.name] = device.allocate(buffer.nbytes)
            if buffer.name in inputs:
                device.upload(arrays[buffer.name], filled(buffer, inputs[buffer.name]))
        peak_bytes = device.used_bytes() - before
        compiled = [self._compile(launch.kernel) for launch in program.launches]
        calls = [
            (device.load(kernel, step.smem_bytes), step, tuple(arguments(step, arrays.__getitem__)))
            for step, kernel in zip(program.launches, compiled, strict=True)
        ]

        def launch() -> None:
            for function, step, args in calls:
                function(step.grid, step.block, args, shared_mem=step.smem_bytes)

        def poison() -> None:
            for buffer in program.buffers:
                if buffer.role != "input":
                    device.fill(arrays[buffer.name], POISON)

        def outputs() -> tuple[Array, Array | None]:
            o = output(program, "O", device.download(arrays["O"]), case)
            if not has_buffer(program, "LSE"):
                return o, None
            return o, output(program, "LSE", device.download(arrays["LSE"]), case)

        poison()
        return _Prepared(
            launch, poison, outputs, lambda: peak_bytes, "cupy-pool", resources(program.launches, compiled)
        )

    def _torch(self, case: Case, gpu: Gpu, inputs: Mapping[str, Array]) -> _Prepared:
        """PyTorch on CuPy's stream: flush, events and its kernels are in one order."""
        import torch

        from fa_bench.backends.torch_impls import TorchAttention, to_numpy

        if not torch.cuda.is_available():
            raise Unsupported("The installed PyTorch has no CUDA support.")
        name = f"cuda:{self._device.ordinal}"
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(name)
        before = torch.cuda.memory_allocated(name)
        stream = torch.cuda.ExternalStream(self._device.stream.ptr, device=name)
        with torch.cuda.stream(stream):
            attention = TorchAttention(case, inputs, name)
        last: list[Any] = []

        def launch() -> None:
            last.clear()
            with torch.cuda.stream(stream):
                last.append(attention())

        def outputs() -> tuple[Array, Array | None]:
            self._device.synchronize()
            o, lse = last[0]
            return to_numpy(o), None if lse is None else to_numpy(lse)

        # Each call returns tensors of its own, so an old output cannot be taken for a new one: forget the last.
        return _Prepared(launch, last.clear, outputs, lambda: torch.cuda.max_memory_allocated(name) - before, "torch")

    def close(self) -> None:
        """Free device memory and shut NVML down."""
        if not self._lost:
            with self._device:
                self._device.close()
        self._nvml.close()


def _once(launch: Callable[[], None], device: CudaDevice, flush: Callable[[], None] | None) -> float:
    """One timed launch, as in the sampling loop."""
    if flush is not None:
        flush()
    device.start()
    launch()
    return device.stop()


def _nvrtc_major(driver_major: int) -> int:
    """CUDA major of an installed NVRTC whose cubins this driver loads: its own, else the one before."""
    older = driver_major - 1
    return older if nvrtc_available(driver_major) and not nvrtc_available(older) else driver_major
