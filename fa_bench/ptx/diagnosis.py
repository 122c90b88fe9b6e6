"""From what generated code recorded of a fault to a sentence."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.jit import CompiledKernel
from fa_bench.ptx.layout import DEADLOCK, FAULTS, LANES, WAITING, WINDOW_SHIFT, WINDOWS, Context, Warp
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.worker import Worker, get

#: What messages call the spaces by the number of their window.
_SPACES: Final = {WINDOWS["shared"]: "shared", WINDOWS["local"]: "a thread's local", WINDOWS["const"]: "constant",
                  WINDOWS["param"]: "parameter"}  # fmt: skip


def diagnosis(compiled: CompiledKernel, worker: Worker, code: int, memory: Memory) -> str:
    """What went wrong in the CTA of ``worker``, whose last turn ended with ``code``: where, and why."""
    c = Context
    kernel = compiled.kernel
    cta = tuple(worker.field(c.CTAID + 4 * k) for k in range(3))
    if code == DEADLOCK:
        return f"Kernel {kernel.name}, CTA {cta}: deadlock; {_waiting(compiled, worker)}."
    kind = worker.field(c.FAULT_KIND)
    site = worker.field(c.FAULT_SITE)
    if kind == 4:
        # Lanes met at the end of a basic block.
        site = compiled.plan.blocks[site][1] - 1
    instruction = kernel.instructions[min(site, len(kernel.instructions) - 1)]
    where = f"Kernel {kernel.name}, CTA {cta}, warp {worker.field(c.FAULT_WARP)}"
    what = f"{instruction.text!r} (PTX line {instruction.line})"
    if kind in (1, 2, 3, 8, 9, 10):
        lane, size = worker.field(c.FAULT_LANE), worker.field(c.FAULT_SIZE)
        address = worker.field(c.FAULT_ADDRESS, "<Q")
        text = f"{where}, lane {lane}: {what} accesses {size} bytes at {_place(kind, address, worker, memory)}"
        return f"{text}, which {FAULTS[kind]}."
    if kind == 4:
        return f"{where}: the barrier {what} {FAULTS[kind]}."
    if kind in (11, 12, 13):
        return f"{where}: {what} {FAULTS[kind]}."
    return f"{where}: {FAULTS[kind]} at {what}."


def _place(kind: int, address: int, worker: Worker, memory: Memory) -> str:
    space = address >> WINDOW_SHIFT
    if kind != 3 and space in _SPACES:
        return f"offset {address & (1 << WINDOW_SHIFT) - 1} of {_SPACES[space]} memory"
    if kind == 3:
        return f"shared offset {address} (of {worker.field(Context.SHARED_SIZE)})"
    found = memory.find(address)
    if found is not None:
        return f"{address:#x} ({found.name} + {address - found.address})"
    if kind == 2 and address < worker.field(Context.SHARED_SIZE):
        return f"shared offset {address}"
    nearest = memory.nearest(address)
    if nearest is None:
        return f"{address:#x} (no buffer is registered)"
    end = nearest.address + nearest.nbytes
    if address >= nearest.address:
        return (
            f"{address:#x} (nearest buffer: {nearest.name}, {nearest.nbytes} bytes, ends {address - end} bytes before)"
        )
    return f"{address:#x} (nearest buffer: {nearest.name}, starts {nearest.address - address} bytes behind)"


def _waiting(compiled: CompiledKernel, worker: Worker) -> str:
    parts = []
    for w in range(worker.num_warps):
        state = worker.warps[w * compiled.plan.warp_bytes :]
        if get("<i", state, Warp.STATE)[0] != WAITING:
            continue
        barrier, threads = get("<ii", state, Warp.BARRIER)
        arrived = worker.field(Context.ARRIVED + 4 * barrier)
        wanted = threads or worker.num_warps * LANES
        parts.append(f"warp {w} waits at barrier {barrier}, where {arrived} of {wanted} threads arrived")
    return "; ".join(parts)
