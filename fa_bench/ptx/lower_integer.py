"""Lowering of less common integer instructions and of multi-word arithmetic through the carry flag."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.isa_row import CARRY
from fa_bench.ptx.lower_arith import extended, lowers, permuted, product, sources
from fa_bench.ptx.program import Instruction, Reg
from fa_bench.ptx.wide import read


@lowers("add.sat", "sub.sat")
def _saturated(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], e.intrinsic(f"llvm.s{i.row.op}.sat", *sources(e, i, "i32")))


@lowers("mad.hi.sat")
def _mad_saturated(e: Emitter, i: Instruction) -> None:
    high, c = product(e, i, "hi"), e.read(i.operands[3], "i32")
    e.write(i.operands[0], e.intrinsic("llvm.sadd.sat", high, c))


@lowers("add.16x2", "min.16x2", "max.16x2", "min.relu", "max.relu")
def _pairs(e: Emitter, i: Instruction) -> None:
    a, b = read(e, i.operands[1:], i.type)
    result = a.op("add", b) if i.row.op == "add" else a.call(f"llvm.{i.type[0]}{i.row.op}", b)
    e.write(i.operands[0], (result.call("llvm.smax", 0) if i.has("relu") else result).value())


@lowers("mul24.lo", "mul24.hi", "mad24.lo", "mad24.hi", "mad24.hi.sat")
def _multiply_24(e: Emitter, i: Instruction) -> None:
    """The product of the lower 24 bits: its bits 0 to 31, or 16 to 47."""
    signed = i.type[0] == "s"
    eight = e.literal(8, "i32")
    word = "ashr" if signed else "lshr"
    factors = []
    for operand in i.operands[1:3]:
        top = e.op("shl {0}, {n1}", e.read(operand, "i32"), eight)
        factors.append(extended(e, e.op(f"{word} {{0}}, {{n1}}", top, eight), 64, signed))
    whole = e.op("mul {0}, {n1}", *factors)
    if ".hi" in i.row.op:
        whole = e.op("lshr {0}, {n1}", whole, e.literal(16, "i64"))
    part = e.convert("trunc", whole, "i32")
    if i.row.op.startswith("mad"):
        c = e.read(i.operands[3], "i32")
        part = e.intrinsic("llvm.sadd.sat", part, c) if i.has("sat") else e.op("add {0}, {n1}", part, c)
    e.write(i.operands[0], part)


@lowers("sad")
def _sad(e: Emitter, i: Instruction) -> None:
    """c + |a - b|."""
    a, b, c = sources(e, i, ELEMENT[i.type])
    sign = i.type[0]
    larger, smaller = e.intrinsic(f"llvm.{sign}max", a, b), e.intrinsic(f"llvm.{sign}min", a, b)
    e.write(i.operands[0], e.op("add {0}, {n1}", c, e.op("sub {0}, {n1}", larger, smaller)))


def _field(e: Emitter, value: Value, type_: str, first: int, width: int) -> Value:
    """Bits ``first`` and up of an i32, extended by the type's sign."""
    up = e.op("shl {0}, {n1}", value, e.literal(32 - width - first, "i32"))
    word = "ashr" if type_[0] == "s" else "lshr"
    return e.op(f"{word} {{0}}, {{n1}}", up, e.literal(32 - width, "i32"))


@lowers("dp4a", "dp2a.lo", "dp2a.hi")
def _dot(e: Emitter, i: Instruction) -> None:
    """Four products of bytes, or two of half words with bytes of the lower or upper half of b."""
    a, b, total = sources(e, i, "i32")
    of_a, of_b = i.form.types
    count = 4 if i.row.op == "dp4a" else 2
    width, offset = 32 // count, 16 if i.row.op == "dp2a.hi" else 0
    for k in range(count):
        factors = _field(e, a, of_a, width * k, width), _field(e, b, of_b, offset + 8 * k, 8)
        total = e.op("add {0}, {n1}", total, e.op("mul {0}, {n1}", *factors))
    e.write(i.operands[0], total)


@lowers("bfind")
def _bfind(e: Emitter, i: Instruction) -> None:
    """The highest bit that differs from the sign; -1 if there is none."""
    (a,) = sources(e, i, ELEMENT[i.type])
    width = BITS[a.elem]
    if i.type[0] == "s":
        a = e.op("xor {0}, {n1}", a, e.op("ashr {0}, {n1}", a, e.literal(width - 1, a.elem)))
    zeros = e.intrinsic("llvm.ctlz", a, tail=", i1 false")
    if i.has("shiftamt"):
        none = e.op("icmp eq {0}, {n1}", zeros, e.literal(width, a.elem), elem="i1")
        result = e.select(none, e.literal(-1, a.elem), zeros)
    else:
        result = e.op("sub {0}, {n1}", e.literal(width - 1, a.elem), zeros)
    e.write(i.operands[0], result if width == 32 else e.convert("trunc", result, "i32"))


@lowers("cnot")
def _cnot(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i, ELEMENT[i.type])
    e.write(
        i.operands[0], extended(e, e.op("icmp eq {0}, {n1}", a, e.literal(0, a.elem), elem="i1"), BITS[a.elem], False)
    )


def _bounded(e: Emitter, i: Instruction, value: Value) -> Value:
    """A bit count as i64: at most 32 (``.clamp``) or modulo 32 (``.wrap``)."""
    if i.has("clamp"):
        value = e.intrinsic("llvm.umin", value, e.literal(32, "i32"))
    else:
        value = e.op("and {0}, {n1}", value, e.literal(31, "i32"))
    return extended(e, value, 64, False)


@lowers("bmsk")
def _bmsk(e: Emitter, i: Instruction) -> None:
    """Ones from bit a on, b of them; what would leave the word is dropped."""
    start, width = (_bounded(e, i, value) for value in sources(e, i, "i32"))
    one = e.literal(1, "i64")
    ones = e.op("sub {0}, {n1}", e.op("shl {0}, {n1}", one, width), one)
    e.write(i.operands[0], e.convert("trunc", e.op("shl {0}, {n1}", ones, start), "i32"))


@lowers("szext")
def _szext(e: Emitter, i: Instruction) -> None:
    """The lower b bits of a, extended; b of 0 gives 0."""
    a, b = sources(e, i, "i32")
    away = e.op("sub {0}, {n1}", e.literal(64, "i64"), _bounded(e, i, b))
    # A shift by 64 would be undefined: one step of it is made apart.
    one = e.literal(1, "i64")
    less = e.op("sub {0}, {n1}", away, one)
    up = e.op("shl {0}, {n1}", e.op("shl {0}, {n1}", extended(e, a, 64, False), less), one)
    word = "ashr" if i.type[0] == "s" else "lshr"
    down = e.op(f"{word} {{0}}, {{n1}}", e.op(f"{word} {{0}}, {{n1}}", up, one), less)
    e.write(i.operands[0], e.convert("trunc", down, "i32"))


#: Selectors that the modes of ``prmt`` stand for, by the lower two bits of c.
_SELECTORS: Final = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333), "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}  # fmt: skip


@lowers("prmt.mode")
def _prmt_mode(e: Emitter, i: Instruction) -> None:
    a, b, c = sources(e, i, "i32")
    table = next(selectors for mode, selectors in _SELECTORS.items() if i.has(mode))
    number = e.op("and {0}, {n1}", c, e.literal(3, "i32"))
    selector = e.literal(table[0], "i32")
    for k in (1, 2, 3):
        here = e.op("icmp eq {0}, {n1}", number, e.literal(k, "i32"), elem="i1")
        selector = e.select(here, e.literal(table[k], "i32"), selector)
    e.write(i.operands[0], permuted(e, a, b, selector))


def _carry_in(e: Emitter, i: Instruction, elem: str) -> Value:
    if not i.row.carry.startswith("in"):
        return e.literal(0, elem)
    return extended(e, e.read(Reg(CARRY), "i1"), BITS[elem], False)


def _write_sum(e: Emitter, i: Instruction, a: Value, b: Value) -> None:
    """a + b + carry, and the carry out of it."""
    first = e.op("add {0}, {n1}", a, b)
    total = e.op("add {0}, {n1}", first, _carry_in(e, i, a.elem))
    if i.row.carry.endswith("out"):
        over = e.op("icmp ult {0}, {n1}", first, a, elem="i1")
        again = e.op("icmp ult {0}, {n1}", total, first, elem="i1")
        flag = e.op("or {0}, {n1}", over, again)
        e.write(Reg(CARRY), flag)
    e.write(i.operands[0], total)


@lowers("add.cc", "addc", "addc.cc")
def _add_carry(e: Emitter, i: Instruction) -> None:
    _write_sum(e, i, *sources(e, i, ELEMENT[i.type]))


@lowers("sub.cc", "subc", "subc.cc")
def _subtract_borrow(e: Emitter, i: Instruction) -> None:
    """The flag is the borrow."""
    a, b = sources(e, i, ELEMENT[i.type])
    first = e.op("sub {0}, {n1}", a, b)
    borrow = _carry_in(e, i, a.elem)
    total = e.op("sub {0}, {n1}", first, borrow)
    if i.row.carry.endswith("out"):
        under = e.op("icmp ult {0}, {n1}", a, b, elem="i1")
        again = e.op("icmp ult {0}, {n1}", first, borrow, elem="i1")
        e.write(Reg(CARRY), e.op("or {0}, {n1}", under, again))
    e.write(i.operands[0], total)


@lowers(*(f"{op}.{half}{cc}" for op, cc in (("mad", ".cc"), ("madc", ""), ("madc", ".cc")) for half in ("lo", "hi")))
def _mad_carry(e: Emitter, i: Instruction) -> None:
    part = product(e, i, "hi" if ".hi" in i.row.op else "lo")
    _write_sum(e, i, part, e.read(i.operands[3], part.elem))
