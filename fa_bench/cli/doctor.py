"""``fa-bench doctor``: what is here, what is missing, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output
from fa_bench.report.tables import Column, Table


def doctor(
    peaks: Annotated[
        bool,
        typer.Option("--peaks", help="Measure the GPU's own peak FLOP/s and bandwidth, and keep them for --peaks."),
    ] = False,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Look at this machine: what fa-bench can use, what is missing and what to do.

    Exits with 1 if something is installed but does not work; something that is absent is an ordinary state.
    """
    from fa_bench.cli.peaks import measure_all, peaks_row, peaks_table
    from fa_bench.cli.probes import examine

    output = Output(fmt, quiet)
    if peaks:
        measured = measure_all(output)
        output.emit([peaks_table(found) for found in measured], [peaks_row(found) for found in measured])
        return 0
    findings = examine()
    rows = tuple((f.subject, f.state, f.detail, f.advice) for f in findings)
    columns = (Column("what"), Column("state"), Column("found"), Column("what to do"))
    output.emit([Table("", columns, rows)], [asdict(finding) for finding in findings])
    ways = [finding.subject for finding in findings if finding.state == "ok"]
    compiled = "NVRTC" in ways or "shipped PTX" in ways
    output.say(_verdict("GPU" in ways, compiled and "emulator" in ways))
    return int(any(finding.state == "broken" for finding in findings))


def _verdict(gpu: bool, emulator: bool) -> str:
    if gpu:
        return "Kernels are timed on the GPU here: fa-bench sweep."
    if emulator:
        return "Kernels run on the CPU here, and their bytes are counted: fa-bench sweep."
    return "NumPy and torch run on the CPU here, and fa-bench io-model --no-measure predicts bytes."
