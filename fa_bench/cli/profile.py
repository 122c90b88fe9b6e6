"""``fa-bench profile``: what a kernel of anybody's does, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fa_bench.cli.options import CheckOption, CountersOption, FormatOption, JobsOption, QuietOption
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fa_bench.profiling.run import Launch

_LAUNCH = "Launch"
_COMPILER = "Compiler"
_OUTPUT = "Output"


def profile(
    file: Annotated[Path, typer.Argument(help="CUDA C++ or PTX.", metavar="FILE", show_default=False)],
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel",
            help="The kernel, or an instance of a template: 'scale<64>'.",
            metavar="NAME",
            rich_help_panel=_LAUNCH,
            show_default="the only one",
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option("--grid", help="CTAs in x, y, z: 8 or 8,4.", metavar="X[,Y[,Z]]", rich_help_panel=_LAUNCH),
    ] = None,
    block: Annotated[
        str | None,
        typer.Option(
            "--block",
            help="Threads of a CTA in x, y, z.",
            metavar="X[,Y[,Z]]",
            rich_help_panel=_LAUNCH,
            show_default="__launch_bounds__, else 128",
        ),
    ] = None,
    smem: Annotated[
        str | None,
        typer.Option(
            "--smem",
            help="Dynamic shared memory of a CTA: 49152 or 48k.",
            metavar="BYTES",
            rich_help_panel=_LAUNCH,
            show_default="0",
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            help="An argument: Q=f16[1024,64], O=out:f16[1024,64], K=k.npy, n=i32=1024, scale=0.125. Repeat it.",
            metavar="NAME=SPEC",
            rich_help_panel=_LAUNCH,
        ),
    ] = None,
    args: Annotated[
        Path | None,
        typer.Option(
            "--args", help="A TOML file of arguments, and of several launches.", metavar="FILE", rich_help_panel=_LAUNCH
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="For the contents of the arrays.", metavar="N", rich_help_panel=_LAUNCH)
    ] = 0,
    define: Annotated[
        list[str] | None,
        typer.Option(
            "--define", help="A preprocessor definition. Repeat it.", metavar="NAME[=VALUE]", rich_help_panel=_COMPILER
        ),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option("--include", help="A folder of headers. Repeat it.", metavar="DIR", rich_help_panel=_COMPILER),
    ] = None,
    compiler_option: Annotated[
        list[str] | None,
        typer.Option(
            "--compiler-option",
            help="An option for NVRTC: --compiler-option=-use_fast_math. Repeat it.",
            metavar="OPTION",
            rich_help_panel=_COMPILER,
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            help="What to compile for, and whose SM to fill (see fa-bench gpus).",
            metavar="NAME",
            rich_help_panel=_COMPILER,
            show_default="a100-sxm-80",
        ),
    ] = None,
    check: CheckOption = False,
    counters: CountersOption = "global",
    jobs: JobsOption = None,
    lines: Annotated[
        int, typer.Option("--lines", min=1, help="Source lines to show.", metavar="N", rich_help_panel=_OUTPUT)
    ] = 10,
    save: Annotated[
        str | None,
        typer.Option(
            "--save", help="Keep the profile in BASE.json, for fa-bench diff.", metavar="BASE", rich_help_panel=_OUTPUT
        ),
    ] = None,
    save_output: Annotated[
        Path | None,
        typer.Option(
            "--save-output", help="Keep what the kernel wrote, as .npy.", metavar="DIR", rich_help_panel=_OUTPUT
        ),
    ] = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> None:
    """Run any kernel on the CPU and show what it does: traffic, instructions, conflicts, divergence, hot lines.

    FILE is compiled with NVRTC, or PTX as it is; no GPU is needed. Arguments go to the parameters by name.
    """
    from dataclasses import replace

    from fa_bench.cli.counters import emulators
    from fa_bench.measure.environment import usable_cpus
    from fa_bench.model import gpus
    from fa_bench.profiling import saved
    from fa_bench.profiling.api import DEFAULT_GPU, read_source
    from fa_bench.profiling.run import run
    from fa_bench.report.profile import line_rows, profile_tables

    output = Output(fmt, quiet)
    target = gpus.get(gpu or DEFAULT_GPU)
    source = read_source(file)
    launches, defines = _launches(args, arg or [], {"kernel": kernel, "grid": grid, "block": block, "smem": smem})
    source = replace(
        source,
        defines=tuple((defines | dict(map(_definition, define or ()))).items()),
        includes=tuple(folder.resolve() for folder in include or ()),
        options=tuple(compiler_option or ()),
    )
    output.start_progress()
    output.progress(f"Running {source.name}")
    try:
        profiled = run(
            source,
            launches,
            target,
            seed=seed,
            jobs=jobs or usable_cpus(),
            check=check,
            caches=emulators(counters) == "full",
        )
    finally:
        output.stop_progress()
    output.emit(profile_tables(profiled, lines), line_rows(profiled), saved.document(profiled))
    if save is not None:
        output.say(f"Kept in {saved.save(profiled, save)}.")
    if save_output is not None:
        for path in saved.save_outputs(profiled, save_output):
            output.say(f"Kept in {path}.")


def _launches(
    file: Path | None, given: Sequence[str], options: dict[str, str | None]
) -> tuple[Sequence[Launch], dict[str, str]]:
    """The launches of the file of arguments, or the one that the options describe; and the file's definitions."""
    from fa_bench.errors import UsageError
    from fa_bench.profiling.args import parse_option
    from fa_bench.profiling.launchfile import read, single_launch

    arguments = [parse_option(text) for text in given]
    if file is None:
        return [single_launch(arguments, **options)], {}
    stated = read(file, arguments)
    if not stated.launches:
        return [single_launch(tuple(stated.arguments.values()), **options)], dict(stated.defines)
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name} can't be given: {str(file)!r} says how its launches are made.")
    return stated.launches, dict(stated.defines)


def _definition(text: str) -> tuple[str, str]:
    """``NAME=VALUE``, or ``NAME`` for 1 as compilers have it."""
    from fa_bench.errors import UsageError

    name, equals, value = text.partition("=")
    if not name.isidentifier():
        raise UsageError(f"--define {text!r} is not NAME or NAME=VALUE.")
    return name, value if equals else "1"
