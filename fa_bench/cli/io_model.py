"""``fa-bench io-model``: the bytes of each tensor, predicted and counted."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fa_bench.cli.options import (
    BatchOption,
    BlockOption,
    CausalOption,
    ConfigOption,
    CountersOption,
    DirectionOption,
    DtypeOption,
    FeaturesOption,
    FormatOption,
    GpuOption,
    HeadDimOption,
    HeadDimVOption,
    HeadsOption,
    HiddenOption,
    ImplOption,
    JobsOption,
    KvHeadsOption,
    LayoutOption,
    PeaksOption,
    QuietOption,
    RequireCountersOption,
    SeqlensOption,
    SeqOption,
    StagesOption,
    TokensOption,
    WindowOption,
)
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fa_bench.backends.base import Backend, BackendName
    from fa_bench.model.gpu import Gpu
    from fa_bench.model.peaks import MeasuredPeaks
    from fa_bench.report.case_traffic import CaseTraffic
    from fa_bench.report.tables import Table
    from fa_bench.sweep.build import Predictor
    from fa_bench.sweep.plan import SweepPlan, SweepRequest

#: With more cases than this a table, or a row, per tensor is no longer read.
_MANY_CASES: Final = 10_000


def io_model(
    ctx: typer.Context,
    seq: SeqOption = None,
    seqlens: SeqlensOption = None,
    head_dim: HeadDimOption = None,
    batch: BatchOption = None,
    heads: HeadsOption = None,
    kv_heads: KvHeadsOption = None,
    tokens: TokensOption = None,
    hidden: HiddenOption = None,
    causal: CausalOption = None,
    window: WindowOption = None,
    features: FeaturesOption = None,
    head_dim_v: HeadDimVOption = None,
    impl: ImplOption = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    direction: DirectionOption = None,
    block: BlockOption = None,
    stages: StagesOption = None,
    config: ConfigOption = None,
    gpu: GpuOption = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Count bytes by executing the kernels, or only predict.")
    ] = True,
    per: Annotated[
        str | None,
        typer.Option(
            "--per",
            help="Rows of CSV: one per tensor, or with --no-measure one per case, a million of them in seconds.",
            metavar="tensor|case",
            show_default="tensor; case for a CSV of more than 10,000 cases without measuring",
        ),
    ] = None,
    dram: Annotated[
        bool,
        typer.Option("--dram", help="With --per case: DRAM bytes and rooflines too, up to 0.1 ms for each case."),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print how the prediction comes about, for the first shape.")
    ] = False,
    counters: CountersOption = "global",
    require_counters: RequireCountersOption = False,
    sram: Annotated[
        str | None,
        typer.Option(
            "--sram",
            help="M of the papers' formulas, at least 1 KiB: 163k, 192KiB.",
            metavar="BYTES",
            show_default="shared memory of a CTA",
        ),
    ] = None,
    peaks: PeaksOption = "datasheet",
    interval: Annotated[
        bool,
        typer.Option("--interval", help="Between which limits DRAM bytes lie; implies --counters full."),
    ] = False,
    jobs: JobsOption = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Compare the global-memory bytes that the model predicts with those that the kernels move.

    Per case a table: tensor, direction, predicted, counted, difference; then totals of each implementation beside
    its paper's formula, and what theory says for that much on-chip memory (--sram). With --counters ncu the kernels
    run on the GPU, and a table holds what its hardware counters say of each level beside the other sources. Exits with
    1 if a byte that was emulated differs.
    """
    from fa_bench.cli.axes import merge_axes, sweep_request
    from fa_bench.cli.counters import advice, demand_ncu, parsed, uncounted
    from fa_bench.cli.devices import missing_emulator, shipped_only
    from fa_bench.cli.peaks import roofline_peaks
    from fa_bench.cli.planning import ModelOnly, resolved, target_gpu
    from fa_bench.errors import DeviceUnavailable, UsageError
    from fa_bench.report.io_model import document, flat_rows, theory_tables, totals_tables
    from fa_bench.sweep.plan import plan

    output = Output(fmt, quiet)
    sram_bytes = None if sram is None else _sram_bytes(sram)
    asked = parsed(counters)
    if require_counters:
        demand_ncu(counters)
    model_only = (ModelOnly(),)
    request = resolved(sweep_request(merge_axes(ctx.params, config), "emulator", gpu), model_only)
    if explain:
        _explain(output, plan(request, model_only, target_gpu(gpu, model_only)), sram_bytes)
        return 0
    if not measure and (interval or counters != "global"):
        option = "--interval" if interval else f"--counters {counters}"
        raise UsageError(f"--no-measure counts nothing, and {option} asks for counts.", "Leave one of them out.")
    if _per_case(output, per, measure, request, dram):
        target = target_gpu(gpu, model_only)
        return _grid(output, request, target, sram_bytes, _predictor(output, target, peaks, dram))
    if measure and not asked.ncu and (reason := missing_emulator()) is not None:
        raise DeviceUnavailable(reason, hint="--no-measure predicts without it; see also fa-bench doctor.")
    if measure and not asked.ncu and (note := shipped_only()):
        output.say(note)
    if interval:
        counters = "ncu,full" if asked.ncu else "full"
    cases: list[CaseTraffic] = []
    with _backends(measure, jobs, counters, interval) as backends:
        planning = backends if asked.ncu else model_only
        made = plan(request, planning, target_gpu(gpu, planning))
        measured = roofline_peaks(peaks, made.gpu, planning, output)
        for case in _run(output, made, backends, measured):
            if fmt is Format.TABLE:
                for table in _tables(case):
                    output.emit([table], [])
                    output.write("\n")
            cases.append(case)
    totals = (*totals_tables(cases), *theory_tables(cases, sram_bytes))
    tables = totals if fmt is Format.TABLE else [*(table for case in cases for table in _tables(case)), *totals]
    output.emit(tables, flat_rows(cases, sram_bytes), document(cases, sram_bytes))
    for sentence in advice(backends):
        output.warn(sentence)
    missing = uncounted(case.record for case in cases) if require_counters else 0
    return _verdict(output, cases) or int(missing > 0)


def _per_case(output: Output, per: str | None, measure: bool, request: SweepRequest, dram: bool) -> bool:
    """Whether rows are cases: as asked, or because there are very many of them."""
    from fa_bench.errors import UsageError
    from fa_bench.grid.plan import case_count

    if per not in (None, "tensor", "case"):
        raise UsageError(f"--per: {per!r} is neither tensor nor case.")
    possible = not measure and output.fmt is Format.CSV
    if per == "case" and not possible:
        raise UsageError("--per case is for predictions as CSV.", "Add --no-measure --format csv.")
    many = per is None and not measure and case_count(request, len(request.impls)) > _MANY_CASES
    if many and possible:
        output.say(f"More than {_MANY_CASES:,} cases: one row per case; --per tensor has one per tensor.")
    elif many:
        output.say(f"More than {_MANY_CASES:,} cases, one by one: --format csv has a row per case in seconds.")
        many = False
    if dram and not many and per != "case":
        raise UsageError("--dram adds columns to the rows of --per case.", "Add --per case --no-measure --format csv.")
    if (many or per == "case") and not dram:
        output.say("Global bytes only; DRAM bytes and rooflines come with --dram, and take far longer.")
    return many or per == "case"


def _predictor(output: Output, gpu: Gpu, peaks: str, dram: bool) -> Predictor:
    """What is predicted of a grid's cases."""
    from fa_bench.cli.peaks import roofline_peaks
    from fa_bench.cli.planning import ModelOnly
    from fa_bench.sweep.predict import predict, predict_global

    return partial(predict, peaks=roofline_peaks(peaks, gpu, (ModelOnly(),), output)) if dram else predict_global


def _grid(output: Output, request: SweepRequest, gpu: Gpu, sram_bytes: int | None, predictor: Predictor) -> int:
    """Predict all cases at a time, and write each block's rows before the next one is predicted."""
    from fa_bench.cli.planning import ModelOnly
    from fa_bench.grid.predict import blocks
    from fa_bench.report import grid
    from fa_bench.report.papers import sram_of

    output.write(grid.header())
    output.start_progress()
    done = 0
    try:
        for block in blocks(request, (ModelOnly(),), gpu, predictor):
            output.write(grid.lines(block, sram_of(gpu, sram_bytes)))
            done += block.count
            output.progress(f"{done:,} cases done", clock_goes_on=True)
    finally:
        output.stop_progress()
    return 0


def _backends(
    measure: bool, jobs: int | None, counters: str, interval: bool
) -> AbstractContextManager[Sequence[Backend]]:
    from fa_bench.cli.counters import parsed
    from fa_bench.cli.devices import opened

    if not measure:
        return nullcontext(())
    device = "auto" if parsed(counters).ncu else "emulator"
    apart: tuple[BackendName, ...] = ("cuda",)  # a fault costs a process its GPU
    return opened(device, jobs=jobs, kernels_only=True, counters=counters, interval=interval, apart=apart)


def _tables(case: CaseTraffic) -> list[Table]:
    """The tables of one case: global traffic, what the caches make of it, what hardware counted, as far as known."""
    from fa_bench.report.caches import caches_table
    from fa_bench.report.case_traffic import case_table
    from fa_bench.report.levels import levels_table

    behind = (caches_table(case.record, case.traffic), levels_table(case.record, case.traffic))
    return [case_table(case), *(table for table in behind if table is not None)]


def _run(
    output: Output, made: SweepPlan, backends: Sequence[Backend], measured: MeasuredPeaks | None
) -> Iterator[CaseTraffic]:
    """Each case as it is done: counted where there is a backend, else predicted."""
    from fa_bench.report.case_traffic import PREDICTED_ONLY, case_traffic
    from fa_bench.report.names import case_name
    from fa_bench.sweep.build import Site
    from fa_bench.sweep.case import run_case, unrun_rows
    from fa_bench.sweep.predict import predict

    output.start_progress()
    try:
        for number, planned in enumerate(made.cases):
            name = case_name(planned.case)
            output.progress(f"{number}/{len(made.cases)} done; {name.impl}, seq {name.seq}")
            device = backends[0].device if backends else "model"
            site = Site("io-model", datetime.now(UTC), planned.backend, device, made.gpu)
            if backends:
                rows = run_case(planned, backends[0], site, partial(predict, peaks=measured))
            else:
                status = "skipped" if planned.status == "run" else planned.status
                prediction = predict(planned.case, made.gpu, measured)
                rows = unrun_rows(planned, site, status, planned.reason or PREDICTED_ONLY, prediction)
            yield case_traffic(rows.record, rows.traffic)
    finally:
        output.stop_progress()


def _sram_bytes(text: str) -> int:
    """M in bytes, from ``163k``, ``192KiB`` or a number of bytes."""
    from fa_bench.errors import UsageError
    from fa_bench.units import parse_bytes, parse_int

    try:
        nbytes = parse_int(text) if text.strip().endswith(("k", "K")) else parse_bytes(text)
    except UsageError as error:
        raise UsageError(f"--sram: {error.message}", error.hint) from None
    # The theorems are of M >= d elements: 256 in fp32 are 1 KiB.
    if nbytes < 1024:
        raise UsageError(f"--sram: {text.strip()!r} is less than one row of Q; the least is 1 KiB.")
    return nbytes


def _explain(output: Output, made: SweepPlan, sram_bytes: int | None) -> None:
    """Print the derivations of the plan's first shape: each kernel's, then what the papers say of it."""
    from fa_bench import algorithms
    from fa_bench.cli.output import folded
    from fa_bench.report.explain import explained, titled_texts

    legal = [planned.case for planned in made.cases if planned.case.tile is not None or planned.status == "run"]
    first = []
    for case in legal:
        if case.shape == legal[0].shape:
            algorithm = algorithms.get(case.impl)
            parts = algorithm.traffic(case)
            moved = None if parts is None else sum(part.bytes for part in parts)
            first.append(explained(case, algorithm.explain(case), moved, made.gpu, sram_bytes))
    texts = [(folded(title), folded(text)) for title, text in titled_texts(first)]
    if output.fmt is Format.TABLE:
        output.write("\n\n".join(f"{title}\n{text}" for title, text in texts) + "\n")
    elif output.fmt is Format.MD:
        output.write("\n\n".join(f"**{title}**\n\n```\n{text}\n```" for title, text in texts) + "\n")
    else:
        output.emit([], [one.row for one in first])
    if len(first) < len(legal):
        output.say(f"{len(legal) - len(first)} more cases are not explained: narrow the axes to choose.")


def _verdict(output: Output, cases: Sequence[CaseTraffic]) -> int:
    """Say what is wrong, if anything is, and give the exit code."""
    from fa_bench.records import FAILED_STATUSES
    from fa_bench.report.names import record_name

    code = 0
    for case in cases:
        name = record_name(case.record)
        if case.record.status in FAILED_STATUSES:
            output.warn(f"{name.impl}, {name.shape()}: {case.record.status}. {case.record.status_reason}")
            code = 1
        elif not case.equal:
            output.warn(f"{name.impl}, {name.shape()}: the bytes counted are not those predicted.")
            code = 1
    return code
