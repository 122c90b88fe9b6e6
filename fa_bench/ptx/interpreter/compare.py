"""Comparisons of floating-point numbers: ``setp``, ``set``, ``testp``, ``slct``; and ``set`` of integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.floats import element
from fa_bench.ptx.interpreter.formats import FORMATS, Number, decode, flush, less
from fa_bench.ptx.interpreter.state import LANES, UINT, Lanes, Step, semantic
from fa_bench.ptx.isa import TYPE_BITS
from fa_bench.ptx.program import Pair

_COMBINE: Final[dict[str, Callable[[Lanes, Lanes], Lanes]]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
_RELATIONS: Final = {"eq", "ne", "lt", "le", "gt", "ge"}
_UNSIGNED: Final = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
#: Pattern of 1.0 by format.
_ONE: Final = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def _ordered(name: str, below: bool, above: bool) -> bool:
    """Whether the relation holds where a is below b, above it or neither."""
    return {
        "eq": not below and not above,
        "ne": below or above,
        "lt": below,
        "le": not above,
        "gt": above,
        "ge": not below,
    }[name]


def _holds(name: str, a: Number, b: Number) -> bool:
    """Ordered comparisons are false if a source is NaN, the ones that end in u are true."""
    if name in ("num", "nan"):
        return (a.nan or b.nan) == (name == "nan")
    if a.nan or b.nan:
        return name not in _RELATIONS
    return _ordered(name.removesuffix("u") if name not in _RELATIONS else name, less(a, b), less(b, a))


def _relation(step: Step) -> str:
    (name,) = step.instruction.form.modifiers - {"ftz", *_COMBINE}
    return name


def _compared(step: Step) -> list[Lanes]:
    """The comparison's outcome in each lane, for each element of a register."""
    fmt, count = element(step.instruction.type)
    name = _relation(step)
    outcomes = []
    for part in range(count):
        numbers = []
        for k in (1, 2):
            patterns = step.read(k).astype(object) >> fmt.bits * part
            column = [decode(int(p) & (1 << fmt.bits) - 1, fmt) for p in patterns]
            numbers.append([flush(n, fmt) for n in column] if step.instruction.has("ftz") else column)
        outcomes.append(np.array([_holds(name, a, b) for a, b in zip(*numbers, strict=True)]))
    return outcomes


def _combined(step: Step, outcome: Lanes) -> Lanes:
    """Combined with the predicate operand by ``.and``, ``.or`` or ``.xor``."""
    for name, function in _COMBINE.items():
        if step.instruction.has(name):
            return function(outcome, step.read(3, "pred"))
    return outcome


@semantic("setp.f64", "setp.f16", "setp.bf16")
def set_predicates(step: Step) -> None:
    """The second predicate gets the opposite."""
    (outcome,) = _compared(step)
    target = step.instruction.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    results = _combined(step, outcome), _combined(step, ~outcome)
    step.write(results[0], first)
    if second is not None:
        step.write(results[1], second)


@semantic("setp.f16x2", "setp.bf16x2")
def set_packed_predicates(step: Step) -> None:
    """The first predicate is that of the lower halves, the second that of the upper ones."""
    low, high = (_combined(step, outcome) for outcome in _compared(step))
    target = step.instruction.operands[0]
    if isinstance(target, Pair):
        step.write(low, target.first)
        step.write(high, target.second)
    else:
        step.write(low, target)


def _write_truth(step: Step, outcomes: list[Lanes]) -> None:
    """1.0 or all ones where true, zero elsewhere; outcomes of packed sources side by side."""
    to = step.instruction.form.types[0]
    bits = TYPE_BITS[to]
    part = bits // len(outcomes)
    truth = _ONE.get(to.removesuffix("x2"), (1 << part) - 1)
    results = np.zeros(LANES, UINT[bits])
    for k, outcome in enumerate(outcomes):
        results |= np.where(_combined(step, outcome), UINT[bits](truth << part * k), UINT[bits](0))
    step.write(results)


@semantic("set.f32", "set.f64", "set.f16", "set.bf16", "set.f16x2", "set.bf16x2")
def set_floats(step: Step) -> None:
    _write_truth(step, _compared(step))


@semantic("set.int")
def set_integers(step: Step) -> None:
    name = _relation(step)
    if name in _UNSIGNED:
        a, b = step.read(1), step.read(2)
    else:
        a, b = step.integer(1), step.integer(2)
    relation = _UNSIGNED.get(name, name)
    _write_truth(step, [np.array([_ordered(relation, bool(x < y), bool(x > y)) for x, y in zip(a, b, strict=True)])])


@semantic("testp")
def test_property(step: Step) -> None:
    """Zeros count as normal."""
    fmt, _ = element(step.instruction.type)
    (question,) = step.instruction.form.modifiers

    def answer(number: Number) -> bool:
        finite = number.value is not None
        subnormal = number.value is not None and 0 < abs(number.value) < fmt.least_normal
        return {
            "finite": finite,
            "infinite": not finite and not number.nan,
            "number": not number.nan,
            "notanumber": number.nan,
            "normal": finite and not subnormal,
            "subnormal": subnormal,
        }[question]

    step.write(np.array([answer(decode(int(pattern), fmt)) for pattern in step.read(1)]))


@semantic("slct.s32", "slct.f32")
def select_by_sign(step: Step) -> None:
    """a where c is at least zero (-0 is, NaN is not), else b."""
    to, by = step.instruction.form.types
    if by == "s32":
        chosen = step.read(3, "u32").view(np.int32) >= 0
    else:
        numbers = [decode(int(pattern), FORMATS["f32"]) for pattern in step.read(3, "f32")]
        if step.instruction.has("ftz"):
            numbers = [flush(n, FORMATS["f32"]) for n in numbers]
        chosen = np.array([not n.nan and (not n.negative or n.value == 0) for n in numbers])
    step.write(np.where(chosen, step.read(1, to), step.read(2, to)))
