"""``fa-bench ladder``: FlashAttention-2 in steps, and what each step buys in counted figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from fa_bench.cli.options import FormatOption, QuietOption
from fa_bench.cli.output import Format, Output
from fa_bench.report.tables import UNKNOWN, Column, Table

if TYPE_CHECKING:
    from fa_bench.algorithms.ladder import Figure
    from fa_bench.ladder import Counted

#: Figures of the table of bytes.
_MOVED: Final[tuple[Figure, ...]] = ("read", "written", "shared requests", "wavefronts", "conflicts")
#: Columns of the table of instructions, and the emulator's classes that each counts.
_CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "all": (),
    "mma": ("tensor",),
    "fp32": ("fma",),
    "sfu": ("sfu",),
    "ld/st": ("load-store",),
    "int": ("integer",),
    "cvt": ("convert",),
    "mov": ("move",),
    "rest": ("sync", "control"),
}


def ladder(fmt: FormatOption = Format.TABLE, quiet: QuietOption = False) -> int:
    """Show FlashAttention-2 in steps, and what each step buys.

    Runs the kernels of kernels/ladder, each with one idea more than the one before, and counts what they move and
    execute. Exits with 1 if one of them is wrong, or a byte differs from its formula.
    """
    from fa_bench.algorithms.ladder import ladder_case
    from fa_bench.ladder import run, steps
    from fa_bench.measure.environment import usable_cpus
    from fa_bench.model import gpus

    output = Output(fmt, quiet)
    case, gpu = ladder_case(1024, 1024), gpus.get("a100-sxm-80")
    rungs: list[Counted] = []
    output.start_progress()
    try:
        for step in steps(case, gpu):
            output.progress(step.name)
            rungs.append(run(step, case, gpu, jobs=usable_cpus()))
    finally:
        output.stop_progress()
    title = f"The ladder, N = {case.shape.seq_q}, d = {case.shape.head_dim}, {case.dtype}, one head, no mask"
    output.emit([_ideas(title, rungs), _moved(rungs), _instructions(rungs, gpu.sm)], [_flat(rung) for rung in rungs])
    failures = [
        f"{rung.step.name}: {rung.verification.detail or 'global bytes differ from the formula'}"
        for rung in rungs
        if not (rung.verification.passed and rung.equal)
    ]
    for failure in failures:
        output.warn(failure)
    return int(bool(failures))


def _ideas(title: str, rungs: Sequence[Counted]) -> Table:
    """What each rung adds, and the figure that shows it."""
    from fa_bench.ladder import changed_lines

    rows = []
    for before, rung in zip((None, *rungs), rungs, strict=False):
        lines, bought = UNKNOWN, rung.step.gain
        if before is not None and rung.step.source.startswith("ladder/"):
            lines = "+{} −{}".format(*changed_lines(before.step, rung.step))
        if before is not None and rung.step.figure is not None:
            old, new = (_figure(counted, rung.step.figure) for counted in (before, rung))
            bought = f"{rung.step.figure}: {old} → {new}"
        rows.append((rung.step.name, rung.step.idea, lines, bought))
    columns = (Column("rung"), Column("the idea it adds"), Column("lines", "right"), Column("what it buys"))
    return Table(title, columns, tuple(rows), "lines: of its diff to the rung before, added and taken away.")


def _figure(counted: Counted, name: Figure) -> str:
    """A figure as text: bytes with their unit, all others per mma."""
    from fa_bench.units import format_bytes, format_number

    value = counted.figure(name)
    return format_bytes(int(value)) if name in ("read", "written") else format_number(value)


def _moved(rungs: Sequence[Counted]) -> Table:
    """Global bytes, shared memory per mma, resources."""
    from fa_bench.units import format_bytes

    titles = ("read", "written", "requests", "wavefronts", "conflicts", "regs", "smem", "spill")
    rows = [
        (
            rung.step.name,
            *(_figure(rung, name) for name in _MOVED),
            UNKNOWN if rung.registers is None else str(rung.registers),
            *(UNKNOWN if n is None else format_bytes(n) for n in (rung.smem_bytes, rung.spill_bytes)),
        )
        for rung in rungs
    ]
    return Table(
        "Global bytes; shared memory per mma; registers per thread, shared memory per CTA",
        (Column("rung"), *(Column(title, "right") for title in titles)),
        tuple(rows),
        "per mma: for the work of one mma.m16n8k16, 2,048 multiply-adds, however it is done.",
    )


def _instructions(rungs: Sequence[Counted], sm: str) -> Table:
    """Warp instructions per mma, by class."""
    from fa_bench.units import format_number

    rows = [
        (rung.step.name, *(format_number(rung.per_mma(*classes)) for classes in _CLASSES.values())) for rung in rungs
    ]
    return Table(
        "Warp instructions per mma",
        (Column("rung"), *(Column(title, "right") for title in _CLASSES)),
        tuple(rows),
        f"PTX instructions, compiled by NVRTC {rungs[0].nvrtc_version} for {sm}; emulated. Times are not known: "
        "no kernel here has been timed on a GPU yet.",
    )


def _flat(rung: Counted) -> dict[str, Any]:
    """One row of CSV and JSON: counts as they are, not per mma."""
    return {
        "rung": rung.step.name,
        "source": rung.step.source,
        "idea": rung.step.idea,
        "figure": rung.step.figure,
        "mma_work": rung.work,
        "global_read_bytes_emulated": rung.nbytes("read"),
        "global_write_bytes_emulated": rung.nbytes("write"),
        "bytes_equal": rung.equal,
        "shared_requests": rung.shared_requests,
        "shared_wavefronts": rung.shared_wavefronts,
        "shared_conflicts": rung.shared_conflicts,
        "instructions": sum(rung.instructions.values()),
        **{
            f"instructions_{name}".replace("-", "_"): rung.instructions.get(name, 0)
            for classes in _CLASSES.values()
            for name in classes
        },
        "registers": rung.registers,
        "smem_bytes": rung.smem_bytes,
        "spill_bytes": rung.spill_bytes,
        "max_abs_err": rung.verification.max_abs_err,
        "passed": rung.verification.passed,
    }
