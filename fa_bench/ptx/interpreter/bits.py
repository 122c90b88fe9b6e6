"""Bitwise logic, shifts and bit fields. Shift amounts are 32-bit unsigned and clamp at the width."""

from __future__ import annotations

import numpy as np

from fa_bench.ptx.interpreter.integer import each
from fa_bench.ptx.interpreter.state import Lanes, Step, semantic


@semantic("and")
def bitwise_and(step: Step) -> None:
    step.write(step.read(1) & step.read(2))


@semantic("or")
def bitwise_or(step: Step) -> None:
    step.write(step.read(1) | step.read(2))


@semantic("xor")
def bitwise_xor(step: Step) -> None:
    step.write(step.read(1) ^ step.read(2))


@semantic("not")
def bitwise_not(step: Step) -> None:
    step.write(~step.read(1))


@semantic("shl")
def shift_left(step: Step) -> None:
    bits = step.instruction.bits
    each(step, lambda a, n: a << min(n, bits), step.read(1), step.read(2, "u32"))


@semantic("shr")
def shift_right(step: Step) -> None:
    """Fills with the sign if the type is signed, else with zeros."""
    bits = step.instruction.bits
    each(step, lambda a, n: a >> min(n, bits), step.integer(1), step.read(2, "u32"))


def _funnel(step: Step) -> tuple[Lanes, Lanes]:
    """``{b, a}`` as 64 bits, and the shift amount after ``.wrap`` (modulo 32) or ``.clamp`` (at most 32)."""
    low, high = (step.read(k).astype(np.uint64) for k in (1, 2))
    amount = step.read(3)
    amount = amount & np.uint32(31) if step.instruction.has("wrap") else np.minimum(amount, np.uint32(32))
    return high << np.uint64(32) | low, amount.astype(np.uint64)


@semantic("shf.l")
def funnel_left(step: Step) -> None:
    both, amount = _funnel(step)
    step.write(both << amount >> np.uint64(32))


@semantic("shf.r")
def funnel_right(step: Step) -> None:
    both, amount = _funnel(step)
    step.write(both >> amount)


@semantic("lop3")
def logic_of_three(step: Step) -> None:
    """Bit ``4a + 2b + c`` of the table operand is the result for input bits a, b, c."""
    a, b, c = (step.read(k) for k in (1, 2, 3))
    table = step.constant(4)
    result = np.zeros_like(a)
    for index in range(8):
        if table >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    step.write(result)


def _permute(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    result = bytearray()
    for position in range(4):
        nibble = selector >> 4 * position & 0xF
        byte = source[nibble & 7]
        result.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(result, "little")


@semantic("prmt")
def permute(step: Step) -> None:
    """Each nibble of c picks a byte of ``{b, a}``; its top bit replicates that byte's sign instead."""
    each(step, _permute, *(step.read(k) for k in (1, 2, 3)))


@semantic("bfe")
def extract_field(step: Step) -> None:
    """Bits beyond the field or the width are the field's sign bit if the type is signed, else zero."""
    bits = step.instruction.bits
    signed = step.instruction.type[0] == "s"

    def extract(a: int, position: int, length: int) -> int:
        position, length = position & 0xFF, length & 0xFF
        field = a >> position & (1 << length) - 1
        if signed and length and a >> min(position + length, bits) - 1 & 1:
            field |= -1 << min(length, max(bits - position, 0))
        return field

    each(step, extract, step.read(1), step.read(2, "u32"), step.read(3, "u32"))


@semantic("bfi")
def insert_field(step: Step) -> None:
    """The low bits of a replace those of b from a position on; what would leave the width is dropped."""

    def insert(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 0xFF, length & 0xFF
        mask = (1 << length) - 1 << position
        return b & ~mask | a << position & mask

    each(step, insert, step.read(1), step.read(2), step.read(3, "u32"), step.read(4, "u32"))


@semantic("popc")
def count_ones(step: Step) -> None:
    each(step, int.bit_count, step.read(1))


@semantic("clz")
def leading_zeros(step: Step) -> None:
    bits = step.instruction.bits
    each(step, lambda a: bits - a.bit_length(), step.read(1))


@semantic("brev")
def reverse(step: Step) -> None:
    bits = step.instruction.bits
    each(step, lambda a: int(f"{a:0{bits}b}"[::-1], 2), step.read(1))
