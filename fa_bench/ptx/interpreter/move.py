"""Comparisons, selection and moves."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.spaces import WINDOW_SHIFT, WINDOWS
from fa_bench.ptx.interpreter.state import UINT, Lanes, Step, semantic
from fa_bench.ptx.isa import TYPE_BITS, UnsupportedInstruction
from fa_bench.ptx.program import Pair, Vec

_Comparison = Callable[[Lanes, Lanes], Lanes]

_ORDERED: Final[dict[str, _Comparison]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_UNSIGNED: Final = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMBINE: Final[dict[str, _Comparison]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _comparison(step: Step) -> str:
    names = step.instruction.form.modifiers - {"ftz", *_COMBINE}
    if len(names) != 1:
        raise UnsupportedInstruction(step.instruction.text, step.instruction.line)
    return next(iter(names))


def _set_predicates(step: Step, holds: Lanes) -> None:
    """Write ``holds`` to p and its opposite to q, each combined with c by the ``.and``, ``.or`` or ``.xor``."""
    targets = step.instruction.operands[0]
    p, q = (targets.first, targets.second) if isinstance(targets, Pair) else (targets, None)
    combine = next((_COMBINE[m] for m in step.instruction.form.modifiers if m in _COMBINE), None)
    opposite = ~holds
    if combine is not None:
        c = step.read(3, "pred")
        holds, opposite = combine(holds, c), combine(opposite, c)
    step.write(holds, p)
    if q is not None:
        step.write(opposite, q)


@semantic("setp.int")
def compare_integers(step: Step) -> None:
    name = _comparison(step)
    if name in _UNSIGNED:
        _set_predicates(step, _ORDERED[_UNSIGNED[name]](step.read(1), step.read(2)))
    else:
        _set_predicates(step, _ORDERED[name](step.integer(1), step.integer(2)))


@semantic("setp.f32")
def compare_floats(step: Step) -> None:
    """Ordered comparisons are false if a source is NaN, the ones ending in u are true."""
    name = _comparison(step)
    a, b = step.f32(1), step.f32(2)
    unordered = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        holds = unordered if name == "nan" else ~unordered
    elif name in _ORDERED:
        holds = _ORDERED[name](a, b) & ~unordered
    elif name.removesuffix("u") in _ORDERED:
        holds = _ORDERED[name.removesuffix("u")](a, b) | unordered
    else:
        raise UnsupportedInstruction(step.instruction.text, step.instruction.line)
    _set_predicates(step, holds)


@semantic("selp")
def select(step: Step) -> None:
    step.write(np.where(step.read(3, "pred"), step.read(1), step.read(2)))


@semantic("mov")
def move(step: Step) -> None:
    """Copies a pattern; a vector on one side packs or unpacks, its first element lowest."""
    target, source = step.instruction.operands
    bits = TYPE_BITS[step.instruction.type]
    if isinstance(source, Vec):
        part = bits // len(source.items)
        packed = np.zeros(step.here.shape, UINT[bits])
        for position, item in enumerate(source.items):
            packed |= step.value(item, f"b{part}").astype(UINT[bits]) << UINT[bits](part * position)
        step.write(packed)
    elif isinstance(target, Vec):
        part = bits // len(target.items)
        whole = step.read(1)
        for position, item in enumerate(target.items):
            step.write((whole >> UINT[bits](part * position)).astype(UINT[part]), item)
    else:
        step.write(step.read(1))


def _window(step: Step) -> np.uint64:
    """Generic address of byte 0 of the space that the instruction names."""
    number = next(k for k, space in enumerate(WINDOWS) if step.instruction.has(space))
    return np.uint64(number << WINDOW_SHIFT)


@semantic("cvta")
def to_generic(step: Step) -> None:
    step.write(step.read(1) + _window(step))


@semantic("cvta.to")
def from_generic(step: Step) -> None:
    step.write(step.read(1) - _window(step))


@semantic("isspacep")
def is_in_space(step: Step) -> None:
    step.write(step.read(1, "u64") >> np.uint64(WINDOW_SHIFT) == _window(step) >> np.uint64(WINDOW_SHIFT))
