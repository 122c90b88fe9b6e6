"""The roofline of a panel: what its rows do per byte and per second, below what the GPU's data sheet allows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.records import Record, Source
from fa_bench.report.page.figures import SOURCES, Panel, tile_of, total

Level = Literal["dram", "global"]
LEVELS: Final[tuple[Level, ...]] = ("dram", "global")


@dataclass(frozen=True, slots=True)
class RoofPoint:
    """One row: nominal FLOPs per byte and per second, and where the bytes and the time are from."""

    seq: int
    tile: str
    intensity: float
    flop_per_s: float
    bytes_source: Source


@dataclass(frozen=True, slots=True)
class Track:
    """The rows of one implementation, by length; ``source`` is that of their times, *model* for the roofline's."""

    impl: str
    label: str
    source: Source
    points: tuple[RoofPoint, ...]


@dataclass(frozen=True, slots=True)
class Roof:
    """Points at one level below the peaks of one GPU.

    Parameters
    ----------
    level : str
        Whose bytes the intensities are of.
    gpu : Gpu
    peak : float
        FLOP/s of the tensor cores for the panel's type.
    bandwidth : float
        B/s of the DRAM.
    tracks : tuple of Track
    """

    level: Level
    gpu: Gpu
    dtype: str
    peak: float
    bandwidth: float
    tracks: tuple[Track, ...]

    @property
    def ridge(self) -> float:
        """The intensity in FLOP/B from which the peak, and not the bandwidth, is the limit."""
        return self.peak / self.bandwidth

    def bound(self, intensity: float) -> float:
        """FLOP/s that the two peaks allow at an intensity."""
        return min(self.peak, self.bandwidth * intensity)


def roofs(panel: Panel) -> tuple[Roof, ...] | str:
    """One roofline per level, or a sentence that says why there is none."""
    if panel.gpu is None:
        return "Roofline: the rows have no target GPU."
    gpu = gpus.find(panel.gpu)
    if gpu is None:
        return f"Roofline: the target GPU is {panel.gpu}, which the registry does not have."
    peak = gpu.tensor_tflops(panel.dtype)
    if peak is None:
        return f"Roofline: no tensor-core peak of {gpu.name} for {panel.dtype} is known."
    made = tuple(
        Roof(level, gpu, panel.dtype, peak * 1e12, gpu.mem_bandwidth_gbs * 1e9, tracks)
        for level in LEVELS
        if (tracks := _tracks(panel, level))
    )
    return made or "Roofline: no row has bytes together with a time or a least time."


def _tracks(panel: Panel, level: Level) -> tuple[Track, ...]:
    found: dict[tuple[str, str, Source], dict[int, RoofPoint]] = defaultdict(dict)
    for row in panel.chosen:
        time = _time_ms(row.record)
        moved = _bytes(row.record, level)
        # A CPU's time belongs below another roof.
        if time is None or moved is None or not row.record.flops_nominal or row.record.backend == "host":
            continue
        nbytes, bytes_source = moved
        flops = row.record.flops_nominal
        point = RoofPoint(row.record.seq_q, tile_of(row.record), flops / nbytes, flops / time[0] * 1e3, bytes_source)
        found[(row.record.impl, row.run, time[1])][point.seq] = point
    return tuple(
        Track(impl, " ".join([impl, run]).strip(), source, tuple(points[seq] for seq in sorted(points)))
        for (impl, run, source), points in found.items()
    )


def _time_ms(record: Record) -> tuple[float, Source] | None:
    """The measured time; where there is none the least that the roofline allows."""
    if record.time_ms is not None and record.status == "ok":
        return record.time_ms, "measured"
    return None if record.roofline_ms is None else (record.roofline_ms, "model")


def _bytes(record: Record, level: Level) -> tuple[int, Source] | None:
    """Measured bytes, else emulated ones, else the model's."""
    for source in reversed(SOURCES):
        if nbytes := total(record, level, source):
            return nbytes, source
    return None
