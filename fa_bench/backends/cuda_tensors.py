"""What takes PyTorch's tensors, on a CUDA device: the same `Prepared` as our kernels are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from fa_bench import reference
from fa_bench.backends import baselines
from fa_bench.backends.base import Verification
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_graph import CaptureLeftOpen, NotCaptured, check_nodes
from fa_bench.backends.cuda_launch import Prepared
from fa_bench.backends.turns import Inputs
from fa_bench.cases import Case
from fa_bench.errors import FaBenchError, OutOfMemory, Unsupported

#: Blocks of PyTorch's cache that are filled with NaN before the launch that is verified: far more than any call takes.
MAX_SPARES: Final = 32


def empty_cache() -> None:
    """Give back what PyTorch keeps of earlier cases: others need it, and what is in use rises by a case's own.

    That includes what it hands to cuBLAS, which would be part of the first such case's memory only.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        _clear_workspaces(torch)
        torch.cuda.empty_cache()


def _clear_workspaces(torch: Any) -> None:
    if (clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None)) is not None:
        clear()


@contextlib.contextmanager
def _own_workspaces(torch: Any) -> Iterator[None]:
    """What cuBLAS is given within is the graph's: outside of it the graph doesn't use that of other launches."""
    _clear_workspaces(torch)
    try:
        yield
    finally:
        _clear_workspaces(torch)


def prepare_tensors(device: CudaDevice, case: Case, inputs: Inputs) -> Prepared:
    """A baseline on CuPy's stream: flush, events and its kernels are in one order.

    Raises
    ------
    Unsupported
        If the library cannot run this case.
    """
    torch = baselines.TORCH.load()
    if not torch.cuda.is_available():
        raise Unsupported("The installed PyTorch has no CUDA support.")
    from fa_bench.backends.torch_impls import TorchAttention

    name = f"cuda:{device.ordinal}"
    torch.cuda.init()  # its allocator does not know the device before
    torch.cuda.reset_peak_memory_stats(name)
    before = torch.cuda.memory_allocated(name)
    stream = torch.cuda.ExternalStream(device.stream.ptr, device=name)
    with torch.cuda.stream(stream):
        held = [TorchAttention(case, inputs, name)]
    last: list[Any] = []
    recorded: list[tuple[Any, Any]] = []  # the graph, and the result that its replays write

    def enqueue() -> None:
        last.clear()
        last.append(held[0]())

    def launch() -> None:
        with torch.cuda.stream(stream):
            enqueue()

    def poison() -> None:
        # A call returns tensors of its own, in memory that was the last ones', or another case's: that may hold the
        # right result. So blocks of that size are filled too, until the allocator has no other. A replay writes the
        # tensors of the capture.
        with torch.cuda.stream(stream):
            held[0].poison(last[0])
            spares: list[Any] = []
            reserved = torch.cuda.memory_reserved(name)
            while len(spares) < MAX_SPARES and torch.cuda.memory_reserved(name) == reserved:
                try:
                    spares.append(held[0].poisoned_like(last[0]))
                except OutOfMemory:  # there is no such block, and no memory for another
                    break

    def verify(inputs: Inputs) -> Verification:
        device.synchronize()
        o, lse = held[0].to_numpy(last[0])
        return reference.verify(case, o, lse, inputs)

    def capture(copies: int) -> Callable[[], None]:
        try:
            graph = torch.cuda.CUDAGraph(keep_graph=True)
        except TypeError as error:
            raise _not_captured(NotCaptured, error) from error
        try:
            # PyTorch's own way: what the calls allocate stays reserved for the graph. It waits for the current device.
            with torch.cuda.device(name), _own_workspaces(torch), torch.cuda.graph(graph, stream=stream):
                for _ in range(copies):
                    enqueue()
        except (RuntimeError, FaBenchError) as error:
            # Where the capture could not be ended, its allocator goes on as if it had not been: emptying its cache is
            # then an error, and so is the next capture.
            raise _not_captured(CaptureLeftOpen, error) from error
        try:
            check_nodes(device, graph.raw_cuda_graph(), copies, exact=False)
            graph.instantiate()
        except RuntimeError as error:
            raise _not_captured(NotCaptured, error) from error
        recorded.append((graph, last[0]))

        def replay() -> None:
            (captured, result), *_ = recorded
            with torch.cuda.stream(stream):
                captured.replay()
            last[:] = [result]  # launches in between have results of their own

        return replay

    def free() -> None:
        held.clear()
        last.clear()
        recorded.clear()

    return Prepared(
        launch, poison, verify, capture, free, lambda: torch.cuda.max_memory_allocated(name) - before, "torch"
    )


def _not_captured(kind: type[NotCaptured], error: Exception) -> NotCaptured:
    return kind(f"PyTorch could not capture it ({str(error).partition(chr(10))[0]})")
