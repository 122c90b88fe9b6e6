"""Records: what a sweep leaves on disk, as frozen rows and as CSV.

``records.csv`` holds one `Record` per case, ``traffic.csv`` one `TensorTraffic` per case, kernel, tensor,
direction, level and source. Fields are the columns, in their order. Text is comma-separated with ``.`` decimals,
UTF-8 and full precision; an empty cell means "not known" and is never 0 or NaN.

Schema history
--------------
1
    First version.
2
    ``requests`` and ``hit_bytes`` in ``traffic.csv``; in ``records.csv`` ``l2_dirty_bytes_emulated`` and the limits
    between which the emulated DRAM bytes lie, ``dram_{read,write}_bytes_emulated_{low,high}``.
3
    How a time came about: ``time_drift`` (the last third's median against the first's, minus 1), ``time_dropped``
    (samples left out because the clocks were held down), ``time_fallback`` (why the timer asked for was not used),
    ``launch_floor_ms``, ``fits_l2`` (whether Q, K, V and O together fit into the GPU's L2 cache, so that a warm one can
    beat the memory's bandwidth), ``sm_clock_min_mhz``. What NVML's figures rest on: ``nvml_mem_source``,
    ``nvml_interval_ms``, ``energy_launches``, ``device_reason`` (why figures are missing). Hardware counters:
    ``counter_status``, ``counter_reason``, ``counter_kernels``, ``counter_mode``, and what registers spill to local
    memory, ``local_{read,write}_bytes_measured``. Windows and dropout are filled; ``head_dim_v``, ``softcap``,
    ``bias``, ``alibi``, ``sinks``. Batches whose sequences differ in length: ``seqlens`` (queries x keys of each; then
    ``seq_q`` and ``seq_kv`` are the longest). ``init`` and ``causal_align`` say what was implied before;
    ``roofline_source`` whose peaks the roofline rests on.

Columns are only ever added, at the end of their group, together with a new schema number. So a file of an older schema
can be read: what it has no column for is not known.
"""

from __future__ import annotations

import csv
import io
import math
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

from fa_bench.algorithms.base import Op
from fa_bench.backends.base import BackendName, CounterStatus, Level, TimeSource
from fa_bench.cases import Direction, DType, Layout
from fa_bench.errors import UsageError

SCHEMA_VERSION: Final = 3

Status = Literal["ok", "oom", "skipped", "unsupported", "error", "invalid_timing", "wrong_result", "interrupted"]
Source = Literal["model", "emulated", "measured"]

STATUSES: Final[tuple[Status, ...]] = typing.get_args(Status)
#: Rows that make a sweep exit with 1. A case that cannot run here (oom, skipped, unsupported) is no failure.
FAILED_STATUSES: Final[frozenset[Status]] = frozenset({"error", "invalid_timing", "wrong_result"})

_SIZES = frozenset(
    {"schema", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "head_dim_v", "time_samples"}
)
_TIMES = frozenset({"time_ms", "time_p20_ms", "time_p80_ms", "launch_floor_ms", "roofline_ms"})
_SIGNED = frozenset({"temperature_c", "seed", "time_drift"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of ``records.csv``: one case, run or not. Byte columns are bytes, never elements.

    Raises
    ------
    ValueError
        Naming the column and its value, when a value cannot be: a negative time, NaN, an unknown status, a time
        without its source, a row that says ``ok`` without an error figure, a schema that is still to come.
    """

    # identity
    schema: int = SCHEMA_VERSION
    run_id: str
    case_id: str
    timestamp: str
    impl: str
    impl_version: str | None = None
    backend: BackendName
    device: str
    gpu: str | None = None
    dtype: DType
    direction: Direction
    layout: Layout
    batch: int
    heads_q: int
    heads_kv: int
    seq_q: int
    seq_kv: int
    head_dim: int
    causal: bool
    window_left: int | None = None
    window_right: int | None = None
    dropout_p: float = 0.0
    block_m: int | None = None
    block_n: int | None = None
    stages: int | None = None
    num_warps: int | None = None
    seed: int
    init: str | None = None
    causal_align: Literal["bottom-right"] | None = None
    head_dim_v: int | None = None
    softcap: float | None = None
    bias: bool | None = None
    alibi: bool | None = None
    sinks: bool | None = None
    seqlens: str | None = None
    # outcome
    status: Status
    status_reason: str | None = None
    # time
    time_ms: float | None = None
    time_p20_ms: float | None = None
    time_p80_ms: float | None = None
    time_samples: int | None = None
    time_source: TimeSource | None = None
    l2_state: Literal["cold", "warm"] | None = None
    launch_bound: bool | None = None
    noisy: bool | None = None
    throttled: bool | None = None
    compile_ms: float | None = None
    time_drift: float | None = None
    time_dropped: int | None = None
    time_fallback: str | None = None
    launch_floor_ms: float | None = None
    fits_l2: bool | None = None
    # work
    flops_nominal: int | None = None
    flops_executed: int | None = None
    exp_count: int | None = None
    tflops: float | None = None
    # bytes
    global_read_bytes_model: int | None = None
    global_write_bytes_model: int | None = None
    global_read_bytes_emulated: int | None = None
    global_write_bytes_emulated: int | None = None
    global_read_bytes_measured: int | None = None
    global_write_bytes_measured: int | None = None
    l2_read_bytes_model: int | None = None
    l2_write_bytes_model: int | None = None
    l2_read_bytes_emulated: int | None = None
    l2_write_bytes_emulated: int | None = None
    l2_read_bytes_measured: int | None = None
    l2_write_bytes_measured: int | None = None
    dram_read_bytes_model: int | None = None
    dram_write_bytes_model: int | None = None
    dram_read_bytes_emulated: int | None = None
    dram_write_bytes_emulated: int | None = None
    dram_read_bytes_measured: int | None = None
    dram_write_bytes_measured: int | None = None
    compulsory_read_bytes: int | None = None
    compulsory_write_bytes: int | None = None
    emulated_fraction: float | None = None
    l2_dirty_bytes_emulated: int | None = None
    dram_read_bytes_emulated_low: int | None = None
    dram_read_bytes_emulated_high: int | None = None
    dram_write_bytes_emulated_low: int | None = None
    dram_write_bytes_emulated_high: int | None = None
    counter_status: CounterStatus | None = None
    counter_reason: str | None = None
    counter_kernels: int | None = None
    counter_mode: str | None = None
    local_read_bytes_measured: int | None = None
    local_write_bytes_measured: int | None = None
    # memory
    mem_peak_bytes: int | None = None
    mem_source: str | None = None
    nvml_mem_peak_bytes: int | None = None
    nvml_mem_source: str | None = None
    nvml_interval_ms: float | None = None
    # device
    power_w: float | None = None
    energy_mj: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: str | None = None
    sm_clock_min_mhz: float | None = None
    energy_launches: int | None = None
    device_reason: str | None = None
    # compiler
    nvrtc_version: str | None = None
    registers: int | None = None
    smem_bytes: int | None = None
    spill_bytes: int | None = None
    blocks_per_sm: int | None = None
    # prediction
    roofline_ms: float | None = None
    roofline_limiter: str | None = None
    arithmetic_intensity: float | None = None
    roofline_source: Literal["datasheet", "measured"] | None = None
    # error
    max_abs_err: float | None = None
    rel_err: float | None = None
    err_reference: str | None = None

    def __post_init__(self) -> None:
        RECORDS.check(self)
        if self.schema > SCHEMA_VERSION:
            raise ValueError(f"schema is {self.schema}, and this version of fa-bench knows none above {SCHEMA_VERSION}")
        if (self.time_ms is None) != (self.time_source is None):
            raise ValueError(f"time_ms is {self.time_ms} but time_source is {self.time_source}: one needs the other")
        if self.time_ms is not None:
            if self.backend == "emulator":
                raise ValueError(f"time_ms is {self.time_ms} on the emulator, whose own run time is no GPU time")
            low, high = self.time_p20_ms, self.time_p80_ms
            if low is None or high is None or not low <= self.time_ms <= high:
                raise ValueError(f"time_ms is {self.time_ms}, outside time_p20_ms {low} and time_p80_ms {high}")
        if self.status == "ok" and (self.max_abs_err is None or self.err_reference is None):
            raise ValueError("status is 'ok' but max_abs_err or err_reference is not known: ok means verified")
        if self.status != "ok" and self.status_reason is None:
            raise ValueError(f"status is {self.status!r} but status_reason is empty")
        if self.emulated_fraction is not None and not 0 < self.emulated_fraction <= 1:
            raise ValueError(f"emulated_fraction must be above 0 and at most 1, not {self.emulated_fraction}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTraffic:
    """One row of ``traffic.csv``: the bytes that one kernel moves for one tensor, at one level, by one source.

    ``requests`` that these bytes came in, and the bytes that the cache of the level answered (L1 at ``global``, L2 at
    ``l2``), where they were counted.
    """

    case_id: str
    kernel: str
    tensor: str
    op: Op
    level: Level
    source: Source
    bytes: int
    requests: int | None = None
    hit_bytes: int | None = None

    def __post_init__(self) -> None:
        TRAFFIC.check(self)


Row = TypeVar("Row", Record, TensorTraffic)


@dataclass(frozen=True, slots=True)
class CsvContent(Generic[Row]):
    """Rows of a file, and what could not be read of it.

    ``malformed`` has one sentence per complete row that is no valid row; ``truncated`` says that the file ends
    inside a row, which was left out. ``left_out`` is the text of all these rows.
    """

    rows: tuple[Row, ...]
    malformed: tuple[str, ...] = ()
    truncated: bool = False
    left_out: tuple[str, ...] = ()

    def unread(self, path: Path) -> tuple[str, ...]:
        """What could not be read of the file at ``path``, one sentence each."""
        sentences = [f"{path}: {sentence}." for sentence in self.malformed]
        if self.truncated:
            sentences.append(f"{path}: the last row is cut off and left out.")
        return tuple(sentences)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: type
    optional: bool
    choices: tuple[str, ...]

    def checked(self, value: Any) -> Any:
        """``value`` as the column holds it; ValueError naming the column and the value otherwise."""
        if value is None:
            if not self.optional:
                raise ValueError(f"{self.name} must be known")
            return None
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:
            raise ValueError(f"{self.name} must be {self.kind.__name__}, not {value!r}")
        if self.kind is str:
            if not value:
                raise ValueError(f"{self.name} must not be empty text; None means not known")
            if self.choices and value not in self.choices:
                raise ValueError(f"{self.name} must be one of {', '.join(self.choices)}, not {value!r}")
        elif isinstance(value, int | float) and self.kind is not bool:
            if not math.isfinite(value):
                raise ValueError(f"{self.name} must be finite, not {value}")
            if self.name in _TIMES and value <= 0:
                raise ValueError(f"{self.name} must be above 0, not {value}")
            if value < (1 if self.name in _SIZES else 0) and self.name not in _SIGNED:
                raise ValueError(f"{self.name} must be at least {int(self.name in _SIZES)}, not {value}")
        return value

    def format(self, value: Any) -> str:
        if value is None:
            return ""
        if self.kind is bool:
            return "true" if value else "false"
        return value if self.kind is str else repr(value)

    def parse(self, cell: str) -> Any:
        if not cell:
            return None
        if self.kind is bool:
            if cell not in ("true", "false"):
                raise ValueError(f"{self.name} must be true or false, not {cell!r}")
            return cell == "true"
        try:
            return self.kind(cell)
        except ValueError:
            raise ValueError(f"{self.name} must be {self.kind.__name__}, not {cell!r}") from None


def _column(name: str, hint: Any) -> _Column:
    optional = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    if optional:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is Literal:
        return _Column(name, str, optional, typing.get_args(hint))
    return _Column(name, hint, optional, ())


class CsvTable(Generic[Row]):
    """The CSV form of a row type: one column per field, in the order of the fields."""

    def __init__(self, row_type: type[Row]) -> None:
        hints = typing.get_type_hints(row_type)
        self._row_type: type[Row] = row_type
        self._columns = tuple(_column(f.name, hints[f.name]) for f in fields(row_type))
        self.columns: tuple[str, ...] = tuple(c.name for c in self._columns)

    def check(self, row: Row) -> None:
        """Check every column of ``row``, turning whole numbers into floats where the column is one."""
        for column in self._columns:
            object.__setattr__(row, column.name, column.checked(getattr(row, column.name)))

    @property
    def kinds(self) -> dict[str, type]:
        """Column name -> Python type of its values; any of them may be None where the row type says so."""
        return {column.name: column.kind for column in self._columns}

    @property
    def header(self) -> str:
        """The first line of the file, with its line end."""
        return _csv_line(self.columns)

    def line(self, row: Row) -> str:
        """``row`` as text, with its line end. Independent of the locale; floats keep every digit."""
        return _csv_line([column.format(getattr(row, column.name)) for column in self._columns])

    def parse(self, cells: Sequence[str]) -> Row:
        """The row that ``cells`` hold; ValueError says what is wrong with them."""
        return self._parse(cells, self._columns)

    def _parse(self, cells: Sequence[str], columns: Sequence[_Column]) -> Row:
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells where there are {len(columns)} columns")
        return self._row_type(**{column.name: column.parse(cell) for column, cell in zip(columns, cells, strict=True)})

    def read(self, path: Path) -> CsvContent[Row]:
        """Read a file of this table, of this schema or an older one; a row that the end cuts off is left out.

        Raises
        ------
        UsageError
            If the file cannot be read or has other columns.
        """
        try:
            text = path.read_bytes().decode("utf-8-sig", errors="replace")
        except OSError as error:
            raise UsageError(f"Cannot read {path}: {error.strerror}.") from error
        lines, rest = _complete_rows(text)
        cut: tuple[str, ...] = (rest,) if rest else ()
        if not lines:
            return CsvContent((), truncated=bool(rest), left_out=cut)
        columns = self._columns_of(path, _cells(lines[0]))
        rows: list[Row] = []
        malformed: list[str] = []
        left_out: list[str] = []
        for number, line in enumerate(lines[1:], start=2):
            try:
                rows.append(self._parse(_cells(line), columns))
            except ValueError as error:
                malformed.append(f"row {number}: {error}")
                left_out.append(line)
        return CsvContent(tuple(rows), tuple(malformed), bool(rest), (*left_out, *cut))

    def _columns_of(self, path: Path, header: Sequence[str]) -> tuple[_Column, ...]:
        """The columns that a file has: all, or for one of an older schema those that have to be known and others."""
        there = tuple(column for column in self._columns if column.name in header)
        if [column.name for column in there] == list(header) and all(
            column in there or column.optional for column in self._columns
        ):
            return there
        missing = [column.name for column in self._columns if column.name not in header and not column.optional]
        unknown = [name for name in header if name not in self.columns]
        what = "; ".join(
            text
            for text in (
                f"missing: {', '.join(missing[:4])}" if missing else "",
                f"unknown: {', '.join(unknown[:4])}" if unknown else "",
            )
            if text
        )
        raise UsageError(
            f"{path} has other columns than schema {SCHEMA_VERSION} ({what or 'in another order'}).",
            hint="Use the version of fa-bench that wrote it, or write to another folder.",
        )


def _csv_line(cells: Iterable[str]) -> str:
    buffer = io.StringIO()
    # The csv module quotes only what its line end holds: with "\r\n" a name with either survives.
    csv.writer(buffer, lineterminator="\r\n").writerow(cells)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _cells(line: str) -> list[str]:
    return next(csv.reader(io.StringIO(line, newline="")), [])


def _complete_rows(text: str) -> tuple[list[str], str]:
    """Rows that end in a line end outside quotes, and what follows them, which is no whole row."""
    rows: list[str] = []
    pending = ""
    for piece in text.split("\n")[:-1]:
        pending += piece + "\n"
        # A quote inside a quoted cell is doubled, so outside quotes their number is even.
        if pending.count('"') % 2 == 0:
            rows.append(pending)
            pending = ""
    return rows, pending + text.rpartition("\n")[2]


RECORDS: Final[CsvTable[Record]] = CsvTable(Record)
TRAFFIC: Final[CsvTable[TensorTraffic]] = CsvTable(TensorTraffic)
