"""Text of LLVM IR for one warp function: values over 32 lanes or one per warp, registers, temporaries.

An emulated register is an IR value of its width: a scalar where it is the same in all lanes, else a vector of
32. Within a block values are SSA; registers that cross blocks live in the warp's state and are loaded at their
first use and stored at the block's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.ptx.cfg import Block, Flow, Kind, special_kind
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import LANES, Context, Warp
from fa_bench.ptx.literals import BITS as BITS
from fa_bench.ptx.literals import constant, relabel
from fa_bench.ptx.program import Imm, Instruction, Operand, Reg, Special, Symbol

#: IR element type by PTX type.
ELEMENT: Final[dict[str, str]] = {
    "pred": "i1", "f32": "float", "f64": "double", "f16": "half",
    **{f"{k}{b}": f"i{b}" for k in "bus" for b in (8, 16, 32, 64)},
    "bf16": "i16", "f16x2": "i32", "bf16x2": "i32", "u16x2": "i32", "s16x2": "i32", "tf32": "i32", "f32x2": "i64",
    "e4m3x2": "i16", "e5m2x2": "i16",
}  # fmt: skip
_LANE_MASKS: Final[dict[str, list[int]]] = {
    "lt": [(1 << k) - 1 for k in range(LANES)],
    "le": [(2 << k) - 1 for k in range(LANES)],
    "eq": [1 << k for k in range(LANES)],
    "ge": [-(1 << k) & 0xFFFFFFFF for k in range(LANES)],
    "gt": [-(2 << k) & 0xFFFFFFFF for k in range(LANES)],
}
IOTA: Final = "<" + ", ".join(f"i32 {k}" for k in range(LANES)) + ">"


@dataclass(frozen=True, slots=True)
class Value:
    """An IR value: ``name`` is an SSA name or a literal of element type ``elem``."""

    name: str
    elem: str
    uniform: bool
    kind: Kind = Kind.VARYING

    @property
    def type(self) -> str:
        """Its IR type."""
        return self.elem if self.uniform else f"<{LANES} x {self.elem}>"

    @property
    def typed(self) -> str:
        """``type name`` as an IR operand."""
        return f"{self.type} {self.name}"

    @property
    def literal(self) -> bool:
        """Whether it is a constant."""
        return self.uniform and self.name[0] not in "%"


Lazy = Callable[[], None]


class Emitter:
    """Collects the IR of one kernel's warp function.

    Parameters
    ----------
    flow : Flow
        Control flow and uniformity.
    register_offsets : dict
        Offset of each block-crossing register in the warp state.
    """

    def __init__(self, flow: Flow, register_offsets: dict[str, int]) -> None:
        self.flow = flow
        self.kernel = flow.kernel
        self.offsets = register_offsets
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.counter = 0
        self.global_sites: list[int] = []
        #: Of each global site, whether its instruction passes L1 by.
        self.bypasses: list[bool] = []
        self.shared_sites: list[int] = []
        self.instruction_index = 0
        self.block: Block = flow.blocks[0]
        self.values: dict[str, Value] = {}
        self.lazy: dict[str, Lazy] = {}
        self.casts: dict[tuple[str, str, str], Value] = {}
        self.written: set[str] = set()
        self.mask_value: Value | None = None
        self.mask_lanes: str | None = None
        self.specials: dict[str, Value] = {}
        #: What a family of lowerings keeps within a block.
        self.block_state: dict[str, object] = {}
        #: Whether warps need a queue of copies in flight.
        self.uses_queue = False
        #: IR text of run-time functions by name: what :meth:`define` collected.
        self.library: dict[str, str] = {}

    # Text.

    def emit(self, line: str) -> None:
        """Append a line."""
        self.lines.append("  " + line)

    def label(self, name: str) -> None:
        """Start an IR block."""
        self.lines.append(f"{name}:")

    def fresh(self, prefix: str = "t") -> str:
        """A new name without sigil."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def let(self, expression: str) -> str:
        """Emit ``%n = expression`` and return ``%n``."""
        name = "%" + self.fresh()
        self.lines.append(f"  {name} = {expression}")
        return name

    def alloca(self, name: str, nbytes: int) -> str:
        """A 64-byte aligned stack buffer, allocated at function entry, once per name."""
        line = f"  %{name} = alloca [{nbytes} x i8], align 64"
        if line not in self.allocas:
            self.allocas.append(line)
        return f"%{name}"

    def field(self, base: str, offset: int) -> str:
        """Pointer ``offset`` bytes behind ``base``."""
        return base if offset == 0 else self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def define(self, name: str, text: Callable[[], str]) -> str:
        """Make sure that the module has the run-time function ``name``; returns the name."""
        if name not in self.library:
            self.library[name] = text()
        return name

    # Blocks.

    def begin(self, block: Block) -> None:
        """Start lowering ``block``: nothing is known but the registers in the warp state."""
        self.block = block
        self.values.clear()
        self.lazy.clear()
        self.casts.clear()
        self.written.clear()
        self.specials.clear()
        self.block_state.clear()
        self.mask_value = None
        self.mask_lanes = None

    def flush(self) -> None:
        """Store the registers that live on; lanes that are elsewhere keep theirs."""
        for name in sorted(self.written & self.block.live_out):
            value = self.register(name)
            uniform = self.is_uniform(name)
            if uniform:
                assert value.uniform, f"{name} was proved uniform"
                self.emit(f"store {value.typed}, ptr {self.slot(name)}, align 8")
                continue
            value = self.vector(value)
            if self.block.index in self.flow.diverged:
                old = self.load_register(name, value.elem)
                lanes = self.lanes()
                value = Value(self.let(f"select <{LANES} x i1> {lanes}, {value.typed}, {old.typed}"), value.elem, False)
            if value.elem == "i1":
                bits = self.let(f"bitcast {value.typed} to i32")
                self.emit(f"store i32 {bits}, ptr {self.slot(name)}, align 4")
            else:
                self.emit(f"store {value.typed}, ptr {self.slot(name)}, align 64")
        self.written.clear()

    def is_uniform(self, name: str) -> bool:
        """Whether the crossing register ``name`` holds one value per warp."""
        return self.flow.kind(name) in (Kind.ZERO, Kind.UNIFORM)

    def slot(self, name: str) -> str:
        """Pointer to a crossing register in the warp state."""
        return self.field("%ws", self.offsets[name])

    def load_register(self, name: str, elem: str) -> Value:
        """Read a crossing register from the warp state."""
        kind = self.flow.kind(name)
        if self.is_uniform(name):
            loaded = self.let(f"load {elem}, ptr {self.slot(name)}, align 8")
            return Value(loaded, elem, True, kind)
        if elem == "i1":
            bits = self.let(f"load i32, ptr {self.slot(name)}, align 4")
            return Value(self.let(f"bitcast i32 {bits} to <{LANES} x i1>"), "i1", False)
        loaded = self.let(f"load <{LANES} x {elem}>, ptr {self.slot(name)}, align 64")
        return Value(loaded, elem, False, kind)

    def mask(self) -> str:
        """The i32 mask of the lanes that execute this block."""
        if self.mask_value is None:
            self.mask_value = Value(self.let("load i32, ptr %active, align 4"), "i32", True)
        return self.mask_value.name

    def lanes(self) -> str:
        """The same mask as <32 x i1>."""
        if self.mask_lanes is None:
            self.mask_lanes = self.let(f"bitcast i32 {self.mask()} to <{LANES} x i1>")
        return self.mask_lanes

    # Values.

    def register(self, name: str) -> Value:
        """Current value of a register."""
        force = self.lazy.get(name)
        if force is not None:
            force()
        value = self.values.get(name)
        if value is None:
            bits = self.kernel.registers[name]
            if name in self.offsets:
                value = self.load_register(name, f"i{bits}")
            else:
                # Read before any write in its only block: undefined in PTX; zero here.
                value = Value("false" if bits == 1 else "0", f"i{bits}", True, Kind.ZERO)
            self.values[name] = value
        return value

    def vector(self, value: Value) -> Value:
        """``value`` in all lanes."""
        if not value.uniform:
            return value
        key = (value.name, value.elem, "vector")
        if key not in self.casts:
            if value.literal:
                made = Value(f"splat ({value.elem} {value.name})", value.elem, False, value.kind)
            else:
                one = self.let(f"insertelement <{LANES} x {value.elem}> poison, {value.typed}, i64 0")
                wide = self.let(
                    f"shufflevector <{LANES} x {value.elem}> {one}, <{LANES} x {value.elem}> poison, "
                    f"<{LANES} x i32> zeroinitializer"
                )
                made = Value(wide, value.elem, False, value.kind)
            self.casts[key] = made
        return self.casts[key]

    def cast(self, value: Value, elem: str) -> Value:
        """Reinterpret ``value`` as another element type of the same width."""
        if value.elem == elem:
            return value
        if BITS[value.elem] != BITS[elem]:
            return self._resize(value, elem)
        if value.literal:
            return Value(relabel(value.name, value.elem, elem), elem, True, value.kind)
        key = (value.name, value.elem, elem)
        if key not in self.casts:
            shape = elem if value.uniform else f"<{LANES} x {elem}>"
            made = self.let(f"bitcast {value.typed} to {shape}")
            self.casts[key] = Value(made, elem, value.uniform, value.kind)
        return self.casts[key]

    def _resize(self, value: Value, elem: str) -> Value:
        """PTX lets a wider register feed a narrower integer operand (ld/st/cvt): keep the low bits."""
        source = self.cast(value, f"i{BITS[value.elem]}")
        bits = BITS[elem]
        word = "trunc" if BITS[source.elem] > bits else "zext"
        shape = f"i{bits}" if value.uniform else f"<{LANES} x i{bits}>"
        return self.cast(Value(self.let(f"{word} {source.typed} to {shape}"), f"i{bits}", value.uniform), elem)

    def read(self, operand: Operand, elem: str) -> Value:
        """Value of ``operand`` as element type ``elem``."""
        match operand:
            case Reg(name, negated):
                value = self.cast(self.register(name), elem)
                if negated:
                    one = "true" if value.uniform else "splat (i1 true)"
                    return Value(self.let(f"xor {value.typed}, {one}"), "i1", value.uniform)
                return value
            case Imm(number, bits):
                kind = Kind.ZERO if operand.is_zero else Kind.UNIFORM
                return Value(constant(number, bits, elem), elem, True, kind)
            case Symbol(name):
                return self._symbol(name, elem)
            case Special(name):
                return self.cast(self.special(name), elem)
        raise UnsupportedInstruction(self.current.text, self.current.line)

    def _symbol(self, name: str, elem: str) -> Value:
        """Address of a variable in its space."""
        kernel = self.kernel
        params = {p.name: p.offset for p in kernel.params}
        for offsets in (kernel.shared, params, kernel.local):
            if name in offsets:
                return self.literal(offsets[name], elem)
        if name not in kernel.storage.globals:
            return self.literal(kernel.storage.address(name), elem)
        table = self.let(f"load ptr, ptr {self.field('%ctx', Context.VARIABLES)}, align 8")
        place = self.field(table, 8 * kernel.storage.globals.index(name))
        return self.cast(Value(self.let(f"load i64, ptr {place}, align 8"), "i64", True, Kind.UNIFORM), elem)

    def needed_after(self, name: str) -> bool:
        """Whether the current value of register ``name`` is read after the current instruction."""
        for instruction in self.kernel.instructions[self.instruction_index + 1 : self.block.stop]:
            if any(r.name == name for r in instruction.read()):
                return True
            if any(r.name == name for r in instruction.written()):
                return instruction.guard is not None
        return name in self.block.live_out

    @property
    def current(self) -> Instruction:
        """The instruction being lowered."""
        return self.kernel.instructions[self.instruction_index]

    def special(self, name: str) -> Value:
        """A special register."""
        if name not in self.specials:
            self.specials[name] = self._special(name)
        return self.specials[name]

    def _special(self, name: str) -> Value:
        kind = special_kind(name, self.flow.one_dimensional)
        base, _, axis = name[1:].partition(".")
        step = 4 * "xyz".index(axis) if axis else 0
        if base == "tid":
            if kind is Kind.ZERO:
                return Value("0", "i32", True, kind)
            pointer = self.field("%ws", Warp.TID + LANES * step)
            return Value(self.let(f"load <{LANES} x i32>, ptr {pointer}, align 64"), "i32", False, kind)
        fields = {"ntid": Context.NTID, "ctaid": Context.CTAID, "nctaid": Context.NCTAID}
        if base in fields:
            pointer = self.field("%ctx", fields[base] + step)
            return Value(self.let(f"load i32, ptr {pointer}, align 4"), "i32", True, kind)
        if base == "warpid":
            pointer = self.field("%ws", Warp.WARP_ID)
            return Value(self.let(f"load i32, ptr {pointer}, align 4"), "i32", True, kind)
        if base == "smid":
            return Value("0", "i32", True, Kind.UNIFORM)
        if base == "laneid":
            return Value(IOTA, "i32", False)
        masks = _LANE_MASKS[base.removeprefix("lanemask_")]
        return Value("<" + ", ".join(f"i32 {m}" for m in masks) + ">", "i32", False)

    def write(self, target: Operand, value: Value) -> None:
        """Assign ``value`` to a destination register, under the instruction's guard."""
        assert isinstance(target, Reg)
        if target.name == "_":
            return
        bits = self.kernel.registers[target.name]
        if BITS[value.elem] != bits:
            value = self._resize(value, f"i{bits}")
        guard = self.current.guard
        if guard is not None:
            old = self.cast(self.register(target.name), value.elem)
            condition = self.read(guard, "i1")
            value = self.select(condition, value, old)
        self.lazy.pop(target.name, None)
        self.values[target.name] = value
        self.written.add(target.name)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """``condition ? yes : no``, lane by lane or once."""
        condition, yes, no = self.level([condition, yes, no])
        return Value(self.let(f"select {condition.typed}, {yes.typed}, {no.typed}"), yes.elem, yes.uniform)

    def level(self, values: Sequence[Value]) -> list[Value]:
        """All scalars if every value is uniform, else all vectors."""
        if all(v.uniform for v in values):
            return list(values)
        return [self.vector(v) for v in values]

    def op(self, template: str, *values: Value, elem: str = "") -> Value:
        """Emit an operation over levelled values.

        ``template`` holds ``{0}`` for ``type name`` of the first value, ``{n1}`` ... for bare names.
        """
        leveled = self.level(values)
        names = {f"n{k}": v.name for k, v in enumerate(leveled)}
        out = elem or leveled[0].elem
        uniform = leveled[0].uniform
        text = template.format(*(v.typed for v in leveled), t=leveled[0].type, **names)
        return Value(self.let(text), out, uniform)

    def intrinsic(self, name: str, *values: Value, elem: str = "", tail: str = "") -> Value:
        """Call an overloaded LLVM intrinsic such as ``llvm.fma`` over levelled values."""
        leveled = self.level(values)
        suffix = mangled(leveled[0])
        out = elem or leveled[0].elem
        shape = out if leveled[0].uniform else f"<{LANES} x {out}>"
        arguments = ", ".join(v.typed for v in leveled)
        text = f"call {shape} @{name}.{suffix}({arguments}{tail})"
        return Value(self.let(text), out, leveled[0].uniform)

    def convert(self, word: str, value: Value, elem: str) -> Value:
        """``zext``, ``fptrunc`` ... to another element type."""
        shape = elem if value.uniform else f"<{LANES} x {elem}>"
        return Value(self.let(f"{word} {value.typed} to {shape}"), elem, value.uniform)

    def literal(self, number: int | float, elem: str) -> Value:
        """A constant."""
        kind = Kind.ZERO if Imm(number).is_zero else Kind.UNIFORM
        return Value(constant(number, None, elem), elem, True, kind)

    def guard_mask(self) -> str:
        """The i32 mask of the lanes that execute the current instruction, its guard included."""
        guard = self.current.guard
        if guard is None:
            return self.mask()
        condition = self.read(guard, "i1")
        if condition.uniform:
            return self.let(f"select i1 {condition.name}, i32 {self.mask()}, i32 0")
        bits = self.let(f"bitcast {condition.typed} to i32")
        return self.let(f"and i32 {bits}, {self.mask()}")


def mangled(value: Value) -> str:
    """LLVM's suffix for overloaded intrinsics."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(value.elem, value.elem)
    return short if value.uniform else f"v{LANES}{short}"
