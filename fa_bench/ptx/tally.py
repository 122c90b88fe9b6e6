"""From the arrays that generated code counts in to the counters of a launch."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.ptx.counters import InstructionCounters, LaunchCounters, SharedCounters, TensorCounters
from fa_bench.ptx.jit import CompiledKernel
from fa_bench.ptx.layout import Buffers
from fa_bench.ptx.worker import Tally

#: The fields of TensorCounters in the order of a buffer's counters; one place is not used.
_COUNTS: Final = {
    "read_requests": Buffers.READ,
    "read_sectors": Buffers.READ + 2,
    "write_requests": Buffers.WRITE,
    "write_sectors": Buffers.WRITE + 2,
    "atomic_requests": Buffers.ATOMIC,
    "atomic_sectors": Buffers.ATOMIC + 2,
}


def counters_of(compiled: CompiledKernel, tallies: list[Tally], ctas: int, per_instruction: bool) -> LaunchCounters:
    """Sum of what ``tallies`` counted while workers ran ``ctas`` CTAs."""
    plan = compiled.plan
    blocks = _total([t.block_counts for t in tallies])
    tensors = {
        name: TensorCounters(**{field: int(counts[index]) for field, index in _COUNTS.items()})
        for name, counts in zip(tallies[0].names, _total([t.tensor_counts() for t in tallies]), strict=True)
    }
    shared = _total([t.shared_counts() for t in tallies])
    requests, wavefronts, ideal = (int(v) for v in shared.sum(axis=0))
    instructions: dict[str, int] = {}
    for (start, end), count in zip(plan.blocks, blocks[:, 0].tolist(), strict=True):
        if count:
            for instruction in compiled.kernel.instructions[start:end]:
                instructions[instruction.row.klass] = instructions.get(instruction.row.klass, 0) + count
    return LaunchCounters(
        tensors,
        SharedCounters(requests, wavefronts, wavefronts - ideal),
        instructions,
        sum(instructions.values()),
        ctas,
        _by_instruction(compiled, blocks, _total([t.global_counts() for t in tallies]), shared)
        if per_instruction
        else (),
    )


def _total(parts: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    total: NDArray[np.uint64] = np.sum(parts, axis=0, dtype=np.uint64)
    return total


def _by_instruction(
    compiled: CompiledKernel,
    blocks: NDArray[np.uint64],
    global_sites: NDArray[np.uint64],
    shared_sites: NDArray[np.uint64],
) -> tuple[InstructionCounters, ...]:
    plan = compiled.plan
    table = np.zeros((len(compiled.kernel.instructions), 7), np.int64)
    for (start, end), counts in zip(plan.blocks, blocks, strict=True):
        table[start:end, :2] = counts
    for index, counts in zip(plan.global_sites, global_sites, strict=True):
        table[index, 2:4] += counts.astype(np.int64)
    for index, counts in zip(plan.shared_sites, shared_sites, strict=True):
        requests, wavefronts, ideal = counts.astype(np.int64)
        table[index, 4:] += (requests, wavefronts, wavefronts - ideal)
    return tuple(InstructionCounters(*row) for row in table.tolist())
