"""A case on a CUDA device, ready to be launched, and how our kernels become one.

`Prepared` is what `prepare_kernels` and `fa_bench.backends.cuda_tensors.prepare_tensors` make of a case, and all that
the cuda backend knows of it: what launches it on the device's stream, poisons and fetches its output, and captures it
into a graph. Nothing here is timed, and nothing here knows NVML, caches or what a time is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fa_bench.algorithms.base import KernelSpec, Launch, Program
from fa_bench.backends.base import Resources, Verification
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_graph import capture
from fa_bench.backends.programs import POISON, arguments, filled, resources, verified
from fa_bench.backends.turns import Inputs
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel

EMPTY: Final = KernelSpec("common/empty.cu", "empty")
HOLD: Final = KernelSpec("common/hold.cu", "hold")

#: (ms) -> enqueues what keeps the stream busy for so long.
Hold = Callable[[float], None]


@dataclass(slots=True)
class Prepared:
    """A case whose inputs are on the device.

    Parameters
    ----------
    launch : callable
        Enqueues the case once.
    poison : callable
        Fills what the last launch (or replay) wrote with NaN.
    verify : callable
        (inputs) -> what the last launch left, held against the fp64 reference on the host.
    capture : callable
        (copies) -> what replays that many launches as one graph; raises `NotCaptured`.
    free : callable
        Drops the case's device memory, whoever still holds this: a traceback keeps the functions that it went through.
    peak_bytes : callable
        Peak of the case's own allocations so far; exact as long as no other case allocates.
    mem_source : str
        Whose figure that is.
    launches : int
        Kernels of one launch, as far as is known: at least 1.
    resources : Resources, optional
    """

    launch: Callable[[], None]
    poison: Callable[[], None]
    verify: Callable[[Inputs], Verification]
    capture: Callable[[int], Callable[[], None]]
    free: Callable[[], None]
    peak_bytes: Callable[[], int]
    mem_source: str
    launches: int = 1
    resources: Resources | None = None


def prepare_kernels(
    device: CudaDevice,
    program: Program,
    compiled_for: Callable[[KernelSpec], CompiledKernel],
    case: Case,
    inputs: Inputs,
) -> Prepared:
    """A program of kernels, ours or the user's: its buffers, filled, and its kernels, compiled and loaded.

    Inputs come before anything else: what writes them also warms the cache.
    """
    before = device.used_bytes()
    arrays = {}
    for buffer in program.buffers:
        arrays[buffer.name] = device.allocate(buffer.nbytes)
        if buffer.name in inputs:
            device.upload(arrays[buffer.name], filled(buffer, inputs[buffer.name]))
    peak_bytes = device.used_bytes() - before
    compiled = [compiled_for(launch.kernel) for launch in program.launches]
    before_it = [compiled_for(launch.kernel) for launch in program.setup]

    def loaded(steps: Sequence[Launch], kernels: Sequence[CompiledKernel]) -> list[tuple[Any, Launch, tuple[Any, ...]]]:
        return [
            (device.load(kernel, step.smem_bytes), step, tuple(arguments(step, arrays.__getitem__)))
            for step, kernel in zip(steps, kernels, strict=True)
        ]

    calls, setup = loaded(program.launches, compiled), loaded(program.setup, before_it)

    def launch(calls: Sequence[tuple[Any, Launch, tuple[Any, ...]]] = calls) -> None:
        for function, step, args in calls:
            function(step.grid, step.block, args, shared_mem=step.smem_bytes)

    def poison() -> None:
        for buffer in program.buffers:
            if buffer.role != "input":
                device.fill(arrays[buffer.name], POISON)
        launch(setup)  # what the program is given is no output of it

    def verify(inputs: Inputs) -> Verification:
        return verified(case, program, lambda name: device.download(arrays[name]), inputs)

    def free() -> None:
        arrays.clear()
        calls.clear()
        setup.clear()

    kernels = len(calls)
    poison()
    return Prepared(
        launch,
        poison,
        verify,
        lambda copies: capture(device, launch, copies=copies, kernels=kernels),
        free,
        lambda: peak_bytes,
        "cupy-pool",
        kernels,
        resources(program.launches, compiled),
    )


def _nothing_to_verify(inputs: Inputs) -> Verification:
    raise AssertionError("an empty kernel has no output")


def prepare_empty(device: CudaDevice, kernel: CompiledKernel, launches: int) -> Prepared:
    """So many launches of a kernel that does nothing: the least that as many kernels can take."""
    empty = device.load(kernel, 0)

    def launch() -> None:
        for _ in range(launches):
            empty((1, 1, 1), (32, 1, 1), ())

    return Prepared(
        launch,
        lambda: None,
        _nothing_to_verify,
        lambda copies: capture(device, launch, copies=copies, kernels=launches),
        lambda: None,
        lambda: 0,
        "",
        launches,
    )


def prepare_hold(device: CudaDevice, kernel: CompiledKernel) -> Hold:
    """What lets the host get ahead of the GPU: one thread that waits, by the GPU's clock, and touches no memory.

    It ends by itself, so that a launch that waits for the GPU (a library's first allocation, a copy to the host) is
    late and not stuck.
    """
    wait = device.load(kernel, 0)

    def hold(ms: float) -> None:
        wait((1, 1, 1), (1, 1, 1), (np.uint64(round(ms * 1e6)),))

    return hold
