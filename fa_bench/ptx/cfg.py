"""Control flow of a kernel: basic blocks, liveness, and what is the same in all lanes of a warp.

Scheduling rule of the emulator: among the live lanes of a warp those with the smallest block index run
(min-PC). :class:`Flow` states, before anything runs, which blocks are always entered by all live lanes together
("converged") and which registers then hold one value per warp ("uniform").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from fa_bench.ptx.isa_row import CARRY
from fa_bench.ptx.program import Addr, Imm, Instruction, Kernel, Label, Operand, Reg, Special, Vec

#: Rows that hold lanes back until others come.
BARRIERS: Final = frozenset(f"{word}.{what}" for word in ("bar", "barrier") for what in ("sync", "red", "red.popc"))
#: Rows after which a new block starts.
ENDS: Final = frozenset({"bra", "brx.idx", "ret", "exit", "trap"}) | BARRIERS


class Kind(Enum):
    """What is known of a register's value over the lanes of a warp.

    ``TID`` marks an exact copy of ``%tid.x`` in a one-dimensional block: lane ``l`` of warp ``w`` holds
    ``32 w + l``, so shifting it right by five or more, or clearing its low five bits, gives one value per warp.
    """

    ZERO = 0
    UNIFORM = 1
    TID = 2
    VARYING = 3


def _join(a: Kind | None, b: Kind) -> Kind:
    if a is None or a is b:
        return b
    if {a, b} == {Kind.ZERO, Kind.UNIFORM}:
        return Kind.UNIFORM
    return Kind.VARYING


@dataclass
class Block:
    """A basic block: instructions ``start:stop`` and the indices of its successors."""

    index: int
    start: int
    stop: int
    successors: tuple[int, ...] = ()
    live_in: frozenset[str] = frozenset()
    live_out: frozenset[str] = frozenset()


class Flow:
    """Blocks, liveness and uniformity of one kernel.

    Parameters
    ----------
    kernel : Kernel
    one_dimensional : bool
        Whether the block has extent 1 in y and z.
    """

    def __init__(self, kernel: Kernel, one_dimensional: bool) -> None:
        self.kernel = kernel
        self.one_dimensional = one_dimensional
        self.blocks = _blocks(kernel)
        self.of_instruction = {b.start: b.index for b in self.blocks}
        self._liveness()
        #: Registers that live in more than one block; all others exist only inside theirs.
        self.crossing: frozenset[str] = frozenset().union(*(b.live_in for b in self.blocks))
        self.kinds: dict[str, Kind] = {}
        self.diverged: frozenset[int] = frozenset()
        self._postdominators()
        self._uniformity()

    def target(self, label: Operand) -> int:
        """Block index that ``label`` stands before."""
        assert isinstance(label, Label)
        return self.of_instruction[self.kernel.labels[label.name]]

    def only_ends(self, index: int) -> bool:
        """Whether block ``index`` does nothing but end its lanes: a branch to it is a guarded exit."""
        block = self.blocks[index]
        if block.start == block.stop:
            return not block.successors
        first = self.kernel.instructions[block.start]
        return first.row.op in ("ret", "exit") and first.guard is None

    def instructions(self, block: Block) -> tuple[Instruction, ...]:
        """The block's instructions."""
        return self.kernel.instructions[block.start : block.stop]

    def varies(self, instruction: Instruction) -> bool:
        """Whether the result differs between lanes although all sources are the same.

        A generic load is one of these only where there is local memory, of which each lane has its own.
        """
        return instruction.row.lane_varying and (instruction.row.name != "ld" or self.kernel.local_bytes > 0)

    def kind(self, name: str) -> Kind:
        """Kind of register ``name``; one that is never written holds zero in every lane."""
        return self.kinds.get(name, Kind.UNIFORM)

    def _liveness(self) -> None:
        use: list[set[str]] = []
        define: list[set[str]] = []
        for block in self.blocks:
            used: set[str] = set()
            defined: set[str] = set()
            for instruction in self.instructions(block):
                reads = {r.name for r in instruction.read()}
                if instruction.guard is not None:
                    reads |= {r.name for r in instruction.written()}
                used |= reads - defined
                defined |= {r.name for r in instruction.written()}
            use.append(used)
            define.append(defined)
        live_in: list[set[str]] = [set() for _ in self.blocks]
        live_out: list[set[str]] = [set() for _ in self.blocks]
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                k = block.index
                out: set[str] = set().union(*(live_in[s] for s in block.successors))
                new = use[k] | (out - define[k])
                if out != live_out[k] or new != live_in[k]:
                    live_out[k], live_in[k], changed = out, new, True
        for block in self.blocks:
            block.live_in, block.live_out = frozenset(live_in[block.index]), frozenset(live_out[block.index])

    def _postdominators(self) -> None:
        """Immediate postdominator of each block, as bit sets; ``len(blocks)`` stands for the kernel's end."""
        end = len(self.blocks)
        everything = (1 << (end + 1)) - 1
        sets = [everything] * end + [1 << end]
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                new = everything
                for successor in block.successors or (end,):
                    new &= sets[successor]
                new |= 1 << block.index
                if new != sets[block.index]:
                    sets[block.index], changed = new, True
        self.postdominator: list[int] = []
        for block in self.blocks:
            strict = sets[block.index] & ~(1 << block.index)
            nearest = end
            for candidate in _bits(strict):
                # The nearest strict postdominator is postdominated by all the others.
                if sets[candidate] & strict == strict:
                    nearest = candidate
                    break
            self.postdominator.append(nearest)

    def _reach(self, starts: Iterable[int], stop: int) -> set[int]:
        seen: set[int] = set()
        pending = [s for s in starts if s != stop]
        while pending:
            block = pending.pop()
            if block in seen:
                continue
            seen.add(block)
            pending.extend(s for s in self.blocks[block].successors if s != stop)
        return seen

    def _uniformity(self) -> None:
        """Fixpoint over register kinds and diverged blocks; both only ever move towards "varying"."""
        kinds: dict[str, Kind] = {}
        diverged: set[int] = set()
        ends = ((b.index, self.kernel.instructions[b.stop - 1].row.name) for b in self.blocks if b.stop > b.start)
        self._barriers = {k for k, name in ends if name in BARRIERS}
        changed = True
        while changed:
            changed = False
            for block in self.blocks:
                for instruction in self.instructions(block):
                    if not instruction.written():
                        continue
                    kind = result_kind(instruction, kinds, self.one_dimensional, self.varies(instruction))
                    for register in instruction.written():
                        new = kind
                        if block.index in diverged and register.name in self.crossing:
                            new = Kind.VARYING
                        joined = _join(kinds.get(register.name), new)
                        if joined is not kinds.get(register.name):
                            kinds[register.name], changed = joined, True
                last = self.kernel.instructions[block.stop - 1]
                if last.row.name in ("bra", "brx.idx", "ret", "exit"):
                    deciding = {kinds.get(register.name) for register in last.read()}
                    if deciding & {Kind.VARYING, Kind.TID} and not self._region(block) <= diverged:
                        diverged |= self._region(block)
                        changed = True
        self.kinds, self.diverged = kinds, frozenset(diverged)

    def may_lock(self, index: int) -> bool:
        """Whether block ``index`` may take a lock."""
        return any(i.row.name in ("atom.cas", "atom.exch") for i in self.instructions(self.blocks[index]))

    def _region(self, block: Block) -> set[int]:
        """Blocks that a lane-dependent branch at the end of ``block`` may enter with part of the lanes.

        Under min-PC, lanes that left the branch meet again at its immediate postdominator if every block between
        has a smaller index and none holds lanes back at a barrier. Where one side only leads to the kernel's end
        and runs first, the other side runs with all lanes that are then still alive. Otherwise everything
        reachable counts as diverged; so it does behind a loop in which lanes may wait for others of their warp to
        give up a lock: those must be able to go on alone.
        """
        end = len(self.blocks)
        meet = self.postdominator[block.index]
        successors = block.successors
        two_ways = self.kernel.instructions[block.stop - 1].row.name != "brx.idx"
        if len(successors) < 2 or (two_ways and any(self.only_ends(s) for s in successors)):
            # A guarded exit: the lanes that leave are dead at once, the others go on together.
            return set()
        if meet != end:
            region = self._reach(successors, meet)
            waits = block.index in region and any(self.may_lock(b) for b in region)
            if all(b < meet for b in region) and not self._barriers & region and not waits:
                return region
        sides = [self._reach([s], end) for s in sorted(successors)]
        first, second = sides[0], set().union(*sides[1:])
        if len(sides) == 2 and not first & second and max(first) < min(second) and not self._barriers & first:
            return first
        return first | second


def result_kind(instruction: Instruction, kinds: dict[str, Kind], one_dimensional: bool, varies: bool) -> Kind:
    """Kind of the value that ``instruction`` produces, given its sources' kinds; ``varies`` is :meth:`Flow.varies`."""
    sources = [_operand_kind(o, kinds, one_dimensional) for o in instruction.operands[1:]]
    if instruction.row.carry.startswith("in"):
        sources.append(kinds.get(CARRY, Kind.UNIFORM))
    op = instruction.row.op
    if varies:
        return Kind.VARYING
    if instruction.guard is not None:
        guard = kinds.get(instruction.guard.name)
        if guard in (Kind.VARYING, Kind.TID) or Kind.TID in sources:
            return Kind.VARYING
    if op == "mov" and len(sources) == 1:
        return sources[0]
    if len(sources) == 2 and Kind.TID in sources:
        return _tid_kind(instruction, sources)
    if len(sources) == 2 and op == "shr" and sources[0] is Kind.ZERO:
        return Kind.ZERO
    if all(s in (Kind.ZERO, Kind.UNIFORM) for s in sources):
        return Kind.UNIFORM
    return Kind.VARYING


def _tid_kind(instruction: Instruction, sources: list[Kind]) -> Kind:
    op, other = instruction.row.op, instruction.operands[2]
    if instruction.row.name == "add.int" and Kind.ZERO in sources:
        return Kind.TID
    if sources[0] is Kind.TID and isinstance(other, Imm) and isinstance(other.value, int):
        if op == "shr" and instruction.type == "s32" and other.value == 31:
            return Kind.ZERO
        if op == "shr" and other.value >= 5:
            return Kind.UNIFORM
        if op == "and" and other.value & 31 == 0:
            return Kind.UNIFORM
    return Kind.VARYING


def _operand_kind(operand: object, kinds: dict[str, Kind], one_dimensional: bool) -> Kind:
    match operand:
        case Reg(name):
            # An unset kind means "not reached yet" in the fixpoint: optimistic.
            return kinds.get(name, Kind.UNIFORM)
        case Imm():
            return Kind.ZERO if operand.is_zero else Kind.UNIFORM
        case Special(name):
            return special_kind(name, one_dimensional)
        case Addr(base) if base is not None:
            return _uniform_or_varying(_operand_kind(base, kinds, one_dimensional))
    items = getattr(operand, "items", None)
    if items is not None:
        if all(_operand_kind(i, kinds, one_dimensional) in (Kind.ZERO, Kind.UNIFORM) for i in items):
            return Kind.UNIFORM
        return Kind.VARYING
    return Kind.UNIFORM


def _uniform_or_varying(kind: Kind) -> Kind:
    return Kind.UNIFORM if kind in (Kind.ZERO, Kind.UNIFORM) else Kind.VARYING


def special_kind(name: str, one_dimensional: bool) -> Kind:
    """Kind of a special register."""
    if name == "%tid.x":
        return Kind.TID if one_dimensional else Kind.VARYING
    if name in ("%tid.y", "%tid.z"):
        return Kind.ZERO if one_dimensional else Kind.VARYING
    if name == "%laneid" or name.startswith("%lanemask"):
        return Kind.VARYING
    return Kind.UNIFORM


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _blocks(kernel: Kernel) -> list[Block]:
    instructions = kernel.instructions
    starts = {0, *kernel.labels.values()}
    starts |= {i + 1 for i, instruction in enumerate(instructions) if instruction.row.name in ENDS}
    ordered = sorted(starts)
    # A label or barrier at the very end stands before an empty block, where the kernel returns.
    if ordered[-1] < len(instructions):
        ordered.append(len(instructions))
    blocks = [Block(k, a, b) for k, (a, b) in enumerate(pairwise(ordered))]
    index = {b.start: b.index for b in blocks}
    index.setdefault(len(instructions), len(blocks))
    blocks.append(Block(len(blocks), len(instructions), len(instructions)))
    for block in blocks[:-1]:
        last = instructions[block.stop - 1]
        following = index[block.stop]
        if last.row.op == "bra":
            label = last.operands[0]
            assert isinstance(label, Label)
            target = index[kernel.labels[label.name]]
            block.successors = (target,) if last.guard is None else tuple(dict.fromkeys((target, following)))
        elif last.row.name == "brx.idx":
            table = last.operands[1]
            assert isinstance(table, Vec)
            targets = [index[kernel.labels[label.name]] for label in table.items if isinstance(label, Label)]
            block.successors = tuple(dict.fromkeys([*targets, *([] if last.guard is None else [following])]))
        elif last.row.op in ("ret", "exit"):
            block.successors = () if last.guard is None else (following,)
        else:
            block.successors = (following,)
    return blocks
