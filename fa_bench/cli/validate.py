"""``fa-bench validate``: what hardware counters said, beside what is counted here."""

from __future__ import annotations

from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, JobsOption, QuietOption
from fa_bench.cli.output import Format, Output


def validate(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Whose figures: ncu-traffic, gb10; all if none is named.", metavar="SOURCE"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The shortest cases only, in seconds.")] = False,
    jobs: JobsOption = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Hold the emulator's counts against published hardware counters.

    Runs the cases whose counters were published, counts global, L2 and DRAM bytes, and shows each residual with what
    explains it. Exits with 1 if global reads differ, if L2 reads are off by more than 4 %, or if sectors at L2 are not
    accounted for.
    """
    from fa_bench.backends import spills
    from fa_bench.cli.devices import missing_emulator, opened
    from fa_bench.errors import DeviceUnavailable
    from fa_bench.report.validation import document, flat_rows, tables
    from fa_bench.validation.run import Runner
    from fa_bench.validation.sources import SOURCES, chosen

    output = Output(fmt, quiet)
    names = chosen(sources or ())
    if (reason := missing_emulator()) is not None:
        raise DeviceUnavailable(reason, hint="See fa-bench doctor.")
    done = []
    with opened("emulator", jobs=jobs, counters="full") as backends:
        output.start_progress()
        try:
            runner = Runner(backends[0], output.progress, spills.dram_bytes)
            for name in names:
                done.append(SOURCES[name](runner, quick))
                if fmt is Format.TABLE:
                    output.emit(tables(done[-1]), [])
                    output.write("\n")
        finally:
            output.stop_progress()
    if fmt is not Format.TABLE:
        output.emit([table for found in done for table in tables(found)], flat_rows(done), document(done))
    failures = [failure for found in done for failure in found.failures]
    for failure in failures:
        output.warn(failure)
    return int(bool(failures))
