"""``fa-bench kernels``: what the compiler makes of kernels, and how many CTAs of them an SM holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import typer

from fa_bench.cli.options import (
    BlockOption,
    DtypeOption,
    FormatOption,
    GpuOption,
    HeadDimOption,
    ImplOption,
    QuietOption,
    StagesOption,
)
from fa_bench.cli.output import Format, Output
from fa_bench.report.tables import UNKNOWN, Column, Table

if TYPE_CHECKING:
    from fa_bench.cases import Case
    from fa_bench.model.gpu import Gpu


T = TypeVar("T")
#: Limits of occupancy as the table names them.
_SHORT: Final = {"registers": "regs", "shared memory": "smem"}


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel of one case, compiled for one GPU; None where an implementation has no tile, or nothing is known."""

    impl: str
    kernel: str
    gpu: str
    dtype: str
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
    block: BlockOption = None,
    stages: StagesOption = None,
    gpu: GpuOption = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> None:
    """Show registers, shared memory, spills and occupancy of kernels on a GPU.

    Compiles them with NVRTC; no GPU is needed. Without --impl, the libraries' implementations that can't be used here
    follow.
    """
    from fa_bench.cli.axes import merge_axes, sweep_request
    from fa_bench.cli.planning import ModelOnly, resolved, target_gpu
    from fa_bench.sweep.plan import plan

    output = Output(fmt, quiet)
    target = target_gpu(gpu, ())
    request = resolved(sweep_request(merge_axes({**ctx.params, "seq": "1k"}), "auto", gpu), (ModelOnly(),))
    planned = plan(request, (ModelOnly(),), target)
    rows: list[KernelRow] = []
    for cell in planned.cases:
        if cell.status != "run":
            output.say(f"{cell.case.impl}, {cell.case.dtype}, D={cell.case.shape.head_dim}: {cell.reason}")
            continue
        rows += _rows(cell.case, target)
    tables = _tables(rows, target)
    if impl is None:
        tables += absent_implementations()
    output.emit(tables, [asdict(row) for row in rows])


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
        Column("threads", "right"),
        Column("regs", "right"),
        Column("smem", "right"),
        Column("spill", "right"),
        Column("CTA/SM", "right"),
        Column("warps", "right"),
        Column("limit"),
    )
    grouped: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        grouped.setdefault(f"{gpu.slug} ({gpu.sm}), {row.dtype}, D={row.head_dim}", []).append(
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
        "regs: registers per thread. smem: shared memory per CTA. spill: bytes stored and loaded per thread. "
        "warps: resident of what the SM holds."
    )
    last = len(grouped) - 1
    return [
        Table(title, columns, tuple(cells), note if number == last else "")
        for number, (title, cells) in enumerate(grouped.items())
    ]
