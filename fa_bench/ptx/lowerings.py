"""All lowerings: importing a family registers it."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx import (
    lower_arith,
    lower_atomic,
    lower_barrier,
    lower_compare,
    lower_convert,
    lower_exchange,
    lower_float,
    lower_half,
    lower_integer,
    lower_matrix,
    lower_memory,
    lower_space,
    lower_warp,
    lower_wmma,
)
from fa_bench.ptx.emitter import Emitter
from fa_bench.ptx.program import Instruction

__all__ = [
    "LOWERINGS",
    "lower",
    "lower_atomic",
    "lower_barrier",
    "lower_compare",
    "lower_convert",
    "lower_exchange",
    "lower_float",
    "lower_half",
    "lower_integer",
    "lower_matrix",
    "lower_memory",
    "lower_space",
    "lower_warp",
    "lower_wmma",
]

#: Row name -> the function that lowers it.
LOWERINGS: Final = lower_arith.LOWERINGS


def lower(e: Emitter, i: Instruction) -> None:
    """Lower an instruction. Behind one that a warp executes together (``.sync``) its lanes have met: checks look on."""
    LOWERINGS[i.row.name](e, i)
    if "sync" in i.row.op.split("."):
        e.emit("call void @observe_lanes(ptr %ctx)")
