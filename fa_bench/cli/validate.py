"""``fa-bench validate``: what others published, beside what is predicted and counted here."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from fa_bench.cli.options import FormatOption, JobsOption, QuietOption
from fa_bench.cli.output import Format, Output


def validate(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Whose figures: fa1-figure2, fa1-memory, fa1-runtimes, times, held-out, ncu-traffic, gb10; "
            "all if none given.",
            metavar="SOURCE",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run the shortest cases only, in seconds.")] = False,
    jobs: JobsOption = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Hold predictions and counts against published figures.

    FlashAttention's Figure 2, its runtimes and memory, and the times that others published stand beside what the models
    predict. Hardware counters stand beside what the emulator counts of the same cases; these exit with 1 if global
    reads differ, if L2 reads are off by more than 4 %, or if sectors at L2 are not accounted for.
    """
    from fa_bench.backends import spills
    from fa_bench.cli.devices import missing_emulator, opened
    from fa_bench.errors import DeviceUnavailable, FaBenchError
    from fa_bench.prediction import predict_time
    from fa_bench.report.validation import document, flat_rows, overview, tables
    from fa_bench.validation.run import Runner
    from fa_bench.validation.sources import SOURCES, Tools, chosen

    output = Output(fmt, quiet)
    names = chosen(sources or ())
    reason = missing_emulator() if any(SOURCES[name].runs for name in names) else None
    if reason is not None:
        if sources:
            raise DeviceUnavailable(reason, hint="See fa-bench doctor.")
        without = [name for name in names if SOURCES[name].runs]
        output.warn(f"Left out: {', '.join(without)}. {reason}")
        names = [name for name in names if name not in without]
    done, broken = [], []
    with contextlib.ExitStack() as stack:
        made: list[Runner] = []

        def runner() -> Runner:
            if not made:
                backends = stack.enter_context(opened("emulator", jobs=jobs, counters="full"))
                made.append(Runner(backends[0], output.progress, spills.dram_bytes))
            return made[0]

        tools = Tools(predict_time, runner, quick)
        output.start_progress()
        try:
            for name in names:
                try:
                    done.append(SOURCES[name].validate(tools))
                except FaBenchError as error:  # the other sources are worth having
                    broken.append(f"{name}: {error.message} {error.hint}".strip())
                    continue
                if fmt is Format.TABLE:
                    output.emit(tables(done[-1]), [])
                    output.write("\n")
        finally:
            output.stop_progress()
    if fmt is Format.TABLE:
        output.emit([overview(done)], [])
    else:
        shown = [table for found in done for table in tables(found)]
        output.emit(shown, flat_rows(done), document(done))
    failures = [*broken, *(failure for found in done for failure in found.failures)]
    for failure in failures:
        output.warn(failure)
    return int(bool(failures))
