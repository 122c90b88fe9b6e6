"""The emulator's counters, per instruction and per buffer, made into traffic per tensor and facts per source line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from fa_bench.profiling.lines import LineTable, Place
from fa_bench.profiling.origin import Origins
from fa_bench.profiling.result import SECTOR_BYTES, Cached, Line, Op, Traffic
from fa_bench.profiling.sass import access_bytes
from fa_bench.ptx import Kernel, LaunchCounters, MemoryCounters
from fa_bench.ptx.cfg import Flow
from fa_bench.ptx.counters import InstructionCounters
from fa_bench.ptx.program import Instruction

OPS: Final[tuple[Op, ...]] = ("read", "write", "atomic")
_WORD_BITS: Final = 32


def direction(instruction: Instruction) -> Op:
    """What an instruction that touches memory does there."""
    word = instruction.row.op.partition(".")[0]
    if word in ("atom", "red"):
        return "atomic"
    return "write" if word in ("st", "stmatrix") or ".store." in f"{instruction.row.op}." else "read"


def least_sectors(instruction: Instruction, counts: InstructionCounters) -> int:
    """Sectors of an instruction's requests if the bytes of their lanes lay side by side.

    Lanes that its own guard switches off are counted as active, and lanes that share bytes as if they did not; the
    result never exceeds what was really asked for.
    """
    packed = -(-counts.lanes * access_bytes(instruction) // SECTOR_BYTES)
    return min(counts.global_sectors, max(counts.global_requests, packed))


def behind(before: Mapping[str, MemoryCounters], after: Mapping[str, MemoryCounters]) -> tuple[Cached, ...]:
    """What the caches saw between two readings, by tensor and direction; what was not touched is left out."""
    found = []
    for name, now in after.items():
        c = now - before.get(name, MemoryCounters())
        if c.l1_read_sectors:
            found.append(
                Cached(
                    name, "read", c.l1_read_hits, c.l2_read_requests, c.l2_read_sectors, c.l2_read_hits,
                    c.dram_read_sectors,
                )
            )  # fmt: skip
        if c.l2_write_sectors or c.dram_write_sectors:
            found.append(
                Cached(name, "write", 0, c.l2_write_requests, c.l2_write_sectors, 0, c.dram_write_sectors)
            )  # fmt: skip
        if c.l2_atomic_sectors:
            found.append(
                Cached(
                    name, "atomic", 0, c.l2_atomic_requests, c.l2_atomic_sectors, c.l2_atomic_hits,
                    0 if c.l1_read_sectors else c.dram_read_sectors,
                )
            )  # fmt: skip
    return tuple(found)


def traffic(
    kernel: Kernel,
    counters: LaunchCounters,
    accesses: Mapping[int, Origins],
    tensors: Mapping[str, tuple[str, int]],
) -> tuple[Traffic, ...]:
    """Traffic of every tensor in every direction that it was touched in.

    Parameters
    ----------
    kernel : Kernel
    counters : LaunchCounters
        With ``by_instruction``.
    accesses : mapping of int to frozenset of str
        From :func:`fa_bench.profiling.origin.origins`.
    tensors : mapping of str to (str, int)
        Type and size in bytes of each tensor, in the order of the report.
    """
    least: dict[tuple[str, Op], int] = {}
    found: dict[tuple[str, Op], int] = {}
    for index, names in accesses.items():
        counts = counters.by_instruction[index]
        if counts.global_sectors and len(names) == 1:
            key = (next(iter(names)), direction(kernel.instructions[index]))
            least[key] = least.get(key, 0) + least_sectors(kernel.instructions[index], counts)
            found[key] = found.get(key, 0) + counts.global_sectors
    rows: list[Traffic] = []
    for name, (kind, nbytes) in tensors.items():
        counted = asdict(counters.tensors[name])
        before = len(rows)
        for op in OPS:
            requests, sectors = counted.get(f"{op}_requests", 0), counted.get(f"{op}_sectors", 0)
            if requests:
                known = least[name, op] if found.get((name, op)) == sectors else None
                rows.append(Traffic(name, kind, nbytes, op, requests, sectors, known))
        if len(rows) == before:
            rows.append(Traffic(name, kind, nbytes, "read", 0, 0, 0))
    return tuple(rows)


@dataclass
class _Sum:
    """One source line while its instructions are added up."""

    numbers: dict[str, int] = field(default_factory=dict)
    live_registers: int = 0
    tensors: set[str] = field(default_factory=set)

    def add(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self.numbers[name] = self.numbers.get(name, 0) + number


def source_lines(
    kernel: Kernel, counters: LaunchCounters, accesses: Mapping[int, Origins], table: LineTable, one_dimensional: bool
) -> tuple[Line, ...]:
    """Every source line of which something was executed, by file and number; PTX without a line comes last."""
    live = live_registers(kernel, one_dimensional)
    sums: dict[Place | None, _Sum] = {}
    for index, (instruction, counts) in enumerate(zip(kernel.instructions, counters.by_instruction, strict=True)):
        if not counts.executions:
            continue
        line = sums.setdefault(table.place(instruction.line), _Sum())
        line.add(
            instructions=counts.executions,
            lanes=counts.lanes,
            shared_requests=counts.shared_requests,
            wavefronts=counts.shared_wavefronts,
            conflicts=counts.shared_conflicts,
        )
        line.live_registers = max(line.live_registers, live[index])
        if counts.global_requests:
            line.add(requests=counts.global_requests, least_sectors=least_sectors(instruction, counts))
            line.add(**{f"{direction(instruction)}_sectors": counts.global_sectors})
            line.tensors |= accesses.get(index, frozenset())
    known = {place: total for place, total in sums.items() if place is not None}
    lines = [_line(place, table.text(place), known[place]) for place in sorted(known)]
    if None in sums:
        lines.append(_line(Place("", 0), "", sums[None]))
    return tuple(lines)


def _line(place: Place, text: str, total: _Sum) -> Line:
    return Line(
        place.file,
        place.line,
        text,
        live_registers=total.live_registers,
        tensors=tuple(sorted(total.tensors)),
        **{"instructions": 0, "lanes": 0, **total.numbers},
    )


def live_registers(kernel: Kernel, one_dimensional: bool) -> list[int]:
    """32-bit registers that hold a value while each instruction executes, in the PTX; predicates are not counted."""
    words = {name: -(-bits // _WORD_BITS) if bits > 1 else 0 for name, bits in kernel.registers.items()}

    def size(names: set[str]) -> int:
        return sum(words.get(name, 0) for name in names)

    found = [0] * len(kernel.instructions)
    for block in Flow(kernel, one_dimensional).blocks:
        live = set(block.live_out)
        for index in range(block.stop - 1, block.start - 1, -1):
            instruction = kernel.instructions[index]
            written = {register.name for register in instruction.written()}
            behind = size(live | written)
            if instruction.guard is None:
                live -= written
            live |= {register.name for register in instruction.read()}
            found[index] = max(behind, size(live))
    return found
