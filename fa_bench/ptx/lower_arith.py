"""Lowering of arithmetic, logic, conversions and moves: one function per ISA row.

LLVM's undefined behaviour is not PTX's: shifts of at least the width, division by zero and conversions out of
range are guarded here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fa_bench.ptx.cfg import Kind
from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import SHARED_WINDOW
from fa_bench.ptx.program import Imm, Instruction, Pair, Vec

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


def flushed(e: Emitter, value: Value) -> Value:
    """Subnormal f32 to zero of the same sign."""
    bits = e.cast(value, "i32")
    exponent = e.op("and {0}, {n1}", bits, e.literal(0x7F800000, "i32"))
    tiny = e.op("icmp eq {0}, {n1}", exponent, e.literal(0, "i32"), elem="i1")
    sign = e.op("and {0}, {n1}", bits, e.literal(0x80000000, "i32"))
    return e.cast(e.select(tiny, sign, bits), "float")


def float_result(e: Emitter, i: Instruction, value: Value) -> None:
    """Write an f32 result after ``.sat`` and ``.ftz``."""
    if i.has("sat"):
        # maxnum turns NaN into 0, as .sat demands.
        low = e.intrinsic("llvm.maxnum", value, e.literal(0.0, "float"))
        value = e.intrinsic("llvm.minnum", low, e.literal(1.0, "float"))
    if i.has("ftz"):
        value = flushed(e, value)
    e.write(i.operands[0], value)


def float_sources(e: Emitter, i: Instruction) -> list[Value]:
    """f32 sources, subnormals flushed for ``.ftz``."""
    values = sources(e, i, "float")
    return [flushed(e, v) for v in values] if i.has("ftz") else values


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


@lowers("add.f32", "sub.f32", "mul.f32")
def _add_f32(e: Emitter, i: Instruction) -> None:
    a, b = float_sources(e, i)
    float_result(e, i, e.op(f"f{i.row.op} {{0}}, {{n1}}", a, b))


@lowers("fma.f32", "mad.f32")
def _fma(e: Emitter, i: Instruction) -> None:
    float_result(e, i, e.intrinsic("llvm.fma", *float_sources(e, i)))


def _product(e: Emitter, i: Instruction, part: str) -> Value:
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
    e.write(i.operands[0], _product(e, i, i.row.name.removeprefix("mul.")))


@lowers("mad.lo", "mad.hi", "mad.wide")
def _mad(e: Emitter, i: Instruction) -> None:
    product = _product(e, i, i.row.name.removeprefix("mad."))
    e.write(i.operands[0], e.op("add {0}, {n1}", product, e.read(i.operands[3], product.elem)))


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


@lowers("div.f32")
def _div_f32(e: Emitter, i: Instruction) -> None:
    a, b = float_sources(e, i)
    quotient = e.op("fdiv {0}, {n1}", a, b)
    if i.has("approx"):
        # The hardware multiplies by a reciprocal that is flushed: above 2^126 the quotient is 0, or NaN from infinity.
        huge = e.op("fcmp ogt {0}, {n1}", e.intrinsic("llvm.fabs", b), e.literal(2.0**126, "float"), elem="i1")
        quotient = e.select(huge, e.op("fmul {0}, {n1}", a, e.literal(0.0, "float")), quotient)
    float_result(e, i, quotient)


@lowers("min.int", "max.int")
def _minmax(e: Emitter, i: Instruction) -> None:
    name = f"llvm.{i.type[0]}{i.row.op}"
    e.write(i.operands[0], e.intrinsic(name, *sources(e, i, ELEMENT[i.type])))


@lowers("min.f32", "max.f32")
def _minmax_f32(e: Emitter, i: Instruction) -> None:
    name = f"llvm.{i.row.op}imum" if i.has("NaN") else f"llvm.{i.row.op}imumnum"
    float_result(e, i, e.intrinsic(name, *float_sources(e, i)))


@lowers("abs.int", "neg.int")
def _neg(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i, ELEMENT[i.type])
    if i.row.op == "abs":
        e.write(i.operands[0], e.intrinsic("llvm.abs", a, tail=", i1 false"))
    else:
        e.write(i.operands[0], e.op("sub {0}, {n1}", e.literal(0, a.elem), a))


@lowers("abs.f32", "neg.f32")
def _neg_f32(e: Emitter, i: Instruction) -> None:
    (a,) = float_sources(e, i)
    float_result(e, i, e.intrinsic("llvm.fabs", a) if i.row.op == "abs" else e.op("fneg {0}", a))


@lowers("rcp.f32", "sqrt.f32", "rsqrt.f32")
def _root(e: Emitter, i: Instruction) -> None:
    (a,) = float_sources(e, i)
    value = e.intrinsic("llvm.sqrt", a) if "sqrt" in i.row.op else a
    if i.row.op != "sqrt":
        value = e.op("fdiv {0}, {n1}", e.literal(1.0, "float"), value)
    float_result(e, i, value)


@lowers("ex2.f32", "lg2.f32")
def _exponential(e: Emitter, i: Instruction) -> None:
    (a,) = float_sources(e, i)
    wide = e.vector(a)
    result = Value(e.let(f"call <32 x float> @{i.row.op}({wide.typed})"), "float", False)
    if a.uniform:
        result = Value(e.let(f"extractelement {result.typed}, i64 0"), "float", True)
    float_result(e, i, result)


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
    a, b, selector = sources(e, i, "i32")
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
    e.write(i.operands[0], result)


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


_INT_COMPARE: Final = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}
_FLOAT_COMPARE: Final = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip


@lowers("setp.int", "setp.f32")
def _setp(e: Emitter, i: Instruction) -> None:
    compare = i.text.split()[0 if i.guard is None else 1].split(".")[1]
    if i.row.name == "setp.f32":
        a, b = (e.read(o, "float") for o in i.operands[1:3])
        if i.has("ftz"):
            a, b = flushed(e, a), flushed(e, b)
        value = e.op(f"fcmp {_FLOAT_COMPARE[compare]} {{0}}, {{n1}}", a, b, elem="i1")
    else:
        a, b = (e.read(o, ELEMENT[i.type]) for o in i.operands[1:3])
        word = _INT_COMPARE.get(compare) or ("s" if i.type[0] == "s" else "u") + compare
        value = e.op(f"icmp {word} {{0}}, {{n1}}", a, b, elem="i1")
    opposite = e.op("xor {0}, {n1}", value, Value("true", "i1", True))
    for combine in ("and", "or", "xor"):
        if i.has(combine):
            c = e.read(i.operands[3], "i1")
            value = e.op(f"{combine} {{0}}, {{n1}}", value, c)
            opposite = e.op(f"{combine} {{0}}, {{n1}}", opposite, c)
    target = i.operands[0]
    if isinstance(target, Pair):
        e.write(target.first, value)
        e.write(target.second, opposite)
    else:
        e.write(target, value)


@lowers("selp")
def _selp(e: Emitter, i: Instruction) -> None:
    elem = ELEMENT[i.type]
    a, b = (e.read(o, elem) for o in i.operands[1:3])
    e.write(i.operands[0], e.select(e.read(i.operands[3], "i1"), a, b))


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


@lowers("cvta", "cvta.to")
def _cvta(e: Emitter, i: Instruction) -> None:
    value = e.read(i.operands[1], ELEMENT[i.type])
    if i.has("shared"):
        if value.elem != "i64":
            raise UnsupportedInstruction(i.text, i.line)
        word = "sub" if i.row.name == "cvta.to" else "add"
        value = e.op(f"{word} {{0}}, {{n1}}", value, e.literal(SHARED_WINDOW, "i64"))
    e.write(i.operands[0], value)


_ROUND: Final = {"rni": "llvm.roundeven", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}


@lowers("cvt")
def _cvt(e: Emitter, i: Instruction) -> None:
    to, source = i.form.types
    if to in ("f16x2", "bf16x2"):
        high, low = (narrow(e, i, e.read(o, "float"), to[:-2]) for o in i.operands[1:3])
        top = e.op("shl {0}, {n1}", extended(e, high, 32, False), e.literal(16, "i32"))
        e.write(i.operands[0], e.op("or {0}, {n1}", extended(e, low, 32, False), top))
    elif to in ("f16", "bf16"):
        e.write(i.operands[0], narrow(e, i, e.read(i.operands[1], "float"), to))
    elif to == "f32":
        float_result(e, i, _to_float(e, i, source))
    elif source == "f32":
        e.write(i.operands[0], _float_to_int(e, i, to))
    else:
        e.write(i.operands[0], _int_to_int(e, i, to, source))


def narrow(e: Emitter, i: Instruction, value: Value, to: str) -> Value:
    """f32 to f16 or bf16 bits, round to nearest even."""
    if not i.has("rn"):
        raise UnsupportedInstruction(i.text, i.line)
    if i.has("relu"):
        value = e.intrinsic("llvm.maxnum", value, e.literal(0.0, "float"))
    if to == "f16":
        return e.cast(e.convert("fptrunc", value, "half"), "i16")
    bits = e.cast(value, "i32")
    odd = e.op("and {0}, {n1}", e.op("lshr {0}, {n1}", bits, e.literal(16, "i32")), e.literal(1, "i32"))
    rounded = e.op("add {0}, {n1}", e.op("add {0}, {n1}", bits, e.literal(0x7FFF, "i32")), odd)
    top = e.op("lshr {0}, {n1}", rounded, e.literal(16, "i32"))
    nan = e.op("fcmp uno {0}, {n1}", value, value, elem="i1")
    return e.convert("trunc", e.select(nan, e.literal(0x7FFF, "i32"), top), "i16")


def _to_float(e: Emitter, i: Instruction, source: str) -> Value:
    operand = i.operands[1]
    if source == "f32":
        value = e.read(operand, "float")
        if i.has("ftz"):
            value = flushed(e, value)
        for modifier, name in _ROUND.items():
            if i.has(modifier):
                value = e.intrinsic(name, value)
        return value
    if source == "f16":
        return e.convert("fpext", e.read(operand, "half"), "float")
    if source == "bf16":
        wide = extended(e, e.read(operand, "i16"), 32, False)
        return e.cast(e.op("shl {0}, {n1}", wide, e.literal(16, "i32")), "float")
    if not i.has("rn"):
        raise UnsupportedInstruction(i.text, i.line)
    return e.convert("sitofp" if source[0] == "s" else "uitofp", e.read(operand, ELEMENT[source]), "float")


def _float_to_int(e: Emitter, i: Instruction, to: str) -> Value:
    value = e.read(i.operands[1], "float")
    if i.has("ftz"):
        value = flushed(e, value)
    for modifier, name in _ROUND.items():
        if i.has(modifier) and modifier != "rzi":
            value = e.intrinsic(name, value)
    elem = ELEMENT[to]
    name = "llvm.fptosi.sat" if to[0] == "s" else "llvm.fptoui.sat"
    shape = elem if value.uniform else f"<32 x {elem}>"
    suffix = f"{elem}.f32" if value.uniform else f"v32{elem}.v32f32"
    result = Value(e.let(f"call {shape} @{name}.{suffix}({value.typed})"), elem, value.uniform)
    if BITS[elem] < 64:
        return result
    # NaN becomes 0 in narrower types, the top bit in 64-bit ones.
    nan = e.op("fcmp uno {0}, {n1}", value, value, elem="i1")
    return e.select(nan, e.literal(-(1 << 63), elem), result)


def _int_to_int(e: Emitter, i: Instruction, to: str, source: str) -> Value:
    value = e.read(i.operands[1], ELEMENT[source])
    signed, bits, wanted = source[0] == "s", BITS[value.elem], BITS[ELEMENT[to]]
    if i.has("sat"):
        value = extended(e, value, max(bits, wanted), signed)
        top = (1 << (wanted - (to[0] == "s"))) - 1
        if signed:
            if top < 1 << (BITS[value.elem] - 1):
                value = e.intrinsic("llvm.smin", value, e.literal(top, value.elem))
            low = -(1 << (wanted - 1)) if to[0] == "s" else 0
            value = e.intrinsic("llvm.smax", value, e.literal(low, value.elem))
        else:
            value = e.intrinsic("llvm.umin", value, e.literal(top, value.elem))
    if BITS[value.elem] > wanted:
        return _narrowed(e, i, e.convert("trunc", value, f"i{wanted}"), to)
    return _narrowed(e, i, extended(e, value, wanted, signed), to)


def _narrowed(e: Emitter, i: Instruction, value: Value, to: str) -> Value:
    """An 8-bit result fills its wider register with its own sign."""
    target = i.operands[0]
    width = e.kernel.registers.get(getattr(target, "name", ""), BITS[value.elem])
    return extended(e, value, width, to[0] == "s") if BITS[value.elem] < width else value
