"""Parsed PTX: operands, instructions and kernels. Plain frozen data; no behaviour."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fa_bench.ptx.isa import TYPE_BITS, Form, Row
from fa_bench.ptx.isa_row import CARRY
from fa_bench.ptx.memory import Bytes
from fa_bench.ptx.variables import Storage


@dataclass(frozen=True, slots=True)
class Reg:
    """A virtual register; ``negated`` for ``!%p`` operands."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Imm:
    """An immediate. ``value`` is an int, or a float for ``0f``/``0d`` and decimal literals.

    ``bits`` is the IEEE pattern for float literals (None for integers).
    """

    value: int | float
    bits: int | None = None

    @property
    def is_zero(self) -> bool:
        """Whether all its bits are zero: -0.0 is none."""
        return self.value == 0 and not self.bits and math.copysign(1.0, self.value) > 0


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable in its memory space: shared, local, constant or global memory, or parameters."""

    name: str


@dataclass(frozen=True, slots=True)
class Vec:
    """``{a, b, ...}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Addr:
    """``[base + offset]``; the base is a register, a symbol or a parameter name."""

    base: Operand | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target."""

    name: str


Operand = Reg | Imm | Special | Symbol | Vec | Pair | Addr | Label


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its guard and its place in the text."""

    form: Form
    operands: tuple[Operand, ...]
    guard: Reg | None
    line: int
    text: str
    #: (file index, line) of the last ``.loc`` before it, if the PTX carries line information.
    source: tuple[int, int] | None = None

    @property
    def row(self) -> Row:
        """The ISA row."""
        return self.form.row

    @property
    def type(self) -> str:
        """The last type of the opcode ("" for untyped instructions)."""
        return self.form.types[-1] if self.form.types else ""

    @property
    def bits(self) -> int:
        """Width of :attr:`type` in bits."""
        return TYPE_BITS[self.type]

    def has(self, modifier: str) -> bool:
        """Whether ``modifier`` stands in the opcode."""
        return modifier in self.form.modifiers

    def written(self) -> tuple[Reg, ...]:
        """Registers that the instruction writes."""
        flag = (Reg(CARRY),) if self.row.carry.endswith("out") else ()
        if not self.row.writes or not self.operands:
            return flag
        return tuple(r for r in registers(self.operands[0]) if r.name != "_") + flag

    def read(self) -> tuple[Reg, ...]:
        """Registers that the instruction reads, its guard included."""
        skip = 1 if self.row.writes else 0
        found = [r for operand in self.operands[skip:] for r in registers(operand)]
        if self.guard is not None:
            found.append(self.guard)
        if self.row.carry.startswith("in"):
            found.append(Reg(CARRY))
        return tuple(found)


def registers(operand: Operand) -> tuple[Reg, ...]:
    """Registers named in ``operand``, in order."""
    match operand:
        case Reg():
            return (operand,)
        case Vec(items):
            return tuple(r for item in items for r in registers(item))
        case Pair(first, second):
            return registers(first) + registers(second)
        case Addr(base) if base is not None:
            return registers(base)
    return ()


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter at ``offset`` bytes of the parameter space."""

    name: str
    size: int
    offset: int


@dataclass(frozen=True)
class Kernel:
    """One ``.entry``.

    ``registers`` maps each register to its width in bits (1 for predicates); ``shared`` maps each shared-memory
    variable to its byte offset (dynamic shared memory starts at ``static_smem_bytes``), ``local`` each variable in the
    ``local_bytes`` of a thread. Calls of device functions are inlined; ``inlined`` counts them. ``storage`` holds the
    variables of the module.
    """

    name: str
    params: tuple[Param, ...]
    registers: dict[str, int]
    shared: dict[str, int]
    static_smem_bytes: int
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    max_threads: int | None = None
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    inlined: int = 0
    storage: Storage = field(default_factory=Storage, compare=False, repr=False)

    @property
    def param_bytes(self) -> int:
        """Size of the parameter space in bytes."""
        return max((p.offset + p.size for p in self.params), default=0)


@dataclass(frozen=True)
class Module:
    """A parsed PTX file. ``text`` is kept as the identity for the code cache.

    Its variables (``.global``, ``.const``) are made once: what a launch writes to them the next one finds.
    """

    text: str
    target: str
    kernels: dict[str, Kernel] = field(default_factory=dict)
    storage: Storage = field(default_factory=Storage, compare=False, repr=False)

    def kernel(self, name: str) -> Kernel:
        """The kernel called ``name``.

        Raises
        ------
        KeyError
            If the file has no such entry.
        """
        return self.kernels[name]

    def variable(self, name: str) -> Bytes:
        """The bytes of a module-level variable, not a copy: to be read and written between launches.

        Raises
        ------
        KeyError
            If the file has no such ``.global`` or ``.const`` variable.
        """
        return self.storage.array(name)
