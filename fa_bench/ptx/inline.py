"""Device functions: every call is replaced by a copy of the function, with registers and labels of its own.

The engines never see a call. A parameter of a call (``.param`` in the caller, a formal parameter in the function) is
one slot: its pieces become registers where both sides agree on them, else it lies in local memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fa_bench.ptx.isa import TYPE_BITS, Form, PtxError, UnsupportedInstruction, match
from fa_bench.ptx.isa_row import CARRY
from fa_bench.ptx.program import Addr, Instruction, Label, Operand, Pair, Reg, Symbol, Vec

#: Instructions of a kernel with all its calls inlined. Real ones have some ten thousand.
MAX_INSTRUCTIONS: Final = 400_000


@dataclass(frozen=True, slots=True)
class Slot:
    """A ``.param`` or ``.local`` variable: its bytes and their alignment."""

    nbytes: int
    align: int


@dataclass(frozen=True, slots=True)
class Access:
    """``ld.param`` or ``st.param`` of a call's parameter: ``items`` of one type from ``offset`` on."""

    store: bool
    type: str
    slot: str
    offset: int
    items: tuple[Operand, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Call:
    """A call by name. Results and arguments are slots, registers or immediates."""

    function: str
    results: tuple[Operand, ...]
    arguments: tuple[Operand, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an instruction stands."""

    guard: Reg | None
    line: int
    text: str
    source: tuple[int, int] | None

    def make(self, opcode: str, *operands: Operand) -> Instruction:
        """An instruction in the place of this one."""
        return Instruction(_form(opcode), operands, self.guard, self.line, self.text, self.source)


@dataclass
class Body:
    """A parsed body. ``results`` and ``arguments`` name the formal parameters of a function in order."""

    name: str
    registers: dict[str, int]
    code: list[Instruction | Access | Call] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    slots: dict[str, Slot] = field(default_factory=dict)
    local: dict[str, Slot] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def _form(opcode: str) -> Form:
    form = match(opcode)
    assert form is not None, opcode
    return form


class Linker:
    """Puts the functions that a kernel calls into it.

    Parameters
    ----------
    functions : mapping of str to Body
        All functions of the module that have a body.

    Attributes
    ----------
    instructions, labels, registers, local, local_bytes, calls
        As in :class:`~fa_bench.ptx.program.Kernel`.
    """

    def __init__(self, functions: Mapping[str, Body]) -> None:
        self._functions = functions
        self._slots: dict[str, Slot] = {}
        self._pieces: dict[str, dict[tuple[int, int], str]] = {}
        self._in_memory: set[str] = set()
        self._code: list[Instruction | Access] = []
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.registers: dict[str, int] = {}
        self.local: dict[str, int] = {}
        self.local_bytes = 0
        self.calls = 0

    def link(self, kernel: Body) -> None:
        """Take the kernel's body and everything that it calls.

        Raises
        ------
        UnsupportedInstruction
            For a call of a function without a body, a recursive one, or one whose parameters do not fit.
        """
        self._expand(kernel, "", {}, (kernel.name,))
        for name, pieces in self._pieces.items():
            if name not in self._in_memory and _agree(pieces):
                for (_, nbytes), register in pieces.items():
                    self.registers[register] = max(16, 8 * nbytes)
            else:
                self._in_memory.add(name)
        for name in sorted(self._in_memory):
            self._reserve(name, self._slots[name])
        starts = []
        for item in self._code:
            starts.append(len(self.instructions))
            if isinstance(item, Instruction):
                self.instructions.append(item)
            else:
                self.instructions += self._moves(item)
        starts.append(len(self.instructions))
        self.labels = {name: starts[place] for name, place in self.labels.items()}
        if any(instruction.row.carry for instruction in self.instructions):
            self.registers[CARRY] = 1

    def _reserve(self, name: str, slot: Slot) -> None:
        start = -(-self.local_bytes // slot.align) * slot.align
        self.local[name] = start
        self.local_bytes = start + slot.nbytes

    def _expand(self, body: Body, suffix: str, formals: dict[str, Operand], stack: tuple[str, ...]) -> None:
        """Append a copy of ``body``; its names get ``suffix``, its formal parameters mean the caller's operands."""
        renamed: dict[str, Operand] = dict(formals)
        for name, slot in body.slots.items():
            if name not in renamed:
                renamed[name] = Symbol(name + suffix)
                self._slots[name + suffix] = slot
        for name, slot in body.local.items():
            # Two activations of a function never overlap: all its copies share one place.
            shared_name = name if len(stack) == 1 else f"{body.name}:{name}"
            renamed[name] = Symbol(shared_name)
            if shared_name not in self.local:
                self._reserve(shared_name, slot)
        for name, bits in body.registers.items():
            self.registers[name + suffix] = bits
        by_place: dict[int, list[str]] = {}
        for name, place in body.labels.items():
            by_place.setdefault(place, []).append(name + suffix)
        for place, item in enumerate(body.code):
            for name in by_place.get(place, ()):
                self.labels[name] = len(self._code)
            if len(self._code) > MAX_INSTRUCTIONS:
                raise PtxError(
                    f"Kernel {stack[0]} has more than {MAX_INSTRUCTIONS} instructions with all calls inlined."
                )
            match item:
                case Instruction():
                    self._code.append(self._instruction(item, suffix, renamed, len(stack) > 1))
                case Access():
                    self._access(item, suffix, renamed)
                case Call():
                    self._call(item, suffix, renamed, stack)
        for name in by_place.get(len(body.code), ()):
            self.labels[name] = len(self._code)

    def _instruction(
        self, instruction: Instruction, suffix: str, renamed: dict[str, Operand], inside: bool
    ) -> Instruction:
        if not suffix and not renamed:
            return instruction
        if inside and instruction.row.name == "ret":
            origin = _origin(instruction, suffix)
            return origin.make("bra", Label(f"return{suffix}"))
        operands = tuple(_renamed(o, suffix, renamed) for o in instruction.operands)
        for operand in operands:
            base = operand.base if isinstance(operand, Addr) else operand
            if isinstance(base, Symbol) and base.name in self._slots:
                # Somebody wants its address.
                self._in_memory.add(base.name)
        guard = instruction.guard
        if suffix and guard is not None:
            guard = Reg(guard.name + suffix, guard.negated)
        return replace(instruction, operands=operands, guard=guard)

    def _access(self, access: Access, suffix: str, renamed: dict[str, Operand]) -> None:
        slot = renamed[access.slot]
        items = tuple(_renamed(o, suffix, renamed) for o in access.items)
        origin = _origin(access.origin, suffix)
        if not isinstance(slot, Symbol):
            raise UnsupportedInstruction(access.origin.text, access.origin.line)
        nbytes = TYPE_BITS[access.type] // 8
        if access.offset < 0 or access.offset + nbytes * len(items) > self._slots[slot.name].nbytes:
            raise UnsupportedInstruction(access.origin.text, access.origin.line)
        pieces = self._pieces.setdefault(slot.name, {})
        for k in range(len(items)):
            offset = access.offset + k * nbytes
            pieces[offset, nbytes] = f"%{slot.name}+{offset}"
        self._code.append(Access(access.store, access.type, slot.name, access.offset, items, origin))

    def _call(self, call: Call, suffix: str, renamed: dict[str, Operand], stack: tuple[str, ...]) -> None:
        origin = _origin(call.origin, suffix)
        body = self._functions.get(call.function)
        if (
            body is None
            or call.function in stack
            or len(call.results) != len(body.results)
            or len(call.arguments) != len(body.arguments)
        ):
            raise UnsupportedInstruction(call.origin.text, call.origin.line)
        self.calls += 1
        inner = f"#{self.calls}"
        entry, end = f"enter{inner}", f"return{inner}"
        if origin.guard is None:
            self._code.append(origin.make("bra", Label(entry)))
        else:
            around = replace(origin, guard=Reg(origin.guard.name, not origin.guard.negated))
            self._code.append(around.make("bra", Label(end)))
        self.labels[entry] = len(self._code)
        # Parameters in registers are copied; slots are shared by both sides.
        plain = replace(origin, guard=None)
        formals: dict[str, Operand] = {}
        copies = []
        for formal, actual in zip((*body.arguments, *body.results), (*call.arguments, *call.results), strict=True):
            actual = _renamed(actual, suffix, renamed)
            if formal not in body.registers:
                if not isinstance(actual, Symbol) or actual.name not in self._slots:
                    raise UnsupportedInstruction(call.origin.text, call.origin.line)
                formals[formal] = actual
            elif formal in body.arguments:
                self._code.append(plain.make(_move(body.registers[formal]), Reg(formal + inner), actual))
            else:
                copies.append(plain.make(_move(body.registers[formal]), actual, Reg(formal + inner)))
        self._expand(body, inner, formals, (*stack, call.function))
        if copies and origin.guard is not None:
            raise UnsupportedInstruction(call.origin.text, call.origin.line)
        self.labels[end] = len(self._code)
        self._code += copies

    def _moves(self, access: Access) -> list[Instruction]:
        """An access to a slot as register moves, or as an access to local memory."""
        make = access.origin.make
        if access.slot in self._in_memory:
            place = Addr(Symbol(access.slot), access.offset)
            data = access.items[0] if len(access.items) == 1 else Vec(access.items)
            vector = f".v{len(access.items)}" if len(access.items) > 1 else ""
            if access.store:
                return [make(f"st.local{vector}.{access.type}", place, data)]
            return [make(f"ld.local{vector}.{access.type}", data, place)]
        nbytes = TYPE_BITS[access.type] // 8
        moves = []
        for k, item in enumerate(access.items):
            if item == Reg("_"):
                continue
            register = Reg(self._pieces[access.slot][access.offset + k * nbytes, nbytes])
            # An integer wider than the type is cut when it is stored, and filled by the type's sign when it is loaded.
            width = self.registers[item.name] if isinstance(item, Reg) else 8 * nbytes
            if width == 8 * nbytes:
                opcode = _move(self.registers[register.name])
            elif access.store:
                opcode = f"cvt.u{8 * nbytes}.u{width}"
            else:
                sign = "s" if access.type[0] == "s" else "u"
                opcode = f"cvt.{sign}{width}.{sign}{8 * nbytes}"
            moves.append(make(opcode, register, item) if access.store else make(opcode, item, register))
        return moves


def _move(bits: int) -> str:
    return "mov.pred" if bits == 1 else f"mov.b{bits}"


def _agree(pieces: Mapping[tuple[int, int], str]) -> bool:
    """Whether no two pieces overlap without being the same."""
    end = 0
    for offset, nbytes in sorted(pieces):
        if offset < end:
            return False
        end = offset + nbytes
    return True


def _origin(where: Instruction | Origin, suffix: str) -> Origin:
    guard = where.guard
    if guard is not None and suffix:
        guard = Reg(guard.name + suffix, guard.negated)
    return Origin(guard, where.line, where.text, where.source)


def _renamed(operand: Operand, suffix: str, renamed: Mapping[str, Operand]) -> Operand:
    match operand:
        case Reg(name, negated) if name != "_" and suffix:
            return Reg(name + suffix, negated)
        case Symbol(name):
            return renamed.get(name, operand)
        case Label(name) if suffix:
            return Label(name + suffix)
        case Vec(items):
            return Vec(tuple(_renamed(item, suffix, renamed) for item in items))
        case Pair(first, second):
            return Pair(_renamed(first, suffix, renamed), _renamed(second, suffix, renamed))
        case Addr(base, offset) if base is not None:
            return Addr(_renamed(base, suffix, renamed), offset)
    return operand
