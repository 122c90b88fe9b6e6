"""``fa-bench tune``: every tile that a GPU can run, what is known of each, and which to take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fa_bench.cli.options import FormatOption, GpuOption, QuietOption, file, folder
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from fa_bench.backends.base import Backend
    from fa_bench.cases import Case
    from fa_bench.model.gpu import Gpu
    from fa_bench.records import Record
    from fa_bench.sweep.plan import SweepRequest
    from fa_bench.tuning.counts import Trial
    from fa_bench.tuning.result import Tuning
    from fa_bench.tuning.run import DramCounter, Timer, Tryer

_DEFAULTS: Final = {"seq": "4k", "head_dim": "64", "impl": "flash2", "dtype": "fp16"}
_SHAPE: Final = "Shape"
_KERNEL: Final = "Kernel"
_RUN: Final = "Run"
_OUTPUT: Final = "Output"
_COUNTERS: Final = ("global", "full")
#: Columns of a terminal.
_WIDTH: Final = 80


def tune(
    ctx: typer.Context,
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq",
            help="Sequence length; k is 1024.",
            metavar="N",
            rich_help_panel=_SHAPE,
            show_default=_DEFAULTS["seq"],
        ),
    ] = None,
    head_dim: Annotated[
        str | None,
        typer.Option(
            "--head-dim",
            help="Head dimension: a multiple of 8 up to 256.",
            metavar="N",
            rich_help_panel=_SHAPE,
            show_default=_DEFAULTS["head_dim"],
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", help="Batch size.", metavar="SIZE", rich_help_panel=_SHAPE, show_default="16k tokens"),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option("--heads", help="Heads.", metavar="SIZE", rich_help_panel=_SHAPE, show_default="hidden 2048"),
    ] = None,
    causal: Annotated[
        str | None,
        typer.Option("--causal", help="A causal mask.", metavar="", rich_help_panel=_SHAPE, show_default="no mask"),
    ] = None,
    impl: Annotated[
        str | None,
        typer.Option(
            "--impl",
            help="Implementation: flash1 or flash2.",
            metavar="NAME",
            rich_help_panel=_KERNEL,
            show_default=_DEFAULTS["impl"],
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="Data type: fp16, bf16 or fp32.",
            metavar="TYPE",
            rich_help_panel=_KERNEL,
            show_default=_DEFAULTS["dtype"],
        ),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            "--stages",
            help="Depths of the K/V buffering that are tried.",
            metavar="LIST",
            rich_help_panel=_KERNEL,
            show_default="1,2",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option("--device", help="Where to run: auto, cuda or emulator.", metavar="NAME", rich_help_panel=_RUN),
    ] = "auto",
    gpu: GpuOption = None,
    counters: Annotated[
        str,
        typer.Option(
            "--counters",
            help="full: count DRAM bytes of the recommendation and the rules too; a minute or so each.",
            metavar="global|full",
            rich_help_panel=_RUN,
        ),
    ] = "global",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            help="Processes that run tiles in the emulator.",
            metavar="N",
            rich_help_panel=_RUN,
            show_default="all cores",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=folder,
            help="Write tiles.csv, tune.json, tune.html and tune.svg into this folder.",
            metavar="DIR",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", parser=file, help="Write the page with the maps.", metavar="FILE", rich_help_panel=_OUTPUT
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png",
            parser=file,
            help="Write the maps as one picture; takes rsvg-convert (librsvg).",
            metavar="FILE",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Try every tile that a GPU can run, and recommend one, with the reason.

    Each tile is run on small cases in the emulator: is it right, what does it count, what did the compiler give it.
    On a GPU the times decide; without one they are predicted. Beside it stand the tiles that rules would choose.
    Exits with 1 if a tile is wrong.
    """
    from fa_bench.cli.app import INTERRUPTED
    from fa_bench.cli.devices import opened, shipped_only
    from fa_bench.cli.pictures import check_file, make_folder, rasteriser
    from fa_bench.cli.planning import target_gpu
    from fa_bench.report.tune import tune_document, tune_rows
    from fa_bench.tuning import run

    output = Output(fmt, quiet)
    program = None if png is None else rasteriser("--out writes the maps as SVG without it.")
    for option, path in (("--html", html), ("--png", png)):
        if path is not None:
            check_file(path, option)
    request = _request(ctx.params)
    with opened(device, jobs=jobs, kernels_only=True) as backends:
        target = target_gpu(gpu, backends)
        asked = _question(request, backends, target)
        if out is not None:
            make_folder(out, "--out")
        if note := shipped_only():
            output.say(note)
        timer = _timer(backends[0], target) if backends[0].name == "cuda" else None
        output.start_progress()
        try:
            tuning = run.tune(
                asked,
                _tryer(backends[0], target, jobs),
                timer,
                lambda text: _announce(output, text),
                _dram_counter(counters, target, jobs),
            )
        finally:
            output.stop_progress()
    _show(output, tuning)
    output.emit(_tables(output, tuning), tune_rows(tuning), tune_document(tuning), _header(tuning))
    _write(output, tuning, ctx.obj, out, html, png, program)
    return INTERRUPTED if tuning.interrupted else int(bool(tuning.wrong))


def _request(options: Mapping[str, Any]) -> SweepRequest:
    """The options as axes of one value each, and the papers' batch and heads where none are given."""
    from fa_bench.cli.axes import merge_axes, sweep_request
    from fa_bench.cli.planning import with_papers_sizes
    from fa_bench.errors import UsageError

    given = {axis: value for axis, value in options.items() if value is not None}
    request = sweep_request(merge_axes({**_DEFAULTS, **given}), "auto", options.get("gpu"))
    axes = {"--seq": request.seqs, "--batch": request.batches or (1,), "--heads": request.heads or (1,),
            "--kv-heads": request.heads_kv or (1,), "--head-dim": request.head_dims, "--impl": request.impls,
            "--dtype": request.dtypes, "--causal": request.causal}  # fmt: skip
    for option, values in axes.items():
        if len(set(values)) != 1:
            raise UsageError(f"{option}: tune takes one value, not {len(set(values))}.")
    return with_papers_sizes(request)


def _question(request: SweepRequest, backends: Sequence[Backend], target: Gpu) -> Any:
    from fa_bench import algorithms
    from fa_bench.cases import Case
    from fa_bench.cli.planning import resolved
    from fa_bench.errors import UsageError
    from fa_bench.tuning.run import question

    (impl,) = resolved(request, backends).impls if request.impls != ("auto",) else request.impls
    algorithm = algorithms.find(impl)
    if algorithm is None:
        raise UsageError(f"--impl: {impl!r} has no tile of ours to choose.", hint="tune takes flash1 or flash2.")
    (shape,) = request.shapes()
    bare = Case(impl, shape, request.dtypes[0], content=algorithms.content_of(impl))
    return question(bare, algorithm, target, request.stages or (1, 2))


def _tryer(backend: Backend, target: Gpu, jobs: int | None) -> Tryer:
    """Trials in the emulator, in processes unless one is asked for; on the GPU where there is no emulator."""
    from fa_bench import algorithms
    from fa_bench.cli.devices import missing_emulator, opened
    from fa_bench.measure.environment import usable_cpus
    from fa_bench.tuning.counts import trial
    from fa_bench.tuning.processes import trials

    def on(device: Backend, cases: Sequence[Case]) -> Generator[Trial, None, None]:
        return (trial(case, algorithms.get(case.impl), device, target) for case in cases)

    def here(cases: Sequence[Case]) -> Generator[Trial, None, None]:
        with opened("emulator", jobs=1) as (emulator,):
            yield from on(emulator, cases)

    if missing_emulator() is not None:
        return lambda cases: on(backend, cases)
    workers = jobs or usable_cpus()
    return here if workers == 1 else lambda cases: trials(cases, target, workers)


def _timer(backend: Backend, target: Gpu) -> Timer:
    """Rows of cases that ran in turns on the GPU, checked as those of a sweep are."""
    from datetime import UTC, datetime

    from fa_bench.sweep.build import Site
    from fa_bench.sweep.case import run_group
    from fa_bench.sweep.plan import PlannedCase
    from fa_bench.sweep.predict import predict

    def timed(cases: Sequence[Case]) -> list[Record]:
        site = Site("tune", datetime.now(UTC), backend.name, backend.device, target)
        group = [PlannedCase(case, backend.name) for case in cases]
        return [rows.record for rows in run_group(group, backend, site, predict)]

    return timed


def _dram_counter(counters: str, target: Gpu, jobs: int | None) -> DramCounter | None:
    """Counts what L2 and DRAM see of a case, if that was asked for."""
    from fa_bench.cli.devices import opened
    from fa_bench.errors import UsageError, nearest

    if counters not in _COUNTERS:
        raise UsageError(f"--counters: there is no {counters!r}.", hint=nearest(counters, _COUNTERS))
    if counters == "global":
        return None

    def dram_bytes(case: Case) -> int:
        with opened("emulator", jobs=jobs, counters="full") as (emulator,):
            counts = emulator.run(case, target).counts
        assert counts is not None, "the emulator always counts"
        return sum(part.bytes for part in counts.traffic["dram"])

    return dram_bytes


def _announce(output: Output, text: str) -> None:
    number = text.partition("/")[0]
    output.progress(text, milestone=not number.isdigit() or int(number) % 10 == 0, clock_goes_on=True)


def _show(output: Output, tuning: Tuning) -> None:
    """The recommendation in words, before the tables."""
    import textwrap

    from fa_bench.report.tune import reasons

    said = reasons(tuning)
    if output.fmt is Format.TABLE:
        output.write("\n".join(textwrap.fill(sentence, _WIDTH) for sentence in said) + "\n\n")
    elif output.fmt is Format.MD:
        output.write("\n".join(f"- {sentence}" for sentence in said) + "\n\n")
    elif tuning.interrupted:
        output.warn(said[0])


def _tables(output: Output, tuning: Tuning) -> Sequence[Any]:
    from fa_bench.report.tune import tune_tables

    return tune_tables(tuning) if output.fmt in (Format.TABLE, Format.MD) else ()


def _header(tuning: Tuning) -> tuple[str, ...]:
    from fa_bench.report.tune import tune_rows

    return tuple(tune_rows(tuning)[0])


def _write(
    output: Output,
    tuning: Tuning,
    argv: Sequence[str],
    out: Path | None,
    html: Path | None,
    png: Path | None,
    program: str | None,
) -> None:
    """The files that were asked for."""
    import shlex

    from fa_bench.cli.pictures import write_png, write_text
    from fa_bench.report.export import csv_text, json_text
    from fa_bench.report.tune import tune_document, tune_rows
    from fa_bench.report.tune_page import tune_page, tune_picture

    command = f"fa-bench {shlex.join(argv)}"
    if out is not None:
        files = {
            "tiles.csv": csv_text(tune_rows(tuning), _header(tuning)),
            "tune.json": json_text(tune_document(tuning)),
            "tune.html": tune_page(tuning, command),
            "tune.svg": tune_picture(tuning),
        }
        for name, text in files.items():
            write_text(out / name, text, "--out")
        output.say(f"{', '.join(files)} are in {out}.")
    if html is not None:
        write_text(html, tune_page(tuning, command), "--html")
        output.say(f"The page is {html}.")
    if png is not None and program is not None:
        write_png(program, tune_picture(tuning), png, zoom=2)
        output.say(f"The picture is {png}.")
