"""DRAM bytes of flash2 beside stores that another kernel's machine code makes: registers that it spills.

PTX has no spills, so the emulator does not see them. Where counters show that a published kernel spilled, and how
much, the caches can be shown its whole stream: our kernel's requests, which are the same, and those stores among
them. Each CTA has local memory of its own, of the slot that it runs in; it writes the same lines at each tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fa_bench import algorithms, ptx, reference
from fa_bench.backends.base import SECTORS_OF_A_LINE, Spills
from fa_bench.backends.hierarchy import CacheRun, best_l2, blocks_per_sm
from fa_bench.backends.programs import arguments, put_inputs
from fa_bench.cases import Case
from fa_bench.compiler import compile_kernel
from fa_bench.measure.environment import usable_cpus
from fa_bench.model.gpu import Gpu
from fa_bench.ptx.caches import LINE_BYTES, event
from fa_bench.ptx.layout import DONE, Event

#: What the spilled registers are called among the tensors.
LOCAL: Final = "local memory"


def dram_bytes(case: Case, gpu: Gpu, spills: Spills) -> int:
    """DRAM bytes, read and written, of ``case`` with ``spills`` beside what its kernel asks for.

    Parameters
    ----------
    case : Case
        Of flash2 with one stage: two turns of a CTA are one tile.
    gpu : Gpu
    spills : Spills
    """
    (total,) = passed(case, gpu, spills).dram_totals()
    return total["read"] + total["write"]


def passed(case: Case, gpu: Gpu, spills: Spills) -> CacheRun:
    """The run behind `dram_bytes`, done."""
    program = algorithms.get(case.impl).program(case)
    (launch,) = program.launches
    kernel = compile_kernel(launch.kernel, gpu.sm)
    memory = ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    put_inputs(program, raw, reference.make_inputs(case))
    slots = blocks_per_sm(launch, kernel, gpu) * gpu.sm_count
    memory.allocate(LOCAL, slots * spills.lines * LINE_BYTES)
    run = _SpillingRun(
        ptx, gpu, case.shape.slices, None, [best_l2(ptx, gpu)], serial=False, jobs=usable_cpus(), spills=spills
    )
    args = arguments(launch, lambda name: np.uint64(memory.address(name)))
    run.launch(launch, kernel, ptx.load(kernel.ptx).kernel(kernel.entry), args, memory)
    return run


@dataclass
class _SpillingRun(CacheRun):
    spills: Spills = field(kw_only=True)
    #: slot -> the CTA that runs there, and its turns so far.
    _turns: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)

    def beside(self, waves: Any) -> None:
        """The stores of the CTAs that have finished a tile or their work."""
        number = waves.names.index(LOCAL)
        first_line = waves.memory.device_addresses()[LOCAL] // LINE_BYTES
        tile_lines = self.spills.per_tile // SECTORS_OF_A_LINE
        for slot, (_, cta, code) in enumerate(waves.slots.tolist()):
            if code == DONE and not len(waves.events(slot)):
                continue
            before = self._turns.get(slot, (-1, -1))
            turn = before[1] + 1 if before[0] == cta else 0
            self._turns[slot] = (cta, turn)
            start = first_line + slot * self.spills.lines
            # The first turn loads Q and K; then S = Q·Kᵀ and P·V take a turn each.
            lines = list(range(start, start + tile_lines)) if turn and turn % 2 == 0 else []
            if code == DONE:
                lines += range(start + tile_lines, start + self.spills.lines)
            if lines:
                events = np.array([event(line, 0b1111, Event.WRITE, number) for line in lines], np.int64)
                self._system.feed(events, slot % self.gpu.sm_count)
