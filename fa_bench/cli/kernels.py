"""``fa-bench kernels``: what the compiler makes of kernels, and how many CTAs of them an SM holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from fa_bench.cli.options import (
    BlockOption,
    DirectionOption,
    DtypeOption,
    FeaturesOption,
    FormatOption,
    GpuOption,
    HeadDimOption,
    ImplOption,
    QuietOption,
    StagesOption,
)
from fa_bench.cli.output import Format, Output
from fa_bench.errors import UsageError
from fa_bench.report.tables import UNKNOWN, Column, Table

if TYPE_CHECKING:
    from fa_bench.cases import Case
    from fa_bench.model.gpu import Gpu


T = TypeVar("T")
#: Limits of occupancy as the table names them.
_SHORT: Final = {"registers": "regs", "shared memory": "smem", "threads": "thr"}


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel of one case, compiled for one GPU; None where an implementation has no tile, or nothing is known."""

    impl: str
    kernel: str
    gpu: str
    dtype: str
    direction: str
    features: str
    head_dim: int
    block_m: int | None
    block_n: int | None
    stages: int | None
    threads: int
    registers: int | None
    smem_bytes: int | None
    spill_bytes: int | None
    blocks_per_sm: int | None
    occupancy: float | None
    limits: tuple[str, ...]


def kernels(
    ctx: typer.Context,
    impl: ImplOption = None,
    dtype: DtypeOption = None,
    head_dim: HeadDimOption = None,
    features: FeaturesOption = None,
    direction: DirectionOption = None,
    block: BlockOption = None,
    stages: StagesOption = None,
    gpu: GpuOption = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Instead: why the default tile is the default, counted in the emulator.",
            rich_help_panel="Run",
        ),
    ] = False,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> None:
    """Show registers, shared memory, spills and occupancy of kernels on a GPU.

    Compiles them with NVRTC; no GPU is needed. Without --impl, the libraries' implementations that can't be used here
    follow. With --explain the default tile of each implementation stands beside the tiles around it, with what speaks
    against each.
    """
    from fa_bench import algorithms
    from fa_bench.cli.axes import merge_axes, sweep_request
    from fa_bench.cli.planning import ModelOnly, resolved, target_gpu
    from fa_bench.sweep.plan import plan

    output = Output(fmt, quiet)
    if explain and (block or stages):
        raise UsageError("--explain is about default tiles: leave out --block and --stages.")
    target = target_gpu(gpu, ())
    request = resolved(sweep_request(merge_axes({**ctx.params, "seq": "1k"}), "auto", gpu), (ModelOnly(),))
    planned = plan(request, (ModelOnly(),), target)
    cells: list[Case] = []
    for cell in planned.cases:
        if impl is None and algorithms.lacking(cell.case, algorithms.find(cell.case.impl)):
            continue
        if cell.status != "run":
            output.say(f"{cell.case.impl}, {cell.case.dtype}, D={cell.case.shape.head_dim}: {cell.reason}")
            continue
        cells.append(cell.case)
    if explain:
        _explain(output, cells, target)
        return
    rows = [row for case in cells for row in _rows(case, target)]
    tables = _tables(rows, target)
    if impl is None:
        tables += absent_implementations()
    output.emit(tables, [asdict(row) for row in rows])


def _explain(output: Output, cells: Sequence[Case], gpu: Gpu) -> None:
    """Weigh the default tile of each case, and those around it."""
    from fa_bench import algorithms, nvrtc
    from fa_bench.cli.devices import opened
    from fa_bench.report.default_tiles import default_row, default_table
    from fa_bench.report.names import case_name
    from fa_bench.tuning.defaults import around, weigh

    tables: list[Table] = []
    rows: list[dict[str, Any]] = []
    own = [case for case in cells if case.impl in algorithms.names()]
    if not own:
        raise UsageError("--explain is about default tiles of ours: none of these kernels has one here.")
    nvrtc.load()  # Default tiles may come compiled, those around them don't.
    output.start_progress()
    try:
        with opened("emulator", all_slices=True) as backends:
            for number, case in enumerate(own):
                algorithm, name = algorithms.get(case.impl), case_name(replace(case, tile=None))
                tiles = around(case, algorithm, gpu)
                weighed = []
                for tile in tiles:
                    output.progress(f"{number}/{len(own)} done; {name.impl} {tile}/{tile.stages}")
                    weighed.append(weigh(case, tile, algorithm, backends[0], gpu))
                title = f"{name.impl}, {name.shape(('dtype', 'head_dim', 'causal'))}, {gpu.slug} ({gpu.sm})"
                tables.append(default_table(title, weighed, last=number == len(own) - 1))
                identity: dict[str, Any] = {
                    "impl": case.impl,
                    "gpu": gpu.slug,
                    "dtype": case.dtype,
                    "direction": case.direction,
                    "features": "+".join(case.features.named),
                    "head_dim": case.shape.head_dim,
                    "seq": case.shape.seq_q,
                }
                rows += [default_row(identity, one, weighed[0]) for one in weighed]
    finally:
        output.stop_progress()
    output.emit(tables, rows)


def absent_implementations() -> list[Table]:
    """Libraries' implementations that can't be used here, what each needs and what installs it; empty if all can."""
    from fa_bench import backends
    from fa_bench.backends import baselines

    gpu_is_here = backends.why_not("cuda") is None
    rows = []
    for baseline in baselines.BASELINES:
        if missing := baseline.missing():
            needed = " and ".join(library.name for library in missing)
            rows.append((baseline.name, needed, " && ".join(library.install for library in missing)))
        elif not gpu_is_here and "host" not in baseline.places:
            rows.append((baseline.name, "a GPU", UNKNOWN))
    if not rows:
        return []
    columns = (Column("implementation"), Column("needs"), Column("to install"))
    return [Table("Libraries' implementations that can't be used here", columns, tuple(rows))]


def _rows(case: Case, gpu: Gpu) -> Iterator[KernelRow]:
    """One row per different kernel of a case."""
    from fa_bench import algorithms
    from fa_bench.compiler import compile_kernel
    from fa_bench.model.occupancy import occupancy

    tile = case.tile
    launches = {launch.kernel: launch for launch in algorithms.get(case.impl).program(case).launches}
    for spec, launch in launches.items():
        kernel = compile_kernel(spec, gpu.sm)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        smem_bytes = None if kernel.static_smem_bytes is None else launch.smem_bytes + kernel.static_smem_bytes
        fit = None
        if smem_bytes is not None and kernel.registers is not None:
            fit = occupancy(gpu, threads=threads, smem_bytes=smem_bytes, registers=kernel.registers)
        yield KernelRow(
            impl=case.impl,
            kernel=spec.entry,
            gpu=gpu.slug,
            dtype=case.dtype,
            direction=case.direction,
            features="+".join(case.features.named),
            head_dim=case.shape.head_dim,
            block_m=None if tile is None else tile.block_m,
            block_n=None if tile is None else tile.block_n,
            stages=None if tile is None else tile.stages,
            threads=threads,
            registers=kernel.registers,
            smem_bytes=smem_bytes,
            spill_bytes=kernel.spill_bytes,
            blocks_per_sm=None if fit is None else fit.blocks_per_sm,
            occupancy=None if fit is None else fit.fraction,
            limits=() if fit is None else fit.limits,
        )


def _known(value: T | None, text: Callable[[T], str]) -> str:
    return UNKNOWN if value is None else text(value)


def _tables(rows: Sequence[KernelRow], gpu: Gpu) -> list[Table]:
    """One table per type and head dimension, with short words for the limits: kernels' names need the width."""
    from fa_bench.units import format_bytes, format_percent

    columns = (
        Column("kernel"),
        Column("tile"),
        Column("thr", "right"),
        Column("regs", "right"),
        Column("smem", "right"),
        Column("spill", "right"),
        Column("CTAs", "right"),
        Column("warps", "right"),
        Column("limit"),
    )
    grouped: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        asked = [row.dtype, f"D={row.head_dim}", *([row.direction] if row.direction != "fwd" else []), row.features]
        grouped.setdefault(f"{gpu.slug} ({gpu.sm}), {', '.join(filter(None, asked))}", []).append(
            (
                row.kernel,
                UNKNOWN if row.block_m is None else f"{row.block_m}x{row.block_n}/{row.stages}",
                str(row.threads),
                _known(row.registers, str),
                _known(row.smem_bytes, format_bytes),
                _known(row.spill_bytes, format_bytes),
                _known(row.blocks_per_sm, str),
                _known(row.occupancy, format_percent),
                ", ".join(_SHORT.get(limit, limit) for limit in row.limits),
            )
        )
    note = (
        "thr: threads of a CTA. regs: registers per thread. smem: shared memory per CTA. spill: bytes stored and "
        "loaded per thread. CTAs: on an SM. warps: resident of what the SM holds."
    )
    last = len(grouped) - 1
    return [
        Table(title, columns, tuple(cells), note if number == last else "")
        for number, (title, cells) in enumerate(grouped.items())
    ]
