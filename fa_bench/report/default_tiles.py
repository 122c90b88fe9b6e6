"""The default tile of a kernel beside those around it, as a table, and why in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.tuning.weighed import Against, Weighed
from fa_bench.units import format_bytes

_SHORT: Final[Mapping[Against, str]] = {"registers": "regs", "instructions": "instr", "wavefronts": "wavef"}
NOTE: Final = (
    "on SM: CTAs x warps. spill: bytes stored and loaded per thread. global: bytes read and written. instr: PTX "
    "instructions of a thread per score. wavef: wavefronts of shared memory per 1000 scores. against it: what is more "
    "than 1 % worse than for the default, or what the GPU has too little of; - for nothing of this. What a second "
    "stage hides is time, and no figure here."
)


def default_table(title: str, weighed: Sequence[Weighed], *, last: bool) -> Table:
    """The default, first of ``weighed``, and the others.

    Parameters
    ----------
    title : str
    weighed : sequence of Weighed
    last : bool
        Whether the words below the table belong to this one.
    """
    default = weighed[0]
    columns = (
        Column("tile"),
        Column("on SM", "right"),
        Column("regs", "right"),
        Column("spill", "right"),
        Column("global", "right"),
        Column("instr", "right"),
        Column("wavef", "right"),
        Column("against it"),
    )
    rows = tuple(
        (
            f"{one.tile}/{one.tile.stages}",
            f"{UNKNOWN if one.blocks_per_sm is None else one.blocks_per_sm} x {one.tile.num_warps}",
            UNKNOWN if one.registers is None else str(one.registers),
            UNKNOWN if one.spill_bytes is None else format_bytes(one.spill_bytes),
            UNKNOWN if one.global_bytes is None else format_bytes(one.global_bytes),
            UNKNOWN if one.instructions_per_score is None else f"{one.instructions_per_score:.1f}",
            UNKNOWN if one.wavefronts_per_score is None else f"{1000 * one.wavefronts_per_score:.0f}",
            "the default" if one is default else ", ".join(words(one, default)) or UNKNOWN,
        )
        for one in weighed
    )
    return Table(title, columns, rows, NOTE if last else "")


def words(one: Weighed, default: Weighed) -> tuple[str, ...]:
    """What speaks against a tile, in short words."""
    return tuple(_SHORT.get(name, name) for name in one.against(default))


def default_row(identity: Mapping[str, Any], one: Weighed, default: Weighed) -> dict[str, Any]:
    """A flat row: what was asked, the tile, its figures."""
    tile = one.tile
    return {
        **identity,
        "block_m": tile.block_m,
        "block_n": tile.block_n,
        "stages": tile.stages,
        "num_warps": tile.num_warps,
        "is_default": one is default,
        "registers": one.registers,
        "spill_bytes": one.spill_bytes,
        "blocks_per_sm": one.blocks_per_sm,
        "warps_per_sm": one.warps_per_sm,
        "global_bytes": one.global_bytes,
        "instructions_per_score": one.instructions_per_score,
        "wavefronts_per_score": one.wavefronts_per_score,
        "against": list(one.against(default)),
    }
