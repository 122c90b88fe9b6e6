"""Integer instructions that compilers emit now and then: saturation, packed halves, dot products, fields, carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.integer import each
from fa_bench.ptx.interpreter.state import LANES, UINT, Lanes, Step, semantic
from fa_bench.ptx.isa import TYPE_BITS
from fa_bench.ptx.isa_row import CARRY
from fa_bench.ptx.program import Reg

_MAX32: Final = (1 << 31) - 1


def _clamped(value: int) -> int:
    """To the range of s32."""
    return min(max(value, -_MAX32 - 1), _MAX32)


def signed(pattern: int, bits: int, type_: str = "s") -> int:
    """The low bits of a pattern as an integer of a signed or unsigned type."""
    pattern &= (1 << bits) - 1
    return pattern - (1 << bits) if type_[0] == "s" and pattern >> bits - 1 else pattern


@semantic("add.sat")
def add_saturating(step: Step) -> None:
    each(step, lambda a, b: _clamped(a + b), step.integer(1), step.integer(2))


@semantic("sub.sat")
def sub_saturating(step: Step) -> None:
    each(step, lambda a, b: _clamped(a - b), step.integer(1), step.integer(2))


@semantic("mad.hi.sat")
def mad_high_saturating(step: Step) -> None:
    each(step, lambda a, b, c: _clamped((a * b >> 32) + c), *(step.integer(k) for k in (1, 2, 3)))


def _packed(step: Step, function: Callable[[int, int], int]) -> None:
    """Both 16-bit halves of 32-bit registers."""
    type_ = step.instruction.type

    def both(a: int, b: int) -> int:
        halves = (function(signed(a >> s, 16, type_), signed(b >> s, 16, type_)) % 2**16 << s for s in (0, 16))
        return sum(halves)

    each(step, both, step.read(1), step.read(2))


@semantic("add.16x2")
def add_packed(step: Step) -> None:
    _packed(step, lambda a, b: a + b)


@semantic("min.16x2")
def min_packed(step: Step) -> None:
    _packed(step, min)


@semantic("max.16x2")
def max_packed(step: Step) -> None:
    _packed(step, max)


@semantic("min.relu", "max.relu")
def extreme_rectified(step: Step) -> None:
    """A negative result becomes 0."""
    choose = min if step.instruction.row.op == "min" else max

    def rectified(a: int, b: int) -> int:
        return max(choose(a, b), 0)

    if step.instruction.type == "s32":
        each(step, rectified, step.integer(1), step.integer(2))
    else:
        _packed(step, rectified)


def _product24(step: Step, a: int, b: int) -> int:
    """Bits 0 to 31 or 16 to 47 of the product of the low 24 bits."""
    type_ = step.instruction.type
    product = signed(a, 24, type_) * signed(b, 24, type_)
    return signed(product if ".lo" in step.instruction.row.op else product >> 16, 32, type_)


@semantic("mul24.lo", "mul24.hi")
def mul24(step: Step) -> None:
    each(step, lambda a, b: _product24(step, a, b), step.read(1), step.read(2))


@semantic("mad24.lo", "mad24.hi")
def mad24(step: Step) -> None:
    each(step, lambda a, b, c: _product24(step, a, b) + c, *(step.read(k) for k in (1, 2, 3)))


@semantic("mad24.hi.sat")
def mad24_saturating(step: Step) -> None:
    each(step, lambda a, b, c: _clamped(_product24(step, a, b) + c), step.read(1), step.read(2), step.integer(3))


@semantic("sad")
def sum_of_difference(step: Step) -> None:
    each(step, lambda a, b, c: c + abs(a - b), *(step.integer(k) for k in (1, 2, 3)))


@semantic("dp4a")
def dot_of_four(step: Step) -> None:
    """c plus the products of the four bytes of a and b, each of its own signedness."""
    of_a, of_b = step.instruction.form.types

    def dot(a: int, b: int, c: int) -> int:
        return c + sum(signed(a >> s, 8, of_a) * signed(b >> s, 8, of_b) for s in (0, 8, 16, 24))

    each(step, dot, *(step.read(k) for k in (1, 2, 3)))


@semantic("dp2a.lo", "dp2a.hi")
def dot_of_two(step: Step) -> None:
    """c plus the products of the two halves of a with the two lower or upper bytes of b."""
    of_a, of_b = step.instruction.form.types
    first = 0 if step.instruction.row.op == "dp2a.lo" else 16

    def dot(a: int, b: int, c: int) -> int:
        return c + sum(signed(a >> 16 * k, 16, of_a) * signed(b >> first + 8 * k, 8, of_b) for k in (0, 1))

    each(step, dot, *(step.read(k) for k in (1, 2, 3)))


@semantic("bfind")
def find_leading_bit(step: Step) -> None:
    """Position of the highest bit that is not the sign's, or how far it is from the top; all ones without any."""
    bits = step.instruction.bits

    def find(a: int) -> int:
        position = (~a if a < 0 else a).bit_length() - 1
        return bits - 1 - position if step.instruction.has("shiftamt") and position >= 0 else position

    results = [find(int(a)) % 2**32 for a in step.integer(1)]
    step.write(np.array(results, np.uint32))


@semantic("cnot")
def logical_not(step: Step) -> None:
    each(step, lambda a: int(a == 0), step.read(1))


@semantic("bmsk")
def bit_mask(step: Step) -> None:
    """Ones from position a on, b of them; both modulo 32 with ``.wrap``."""
    wrap = step.instruction.has("wrap")

    def mask(a: int, b: int) -> int:
        position, width = (a % 32, b % 32) if wrap else (min(a, 32), min(b, 32))
        return ((1 << width) - 1 << position) % 2**32

    each(step, mask, step.read(1), step.read(2))


@semantic("szext")
def extend(step: Step) -> None:
    """The low b bits of a, filled with their sign or zeros; b modulo 32 with ``.wrap``, at most 32 with ``.clamp``."""
    wrap = step.instruction.has("wrap")
    type_ = step.instruction.type

    def fill(a: int, b: int) -> int:
        count = b % 32 if wrap else min(b, 32)
        return signed(a, count, type_) if count else 0

    each(step, fill, step.read(1, "u32"), step.read(2, "u32"))


#: Bytes of ``{b, a}`` that each mode of ``prmt`` picks, most significant first, by the two low bits of the selector.
_PERMUTATIONS: Final = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


@semantic("prmt.mode")
def permute_by_mode(step: Step) -> None:
    (mode,) = step.instruction.form.modifiers

    def pick(a: int, b: int, selector: int) -> int:
        source = (b << 32 | a).to_bytes(8, "little")
        chosen = bytes(source[int(digit)] for digit in _PERMUTATIONS[mode][selector & 3])
        return int.from_bytes(chosen, "big")

    each(step, pick, *(step.read(k) for k in (1, 2, 3)))


def _carry_in(step: Step) -> Lanes:
    if not step.instruction.row.carry.startswith("in"):
        return np.zeros(LANES, np.uint64)
    return step.warp.registers[CARRY].astype(np.uint64)


def _with_carry(step: Step, values: list[int]) -> None:
    """Write sums that may be negative or too large; what does not fit is the carry or borrow."""
    bits = TYPE_BITS[step.instruction.type]
    if step.instruction.row.carry.endswith("out"):
        step.write(np.array([not 0 <= v < 2**bits for v in values]), Reg(CARRY))
    step.write(np.array([v % 2**bits for v in values], UINT[bits]))


@semantic("add.cc", "addc", "addc.cc", "sub.cc", "subc", "subc.cc")
def add_with_carry(step: Step) -> None:
    sign = -1 if step.instruction.row.op.startswith("sub") else 1
    columns = zip(step.read(1), step.read(2), _carry_in(step), strict=True)
    _with_carry(step, [int(a) + sign * (int(b) + int(c)) for a, b, c in columns])


@semantic("mad.lo.cc", "madc.lo", "madc.lo.cc", "mad.hi.cc", "madc.hi", "madc.hi.cc")
def mad_with_carry(step: Step) -> None:
    """The lower or upper half of the product, plus c and the carry."""
    bits = TYPE_BITS[step.instruction.type]
    high = ".hi" in step.instruction.row.op
    columns = zip(step.integer(1), step.integer(2), step.read(3), _carry_in(step), strict=True)
    values = []
    for a, b, c, carry in columns:
        product = int(a) * int(b)
        values.append((product >> bits if high else product) % 2**bits + int(c) + int(carry))
    _with_carry(step, values)
