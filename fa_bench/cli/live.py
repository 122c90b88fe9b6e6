"""What a sweep shows while it runs and when it has ended."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fa_bench.cli.eta import Eta
from fa_bench.cli.output import Format, Output
from fa_bench.records import RECORDS, Record
from fa_bench.report.names import case_name
from fa_bench.report.plan import unrun_reasons
from fa_bench.report.records import RecordTable, failures, status_counts, summary_tables
from fa_bench.sweep.plan import PlannedCase, SweepPlan
from fa_bench.sweep.runner import SweepOutcome
from fa_bench.units import format_duration

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1
#: What a case that was to run can turn out to be without having failed.
_NOT_RUN: Final = ("unsupported", "oom")
#: Failed rows that are named at the end; all are in records.csv.
_MAX_FAILURES: Final = 10


class Live:
    """Observer of a sweep: rows as they finish, progress, the summary.

    Parameters
    ----------
    output : Output
    plan : SweepPlan
    folder : Path
        Where the rows are written.
    run_id : str
    at_once : int
        How many groups of cases run at the same time.
    """

    def __init__(self, output: Output, plan: SweepPlan, folder: Path, run_id: str, at_once: int = 1) -> None:
        self._output = output
        self._plan = plan
        self._folder = folder
        self._run_id = run_id
        self._table = RecordTable([planned.case for planned in plan.cases], _place(plan))
        self._eta = Eta(tuple(planned.case for planned in plan.runnable))
        self._done = 0
        self._at_once = at_once
        self._has_head = False

    def __enter__(self) -> Self:
        for reason in unrun_reasons(self._plan):
            self._output.say(reason)
        if self._output.fmt is Format.CSV:
            self._output.write(RECORDS.header)
        self._output.start_progress()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._output.stop_progress()

    def started(self, planned: PlannedCase) -> None:
        """Name the case in the status line; the first one begins the table, which a finished run has none of."""
        if self._output.fmt is Format.TABLE and not self._has_head:
            self._has_head = True
            self._output.start_rows(self._table.table)
        self._output.progress(self._status(planned))

    def finished(self, planned: PlannedCase, record: Record, seconds: float) -> None:
        """Show the row."""
        self._done += 1
        if planned.status == "run":
            self._eta.finished(planned.case, seconds)
            if record.status in _NOT_RUN:
                self._output.say(f"{case_name(planned.case).impl}: {record.status}. {record.status_reason}")
        if self._output.fmt is Format.TABLE:
            if heading := self._table.heading(record):
                self._output.write(heading + "\n")
            self._output.add_row(self._table.table, self._table.row(record))
        elif self._output.fmt is Format.CSV:
            self._output.write(RECORDS.line(record))
        else:
            self._output.say(f"{self._status(planned)}: {record.status}")

    def conclude(self, outcome: SweepOutcome) -> int:
        """Show the summary, the failures and where the files are; give the exit code."""
        records, output = outcome.records, self._output
        summaries = summary_tables(records)
        if output.fmt is Format.TABLE:
            if self._has_head:
                output.end_rows(self._table.table)
            output.emit(summaries, [])
        elif output.fmt is Format.MD:
            output.emit([self._table.filled(records), *summaries], [])
        elif output.fmt is Format.JSON:
            document = {
                "schema": SCHEMA,
                "run_id": self._run_id,
                "folder": str(self._folder),
                "interrupted": outcome.interrupted,
                "records": [asdict(record) for record in records],
            }
            output.emit([], [], document)
        failed = failures(records)
        for sentence in failed[:_MAX_FAILURES]:
            output.warn(sentence)
        if len(failed) > _MAX_FAILURES:
            output.warn(f"{len(failed) - _MAX_FAILURES} more rows failed; all are in records.csv.")
        kept = f" ({outcome.kept} of them from before)" if outcome.kept else ""
        output.say(f"{status_counts(records)}{kept}. Files: {self._folder}")
        if outcome.interrupted:
            output.warn(f"Interrupted; to go on, repeat the command with --resume --out {self._folder}")
        return outcome.exit_code or int(bool(failed))

    def _status(self, planned: PlannedCase) -> str:
        name = case_name(planned.case)
        left = self._eta.seconds_left()
        eta = "" if left is None else f", about {format_duration(left / self._at_once)} left"
        return f"{self._done}/{len(self._plan.cases)} done{eta}; {name.impl}, seq {name.seq}"


def _place(plan: SweepPlan) -> str:
    backends = {planned.backend for planned in plan.cases}
    if "cuda" in backends:
        return f"on {plan.gpu.slug}"
    return f"emulated for {plan.gpu.slug}" if "emulator" in backends else "on the host"
