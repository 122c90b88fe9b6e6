"""How one case is timed on a CUDA device: warm, from the right state of the L2 cache, between two events.

One sample is [flush -> hold -> event -> launch -> event] with a cold cache, [launch -> hold -> event -> launch ->
event] with a warm one. The hold keeps the GPU busy while the host enqueues, so that the host's delay isn't timed: an
event is recorded when the GPU comes to it, and a GPU that waits for the host would be timed as busy. The launch may be
the replay of a CUDA graph. Knows nothing of what is launched, of stopping rules or of other cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from fa_bench.backends.base import TimeSource
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_graph import CaptureLeftOpen, NotCaptured
from fa_bench.backends.cuda_launch import Hold, Prepared
from fa_bench.measure.timing import Clock, sample_on_gpu, sample_on_host

L2State = Literal["cold", "warm"]
TimerKind = Literal["events", "graph"]

WARM_UP_LAUNCHES: Final = 3
#: Launches in one graph where the cache is warm anyway: they share the replay's own start. With a cold cache it is one
#: launch, since the second would find a warm cache.
GRAPH_COPIES: Final = 10
#: A launch that takes longer has nothing to gain from company.
LONG_MS: Final = 1.0
#: The hold is this many times what the host took to enqueue, and something for the events and for a GPU's clock that
#: moves in steps of up to 32 µs. A host that is interrupted now and then does not show in a median.
HOLD_FACTOR, HOLD_MARGIN_MS = 2.0, 0.05
#: A host that takes longer is not waited for: it waits for the GPU itself, and a longer hold would make it wait longer.
MAX_HOLD_MS: Final = 10.0


def warm_up(device: CudaDevice, launch: Callable[[], None], clock: Clock) -> float:
    """Launch a few times and wait: loading, clocks and allocators settle, and a fault of these launches surfaces.

    Returns
    -------
    float
        ms that the host took to enqueue a launch: the most, without the first one, which loads and allocates.
    """
    enqueued_ms = [sample_on_host(launch, clock) for _ in range(WARM_UP_LAUNCHES)]
    device.synchronize()
    return max(enqueued_ms[1:], default=0.0)


class TimedLaunch:
    """A case, warmed up here, and how a sample of it is taken.

    Parameters
    ----------
    device : CudaDevice
        With its flush prepared if the cache is to be cold.
    prepared : Prepared
    hold : callable
        (ms) -> keeps the stream busy for so long.
    l2 : {"cold", "warm"}
        What a launch finds in the L2 cache: nothing of its own, or what the same launch left just before.
    timer : {"events", "graph"}
        Whether launches are enqueued one by one or as a graph. A case that can't be captured is timed with events, and
        `fallback` says why.
    clock : callable
        Host seconds, for how long the host takes to enqueue a launch.

    Attributes
    ----------
    call : callable
        Enqueues what a sample times: ``copies`` launches.
    copies : int
    source : str
    fallback : str
    left_open : bool
        Whether the attempt to capture it leaves nothing but this case to be done in this process.
    """

    def __init__(
        self, device: CudaDevice, prepared: Prepared, hold: Hold, *, l2: L2State, timer: TimerKind, clock: Clock
    ) -> None:
        self._device = device
        self._prepared = prepared
        self._cold = l2 == "cold"
        self._hold = hold
        self.call = prepared.launch
        self.copies = 1
        self.source: TimeSource = "cuda-events"
        self.fallback = ""
        self.left_open = False
        self._hold_ms = _hold_ms(warm_up(device, self.call, clock))
        if timer == "graph":
            self._capture(clock)

    def _capture(self, clock: Clock) -> None:
        short = not self._cold and sample_on_gpu(self.call, self._device, before=self._held) < LONG_MS
        copies = GRAPH_COPIES if short else 1
        try:
            replay = self._prepared.capture(copies)
        except NotCaptured as error:
            self.fallback = f"Events instead of a graph: {error.message}."
            self.left_open = isinstance(error, CaptureLeftOpen)
            return
        self.call, self.copies, self.source = replay, copies, "cuda-graph"
        self._hold_ms = _hold_ms(warm_up(self._device, replay, clock))

    def _held(self) -> None:
        """Let the host get ahead."""
        self._hold(self._hold_ms)

    def _from_cold(self) -> None:
        self._device.flush()
        self._held()

    def _from_warm(self) -> None:
        self.call()
        self._held()

    def settle(self) -> None:
        """Launch once more, untimed: an allocator may have lost since what it kept for this case."""
        self.call()
        self._device.synchronize()

    def sample(self) -> float:
        """Take one sample: ms per launch."""
        before = self._from_cold if self._cold else self._from_warm
        return sample_on_gpu(self.call, self._device, before=before) / self.copies

    def once_more(self) -> None:
        """Launch (or replay) as in a sample, onto a poisoned output: what is there afterwards is of this launch.

        The poison is written in front of the flush, since writing it fills the cache. With a warm cache it is written
        behind the launch that warms, which would write the output too.
        """
        if not self._cold:
            self.call()
        self._prepared.poison()
        sample_on_gpu(self.call, self._device, before=self._from_cold if self._cold else self._held)


def _hold_ms(enqueued_ms: float) -> float:
    return min(HOLD_FACTOR * enqueued_ms + HOLD_MARGIN_MS, MAX_HOLD_MS)
