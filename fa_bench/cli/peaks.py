"""A device's own peaks on the command line: measured by ``doctor --peaks``, shown, and chosen with ``--peaks``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fa_bench import backends
from fa_bench.errors import DeviceUnavailable, UsageError, nearest
from fa_bench.model import gpus
from fa_bench.model.peaks import QUANTITIES, MeasuredPeaks, datasheet_peak, inconsistencies
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_percent, format_si

if TYPE_CHECKING:
    from fa_bench.cli.output import Output
    from fa_bench.model.gpu import Gpu
    from fa_bench.sweep.plan import PlanningBackend

#: What ``--peaks`` takes.
WHICH: Final = ("datasheet", "measured")


def measure_all(output: Output) -> list[MeasuredPeaks]:
    """Measure every GPU that CUDA shows, and keep the peaks.

    Raises
    ------
    DeviceUnavailable
        If there is none.
    """
    if reason := backends.why_not("cuda"):
        raise DeviceUnavailable(reason, "Peaks are measured on a GPU; without one predictions use data sheets.")
    import cupy

    from fa_bench.backends.cuda import CudaBackend
    from fa_bench.stored_peaks import store

    found = []
    for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
        with closing(CudaBackend(ordinal)) as backend:
            output.say(f"Measuring {backend.device}, about ten seconds.")
            peaks = backend.measure_peaks(datetime.now(UTC))
        store(peaks)
        found.append(peaks)
    return found


def peaks_table(peaks: MeasuredPeaks) -> Table:
    """What was measured beside what the data sheet says."""
    gpu = gpus.find(peaks.device)
    rows = []
    for quantity, (name, unit, factor) in QUANTITIES.items():
        measured = getattr(peaks, quantity)
        sheet = None if gpu is None else datasheet_peak(gpu, quantity)
        rows.append(
            (
                name,
                UNKNOWN if measured is None else format_si(measured * factor, unit),
                UNKNOWN if sheet is None else format_si(sheet * factor, unit),
                UNKNOWN if sheet is None or measured is None else format_percent(measured / sheet),
            )
        )
    columns = (
        Column("peak"),
        Column("measured", "right"),
        Column("data sheet", "right"),
        Column("share", "right"),
    )
    clock = "not known" if peaks.sm_clock_mhz is None else f"{peaks.sm_clock_mhz:.0f} MHz"
    notes = [f"SM clock: {clock}. Data sheet: {'not in the registry' if gpu is None else gpu.slug}."]
    if peaks.throttle_reasons:
        notes.append(f"The clocks were held down: {peaks.throttle_reasons}.")
    if gpu is not None:
        notes += [f"Inconsistent: {sentence}" for sentence in inconsistencies(peaks, gpu)]
    return Table(f"{peaks.device}, {peaks.measured_at}", columns, tuple(rows), "\n".join(notes))


def peaks_row(peaks: MeasuredPeaks) -> dict[str, Any]:
    """The same as data: figures of both kinds, and what is inconsistent; None where nothing is known, or wrong."""
    gpu = gpus.find(peaks.device)
    sheet = {f"{quantity}_datasheet": gpu and datasheet_peak(gpu, quantity) for quantity in QUANTITIES}
    doubts = () if gpu is None else inconsistencies(peaks, gpu)
    return asdict(peaks) | sheet | {"inconsistent": " ".join(doubts) or None}


def summary(peaks: MeasuredPeaks) -> str:
    """One line: the figures that matter most, and the day."""
    tensor = peaks.fp16_tensor_tflops
    arithmetic = f"{format_si((tensor or peaks.fp32_tflops) * 1e12, 'FLOP/s')} {'fp16' if tensor else 'fp32'}"
    bandwidth = format_si(peaks.bandwidth_gbs * 1e9, "B/s")
    return f"{peaks.device}: {arithmetic}, {bandwidth} ({peaks.measured_at[:10]})"


def roofline_peaks(which: str, gpu: Gpu, planning: Sequence[PlanningBackend], output: Output) -> MeasuredPeaks | None:
    """The peaks that ``--peaks`` asks for; None for those of the data sheet.

    Raises
    ------
    UsageError
        If it asks for something else, or no peaks of the device or the target GPU were measured.
    """
    if which not in WHICH:
        raise UsageError(f"--peaks: there is no {which!r}.", hint=nearest(which, WHICH))
    if which == "datasheet":
        return None
    from fa_bench.stored_peaks import find

    device = next((getattr(backend, "device", "") for backend in planning if backend.name == "cuda"), "")
    peaks = find(gpu, device)
    output.say(f"Rooflines rest on measured peaks: {summary(peaks)}.")
    for sentence in inconsistencies(peaks, gpu):
        output.warn(f"These peaks are inconsistent. {sentence}")
    return peaks
