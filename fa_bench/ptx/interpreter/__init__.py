"""The reference interpreter: the living definition of every row of the ISA table, and the oracle for the JIT.

Plain and slow. It shares nothing with the JIT but the parsed program, the memory's buffers and the counters' form: one
NumPy function per row (``@semantic``), registers as bit patterns, counts with Python sets. Each module that is
imported here registers one family.
"""

from __future__ import annotations

from fa_bench.ptx.interpreter import (
    approximate,
    atomic,
    barriers,
    bits,
    compare,
    convert,
    float32,
    floats,
    integer,
    integer_more,
    loadstore,
    matrix,
    move,
    tensor,
    warpwide,
)
from fa_bench.ptx.interpreter.machine import run
from fa_bench.ptx.interpreter.state import SEMANTICS

__all__ = [
    "SEMANTICS",
    "approximate",
    "atomic",
    "barriers",
    "bits",
    "compare",
    "convert",
    "float32",
    "floats",
    "integer",
    "integer_more",
    "loadstore",
    "matrix",
    "move",
    "run",
    "tensor",
    "warpwide",
]
