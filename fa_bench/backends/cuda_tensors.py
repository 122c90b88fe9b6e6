"""What takes PyTorch's tensors, on a CUDA device: the same `Prepared` as our kernels are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fa_bench.backends import baselines
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_graph import NotCaptured, check_nodes
from fa_bench.backends.cuda_launch import Output, Prepared
from fa_bench.backends.turns import Inputs
from fa_bench.cases import Case
from fa_bench.errors import FaBenchError, Unsupported


def empty_cache() -> None:
    """Give back what PyTorch keeps of earlier cases: others need it, and what is in use rises by a case's own."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


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
    torch.cuda.reset_peak_memory_stats(name)
    before = torch.cuda.memory_allocated(name)
    stream = torch.cuda.ExternalStream(device.stream.ptr, device=name)
    with torch.cuda.stream(stream):
        held = [TorchAttention(case, inputs, name)]
    last: list[Any] = []

    def enqueue() -> None:
        last.clear()
        last.append(held[0]())

    def launch() -> None:
        with torch.cuda.stream(stream):
            enqueue()

    def poison() -> None:
        # A call returns tensors of its own, maybe in the memory of the last ones; a replay writes those of the capture.
        with torch.cuda.stream(stream):
            held[0].poison(last[0])

    def outputs() -> Output:
        device.synchronize()
        return held[0].to_numpy(last[0])

    def capture(copies: int) -> Callable[[], None]:
        try:
            # PyTorch's own way: what the calls allocate stays reserved for the graph. It waits for the current device.
            graph = torch.cuda.CUDAGraph(keep_graph=True)
            with torch.cuda.device(name), torch.cuda.graph(graph, stream=stream):
                for _ in range(copies):
                    enqueue()
            check_nodes(device, graph.raw_cuda_graph(), copies, exact=False)
            graph.instantiate()
        except NotCaptured:
            raise
        except (RuntimeError, TypeError, FaBenchError) as error:
            raise NotCaptured(f"PyTorch could not capture it ({str(error).partition(chr(10))[0]})") from error

        def replay() -> None:
            with torch.cuda.stream(stream):
                graph.replay()

        return replay

    def free() -> None:
        held.clear()
        last.clear()

    return Prepared(
        launch, poison, outputs, capture, free, lambda: torch.cuda.max_memory_allocated(name) - before, "torch"
    )
