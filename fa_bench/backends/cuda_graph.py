"""Launches captured into a CUDA graph.

A replay enqueues all of a case's kernels at once, so that a program of several short kernels is timed without the
host's gaps between them. What a capture holds is counted: kernels that were enqueued elsewhere (on another stream, by a
library that keeps its own) are not in it, the replay leaves them out, and a time of nothing would look like a fast
kernel.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_driver import DriverSilent
from fa_bench.errors import FaBenchError


class NotCaptured(FaBenchError):
    """Why a case can't be replayed as a graph, as the end of a sentence."""


class CaptureLeftOpen(NotCaptured):
    """A library that takes a capture for still under way: this process can finish what it began, and no more."""


def capture(device: CudaDevice, enqueue: Callable[[], None], *, copies: int, kernels: int) -> Callable[[], None]:
    """Capture ``copies`` launches into one graph and return what replays it on the device's stream.

    Parameters
    ----------
    device : CudaDevice
    enqueue : callable
        Enqueues one launch on the device's stream.
    copies : int
        How often one replay does it.
    kernels : int
        Kernels of one launch.

    Raises
    ------
    NotCaptured
        If CUDA refuses, or the graph holds another number of kernels than were to be launched.
    """
    runtime, stream = device.cupy.cuda.runtime, device.stream
    try:
        # Relaxed: what other threads and libraries do meanwhile is not this capture's business.
        runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeRelaxed)
        try:
            for _ in range(copies):
                enqueue()
        finally:
            graph = runtime.streamEndCapture(stream.ptr)
    except (runtime.CUDARuntimeError, device.cupy.cuda.driver.CUDADriverError) as error:
        raise NotCaptured(f"CUDA could not capture it ({error})") from error
    try:
        check_nodes(device, graph, copies * kernels, exact=True)
        executable = runtime.graphInstantiate(graph)
    except runtime.CUDARuntimeError as error:
        raise NotCaptured(f"CUDA could not make the captured graph executable ({error})") from error
    finally:
        runtime.graphDestroy(graph)

    def replay() -> None:
        runtime.graphLaunch(executable, stream.ptr)

    weakref.finalize(replay, _destroy, runtime, executable).atexit = False
    return replay


def check_nodes(device: CudaDevice, graph: int, kernels: int, *, exact: bool) -> None:
    """Refuse a graph that does not hold the kernels that were launched.

    Parameters
    ----------
    device : CudaDevice
    graph : int
        A cudaGraph_t.
    kernels : int
        How many there must be, or at least where it is not ``exact``.

    Raises
    ------
    NotCaptured
        With both numbers; also where the driver does not say what the graph holds.
    """
    try:
        found = device.driver.kernel_nodes(graph)
    except DriverSilent as error:
        raise NotCaptured(f"what the graph holds is not known: {error.message}") from error
    if found < kernels or (exact and found != kernels):
        raise NotCaptured(f"the graph holds {found} kernels, not {'' if exact else 'at least '}{kernels}")


def _destroy(runtime: Any, executable: int) -> None:
    with contextlib.suppress(runtime.CUDARuntimeError):  # a lost context has destroyed it
        runtime.graphExecDestroy(executable)
