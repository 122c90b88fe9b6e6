"""``fa-bench kernels``: what the compiler makes of our kernels, and how many CTAs of them an SM holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

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
from fa_bench.report.tables import Column, Table

if TYPE_CHECKING:
    from fa_bench.cases import Case
    from fa_bench.model.gpu import Gpu


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel of one case, compiled for one GPU."""

    impl: str
    kernel: str
    gpu: str
    dtype: str
    head_dim: int
    block_m: int
    block_n: int
    stages: int
    threads: int
    registers: int
    smem_bytes: int
    spill_bytes: int
    blocks_per_sm: int
    occupancy: float
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
    """Show registers, shared memory, spills and occupancy of our kernels on a GPU.

    Compiles them with NVRTC; no GPU is needed.
    """
    from fa_bench import compiler, nvrtc
    from fa_bench.cli.axes import merge_axes, sweep_request
    from fa_bench.cli.planning import ModelOnly, resolved, target_gpu
    from fa_bench.sweep.plan import plan

    output = Output(fmt, quiet)
    target = target_gpu(gpu, ())
    request = resolved(sweep_request(merge_axes({**ctx.params, "seq": "1k"}), "auto", gpu), (ModelOnly(),))
    planned = plan(request, (ModelOnly(),), target)
    nvrtc.load()
    rows = []
    for cell in planned.cases:
        if cell.status != "run":
            output.say(f"{cell.case.impl}, {cell.case.dtype}, D={cell.case.shape.head_dim}: {cell.reason}")
            continue
        rows += _rows(cell.case, target)
    output.emit([_table(rows, target, compiler.nvrtc_available)], [asdict(row) for row in rows])
