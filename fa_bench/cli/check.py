"""``fa-bench check``: every kernel of ours against fp64, and its counts against the model."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fa_bench.cli.options import (
    BlockOption,
    BothCausalOption,
    CheckOption,
    DirectionOption,
    FeaturesOption,
    FormatOption,
    GpuOption,
    HeadDimVOption,
    JobsOption,
    LayoutOption,
    QuietOption,
    SeqlensOption,
    StagesOption,
    WindowOption,
)
from fa_bench.cli.output import Format, Output
from fa_bench.errors import UsageError

if TYPE_CHECKING:
    from fa_bench.backends.base import Backend
    from fa_bench.model.gpu import Gpu
    from fa_bench.records import Record
    from fa_bench.sweep.plan import PlannedCase

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1
#: The grid where nothing else is asked for: one row, ragged either way, and large enough for many tiles.
DEFAULT_AXES: Final = {
    "seq": "1x1,127x300,300x127,1000x1000",
    "head_dim": "40,64,128,256",
    "batch": "1",
    "heads": "8",
    "kv_heads": "2",
    "dtype": "fp16,bf16,fp32",
    "causal": "both",
}
#: With ``--all`` beside it: backward passes, and all that is fused, on smaller shapes that are ragged either way.
_RAGGED: Final = {**DEFAULT_AXES, "seq": "65x130,130x65", "heads": "4"}
#: Scores of standard normal inputs reach about 4: only a small softcap shows in 16 bits.
_WHOLE: Final = "softcap=2+bias+alibi+sinks+dropout=0.1"
_BSHD: Final = {**_RAGGED, "seq": "65x130", "head_dim": "40", "dtype": "fp16", "layout": "bshd"}
_FP32: Final = {**_RAGGED, "seq": "65x130", "head_dim": "64", "dtype": "fp32", "impl": "standard"}
_SEQLENS: Final = "5x7,0x3,65x130,3x0,130x65"
_PACKED: Final = {axis: value for axis, value in _RAGGED.items() if axis not in ("seq", "batch")} | {
    "seqlens": _SEQLENS
}
ALL_AXES: Final = (
    DEFAULT_AXES,
    {**_RAGGED, "head_dim": "40,64,128", "direction": "bwd,fwd+bwd"},
    {
        **_RAGGED,
        "head_dim": "64",
        "dtype": "fp16,bf16",
        "window": "none,40:20,30:-",
        "features": f"none,softcap=2,bias,alibi,sinks,dropout=0.1,{_WHOLE}",
    },
    {
        **_RAGGED,
        "head_dim": "64",
        "dtype": "fp16",
        "direction": "bwd,fwd+bwd",
        "window": "none,40:20,30:-",
        "features": "none,dropout=0.1",
    },
    {**_RAGGED, "head_dim": "64,128", "head_dim_v": "96", "dtype": "fp16,bf16", "features": f"none,{_WHOLE}"},
    {
        **_PACKED,
        "head_dim": "40,64,128",
        "dtype": "fp16,bf16",
        "window": "none,40:20",
        "features": f"none,{_WHOLE}",
    },
    # What is fused in fp32 is so in standard attention alone.
    {**_FP32, "window": "none,40:20", "features": _WHOLE},
    {**_FP32, "direction": "bwd", "window": "40:20", "features": "dropout=0.1"},
    # The other layout. Rows of 40 elements begin anywhere in a sector, here at other places than above. The kernels are
    # those of the grids before, so that nothing is compiled for it.
    {**_BSHD, "direction": "fwd,bwd"},
    {**_BSHD, "window": "40:20", "features": _WHOLE},
    {**_BSHD, "direction": "bwd", "window": "40:20", "features": "dropout=0.1"},
    {**_PACKED, "head_dim": "40", "dtype": "fp16", "layout": "bshd", "features": _WHOLE},
)
#: What an option puts aside of a grid.
_INSTEAD: Final = {"seqlens": ("seq", "batch"), "seq": ("seqlens",)}
#: A multiply-add in fp32 takes the emulator about this many times as long as one on the tensor cores.
_FP32_COST: Final = 10


def check(
    ctx: typer.Context,
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq",
            help="Lengths: N for a square, QxKV where queries and keys differ.",
            metavar="LIST",
            rich_help_panel="Shape",
            show_default=DEFAULT_AXES["seq"],
        ),
    ] = None,
    head_dim: Annotated[
        str | None,
        typer.Option(
            "--head-dim",
            help="Head dimensions.",
            metavar="AXIS",
            rich_help_panel="Shape",
            show_default=DEFAULT_AXES["head_dim"],
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            "--heads",
            help="Query heads.",
            metavar="SIZE",
            rich_help_panel="Shape",
            show_default=DEFAULT_AXES["heads"],
        ),
    ] = None,
    kv_heads: Annotated[
        str | None,
        typer.Option(
            "--kv-heads",
            help="K/V heads: a divisor of the query heads.",
            metavar="SIZE",
            rich_help_panel="Shape",
            show_default=DEFAULT_AXES["kv_heads"],
        ),
    ] = None,
    causal: BothCausalOption = None,
    seqlens: SeqlensOption = None,
    window: WindowOption = None,
    features: FeaturesOption = None,
    head_dim_v: HeadDimVOption = None,
    impl: Annotated[
        str | None,
        typer.Option(
            "--impl",
            help="Kernels to check; FILE.toml for one of yours.",
            metavar="LIST",
            rich_help_panel="Kernel",
            show_default="all of ours",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="Data types.",
            metavar="LIST",
            rich_help_panel="Kernel",
            show_default=DEFAULT_AXES["dtype"],
        ),
    ] = None,
    layout: LayoutOption = None,
    direction: DirectionOption = None,
    block: BlockOption = None,
    stages: StagesOption = None,
    device: Annotated[
        str,
        typer.Option("--device", help="Where to run: auto, cuda or emulator.", metavar="NAME", rich_help_panel="Run"),
    ] = "auto",
    gpu: GpuOption = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Backward passes, windows and all that is fused too, on smaller shapes.",
            rich_help_panel="Run",
        ),
    ] = False,
    checks: CheckOption = False,
    jobs: JobsOption = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Run every kernel of ours on a grid of shapes and check its result and its bytes.

    Every element of the output stands against fp64, with a bound that follows from the number format; the bytes
    that the emulator counts stand against the model. Exits with 1 on a failure.
    """
    from fa_bench.cli.devices import opened, shipped_only
    from fa_bench.cli.planning import target_gpu
    from fa_bench.report.check import check_rows, check_tables
    from fa_bench.report.records import failures

    output = Output(fmt, quiet)
    grids = ALL_AXES if everything else (DEFAULT_AXES,)
    with opened(device, jobs=jobs, kernels_only=True, all_slices=True, checks=checks) as backends:
        if backends[0].name == "emulator" and (note := shipped_only()):
            output.say(note)
        target = target_gpu(gpu, backends)
        cells = dict.fromkeys(cell for grid in grids for cell in _plan(ctx.params, grid, backends, target))
        planned = sorted(cells, key=_cost)
        records = _run(output, planned, backends[0], target)
    if all(record.status in ("unsupported", "skipped") for record in records):
        reasons = [record.status_reason for record in records if record.status_reason]
        raise UsageError(
            f"Nothing could be checked. {reasons[0] if reasons else 'No kernel of ours was made for this.'}"
        )
    failed = failures(records)
    document = {"schema": SCHEMA, "passed": not failed, "records": [asdict(record) for record in records]}
    output.emit(check_tables(records), check_rows(records), document)
    output.say(f"{len(records)} cases, {len(failed)} failed.")
    return int(bool(failed))


def _plan(
    options: Mapping[str, Any], grid: Mapping[str, str], backends: Sequence[Backend], target: Gpu
) -> Iterator[PlannedCase]:
    """The cases of a grid over which the options were laid, less those that a kernel was not made for."""
    from fa_bench import algorithms
    from fa_bench.cli.axes import merge_axes, parse_pairs, sweep_request
    from fa_bench.cli.planning import resolved
    from fa_bench.sweep.plan import plan

    given = {axis: value for axis, value in options.items() if value is not None}
    if "heads" in given:
        given.setdefault("kv_heads", given["heads"])
    axes = {axis: value for axis, value in grid.items() if not any(axis in _INSTEAD.get(other, ()) for other in given)}
    axes |= given
    if "seq" in axes:
        base = sweep_request(merge_axes({**axes, "seq": "1"}), backends[0].name, target.slug)
        pairs = parse_pairs(axes["seq"])
        requests = [replace(base, seqs=(seq_q,), seqs_kv=(seq_kv,)) for seq_q, seq_kv in pairs]
    else:
        requests = [sweep_request(merge_axes(axes), backends[0].name, target.slug)]
    for request in (resolved(request, backends) for request in requests):
        for cell in plan(request, backends, target).cases:
            if options.get("impl") or not algorithms.lacking(cell.case, algorithms.find(cell.case.impl)):
                yield cell


def _cost(planned: PlannedCase) -> int:
    shape = planned.case.shape
    pairs = sum(times * sequence.seq_q * sequence.seq_kv for sequence, times in shape.by_length())
    return shape.heads_q * pairs * shape.head_dim * (_FP32_COST if planned.case.dtype == "fp32" else 1)


def _run(output: Output, planned: Sequence[PlannedCase], backend: Backend, target: Gpu) -> list[Record]:
    """Run the cases; a failure is shown as it happens."""
    from fa_bench.cli.eta import Eta
    from fa_bench.report.names import case_name
    from fa_bench.report.records import failures
    from fa_bench.sweep.build import Site
    from fa_bench.sweep.case import run_case
    from fa_bench.sweep.predict import predict
    from fa_bench.units import format_duration

    eta = Eta(tuple(cell.case for cell in planned if cell.status == "run"))
    records = []
    output.start_progress()
    try:
        for number, cell in enumerate(planned):
            left = eta.seconds_left()
            name = case_name(cell.case)
            about = "" if left is None else f", about {format_duration(left)} left"
            status = f"{number}/{len(planned)} done{about}; {name.impl}, {name.shape()}"
            output.progress(status, milestone=number % math.ceil(len(planned) / 10) == 0)
            start = time.monotonic()
            site = Site("check", datetime.now(UTC), cell.backend, backend.device, target)
            record = run_case(cell, backend, site, predict).record
            if cell.status == "run":
                eta.finished(cell.case, time.monotonic() - start)
            records.append(record)
            for sentence in failures([record]):
                output.warn(f"FAIL {sentence}")
    finally:
        output.stop_progress()
    return records
