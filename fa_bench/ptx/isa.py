"""The instruction set as data: one row per instruction form that the emulator executes.

A row says how an instruction is spelled, which types and modifiers it takes, what its operands are and which
class it counts as. The parser refuses whatever no row covers. The lowering (``lower_*.py``) and the interpreter
(``interpreter/``) each register one function per row name; a test demands that both are complete.

Source of all forms: NVIDIA, "Parallel Thread Execution ISA", sections named after the instructions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from fa_bench.ptx import isa_atomic, isa_convert, isa_float, isa_matrix, isa_memory, isa_scalar, isa_warp
from fa_bench.ptx.isa_row import TYPE_BITS, InstructionClass, PtxError, Row, UnsupportedInstruction

__all__ = ["ROWS", "TYPE_BITS", "Form", "InstructionClass", "PtxError", "Row", "UnsupportedInstruction", "match"]

ROWS: Final[tuple[Row, ...]] = (
    *isa_scalar.ROWS,
    *isa_float.ROWS,
    *isa_convert.ROWS,
    *isa_matrix.ROWS,
    *isa_memory.ROWS,
    *isa_atomic.ROWS,
    *isa_warp.ROWS,
)
_BY_OP: Final[dict[str, list[Row]]] = {}
for _row in ROWS:
    _BY_OP.setdefault(_row.op, []).append(_row)
_LONGEST_OP: Final = max(op.count(".") + 1 for op in _BY_OP)
#: The only modifiers that may stand twice: the layouts of A and of B.
_LAYOUTS: Final = frozenset({"row", "col"})
_SPACES: Final = frozenset({"global", "shared", "local", "const", "param"})
_SUBSPACES: Final = {"shared::cta": "shared", "param::entry": "param"}


@dataclass(frozen=True, slots=True)
class Form:
    """An opcode matched to its row: the types in written order and the modifiers."""

    row: Row
    types: tuple[str, ...]
    modifiers: frozenset[str]


@functools.lru_cache(maxsize=4096)
@functools.cache
def match(opcode: str) -> Form | None:
    """Find the row that covers ``opcode`` (e.g. ``mul.wide.s32``), or None."""
    parts = _usual(opcode.split("."))
    for length in range(min(len(parts), _LONGEST_OP), 0, -1):
        rows = _BY_OP.get(".".join(parts[:length]))
        if rows is None:
            continue
        rest = parts[length:]
        types = tuple(p for p in rest if p in TYPE_BITS)
        modifiers = frozenset(p for p in rest if p not in TYPE_BITS)
        once = [p for p in rest if p in modifiers - _LAYOUTS]
        if len(set(once)) != len(once):
            continue
        for row in rows:
            if row.allows(types, modifiers):
                return Form(row, types, modifiers)
    return None


def _usual(parts: list[str]) -> list[str]:
    """One spelling for what PTX spells in several ways.

    ``ld.volatile.global`` becomes ``ld.global.volatile``, ``bar.cta`` is ``bar``, and shared memory and parameters are
    those of the own CTA and entry with or without ``::cta`` and ``::entry``.
    """
    parts = [_SUBSPACES.get(part, part) for part in parts]
    if parts[0] in ("bar", "barrier") and parts[1:2] == ["cta"]:
        parts = [parts[0], *parts[2:]]
    if parts[0] in ("ld", "st"):
        spaces = [part for part in parts if part in _SPACES]
        parts = [parts[0], *spaces, *(part for part in parts[1:] if part not in _SPACES)]
    return parts
