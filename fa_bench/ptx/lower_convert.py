"""Lowering of ``cvt``: between integers, f16, bf16, f32, f64, tf32 and packed fp8."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx import runtime_float
from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.lower_arith import extended, lowers
from fa_bench.ptx.lower_half import single, to_bf16
from fa_bench.ptx.program import Instruction
from fa_bench.ptx.wide import Wide, flushed, mapped, read, rectified, saturated

_TO_INTEGER: Final = {"rni": "llvm.roundeven", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}
_LARGEST: Final = {"f16": 0x477FE000, "bf16": 0x7F7F0000, "tf32": 0x7F7FE000}
#: Mantissa bits, bias and largest finite number of the fp8 formats.
_F8: Final = {"e4m3x2": (3, 7, 448.0), "e5m2x2": (2, 15, 57344.0)}


def _mode(i: Instruction) -> str:
    return next((m for m in ("rna", "rn", "rz", "rm", "rp") if i.has(m)), "rn")


@lowers("cvt.int")
def _int_to_int(e: Emitter, i: Instruction) -> None:
    to, source = i.form.types
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
        value = e.convert("trunc", value, f"i{wanted}")
    _write_integer(e, i, extended(e, value, wanted, signed), to)


def _write_integer(e: Emitter, i: Instruction, value: Value, to: str) -> None:
    """A narrow result fills its wider register with its own sign."""
    target = i.operands[0]
    width = e.kernel.registers.get(getattr(target, "name", ""), BITS[value.elem])
    e.write(target, extended(e, value, width, to[0] == "s") if BITS[value.elem] < width else value)


def _source(e: Emitter, i: Instruction, operand: int = 1) -> Wide:
    """A floating-point source, f16 and bf16 as f32."""
    type_ = i.form.types[-1]
    (value,) = read(e, i.operands[operand : operand + 1], type_)
    if type_ in ("f16", "bf16"):
        value = single(value)
    return flushed(value) if i.has("ftz") and type_ == "f32" else value


@lowers("cvt.float.to.int")
def _float_to_int(e: Emitter, i: Instruction) -> None:
    """Out of range clamps. NaN is 0, but the top bit if f64 or 64 bits are involved."""
    to, source = i.form.types
    value = _source(e, i)
    for modifier, name in _TO_INTEGER.items():
        if i.has(modifier) and modifier != "rzi":
            value = value.call(name)
    elem = ELEMENT[to]
    name = "llvm.fptosi.sat" if to[0] == "s" else "llvm.fptoui.sat"
    many = f"v{value.count}" if value.count else ""
    shape = f"<{value.count} x {elem}>" if value.count else elem
    kind = "f64" if value.elem == "double" else "f32"
    result = Wide(e, e.let(f"call {shape} @{name}.{many}{elem}.{many}{kind}({value.typed})"), elem, value.count)
    if BITS[elem] == 64 or source == "f64":
        result = value.compare("uno", value).where(result.constant(1 << (BITS[elem] - 1)), result)
    _write_integer(e, i, result.value(), to)


@lowers("cvt.int.to.float")
def _int_to_float(e: Emitter, i: Instruction) -> None:
    to, source = i.form.types
    mode = _mode(i)
    (value,) = read(e, i.operands[1:], source)
    word = "sitofp" if source[0] == "s" else "uitofp"
    if to == "f64" and mode != "rn" and BITS[value.elem] == 64:
        name = f"{word}_i64_double_{mode}"
        e.define(name, lambda: runtime_float.directed_conversion(word, "i64", "double", mode))
        result = mapped(e, name, value, elem="double")
    elif to == "f64" or (to == "f32" and (mode == "rn" or BITS[value.elem] <= 16)):
        result = value.to(word, ELEMENT[to])
    else:
        result = _narrow(_odd_double(value, word), to, mode)
    _write(e, i, result, to)


def _odd_double(value: Wide, word: str) -> Wide:
    """An integer as f64; one of more than 53 bits with the lowest eleven joined to one that tells if any was set."""
    if BITS[value.elem] == 64:
        rest = value.op("and", 0x7FF)
        joined = value.op("and", -0x800)
        sticky = rest.compare("ne", 0).where(joined.op("or", 0x800), joined)
        size = value.call("llvm.abs", tail=", i1 false") if word == "sitofp" else value
        value = size.compare("uge", 1 << 53).where(sticky, value)
    return value.to(word, "double")


@lowers("cvt.same")
def _same(e: Emitter, i: Instruction) -> None:
    to = i.form.types[0]
    value = _source(e, i)
    for modifier, name in _TO_INTEGER.items():
        if i.has(modifier):
            value = value.call(name)
    _write(e, i, value, to)


@lowers("cvt.widen", "cvt.narrow", "cvt.half")
def _between_floats(e: Emitter, i: Instruction) -> None:
    to = i.form.types[0]
    value = _source(e, i)
    if to == "f64":
        value = value.to("fpext", "double")
    _write(e, i, _narrow(value, to, _mode(i)) if i.row.name != "cvt.widen" else value, to)


def _write(e: Emitter, i: Instruction, value: Wide, to: str) -> None:
    """Write a floating-point result after ``.sat`` and ``.ftz``."""
    if i.has("sat"):
        value = saturated(value if value.elem != "i16" else single(value))
    if to == "f32" and i.has("ftz"):
        value = flushed(value)
    if value.elem == "float" and to in ("f16", "bf16"):
        # What is exact in the narrow type already.
        value = value.to("fptrunc", "half") if to == "f16" else value.bits().op("lshr", 16).to("trunc", "i16")
    e.write(i.operands[0], value.value())


def _narrow(value: Wide, to: str, mode: str) -> Wide:
    """f32 or f64 rounded to f32, f16 (``half``) or bf16 (``i16``)."""
    if to == "f32":
        return value if value.elem == "float" else _rounded(value, "float", mode)
    if value.elem == "double":
        value = runtime_float.to_odd_single(value)
    if to == "f16":
        return _rounded(value, "half", mode)
    return to_bf16(value) if mode == "rn" else _cut(value, 16, mode).op("lshr", 16).to("trunc", "i16")


def _rounded(value: Wide, elem: str, mode: str) -> Wide:
    """``fptrunc``, then a step to the neighbour where the mode asks for the other side."""
    near = value.to("fptrunc", elem)
    if mode == "rn":
        return near
    back = near.to("fpext", value.elem)
    bits = near.bits()
    up, down = bits.constant(1), bits.constant(-1)
    if mode == "rz":
        wrong, step = back.call("llvm.fabs").compare("ogt", value.call("llvm.fabs")), down
    else:
        wrong = back.compare("olt" if mode == "rp" else "ogt", value)
        negative = bits.compare("slt", 0)
        step = negative.where(down, up) if mode == "rp" else negative.where(up, down)
    return wrong.where(bits.op("add", step), bits).cast(elem)


def _cut(value: Wide, drop: int, mode: str) -> Wide:
    """f32 patterns rounded to multiples of 2^drop; NaN becomes all ones but the sign."""
    bits = value.bits()
    below = (1 << drop) - 1
    if mode == "rn":
        odd = bits.op("lshr", drop).op("and", 1)
        bits = bits.op("add", below >> 1).op("add", odd)
    elif mode == "rna":
        bits = bits.op("add", 1 << (drop - 1))
    elif mode != "rz":
        negative = bits.compare("slt", 0)
        all_, none = bits.constant(below), bits.constant(0)
        bits = bits.op("add", negative.where(none, all_) if mode == "rp" else negative.where(all_, none))
    return value.compare("uno", value).where(bits.constant(0x7FFFFFFF), bits.op("and", ~below))


def _limited(value: Wide, largest: int) -> Wide:
    """``.satfinite``: clamped to the largest finite number, given as f32 pattern; NaN stays."""
    bound = value.bits().constant(largest).cast("float")
    size = value.call("llvm.fabs")
    return size.compare("ogt", bound).where(bound.call("llvm.copysign", value), value)


def _converted(i: Instruction, value: Wide, to: str) -> Wide:
    """f32 to f16 or bf16 after ``.relu`` and ``.satfinite``."""
    if i.has("relu"):
        value = rectified(value)
    if i.has("satfinite"):
        value = _limited(value, _LARGEST[to])
    return _narrow(value, to, _mode(i))


@lowers("cvt.half.relu")
def _half(e: Emitter, i: Instruction) -> None:
    to = i.form.types[0]
    e.write(i.operands[0], _converted(i, _source(e, i), to).value())


@lowers("cvt.half.pair")
def _half_pair(e: Emitter, i: Instruction) -> None:
    """The first source goes to the upper half."""
    to = i.form.types[0].removesuffix("x2")
    high, low = (_converted(i, value, to).bits().to("zext", "i32") for value in read(e, i.operands[1:], "f32"))
    e.write(i.operands[0], high.op("shl", 16).op("or", low).value())


@lowers("cvt.tf32", "cvt.tf32.away")
def _tf32(e: Emitter, i: Instruction) -> None:
    value = _source(e, i)
    if i.has("relu"):
        value = rectified(value)
    if i.has("satfinite"):
        value = _limited(value, _LARGEST["tf32"])
    e.write(i.operands[0], _cut(value, 13, _mode(i)).value())


def _to_f8(value: Wide, format_: str) -> Wide:
    """f32 to fp8 patterns in ``i32``, to nearest even, clamped to the largest finite number; NaN is 0x7F."""
    mantissa, bias, largest = _F8[format_]
    drop = 23 - mantissa
    size = value.call("llvm.fabs")
    size = size.compare("ogt", largest).where(size.constant(largest), size)
    bits = size.bits()
    odd = bits.op("lshr", drop).op("and", 1)
    normal = bits.op("add", (1 << (drop - 1)) - 1).op("add", odd).op("lshr", drop).op("sub", 127 - bias << mantissa)
    # Below the least normal number the pattern is the value in units of the last place.
    steps = size.op("fmul", 2.0 ** (bias - 1 + mantissa)).call("llvm.roundeven")
    small = size.compare("olt", 2.0 ** (1 - bias))
    steps = small.where(steps, 0.0)
    pattern = small.where(steps.to("fptoui", "i32"), normal)
    sign = value.bits().op("lshr", 24).op("and", 0x80)
    return value.compare("uno", value).where(pattern.constant(0x7F), pattern.op("or", sign))


@lowers("cvt.f8")
def _f8(e: Emitter, i: Instruction) -> None:
    """The first source goes to the upper byte."""
    values = read(e, i.operands[1:], "f32")
    if i.has("relu"):
        values = [rectified(v) for v in values]
    high, low = (_to_f8(v, i.form.types[0]) for v in values)
    e.write(i.operands[0], high.op("shl", 8).op("or", low).to("trunc", "i16").value())


@lowers("cvt.f8.from.half")
def _f8_from_half(e: Emitter, i: Instruction) -> None:
    (halves,) = read(e, i.operands[1:], "f16x2")
    value = single(halves)
    if i.has("relu"):
        value = rectified(value)
    e.write(i.operands[0], _to_f8(value, i.form.types[0]).to("trunc", "i8").value())


@lowers("cvt.f8.to.half")
def _f8_to_half(e: Emitter, i: Instruction) -> None:
    format_ = i.form.types[1]
    (bytes_,) = read(e, i.operands[1:], format_)
    value = f8_single(bytes_, format_.removesuffix("x2"))
    if i.has("relu"):
        value = rectified(value)
    e.write(i.operands[0], value.to("fptrunc", "half").value())


def f8_single(value: Wide, format_: str) -> Wide:
    """fp8 patterns (``i8``) as f32."""
    words = value.to("zext", "i16").op("shl", 8)
    if format_ == "e5m2":
        # The upper byte of an f16.
        return words.cast("half").to("fpext", "float")
    # As an f16 with a bias of 15 instead of 7.
    magnitude = words.op("and", 0x7F00)
    shifted = magnitude.op("lshr", 1).op("or", words.op("and", -0x8000))
    number = shifted.cast("half").to("fpext", "float").op("fmul", 256.0)
    return magnitude.compare("eq", 0x7F00).where(number.constant(0x7FFFFFFF), number)
