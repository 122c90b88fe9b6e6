"""One side of a comparison: a run folder, or a records.csv alone, as it lies on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fa_bench.comparison.intervals import Interval, median_interval, summary_interval
from fa_bench.errors import UsageError
from fa_bench.measure.statistics import MIN_INTERVAL_SAMPLES
from fa_bench.records import RECORDS, CsvContent, Record, TensorTraffic
from fa_bench.sweep.journal import MANIFEST_NAME, RECORDS_NAME, Key, key_of, read_run

#: Where `fa_bench.comparison.baseline` keeps files that are whole but not yet in their place.
COMMITTED: Final = ".accepted"


@dataclass(frozen=True, slots=True)
class Run:
    """What a comparison needs of one run.

    Parameters
    ----------
    path : str
        As it was given.
    records : tuple of Record
        One per case and backend.
    traffic : mapping
        case_id -> its lines of traffic.csv, where all of them are there; empty for a file alone.
    times_ms : mapping
        (case_id, backend) -> raw samples in the order they were taken.
    facts : mapping of str to str or None
        What is known of the run as a whole: ``fa-bench``, ``driver``. Empty for a file alone.
    notes : tuple of str
        What of it could not be read.
    partial : frozenset of str
        case_ids of which traffic.csv has lost lines.
    """

    path: str
    records: tuple[Record, ...]
    traffic: Mapping[str, tuple[TensorTraffic, ...]] = field(default_factory=dict)
    times_ms: Mapping[Key, tuple[float, ...]] = field(default_factory=dict)
    facts: Mapping[str, str | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    partial: frozenset[str] = frozenset()

    def lines(self, record: Record) -> tuple[TensorTraffic, ...] | None:
        """Traffic of a row by tensor: empty where there is none, None where a part of it is lost."""
        return None if record.case_id in self.partial else self.traffic.get(record.case_id, ())

    def interval(self, record: Record) -> Interval | str:
        """Median time in ms of a row with its interval, or one clause that says why there is none.

        Raw samples are preferred. A row without them has p20 and p80, which are wider.
        """
        if record.time_ms is None:
            return f"{self.path} has no time"
        if record.status != "ok":
            return f"in {self.path} it is {record.status}"
        samples = self.times_ms.get(key_of(record), ())
        # Samples of another number are those of another run of the case.
        if len(samples) == record.time_samples and all(math.isfinite(time) and time > 0 for time in samples):
            interval = median_interval(samples)
        else:
            assert record.time_p20_ms is not None and record.time_p80_ms is not None  # a record checks that
            interval = summary_interval(
                record.time_samples or 0, record.time_p20_ms, record.time_ms, record.time_p80_ms
            )
        if interval is None:
            return f"{self.path} has {_samples(record.time_samples)}, too few for an interval"
        return interval


def load(path: Path) -> Run:
    """Read a run folder, or a file of the form of ``records.csv``.

    Rows that are torn or no rows are left out and named in the notes; of a case that stands twice the last row counts.

    Raises
    ------
    UsageError
        If it is neither, has other columns or no rows.
    """
    if not path.is_dir():
        content = RECORDS.read(path)
        notes = (*content.unread(path), *_repeated(path, content))
        run = Run(str(path), tuple({key_of(row): row for row in content.rows}.values()), notes=notes)
    else:
        run = _folder(path)
    if not run.records:
        raise UsageError(f"{path} has no rows.", " ".join(run.notes))
    return run


def _folder(path: Path) -> Run:
    if (path / COMMITTED).exists():
        raise UsageError(
            f"{path} was left in the middle of fa-bench baseline accept.", hint="Run that command again: it goes on."
        )
    records = path / RECORDS_NAME
    if records.exists() and not (path / MANIFEST_NAME).exists():
        raise UsageError(f"{path} is no run folder: it has no {MANIFEST_NAME}.", hint=f"Give {records} alone.")
    data = read_run(path)
    traffic: dict[str, list[TensorTraffic]] = {}
    for line in data.whole_traffic:
        traffic.setdefault(line.case_id, []).append(line)
    return Run(
        str(path),
        data.records,
        {case_id: tuple(lines) for case_id, lines in traffic.items()},
        {(line.case_id, line.backend): line.times_ms for line in data.samples},
        {"fa-bench": data.manifest.identity.tool_version, "driver": _text(data.manifest.environment.get("driver"))},
        (*data.unread, *(_repeated(path, RECORDS.read(records)) if records.exists() else ())),
        data.partial,
    )


def _repeated(path: Path, content: CsvContent[Record]) -> tuple[str, ...]:
    repeated = len(content.rows) - len({key_of(row) for row in content.rows})
    return (f"{path}: cases stand there again ({repeated} in all); the last row of each counts.",) if repeated else ()


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _samples(count: int | None) -> str:
    if not count:
        return "no samples"
    if count >= MIN_INTERVAL_SAMPLES:
        return f"{count} samples, none of them kept"
    return "1 sample" if count == 1 else f"{count} samples"
