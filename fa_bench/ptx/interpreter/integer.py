"""Integer arithmetic: wraps modulo the type's width.

Division by zero, which the PTX ISA leaves open, gives a quotient of all ones and the dividend as remainder.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fa_bench.ptx.interpreter.state import LANES, UINT, Lanes, Step, semantic


def wrap(values: Lanes, bits: int) -> Lanes:
    """Python integers (an object array) as bit patterns of ``bits`` bits."""
    return np.array([int(v) % 2**bits for v in values], UINT[bits])


def each(step: Step, function: Callable[..., int], *operands: Lanes) -> None:
    """Write ``function`` of Python integers, lane by lane."""
    results = np.empty(LANES, object)
    for lane, values in enumerate(zip(*operands, strict=True)):
        results[lane] = function(*(int(v) for v in values))
    step.write(wrap(results, step.instruction.bits))


def _product(step: Step) -> Lanes:
    """The exact product of operands 1 and 2."""
    product: Lanes = step.integer(1).astype(object) * step.integer(2).astype(object)
    return product


def _high(step: Step) -> Lanes:
    return wrap(_product(step) >> step.instruction.bits, step.instruction.bits)


def _wide(step: Step) -> Lanes:
    return wrap(_product(step), 2 * step.instruction.bits)


def _truncated_quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@semantic("add.int")
def add(step: Step) -> None:
    step.write(step.read(1) + step.read(2))


@semantic("sub.int")
def sub(step: Step) -> None:
    step.write(step.read(1) - step.read(2))


@semantic("mul.lo")
def mul_lo(step: Step) -> None:
    step.write(step.read(1) * step.read(2))


@semantic("mul.hi")
def mul_hi(step: Step) -> None:
    step.write(_high(step))


@semantic("mul.wide")
def mul_wide(step: Step) -> None:
    step.write(_wide(step))


@semantic("mad.lo")
def mad_lo(step: Step) -> None:
    step.write(step.read(1) * step.read(2) + step.read(3))


@semantic("mad.hi")
def mad_hi(step: Step) -> None:
    step.write(_high(step) + step.read(3))


@semantic("mad.wide")
def mad_wide(step: Step) -> None:
    step.write(_wide(step) + step.read(3, f"u{2 * step.instruction.bits}"))


@semantic("div.int")
def div(step: Step) -> None:
    each(step, lambda a, b: _truncated_quotient(a, b) if b else -1, step.integer(1), step.integer(2))


@semantic("rem.int")
def rem(step: Step) -> None:
    """The remainder has the sign of the dividend."""
    each(step, lambda a, b: a - b * _truncated_quotient(a, b) if b else a, step.integer(1), step.integer(2))


@semantic("min.int")
def minimum(step: Step) -> None:
    step.write(np.minimum(step.integer(1), step.integer(2)))


@semantic("max.int")
def maximum(step: Step) -> None:
    step.write(np.maximum(step.integer(1), step.integer(2)))


@semantic("abs.int")
def absolute(step: Step) -> None:
    """The smallest integer has no positive counterpart and stays."""
    step.write(np.abs(step.integer(1)))


@semantic("neg.int")
def negate(step: Step) -> None:
    step.write(-step.read(1))
