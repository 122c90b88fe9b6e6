"""Approximate instructions that :mod:`float32` leaves.

They are calculated in double precision and rounded to the result's format: inside the bounds of the PTX ISA, which
are 2^-11 relative for tanh.f32, 2^-20.5 absolute near zero for sin and cos, 2^-9.9 for ex2.f16 and 2^-7 for ex2.bf16,
2^-10.987 absolute for tanh.f16 and 2^-8 for tanh.bf16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from fa_bench.ptx.interpreter.floats import element, elementwise
from fa_bench.ptx.interpreter.formats import FORMATS, NAN, Format, Number, decode, divide, encode, flush, square_root
from fa_bench.ptx.interpreter.state import Step, semantic


def _real(number: Number) -> float:
    if number.nan:
        return math.nan
    if number.value is None:
        return -math.inf if number.negative else math.inf
    return math.copysign(float(abs(number.value)), -1 if number.negative else 1)


def _number(real: float) -> Number:
    if math.isnan(real):
        return NAN
    negative = math.copysign(1, real) < 0
    return Number(None if math.isinf(real) else Fraction(real), negative)


def _map(step: Step, function: Callable[[float], float]) -> None:
    fmt, _ = element(step.instruction.type)
    ftz = step.instruction.has("ftz")

    def apply(pattern: int) -> int:
        source = decode(pattern, fmt)
        result = encode(_number(function(_real(flush(source, fmt) if ftz else source))), fmt, "rn")
        return encode(flush(decode(result, fmt), fmt), fmt, "rn") if ftz else result

    elementwise(step, apply)


def _exp2(x: float) -> float:
    # Beyond what any of the formats holds, and less than what double precision does.
    return math.exp2(min(x, 1000.0)) if x < math.inf else x


@semantic("ex2.f16", "ex2.bf16")
def exponential(step: Step) -> None:
    _map(step, _exp2)


@semantic("tanh.f32", "tanh.half")
def hyperbolic_tangent(step: Step) -> None:
    _map(step, math.tanh)


@semantic("sin.f32")
def sine(step: Step) -> None:
    """Of an infinity: NaN."""
    _map(step, lambda x: math.nan if math.isinf(x) else math.sin(x))


@semantic("cos.f32")
def cosine(step: Step) -> None:
    """Of an infinity: NaN."""
    _map(step, lambda x: math.nan if math.isinf(x) else math.cos(x))


def _upper_half(pattern: int, fmt: Format) -> int:
    """The upper 32 bits; a subnormal becomes zero of its sign."""
    return encode(flush(decode(pattern >> 32 << 32, fmt), fmt), fmt, "rn")


@semantic("rcp.approx.f64", "rsqrt.approx.f64")
def coarse(step: Step) -> None:
    """With ``.ftz`` only the upper 32 bits of the source count, and the result has no others."""
    fmt = FORMATS["f64"]
    ftz = step.instruction.has("ftz")
    one = Number(Fraction(1), False)
    root = step.instruction.row.op == "rsqrt"

    def apply(pattern: int) -> int:
        source = decode(_upper_half(pattern, fmt) if ftz else pattern, fmt)
        result = encode(divide(one, square_root(source) if root else source), fmt, "rn")
        if ftz and not decode(result, fmt).nan:
            result = _upper_half(result, fmt)
        return result

    elementwise(step, apply)
