"""Runs a kernel: CTAs one after the other, warps in turn, lanes at the smallest program counter first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fa_bench.errors import KernelFault
from fa_bench.ptx.counters import LaunchCounters
from fa_bench.ptx.interpreter.barriers import Barriers
from fa_bench.ptx.interpreter.spaces import Spaces, Tally
from fa_bench.ptx.interpreter.state import LANES, SEMANTICS, Dim, Lanes, Step, Warp
from fa_bench.ptx.isa import ROWS
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.program import Kernel

#: Warp instructions that one CTA may execute unless the caller says otherwise.
BUDGET: Final = 5_000_000
#: Instructions after which a warp lets the others run, so that one that spins on shared memory cannot starve them.
_TURN: Final = 256
#: Instructions that may take a lock, and turns in which a warp may execute them before other lanes of it go on.
_LOCKS: Final = ("atom.cas", "atom.exch")
_PATIENCE: Final = 16

#: Instructions at which lanes wait for others of their warp -> the operand with the member mask (None: all lanes).
_MEETING: Final[dict[str, int | None]] = {
    **{f"{word}.{how}": None for word in ("bar", "barrier") for how in ("sync", "arrive", "red", "red.popc")},
    "ldmatrix": None,
    "stmatrix": None,
    "movmatrix": None,
    **{row.name: None for row in ROWS if row.name.startswith(("mma.", "wmma."))},
    "bar.warp.sync": 0,
    "shfl.sync": 4,
    "vote.sync": 2,
    "match.any": 2,
    "match.all": 2,
    "redux.int": 2,
    "redux.bits": 2,
}


def run(
    kernel: Kernel,
    grid: Dim,
    block: Dim,
    args: Sequence[Any],
    memory: Memory,
    smem_bytes: int = 0,
    ctas: Sequence[int] | None = None,
    budget: int = BUDGET,
) -> LaunchCounters:
    """Execute a kernel, slowly and by the book.

    Parameters
    ----------
    kernel : Kernel
    grid, block : tuple of three int
        Thread blocks, and threads per block.
    args : sequence
        One NumPy scalar (or array, for a parameter passed by value as bytes) per parameter, of the parameter's size.
    memory : Memory
        The buffers that the kernel may access.
    smem_bytes : int
        Dynamic shared memory in bytes.
    ctas : sequence of int, optional
        Linear ids (x fastest) of the thread blocks to run; all by default.
    budget : int
        Warp instructions that one CTA may execute.

    Returns
    -------
    LaunchCounters

    Raises
    ------
    KernelFault
        For an illegal access, a deadlock, a divergent barrier, a trap or an exhausted budget.
    ValueError
        If the launch does not fit the kernel.
    """
    params = _parameters(kernel, args)
    threads = block[0] * block[1] * block[2]
    if threads < 1 or threads > (kernel.max_threads or 1024):
        raise ValueError(f"{kernel.name} runs with 1 to {kernel.max_threads or 1024} threads, not {threads}.")
    memory = kernel.storage.beside(memory)
    tally = Tally()
    count = grid[0] * grid[1] * grid[2]
    with np.errstate(all="ignore"):
        for cta in range(count) if ctas is None else ctas:
            if not 0 <= cta < count:
                raise ValueError(f"The grid {grid} has no CTA {cta}.")
            shared = np.full(kernel.static_smem_bytes + smem_bytes, 0xFF, np.uint8)
            spaces = Spaces(memory, shared, params, kernel.storage.constant, tally)
            index = (cta % grid[0], cta // grid[0] % grid[1], cta // (grid[0] * grid[1]))
            _run_cta(_warps(kernel, grid, block, index, spaces), budget)
            tally.ctas += 1
    return tally.result(memory)


def _parameters(kernel: Kernel, args: Sequence[Any]) -> Lanes:
    if len(args) != len(kernel.params):
        raise ValueError(f"{kernel.name} takes {len(kernel.params)} arguments, not {len(args)}.")
    space = np.zeros(kernel.param_bytes, np.uint8)
    for param, arg in zip(kernel.params, args, strict=True):
        data = np.asarray(arg).tobytes()
        if len(data) != param.size:
            raise ValueError(f"{kernel.name}: parameter {param.name} has {param.size} bytes, the argument {len(data)}.")
        space[param.offset : param.offset + param.size] = np.frombuffer(data, np.uint8)
    return space


def _warps(kernel: Kernel, grid: Dim, block: Dim, cta: Dim, spaces: Spaces) -> list[Warp]:
    threads = block[0] * block[1] * block[2]
    lane = np.arange(LANES)
    warps = []
    for index in range(-(-threads // LANES)):
        thread = index * LANES + lane
        one = np.ones(LANES, np.uint32)
        tid = (thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1]))
        specials: dict[str, Lanes] = {
            "%laneid": lane,
            "%warpid": one * np.uint32(index),
            "%smid": one * np.uint32(0),
            "%lanemask_eq": 1 << lane,
            "%lanemask_lt": (1 << lane) - 1,
            "%lanemask_le": (2 << lane) - 1,
            "%lanemask_gt": 2**32 - (2 << lane),
            "%lanemask_ge": 2**32 - (1 << lane),
        }
        for axis, letter in enumerate("xyz"):
            specials[f"%tid.{letter}"] = tid[axis]
            specials[f"%ntid.{letter}"] = one * np.uint32(block[axis])
            specials[f"%ctaid.{letter}"] = one * np.uint32(cta[axis])
            specials[f"%nctaid.{letter}"] = one * np.uint32(grid[axis])
        warps.append(Warp(kernel, index, cta, specials, thread < threads, spaces))
    spaces.warps = warps
    spaces.barriers = Barriers(warps)
    return warps


def _run_cta(warps: list[Warp], budget: int) -> None:
    left = budget
    while any(warp.live.any() for warp in warps):
        ready = [warp for warp in warps if warp.live.any() and warp.barrier is None]
        if not ready:
            raise warps[0].spaces.barriers.deadlock()
        for warp in ready:
            patient = warp.locking < _PATIENCE
            after = -1 if patient else int(warp.pc[warp.live].min())
            warp.locking = warp.locking + 1 if warp.locks and patient else 0
            warp.locks = False
            for _ in range(_TURN):
                if warp.barrier is not None or not warp.live.any():
                    break
                if left == 0:
                    raise KernelFault(
                        f"{warp.kernel.name}, CTA {warp.cta}: still running after {budget} warp instructions, at "
                        f"{_places(warp)}; it hangs, or the budget is too small."
                    )
                _execute(warp, after)
                left -= 1
            warp.spaces.barriers.open()


def _execute(warp: Warp, after: int) -> None:
    """Execute one instruction for the lanes at the smallest program counter that need not wait for others.

    Lanes behind ``after`` come first if it is not negative: they may hold a lock that the others wait for.
    """
    places = np.unique(warp.pc[warp.live])
    if after >= 0:
        places = np.concatenate([places[places > after], places[places <= after]])
    for pc in places:
        here = warp.live & (warp.pc == pc)
        if pc == len(warp.kernel.instructions):
            warp.exit(here)
            return
        instruction = warp.kernel.instructions[pc]
        on = here
        if instruction.guard is not None:
            guard = warp.registers[instruction.guard.name]
            on = here & (~guard if instruction.guard.negated else guard)
        step = Step(warp, instruction, here, on)
        if _must_wait(step):
            continue
        warp.locks |= instruction.row.name in _LOCKS
        warp.spaces.tally.instructions[instruction.row.klass] += 1
        warp.pc[here] += 1
        SEMANTICS[instruction.row.name](step)
        return
    raise KernelFault(
        f"{warp.kernel.name}, CTA {warp.cta}, warp {warp.index}: its lanes are divergent and wait for each other at "
        f"{_places(warp)}."
    )


def _must_wait(step: Step) -> bool:
    name = step.instruction.row.name
    absent = step.warp.live & ~step.here
    if name not in _MEETING or not absent.any():
        return False
    operand = _MEETING[name]
    if operand is None or not step.on.any():
        return True
    named = int(np.bitwise_or.reduce(step.read(operand, "u32")[step.on]))
    return any(named >> lane & 1 for lane in np.flatnonzero(absent))


def _places(warp: Warp) -> str:
    instructions = warp.kernel.instructions
    lines = [instructions[pc] for pc in np.unique(warp.pc[warp.live]) if pc < len(instructions)]
    return ", ".join(f"{i.text!r} (PTX line {i.line})" for i in lines)
