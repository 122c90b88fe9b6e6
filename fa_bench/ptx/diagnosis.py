"""From what generated code recorded of a fault to a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.ptx import layout
from fa_bench.ptx.jit import CompiledKernel
from fa_bench.ptx.layout import DEADLOCK, FAULT, FINISHED, LANES, WAITING, WINDOW_SHIFT, WINDOWS, Checker, Context, Warp
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.program import Instruction
from fa_bench.ptx.sanitizer import Sanitizer, Watch
from fa_bench.ptx.worker import Worker, get

#: Names the source of a PTX line, empty if it is not known.
Where = Callable[[int], str]

#: What messages call the spaces by the number of their window.
_SPACES: Final = {WINDOWS["shared"]: "shared", WINDOWS["local"]: "a thread's local", WINDOWS["const"]: "constant",
                  WINDOWS["param"]: "parameter"}  # fmt: skip
#: Contents of FAULT_KIND.
_FAULTS: Final[dict[int, str]] = {
    1: "is outside every buffer",
    2: "is not aligned to the access size",
    3: "is outside shared memory",
    4: "is reached by part of a warp while the rest waits at another one or never comes",
    5: "trap",
    6: "ran out of its instruction budget",
    7: "enters a block with part of its lanes that was proved to be entered by all",
    8: "is outside that space",
    9: "cannot be written",
    10: "has no atomic operations",
    11: "picks none of the branch targets",
    13: "needs all live lanes of the warp together",
    12: "is given a count that no mbarrier has, or one that its pending arrivals do not allow",
}
#: What checks say of an access that another one collides with.
_COLLISIONS: Final[dict[int, str]] = {
    layout.RACE_WRITE: "which {other} writes; no barrier orders the two (a race)",
    layout.RACE_READ: "which {other} reads; no barrier orders the two (a race)",
    layout.CTA_RACE_WRITE: "which {other} writes; no release and acquire orders the two (a race)",
    layout.CTA_RACE_READ: "which {other} reads; no release and acquire orders the two (a race)",
    layout.IN_FLIGHT: "where a copy by {other} is in flight; it is done when that warp has waited for it",
}


class Report:
    """Makes sentences of the faults of a launch.

    Parameters
    ----------
    compiled : CompiledKernel
    memory : Memory
    where : callable, optional
        Names the source of a PTX line.
    checks, watch : optional
        Those of a launch with checks.
    order : sequence of int, optional
        Linear numbers of the CTAs in the order in which they run; that of the grid by default.
    """

    def __init__(
        self,
        compiled: CompiledKernel,
        memory: Memory,
        where: Where | None = None,
        checks: Sanitizer | None = None,
        watch: Watch | None = None,
        order: Sequence[int] | NDArray[np.uint64] | None = None,
    ) -> None:
        self._compiled = compiled
        self._memory = memory
        self._where = where
        self._checks = checks
        self._watch = watch
        self._order = order

    def sentence(self, worker: Worker, code: int) -> str:
        """What went wrong in the CTA of ``worker``, whose last turn ended with ``code``: where, and why."""
        c = Context
        kernel = self._compiled.kernel
        cta = tuple(worker.field(c.CTAID + 4 * k) for k in range(3))
        kind = worker.field(c.FAULT_KIND) if code == FAULT else 0
        if self._watch is not None:
            kind = self._watch.take_pending(worker.context, kind)
        if code == DEADLOCK and not kind:
            return f"Kernel {kernel.name}, CTA {cta}: deadlock; {self._waiting(worker)}."
        index = self._site(kind, worker.field(c.FAULT_SITE))
        what = self._instruction(index)
        where = f"Kernel {kernel.name}, CTA {cta}, warp {worker.field(c.FAULT_WARP)}"
        if self._watch is not None and kind >= layout.UNWRITTEN:
            return self._finding(kind, worker, where, index, self._watch)
        if kind in (1, 2, 3, 8, 9, 10):
            lane, size = worker.field(c.FAULT_LANE), worker.field(c.FAULT_SIZE)
            address = worker.field(c.FAULT_ADDRESS, "<Q")
            text = f"{where}, lane {lane}: {what} accesses {size} bytes at {self._place(kind, address, worker)}"
            return f"{text}, which {_FAULTS[kind]}."
        if kind == 4:
            return f"{where}: the barrier {what} {_FAULTS[kind]}."
        if kind in (11, 12, 13):
            return f"{where}: {what} {_FAULTS[kind]}."
        return f"{where}: {_FAULTS[kind]} at {what}."

    def _finding(self, kind: int, worker: Worker, where: str, index: int, watch: Watch) -> str:
        what = self._instruction(index)
        lane, size = worker.field(Context.FAULT_LANE), worker.field(Context.FAULT_SIZE)
        byte = watch.field(Checker.BYTE)
        if kind == layout.COUNTS_DIFFER:
            return (
                f"{where}: {what} expects {size} threads at barrier {lane}, where other warps that have arrived expect "
                f"{byte}: different thread counts."
            )
        address = worker.field(Context.FAULT_ADDRESS, "<Q")
        verb = _verb(self._compiled.kernel.instructions[index], address >> WINDOW_SHIFT == 0)
        extent = "1 byte" if size == 1 else f"{size} bytes"
        text = f"{where}, lane {lane}: {what} {verb} {extent} at {self._place(kind, address, worker, byte)}"
        if kind == layout.UNWRITTEN:
            which = "" if size == 1 else f" byte {byte} of" if byte else " the first of"
            return f"{text},{which} which was never written."
        if kind == layout.TO_INPUT:
            return f"{text}, which is an input."
        if kind == layout.CONFLICT:
            return f"{text}, where its lane {watch.field(Checker.OTHER)} writes different values."
        collision = _COLLISIONS[kind].format(other=self._other(kind, worker, watch))
        if kind in (layout.RACE_WRITE, layout.RACE_READ) and watch.other()[1] == worker.field(Context.FAULT_WARP):
            collision = collision.replace("no barrier orders the two", "no bar.warp.sync orders the two lanes")
        return f"{text}, {collision}."

    def _other(self, kind: int, worker: Worker, watch: Watch) -> str:
        index, warp, lane = watch.other()
        text = f"{self._instruction(index)} of warp {warp}, lane {lane}"
        if kind not in (layout.CTA_RACE_WRITE, layout.CTA_RACE_READ):
            return text
        place = watch.field(Checker.OTHER_CTA) - watch.first_cta
        number = place if self._order is None else int(self._order[place])
        x, y = worker.field(Context.NCTAID), worker.field(Context.NCTAID + 4)
        return f"{text} of CTA {(number % x, number // x % y, number // (x * y))}"

    def _site(self, kind: int, site: int) -> int:
        """Index of an instruction from what was recorded of it."""
        blocks = self._compiled.plan.blocks
        if kind == 4:
            # Lanes met at the end of a basic block.
            return blocks[site][1] - 1
        if site < 0:
            # Minus the number of the block behind the barrier.
            return blocks[-site - 1][1] - 1
        return min(site, len(self._compiled.kernel.instructions) - 1)

    def _instruction(self, index: int) -> str:
        instruction = self._compiled.kernel.instructions[index]
        source = self._where(instruction.line) if self._where is not None else ""
        text = " ".join(instruction.text.split())
        return f"{text!r} (PTX line {instruction.line}{', ' if source else ''}{source})"

    def _place(self, kind: int, address: int, worker: Worker, byte: int = 0) -> str:
        space = address >> WINDOW_SHIFT
        if kind >= layout.UNWRITTEN and space == WINDOWS["shared"]:
            return f"shared offset {address & (1 << WINDOW_SHIFT) - 1}"
        if kind != 3 and space in _SPACES:
            return f"offset {address & (1 << WINDOW_SHIFT) - 1} of {_SPACES[space]} memory"
        if kind == 3:
            return f"shared offset {address} (of {worker.field(Context.SHARED_SIZE)})"
        found = self._memory.find(address)
        if found is not None:
            offset = address - found.address
            element = self._checks.element(found.name, offset + byte) if self._checks is not None else ""
            return f"{address:#x} ({found.name} + {offset}{', ' if element else ''}{element})"
        if kind == 2 and address < worker.field(Context.SHARED_SIZE):
            return f"shared offset {address}"
        nearest = self._memory.nearest(address)
        if nearest is None:
            return f"{address:#x} (no buffer is registered)"
        end = nearest.address + nearest.nbytes
        near = f"nearest buffer: {nearest.name}"
        if address >= nearest.address:
            return f"{address:#x} ({near}, {nearest.nbytes} bytes, ends {address - end} bytes before)"
        return f"{address:#x} ({near}, starts {nearest.address - address} bytes behind)"

    def _waiting(self, worker: Worker) -> str:
        parts = []
        ended = []
        for w in range(worker.num_warps):
            state = worker.warps[w * self._compiled.plan.warp_bytes :]
            if get("<i", state, Warp.STATE)[0] == FINISHED:
                ended.append(str(w))
            if get("<i", state, Warp.STATE)[0] != WAITING:
                continue
            barrier, threads = get("<ii", state, Warp.BARRIER)
            arrived = worker.field(Context.ARRIVED + 4 * barrier)
            wanted = threads or worker.num_warps * LANES
            parts.append(f"warp {w} waits at barrier {barrier}, where {arrived} of {wanted} threads arrived")
        if ended:
            parts.append(f"warps {', '.join(ended)} have ended" if len(ended) > 1 else f"warp {ended[0]} has ended")
        return "; ".join(parts)


def _verb(instruction: Instruction, in_global: bool) -> str:
    """What an instruction does to memory."""
    op = instruction.row.op
    if op == "cp.async":
        return "reads" if in_global else "copies"
    if op.split(".")[0] in ("atom", "red", "mbarrier"):
        return "updates"
    if op.split(".")[0] in ("st", "stmatrix") or op.startswith("wmma.store"):
        return "writes"
    return "reads"
