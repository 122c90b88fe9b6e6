"""Measuring a CUDA device's own peaks: its programs from `fa_bench.measure.peaks`, launched and timed on one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from fa_bench.algorithms.base import KernelSpec, Program
from fa_bench.backends.cuda_device import CudaDevice
from fa_bench.backends.cuda_watch import Watch
from fa_bench.backends.programs import POISON, arguments
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import OutOfMemory
from fa_bench.measure.energy import Energy
from fa_bench.measure.peaks import measure_peak, peak_tests
from fa_bench.measure.stopping import StoppingRule
from fa_bench.measure.timing import Clock
from fa_bench.model.peaks import MeasuredPeaks
from fa_bench.units import format_bytes

#: Long enough for the clocks to settle, short enough for six measurements.
_RULE: Final = StoppingRule(min_sampled_ms=500.0, max_elapsed_ms=2000.0)


class CudaBench:
    """`fa_bench.measure.peaks.PeakBench` on a device that is entered.

    Parameters
    ----------
    device : CudaDevice
    compiler : callable
        KernelSpec -> CompiledKernel for this device.
    """

    def __init__(self, device: CudaDevice, compiler: Callable[[KernelSpec], CompiledKernel]) -> None:
        self._device = device
        self._compiler = compiler
        self.start = device.start
        self.stop = device.stop

    @contextmanager
    def prepared(self, program: Program) -> Iterator[Callable[[], None]]:
        """Allocate the program's buffers, filled with poison, and yield what launches it.

        Raises
        ------
        OutOfMemory
            Before anything is allocated, if less is free than the buffers take.
        """
        device = self._device
        if program.nbytes > (free := device.free_bytes()):
            raise OutOfMemory(
                f"Measuring the peaks of {device.name} takes {format_bytes(program.nbytes)} of its memory; "
                f"{format_bytes(free)} are free."
            )
        arrays = {buffer.name: device.allocate(buffer.nbytes) for buffer in program.buffers}
        for name in arrays:  # a name bound to an array would keep it beyond the release
            device.fill(arrays[name], POISON)
        calls = [
            (device.load(self._compiler(step.kernel), step.smem_bytes), step, tuple(arguments(step, arrays.get)))
            for step in program.launches
        ]

        def launch() -> None:
            for function, step, args in calls:
                function(step.grid, step.block, args, shared_mem=step.smem_bytes)

        try:
            yield launch
        finally:
            calls.clear()
            arrays.clear()
            device.release()


def cuda_peaks(
    device: CudaDevice,
    compiler: Callable[[KernelSpec], CompiledKernel],
    watch: Watch,
    *,
    driver: str | None,
    now: datetime,
    clock: Clock,
) -> MeasuredPeaks:
    """Measure all peaks of an entered device, in about ten seconds.

    Parameters
    ----------
    device : CudaDevice
    compiler : callable
        KernelSpec -> CompiledKernel for this device.
    watch : Watch
        Sees the clocks meanwhile.
    driver : str or None
        The driver's version.
    now : datetime
    clock : callable
        Host seconds.
    """
    properties: dict[str, Any] = device.cupy.cuda.runtime.getDeviceProperties(device.ordinal)
    capability = int(properties["major"]), int(properties["minor"])
    bench = CudaBench(device, compiler)
    tests = peak_tests(int(properties["multiProcessorCount"]), device.l2_bytes, capability)
    with watch.sampling():
        rates = {test.quantity: measure_peak(test, bench, _RULE.fresh(), clock) for test in tests}
    # "throttled" asks for the reasons, if there were any at any time.
    seen = watch.columns(throttled=True, energy=Energy())
    return MeasuredPeaks(
        device=device.name,
        identity=device.uuid or device.pci_bus_id,
        measured_at=now.isoformat(timespec="seconds"),
        driver=driver,
        sm_clock_mhz=seen.get("sm_clock_mhz"),
        mem_clock_mhz=seen.get("mem_clock_mhz"),
        throttle_reasons=seen.get("throttle_reasons", ""),
        **rates,
    )
