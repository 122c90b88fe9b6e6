"""A device's own peaks: programs whose work is exactly known, and the rate of the fastest of their launches.

The programs (kernels/common/peak_flops.cu, peak_bytes.cu) are described like those of an algorithm, so that the
emulator can execute them too: a test counts there that they do the FLOPs and move the bytes that are claimed here. A
device comes in as `PeakBench`; nothing here knows CUDA.

The fastest launch counts, not the median: a peak is the roof of a roofline, the least time that is possible. A launch
takes some milliseconds, so that neither its overhead (microseconds) nor the timer's resolution shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from fa_bench.algorithms.base import Buffer, KernelSpec, Launch, Program, Role, Scalar
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Clock, EventTimer, time_on_gpu

Moves = Literal["read", "write", "copy"]

THREADS: Final = 256
#: As many as every GPU since Turing holds at once: 1024 threads of at most 64 registers.
CTAS_PER_SM: Final = 4

#: FLOPs of one mma.m16n8k16 of a warp: 16 x 8 results of 16 products and sums each.
MMA_FLOPS: Final = 2 * 16 * 8 * 16
_MMA_CHAINS: Final = 4
_FMA_CHAINS: Final = 8
#: One step of an FMA chain is two FMAs of two FLOPs.
_FMA_STEP_FLOPS: Final = 4
#: Of the circle that the FMA chains turn on; any number that is no power of two and well below 2.
_FMA_E: Final = 0.30102999
_MMA_STEPS: Final = 32_768
_FMA_STEPS: Final = 65_536
_WARM_UP_LAUNCHES: Final = 3

CHUNK_BYTES: Final = 16
UNROLL: Final = 4
#: The buffers have this many times the size of L2: what a launch finds there of the one before is then lost in noise,
#: whatever the replacement policy is.
L2_FACTOR: Final = 16
#: A virtual GPU may name no L2, or its share only.
_MIN_L2_BYTES: Final = 32 << 20
#: A launch moves at least this, in as many passes as that takes.
_MOVED_BYTES: Final = 4 << 30

#: Tensor cores that multiply with mma.m16n8k16 came with this compute capability.
_MMA_CAPABILITY: Final = (8, 0)


class PeakBench(EventTimer, Protocol):
    """A device that programs can be launched on, and its events."""

    def prepared(self, program: Program) -> AbstractContextManager[Callable[[], None]]:
        """The program's buffers, allocated for as long as the context lasts; yields what enqueues its launches."""
        ...


@dataclass(frozen=True, slots=True)
class PeakTest:
    """One measurement: a program, and what one launch of it does.

    Parameters
    ----------
    quantity : str
        Field of `fa_bench.model.peaks.MeasuredPeaks`.
    program : Program
    work : int
        FLOPs or bytes of one launch.
    """

    quantity: str
    program: Program
    work: int

    def rate(self, time_ms: float) -> float:
        """Work per time, in the unit of the quantity: 10^12 FLOP/s or 10^9 B/s."""
        return self.work / (time_ms * 1e-3) / (1e12 if self.quantity.endswith("tflops") else 1e9)


def peak_tests(sm_count: int, l2_bytes: int, capability: tuple[int, int]) -> tuple[PeakTest, ...]:
    """All measurements that a device of this size allows."""
    step_bytes = sm_count * CTAS_PER_SM * THREADS * UNROLL * CHUNK_BYTES
    steps = math.ceil(L2_FACTOR * max(l2_bytes, _MIN_L2_BYTES) / step_bytes)
    passes = math.ceil(_MOVED_BYTES / (steps * step_bytes))
    tensor = (
        (mma_test("fp16", sm_count, _MMA_STEPS), mma_test("bf16", sm_count, _MMA_STEPS))
        if capability >= _MMA_CAPABILITY
        else ()
    )
    moves: Sequence[Moves] = ("read", "write", "copy")
    return (
        *tensor,
        fma_test(sm_count, _FMA_STEPS),
        *(bytes_test(move, sm_count, steps, passes) for move in moves),
    )


def mma_test(dtype: Literal["fp16", "bf16"], sm_count: int, steps: int) -> PeakTest:
    """Tensor cores: in each step every warp executes one mma per chain."""
    element = {"fp16": "ELEMENT_FP16", "bf16": "ELEMENT_BF16"}[dtype]
    program = _flops_program("peak_mma", sm_count, _MMA_CHAINS, ((element, "1"),), (Scalar("i32", steps),))
    warps = sm_count * CTAS_PER_SM * THREADS // 32
    return PeakTest(f"{dtype}_tensor_tflops", program, warps * _MMA_CHAINS * steps * MMA_FLOPS)


def fma_test(sm_count: int, steps: int) -> PeakTest:
    """The FMA pipe: in each step every thread executes two FMAs per chain."""
    scalars = (Scalar("i32", steps), Scalar("f32", _FMA_E))
    program = _flops_program("peak_fma", sm_count, _FMA_CHAINS, (), scalars)
    threads = sm_count * CTAS_PER_SM * THREADS
    return PeakTest("fp32_tflops", program, threads * _FMA_CHAINS * steps * _FMA_STEP_FLOPS)


def bytes_test(move: Moves, sm_count: int, steps: int, passes: int) -> PeakTest:
    """Memory: a buffer of ``steps`` times what all threads move at once, ``passes`` times over."""
    threads = sm_count * CTAS_PER_SM * THREADS
    nbytes = steps * threads * UNROLL * CHUNK_BYTES
    source, target = _buffer("source", nbytes // 4, "input"), _buffer("target", nbytes // 4, "output")
    sums = _buffer("sums", threads, "output")
    buffers = {"read": (source, sums), "write": (target,), "copy": (source, target)}[move]
    kernel = KernelSpec("common/peak_bytes.cu", f"peak_{move}", _defines(("UNROLL", str(UNROLL))))
    args: tuple[str | Scalar, ...] = tuple(buffer.name for buffer in buffers)
    args = (*args, Scalar("i32", steps), Scalar("i32", passes))
    moved = {"read": passes * nbytes + 4 * threads, "write": passes * nbytes, "copy": 2 * passes * nbytes}[move]
    return PeakTest(f"{move}_gbs", Program(buffers, (_launch(kernel, sm_count, args),)), moved)


def measure_peak(test: PeakTest, bench: PeakBench, rule: StoppingRule, clock: Clock) -> float:
    """The rate of the fastest launch, in the unit of the quantity.

    Parameters
    ----------
    test : PeakTest
    bench : PeakBench
    rule : StoppingRule
        When enough launches were timed: a fresh one.
    clock : callable
        Host seconds, for the rule's time limit.
    """
    with bench.prepared(test.program) as launch:
        for _ in range(_WARM_UP_LAUNCHES):
            launch()
        timings = time_on_gpu(launch, bench, rule, clock=clock)
    return test.rate(min(timings.times_ms))


def _flops_program(
    entry: str, sm_count: int, chains: int, defines: tuple[tuple[str, str], ...], scalars: tuple[Scalar, ...]
) -> Program:
    kernel = KernelSpec("common/peak_flops.cu", entry, _defines(("CHAINS", str(chains)), *defines))
    sums = _buffer("sums", sm_count * CTAS_PER_SM * THREADS, "output")
    return Program((sums,), (_launch(kernel, sm_count, (sums.name, *scalars)),))


def _defines(*defines: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (*defines, ("THREADS", str(THREADS)), ("CTAS_PER_SM", str(CTAS_PER_SM)))


def _launch(kernel: KernelSpec, sm_count: int, args: tuple[str | Scalar, ...]) -> Launch:
    return Launch(kernel, (sm_count * CTAS_PER_SM, 1, 1), (THREADS, 1, 1), 0, args)


def _buffer(name: str, words: int, role: Role) -> Buffer:
    return Buffer(name, "fp32", (words,), (1,), role)
