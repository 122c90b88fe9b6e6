"""How one case is timed on a CUDA device: warm, from the right state of the L2 cache, between two events.

One sample is [flush -> event -> launch -> event] with a cold cache, [launch -> event -> launch -> event] with a warm
one. What stands in front also keeps the GPU busy while the host enqueues, so that the host's delay isn't timed. The
launch may be the replay of a CUDA graph. Knows nothing of what is launched, of stopping rules or of other cases.
"""

from __future__ import annotations

from typing import Final, Literal

from fa_bench.backends.base import TimeSource
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_graph import NotCaptured
from fa_bench.backends.cuda_launch import Prepared
from fa_bench.measure.timing import sample_on_gpu

L2State = Literal["cold", "warm"]
TimerKind = Literal["events", "graph"]

WARM_UP_LAUNCHES: Final = 3
#: Launches in one graph where the cache is warm anyway: they share the replay's own start. With a cold cache it is one
#: launch, since the second would find a warm cache.
GRAPH_COPIES: Final = 10
#: A launch that takes longer has nothing to gain from company.
LONG_MS: Final = 1.0


def warm_up(device: CudaDevice, prepared: Prepared) -> None:
    """Launch a few times and wait: loading, clocks and allocators settle, and a fault of these launches surfaces."""
    for _ in range(WARM_UP_LAUNCHES):
        prepared.launch()
    device.synchronize()


class TimedLaunch:
    """A case that is warm, and how a sample of it is taken.

    Parameters
    ----------
    device : CudaDevice
        With its flush prepared if the cache is to be cold.
    prepared : Prepared
    l2 : {"cold", "warm"}
        What a launch finds in the L2 cache: nothing of its own, or what the same launch left just before.
    timer : {"events", "graph"}
        Whether launches are enqueued one by one or as a graph. A case that can't be captured is timed with events, and
        `fallback` says why.
    """

    def __init__(self, device: CudaDevice, prepared: Prepared, *, l2: L2State, timer: TimerKind) -> None:
        self._device = device
        self._prepared = prepared
        self._cold = l2 == "cold"
        self._call = prepared.launch
        self._copies = 1
        self.source: TimeSource = "cuda-events"
        self.fallback = ""
        if timer == "graph":
            self._capture()

    def _capture(self) -> None:
        short = not self._cold and sample_on_gpu(self._call, self._device) < LONG_MS
        copies = GRAPH_COPIES if short else 1
        try:
            replay = self._prepared.capture(copies)
        except NotCaptured as error:
            self.fallback = f"Events instead of a graph: {error.message}."
            return
        self._call, self._copies, self.source = replay, copies, "cuda-graph"
        for _ in range(WARM_UP_LAUNCHES):
            replay()
        self._device.synchronize()

    def sample(self) -> float:
        """Take one sample: ms per launch."""
        before = self._device.flush if self._cold else self._call
        return sample_on_gpu(self._call, self._device, before=before) / self._copies

    def once_more(self) -> None:
        """Launch (or replay) as in a sample, onto a poisoned output: what is there afterwards is of this launch.

        The poison is written in front of the flush, since writing it fills the cache. With a warm cache it is written
        behind the launch that warms, which would write the output too.
        """
        if not self._cold:
            self._call()
        self._prepared.poison()
        sample_on_gpu(self._call, self._device, before=self._device.flush if self._cold else None)
