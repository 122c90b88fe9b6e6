"""``fa-bench mutate``: drop one barrier, wait, mask or predicate of a kernel at a time, and see what notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fa_bench.cli.options import BothCausalOption, FormatOption, GpuOption, QuietOption
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fa_bench.cases import Case
    from fa_bench.model.gpu import Gpu
    from fa_bench.mutation.result import Kind, Outcome
    from fa_bench.sweep.plan import PlannedCase

#: Ragged either way by a few rows, so that most of a last tile is missing; more keys than queries, and fewer, so that
#: whole tiles see no key, or some of their rows; fewer keys than a tile has; nothing ragged; few rows, but long ones,
#: for every build of standard attention's softmax that differs in kind, the one that loops over a row among them.
DEFAULT_AXES: Final = {
    "seq": "35x67,67x35,67x45,35x5,64,3x300,3x1300,1x16500",
    "head_dim": "40,64",
    "batch": "1",
    "heads": "2",
    "kv_heads": "1",
    "dtype": "fp16",
    "causal": "both",
    "stages": "1,2",
}
#: Tile of our kernels: small, so that mutants compile quickly, and for two warps, so that barriers matter.
DEFAULT_BLOCK: Final = "32x16"
_SHAPE: Final = "Shape"
_KERNEL: Final = "Kernel"
_RUN: Final = "Run"


def mutate(
    ctx: typer.Context,
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq",
            help="Lengths: N for a square, QxKV where queries and keys differ.",
            metavar="LIST",
            rich_help_panel=_SHAPE,
            show_default=DEFAULT_AXES["seq"],
        ),
    ] = None,
    head_dim: Annotated[
        str | None,
        typer.Option(
            "--head-dim",
            help="Head dimensions.",
            metavar="AXIS",
            rich_help_panel=_SHAPE,
            show_default=DEFAULT_AXES["head_dim"],
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            "--heads", help="Query heads.", metavar="SIZE", rich_help_panel=_SHAPE, show_default=DEFAULT_AXES["heads"]
        ),
    ] = None,
    kv_heads: Annotated[
        str | None,
        typer.Option(
            "--kv-heads",
            help="K/V heads: a divisor of the query heads.",
            metavar="SIZE",
            rich_help_panel=_SHAPE,
            show_default=DEFAULT_AXES["kv_heads"],
        ),
    ] = None,
    causal: BothCausalOption = None,
    impl: Annotated[
        str | None,
        typer.Option(
            "--impl",
            help="Kernels to mutate; FILE.toml for one of yours.",
            metavar="LIST",
            rich_help_panel=_KERNEL,
            show_default="all of ours",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="Data types.",
            metavar="LIST",
            rich_help_panel=_KERNEL,
            show_default=DEFAULT_AXES["dtype"],
        ),
    ] = None,
    block: Annotated[
        str | None,
        typer.Option(
            "--block",
            help="Tiles, rows of Q by rows of K/V: 64x64,128x64, or auto.",
            metavar="LIST",
            rich_help_panel=_KERNEL,
            show_default=f"{DEFAULT_BLOCK}; a file's own",
        ),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            "--stages",
            help="Depths of the K/V buffering: 1, 2, or auto.",
            metavar="LIST",
            rich_help_panel=_KERNEL,
            show_default=DEFAULT_AXES["stages"],
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="What to drop: barrier, wait, mask, predicate.",
            metavar="LIST",
            rich_help_panel=_RUN,
            show_default="all four",
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--every", help="Mutate each copy that the compiler made of a statement.", rich_help_panel=_RUN),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="At most N mutants, evenly spread.", metavar="N", rich_help_panel=_RUN),
    ] = None,
    checks: Annotated[
        bool,
        typer.Option("--checks/--no-checks", help="Let the emulator's checks look at them.", rich_help_panel=_RUN),
    ] = True,
    gpu: GpuOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes.", metavar="N", rich_help_panel=_RUN, show_default="all cores"),
    ] = None,
    every_row: Annotated[
        bool, typer.Option("--list", help="Show every mutant, caught ones too.", rich_help_panel="Output")
    ] = False,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Drop one barrier, wait, mask or predicate of a kernel at a time, and see which mutants are caught.

    A mutation test: would your cases notice? Each mutant runs in the emulator over small cases. Its checks, a fault,
    the result against fp64 or the bytes against the model catch it, or nothing does. Exits with 1 if a mutant that
    changed something was not caught.
    """
    from fa_bench.cli.app import INTERRUPTED
    from fa_bench.cli.devices import missing_emulator, shipped_only
    from fa_bench.errors import DeviceUnavailable
    from fa_bench.measure.environment import usable_cpus
    from fa_bench.mutation.run import Request, own_files, run
    from fa_bench.report.mutation import counted, mutation_document, mutation_rows, mutation_tables

    output = Output(fmt, quiet)
    kinds = _kinds(only)
    if (reason := missing_emulator()) is not None:
        raise DeviceUnavailable(reason, hint="See fa-bench doctor.")
    target, cases, refused = cases_of(ctx.params)
    for why in refused:
        output.say(f"Left out: {why}")
    if note := shipped_only():
        output.say(note)
    files = own_files(list(dict.fromkeys(case.impl for case in cases)))
    request = Request(tuple(cases), target, kinds, every, limit, checks, files)
    output.start_progress()
    try:
        test = run(request, jobs or usable_cpus(), lambda text, outcome: _announce(output, text, outcome))
    finally:
        output.stop_progress()
    output.emit(mutation_tables(test, every_row), mutation_rows(test), mutation_document(test))
    output.say(counted(test))
    return INTERRUPTED if test.interrupted else int(bool(test.missed))


def _kinds(text: str | None) -> tuple[Kind, ...]:
    from fa_bench.cli.axes import AxisText, parse_labelled
    from fa_bench.errors import UsageError, nearest
    from fa_bench.mutation.result import KINDS
    from fa_bench.units import parse_list

    if text is None:
        return KINDS
    words = parse_labelled(AxisText(text, "--only"), parse_list)
    for word in words:
        if word not in KINDS:
            raise UsageError(f"--only: {word!r} is none of {', '.join(KINDS)}.", hint=nearest(word, KINDS))
    return tuple(kind for kind in KINDS if kind in words)


def cases_of(options: Mapping[str, Any]) -> tuple[Gpu, list[Case], list[str]]:
    """The target, the cases to try mutants on, each program once, and why others can't run.

    Parameters
    ----------
    options : mapping
        Those of the command that are axes, ``impl`` and ``gpu`` among them; what is missing has its default.

    Raises
    ------
    UsageError
        If an implementation has no case.
    """
    from fa_bench import algorithms
    from fa_bench.cli.planning import target_gpu
    from fa_bench.errors import UsageError
    from fa_bench.units import parse_list

    target = target_gpu(options.get("gpu"), ())
    cases: dict[object, Case] = {}
    refused: dict[str, None] = {}
    for name in parse_list(options.get("impl") or ",".join(algorithms.names("fwd"))):
        planned = list(_planned(name, options, target))
        reasons = dict.fromkeys(cell.reason for cell in planned if cell.status != "run")
        if all(cell.status != "run" for cell in planned):
            raise UsageError(f"{name} has no case to mutate: {next(iter(reasons))}")
        refused |= reasons
        for cell in planned:
            if cell.status == "run":
                program = algorithms.get(cell.case.impl).program(cell.case)
                cases.setdefault((program, cell.case.shape, cell.case.dtype), cell.case)
    return target, list(cases.values()), list(refused)


def _planned(name: str, options: Mapping[str, Any], target: Gpu) -> Iterator[PlannedCase]:
    from dataclasses import replace

    from fa_bench.cli.axes import merge_axes, parse_pairs, sweep_request
    from fa_bench.cli.planning import ModelOnly, resolved
    from fa_bench.sweep.plan import plan

    given = {axis: value for axis, value in options.items() if value is not None} | {"impl": name}
    if "heads" in given:
        given.setdefault("kv_heads", given["heads"])
    if not name.endswith(".toml"):
        given.setdefault("block", DEFAULT_BLOCK)
    base = sweep_request(merge_axes({**DEFAULT_AXES, **given, "seq": "1"}), "emulator", options.get("gpu"))
    backends = (ModelOnly(),)
    for seq_q, seq_kv in parse_pairs(options.get("seq") or DEFAULT_AXES["seq"]):
        request = resolved(replace(base, seqs=(seq_q,), seqs_kv=(seq_kv,)), backends)
        yield from plan(request, backends, target).cases


def _announce(output: Output, text: str, outcome: Outcome | None) -> None:
    """The status line, a milestone now and then, and at once a mutant that nothing noticed."""
    if outcome is not None and outcome.verdict == "missed":
        mutant = outcome.mutant
        output.warn(f"MISSED {outcome.kernel}, {mutant.source or f'PTX line {mutant.line}'}, {mutant.instruction!r}: "
                    f"{mutant.action}; {outcome.sentence}.")  # fmt: skip
    number = text.partition("/")[0]
    milestone = outcome is None or (number.isdigit() and int(number) % 50 == 0)
    output.progress(text, milestone=milestone)
