"""Operands of PTX text, and the names that they may use at a point of a body."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from typing import Final

from fa_bench.ptx.isa import PtxError
from fa_bench.ptx.program import Addr, Imm, Operand, Pair, Reg, Special, Symbol, Vec

_SPECIALS: Final = re.compile(
    r"%(?:tid|ntid|ctaid|nctaid)\.[xyz]$|%(?:laneid|warpid|smid|lanemask_(?:lt|le|eq|ge|gt))$"
)
_NESTED: Final = re.compile(r"[{[(]")


class _Frame:
    """Names of one pair of braces."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Reg | Symbol] = {}
        self.labels: dict[str, str] = {}


class Names:
    """What the names in a body mean: those of nested braces hide outer ones under a private name.

    Parameters
    ----------
    symbols : collection of str
        Variables that are visible everywhere in the body.
    """

    def __init__(self, symbols: Collection[str]) -> None:
        self.symbols = symbols
        self.frames = [_Frame(0)]
        self.opened = 0
        self.widths: dict[str, int] = {}
        self._labels: set[str] = set()

    def open(self) -> None:
        """Enter braces."""
        self.opened += 1
        self.frames.append(_Frame(self.opened))

    def close(self) -> None:
        """Leave them."""
        self.frames.pop()

    def _private(self, name: str) -> str:
        return name if len(self.frames) == 1 else f"{name}@{self.frames[-1].number}"

    def register(self, name: str, width: int) -> str:
        """Declare a register; the name that it has in the program."""
        unique = self._private(name)
        self.frames[-1].names[name] = Reg(unique)
        self.widths[unique] = width
        return unique

    def variable(self, name: str) -> str:
        """Declare a variable of this scope; the name that it has in the program."""
        unique = self._private(name)
        self.frames[-1].names[name] = Symbol(unique)
        return unique

    def label(self, name: str) -> str:
        """Declare a label; the name that it has in the program, the same as in the text where that is free."""
        unique = name if name not in self._labels else f"{name}@{self.frames[-1].number}"
        if name in self.frames[-1].labels:
            raise ValueError(name)
        self._labels.add(unique)
        self.frames[-1].labels[name] = unique
        return unique

    def find(self, name: str) -> Reg | Symbol | None:
        """What ``name`` means here; None if it is no register and no variable."""
        for frame in reversed(self.frames):
            if name in frame.names:
                return frame.names[name]
        return Symbol(name) if name in self.symbols else None

    def guard(self, name: str, negated: bool, line: int) -> Reg:
        """The predicate register of a guard."""
        found = self.find(name)
        if not isinstance(found, Reg):
            raise PtxError(f"PTX line {line}: unknown register {name}.")
        return Reg(found.name, negated)

    def operand(self, text: str, line: int) -> Operand:
        """Read one operand that is no label.

        Raises
        ------
        PtxError
            If it means nothing here.
        """
        if text[0] == "{":
            items = (t.strip() for t in text[1:-1].split(","))
            return Vec(tuple(self.operand(t, line) for t in items if t))
        if text[0] == "[":
            return self._address(text[1:-1].strip(), line)
        if "|" in text:
            first, _, second = text.partition("|")
            return Pair(self.operand(first.strip() or "?", line), self.operand(second.strip() or "?", line))
        negated = text[0] == "!"
        name = text[1:].strip() if negated else text
        if name == "_":
            return Reg("_")
        found = self.find(name)
        if isinstance(found, Reg):
            return Reg(found.name, negated)
        if found is not None:
            return found
        if _SPECIALS.match(name):
            return Special(name)
        if name == "WARP_SZ":
            return Imm(32)
        value = immediate(name)
        if value is None:
            raise PtxError(f"PTX line {line}: unknown operand {text!r}.")
        return value

    def _address(self, text: str, line: int) -> Addr:
        found = re.match(r"^(%?[\w$.]+?)\s*(?:\+\s*(-?\w+))?$", text)
        if found is None:
            raise PtxError(f"PTX line {line}: cannot read the address [{text}].")
        offset = immediate(found[2]) if found[2] else Imm(0)
        if offset is None or not isinstance(offset.value, int):
            raise PtxError(f"PTX line {line}: cannot read the offset in [{text}].")
        base = self.operand(found[1], line)
        if isinstance(base, Imm) and isinstance(base.value, int):
            return Addr(None, base.value + offset.value)
        if not isinstance(base, Reg | Symbol):
            raise PtxError(f"PTX line {line}: cannot read the address [{text}].")
        return Addr(base, offset.value)


def split(text: str) -> list[str]:
    """Split at commas outside braces, brackets and parentheses."""
    if not _NESTED.search(text):
        return [part for part in map(str.strip, text.split(",")) if part]
    parts: list[str] = []
    depth, begin = 0, 0
    for position, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    parts.append(text[begin:].strip())
    return [p for p in parts if p]


def immediate(text: str) -> Imm | None:
    """A literal; None if ``text`` is none."""
    found = re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text)
    if found:
        bits = int(found[1] or found[2], 16)
        form = ("<f", "<I") if found[1] else ("<d", "<Q")
        return Imm(struct.unpack(form[0], struct.pack(form[1], bits))[0], bits)
    found = re.fullmatch(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|(0[0-7]*)|([1-9]\d*))U?", text)
    if found:
        sign = -1 if found[1] == "-" else 1
        bases = zip(found.groups()[1:], (16, 2, 8, 10), strict=True)
        return Imm(next(sign * int(digits, base) for digits, base in bases if digits))
    if re.fullmatch(r"[+-]?\d+\.\d*(?:[eE][+-]?\d+)?", text):
        return Imm(float(text))
    return None
