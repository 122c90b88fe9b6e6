"""Single precision. Results that are NaN have the pattern 0x7FFFFFFF.

``.rn`` operations are exactly rounded. The ``.approx`` and ``.full`` ones are computed in double precision or exactly
rounded, then rounded to float32: within 0.51 ulp, inside the bounds of the PTX ISA (2 ulp for div, 1 ulp for rcp and
2 ulp for ex2; a relative error near 2^-22 for sqrt, rsqrt and lg2, the latter absolute near 1).
"""

from __future__ import annotations

import numpy as np

from fa_bench.ptx.interpreter.state import Lanes, Step, flush, semantic

NAN = np.uint32(0x7FFFFFFF)


def canonical(lanes: Lanes) -> Lanes:
    """Give every NaN of a float32 array the pattern of PTX."""
    return np.where(np.isnan(lanes), NAN, lanes.view(np.uint32)).astype(np.uint32).view(np.float32)


def fused_multiply_add(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """``a * b + c`` of float32 with one rounding.

    The product is exact in double precision. The sum is rounded to odd there: its error (Knuth's TwoSum) tells
    whether and to which side it is off; an odd last bit then keeps the second rounding, to float32, from seeing a tie
    that there is none (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    off = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    outward = (error > 0) == (total > 0)
    odd = bits + np.where(off, np.where(outward, 1, -1), 0)
    return canonical(odd.view(np.float64).astype(np.float32))


def finish(step: Step, lanes: Lanes) -> None:
    """Apply ``.ftz`` and ``.sat`` to a result and write it."""
    if step.instruction.has("ftz"):
        lanes = flush(lanes)
    if step.instruction.has("sat"):
        lanes = saturate(lanes)
    step.write(canonical(lanes))


def saturate(lanes: Lanes) -> Lanes:
    """Clamp to [0, 1]; NaN and -0 become +0."""
    return np.where(lanes > 0, np.minimum(lanes, np.float32(1)), np.float32(0))


def _in_double(step: Step, function: np.ufunc) -> None:
    finish(step, function(step.f32(1).astype(np.float64)).astype(np.float32))


@semantic("add.f32")
def add(step: Step) -> None:
    finish(step, step.f32(1) + step.f32(2))


@semantic("sub.f32")
def sub(step: Step) -> None:
    finish(step, step.f32(1) - step.f32(2))


@semantic("mul.f32")
def mul(step: Step) -> None:
    finish(step, step.f32(1) * step.f32(2))


@semantic("fma.f32", "mad.f32")
def fma(step: Step) -> None:
    finish(step, fused_multiply_add(step.f32(1), step.f32(2), step.f32(3)))


@semantic("div.f32")
def div(step: Step) -> None:
    """``div.approx`` multiplies by a reciprocal that is zero for divisors beyond 2^126."""
    a, b = step.f32(1), step.f32(2)
    quotient = a / b
    if step.instruction.has("approx"):
        beyond = (np.abs(b) > np.float32(2**126)) & np.isfinite(b)
        quotient = np.where(beyond, a * np.copysign(np.float32(0), b), quotient)
    finish(step, quotient)


@semantic("min.f32")
def minimum(step: Step) -> None:
    """A single NaN gives way to the number unless ``.NaN`` is set; -0 is less than +0."""
    _extreme(step, np.fmin, np.bitwise_or)


@semantic("max.f32")
def maximum(step: Step) -> None:
    """A single NaN gives way to the number unless ``.NaN`` is set; +0 is more than -0."""
    _extreme(step, np.fmax, np.bitwise_and)


def _extreme(step: Step, choose: np.ufunc, of_equals: np.ufunc) -> None:
    a, b = step.f32(1), step.f32(2)
    # Equal numbers differ in their patterns only if they are zeros of different sign.
    chosen = np.where(a == b, of_equals(a.view(np.uint32), b.view(np.uint32)).view(np.float32), choose(a, b))
    if step.instruction.has("NaN"):
        chosen = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), chosen)
    finish(step, chosen)


@semantic("abs.f32")
def absolute(step: Step) -> None:
    """The sign bit is cleared, a NaN's too."""
    step.write(np.abs(step.f32(1)))


@semantic("neg.f32")
def negate(step: Step) -> None:
    """The sign bit is inverted, a NaN's too."""
    step.write(-step.f32(1))


@semantic("rcp.f32")
def reciprocal(step: Step) -> None:
    finish(step, np.float32(1) / step.f32(1))


@semantic("sqrt.f32")
def square_root(step: Step) -> None:
    finish(step, np.sqrt(step.f32(1)))


@semantic("rsqrt.f32")
def reciprocal_square_root(step: Step) -> None:
    a = step.f32(1).astype(np.float64)
    finish(step, (1 / np.sqrt(a)).astype(np.float32))


@semantic("ex2.f32")
def exponential(step: Step) -> None:
    _in_double(step, np.exp2)


@semantic("lg2.f32")
def logarithm(step: Step) -> None:
    _in_double(step, np.log2)
