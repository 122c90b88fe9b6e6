"""PTX on the CPU: parse, compile to machine code, run over 32-lane warps, count every memory transaction.

Imports nothing of ``fa_bench.algorithms`` and ``fa_bench.model``: what is counted here cannot have been made from
a formula.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from fa_bench.ptx.counters import LaunchCounters, SharedCounters, TensorCounters
from fa_bench.ptx.isa import PtxError, UnsupportedInstruction
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.parser import load
from fa_bench.ptx.program import Kernel, Module

if TYPE_CHECKING:
    from fa_bench.ptx.caches import L2, MemoryCounters, MemorySystem
    from fa_bench.ptx.machine import launch
    from fa_bench.ptx.sanitizer import Checks, Elements, Sanitizer
    from fa_bench.ptx.waves import Step, Waves, launch_waves, walk

__all__ = [
    "L2",
    "Checks",
    "Elements",
    "Kernel",
    "LaunchCounters",
    "Memory",
    "MemoryCounters",
    "MemorySystem",
    "Module",
    "PtxError",
    "Sanitizer",
    "SharedCounters",
    "Step",
    "TensorCounters",
    "UnsupportedInstruction",
    "Waves",
    "launch",
    "launch_waves",
    "load",
    "walk",
]

#: What needs LLVM, by the module that has it.
_LATE: Final = {
    **dict.fromkeys(("L2", "MemoryCounters", "MemorySystem"), "caches"),
    **dict.fromkeys(("Checks", "Elements", "Sanitizer"), "sanitizer"),
    **dict.fromkeys(("Step", "Waves", "launch_waves", "walk"), "waves"),
    "launch": "machine",
}


def __getattr__(name: str) -> Any:
    """Import LLVM only when something is launched."""
    if name in _LATE:
        return getattr(importlib.import_module(f"fa_bench.ptx.{_LATE[name]}"), name)
    raise AttributeError(name)
