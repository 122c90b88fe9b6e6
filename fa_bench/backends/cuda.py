"""The cuda backend: our kernels as CuPy RawKernels, and what runs through PyTorch, on a real NVIDIA GPU.

Per case: inputs -> compile -> warm-up -> [flush -> hold -> event -> launch -> event] × n -> NaN-poison the output ->
one more launch -> verify. A kernel that stopped writing cannot pass, and creating the inputs cannot warm the cache. The
samples are taken in turns with those of the cases that run with it.

This file decides what a case goes through and whose fault a failure is. How it gets onto the device is in `cuda_launch`
and `cuda_tensors`, how a sample is taken in `cuda_timing`, what NVML says in `cuda_watch`.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from fa_bench import algorithms, reference
from fa_bench.algorithms.base import Algorithm, KernelSpec
from fa_bench.backends import baselines
from fa_bench.backends.base import BackendName, Outcome, RunResult, Samples, TimeSource
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_driver import Driver
from fa_bench.backends.cuda_launch import (
    EMPTY,
    HOLD,
    Hold,
    Prepared,
    prepare_empty,
    prepare_hold,
    prepare_kernels,
)
from fa_bench.backends.cuda_peaks import cuda_peaks
from fa_bench.backends.cuda_tensors import empty_cache, prepare_tensors
from fa_bench.backends.cuda_timing import L2State, TimedLaunch, TimerKind, warm_up
from fa_bench.backends.cuda_watch import Rise, Watch
from fa_bench.backends.turns import (
    Inputs,
    SharedInputs,
    alone_if_short_of_memory,
    forget_frames,
    in_turns,
    single,
)
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel, compile_kernel, nvrtc_available
from fa_bench.errors import DeviceLost, FaBenchError, KernelFault, OutOfMemory, Unsupported
from fa_bench.measure.energy import Energy
from fa_bench.measure.nvml import Nvml
from fa_bench.measure.statistics import drift
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Clock, Timings, launch_bound, time_alone
from fa_bench.model.gpu import Gpu
from fa_bench.model.peaks import MeasuredPeaks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    """A case that is on the device, compiled and warm."""

    case: Case
    inputs: Inputs
    prepared: Prepared
    timed: TimedLaunch
    peak_bytes: int
    floor_ms: float
    rise: Rise
    finish_on: Callable[[_Job, Timings], RunResult]

    def settle(self) -> None:
        self.timed.settle()

    def sample(self) -> float:
        return self.timed.sample()

    def finish(self, timings: Timings) -> RunResult:
        return self.finish_on(self, timings)


class CudaBackend:
    """Runs our kernels and the libraries' on one GPU.

    Parameters
    ----------
    ordinal : int
        CUDA's number of the device.
    l2 : {"cold", "warm"}
        What a timed launch finds in the L2 cache: nothing of its own, or what the same launch left just before.
    timer : {"events", "graph"}
        Whether launches are enqueued one by one, or replayed as a CUDA graph. A case that can't be captured is timed by
        events, and its samples say why.
    strict_timer : bool
        Such a case fails instead.
    rule : StoppingRule, optional
    cupy, driver, nvml, compiler, lookup, clock
        Stand in for CuPy, the driver's library, NVML, `fa_bench.compiler.compile_kernel`, `fa_bench.algorithms.get`
        and the host clock in tests.
    """

    name: BackendName = "cuda"

    def __init__(
        self,
        ordinal: int = 0,
        *,
        l2: L2State = "cold",
        timer: TimerKind = "events",
        strict_timer: bool = False,
        rule: StoppingRule | None = None,
        cupy: Any = None,
        driver: Driver | None = None,
        nvml: Nvml | None = None,
        compiler: Callable[..., CompiledKernel] = compile_kernel,
        lookup: Callable[[str], Algorithm] = algorithms.get,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._cupy = importlib.import_module("cupy") if cupy is None else cupy
        self._device = CudaDevice(self._cupy, ordinal, driver)
        self.device = self._device.name
        self._l2: L2State = l2
        self._timer: TimerKind = timer
        self._strict_timer = strict_timer
        self._rule = rule or StoppingRule()
        self._nvml = nvml or Nvml()
        self._watch = Watch(self._nvml, self._device.uuid, self._device.pci_bus_id)
        self._compiler = compiler
        self._major = _nvrtc_major(self._device.driver_major)
        self._lookup = lookup
        self._clock = clock
        self._floors_ms: dict[tuple[int, TimeSource], float] = {}
        self._hold: Hold | None = None
        self._held: dict[str, Prepared] = {}
        self._lost = False
        self._left_open = False

    def implementations(self) -> Sequence[str]:
        """Our kernels, the user's, and those of the libraries that are installed."""
        return (*algorithms.names(), *algorithms.added(), *baselines.usable("cuda"))

    def driver_version(self) -> str | None:
        """The NVIDIA driver's version, None if NVML does not say."""
        return self._nvml.driver_version()

    def measure_peaks(self, now: datetime) -> MeasuredPeaks:
        """The device's own peaks, measured in some seconds."""
        with self._device:
            return cuda_peaks(
                self._device, self._compile, self._watch, driver=self.driver_version(), now=now, clock=self._clock
            )

    def free_memory_bytes(self) -> int | None:
        """Device memory that can be allocated now."""
        return self._device.free_bytes()

    def required_bytes(self, case: Case) -> int:
        """Device memory of ``case`` in bytes; verification runs on the host and needs none."""
        if baseline := baselines.find(case.impl):
            if reason := baseline.unsupported(case, "cuda", self._device.sm):
                raise Unsupported(reason)
            return baseline.required_bytes(case, "cuda")
        return self._lookup(case.impl).program(case).nbytes

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Run, time and verify ``case`` on the device; ``gpu`` is its entry in the registry."""
        return single(self.run_together([case], gpu)[0])

    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        """The same for several cases of one shape, timed in turns."""
        return alone_if_short_of_memory(cases, lambda some: self._together(some, gpu))

    def _together(self, cases: Sequence[Case], gpu: Gpu) -> list[Outcome]:
        start = partial(self._start, SharedInputs(), gpu)
        if self._lost or self._left_open:
            return [self._unusable() for _ in cases]
        with self._device:
            try:
                outcomes = in_turns(
                    cases, start, self._guarded, self._rule, watch=self._watch.sampling, clock=self._clock
                )
                forget_frames(outcomes)
                return outcomes
            finally:
                self._device.drop_flush()
                for case in cases:
                    self._free(case)
                if not (self._lost or self._left_open):
                    empty_cache()

    def _guarded(self, case: Case, step: Callable[[], T]) -> T:
        """One step of a case; what goes wrong in it is that case's, since each step waits for what it enqueued."""
        if self._lost:
            raise self._unusable()
        try:
            return step()
        except Exception as error:
            forget_frames([error])  # they hold the buffers that did fit
            self._lost = not self._alive()
            self._free(case)
            explained = self._explained(case, error)
            if explained is error:
                raise
            raise explained from error

    def _explained(self, case: Case, error: Exception) -> Exception:
        runtime, driver = self._cupy.cuda.runtime, self._cupy.cuda.driver
        if self._lost:  # whatever noticed it first
            return KernelFault(f"{case.impl} failed on {self.device}: {str(error).rstrip('.')}.")
        if isinstance(error, MemoryError):  # CuPy's OutOfMemoryError is one
            on_device = isinstance(error, self._cupy.cuda.memory.OutOfMemoryError)
            return OutOfMemory(f"{case.impl} ran out of memory on {self.device if on_device else 'the host'}.")
        if isinstance(error, FaBenchError):
            return error
        if isinstance(error, (runtime.CUDARuntimeError, driver.CUDADriverError)):
            return KernelFault(f"{case.impl} failed on {self.device}: {error}.")
        return error

    def _free(self, case: Case) -> None:
        """Give a case's memory back to the device, for whoever allocates next, CuPy or PyTorch."""
        if held := self._held.pop(case.case_id, None):
            held.free()
        if not self._lost:
            self._device.release()

    def _alive(self) -> bool:
        """Whether the context survived: after an illegal access every call fails."""
        try:
            self._device.synchronize()
        except Exception:
            return False
        return True

    def _start(self, inputs_of: SharedInputs, gpu: Gpu, case: Case) -> _Job:
        """Inputs -> compile -> warm-up, for this case's own kernels and shape. All that it needs is allocated here."""
        if self._left_open:
            raise self._unusable()
        if self._l2 == "cold":
            self._device.prepare_flush()
        if self._hold is None:
            self._hold = prepare_hold(self._device, self._compile(HOLD))
        empty_cache()
        with self._watch.starting() as rise:
            prepared = self._prepare(case, gpu, inputs_of(case))
            self._held[case.case_id] = prepared
            timed = self._timed(prepared, self._hold, self._timer)
            self._left_open = timed.left_open
        peak_bytes = prepared.peak_bytes()
        if self._strict_timer and timed.fallback:
            raise FaBenchError(f"{case.impl} can't be timed as asked. {timed.fallback}")
        floor_ms = self._launch_floor(prepared.launches, timed.source, self._hold)
        return _Job(case, inputs_of(case), prepared, timed, peak_bytes, floor_ms, rise, self._finish)

    def _prepare(self, case: Case, gpu: Gpu, inputs: Inputs) -> Prepared:
        baseline = baselines.find(case.impl)
        algorithm = None if baseline else self._lookup(case.impl)
        if reason := algorithms.lacking(case, algorithm):
            raise Unsupported(reason)
        if algorithm is None:
            return prepare_tensors(self._device, case, inputs)
        if reason := algorithm.unsupported(case, gpu):
            raise Unsupported(reason)
        return prepare_kernels(self._device, algorithm.program(case), self._compile, case, inputs)

    def _finish(self, job: _Job, timings: Timings) -> RunResult:
        """Energy, then one launch more, whose output is verified."""
        median_ms = statistics.median(timings.times_ms)
        energy = self._energy(job.timed, median_ms)
        job.timed.once_more()
        return RunResult(
            samples=Samples(
                timings.times_ms,
                job.timed.source,
                self._l2,
                noisy=timings.noisy,
                launch_bound=launch_bound(median_ms, job.floor_ms),
                drift=drift(timings.times_ms),
                dropped=timings.dropped,
                floor_ms=job.floor_ms or None,  # events tick in half microseconds
                fallback=job.timed.fallback,
            ),
            verification=job.prepared.verify(job.inputs),
            resources=job.prepared.resources,
            mem_peak_bytes=job.peak_bytes,
            mem_source=job.prepared.mem_source,
            **self._watch.columns(throttled=timings.throttled, energy=energy, rise=job.rise),
        )

    def _energy(self, timed: TimedLaunch, median_ms: float) -> Energy:
        """Energy of one launch, enqueued as for a sample."""
        if median_ms <= 0.0:  # the row is invalid_timing
            return Energy()
        call_ms = median_ms * timed.copies
        energy = self._watch.measure_energy(timed.call, self._device.synchronize, call_ms, self._clock)
        if energy.mj_per_launch is None or energy.launches is None:
            return energy
        return Energy(energy.mj_per_launch / timed.copies, energy.launches * timed.copies)

    def profile(self, case: Case, gpu: Gpu) -> None:
        """Launch ``case`` once, warmed up, in the range that a profiler around this process looks at."""
        with self._device:
            prepared = self._prepare(case, gpu, reference.make_inputs(case))
            warm_up(self._device, prepared.launch, self._clock)
            self._device.profiled(prepared.launch)

    def _timed(self, prepared: Prepared, hold: Hold, timer: TimerKind) -> TimedLaunch:
        return TimedLaunch(self._device, prepared, hold, l2=self._l2, timer=timer, clock=self._clock)

    def _launch_floor(self, launches: int, source: TimeSource, hold: Hold) -> float:
        """Median time of ``launches`` empty kernels in ms, measured once per timer, in the same way as any case."""
        key = launches, source
        if key not in self._floors_ms:
            empty = prepare_empty(self._device, self._compile(EMPTY), launches)
            timed = self._timed(empty, hold, "graph" if source == "cuda-graph" else "events")
            rule = StoppingRule(max_elapsed_ms=200.0, min_sampled_ms=0.0, min_samples=50)
            timings = time_alone(timed.sample, rule, clock=self._clock)
            self._floors_ms[key] = statistics.median(timings.times_ms)
        return self._floors_ms[key]

    def _compile(self, spec: KernelSpec) -> CompiledKernel:
        return self._compiler(spec, self._device.sm, major=self._major)

    def _unusable(self) -> DeviceLost:
        what = (
            "An earlier case's fault destroyed the CUDA context."
            if self._lost
            else "An earlier case could not be captured, and PyTorch's allocator takes the capture for under way."
        )
        return DeviceLost(what, "Run again with --resume.")

    def close(self) -> None:
        """Free device memory and shut NVML down."""
        if not self._lost:
            with self._device:
                self._device.close()
        self._nvml.close()


def _nvrtc_major(driver_major: int) -> int:
    """CUDA major of an installed NVRTC whose cubins this driver loads: its own, else the one before."""
    older = driver_major - 1
    return older if nvrtc_available(driver_major) and not nvrtc_available(older) else driver_major
