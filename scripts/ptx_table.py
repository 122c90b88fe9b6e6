"""Writes docs/ptx.md, the coverage table of the emulator, from the ISA table: ``python scripts/ptx_table.py``."""

from __future__ import annotations

from pathlib import Path

from fa_bench.ptx import isa_atomic, isa_convert, isa_float, isa_matrix, isa_memory, isa_scalar, isa_warp
from fa_bench.ptx.isa import ROWS, Row

TARGET = Path(__file__).parents[1] / "docs" / "ptx.md"
HEAD = """\
# PTX that the emulator executes

Made from the ISA table (`fa_bench/ptx/isa_*.py`) by `python scripts/ptx_table.py`; a test holds it current. What no
row covers is refused by name and line when a file is loaded. Each row has a semantic in the interpreter
(`fa_bench/ptx/interpreter/`), a lowering in the JIT (`fa_bench/ptx/lower_*.py`) and tests on both (`tests/ptx/`).

Not executed, and refused: what only Hopper and Blackwell have (`wgmma`, `cp.async.bulk` and tensor maps, clusters,
`setmaxnreg`, `tcgen05`), textures and surfaces, indirect and recursive calls.

"""


FAMILIES = {
    "Integers, logic, moves": isa_scalar.ROWS,
    "Floating point": isa_float.ROWS,
    "Conversions": isa_convert.ROWS,
    "Matrices": isa_matrix.ROWS,
    "Memory": isa_memory.ROWS,
    "Atomics": isa_atomic.ROWS,
    "Warps, synchronisation, control flow": isa_warp.ROWS,
}


def signature(row: Row) -> str:
    """Types as they stand in the opcode."""
    if row.signatures:
        return ", ".join(".".join(types) for types in row.signatures)
    return ", ".join(row.types)


def table(rows: tuple[Row, ...]) -> str:
    """One Markdown table, rows of one opcode together."""
    lines = ["| opcode | operands | types | modifiers | counts as |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [f"`{row.op}`", f"`{row.operands}`" if row.operands else "", signature(row), ", ".join(row.modifiers)]
        lines.append("| " + " | ".join([*(c.replace("|", "\\|") for c in cells), row.klass]) + " |")
    return "\n".join(lines)


def document() -> str:
    """The whole page."""
    parts = [HEAD, f"{len(ROWS)} forms of {len({row.op for row in ROWS})} opcodes.\n"]
    for title, rows in FAMILIES.items():
        parts.append(f"\n## {title}\n\n{table(rows)}\n")
    return "".join(parts)


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
