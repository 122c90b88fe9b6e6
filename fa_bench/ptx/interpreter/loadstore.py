"""Loads, stores and asynchronous copies."""

from __future__ import annotations

from functools import partial

import numpy as np

from fa_bench.ptx.interpreter.barriers import mbarriers
from fa_bench.ptx.interpreter.spaces import Mbarrier
from fa_bench.ptx.interpreter.state import INT, LANES, UINT, Copy, Lanes, Step, semantic
from fa_bench.ptx.program import Operand, Reg, Vec


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _space(step: Step) -> str:
    """The space that the opcode names."""
    return step.instruction.row.op.partition(".")[2] or "generic"


@semantic("ld", "ld.global", "ld.shared", "ld.local", "ld.const", "ld.param")
def load(step: Step) -> None:
    """Narrow types fill a wider register with their sign (s types) or zeros."""
    instruction = step.instruction
    items = _items(instruction.operands[0])
    nbytes = instruction.bits // 8
    data = step.warp.spaces.read(step, _space(step), step.address(1), nbytes * len(items))
    dtype = (INT if instruction.type[0] == "s" else UINT)[instruction.bits]
    elements = data.view(dtype)
    for position, item in enumerate(items):
        step.write(elements[:, position], item)


@semantic("st", "st.global", "st.shared", "st.local")
def store(step: Step) -> None:
    instruction = step.instruction
    items = [step.value(item, instruction.type) for item in _items(instruction.operands[1])]
    data = np.stack(items, axis=1).view(np.uint8)
    step.warp.spaces.write(step, _space(step), step.address(0), data)


@semantic("prefetch", "prefetchu")
def hint(step: Step) -> None:
    """Asks for no data."""


def _source_sizes(step: Step, size: int) -> Lanes:
    """Bytes that each lane copies: all, those that the fourth operand says, or none where it is a true predicate."""
    operands = step.instruction.operands
    if len(operands) < 4:
        return np.full(LANES, size)
    last = operands[3]
    if isinstance(last, Reg) and step.warp.kernel.registers[last.name] == 1:
        return np.where(step.read(3, "pred"), 0, size)
    return step.read(3, "u32")


@semantic("cp.async")
def copy_async(step: Step) -> None:
    """Reads global memory and checks both sides now; shared memory gets the data at a wait.

    What the source size leaves of the copy is zero. A source size of 0 does not access global memory.
    """
    size = step.constant(2)
    if size not in (4, 8, 16):
        raise step.fault(f"a copy has 4, 8 or 16 bytes, not {size}")
    sizes = [int(s) for s in _source_sizes(step, size)]
    lanes = [int(lane) for lane in np.flatnonzero(step.on)]
    targets = step.address(0)
    spaces = step.warp.spaces
    for lane in lanes:
        if sizes[lane] > size:
            raise step.fault(f"the source size {sizes[lane]} is more than the copy's {size} bytes", lane)
    spaces.touch_shared(step, lanes, targets, size)
    sources = spaces.touch_global(step, lanes, step.address(1), sizes, size, "read")
    for lane in lanes:
        data = sources[lane].tobytes() if lane in sources else b""
        step.warp.copies.append(Copy(lane, targets[lane], data.ljust(size, b"\0")))


@semantic("cp.async.mbarrier.arrive")
def signal_copies(step: Step) -> None:
    """Each active lane arrives at its mbarrier as soon as all its copies so far have.

    Unless ``.noinc`` is set the mbarrier expects that arrival beside the others of this phase.
    """
    places = mbarriers(step, 0)
    for lane, barrier in places.items():
        if not step.instruction.has("noinc"):
            barrier.pending += 1
        step.warp.copies.append(Copy(lane, 0, b"", signal=partial(_signal, barrier)))


def _signal(barrier: Mbarrier) -> None:
    if barrier.pending:
        barrier.take(1)


@semantic("cp.async.commit_group")
def commit_group(step: Step) -> None:
    """Each active lane's copies since its last commit become a group; an empty group counts too."""
    _commit(step)


@semantic("cp.async.wait_group")
def wait_group(step: Step) -> None:
    """All but the N youngest groups of each active lane arrive."""
    _arrive(step, keep=step.constant(0))


@semantic("cp.async.wait_all")
def wait_all(step: Step) -> None:
    """A commit and a wait for all groups."""
    _commit(step)
    _arrive(step, keep=0)


def _commit(step: Step) -> None:
    warp = step.warp
    for copy in warp.copies:
        if step.on[copy.lane] and copy.group is None:
            copy.group = int(warp.groups[copy.lane])
    warp.groups[step.on] += 1


def _arrive(step: Step, keep: int) -> None:
    warp = step.warp
    warp.arrive(
        lambda copy: (
            bool(step.on[copy.lane]) and copy.group is not None and copy.group < int(warp.groups[copy.lane]) - keep
        )
    )
