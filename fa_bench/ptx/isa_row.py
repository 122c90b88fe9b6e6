"""What an ISA row is, the types of PTX, and the errors of its reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.errors import FaBenchError

InstructionClass = Literal["tensor", "fma", "sfu", "integer", "convert", "move", "load-store", "sync", "control"]
Carry = Literal["", "in", "out", "in out"]


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
    "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64, "f32x2": 64, "u16x2": 32, "s16x2": 32,
    "tf32": 32, "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16,
}  # fmt: skip

#: Groups of types that many rows share.
INT: Final = ("s16", "u16", "s32", "u32", "s64", "u64")
BITS: Final = ("pred", "b16", "b32", "b64")
MOVE: Final = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16")
MEMORY: Final = ("b8", "u8", "s8", *MOVE)
ROUNDING: Final = ("rn", "rz", "rm", "rp")
COMPARE: Final = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs")
COMPARE_UNORDERED: Final = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
#: Comparisons of floating-point numbers.
COMPARE_FLOAT: Final = (*COMPARE[:6], *COMPARE_UNORDERED)
#: How ``setp`` and ``set`` combine their result with a predicate.
COMBINE: Final = ("", "and", "or", "xor")
DIRECTED: Final = ("rz", "rm", "rp")
ROUNDING_TO_INTEGER: Final = ("rni", "rzi", "rmi", "rpi")

#: Register that holds each thread's carry flag (``CC.CF``).
CARRY: Final = "CC.CF"


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
        Operand roles in order: ``d`` destination, ``d|q`` two of them, ``a b c`` sources, ``[a]`` address,
        ``L`` label.
    optional : int
        How many trailing operands may be missing.
    lane_varying : bool
        True if the result differs between lanes although all sources are uniform.
    signatures : tuple of tuple of str
        If not empty: the exact sequences of types that are executed (``("f16x2", "f32")`` for a conversion).
    choose : tuple of tuple of str
        From each group exactly one modifier stands in the opcode; a group that holds ``""`` may be left out.
    max_bits : int
        If not 0: the largest vector that one access may move, in bits.
    carry : {"", "in", "out", "in out"}
        Whether the instruction reads or writes the carry flag.
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
    choose: tuple[tuple[str, ...], ...] = ()
    max_bits: int = 0
    carry: Carry = ""

    @property
    def writes(self) -> bool:
        """Whether the first operand is a destination register (or a vector of them)."""
        return self.operands.startswith("d")

    def allows(self, types: tuple[str, ...], modifiers: frozenset[str]) -> bool:
        """Whether an opcode with these types and modifiers is of this form."""
        chosen = frozenset().union(*self.choose)
        if bool(types) != bool(self.types) or not set(types) <= set(self.types):
            return False
        if self.signatures and types not in self.signatures:
            return False
        if not modifiers <= chosen.union(self.modifiers):
            return False
        if any(
            len(modifiers & set(group)) != 1 and ("" not in group or modifiers & set(group)) for group in self.choose
        ):
            return False
        return not self.max_bits or vector_length(modifiers) * TYPE_BITS[types[-1]] <= self.max_bits


def vector_length(modifiers: frozenset[str]) -> int:
    """Elements that a load or store moves: 2, 4 or 8 for ``.v2``, ``.v4``, ``.v8``, else 1."""
    return next((int(m[1]) for m in modifiers if m in ("v2", "v4", "v8")), 1)


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
        choose: tuple[tuple[str, ...], ...] = (),
        max_bits: int = 0,
        carry: Carry = "",
    ) -> None:
        """Add a row; see :class:`Row`."""
        if name in self._rows:
            raise ValueError(f"two ISA rows are called {name}")
        self._rows[name] = Row(
            name, op, klass, types, modifiers, operands, optional, lane_varying, signatures, choose, max_bits, carry
        )

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows in the order they were added."""
        return tuple(self._rows.values())
