"""Literals of LLVM IR, and the widths of its element types."""

from __future__ import annotations

import math
import struct
from typing import Final

BITS: Final[dict[str, int]] = {
    "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "half": 16, "float": 32, "double": 64,
}  # fmt: skip
#: ``struct`` codes of the float types and of the integers of their width.
_FLOATS: Final = {"half": ("e", "H"), "float": ("f", "I"), "double": ("d", "Q")}


def float_literal(bits: int) -> str:
    """IR literal of an f32 bit pattern: LLVM writes floats as the bits of the double of the same value."""
    sign, exponent, mantissa = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return f"0x{sign << 63 | 0x7FF << 52 | mantissa << 29:016X}"
    number = struct.unpack("<f", struct.pack("<I", bits))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def constant(number: int | float, bits: int | None, elem: str) -> str:
    """IR literal of a PTX immediate read as ``elem``; an integer stands for its pattern."""
    if elem == "i1":
        return "true" if number else "false"
    if isinstance(number, int):
        return literal_of(number, elem)
    if elem not in _FLOATS:
        # A floating-point literal for an untyped 32- or 64-bit move.
        return literal_of(_packed(number, "float" if BITS[elem] == 32 else "double") if bits is None else bits, elem)
    pattern = _packed(number, elem)
    # A NaN keeps its payload where its literal has this width.
    return literal_of(bits if bits is not None and number != number and bits >> BITS[elem] == 0 else pattern, elem)


def _packed(number: float, elem: str) -> int:
    real, whole = _FLOATS[elem]
    try:
        data = struct.pack(f"<{real}", number)
    except OverflowError:
        data = struct.pack(f"<{real}", math.copysign(math.inf, number))
    pattern: int = struct.unpack(f"<{whole}", data)[0]
    return pattern


def literal_of(pattern: int, elem: str) -> str:
    """IR literal of a bit pattern as ``elem``."""
    width = BITS[elem]
    pattern &= (1 << width) - 1
    if elem == "float":
        return float_literal(pattern)
    if elem == "double":
        return f"0x{pattern:016X}"
    if elem == "half":
        return f"0xH{pattern:04X}"
    return str(pattern - (1 << width) if pattern >> (width - 1) else pattern)


def relabel(name: str, source: str, elem: str) -> str:
    """The literal of ``source`` type with the same bits as ``elem``."""
    return literal_of(_pattern(name, source), elem)


def _pattern(literal: str, elem: str) -> int:
    """Bit pattern of an IR literal."""
    if elem == "half":
        return int(literal[3:], 16)
    if elem not in _FLOATS:
        return int(literal)
    wide = int(literal, 16)
    if elem == "double":
        return wide
    if wide >> 52 & 0x7FF == 0x7FF:
        return (wide >> 63) << 31 | 0xFF << 23 | (wide >> 29 & 0x7FFFFF)
    return _packed(struct.unpack("<d", struct.pack("<Q", wide))[0], "float")
