"""Lowering of integer arithmetic, logic and moves: one function per ISA row.

LLVM's undefined behaviour is not PTX's: shifts of at least the width and division by zero are guarded here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fa_bench.ptx.cfg import Kind
from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.layout import LANES
from fa_bench.ptx.program import Imm, Instruction, Vec

Lowering = Callable[[Emitter, Instruction], None]
LOWERINGS: Final[dict[str, Lowering]] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of the rows ``names``; a second one for the same row is a mistake."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"two lowerings for {name}")
            LOWERINGS[name] = function
        return function

    return register


def sources(e: Emitter, i: Instruction, elem: str) -> list[Value]:
    """All source operands as ``elem``."""
    return [e.read(operand, elem) for operand in i.operands[1:]]


def extended(e: Emitter, value: Value, bits: int, signed: bool) -> Value:
    """Integer ``value`` widened to ``bits``."""
    if BITS[value.elem] == bits:
        return value
    return e.convert("sext" if signed else "zext", value, f"i{bits}")


def shift(e: Emitter, word: str, value: Value, amount: Value) -> Value:
    """Shift with PTX's rule: amounts of at least the width give 0, or the sign for ``ashr``."""
    width = BITS[value.elem]
    if BITS[amount.elem] > width:
        capped = e.intrinsic("llvm.umin", amount, e.literal(width, amount.elem))
        amount = e.convert("trunc", capped, value.elem)
    elif BITS[amount.elem] < width:
        amount = extended(e, amount, width, False)
    if amount.literal and 0 <= int(amount.name) < width:
        return e.op(f"{word} {{0}}, {{n1}}", value, amount)
    last = e.literal(width - 1, value.elem)
    bounded = e.intrinsic("llvm.umin", amount, last)
    result = e.op(f"{word} {{0}}, {{n1}}", value, bounded)
    if word == "ashr":
        return result
    fits = e.op("icmp ule {0}, {n1}", amount, last, elem="i1")
    return e.select(fits, result, e.literal(0, value.elem))


@lowers("add.int", "sub.int", "mul.lo")
def _add(e: Emitter, i: Instruction) -> None:
    a, b = sources(e, i, ELEMENT[i.type])
    word = {"add.int": "add", "sub.int": "sub", "mul.lo": "mul"}[i.row.name]
    value = e.op(f"{word} {{0}}, {{n1}}", a, b)
    if word == "add" and {a.kind, b.kind} == {Kind.TID, Kind.ZERO}:
        value = Value(value.name, value.elem, value.uniform, Kind.TID)
    e.write(i.operands[0], value)


def product(e: Emitter, i: Instruction, part: str) -> Value:
    """The lower (``lo``), upper (``hi``) or whole (``wide``) product of the first two sources."""
    elem, signed = ELEMENT[i.type], i.type[0] == "s"
    a, b = (e.read(o, elem) for o in i.operands[1:3])
    if part == "lo":
        return e.op("mul {0}, {n1}", a, b)
    double = 2 * BITS[elem]
    wide = e.op("mul {0}, {n1}", extended(e, a, double, signed), extended(e, b, double, signed))
    if part == "wide":
        return wide
    return e.convert("trunc", e.op("lshr {0}, {n1}", wide, e.literal(BITS[elem], wide.elem)), elem)


@lowers("mul.hi", "mul.wide")
def _mul(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], product(e, i, i.row.name.removeprefix("mul.")))


@lowers("mad.lo", "mad.hi", "mad.wide")
def _mad(e: Emitter, i: Instruction) -> None:
    part = product(e, i, i.row.name.removeprefix("mad."))
    e.write(i.operands[0], e.op("add {0}, {n1}", part, e.read(i.operands[3], part.elem)))


@lowers("div.int", "rem.int")
def _div(e: Emitter, i: Instruction) -> None:
    elem, signed = ELEMENT[i.type], i.type[0] == "s"
    a, b = sources(e, i, elem)
    zero, one, ones = e.literal(0, elem), e.literal(1, elem), e.literal(-1, elem)
    by_zero = e.op("icmp eq {0}, {n1}", b, zero, elem="i1")
    divisor = e.select(by_zero, one, b)
    if signed:
        # MIN / -1 overflows in IR; negation gives the wrapped quotient, remainder 0.
        minus = e.op("icmp eq {0}, {n1}", b, ones, elem="i1")
        divisor = e.select(minus, one, divisor)
    word = ("s" if signed else "u") + i.row.op
    value = e.op(f"{word} {{0}}, {{n1}}", a, divisor)
    if signed:
        special = e.op("sub {0}, {n1}", zero, a) if i.row.op == "div" else zero
        value = e.select(minus, special, value)
    e.write(i.operands[0], e.select(by_zero, ones if i.row.op == "div" else a, value))


@lowers("min.int", "max.int")
def _minmax(e: Emitter, i: Instruction) -> None:
    name = f"llvm.{i.type[0]}{i.row.op}"
    e.write(i.operands[0], e.intrinsic(name, *sources(e, i, ELEMENT[i.type])))


@lowers("abs.int", "neg.int")
def _neg(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i, ELEMENT[i.type])
    if i.row.op == "abs":
        e.write(i.operands[0], e.intrinsic("llvm.abs", a, tail=", i1 false"))
    else:
        e.write(i.operands[0], e.op("sub {0}, {n1}", e.literal(0, a.elem), a))


@lowers("and", "or", "xor")
def _logic(e: Emitter, i: Instruction) -> None:
    a, b = sources(e, i, ELEMENT[i.type])
    if a.kind is Kind.TID and b.literal and int(b.name) & 31 == 0 and i.row.op == "and" and not a.uniform:
        a = first_lane(e, a)
    e.write(i.operands[0], e.op(f"{i.row.op} {{0}}, {{n1}}", a, b))


def first_lane(e: Emitter, value: Value) -> Value:
    """Lane 0 of a vector."""
    return Value(e.let(f"extractelement {value.typed}, i64 0"), value.elem, True)


@lowers("not")
def _not(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i, ELEMENT[i.type])
    ones = Value("true", "i1", True) if a.elem == "i1" else e.literal(-1, a.elem)
    e.write(i.operands[0], e.op("xor {0}, {n1}", a, ones))


@lowers("shl", "shr")
def _shift(e: Emitter, i: Instruction) -> None:
    a = e.read(i.operands[1], ELEMENT[i.type])
    amount = e.read(i.operands[2], "i32")
    if i.row.op == "shl":
        e.write(i.operands[0], shift(e, "shl", a, amount))
        return
    signed = i.type[0] == "s"
    if a.kind is Kind.TID and amount.literal and not a.uniform:
        if signed and int(amount.name) == 31:
            e.write(i.operands[0], e.literal(0, a.elem))
            return
        if int(amount.name) >= 5:
            a = first_lane(e, a)
    if a.kind is Kind.ZERO and a.uniform:
        e.write(i.operands[0], e.literal(0, a.elem))
        return
    e.write(i.operands[0], shift(e, "ashr" if signed else "lshr", a, amount))


@lowers("shf.l", "shf.r")
def _funnel(e: Emitter, i: Instruction) -> None:
    low, high, count = sources(e, i, "i32")
    if i.has("wrap"):
        count = e.op("and {0}, {n1}", count, e.literal(31, "i32"))
    else:
        count = e.intrinsic("llvm.umin", count, e.literal(32, "i32"))
    count64 = extended(e, count, 64, False)
    top = e.op("shl {0}, {n1}", extended(e, high, 64, False), e.literal(32, "i64"))
    both = e.op("or {0}, {n1}", top, extended(e, low, 64, False))
    if i.row.op == "shf.l":
        shifted = e.op("shl {0}, {n1}", both, count64)
        shifted = e.op("lshr {0}, {n1}", shifted, e.literal(32, "i64"))
    else:
        shifted = e.op("lshr {0}, {n1}", both, count64)
    e.write(i.operands[0], e.convert("trunc", shifted, "i32"))


@lowers("lop3")
def _lop3(e: Emitter, i: Instruction) -> None:
    table = i.operands[4]
    assert isinstance(table, Imm) and isinstance(table.value, int)
    a, b, c = (e.read(o, "i32") for o in i.operands[1:4])
    ones = e.literal(-1, "i32")
    inverse = [e.op("xor {0}, {n1}", v, ones) for v in (a, b, c)]
    result = e.literal(0, "i32")
    for row in range(8):
        if table.value >> row & 1:
            terms = [v if row >> (2 - k) & 1 else inverse[k] for k, v in enumerate((a, b, c))]
            minterm = e.op("and {0}, {n1}", e.op("and {0}, {n1}", terms[0], terms[1]), terms[2])
            result = e.op("or {0}, {n1}", result, minterm)
    e.write(i.operands[0], result)


@lowers("prmt")
def _prmt(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], permuted(e, *sources(e, i, "i32")))


def permuted(e: Emitter, a: Value, b: Value, selector: Value) -> Value:
    """``prmt``: each nibble of the selector picks a byte of ``{b, a}``, or replicates that byte's sign."""
    if selector.literal and not int(selector.name) & 0x8888:
        return _permuted_bytes(e, a, b, int(selector.name))
    high = e.op("shl {0}, {n1}", extended(e, b, 64, False), e.literal(32, "i64"))
    both = e.op("or {0}, {n1}", high, extended(e, a, 64, False))
    result = e.literal(0, "i32")
    for k in range(4):
        nibble = e.op("lshr {0}, {n1}", selector, e.literal(4 * k, "i32"))
        index = e.op("and {0}, {n1}", nibble, e.literal(7, "i32"))
        amount = extended(e, e.op("shl {0}, {n1}", index, e.literal(3, "i32")), 64, False)
        byte = e.convert("trunc", e.op("lshr {0}, {n1}", both, amount), "i8")
        sign = e.op("ashr {0}, {n1}", byte, e.literal(7, "i8"))
        replicate = e.op("and {0}, {n1}", nibble, e.literal(8, "i32"))
        wanted = e.op("icmp ne {0}, {n1}", replicate, e.literal(0, "i32"), elem="i1")
        chosen = extended(e, e.select(wanted, sign, byte), 32, False)
        result = e.op("or {0}, {n1}", result, e.op("shl {0}, {n1}", chosen, e.literal(8 * k, "i32")))
    return result


def _permuted_bytes(e: Emitter, a: Value, b: Value, selector: int) -> Value:
    """The same for a constant selector: one shuffle of bytes."""
    a, b = e.level([a, b])
    lanes = 1 if a.uniform else LANES
    bytes_ = [e.let(f"bitcast {v.typed} to <{4 * lanes} x i8>") for v in (a, b)]
    nibbles = [selector >> 4 * k & 7 for k in range(4)]
    places = [4 * lane + (n if n < 4 else 4 * lanes + n - 4) for lane in range(lanes) for n in nibbles]
    mask = ", ".join(f"i32 {place}" for place in places)
    kind = f"<{4 * lanes} x i8>"
    moved = e.let(f"shufflevector {kind} {bytes_[0]}, {kind} {bytes_[1]}, <{4 * lanes} x i32> <{mask}>")
    return Value(e.let(f"bitcast {kind} {moved} to {a.type}"), "i32", a.uniform)


@lowers("bfe")
def _bfe(e: Emitter, i: Instruction) -> None:
    elem, signed = ELEMENT[i.type], i.type[0] == "s"
    width = BITS[elem]
    a = e.read(i.operands[1], elem)
    position, length = (_low_byte(e, i, k) for k in (2, 3))
    end = e.intrinsic("llvm.umin", e.op("add {0}, {n1}", position, length), e.literal(width, "i32"))
    up = e.op("sub {0}, {n1}", e.literal(width, "i32"), end)
    down = e.op("add {0}, {n1}", up, position)
    field = shift(e, "ashr" if signed else "lshr", shift(e, "shl", a, up), down)
    empty = e.op("icmp eq {0}, {n1}", length, e.literal(0, "i32"), elem="i1")
    e.write(i.operands[0], e.select(empty, e.literal(0, elem), field))


@lowers("bfi")
def _bfi(e: Emitter, i: Instruction) -> None:
    elem = ELEMENT[i.type]
    a, b = (e.read(o, elem) for o in i.operands[1:3])
    position, length = (_low_byte(e, i, k) for k in (3, 4))
    ones = e.literal(-1, elem)
    below = e.op("xor {0}, {n1}", shift(e, "shl", ones, length), ones)
    mask = shift(e, "shl", below, position)
    kept = e.op("and {0}, {n1}", b, e.op("xor {0}, {n1}", mask, ones))
    field = e.op("and {0}, {n1}", shift(e, "shl", a, position), mask)
    e.write(i.operands[0], e.op("or {0}, {n1}", kept, field))


def _low_byte(e: Emitter, i: Instruction, operand: int) -> Value:
    return e.op("and {0}, {n1}", e.read(i.operands[operand], "i32"), e.literal(255, "i32"))


@lowers("popc", "clz", "brev")
def _bit_count(e: Emitter, i: Instruction) -> None:
    a = e.read(i.operands[1], ELEMENT[i.type])
    if i.row.op == "brev":
        e.write(i.operands[0], e.intrinsic("llvm.bitreverse", a))
        return
    count = e.intrinsic("llvm.ctpop", a) if i.row.op == "popc" else e.intrinsic("llvm.ctlz", a, tail=", i1 false")
    e.write(i.operands[0], count if count.elem == "i32" else e.convert("trunc", count, "i32"))


@lowers("mov")
def _mov(e: Emitter, i: Instruction) -> None:
    target, source = i.operands
    elem = ELEMENT[i.type]
    if isinstance(source, Vec):
        part = BITS[elem] // len(source.items)
        result = e.literal(0, elem)
        for k, item in enumerate(source.items):
            piece = extended(e, e.read(item, f"i{part}"), BITS[elem], False)
            piece = e.op("shl {0}, {n1}", piece, e.literal(k * part, elem)) if k else piece
            result = e.op("or {0}, {n1}", result, piece) if k else piece
        e.write(target, result)
    elif isinstance(target, Vec):
        value = e.read(source, elem)
        part = BITS[elem] // len(target.items)
        pieces = []
        for k in range(len(target.items)):
            piece = e.op("lshr {0}, {n1}", value, e.literal(k * part, elem)) if k else value
            pieces.append(e.convert("trunc", piece, f"i{part}"))
        for item, piece in zip(target.items, pieces, strict=True):
            e.write(item, piece)
    else:
        e.write(target, e.read(source, elem))
