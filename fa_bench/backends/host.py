"""The host backend: NumPy and, where it is installed, PyTorch on this machine's CPU, timed with the host clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fa_bench import reference
from fa_bench.backends import numpy_impls
from fa_bench.backends.base import BackendName, RunResult, Samples
from fa_bench.backends.baselines import (
    NUMPY_IMPLEMENTATIONS,
    TORCH_IMPLEMENTATIONS,
    torch_bytes,
    torch_implementations,
)
from fa_bench.cases import Case
from fa_bench.errors import OutOfMemory, Unsupported
from fa_bench.measure.environment import cpu_name
from fa_bench.measure.memory import available_bytes, rss_peak, traced_peak
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Clock, time_on_host
from fa_bench.model.gpu import Gpu

Array = NDArray[Any]
Output = tuple[Array, Array | None]

#: Sampling time per case: a CPU shared with other programs seldom gets below the noise threshold.
TIME_LIMIT_MS: Final = 2000.0


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A case ready to run: one call of ``run`` is one attention, ``output`` turns its result into NumPy arrays."""

    run: Callable[[], Any]
    output: Callable[[Any], Output]


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

    def implementations(self) -> Sequence[str]:
        """NumPy's always; PyTorch's where it is installed."""
        return (*NUMPY_IMPLEMENTATIONS, *torch_implementations())

    def free_memory_bytes(self) -> int | None:
        """The system's available memory, or the container's."""
        return available_bytes()

    def required_bytes(self, case: Case) -> int:
        """The implementation's peak and the verification's, in bytes: the output is alive during both."""
        return _implementation_bytes(case) + reference.verification_bytes(case)

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Run, time, measure the memory of, and verify ``case``; ``gpu`` plays no part.

        The first run warms up and has its memory measured, the timed ones follow, and the last one's output is
        verified. Memory is what NumPy allocated (``allocator``: exact) or how far torch raised the resident
        set (``rss``), with the inputs in either.
        """
        # NumPy runs with one BLAS thread: the blocks of Algorithm 1 are too small to share, threads that wait for
        # them spin, and what is to be compared are the algorithms.
        numpy_case = case.impl in NUMPY_IMPLEMENTATIONS
        try:
            with threadpool_limits(1, user_api="blas") if numpy_case else nullcontext():
                return self._run(case)
        except MemoryError as error:
            raise OutOfMemory(f"{case.impl} ran out of memory.") from error

    def _run(self, case: Case) -> RunResult:
        inputs = reference.make_inputs(case)
        input_bytes = sum(values.nbytes for values in inputs.values())
        growth: int | None
        if case.impl in NUMPY_IMPLEMENTATIONS:
            prepared = _numpy(case, inputs)
            last, growth = traced_peak(prepared.run)
            source = "allocator"
        elif case.impl in TORCH_IMPLEMENTATIONS:
            prepared = _torch(case, inputs)
            last, growth = rss_peak(prepared.run)
            source = "rss"
        else:
            raise Unsupported(f"The host backend has no implementation {case.impl}.")

        def once() -> None:
            nonlocal last
            last = None  # the previous output's memory is free again, as in a real program
            last = prepared.run()

        timings = time_on_host(once, self._rule, self._clock)
        o, lse = prepared.output(last)
        return RunResult(
            samples=Samples(timings.times_ms, "host-clock", noisy=timings.noisy),
            verification=reference.verify(case, o, lse, inputs),
            mem_peak_bytes=None if growth is None else growth + input_bytes,
            mem_source="" if growth is None else source,
        )

    def close(self) -> None:
        """Nothing is held."""


def _numpy(case: Case, inputs: Mapping[str, Array]) -> _Prepared:
    q, k, v = (_in_layout(inputs[name], case) for name in "QKV")

    if case.impl == "numpy-standard":
        return _Prepared(lambda: numpy_impls.standard(q, k, v, case.shape, case.dtype), _identity)
    return _Prepared(lambda: numpy_impls.flash(q, k, v, case.shape, case.dtype, case.tile), _identity)


def _torch(case: Case, inputs: Mapping[str, Array]) -> _Prepared:
    from fa_bench.backends.torch_impls import TorchAttention, to_numpy

    def output(result: Any) -> Output:
        o, lse = result
        return to_numpy(o), None if lse is None else to_numpy(lse)

    return _Prepared(TorchAttention(case, inputs), output)


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
    return torch_bytes(case)
