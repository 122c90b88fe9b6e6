"""What a launch counts. Frozen and self-checking; made by the JIT and, independently, by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

#: Bytes of a sector, the unit in which a warp instruction asks the memory system for data.
SECTOR_BYTES: Final = 32


def _check(counters: TensorCounters | SharedCounters) -> None:
    for item in fields(counters):
        value = getattr(counters, item.name)
        if value < 0:
            raise ValueError(f"{type(counters).__name__}.{item.name} must not be negative, but it is {value}.")


@dataclass(frozen=True, slots=True)
class TensorCounters:
    """Global traffic of one buffer.

    Parameters
    ----------
    read_requests, write_requests : int
        Warp instructions that touch the buffer with at least one active lane. One whose lanes touch two buffers
        is a request of either.
    read_sectors, write_sectors : int
        Different 32-byte sectors per warp instruction, summed over the instructions. A partly written sector
        counts whole; a zero-size ``cp.async`` counts nothing.
    atomic_requests, atomic_sectors : int
        The same for atomic operations (``atom``, ``red``), which are neither reads nor writes here.

    Raises
    ------
    ValueError
        If a count is negative.
    """

    read_requests: int = 0
    write_requests: int = 0
    read_sectors: int = 0
    write_sectors: int = 0
    atomic_requests: int = 0
    atomic_sectors: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def read_bytes(self) -> int:
        """Global read traffic in bytes."""
        return self.read_sectors * SECTOR_BYTES

    @property
    def write_bytes(self) -> int:
        """Global write traffic in bytes."""
        return self.write_sectors * SECTOR_BYTES

    @property
    def atomic_bytes(self) -> int:
        """Global traffic of atomic operations in bytes."""
        return self.atomic_sectors * SECTOR_BYTES


@dataclass(frozen=True, slots=True)
class SharedCounters:
    """Shared-memory accesses.

    Parameters
    ----------
    requests : int
        Warp instructions that access shared memory with at least one active lane.
    wavefronts : int
        Passes through the 32 four-byte banks: per phase the largest number of different words in one bank. A phase is
        32 lanes of an access of up to 32 bits, 16 lanes of 64 bits, 8 lanes of 128 bits, or one matrix of ``ldmatrix``.
    conflicts : int
        Wavefronts beyond one for each phase that has an active lane.

    Raises
    ------
    ValueError
        If a count is negative.
    """

    requests: int = 0
    wavefronts: int = 0
    conflicts: int = 0

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class InstructionCounters:
    """What one instruction of the kernel did.

    Parameters
    ----------
    executions : int
        Warps that issued it.
    lanes : int
        Lanes that were active in them, its own guard left out: below 32 per execution there was divergence.
    global_requests, global_sectors : int
    shared_requests, shared_wavefronts, shared_conflicts : int
    """

    executions: int
    lanes: int
    global_requests: int = 0
    global_sectors: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    shared_conflicts: int = 0


@dataclass(frozen=True, slots=True)
class LaunchCounters:
    """Everything that one kernel launch counted.

    Parameters
    ----------
    tensors : dict of str to TensorCounters
        Global traffic of every registered buffer, by name; zero for those that were not touched.
    shared : SharedCounters
    instructions : dict of str to int
        Executed warp instructions by :data:`fa_bench.ptx.isa.InstructionClass`; classes that did not occur are
        missing. An instruction counts once per warp that issues it, whatever its guard says.
    warp_instructions : int
        Their sum.
    ctas : int
        Thread blocks that were run.
    by_instruction : sequence of InstructionCounters
        In the kernel's order, if they were asked for; else empty.

    Raises
    ------
    ValueError
        If a count is negative, or ``warp_instructions`` is not the sum of ``instructions``.
    """

    tensors: Mapping[str, TensorCounters] = field(default_factory=dict)
    shared: SharedCounters = field(default_factory=SharedCounters)
    instructions: Mapping[str, int] = field(default_factory=dict)
    warp_instructions: int = 0
    ctas: int = 0
    by_instruction: Sequence[InstructionCounters] = ()

    def __post_init__(self) -> None:
        if self.ctas < 0:
            raise ValueError(f"LaunchCounters.ctas must not be negative, but it is {self.ctas}.")
        total = sum(self.instructions.values())
        if total != self.warp_instructions:
            raise ValueError(
                f"LaunchCounters.warp_instructions is {self.warp_instructions}, but the classes sum to {total}."
            )
