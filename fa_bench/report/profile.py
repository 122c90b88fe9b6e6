"""Tables and rows of ``fa-bench profile``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from fa_bench.profiling.result import LANES, SECTOR_BYTES, KernelProfile, Line, Profile, StaticCount, Traffic
from fa_bench.report.tables import UNKNOWN, Column, Table, pairs_table
from fa_bench.units import format_bytes, format_count, format_percent, format_ratio

#: What the classes of the instruction set are called in tables.
CLASSES: Final = {
    "tensor": "tensor core",
    "fma": "FMA and other float",
    "sfu": "special function",
    "integer": "integer, logic, shuffle",
    "convert": "conversion",
    "move": "move, select",
    "load-store": "load, store",
    "sync": "synchronisation",
    "control": "control flow",
}
#: Characters of a source line and its place that fit beside its figures in 80 columns.
_PLACE_AND_TEXT: Final = 42
_LEAST_TEXT: Final = 14


def profile_tables(profile: Profile, lines: int) -> tuple[Table, ...]:
    """Everything about every launch, at most ``lines`` source lines each."""
    return tuple(table for launch in profile.launches for table in launch_tables(launch, profile.source, lines))


def launch_tables(launch: KernelProfile, source: str, lines: int) -> tuple[Table, ...]:
    """Traffic, instruction mix, what limits it, hot lines, and the SASS if there is a disassembly."""
    tables = [_traffic(launch), *_caches(launch), _mix(launch), _facts(launch), _hot_lines(launch, source, lines)]
    if launch.sass:
        tables.append(_sass(launch.sass))
    return tuple(tables)


def line_rows(profile: Profile) -> list[dict[str, object]]:
    """One flat row per source line of every launch, for CSV."""
    return [
        {"launch": number, "kernel": launch.kernel, **asdict(line), "bytes": line.bytes}
        for number, launch in enumerate(profile.launches)
        for line in launch.lines
    ]


def extents(dim: Sequence[int]) -> str:
    """``8x4`` for (8, 4, 1)."""
    x, y, z = dim
    return "x".join(map(str, (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)))


def _traffic(launch: KernelProfile) -> Table:
    columns = (
        Column("tensor"), Column("type"), Column("op"), Column("requests", "right"), Column("sectors", "right"),
        Column("bytes", "right"), Column("B/request", "right"), Column("least", "right"), Column("× size", "right"),
    )  # fmt: skip
    note = (
        "B/request: bytes that a warp instruction asks for, in 32-byte sectors before any cache; least: if its lanes' "
        "bytes lay side by side."
    )
    title = f"{launch.kernel}, grid {extents(launch.grid)}, block {extents(launch.block)}"
    return Table(title, columns, tuple(map(_traffic_row, launch.traffic)), note)


def _traffic_row(moved: Traffic) -> tuple[str, ...]:
    return (
        moved.tensor,
        moved.type or UNKNOWN,
        moved.op,
        format_count(moved.requests),
        format_count(moved.sectors),
        format_bytes(moved.bytes),
        _per_request(moved.sectors, moved.requests),
        UNKNOWN if moved.least_sectors is None else _per_request(moved.least_sectors, moved.requests),
        format_ratio(moved.bytes / moved.nbytes) if moved.nbytes else UNKNOWN,
    )


def _per_request(sectors: int, requests: int) -> str:
    return f"{SECTOR_BYTES * sectors / requests:.0f}" if requests else UNKNOWN


def _caches(launch: KernelProfile) -> list[Table]:
    """What L1, L2 and DRAM saw, if that was counted."""
    if launch.l2_dirty_bytes is None:
        return []
    asked = {(moved.tensor, moved.op): moved.sectors for moved in launch.traffic}
    columns = (
        Column("tensor"), Column("op"), Column("L1 hit", "right"), Column("L2 requests", "right"),
        Column("L2", "right"), Column("L2 hit", "right"), Column("DRAM", "right"),
    )  # fmt: skip
    rows = tuple(
        (
            c.tensor,
            c.op,
            _share(c.l1_hit_sectors, asked.get((c.tensor, c.op), 0)) if c.op == "read" else UNKNOWN,
            format_count(c.l2_requests),
            format_bytes(c.l2_sectors * SECTOR_BYTES),
            UNKNOWN if c.op == "write" else _share(c.l2_hit_sectors, c.l2_sectors),
            format_bytes(c.dram_sectors * SECTOR_BYTES),
        )
        for c in launch.caches
    )
    note = f"{format_bytes(launch.l2_dirty_bytes)} that were written are still in L2 at the end."
    return [Table(f"Through the caches of {launch.occupancy.gpu}, emulated", columns, rows, note)]


def _share(part: int, whole: int) -> str:
    return format_percent(part / whole) if whole else UNKNOWN


def _mix(launch: KernelProfile) -> Table:
    total = launch.warp_instructions
    counted = sorted(launch.instructions.items(), key=lambda item: (-item[1], item[0]))
    rows = [
        (CLASSES.get(name, name), format_count(count), format_percent(count / total if total else 0))
        for name, count in counted
    ]
    rows.append(("all", format_count(total), ""))
    columns = (Column("instructions"), Column("executed by warps", "right"), Column("share", "right"))
    return Table("", columns, tuple(rows))


def _facts(launch: KernelProfile) -> Table:
    resources, fit = launch.resources, launch.occupancy
    unknown = "not known"
    registers = unknown if resources.registers is None else str(resources.registers)
    spills = unknown if resources.spill_bytes is None else format_bytes(resources.spill_bytes)
    warps = f"{fit.blocks_per_sm} CTAs, {fit.warps_per_sm} warps ({format_percent(fit.fraction)})"
    limits = " and ".join(fit.limits) + ("; registers not counted" if resources.registers is None else "")
    pairs = [
        ("active lanes", f"{LANES * launch.lane_share:.1f} of {LANES} ({format_percent(launch.lane_share)})"),
        ("shared-memory requests", format_count(launch.shared_requests)),
        ("shared-memory wavefronts", format_count(launch.wavefronts)),
        ("bank conflicts", f"{format_count(launch.conflicts)} wavefronts beyond the least possible"),
        ("registers per thread", registers),
        ("spills per thread", spills),
        (
            "shared memory per CTA",
            f"{format_bytes(resources.static_smem_bytes)} static, {format_bytes(resources.dynamic_smem_bytes)} dynamic",
        ),
        (f"on an SM of {fit.gpu}", f"{warps}, limited by {limits}"),
    ]
    unwritten = [
        f"{name}: {format_count(count)} elements were not written." for name, count in launch.unwritten.items()
    ]
    return pairs_table("", pairs, "\n".join([*unwritten, *launch.notes]))


def _hot_lines(launch: KernelProfile, source: str, count: int) -> Table:
    shown = launch.hottest(count)
    columns = (
        Column("line"), Column("instr.", "right"), Column("lanes", "right"), Column("bytes", "right"),
        Column("conflicts", "right"), Column("source"),
    )  # fmt: skip
    left = len(launch.lines) - len(shown)
    note = f"Lines of {source}. instr.: share of the executed instructions; lanes: active of 32; bytes: global."
    if left > 0:
        note += f" {left} more lines were executed."
    places = [short_place(line, source) for line in shown]
    width = text_width(places, _PLACE_AND_TEXT)
    rows = tuple(_line_row(launch, place, line, width) for place, line in zip(places, shown, strict=True))
    return Table("", columns, rows, note)


def _line_row(launch: KernelProfile, place: str, line: Line, width: int) -> tuple[str, ...]:
    return (
        place,
        format_percent(line.instructions / launch.warp_instructions),
        f"{line.lanes / line.instructions:.1f}",
        format_bytes(line.bytes) if line.sectors else "",
        format_count(line.conflicts) if line.conflicts else "",
        shortened(line.text, width),
    )


def text_width(places: Iterable[str], both: int) -> int:
    """Characters that are left for a line's text beside the longest of some places."""
    return max(_LEAST_TEXT, both - max(map(len, places), default=0))


def short_place(line: Line, source: str) -> str:
    """Where a line is: its number alone if it is in the source itself, else with its file's name."""
    if not line.line:
        return "none"
    return str(line.line) if line.file == source else f"{line.file.rpartition('/')[2]}:{line.line}"


def shortened(text: str, width: int) -> str:
    """A source line cut to a width."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _sass(counts: Sequence[StaticCount]) -> Table:
    columns = (
        Column("in the text"), Column("PTX", "right"), Column("SASS", "right"), Column("PTX B/lane", "right"),
        Column("SASS B/lane", "right"), Column("difference"),
    )  # fmt: skip
    rows = tuple(
        (
            count.group,
            format_count(count.ptx),
            format_count(count.sass),
            "" if count.ptx_bytes is None else format_count(count.ptx_bytes),
            "" if count.sass_bytes is None else format_count(count.sass_bytes),
            difference(count),
        )
        for count in counts
    )
    note = "Instructions that stand in the PTX, which the emulator executes, and in the SASS, which a GPU executes."
    return Table("", columns, rows, note)


def difference(count: StaticCount) -> str:
    """What a difference in static counts most likely is, in a word or two."""
    if not count.differs or count.group == "all instructions":
        return ""
    if count.group.startswith("local") and not count.ptx:
        return "spills"
    if count.ptx_bytes is not None and count.ptx_bytes == count.sass_bytes:
        return "merged" if count.sass < count.ptx else "split"
    return "fewer" if count.sass < count.ptx else "more"
