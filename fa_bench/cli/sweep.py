"""``fa-bench sweep``: run every case of the axes, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fa_bench.cli.options import (
    BatchOption,
    BlockOption,
    CausalOption,
    CheckOption,
    ConfigOption,
    CountersOption,
    DeviceOption,
    DtypeOption,
    FormatOption,
    GpuOption,
    HeadDimOption,
    HeadsOption,
    HiddenOption,
    ImplOption,
    JobsOption,
    KvHeadsOption,
    LayoutOption,
    OutOption,
    QuietOption,
    SeqOption,
    StagesOption,
    TokensOption,
)
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fa_bench.backends.base import Backend
    from fa_bench.sweep.manifest import Manifest
    from fa_bench.sweep.plan import SweepPlan


def sweep(
    ctx: typer.Context,
    seq: SeqOption = None,
    head_dim: HeadDimOption = None,
    batch: BatchOption = None,
    heads: HeadsOption = None,
    kv_heads: KvHeadsOption = None,
    tokens: TokensOption = None,
    hidden: HiddenOption = None,
    causal: CausalOption = None,
    impl: ImplOption = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    block: BlockOption = None,
    stages: StagesOption = None,
    config: ConfigOption = None,
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
    counters: CountersOption = "global",
    check: CheckOption = False,
    out: OutOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, or with the newest unfinished one.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run, its memory, and what is skipped and why.")
    ] = False,
    jobs: JobsOption = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Run attention implementations over shapes, tiles and types, and record time, bytes and error of each.

    On a GPU kernels are timed. Without one they run as PTX on the CPU, and the bytes that they move are counted
    beside those that the model predicts. Each row is on disk before the next case starts.
    """
    from fa_bench.cli.axes import merge_axes, sweep_request
    from fa_bench.cli.devices import missing_emulator, opened, shipped_only
    from fa_bench.cli.live import Live
    from fa_bench.cli.planning import resolved, target_gpu
    from fa_bench.report.plan import plan_rows, plan_table
    from fa_bench.sweep.journal import open_journal
    from fa_bench.sweep.plan import plan
    from fa_bench.sweep.runner import planned_keys, run_plan

    output = Output(fmt, quiet)
    request = sweep_request(merge_axes(ctx.params, config), device, gpu)
    with opened(device, jobs=jobs, counters=counters, checks=check) as backends:
        if device == "auto" and [backend.name for backend in backends] == ["host"]:
            output.say(f"Our kernels are left out: {missing_emulator()}")
        if any(backend.name == "emulator" for backend in backends) and (note := shipped_only()):
            output.say(note)
        made = plan(resolved(request, backends), backends, target_gpu(gpu, backends))
        if dry_run:
            output.emit([plan_table(made)], plan_rows(made))
            return 0
        manifest = _manifest(made, backends, ctx.obj)
        with open_journal(out, manifest, planned_keys(made), resume=resume) as journal:
            live = Live(output, made, journal.folder, journal.manifest.run_id)
            with live:
                outcome = run_plan(made, backends, journal, observer=live)
            code = live.conclude(outcome)
            if counters == "full":
                output.say("L2 and DRAM bytes are in records.csv and traffic.csv; fa-bench report draws them.")
            return code


def _manifest(made: SweepPlan, backends: Sequence[Backend], argv: Sequence[str]) -> Manifest:
    from fa_bench.cli.devices import driver_version, nvrtc_version
    from fa_bench.measure.environment import environment
    from fa_bench.sweep.manifest import describe

    devices = {backend.name: backend.device for backend in backends}
    return describe(made, devices, argv, environment(driver_version()), nvrtc_version=nvrtc_version())
