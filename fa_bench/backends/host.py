"""The host backend: NumPy and, where it is installed, PyTorch on this machine's CPU, timed with the host clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fa_bench import algorithms, reference
from fa_bench.backends import baselines, numpy_impls
from fa_bench.backends.base import BackendName, Outcome, RunResult, Samples
from fa_bench.backends.baselines import NUMPY_IMPLEMENTATIONS
from fa_bench.backends.turns import Inputs, SharedInputs, alone_if_short_of_memory, forget_frames, in_turns, single
from fa_bench.cases import Case
from fa_bench.errors import OutOfMemory, Unsupported
from fa_bench.measure.environment import cpu_name
from fa_bench.measure.memory import available_bytes, rss_peak, traced_peak
from fa_bench.measure.statistics import drift
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Clock, Timings, sample_on_host
from fa_bench.model.gpu import Gpu

Array = NDArray[Any]
Output = tuple[Array, Array | None]
T = TypeVar("T")

#: Sampling time per case: a CPU shared with other programs seldom gets below the noise threshold.
TIME_LIMIT_MS: Final = 2000.0


@dataclass(slots=True)
class _Job:
    """A case that ran once: one call of ``run`` is one attention, ``output`` turns its result into NumPy arrays."""

    case: Case
    inputs: Inputs
    run: Callable[[], Any]
    output: Callable[[Any], Output]
    clock: Clock
    peak_bytes: int | None = None
    mem_source: str = ""

    def settle(self) -> None:
        """Nothing: a run keeps nothing that another could take."""

    def sample(self) -> float:
        """Time one run by the host clock; its output is free again afterwards, as in a real program."""
        return sample_on_host(self.run, self.clock)

    def finish(self, timings: Timings) -> RunResult:
        """Run once more and verify that output: a run returns arrays of its own, so that no old one can pass for it."""
        o, lse = self.output(self.run())
        return RunResult(
            samples=Samples(timings.times_ms, "host-clock", noisy=timings.noisy, drift=drift(timings.times_ms)),
            verification=reference.verify(self.case, o, lse, self.inputs),
            mem_peak_bytes=self.peak_bytes,
            mem_source=self.mem_source,
        )


class HostBackend:
    """Runs ``numpy-*`` and ``torch-*`` on the CPU.

    Parameters
    ----------
    rule : StoppingRule, optional
    clock : callable, optional
        Host seconds.
    """

    name: BackendName = "host"

    def __init__(self, *, rule: StoppingRule | None = None, clock: Clock = time.perf_counter) -> None:
        self.device = cpu_name() or "CPU"
        self._rule = rule or StoppingRule(max_elapsed_ms=TIME_LIMIT_MS)
        self._clock = clock
        self._blas = ThreadpoolController()

    def implementations(self) -> Sequence[str]:
        """NumPy's always; PyTorch's where it is installed."""
        return (*NUMPY_IMPLEMENTATIONS, *baselines.usable("host"))

    def free_memory_bytes(self) -> int | None:
        """The system's available memory, or the container's."""
        return available_bytes()

    def required_bytes(self, case: Case) -> int:
        """The implementation's peak and the verification's, in bytes: the output is alive during both."""
        return _implementation_bytes(case) + reference.verification_bytes(case)

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Run, time, measure the memory of, and verify ``case``; ``gpu`` plays no part."""
        return single(self.run_together([case], gpu)[0])

    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        """The same for several cases of one shape, timed in turns.

        Per case: a first run, which warms up and has its memory measured; timed runs, in turns with the other cases;
        one more, whose output is verified. Memory is what NumPy allocated (``allocator``: exact) or how far torch
        raised the resident set (``rss``), with the inputs in either. No output is kept between turns: beside a case
        that runs, the others hold their inputs only.
        """
        return alone_if_short_of_memory(cases, self._together)

    def _together(self, cases: Sequence[Case]) -> list[Outcome]:
        start = partial(self._start, SharedInputs())
        outcomes = in_turns(cases, start, self._guarded, self._rule, clock=self._clock)
        forget_frames(outcomes)
        return outcomes

    def _guarded(self, case: Case, step: Callable[[], T]) -> T:
        # NumPy runs with one BLAS thread: the blocks of Algorithm 1 are too small to share, threads that wait for
        # them spin, and what is to be compared are the algorithms.
        numpy_case = case.impl in NUMPY_IMPLEMENTATIONS
        try:
            with self._blas.limit(limits=1, user_api="blas") if numpy_case else nullcontext():
                return step()
        except MemoryError as error:
            raise OutOfMemory(f"{case.impl} ran out of memory.") from error

    def _start(self, inputs_of: SharedInputs, case: Case) -> _Job:
        if reason := algorithms.lacking(case, None):
            raise Unsupported(reason)
        inputs = inputs_of(case)
        growth: int | None
        if case.impl in NUMPY_IMPLEMENTATIONS:
            job = _numpy(case, inputs, self._clock)
            _, growth = traced_peak(job.run)
            source = "allocator"
        elif case.impl in baselines.names():
            job = _torch(case, inputs, self._clock)
            _, growth = rss_peak(job.run)
            source = "rss"
        else:
            raise Unsupported(f"The host backend has no implementation {case.impl}.")
        if growth is not None:
            job.peak_bytes = growth + sum(values.nbytes for values in inputs.values())
            job.mem_source = source
        return job

    def close(self) -> None:
        """Nothing is held."""


def _numpy(case: Case, inputs: Inputs, clock: Clock) -> _Job:
    q, k, v = (_in_layout(inputs[name], case) for name in "QKV")

    def run() -> Output:
        if case.impl == "numpy-standard":
            return numpy_impls.standard(q, k, v, case.shape, case.dtype)
        return numpy_impls.flash(q, k, v, case.shape, case.dtype, case.tile)

    return _Job(case, inputs, run, _identity, clock)


def _torch(case: Case, inputs: Inputs, clock: Clock) -> _Job:
    baselines.TORCH.load()
    from fa_bench.backends.torch_impls import TorchAttention

    attention = TorchAttention(case, inputs)
    return _Job(case, inputs, attention, attention.to_numpy, clock)


def _identity(result: Any) -> Output:
    o, lse = result
    return o, lse


def _in_layout(values: Array, case: Case) -> Array:
    """The logical tensor, in memory in the order of the case's layout."""
    if case.layout == "bshd":
        return np.ascontiguousarray(values.swapaxes(1, 2)).swapaxes(1, 2)
    return values


def _implementation_bytes(case: Case) -> int:
    if case.impl == "numpy-standard":
        return numpy_impls.standard_bytes(case)
    if case.impl == "numpy-flash":
        return numpy_impls.flash_bytes(case)
    baseline = baselines.find(case.impl)
    if baseline is None or "host" not in baseline.places:
        raise Unsupported(f"The host backend has no implementation {case.impl}.")
    return baseline.required_bytes(case, "host")
