"""What a profile says: plain frozen data, which the report draws, ``saved`` keeps and ``diff`` compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from numpy.typing import NDArray

from fa_bench.errors import UsageError, nearest

Op = Literal["read", "write", "atomic"]
SECTOR_BYTES: Final = 32
LANES: Final = 32


@dataclass(frozen=True, slots=True)
class Traffic:
    """Global traffic of one tensor in one direction.

    Parameters
    ----------
    tensor, type : str
        ``type`` as in ``f16[1024,64]``; empty for a variable of the module.
    nbytes : int
        Size of the tensor.
    op : {"read", "write", "atomic"}
    requests : int
        Warp instructions.
    sectors : int
        32-byte sectors that they ask for, before any cache.
    least_sectors : int, optional
        Sectors that the same lanes would ask for if their bytes lay side by side; None where an instruction may be to
        one of several tensors.
    """

    tensor: str
    type: str
    nbytes: int
    op: Op
    requests: int
    sectors: int
    least_sectors: int | None

    @property
    def bytes(self) -> int:
        """Global bytes."""
        return self.sectors * SECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Line:
    """What one line of source did.

    Parameters
    ----------
    file, line, text
        Where it is and what it says; ``line`` 0 and an empty file stand for PTX without a source line.
    instructions, lanes : int
        Executed warp instructions, and the lanes that were active in them.
    read_sectors, write_sectors, atomic_sectors, requests, least_sectors : int
        Global memory; see `Traffic`.
    shared_requests, wavefronts, conflicts : int
        Shared memory; a conflict is a wavefront beyond the least possible.
    live_registers : int
        The most 32-bit registers that hold a value while an instruction of the line executes, in the PTX.
    tensors : tuple of str
        Tensors that its global accesses can be to.
    """

    file: str
    line: int
    text: str
    instructions: int
    lanes: int
    read_sectors: int = 0
    write_sectors: int = 0
    atomic_sectors: int = 0
    requests: int = 0
    least_sectors: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    live_registers: int = 0
    tensors: tuple[str, ...] = ()

    @property
    def sectors(self) -> int:
        """Global sectors in all directions."""
        return self.read_sectors + self.write_sectors + self.atomic_sectors

    @property
    def bytes(self) -> int:
        """Global bytes in all directions."""
        return self.sectors * SECTOR_BYTES

    @property
    def place(self) -> str:
        """``file:line``, or a word for PTX that no source line stands for."""
        return f"{self.file}:{self.line}" if self.line else "(no source line)"


@dataclass(frozen=True, slots=True)
class StaticCount:
    """A group of instructions in the PTX and in the SASS: how many stand there, and for accesses bytes per lane."""

    group: str
    ptx: int
    sass: int
    ptx_bytes: int | None = None
    sass_bytes: int | None = None

    @property
    def differs(self) -> bool:
        """Whether the two texts differ here."""
        return (self.ptx, self.ptx_bytes) != (self.sass, self.sass_bytes)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a CTA of the kernel takes.

    ``registers`` per thread and ``spill_bytes`` per thread (stores plus loads) are None where no compiler could say;
    the other two are bytes per CTA.
    """

    registers: int | None
    spill_bytes: int | None
    static_smem_bytes: int
    dynamic_smem_bytes: int

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a CTA."""
        return self.static_smem_bytes + self.dynamic_smem_bytes


@dataclass(frozen=True, slots=True)
class Fit:
    """How many CTAs an SM of the GPU holds at a time, and what binds; see :mod:`fa_bench.model.occupancy`."""

    gpu: str
    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cached:
    """What became of one tensor's traffic in one direction behind the SMs, in 32-byte sectors.

    ``l1_hit_sectors`` and ``l2_hit_sectors`` are reads that a cache answered; an L2 request is for sectors of one line;
    ``dram_sectors`` were read from DRAM, or written to it, while the kernel ran; where a tensor is both read and the
    target of atomic operations, all that DRAM gave is with the reads.
    """

    tensor: str
    op: Op
    l1_hit_sectors: int
    l2_requests: int
    l2_sectors: int
    l2_hit_sectors: int
    dram_sectors: int


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One launch of one kernel.

    Parameters
    ----------
    kernel, entry : str
        Its C++ name and its name in the PTX.
    grid, block : tuple of int
        Extents in x, y, z.
    arguments : mapping of str to str
        Parameter -> specification of what was passed, in order.
    compiler : str
        What made registers and SASS, with its version; empty if nothing did.
    resources, occupancy
    traffic : tuple of Traffic
    instructions : mapping of str to int
        Executed warp instructions by class.
    lanes : int
        Lanes that were active in them.
    shared_requests, wavefronts, conflicts : int
        Shared memory.
    lines : tuple of Line
        Every source line that was executed, by file and number.
    sass : tuple of StaticCount
        Empty if there is no disassembly.
    unwritten : mapping of str to int
        ``out:`` tensor -> elements that still hold the poison; only those that have some.
    caches : tuple of Cached
        Empty if nobody asked for the caches.
    l2_dirty_bytes : int, optional
        What was written and is still in L2 when the kernel ends; None if nobody asked.
    notes : tuple of str
        What could not be found out, and why.
    outputs : mapping of str to ndarray
        Contents of every tensor that the kernel wrote; bfloat16 as bit patterns.
    """

    kernel: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: Mapping[str, str]
    compiler: str
    resources: Resources
    occupancy: Fit
    traffic: tuple[Traffic, ...]
    instructions: Mapping[str, int]
    lanes: int
    shared_requests: int
    wavefronts: int
    conflicts: int
    lines: tuple[Line, ...]
    sass: tuple[StaticCount, ...] = ()
    unwritten: Mapping[str, int] = field(default_factory=dict)
    caches: tuple[Cached, ...] = ()
    l2_dirty_bytes: int | None = None
    notes: tuple[str, ...] = ()
    outputs: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def warp_instructions(self) -> int:
        """Executed warp instructions."""
        return sum(self.instructions.values())

    @property
    def lane_share(self) -> float:
        """Active lanes of an executed instruction on average, as a share of 32: below 1 there was divergence."""
        return self.lanes / (LANES * self.warp_instructions) if self.warp_instructions else 1.0

    @property
    def global_bytes(self) -> int:
        """Global bytes of all tensors in all directions."""
        return sum(moved.bytes for moved in self.traffic)

    def bytes(self, tensor: str, op: Op = "read") -> int:
        """Global bytes of one tensor in one direction.

        Raises
        ------
        UsageError
            If the kernel has no such tensor.
        """
        known = {moved.tensor for moved in self.traffic}
        if tensor not in known:
            raise UsageError(f"The kernel has no tensor {tensor!r}.", nearest(tensor, sorted(known)))
        return sum(moved.bytes for moved in self.traffic if (moved.tensor, moved.op) == (tensor, op))

    def hottest(self, count: int = 10) -> Sequence[Line]:
        """The lines with the largest share of the instructions, of the global sectors or of the conflicts."""
        totals = (
            max(self.warp_instructions, 1),
            max(sum(line.sectors for line in self.lines), 1),
            max(self.conflicts, 1),
        )

        def weight(line: Line) -> float:
            return max(
                part / total
                for part, total in zip((line.instructions, line.sectors, line.conflicts), totals, strict=True)
            )

        return sorted(self.lines, key=lambda line: (-weight(line), line.file, line.line))[:count]


@dataclass(frozen=True, slots=True)
class Profile:
    """The launches of one source, in order.

    Parameters
    ----------
    source : str
        Name of the file.
    version : str
        Version of fa-bench.
    gpu : str
        Slug of the target.
    seed : int
        Of the arguments' contents.
    launches : tuple of KernelProfile
    """

    source: str
    version: str
    gpu: str
    seed: int
    launches: tuple[KernelProfile, ...]
