"""The run folder: rows are on disk before the next case starts, and a killed sweep can go on.

A folder holds ``run.json`` (what the run is), ``records.csv``, ``traffic.csv`` and ``samples.jsonl``. The line in
``records.csv`` is the commit point of a case: traffic and samples are written and flushed before it, so whatever a
kill leaves without its record is an orphan that readers ignore and that resuming removes. Lines are appended whole;
everything else is written beside its target and renamed over it.

Cases that were timed in turns are appended together. Resuming takes a time as one of the group it was made in: where
a group has no row for one of its cases, or one that is to be redone, all its timed rows are redone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fa_bench.errors import FaBenchError, UsageError
from fa_bench.records import RECORDS, TRAFFIC, CsvContent, Record, Status, TensorTraffic
from fa_bench.sweep.appender import Appender, encoded
from fa_bench.sweep.manifest import Manifest

MANIFEST_NAME: Final = "run.json"
RECORDS_NAME: Final = "records.csv"
TRAFFIC_NAME: Final = "traffic.csv"
SAMPLES_NAME: Final = "samples.jsonl"
_NAMES: Final = (MANIFEST_NAME, RECORDS_NAME, TRAFFIC_NAME, SAMPLES_NAME)

#: Where runs go if no folder is given, below the working directory.
RESULTS: Final = Path("results")

#: Rows that resuming runs again; the others say what would come out again.
REDO: Final[frozenset[Status]] = frozenset({"error", "interrupted", "invalid_timing"})

#: (case_id, backend). The rest of the resume key — device, target GPU, versions of tool and NVRTC — is the
#: manifest's identity, which is one for all rows of a folder.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CaseSamples:
    """Raw times of one case in ms, in the order they were taken: one line of ``samples.jsonl``."""

    case_id: str
    backend: str
    source: str
    l2_state: str | None
    times_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CaseRows:
    """All that is kept of one case: its record, its lines of ``traffic.csv`` and its raw times."""

    record: Record
    traffic: tuple[TensorTraffic, ...] = ()
    samples: CaseSamples | None = None


@dataclass(frozen=True, slots=True)
class RunData:
    """A run folder as read: only what belongs to a record, and what could not be read.

    ``unread`` has one sentence for each thing that could not be read, with the file's name. ``partial`` are the
    case_ids that lack lines of ``traffic.csv`` for that: their sums over it would be too small.
    """

    manifest: Manifest
    records: tuple[Record, ...]
    traffic: tuple[TensorTraffic, ...]
    samples: tuple[CaseSamples, ...]
    unread: tuple[str, ...] = ()
    partial: frozenset[str] = frozenset()

    @property
    def whole_traffic(self) -> tuple[TensorTraffic, ...]:
        """The lines of those cases of which all lines are there."""
        return tuple(line for line in self.traffic if line.case_id not in self.partial)


def read_run(folder: Path) -> RunData:
    """Read a run folder, finished or not.

    Raises
    ------
    UsageError
        If it is no run folder, a file cannot be read or has other columns.
    """
    manifest = Manifest.read(folder / MANIFEST_NAME)
    records_path, traffic_path, samples_path = (folder / name for name in (RECORDS_NAME, TRAFFIC_NAME, SAMPLES_NAME))
    records = RECORDS.read(records_path) if records_path.exists() else CsvContent[Record](())
    traffic = TRAFFIC.read(traffic_path) if traffic_path.exists() else CsvContent[TensorTraffic](())
    samples, unread_samples = _read_samples(samples_path)
    rows = {key_of(record): record for record in records.rows}
    case_ids = {case_id for case_id, _ in rows}
    return RunData(
        manifest,
        tuple(rows.values()),
        tuple(row for row in traffic.rows if row.case_id in case_ids),
        tuple(line for line in samples if line.case_id in case_ids),
        (*records.unread(records_path), *traffic.unread(traffic_path), *unread_samples),
        _partial(traffic, case_ids),
    )


def _partial(traffic: CsvContent[TensorTraffic], case_ids: Iterable[str]) -> frozenset[str]:
    """Cases that a row which was left out may belong to; with the end of the file also those that have no row."""
    there = {row.case_id for row in traffic.rows}
    return frozenset(
        case_id
        for case_id in case_ids
        # A row begins with its case, of which a cut can leave a part.
        if any(text.startswith(f"{case_id},") or case_id.startswith(text) for text in traffic.left_out)
        or (traffic.truncated and case_id not in there)
    )


def key_of(record: Record) -> Key:
    """The part of a record's resume key that is its own."""
    return record.case_id, record.backend


class Journal:
    """A run folder that is open for appending. Use it as a context manager.

    Attributes
    ----------
    folder : Path
    manifest : Manifest
    """

    def __init__(self, folder: Path, manifest: Manifest, kept: Sequence[Record] = ()) -> None:
        self.folder = folder
        self.manifest = manifest
        self._rows = {key_of(record): record for record in kept}
        self._traffic = Appender(folder / TRAFFIC_NAME)
        self._samples = Appender(folder / SAMPLES_NAME)
        self._records = Appender(folder / RECORDS_NAME)

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> Self:
        """Start a run in ``folder``, which is made if need be.

        Raises
        ------
        UsageError
            If the folder already holds a run or cannot be written.
        """
        there = [name for name in _NAMES if (folder / name).exists()]
        if there and there[0] != MANIFEST_NAME:
            raise UsageError(
                f"{folder} has {there[0]} but no {MANIFEST_NAME}, without which no run can go on.",
                hint="Choose another folder, or move these files away.",
            )
        if there:
            raise UsageError(
                f"{folder} already holds a run ({there[0]}).",
                hint="Add --resume to go on with it, or choose another folder.",
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(folder / MANIFEST_NAME, manifest.to_json())
            replace_text(folder / RECORDS_NAME, RECORDS.header)
            replace_text(folder / TRAFFIC_NAME, TRAFFIC.header)
            replace_text(folder / SAMPLES_NAME, "")
            return cls(folder, manifest)
        except OSError as error:
            raise UsageError(f"Cannot write to {folder}: {error.strerror}.", hint="Give another --out.") from error

    @classmethod
    def resume(cls, folder: Path, manifest: Manifest, planned: Sequence[Collection[Key]]) -> Self:
        """Go on with the run in ``folder``.

        Rows of ``planned`` cases that failed, were interrupted or lost traffic, rows that cannot be read, and whatever
        has no record are removed, so that they run again. So are the timed rows of a group that is not complete then.
        All others stay.

        Parameters
        ----------
        folder : Path
        manifest : Manifest
            Of the run that goes on; it must not differ from the folder's in what rows must share.
        planned : sequence of collections of (case_id, backend)
            The plan's cases, by the groups that run together.

        Raises
        ------
        UsageError
            If the folder holds a run of another device, target GPU or version, a file with other columns, or cannot
            be written.
        """
        data = read_run(folder)
        different = data.manifest.difference(manifest)
        if different is not None:
            raise UsageError(
                f"{folder} holds another sweep: {different}.",
                hint="Rows of different runs are never mixed: choose another folder, or leave out --resume.",
            )
        kept = _staying(data, planned)
        case_ids = {record.case_id for record in kept}
        continued = data.manifest.resumed_by(manifest)
        try:
            traffic = (row for row in data.whole_traffic if row.case_id in case_ids)
            samples = (line for line in data.samples if line.case_id in case_ids)
            for name, text in run_files(continued, kept, traffic, samples).items():
                replace_text(folder / name, text)
            return cls(folder, continued, kept)
        except OSError as error:
            raise UsageError(f"Cannot write to {folder}: {error.strerror}.") from error

    def holds(self, key: Key) -> bool:
        """Whether the folder has a row for this case that stays."""
        return key in self._rows

    @property
    def records(self) -> tuple[Record, ...]:
        """The rows on disk: those that a resumed sweep keeps, then those appended."""
        return tuple(self._rows.values())

    def append(self, record: Record, traffic: Iterable[TensorTraffic] = (), samples: CaseSamples | None = None) -> None:
        """Write one case, see `append_together`."""
        self.append_together([CaseRows(record, tuple(traffic), samples)])

    def append_together(self, cases: Sequence[CaseRows]) -> None:
        """Write cases: all of them are on disk when this returns, and none of them counts when it raises.

        Raises
        ------
        FaBenchError
            If the disk refuses.
        """
        files = (self._traffic, self._samples, self._records)
        sizes = [file.size for file in files]
        before = dict(self._rows)
        try:
            self._traffic.append("".join(TRAFFIC.line(line) for rows in cases for line in rows.traffic))
            self._samples.append("".join(_sample_line(rows.samples) for rows in cases if rows.samples is not None))
            self._records.append("".join(RECORDS.line(rows.record) for rows in cases))
            self._rows |= {key_of(rows.record): rows.record for rows in cases}
        except BaseException as error:
            for file, size in zip(files, sizes, strict=True):
                file.truncate(size)
            self._rows = before
            if isinstance(error, OSError):
                raise FaBenchError(
                    f"Cannot write to {self.folder}: {error.strerror}.",
                    hint="What finished before is kept; --resume goes on with it.",
                ) from error
            raise

    def finish(self, timestamp: str) -> None:
        """Note in ``run.json`` that every planned case has its row."""
        self.manifest = self.manifest.finished_at(timestamp)
        replace_text(self.folder / MANIFEST_NAME, self.manifest.to_json())

    def close(self) -> None:
        """Close the files."""
        for file in (self._traffic, self._samples, self._records):
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_journal(
    out: Path | None, manifest: Manifest, planned: Sequence[Collection[Key]], *, resume: bool = False
) -> Journal:
    """Open the folder of a sweep: a new one, or the one to go on with.

    Parameters
    ----------
    out : Path, optional
        The folder; by default ``results/<run_id>``, or with ``resume`` the newest unfinished one in ``results``.
    manifest : Manifest
    planned : sequence of collections of (case_id, backend)
        The plan's cases, by the groups that run together.
    resume : bool
        Go on with what the folder holds; one that holds no run starts anew.

    Raises
    ------
    UsageError
        If the folder cannot be used, or there is none to go on with.
    """
    if not resume:
        return Journal.create(out or RESULTS / manifest.run_id, manifest)
    folder = out or newest_unfinished(RESULTS)
    if folder is None:
        raise UsageError(f"No unfinished run in {RESULTS} to go on with.", hint="Give its folder with --out.")
    if (folder / MANIFEST_NAME).exists():
        return Journal.resume(folder, manifest, planned)
    return Journal.create(folder, manifest)


def _staying(data: RunData, planned: Sequence[Collection[Key]]) -> list[Record]:
    """The records that resuming keeps."""
    rows = {key_of(record): record for record in data.records}
    redone: set[Key] = set()
    for group in planned:
        there = [rows[key] for key in group if key in rows]
        off = {key_of(row) for row in there if row.status in REDO or row.case_id in data.partial}
        if off or len(there) < len(group):
            off |= {key_of(row) for row in there if row.time_ms is not None}
        redone |= off
    return [record for key, record in rows.items() if key not in redone]


def newest_unfinished(results: Path) -> Path | None:
    """The run folder in ``results`` that was started last and is not finished, or None."""
    unfinished: list[tuple[str, Path]] = []
    for path in results.glob(f"*/{MANIFEST_NAME}"):
        try:
            manifest = Manifest.read(path)
        except UsageError:
            continue  # what cannot be read cannot be resumed either
        if manifest.finished is None:
            unfinished.append((manifest.created, path.parent))
    return max(unfinished, default=("", None))[1]


def run_files(
    manifest: Manifest, records: Iterable[Record], traffic: Iterable[TensorTraffic], samples: Iterable[CaseSamples]
) -> dict[str, str]:
    """The files of a run folder, name -> whole text."""
    return {
        MANIFEST_NAME: manifest.to_json(),
        RECORDS_NAME: RECORDS.header + "".join(map(RECORDS.line, records)),
        TRAFFIC_NAME: TRAFFIC.header + "".join(map(TRAFFIC.line, traffic)),
        SAMPLES_NAME: "".join(map(_sample_line, samples)),
    }


def replace_text(path: Path, text: str) -> None:
    """`replace_bytes` of a text, in UTF-8."""
    replace_bytes(path, encoded(text))


def replace_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that readers see the old file or the whole new one, never a part.

    A link is followed. What is no regular file, such as a pipe or a device, is written into and stays what it is.
    """
    target = Path(os.path.realpath(path))
    if path.exists() and not target.is_file():
        path.write_bytes(content)
        return
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sample_line(samples: CaseSamples) -> str:
    line = {
        "case_id": samples.case_id,
        "backend": samples.backend,
        "source": samples.source,
        "l2_state": samples.l2_state,
        "times_ms": list(samples.times_ms),
    }
    return json.dumps(line) + "\n"


def _read_samples(path: Path) -> tuple[list[CaseSamples], tuple[str, ...]]:
    """The lines of a file, and sentences on those that are none; their records stand without raw times."""
    if not path.exists():
        return [], ()
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error
    *lines, rest = text.split("\n")
    samples, bad, unread = [], [], []
    for number, line in enumerate(lines, start=1):
        try:
            samples.append(_sample(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            bad.append(number)
    if bad:
        lines_are = "1 line is" if len(bad) == 1 else f"{len(bad)} lines are"
        unread.append(f"{path}: {lines_are} left out, which hold no samples of a case; the first is line {bad[0]}.")
    if rest:
        unread.append(f"{path}: the last line is cut off and left out.")
    return samples, tuple(unread)


def _sample(line: Mapping[str, Any]) -> CaseSamples:
    return CaseSamples(
        str(line["case_id"]),
        str(line["backend"]),
        str(line["source"]),
        line["l2_state"],
        tuple(float(time_ms) for time_ms in line["times_ms"]),
    )
