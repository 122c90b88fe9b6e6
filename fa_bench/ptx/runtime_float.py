"""Run-time functions of floating-point instructions, as LLVM IR text: directed rounding, sin, cos, tanh, bf16 fma.

Each takes and gives 32 elements (the bf16 product-sum any number).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from fa_bench.ptx.layout import LANES
from fa_bench.ptx.runtime_math import Body
from fa_bench.ptx.wide import Wide

#: LLVM's numbers of the rounding modes other than to nearest.
ROUNDING: Final = {"rz": 0, "rp": 2, "rm": 3}
_NEAREST: Final = 1

_ARITHMETIC: Final[dict[str, str]] = {
    "add": "fadd {t} %a, %b", "sub": "fsub {t} %a, %b", "mul": "fmul {t} %a, %b", "div": "fdiv {t} %a, %b",
    "fma": "call {t} @llvm.fma.{s}({t} %a, {t} %b, {t} %c)", "sqrt": "call {t} @llvm.sqrt.{s}({t} %a)",
    "rcp": "fdiv {t} {one}, %a",
}  # fmt: skip
_OPERANDS: Final = {"fma": "abc", "sqrt": "a", "rcp": "a"}


def directed(op: str, elem: str, mode: str) -> str:
    """``@OP_ELEM_MODE``: arithmetic under another rounding mode of the CPU.

    The operation stands in a function of its own, so that nothing moves it across the change of mode.

    Parameters
    ----------
    op : str
        ``add``, ``sub``, ``mul``, ``div``, ``fma``, ``sqrt`` or ``rcp``.
    elem : {"float", "double"}
    mode : {"rz", "rm", "rp"}
    """
    suffix = "f32" if elem == "float" else "f64"
    shape = {"t": f"<{LANES} x {elem}>", "s": f"v{LANES}{suffix}", "one": f"splat ({elem} 1.0)"}
    return _under(f"{op}_{elem}_{mode}", elem, elem, _ARITHMETIC[op].format(**shape), mode, _OPERANDS.get(op, "ab"))


def directed_conversion(word: str, source: str, to: str, mode: str) -> str:
    """``@WORD_SOURCE_TO_MODE``: ``sitofp`` or ``uitofp`` under another rounding mode of the CPU."""
    text = f"{word} <{LANES} x {source}> %a to <{LANES} x {to}>"
    return _under(f"{word}_{source}_{to}_{mode}", source, to, text, mode, "a")


def _under(name: str, source: str, to: str, expression: str, mode: str, operands: str) -> str:
    parameters = ", ".join(f"<{LANES} x {source}> %{o}" for o in operands)
    shape = f"<{LANES} x {to}>"
    return (
        f"define internal {shape} @{name}_now({parameters}) #1 {{\n  %r = {expression}\n  ret {shape} %r\n}}\n"
        f"define internal {shape} @{name}({parameters}) #1 {{\n  call void @llvm.set.rounding(i32 {ROUNDING[mode]})\n"
        f"  %r = call {shape} @{name}_now({parameters})\n  call void @llvm.set.rounding(i32 {_NEAREST})\n"
        f"  ret {shape} %r\n}}\n"
    )


def _function(name: str, result: Wide, body: Body) -> str:
    body.do(f"ret {result.typed}")
    return body.text(f"define internal {result.type} @{name}({result.type} %x)")


def _series(x: Wide, coefficients: tuple[float, ...]) -> Wide:
    """Polynomial with the constant term first."""
    total = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total.call("llvm.fma", x, coefficient)
    return total


#: π/2 as the sum of two doubles.
_HALF_PI: Final = (math.pi / 2, 6.123233995736766e-17)
_SIN: Final = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(6))
_COS: Final = tuple((-1) ** k / math.factorial(2 * k) for k in range(6))


def _circular(name: str, ahead: int) -> str:
    """sin (``ahead`` = 0) or cos (1): reduced to |r| <= π/4 and summed in double precision.

    Exact to f32 up to |x| near 2^50; beyond, where no result is specified, r is clamped.
    """
    b = Body()
    single = Wide(b, "%x", "float", LANES)
    x = single.to("fpext", "double")
    n = x.op("fmul", 2 / math.pi).call("llvm.roundeven")
    minus = n.op("fmul", -1.0)
    r = minus.call("llvm.fma", _HALF_PI[0], x)
    r = minus.call("llvm.fma", _HALF_PI[1], r)
    r = r.compare("ogt", 0.8).where(r.constant(0.8), r)
    r = r.compare("olt", -0.8).where(r.constant(-0.8), r)
    quadrant = Wide(b, b.let(f"call <{LANES} x i64> @llvm.fptosi.sat.v{LANES}i64.v{LANES}f64({n.typed})"), "i64", LANES)
    quadrant = quadrant.op("add", ahead)
    square = r.op("fmul", r)
    sine = _series(square, _SIN).op("fmul", r)
    chosen = quadrant.op("and", 1).compare("ne", 0).where(_series(square, _COS), sine)
    turned = quadrant.op("and", 2).compare("ne", 0).where(chosen.op("fmul", -1.0), chosen)
    result = turned.to("fptrunc", "float")
    if ahead == 0:
        result = single.compare("oeq", 0.0).where(single, result)
    return _function(name, result, b)


def _tanh() -> str:
    """1 - 2 / (e^2|x| + 1); near 0, where that cancels, the odd series up to x^7."""
    b = Body()
    x = Wide(b, "%x", "float", LANES)
    size = x.call("llvm.fabs")
    power = Wide(b, b.let(f"call <{LANES} x float> @ex2({size.op('fmul', 2 / math.log(2)).typed})"), "float", LANES)
    large = power.constant(1.0).op("fsub", power.constant(2.0).op("fdiv", power.op("fadd", 1.0)))
    small = _series(x.op("fmul", x), (1.0, -1 / 3, 2 / 15, -17 / 315)).op("fmul", size)
    result = size.compare("olt", 0.25).where(small, large)
    return _function("tanh", result.call("llvm.copysign", x), b)


def fma_bf16(count: int) -> str:
    """``@fma_bf16_N(a, b, c)``: a·b + c of numbers with 8-bit significands, in f32, so that rounding to bf16 is right.

    A fused f32 result only rounds wrongly to bf16 if it looks like a tie. Then the sum is made again in double
    precision, where the product is exact, and rounded to odd: to double by the sum's error, which Knuth's TwoSum
    gives, and then to f32.
    """
    b = Body()
    a, x, c = (Wide(b, name, "float", count) for name in ("%a", "%b", "%c"))
    quick = a.call("llvm.fma", x, c)
    tie = quick.bits().op("and", 0xFFFF).compare("eq", 0x8000)
    any_tie = b.let(f"call i1 @llvm.vector.reduce.or.v{count}i1({tie.typed})")
    b.do(f"br i1 {any_tie}, label %slow, label %fast\nfast:\n  ret {quick.typed}\nslow:")
    a, x, c = (v.to("fpext", "double") for v in (a, x, c))
    result = to_odd_single(odd_sum(a.op("fmul", x), c))
    b.do(f"ret {result.typed}")
    shape = f"<{count} x float>"
    return b.text(f"define internal {shape} @fma_bf16_{count}({shape} %a, {shape} %b, {shape} %c)")


def odd_sum(x: Wide, y: Wide) -> Wide:
    """x + y rounded to odd: an inexact sum ends in a one, so that rounding it again to far fewer bits is right.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    total = x.op("fadd", y)
    back = total.op("fsub", x)
    error = x.op("fsub", total.op("fsub", back)).op("fadd", y.op("fsub", back))
    bits = total.bits()
    even = bits.op("and", 1).compare("eq", 0)
    outward = error.compare("ogt", 0.0).op("xor", total.compare("olt", 0.0))
    # An infinite sum has no error to speak of: it is NaN, and the comparison false.
    wrong = error.compare("one", 0.0).op("and", even)
    moved = bits.op("add", outward.where(bits.constant(1), bits.constant(-1)))
    return wrong.where(moved, bits).cast(total.elem)


def to_odd_single(x: Wide) -> Wide:
    """f64 to f32, rounded to odd."""
    near = x.to("fptrunc", "float")
    back = near.to("fpext", "double")
    bits = near.bits()
    wrong = back.compare("one", x).op("and", bits.op("and", 1).compare("eq", 0))
    inward = back.call("llvm.fabs").compare("ogt", x.call("llvm.fabs"))
    moved = bits.op("add", inward.where(bits.constant(-1), bits.constant(1)))
    return wrong.where(moved, bits).cast("float")


FUNCTIONS: Final[dict[str, Callable[[], str]]] = {
    "sin": lambda: _circular("sin", 0),
    "cos": lambda: _circular("cos", 1),
    "tanh": _tanh,
}
