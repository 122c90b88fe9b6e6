"""From records to what is drawn: panels of one shape family, charts of one figure, series of one source.

Nothing here knows how a chart is drawn; the page, the SVG files and the terminal draw the same series. A series has one
source, *model*, *emulated* or *measured*: they never share one, as they never share a column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fa_bench.records import Record, Source, TensorTraffic
from fa_bench.report.names import FACTS, record_name
from fa_bench.units import format_bytes, format_count, format_error, format_ms, format_si

#: In the order in which they are drawn and listed.
SOURCES: Final[tuple[Source, ...]] = ("model", "emulated", "measured")


@dataclass(frozen=True, slots=True)
class Row:
    """A record, the run that it is of (a letter where there are several, else empty), its lines of traffic.csv."""

    record: Record
    run: str = ""
    traffic: tuple[TensorTraffic, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """How the figures of a chart are written: short on an axis, in full elsewhere."""

    short: Callable[[float], str]
    exact: Callable[[float], str]
    binary: bool = False


BYTES: Final = Unit(lambda value: format_bytes(round(value)), lambda value: f"{format_count(round(value))} B", True)
MS: Final = Unit(format_ms, lambda value: f"{value:.6g} ms")
FLOPS: Final = Unit(lambda value: format_si(value, ""), lambda value: f"{value * 1e-12:.6g} TFLOP/s")
ERROR: Final = Unit(format_error, lambda value: f"{value:.6g}")


@dataclass(frozen=True, slots=True)
class Point:
    """One figure of one row: its length, its value, and from where to where it may lie."""

    seq: int
    value: float
    tile: str
    low: float | None = None
    high: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one implementation by one source, by length."""

    impl: str
    label: str
    source: Source
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure against the sequence length.

    Parameters
    ----------
    key : str
        Names the chart in file names.
    title, note : str
    unit : Unit
    series : tuple of Series
        None of them empty; at least one.
    floor : tuple of (int, float)
        Length and the compulsory figure; empty where there is none.
    """

    key: str
    title: str
    note: str
    unit: Unit
    series: tuple[Series, ...]
    floor: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows that differ in length, implementation, tile and run only.

    ``rows`` has every row; ``chosen`` of each implementation and length the one whose tile is drawn.
    """

    title: str
    gpu: str | None
    dtype: str
    rows: tuple[Row, ...]
    chosen: tuple[Row, ...]
    charts: tuple[Chart, ...] = ()
    missing: tuple[str, ...] = field(default=())

    @property
    def several_tiles(self) -> bool:
        """Whether a tile had to be chosen."""
        return len(self.chosen) < len(self.rows)


def panels(rows: Sequence[Row]) -> tuple[Panel, ...]:
    """All panels of some rows, in the order in which their first rows come."""
    vary = [fact for fact in ("batch", "heads") if _needed(fact, rows)]
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[_family(row.record, vary)].append(row)
    return tuple(_panel(", ".join(part for part in key if part), group) for key, group in groups.items())


def _needed(fact: str, rows: Sequence[Row]) -> bool:
    """Whether lines would mix values of a fact: batches that follow the length (B·N constant) are one line."""
    seen: dict[object, set[str]] = defaultdict(set)
    for row in rows:
        name = record_name(row.record)
        others = tuple(text for other, text in name.facts.items() if other not in ("batch", "heads"))
        seen[(name.impl, name.seq, others, row.record.gpu)].add(name.facts[fact])
    return any(len(values) > 1 for values in seen.values()) or len(set().union(*seen.values())) == 1


def _family(record: Record, vary: Sequence[str]) -> tuple[str, ...]:
    facts = record_name(record).facts
    kept = [facts[fact] for fact in FACTS if fact not in ("batch", "heads") or fact in vary]
    keys = "" if record.seq_kv == record.seq_q else f"{format_count(record.seq_kv)} keys"
    return (*kept, keys, "" if record.direction == "fwd" else record.direction, record.gpu or "")


def _panel(title: str, rows: Sequence[Row]) -> Panel:
    chosen = _chosen(rows)
    charts: list[Chart] = []
    missing: list[str] = []
    for make in (_bytes_chart("global"), _bytes_chart("l2"), _bytes_chart("dram"), _time, _rate, _memory, _error):
        made = make(chosen)
        if isinstance(made, Chart):
            charts.append(made)
        elif made:
            missing.append(made)
    first = rows[0].record
    return Panel(title, first.gpu, first.dtype, tuple(rows), chosen, tuple(charts), tuple(missing))


def _chosen(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Of the tiles of an implementation, length, run and backend the fastest; without times that of fewest bytes."""
    best: dict[tuple[object, ...], Row] = {}
    for row in rows:
        record = row.record
        key = (record.impl, record.seq_q, record.batch, row.run, record.backend)
        if key not in best or _merit(record) < _merit(best[key].record):
            best[key] = row
    return tuple(best.values())


def _merit(record: Record) -> tuple[float, ...]:
    unknown = float("inf")
    counted = total(record, "global", "emulated")
    predicted = total(record, "global", "model")
    time = record.time_ms if record.status == "ok" else None
    return (
        float(record.status != "ok"),
        unknown if time is None else time,
        next((float(nbytes) for nbytes in (counted, predicted) if nbytes is not None), unknown),
    )


def total(record: Record, level: str, source: Source) -> int | None:
    """Bytes read and written at a level by one source; counts of a row that is not ``ok`` count for nothing."""
    if source != "model" and record.status != "ok":
        return None
    read: int | None = getattr(record, f"{level}_read_bytes_{source}")
    written: int | None = getattr(record, f"{level}_write_bytes_{source}")
    return None if read is None or written is None else read + written


def tile_of(record: Record) -> str:
    """``128x64/2``: rows of Q, rows of K and V, stages; empty without a tile."""
    return record_name(record).impl.removeprefix(record.impl).strip()


# --- one figure each --------------------------------------------------------------------------------------------------

_Measure = Callable[[Record, Source], Point | None]
_LEVELS: Final[Mapping[str, tuple[str, str]]] = {
    "global": ("Global memory", "32-byte sectors that instructions ask for, before any cache"),
    "l2": ("L2", "what L1 passes on"),
    "dram": (
        "DRAM",
        "what L2 passes on; less than compulsory where what was written is still in L2. A whisker is where an emulated "
        "figure may lie",
    ),
}


def _bytes_chart(level: str) -> Callable[[Sequence[Row]], Chart | str]:
    name, note = _LEVELS[level]

    def measure(record: Record, source: Source) -> Point | None:
        nbytes = total(record, level, source)
        if not nbytes:
            return None
        read, written = (getattr(record, f"{level}_{way}_bytes_{source}") for way in ("read", "write"))
        low = high = None
        if level == "dram" and source == "emulated":
            low = _sum(record.dram_read_bytes_emulated_low, record.dram_write_bytes_emulated_low)
            high = _sum(record.dram_read_bytes_emulated_high, record.dram_write_bytes_emulated_high)
        detail = f"{format_count(read)} B read, {format_count(written)} B written"
        return Point(record.seq_q, nbytes, tile_of(record), low, high, detail)

    def make(rows: Sequence[Row]) -> Chart | str:
        made = _series(rows, measure)
        if not made:
            return f"{name}: no row has these bytes{'' if level == 'global' else ' (--counters full counts them)'}."
        least = {
            row.record.seq_q: float(nbytes)
            for row in rows
            if (nbytes := _sum(row.record.compulsory_read_bytes, row.record.compulsory_write_bytes)) is not None
        }
        floor = tuple(sorted(least.items()))
        return Chart(f"{level}-bytes", f"{name}, bytes", f"Read and written: {note}.", BYTES, made, floor)

    return make


def _time(rows: Sequence[Row]) -> Chart | str:
    def measure(record: Record, source: Source) -> Point | None:
        if source == "model" and record.roofline_ms is not None:
            return Point(record.seq_q, record.roofline_ms, tile_of(record), detail=f"limit: {record.roofline_limiter}")
        if source == "measured" and (time := record.time_ms) is not None and record.status == "ok":
            detail = f"{record.time_source}, {record.time_samples} samples, {record.device}"
            return Point(record.seq_q, time, tile_of(record), record.time_p20_ms, record.time_p80_ms, detail)
        return None

    note = (
        "Median; whiskers from the 20th to the 80th percentile. The model is the roofline, the least that peaks allow."
    )
    made = _measured("Time", "time", note, MS, rows, measure)
    return made or "Time and FLOP/s: no row has a time; the emulator never states one."


def _rate(rows: Sequence[Row]) -> Chart | str:
    def measure(record: Record, source: Source) -> Point | None:
        if not record.flops_nominal:
            return None
        if source == "model" and record.roofline_ms is not None:
            return Point(record.seq_q, record.flops_nominal / record.roofline_ms * 1e3, tile_of(record))
        if source == "measured" and record.time_ms is not None and record.status == "ok":
            low, rate, high = (
                None if time is None else record.flops_nominal / time * 1e3
                for time in (record.time_p80_ms, record.time_ms, record.time_p20_ms)
            )
            assert rate is not None  # of a time that is known
            return Point(record.seq_q, rate, tile_of(record), low, high)
        return None

    made = _measured("FLOP/s", "flops", "Nominal FLOPs over the median time.", FLOPS, rows, measure)
    if made is None and any(row.record.time_ms is not None for row in rows):
        return "FLOP/s: no row that has a time has FLOPs."
    return made or ""


def _measured(title: str, key: str, note: str, unit: Unit, rows: Sequence[Row], measure: _Measure) -> Chart | None:
    """A chart that predictions alone do not make."""
    made = _series(rows, measure)
    if all(series.source == "model" for series in made):
        return None
    return Chart(key, title, note, unit, made)


def _memory(rows: Sequence[Row]) -> Chart | str:
    def measure(record: Record, source: Source) -> Point | None:
        if source != _ran(record) or not record.mem_peak_bytes:
            return None
        nvml = record.nvml_mem_peak_bytes
        detail = f"{record.mem_source}" + ("" if nvml is None else f"; NVML saw {format_count(nvml)} B in use")
        return Point(record.seq_q, record.mem_peak_bytes, tile_of(record), detail=detail)

    made = _series(rows, measure)
    return Chart("memory", "Memory, peak", "What was allocated.", BYTES, made) if made else "Memory: no row has a peak."


def _error(rows: Sequence[Row]) -> Chart | str:
    def measure(record: Record, source: Source) -> Point | None:
        if source != _ran(record) or not record.max_abs_err:
            return None
        return Point(record.seq_q, record.max_abs_err, tile_of(record), detail=f"against {record.err_reference}")

    made = _series(rows, measure)
    note = "The largest distance of an element of O, or of a gradient, from the reference."
    return Chart("error", "Error", note, ERROR, made) if made else "Error: no row has one."


def _ran(record: Record) -> Source | None:
    """The source of what only running a case can tell; None where that was not ``ok``."""
    if record.status != "ok":
        return None
    return "emulated" if record.backend == "emulator" else "measured"


def _series(rows: Iterable[Row], measure: _Measure) -> tuple[Series, ...]:
    found: dict[tuple[Source, str, str, str], list[Point]] = defaultdict(list)
    for source in SOURCES:
        for row in rows:
            point = measure(row.record, source)
            if point is not None:
                # A prediction is the same on every backend.
                backend = "" if source == "model" else row.record.backend
                found[(source, row.record.impl, row.run, backend)].append(point)
    backends = defaultdict(set)
    for source, impl, run, place in found:
        backends[(source, impl, run)].add(place)
    return tuple(
        Series(
            impl,
            " ".join([impl, *([run] if run else []), *([backend] if len(backends[(source, impl, run)]) > 1 else [])]),
            source,
            tuple(sorted({point.seq: point for point in points}.values(), key=lambda point: point.seq)),
        )
        for (source, impl, run, backend), points in found.items()
    )


def _sum(read: int | None, written: int | None) -> int | None:
    return None if read is None or written is None else read + written
