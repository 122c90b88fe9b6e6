"""``fa-bench sweep``: run every case of the axes, one row each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fa_bench.cli.options import (
    BatchOption,
    BlockOption,
    CausalOption,
    CheckOption,
    ConfigOption,
    CountersOption,
    DeviceOption,
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
    L2Option,
    LayoutOption,
    OutOption,
    PeaksOption,
    QuietOption,
    RequireCountersOption,
    SeqlensOption,
    SeqOption,
    StagesOption,
    StrictTimerOption,
    TimerOption,
    TokensOption,
    WindowOption,
)
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fa_bench.backends.base import Backend
    from fa_bench.sweep.manifest import Manifest
    from fa_bench.sweep.plan import SweepPlan

#: Options that decide what is in a row, so that rows of different ones are never mixed.
_SETTINGS: Final = ("counters", "check", "l2", "timer", "peaks")


def sweep(
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
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
    counters: CountersOption = "global",
    require_counters: RequireCountersOption = False,
    peaks: PeaksOption = "datasheet",
    l2: L2Option = "cold",
    timer: TimerOption = "events",
    strict_timer: StrictTimerOption = False,
    check: CheckOption = False,
    out: OutOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, or with the newest unfinished one.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run, its memory, and what is skipped and why.")
    ] = False,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            help="Share the cases out: all, or numbers of GPUs (of processes, for the emulator) as in 0,2.",
            metavar="all|LIST",
            rich_help_panel="Run",
            show_default="one GPU, or one process",
        ),
    ] = None,
    jobs: JobsOption = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Run attention implementations over shapes, tiles and types, and record time, bytes and error of each.

    On a GPU kernels are timed. Without one they run as PTX on the CPU, and the bytes that they move are counted
    beside those that the model predicts. Each row is on disk before the next case starts.
    """
    from fa_bench.cli.axes import merge_axes, sweep_request
    from fa_bench.cli.counters import advice, demand_ncu, uncounted
    from fa_bench.cli.devices import missing_emulator, shipped_only
    from fa_bench.cli.live import Live
    from fa_bench.cli.peaks import roofline_peaks
    from fa_bench.cli.planning import resolved, target_gpu
    from fa_bench.cli.workers import opened_sets, planning_backends
    from fa_bench.report.plan import plan_rows, plan_table
    from fa_bench.sweep.journal import MANIFEST_NAME, open_journal
    from fa_bench.sweep.plan import plan
    from fa_bench.sweep.predict import predict
    from fa_bench.sweep.runner import planned_keys, run_plan

    output = Output(fmt, quiet)
    if require_counters:
        demand_ncu(counters)
    request = sweep_request(merge_axes(ctx.params, config), device, gpu)
    timing = {"l2": l2, "timer": timer, "strict_timer": strict_timer}
    with opened_sets(device, devices, jobs=jobs, counters=counters, checks=check, **timing) as sets:
        backends, *beside = sets
        if device == "auto" and [backend.name for backend in backends] == ["host"]:
            output.say(f"Our kernels are left out: {missing_emulator()}")
        if any(backend.name == "emulator" for backend in backends) and (note := shipped_only()):
            output.say(note)
        planning = planning_backends(sets)
        made = plan(resolved(request, planning), planning, target_gpu(gpu, planning))
        measured = roofline_peaks(peaks, made.gpu, planning, output)
        if dry_run:
            output.emit([plan_table(made)], plan_rows(made))
            return 0
        manifest = _manifest(made, backends, ctx)
        if resume and out is not None and not (out / MANIFEST_NAME).exists():
            output.say(f"{out} holds no run to go on with: a new one starts there.")
        with open_journal(out, manifest, planned_keys(made, backends), resume=resume) as journal:
            live = Live(output, made, journal.folder, journal.manifest.run_id, len(sets))
            with live:
                outcome = run_plan(
                    made, backends, journal, beside=beside, observer=live, predict=partial(predict, peaks=measured)
                )
            code = live.conclude(outcome)
            if {"full", "ncu"} & set(counters.split(",")):
                output.say("L2 and DRAM bytes are in records.csv and traffic.csv; fa-bench report draws them.")
            for sentence in advice(backend for opened in sets for backend in opened):
                output.warn(sentence)
            return code or int(require_counters and uncounted(outcome.records) > 0)


def _manifest(made: SweepPlan, backends: Sequence[Backend], ctx: typer.Context) -> Manifest:
    from fa_bench.cli.devices import driver_version, nvrtc_version
    from fa_bench.measure.environment import environment
    from fa_bench.sweep.manifest import describe

    devices = {backend.name: backend.device for backend in backends}
    settings = {f"--{name}": _setting(ctx.params[name]) for name in _SETTINGS if name in ctx.params}
    return describe(
        made,
        devices,
        ctx.obj,
        environment(driver_version()),
        nvrtc_version=nvrtc_version(),
        settings=settings,
    )


def _setting(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
