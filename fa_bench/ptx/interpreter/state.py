"""State of a warp and the view of it that one instruction's semantics gets.

Registers are unsigned bit patterns, one per lane; predicates are bool. A semantic reads operands as patterns, signed
integers or floats, and writes lanes whose guard holds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.errors import KernelFault
from fa_bench.ptx.isa import TYPE_BITS
from fa_bench.ptx.program import Addr, Imm, Instruction, Kernel, Operand, Reg, Special, Symbol

if TYPE_CHECKING:
    from fa_bench.ptx.interpreter.spaces import Spaces

#: One value per lane.
Lanes = NDArray[Any]

LANES: Final = 32
UINT: Final[dict[int, Any]] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
INT: Final[dict[int, Any]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

Dim = tuple[int, int, int]


@dataclass(slots=True)
class Barrier:
    """Where a warp waits: barrier number and the instruction."""

    number: int
    instruction: Instruction


@dataclass(slots=True)
class Copy:
    """A ``cp.async`` of one lane whose data has not arrived; ``group`` is None until it is committed.

    ``signal`` stands for a ``cp.async.mbarrier.arrive`` instead: it is done when the lane's earlier copies are.
    """

    lane: int
    address: int
    data: bytes
    group: int | None = None
    signal: Callable[[], None] | None = None


@dataclass
class Warp:
    """One warp: registers, a program counter per lane, pending copies."""

    kernel: Kernel
    index: int
    cta: Dim
    specials: dict[str, Lanes]
    live: Lanes
    spaces: Spaces
    registers: dict[str, Lanes] = field(init=False)
    pc: Lanes = field(init=False)
    barrier: Barrier | None = None
    copies: list[Copy] = field(default_factory=list)
    #: Whether this turn executed what may take a lock, and in how many turns before it that was so.
    locks: bool = False
    locking: int = 0
    groups: Lanes = field(init=False)
    local: Lanes = field(init=False)

    def __post_init__(self) -> None:
        self.registers = {name: np.zeros(LANES, UINT[width]) for name, width in self.kernel.registers.items()}
        self.pc = np.zeros(LANES, np.int64)
        #: Number of ``cp.async`` groups that each lane has committed.
        self.groups = np.zeros(LANES, np.int64)
        #: Local memory of each lane.
        self.local = np.full((LANES, self.kernel.local_bytes), 0xFF, np.uint8)

    def arrive(self, arrives: Callable[[Copy], bool]) -> None:
        """Let the data of those pending copies reach shared memory, in the order of their issue."""
        pending: list[Copy] = []
        for copy in self.copies:
            behind = any(earlier.lane == copy.lane for earlier in pending)
            if copy.signal is not None and not behind:
                copy.signal()
            elif copy.signal is None and arrives(copy):
                self.spaces.shared[copy.address : copy.address + len(copy.data)] = np.frombuffer(copy.data, np.uint8)
            else:
                pending.append(copy)
        self.copies = pending

    def settle(self) -> None:
        """Let all copies that a signal follows in its lane arrive."""
        last = {copy.lane: position for position, copy in enumerate(self.copies) if copy.signal is not None}
        places = {id(copy): position for position, copy in enumerate(self.copies)}
        self.arrive(lambda copy: places[id(copy)] < last.get(copy.lane, -1))

    def exit(self, on: Lanes) -> None:
        """End the lanes of ``on``; copies that they still have pending arrive."""
        self.live &= ~on
        self.arrive(lambda copy: bool(on[copy.lane]))


@dataclass(slots=True)
class Step:
    """One instruction while a warp executes it: ``here`` are the lanes at it, ``on`` those whose guard holds."""

    warp: Warp
    instruction: Instruction
    here: Lanes
    on: Lanes

    def value(self, operand: Operand, type_: str) -> Lanes:
        """Bit patterns of ``operand`` in the width of ``type_`` (bool for ``pred``); wider registers are cut."""
        dtype = UINT[TYPE_BITS[type_]]
        match operand:
            case Reg(name, negated):
                lanes = self.warp.registers[name].astype(dtype)
                return ~lanes if negated else lanes
            case Imm():
                return np.full(LANES, pattern(operand, type_), dtype)
            case Special(name):
                return self.warp.specials[name].astype(dtype)
            case Symbol(name):
                return np.full(LANES, self._symbol(name), dtype)
        raise self.fault(f"the operand {operand} cannot be read as {type_}")

    def _symbol(self, name: str) -> int:
        """Address of a variable in its own space."""
        kernel = self.warp.kernel
        for places in (kernel.shared, kernel.local, {p.name: p.offset for p in kernel.params}):
            if name in places:
                return places[name]
        return kernel.storage.address(name)

    def read(self, k: int, type_: str = "") -> Lanes:
        """Bit patterns of operand ``k`` (0 is the destination) as ``type_``, by default the instruction's type."""
        return self.value(self.instruction.operands[k], type_ or self.instruction.type)

    def integer(self, k: int, type_: str = "") -> Lanes:
        """Operand ``k`` as integers, signed if the type is."""
        type_ = type_ or self.instruction.type
        lanes = self.read(k, type_)
        return lanes.view(INT[TYPE_BITS[type_]]) if type_[0] == "s" else lanes

    def f32(self, k: int) -> Lanes:
        """Operand ``k`` as float32; subnormals are signed zeros if the instruction says ``.ftz``."""
        lanes: Lanes = self.read(k, "f32").view(np.float32)
        return flush(lanes) if self.instruction.has("ftz") else lanes

    def address(self, k: int) -> list[int]:
        """Address operand ``k`` of every lane, modulo 2 to the width of its register."""
        operand = self.instruction.operands[k]
        assert isinstance(operand, Addr)
        if operand.base is None:
            return [operand.offset] * LANES
        bits = self.warp.kernel.registers[operand.base.name] if isinstance(operand.base, Reg) else 64
        return [(int(base) + operand.offset) % 2**bits for base in self.value(operand.base, "u64")]

    def constant(self, k: int) -> int:
        """Operand ``k``, which must be an integer immediate."""
        operand = self.instruction.operands[k]
        if not (isinstance(operand, Imm) and isinstance(operand.value, int)):
            raise self.fault(f"operand {k + 1} must be an integer constant")
        return operand.value

    def uniform(self, k: int) -> int:
        """Operand ``k``, which must be the same 32-bit number in all active lanes."""
        values = {int(v) for v in self.read(k, "u32")[self.on]}
        if len(values) != 1:
            raise self.fault(f"operand {k + 1} differs between lanes: {sorted(values)}")
        return values.pop()

    def write(self, lanes: Lanes, operand: Operand | None = None) -> None:
        """Write ``lanes`` to a destination register (by default operand 0) where the guard holds.

        Signed integers are sign-extended to the register's width, patterns zero-extended.
        """
        target = self.instruction.operands[0] if operand is None else operand
        assert isinstance(target, Reg)
        if target.name == "_":
            return
        if lanes.dtype.kind == "f":
            lanes = lanes.view(UINT[lanes.dtype.itemsize * 8])
        register = self.warp.registers[target.name]
        np.copyto(register, lanes.astype(register.dtype), where=self.on)

    def fault(self, reason: str, lane: int | None = None) -> KernelFault:
        """The error for something illegal: names instruction, line, CTA, warp and lane."""
        place = f"CTA {self.warp.cta}, warp {self.warp.index}"
        if lane is not None:
            place += f", lane {lane}"
        return KernelFault(f"{self.instruction.text!r} (PTX line {self.instruction.line}; {place}): {reason}.")


def pattern(immediate: Imm, type_: str) -> int:
    """Bit pattern of an immediate in an operand of type ``type_``."""
    bits = TYPE_BITS[type_]
    if type_ == "pred":
        return int(bool(immediate.value))
    if type_ == "f32" and isinstance(immediate.value, float) and immediate.value == immediate.value:
        return int.from_bytes(struct.pack("<f", immediate.value), "little")
    if type_ == "f64" and isinstance(immediate.value, float) and immediate.value == immediate.value:
        return int.from_bytes(struct.pack("<d", immediate.value), "little")
    raw = immediate.bits if immediate.bits is not None else int(immediate.value)
    return raw % (1 << bits)


def flush(lanes: Lanes) -> Lanes:
    """Replace subnormal float32 by zeros of the same sign."""
    return np.where(np.abs(lanes) < np.float32(2**-126), np.copysign(np.float32(0), lanes), lanes)


Semantic = Callable[[Step], None]
#: Row name -> the function that executes it.
SEMANTICS: Final[dict[str, Semantic]] = {}


def semantic(*names: str) -> Callable[[Semantic], Semantic]:
    """Register a function as the semantics of the ISA rows ``names``; a second one for a row raises."""

    def register(function: Semantic) -> Semantic:
        for name in names:
            if name in SEMANTICS:
                raise ValueError(f"There are two semantics for {name!r}.")
            SEMANTICS[name] = function
        return function

    return register
