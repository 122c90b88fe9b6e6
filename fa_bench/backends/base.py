"""The one protocol of all backends: ``cuda`` (CuPy), ``emulator`` (PTX on the CPU), ``host`` (NumPy, torch).

A backend runs one case and returns what it measured or counted. It does not plan, does not predict, does not
write files and does not print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, runtime_checkable

from fa_bench.algorithms.base import Op, TensorBytes
from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu

BackendName = Literal["cuda", "emulator", "host"]
#: What the emulator counts: global traffic, or that of L2 and DRAM too.
CountersKind = Literal["global", "full"]
Level = Literal["global", "l2", "dram"]
SECTORS_OF_A_LINE: Final = 4
TimeSource = Literal["cuda-events", "cuda-graph", "host-clock"]
#: How asking for hardware counters ended. ``unreliable``: figures that cannot be, which are not kept.
CounterStatus = Literal[
    "ok", "absent", "no_permission", "incompatible", "unknown_metric", "no_kernels", "failed", "timeout", "unreliable"
]


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw times of one case in ms, in the order they were taken.

    ``drift`` is the median of the last third over that of the first, minus 1; ``dropped`` samples were left out because
    the clocks were held down; ``floor_ms`` is the time of an empty kernel; ``fallback`` says why ``source`` is not the
    timer that was asked for.
    """

    times_ms: tuple[float, ...]
    source: TimeSource
    l2_state: Literal["cold", "warm", ""] = ""
    noisy: bool = False
    launch_bound: bool = False
    drift: float | None = None
    dropped: int = 0
    floor_ms: float | None = None
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes that the emulator counted (or a profiler read), per kernel, tensor and direction, by level."""

    traffic: Mapping[Level, Sequence[TensorBytes]]
    #: Share of the slices (or CTAs) that were really run; the rest is identical by alignment class.
    fraction: float = 1.0
    #: kernel -> counter name -> value, e.g. ``shared_wavefronts``, ``shared_conflicts``.
    extra: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Least and most DRAM bytes, by direction, over what is not known of the caches; empty if nobody asked.
    dram_interval: Mapping[Op, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HardwareCounts:
    """What hardware counters said of one case: bytes per kernel and level, or why there are none.

    ``kernels`` is the number of launches that were summed, ``mode`` how they were profiled (replay, caches, clocks),
    and ``counts`` None unless ``status`` is ``ok``.
    """

    status: CounterStatus
    reason: str = ""
    mode: str = ""
    kernels: int | None = None
    counts: Counts | None = None


@runtime_checkable
class CounterSource(Protocol):
    """Counts the bytes of a case apart from the run that times it."""

    @property
    def advice(self) -> str:
        """One sentence on what would help, once something kept it from counting; else empty."""
        ...

    def count(self, case: Case, gpu: Gpu) -> HardwareCounts | Counts | None:
        """What hardware counters said of ``case`` on ``gpu``, or what was emulated of it; None if it does not count it.

        Nothing is raised for a case that cannot be counted.
        """
        ...

    def close(self) -> None:
        """End what still counts, from whichever thread."""
        ...


@dataclass(frozen=True, slots=True)
class Spills:
    """Sectors that a CTA stores to local memory, multiples of 4: at every tile of K and V, and once at its end."""

    per_tile: int
    per_cta: int

    @property
    def lines(self) -> int:
        """Lines of a CTA's local memory that are written."""
        return (self.per_tile + self.per_cta) // SECTORS_OF_A_LINE


@dataclass(frozen=True, slots=True)
class Resources:
    """What the compiler says of the case's largest kernel, whose CTAs have ``threads``; None where it said nothing."""

    nvrtc_version: str
    threads: int
    registers: int | None
    smem_bytes: int | None
    spill_bytes: int | None
    compile_ms: float | None


@dataclass(frozen=True, slots=True)
class Verification:
    """Error of the run's output against the fp64 reference.

    ``rel_err`` is ``max_abs_err`` divided by max|V|; ``bound`` is the largest error that the number format explains
    anywhere; ``passed`` says whether every element of O and LSE stays within its own bound (NaN never does), and
    ``detail`` is a sentence on the first one that does not.
    """

    max_abs_err: float
    rel_err: float
    bound: float
    reference: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything that one run of one case produced. What is not known is None."""

    samples: Samples | None = None
    counts: Counts | None = None
    verification: Verification | None = None
    resources: Resources | None = None
    mem_peak_bytes: int | None = None
    mem_source: str = ""
    nvml_mem_peak_bytes: int | None = None
    nvml_mem_source: str = ""
    nvml_interval_ms: float | None = None
    power_w: float | None = None
    energy_mj: float | None = None
    energy_launches: int | None = None
    sm_clock_mhz: float | None = None
    sm_clock_min_mhz: float | None = None
    mem_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: str = ""
    #: Whether the clocks were held down while the times were taken; None if nobody looked.
    throttled: bool | None = None
    #: Which of NVML's figures are missing, and why.
    device_reason: str = ""
    #: What hardware counters said, None if nobody asked them.
    hardware: HardwareCounts | None = None
    #: What the emulator counted beside a run that was timed.
    emulated: Counts | None = None


#: What became of one case of several that ran together.
Outcome = RunResult | Exception


class Backend(Protocol):
    """Runs cases. Opened once per sweep, closed at its end."""

    name: BackendName
    #: Human name of the device that runs (the GPU's, or the CPU's).
    device: str

    def implementations(self) -> Sequence[str]:
        """Slugs that this backend can run here."""
        ...

    def free_memory_bytes(self) -> int | None:
        """Memory that a case may use now, or None if it cannot be known."""
        ...

    def required_bytes(self, case: Case) -> int:
        """Predicted peak memory of ``case`` on this backend, input and verification included."""
        ...

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Run ``case`` for target ``gpu`` and verify its output.

        Raises
        ------
        fa_bench.errors.Unsupported, OutOfMemory, CompileError, KernelFault
            Each becomes a row of the sweep.
        """
        ...

    def close(self) -> None:
        """Free what the backend holds."""
        ...


@runtime_checkable
class TakesTurns(Backend, Protocol):
    """A backend that times compared cases in turns (A B A B ...), so that a drift of the machine hits all of them."""

    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        """Run and verify cases of one shape, their timed launches interleaved; one outcome per case, in their order.

        A case that fails does not take the others with it: its outcome is what `run` would have raised. After
        `fa_bench.errors.DeviceLost` the cases that had not finished have that as their outcome.
        """
        ...
