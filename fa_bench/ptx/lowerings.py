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

__all__ = [
    "LOWERINGS",
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
