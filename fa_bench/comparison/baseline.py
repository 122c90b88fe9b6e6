"""``fa-bench baseline accept``: what a later run says becomes what runs are held against.

The new files are written whole into a folder of their own inside the baseline; renaming that folder is the commit
point. Then each file replaces the one of its name. A kill before the commit point leaves the old baseline, one after
it a folder from which the next acceptance goes on, before it does anything else: so nothing is lost, and no file is
ever half written. Ctrl-C after the commit point waits for the few renames that are left.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fa_bench.comparison.runs import COMMITTED
from fa_bench.errors import UsageError
from fa_bench.records import Record, TensorTraffic
from fa_bench.sweep.journal import MANIFEST_NAME, RunData, key_of, read_run, replace_text, run_files

_STAGED: Final = ".accept"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What an acceptance did: rows that were taken over, of those the ones that were there, and rows that stayed."""

    rows: int
    replaced: int
    kept: int


def accept(baseline: Path, source: Path, *, force: bool = False, now: datetime | None = None) -> Acceptance:
    """Take the rows of a run, with their traffic and samples, over into a baseline, which is made if need be.

    Rows of the same case and backend are replaced. Rows that the run lacks stay if they were made under the same
    identity (device, target GPU, versions) and driver; where they were not, nothing is done, since rows of different
    runs never stand in one folder.

    Parameters
    ----------
    baseline : Path
        A run folder, or one to be made.
    source : Path
        The run folder whose rows are accepted.
    force : bool
        Also accept an unfinished run, rows that are not ok, and what can be read of torn files.
    now : datetime, optional
        For the note in ``run.json``; the present by default.

    Raises
    ------
    UsageError
        If one of the two is no run folder, a row is not ok, a file of the run is torn, or the two can't stand in one
        folder.
    """
    if baseline.exists() and not baseline.is_dir():
        raise UsageError(f"{baseline} is no folder.", hint="A baseline is a run folder, with run.json and samples.")
    if baseline.exists() and source.exists() and baseline.samefile(source):
        raise UsageError(f"{baseline} is the run itself.", hint="Name a later run with --from.")
    if (baseline / COMMITTED).exists():
        _install(baseline)
    new = _read(source)
    if not new.records:
        raise UsageError(f"{source} has no rows.")
    if not force:
        _check(source, new)
    old = _read(baseline) if (baseline / MANIFEST_NAME).exists() else None
    start = (now or datetime.now(UTC)).astimezone(UTC)
    merged, done = _merge(baseline, old, source, new, _note(new, start))
    try:
        baseline.mkdir(parents=True, exist_ok=True)
        _replace(baseline, run_files(merged.manifest, merged.records, merged.traffic, merged.samples))
    except OSError as error:
        raise UsageError(f"Cannot write to {baseline}: {error.strerror}.") from error
    return done


def _read(folder: Path) -> RunData:
    """A run without the traffic of which a part is lost: written anew it would look whole."""
    data = read_run(folder)
    return dataclasses.replace(data, traffic=data.whole_traffic)


def _check(source: Path, new: RunData) -> None:
    bad = Counter(record.status for record in new.records if record.status != "ok")
    if bad:
        counts = ", ".join(f"{count} {status}" for status, count in bad.items())
        raise UsageError(f"{source} has rows that are not ok: {counts}.", hint="--force accepts them as they are.")
    if new.manifest.finished is None:
        raise UsageError(f"{source} is not finished.", hint="sweep --resume goes on with it; --force accepts it so.")
    if new.unread:
        raise UsageError(f"{source} can't be read in full. {new.unread[0]}", hint="--force accepts what is left.")


def _note(new: RunData, now: datetime) -> dict[str, Any]:
    return {
        "at": now.isoformat(timespec="seconds"),
        "run_id": new.manifest.run_id,
        "created": new.manifest.created,
        "command": new.manifest.command,
        "git_commit": new.manifest.environment.get("git_commit"),
        "rows": len(new.records),
        "not_ok": sum(record.status != "ok" for record in new.records),
    }


def _merge(
    baseline: Path, old: RunData | None, source: Path, new: RunData, note: dict[str, Any]
) -> tuple[RunData, Acceptance]:
    before = () if old is None else old.manifest.accepted
    keys = {key_of(record) for record in new.records}
    staying = [record for record in old.records if key_of(record) not in keys] if old is not None else []
    there = 0 if old is None else len(old.records) - len(staying)
    done = Acceptance(len(new.records), there, len(staying))
    if old is None or not staying:
        return dataclasses.replace(new, manifest=dataclasses.replace(new.manifest, accepted=(*before, note))), done
    different = old.manifest.difference(new.manifest)
    if different is not None:
        raise UsageError(
            f"{baseline} has {_rows(len(staying))} that {source} lacks, and rows of both can't stand together: "
            f"{different}.",
            hint="Run all cases of the baseline again, or accept into a new folder.",
        )
    accepted = {key_of(record): record for record in new.records}
    kept_keys = {key_of(record) for record in staying}
    return RunData(
        dataclasses.replace(old.manifest, accepted=(*before, note)),
        # Replaced rows stay in their place, new ones come last.
        tuple({**{key_of(record): record for record in old.records}, **accepted}.values()),
        tuple(_traffic(old, new, staying)),
        (*(line for line in old.samples if (line.case_id, line.backend) in kept_keys), *new.samples),
    ), done


def _traffic(old: RunData, new: RunData, staying: list[Record]) -> Iterator[TensorTraffic]:
    """Lines of the rows that stay, then those of the new ones; a line names no backend, but its source tells."""
    replaced = {(line.case_id, line.source) for line in new.traffic}
    cases = {record.case_id for record in staying}
    yield from (line for line in old.traffic if line.case_id in cases and (line.case_id, line.source) not in replaced)
    yield from new.traffic


def _replace(folder: Path, files: dict[str, str]) -> None:
    staged, committed = folder / _STAGED, folder / COMMITTED
    try:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        for name, text in files.items():
            replace_text(staged / name, text)
        staged.rename(committed)
        _install(folder)
    except KeyboardInterrupt:
        if committed.exists():
            _install(folder)
        raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _install(folder: Path) -> None:
    """Put committed files in their places; done again after a kill, it goes on."""
    committed = folder / COMMITTED
    for path in sorted(committed.iterdir()):
        path.replace(folder / path.name)
    committed.rmdir()


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
