"""Exchanges between lanes, and control flow."""

from __future__ import annotations

from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.state import LANES, Lanes, Step, semantic
from fa_bench.ptx.program import Label, Pair, Vec

_LANE = np.arange(LANES)


@semantic("bar.warp.sync")
def warp_barrier(step: Step) -> None:
    """The scheduler has brought the member lanes together; their memory accesses are in order anyway."""


@semantic("membar", "fence")
def fence(step: Step) -> None:
    """Memory is sequentially consistent here."""


def members(step: Step, k: int) -> Lanes:
    """Whether lane i's member mask (operand ``k``) names lane j, shape (32, 32); checked for the active lanes.

    Lanes that name each other must execute the instruction together and with the same mask; different masks for
    separate groups of lanes are fine. A lane that has exited may be named.
    """
    masks = step.read(k, "u32")
    named: Lanes = (masks[:, None] >> _LANE & 1).astype(bool)
    for lane in np.flatnonzero(step.on):
        mask = f"its member mask {masks[lane]:#010x}"
        if not named[lane, lane]:
            raise step.fault(f"{mask} does not name the lane itself", int(lane))
        if (named[lane] & step.warp.live & ~step.on).any():
            raise step.fault(f"{mask} names a lane that does not execute it", int(lane))
        if (masks[named[lane] & step.on] != masks[lane]).any():
            raise step.fault(f"{mask} differs from that of a lane it names", int(lane))
    return named


@semantic("shfl.sync")
def shuffle(step: Step) -> None:
    """Reads a from another lane of the segment; out of range a lane reads its own and the predicate is false.

    The value of a lane that does not take part is whatever its register holds.
    """
    if not step.on.any():
        return
    members(step, 4)
    source, offset, control = (step.read(k) for k in (1, 2, 3))
    offset, clamp, segment = (v.astype(np.int64) & 31 for v in (offset, control, control >> np.uint32(8)))
    last = _LANE & segment | clamp & ~segment
    if step.instruction.has("up"):
        lane = _LANE - offset
        in_range = lane >= last
    elif step.instruction.has("down"):
        lane = _LANE + offset
        in_range = lane <= last
    elif step.instruction.has("bfly"):
        lane = _LANE ^ offset
        in_range = lane <= last
    else:
        lane = _LANE & segment | offset & ~segment
        in_range = lane <= last
    target = step.instruction.operands[0]
    value = source[np.where(in_range, lane, _LANE)]
    if isinstance(target, Pair):
        step.write(value, target.first)
        step.write(in_range, target.second)
    else:
        step.write(value)


@semantic("vote.sync")
def vote(step: Step) -> None:
    """Over the member lanes that have not exited."""
    if not step.on.any():
        return
    named = members(step, 2) & step.on
    votes = step.read(1, "pred")
    every: Lanes = np.all(votes | ~named, axis=1)
    some: Lanes = np.any(votes & named, axis=1)
    if step.instruction.has("ballot"):
        step.write(((votes & named) << _LANE).sum(axis=1))
    elif step.instruction.has("all"):
        step.write(every)
    elif step.instruction.has("any"):
        step.write(some)
    else:
        step.write(every | ~some)


@semantic("match.any")
def match_any(step: Step) -> None:
    """The member lanes that have the same value."""
    if step.on.any():
        _, equal = _matches(step)
        step.write((equal << _LANE).sum(axis=1))


@semantic("match.all")
def match_all(step: Step) -> None:
    """The member lanes if all have the same value, else 0, and whether they do."""
    if not step.on.any():
        return
    named, equal = _matches(step)
    holds = (equal == named).all(axis=1)
    result = np.where(holds, (named << _LANE).sum(axis=1), 0)
    target = step.instruction.operands[0]
    if isinstance(target, Pair):
        step.write(result, target.first)
        step.write(holds, target.second)
    else:
        step.write(result)


def _matches(step: Step) -> tuple[Lanes, Lanes]:
    """The member lanes of each lane, and those among them with its value."""
    named = members(step, 2) & step.on
    values = step.read(1)
    return named, named & (values[:, None] == values[None, :])


_REDUCTIONS: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@semantic("redux.int", "redux.bits")
def reduce(step: Step) -> None:
    """Over the member lanes that have not exited."""
    if not step.on.any():
        return
    named = members(step, 2) & step.on
    operation = next(function for word, function in _REDUCTIONS.items() if step.instruction.has(word))
    values = step.integer(1)
    results = values.copy()
    for lane in np.flatnonzero(step.on):
        results[lane] = operation.reduce(values[named[lane]], dtype=values.dtype)
    step.write(results)


@semantic("nanosleep")
def sleep(step: Step) -> None:
    """Time does not exist here; other warps have their turns anyway."""


@semantic("brx.idx")
def branch_by_index(step: Step) -> None:
    """Each lane goes to the target that its index picks."""
    table = step.instruction.operands[1]
    assert isinstance(table, Vec)
    index = step.read(0, "u32")
    for lane in np.flatnonzero(step.on):
        if index[lane] >= len(table.items):
            raise step.fault(f"there are {len(table.items)} branch targets, none with index {index[lane]}", int(lane))
        target = table.items[index[lane]]
        assert isinstance(target, Label)
        step.warp.pc[lane] = step.warp.kernel.labels[target.name]


@semantic("activemask")
def active_mask(step: Step) -> None:
    """The lanes that execute this instruction together."""
    step.write(np.full(LANES, int((1 << _LANE[step.on]).sum()), np.uint32))


@semantic("bra")
def branch(step: Step) -> None:
    target = step.instruction.operands[0]
    assert isinstance(target, Label)
    step.warp.pc[step.on] = step.warp.kernel.labels[target.name]


@semantic("ret", "exit")
def leave(step: Step) -> None:
    step.warp.exit(step.on)


@semantic("trap")
def trap(step: Step) -> None:
    if step.on.any():
        raise step.fault("the kernel trapped", int(np.argmax(step.on)))
