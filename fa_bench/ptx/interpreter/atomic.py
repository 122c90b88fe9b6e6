"""Atomic operations: the lanes take their turns in lane order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.formats import FORMATS, add, decode, encode, flush
from fa_bench.ptx.interpreter.spaces import WINDOW_SHIFT
from fa_bench.ptx.interpreter.state import LANES, UINT, Lanes, Step, semantic
from fa_bench.ptx.isa import ROWS, TYPE_BITS

_Operation = Callable[[int, int], int]

#: What memory holds after the operation, from the old value and the operand, both unsigned.
_BITWISE: Final[dict[str, _Operation]] = {
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda _, b: b,
    "inc": lambda old, b: 0 if old >= b else old + 1,
    "dec": lambda old, b: b if old == 0 or old > b else old - 1,
}


def _signed(pattern: int, type_: str) -> int:
    bits = TYPE_BITS[type_]
    return pattern - (1 << bits) if type_[0] == "s" and pattern >> bits - 1 else pattern


def _sum(old: int, b: int, type_: str, flushes: bool) -> int:
    """To nearest even; packed types in their halves. ``flushes``: subnormals count as zeros."""
    if type_ not in FORMATS:
        half = type_.removesuffix("x2")
        low, high = (_sum(old >> k & 0xFFFF, b >> k & 0xFFFF, half, flushes) for k in (0, 16))
        return high << 16 | low
    fmt = FORMATS[type_]
    x, y = (decode(pattern, fmt) for pattern in (old, b))
    if flushes:
        x, y = flush(x, fmt), flush(y, fmt)
    result = encode(add(x, y, "rn"), fmt, "rn")
    return encode(flush(decode(result, fmt), fmt), fmt, "rn") if flushes else result


def _result(step: Step, old: int, operands: list[int], in_global: bool) -> int:
    has, type_ = step.instruction.has, step.instruction.type
    b = operands[0]
    if has("cas"):
        return operands[1] if old == b else old
    if has("add"):
        if "f" in type_:
            # "atom": f32 sums in global memory flush subnormals, those in shared memory do not.
            return _sum(old, b, type_, flushes=type_ == "f32" and in_global)
        return old + b
    for word, choose in (("min", min), ("max", max)):
        if has(word):
            return choose(old, b, key=lambda pattern: _signed(pattern, type_))
    return next(function for word, function in _BITWISE.items() if has(word))(old, b)


@semantic(*(row.name for row in ROWS if row.op in ("atom", "red")))
def atomic(step: Step) -> None:
    """``atom`` gives each lane what it found, ``red`` nothing."""
    instruction = step.instruction
    returns = instruction.row.op == "atom"
    bits = instruction.bits
    place = 1 if returns else 0
    operands = [step.read(k, f"b{bits}") for k in range(place + 1, len(instruction.operands))]
    space = next((s for s in ("global", "shared") if instruction.has(s)), "generic")
    addresses = step.address(place)
    views = step.warp.spaces.views(step, space, addresses, bits // 8, "atomic")
    found: Lanes = np.zeros(LANES, UINT[bits])
    for lane in (int(k) for k in np.flatnonzero(step.on)):
        memory = views[lane].view(UINT[bits])
        found[lane] = memory[0]
        in_global = space == "global" or (space == "generic" and addresses[lane] >> WINDOW_SHIFT == 0)
        values = [int(operand[lane]) for operand in operands]
        memory[0] = _result(step, int(found[lane]), values, in_global) % (1 << bits)
    if returns:
        step.write(found)
