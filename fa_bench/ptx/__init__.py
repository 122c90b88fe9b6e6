"""PTX on the CPU: parse, compile to machine code, run over 32-lane warps, count every memory transaction.

Imports nothing of ``fa_bench.algorithms`` and ``fa_bench.model``: what is counted here cannot have been made from
a formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fa_bench.ptx.counters import LaunchCounters, SharedCounters, TensorCounters
from fa_bench.ptx.isa import PtxError, UnsupportedInstruction
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.parser import load
from fa_bench.ptx.program import Kernel, Module

if TYPE_CHECKING:
    from fa_bench.ptx.machine import launch

__all__ = [
    "Kernel",
    "LaunchCounters",
    "Memory",
    "Module",
    "PtxError",
    "SharedCounters",
    "TensorCounters",
    "UnsupportedInstruction",
    "launch",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import LLVM only when something is launched."""
    if name == "launch":
        from fa_bench.ptx.machine import launch

        return launch
    raise AttributeError(name)
