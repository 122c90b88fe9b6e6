"""Lowering of f32, f32x2 and f64 arithmetic: one function per group of ISA rows."""

from __future__ import annotations

import math
from typing import Final

from fa_bench.ptx import runtime_float
from fa_bench.ptx.emitter import Emitter
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.program import Instruction
from fa_bench.ptx.wide import Wide, flushed, mapped, read, saturated

_WORD: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def sources(e: Emitter, i: Instruction) -> list[Wide]:
    """All source operands; subnormals flushed for ``.ftz``."""
    values = read(e, i.operands[1:], i.type)
    return [flushed(v) for v in values] if i.has("ftz") else values


def write(e: Emitter, i: Instruction, result: Wide) -> None:
    """Write a result after ``.sat`` and ``.ftz``."""
    if i.has("sat"):
        result = saturated(result)
    if i.has("ftz"):
        result = flushed(result)
    e.write(i.operands[0], result.value())


def directed(e: Emitter, i: Instruction, op: str, values: list[Wide]) -> Wide:
    """``op`` under the instruction's rounding to zero, down or up."""
    mode = next(m for m in runtime_float.ROUNDING if i.has(m))
    elem = values[0].elem
    name = f"{op}_{elem}_{mode}"
    e.define(name, lambda: runtime_float.directed(op, elem, mode))
    return mapped(e, name, *values)


def _is_directed(i: Instruction) -> bool:
    return any(i.has(mode) for mode in runtime_float.ROUNDING)


@lowers(*(f"{op}.{t}" for op in ("add", "sub", "mul") for t in ("f32", "f32.directed", "f32x2", "f64")), "div.f64",
        "div.f32.directed")  # fmt: skip
def _add(e: Emitter, i: Instruction) -> None:
    values = sources(e, i)
    if _is_directed(i):
        write(e, i, directed(e, i, i.row.op, values))
    else:
        write(e, i, values[0].op(_WORD[i.row.op], values[1]))


@lowers(*(f"{op}.{t}" for op in ("fma", "mad") for t in ("f32", "f32.directed", "f64")), "fma.f32x2")
def _fma(e: Emitter, i: Instruction) -> None:
    a, b, c = sources(e, i)
    write(e, i, directed(e, i, "fma", [a, b, c]) if _is_directed(i) else a.call("llvm.fma", b, c))


@lowers("div.f32")
def _div(e: Emitter, i: Instruction) -> None:
    a, b = sources(e, i)
    quotient = a.op("fdiv", b)
    if i.has("approx"):
        # The hardware multiplies by a reciprocal that is flushed: above 2^126 the quotient is 0, or NaN from infinity.
        huge = b.call("llvm.fabs").compare("ogt", 2.0**126)
        quotient = huge.where(a.op("fmul", 0.0), quotient)
    write(e, i, quotient)


@lowers(*(f"{op}.{t}" for op in ("min", "max") for t in ("f32", "f64")))
def _extreme(e: Emitter, i: Instruction) -> None:
    a, b = sources(e, i)
    write(e, i, a.call(f"llvm.{i.row.op}imum" if i.has("NaN") else f"llvm.{i.row.op}imumnum", b))


@lowers("abs.f32", "neg.f32", "abs.f64", "neg.f64")
def _sign(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i)
    write(e, i, a.call("llvm.fabs") if i.row.op == "abs" else negated(a))


def negated(value: Wide) -> Wide:
    """The sign bit inverted."""
    bits = value.bits()
    width = {"i16": 16, "i32": 32, "i64": 64}[bits.elem]
    return bits.op("xor", 1 << (width - 1)).cast(value.elem)


@lowers("rcp.f32", "sqrt.f32", "rsqrt.f32", "rcp.f64", "sqrt.f64", "rcp.f32.directed", "sqrt.f32.directed")
def _root(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i)
    if _is_directed(i):
        write(e, i, directed(e, i, i.row.op, [a]))
        return
    value = a.call("llvm.sqrt") if "sqrt" in i.row.op else a
    write(e, i, value if i.row.op == "sqrt" else a.constant(1.0).op("fdiv", value))


@lowers("rcp.approx.f64", "rsqrt.approx.f64")
def _coarse(e: Emitter, i: Instruction) -> None:
    """``.ftz`` forms read and give only the upper 32 bits, of which they use 20 of the mantissa."""
    (a,) = read(e, i.operands[1:], i.type)
    coarse = i.has("ftz")
    if coarse:
        a = _upper(a)
    value = a.call("llvm.sqrt") if i.row.op == "rsqrt" else a
    result = a.constant(1.0).op("fdiv", value)
    e.write(i.operands[0], (_upper(result) if coarse else result).value())


def _upper(value: Wide) -> Wide:
    """The upper 32 bits of an f64; subnormals become zero of the same sign."""
    bits = value.bits().op("and", -1 << 32)
    tiny = bits.op("and", 0x7FF << 52).compare("eq", 0)
    return tiny.where(bits.op("and", 1 << 63), bits).cast("double")


@lowers("ex2.f32", "lg2.f32")
def _exponential(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i)
    write(e, i, mapped(e, i.row.op, a))


@lowers("sin.f32", "cos.f32", "tanh.f32")
def _transcendental(e: Emitter, i: Instruction) -> None:
    (a,) = sources(e, i)
    write(e, i, mapped(e, e.define(i.row.op, runtime_float.FUNCTIONS[i.row.op]), a))


@lowers("copysign")
def _copysign(e: Emitter, i: Instruction) -> None:
    sign, magnitude = read(e, i.operands[1:], i.type)
    write(e, i, magnitude.call("llvm.copysign", sign))


@lowers("testp")
def _testp(e: Emitter, i: Instruction) -> None:
    """Zeros count as normal."""
    (a,) = read(e, i.operands[1:], i.type)
    size = a.call("llvm.fabs")
    least = 2.0**-126 if a.elem == "float" else 2.0**-1022
    subnormal = size.compare("olt", least).op("and", size.compare("ogt", 0.0))
    if i.has("finite"):
        answer = size.compare("olt", math.inf)
    elif i.has("infinite"):
        answer = size.compare("oeq", math.inf)
    elif i.has("number"):
        answer = a.compare("ord", a)
    elif i.has("notanumber"):
        answer = a.compare("uno", a)
    elif i.has("subnormal"):
        answer = subnormal
    else:
        answer = size.compare("olt", math.inf).op("and", subnormal.invert())
    e.write(i.operands[0], answer.value())
