"""``fa-bench gpus``: the registry of GPUs, or one of them with its sources."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output
from fa_bench.report.tables import UNKNOWN, Column, Table, pairs_table

if TYPE_CHECKING:
    from fa_bench.model.gpu import Gpu


def gpus(
    name: Annotated[
        str | None, typer.Argument(help="A GPU by slug, alias or driver name, for all that is known of it.")
    ] = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> None:
    """List the GPUs that predictions know, or show one with its sources."""
    from fa_bench.model import gpus as registry

    output = Output(fmt, quiet)
    if name is None:
        known = registry.all_gpus()
        output.emit([_overview(known)], [_flat(gpu) for gpu in known])
        output.say("fa-bench gpus NAME shows one of them with its sources.")
    else:
        gpu = registry.get(name)
        output.emit([_details(gpu)], [_flat(gpu)], _flat(gpu))


def _overview(known: Any) -> Table:
    from fa_bench.units import format_bytes

    columns = (
        Column("GPU"),
        Column("sm"),
        Column("SMs", "right"),
        Column("L2", "right"),
        Column("smem/CTA", "right"),
        Column("memory", "right"),
        Column("GB/s", "right"),
        Column("fp16 TFLOP/s", "right"),
    )
    rows = tuple(
        (
            gpu.slug,
            f"{gpu.compute_capability[0]}.{gpu.compute_capability[1]}",
            str(gpu.sm_count),
            format_bytes(gpu.l2_bytes),
            format_bytes(gpu.smem_per_block_bytes),
            format_bytes(gpu.mem_bytes),
            f"{gpu.mem_bandwidth_gbs:g}",
            UNKNOWN if gpu.fp16_tensor_tflops is None else f"{gpu.fp16_tensor_tflops:g}",
        )
        for gpu in known
    )
    return Table("", columns, rows, "fp16: dense tensor-core peak with fp32 accumulation, from data sheets.")


def _details(gpu: Gpu) -> Table:
    """Every field, as text with its unit; sources and note last, each on a row of its own."""
    from fa_bench.units import format_bytes

    pairs: list[tuple[str, str]] = []
    for field, value in asdict(gpu).items():
        if value is None:
            text = UNKNOWN
        elif field.endswith("_bytes"):
            text = format_bytes(value)
        elif field == "compute_capability":
            text = f"{value[0]}.{value[1]} ({gpu.sm})"
        elif isinstance(value, tuple):
            text = "\n".join(value) or UNKNOWN
        elif isinstance(value, float):
            text = f"{value:g}"
        else:
            text = str(value) or UNKNOWN
        pairs.append((field, text))
    return pairs_table(gpu.name, pairs)


def _flat(gpu: Gpu) -> dict[str, object]:
    major, minor = gpu.compute_capability
    return {**asdict(gpu), "compute_capability": f"{major}.{minor}"}
