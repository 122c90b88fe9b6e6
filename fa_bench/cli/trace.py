"""``fa-bench trace``: one case step by step, the algorithms side by side, right and with the usual mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fa_bench.cases import AttentionShape, Case, Tile
    from fa_bench.tracing.patches import Bug
    from fa_bench.tracing.result import Comparison, Mistake

_SHAPE = "Shape"
_KERNEL = "Kernel"
_OUTPUT = "Output"


def trace(
    seq: Annotated[
        str, typer.Option("--seq", help="Queries and keys, at most 1k.", metavar="N", rich_help_panel=_SHAPE)
    ] = "256",
    head_dim: Annotated[
        str, typer.Option("--head-dim", help="Head dimension.", metavar="N", rich_help_panel=_SHAPE)
    ] = "64",
    causal: Annotated[
        bool | None,
        typer.Option("--causal/--no-causal", help="A causal mask.", rich_help_panel=_SHAPE, show_default="no-causal"),
    ] = None,
    impl: Annotated[
        str, typer.Option("--impl", help="Algorithms, side by side.", metavar="LIST", rich_help_panel=_KERNEL)
    ] = "standard,flash1,flash2",
    dtype: Annotated[
        str, typer.Option("--dtype", help="Data type: fp16 or bf16.", metavar="TYPE", rich_help_panel=_KERNEL)
    ] = "fp16",
    block: Annotated[
        str | None,
        typer.Option(
            "--block",
            help="Tile, rows of Q by rows of K and V.",
            metavar="TILE",
            rich_help_panel=_KERNEL,
            show_default="64x64",
        ),
    ] = None,
    bug: Annotated[
        str | None,
        typer.Option(
            "--bug",
            help="Show a usual mistake: missing-rescale, missing-scale, block-mask or fp16-o.",
            metavar="NAME",
            rich_help_panel=_KERNEL,
        ),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            "--row",
            help="The row of O to follow.",
            metavar="N",
            rich_help_panel=_OUTPUT,
            show_default="one whose maximum rises often",
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option("--steps", min=0, help="Tiles to list of each algorithm.", metavar="N", rich_help_panel=_OUTPUT),
    ] = 6,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write a page to look at it in a browser.", metavar="FILE", rich_help_panel=_OUTPUT
        ),
    ] = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Follow one small case step by step: which tile is where, what it moves, and m, l and O of a row.

    Standard attention, FlashAttention-1 and FlashAttention-2 side by side, from what their kernels really do in the
    emulator. With --html a page to play with. Exits with 1 if a result or a byte is off.
    """
    from fa_bench.cli.devices import missing_emulator, shipped_only
    from fa_bench.errors import DeviceUnavailable
    from fa_bench.report.trace import step_rows, trace_document, trace_tables
    from fa_bench.tracing import patches

    output = Output(fmt, quiet)
    found = None if bug is None else patches.bug(bug)
    cases = _cases(impl, _shape(seq, head_dim, causal, found), dtype, block, found)
    _check_bug(found, [case.impl for case in cases])
    _check_row(row, cases[0])
    _check_place(html)
    if (reason := missing_emulator()) is not None:
        raise DeviceUnavailable(reason, hint="See fa-bench doctor.")
    if note := shipped_only():
        output.say(note)
    comparison = _run(output, cases, found, row)
    if comparison.mistake is not None and fmt in (Format.TABLE, Format.MD):
        output.write(_lesson(comparison.mistake, [case.impl for case in cases], fmt))
    output.emit(trace_tables(comparison, steps), step_rows(comparison), trace_document(comparison))
    if html is not None:
        _write_page(comparison, html)
        output.say(f"The page is {html}.")
    return _verdict(output, comparison)


def _shape(seq: str, head_dim: str, causal: bool | None, bug: Bug | None) -> AttentionShape:
    """One head of one batch; causal where the mistake needs it and nothing else was said."""
    from functools import partial

    from fa_bench.cases import AttentionShape
    from fa_bench.cli.axes import AxisText, parse_labelled
    from fa_bench.units import parse_int

    size = partial(parse_int, minimum=1)
    length = parse_labelled(AxisText(seq, "--seq"), size)
    dim = parse_labelled(AxisText(head_dim, "--head-dim"), size)
    return AttentionShape(1, 1, 1, length, length, dim, bug is not None and bug.causal if causal is None else causal)


def _cases(impls: str, shape: AttentionShape, dtype: str, block: str | None, bug: Bug | None) -> list[Case]:
    from fa_bench.cli.axes import AxisText, parse_dtypes, parse_labelled
    from fa_bench.cli.planning import target_gpu
    from fa_bench.errors import UsageError
    from fa_bench.tracing.run import make_case
    from fa_bench.units import parse_list

    types = parse_labelled(AxisText(dtype, "--dtype"), parse_dtypes)
    if len(types) != 1:
        raise UsageError(f"A trace has one data type, not {dtype}.")
    tile = None if block is None else parse_labelled(AxisText(block, "--block"), _tile)
    gpu = target_gpu(None, ())
    return [make_case(name, shape, types[0], tile, bug, gpu) for name in dict.fromkeys(parse_list(impls))]


def _tile(text: str) -> Tile:
    from fa_bench.cases import Tile
    from fa_bench.units import parse_tile

    return Tile(*parse_tile(text))


def _check_bug(bug: Bug | None, impls: Sequence[str]) -> None:
    """Refuse a mistake that none of the algorithms can have: there would be nothing to show."""
    from fa_bench.errors import UsageError

    if bug is not None and all(impl in bug.absent for impl in impls):
        reasons = " ".join(dict.fromkeys(bug.absent[impl] for impl in impls))
        raise UsageError(f"--bug {bug.name}: {' and '.join(impls)} can't have this mistake. {reasons}")


def _check_row(row: int | None, case: Case) -> None:
    from fa_bench.errors import UsageError

    last = case.shape.seq_q - 1
    if row is not None and not 0 <= row <= last:
        raise UsageError(f"--row: O has rows 0 to {last}, not {row}.")


def _check_place(path: Path | None) -> None:
    """Refuse a page that could not be written before anything runs."""
    from fa_bench.errors import UsageError

    reason = "" if path is None else "it is a folder" if path.is_dir() else ""
    if path is not None and not path.absolute().parent.is_dir():
        reason = "there is no such folder"
    if reason:
        raise UsageError(f"--html: {str(path)!r} can't be written: {reason}.")


def _run(output: Output, cases: Sequence[Case], bug: Bug | None, row: int | None) -> Comparison:
    from fa_bench.cli.planning import target_gpu
    from fa_bench.tracing.run import compare

    output.start_progress()
    output.progress(f"Following {', '.join(case.impl for case in cases)}")
    try:
        return compare(cases, bug, target_gpu(None, ()), row)
    finally:
        output.stop_progress()


def _lesson(mistake: Mistake, impls: Sequence[str], fmt: Format) -> str:
    """What the mistake is, and the change to each kernel that makes it."""
    import textwrap

    from fa_bench.report.trace_words import dedented

    parts = ["\n".join(textwrap.wrap(f"{mistake.name}: {mistake.title}. {mistake.lesson}", 80))]
    for impl in impls:
        if impl in mistake.absent:
            parts.append("\n".join(textwrap.wrap(mistake.absent[impl], 80)))
        else:
            diff = "\n".join(dedented(mistake.diffs[impl]))
            parts.append(f"```diff\n{diff}\n```" if fmt is Format.MD else diff)
    return "\n\n".join(parts) + "\n\n"


def _write_page(comparison: Comparison, path: Path) -> None:
    from fa_bench.errors import UsageError
    from fa_bench.report.trace_page import page

    try:
        path.write_text(page(comparison), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--html: {str(path)!r} can't be written: {error.strerror}.") from error


def _verdict(output: Output, comparison: Comparison) -> int:
    """Say which of the right runs isn't right, if any."""
    for trace in comparison.right:
        if not trace.verification.passed:
            output.warn(f"{trace.case.impl}: {trace.verification.detail}")
        if not trace.equal:
            output.warn(f"{trace.case.impl}: the bytes counted are not those predicted.")
    return int(not comparison.passed)
