"""What an ISA row is, the types of PTX, and the errors of its reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.errors import FaBenchError

InstructionClass = Literal["tensor", "fma", "sfu", "integer", "convert", "move", "load-store", "sync", "control"]


class PtxError(FaBenchError):
    """PTX text that cannot be read."""


class UnsupportedInstruction(PtxError):
    """An instruction that no ISA row covers; the message names it and its line."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(f"The emulator does not know the instruction {text!r} (PTX line {line}).")
        self.text = text
        self.line = line


#: Bits of each PTX type.
TYPE_BITS: Final[dict[str, int]] = {
    "pred": 1,
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64,
}  # fmt: skip

#: Groups of types that many rows share.
INT: Final = ("s16", "u16", "s32", "u32", "s64", "u64")
BITS: Final = ("pred", "b16", "b32", "b64")
MOVE: Final = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16")
MEMORY: Final = ("b8", "u8", "s8", *MOVE)
ROUNDING: Final = ("rn", "rz", "rm", "rp")
COMPARE: Final = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs")
COMPARE_UNORDERED: Final = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction form.

    Parameters
    ----------
    name : str
        Key of its semantics, unique.
    op : str
        Opcode as written, with the modifiers that select the operation (``mul.lo``, ``cp.async``).
    klass : InstructionClass
        What it counts as in the instruction mix.
    types : tuple of str
        Types that may stand in the opcode; empty for untyped instructions.
    modifiers : tuple of str
        Further suffixes that are allowed.
    operands : str
        Operand roles in order: ``d`` destination, ``a b c`` sources, ``[a]`` address, ``L`` label.
    optional : int
        How many trailing operands may be missing.
    lane_varying : bool
        True if the result differs between lanes although all sources are uniform.
    signatures : tuple of tuple of str
        If not empty: the exact sequences of types that are executed (``("f16x2", "f32")`` for a conversion).
    """

    name: str
    op: str
    klass: InstructionClass
    types: tuple[str, ...] = ()
    modifiers: tuple[str, ...] = ()
    operands: str = ""
    optional: int = 0
    lane_varying: bool = False
    signatures: tuple[tuple[str, ...], ...] = ()

    @property
    def writes(self) -> bool:
        """Whether the first operand is a destination register (or a vector of them)."""
        return self.operands.startswith("d")


class Table:
    """Collects rows; a second row of the same name is a mistake."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def add(
        self,
        name: str,
        op: str,
        klass: InstructionClass,
        types: tuple[str, ...],
        operands: str,
        modifiers: tuple[str, ...] = (),
        optional: int = 0,
        lane_varying: bool = False,
        signatures: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        """Add a row; see :class:`Row`."""
        if name in self._rows:
            raise ValueError(f"two ISA rows are called {name}")
        self._rows[name] = Row(name, op, klass, types, modifiers, operands, optional, lane_varying, signatures)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows in the order they were added."""
        return tuple(self._rows.values())
