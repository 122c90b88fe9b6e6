"""Lowering of ``wmma.load`` and ``wmma.store``: fragments from and to memory.

Each register of the fragment (each pair of elements of C and D) is one access of all lanes if its elements are
neighbours in memory, else one access per element. Repeated registers are copies.
"""

from __future__ import annotations

from fa_bench.ptx.emitter import Emitter, Value
from fa_bench.ptx.fragments import BITS, Group, of_wmma
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.isa_matrix import WMMA
from fa_bench.ptx.layout import LANES, Buffers
from fa_bench.ptx.lower_arith import extended, lowers
from fa_bench.ptx.lower_memory import address, fault_unless, items_of, moves, scatter, site, transfer
from fa_bench.ptx.lower_space import resolved
from fa_bench.ptx.program import Instruction, Operand
from fa_bench.ptx.wide import Wide, indices


class _Access:
    """A fragment's way between registers and memory."""

    def __init__(self, e: Emitter, i: Instruction, matrix: str, memory: Operand, stride: Operand | None) -> None:
        if i.guard is not None:
            raise UnsupportedInstruction(i.text, i.line)
        self.e = e
        self.type = i.type
        shape = next(m for m in i.form.modifiers if m[0] == "m")
        self.space = next((space for space in ("global", "shared") if i.has(space)), "generic")
        self.word = "i32" if self.space == "shared" else "i64"
        self.groups = of_wmma(matrix, shape, i.type)
        self.row_major = i.has("row")
        self.base = e.vector(address(e, memory, self.word))
        rows, columns, depth = (int(n) for n in shape[1:].replace("n", " ").replace("k", " ").split())
        extent = {"a": (rows, depth), "b": (depth, columns)}.get(matrix, (rows, columns))
        if stride is None:
            self.stride = e.literal(extent[self.row_major], self.word)
        else:
            value = e.read(stride, "i32")
            self.stride = value if self.word == "i32" else extended(e, value, 64, True)

    def pieces(self, group: Group) -> list[tuple[Value, int, int]]:
        """The accesses of a group: addresses, first element, elements."""
        if (group.along == "row") == self.row_major:
            return [(self._where(group), 0, group.count)]
        down, right = (0, 1) if group.along == "row" else (1, 0)
        return [(self._where(group.shifted(down * k, right * k)), k, 1) for k in range(group.count)]

    def _where(self, group: Group) -> Value:
        e = self.e
        outer, inner = (0, 1) if self.row_major else (1, 0)
        far, near = (self._constant([place[axis] for place in group.places]) for axis in (outer, inner))
        step = e.op("add {0}, {n1}", e.op("mul {0}, {n1}", far, self.stride), near)
        step = e.op("mul {0}, {n1}", step, e.literal(BITS[self.type] // 8, self.word))
        return e.op("add {0}, {n1}", self.base, step)

    def _constant(self, numbers: list[int]) -> Value:
        return Value(indices(numbers).replace("i32", self.word), self.word, False)

    def fetch(self, where: Value, size: int) -> Value:
        """``size`` bytes of each lane as an integer."""
        e = self.e
        buffer = transfer(e, size)
        moves(e, size)
        if self.space == "generic":
            places, flags = resolved(e, self.space, where, size, Buffers.READ)
            e.emit(f"call void @gather_{size}(<{LANES} x i64> {places}, i32 {e.mask()}, i32 {flags}, ptr {buffer})")
        else:
            name, place = f"ld_{self.space}_{size}", site(e, self.space)
            flags = e.let(f"call i32 @{name}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.mask()}, ptr {buffer})")
            fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
        elem = f"i{8 * size}"
        return Value(e.let(f"load <{LANES} x {elem}>, ptr {buffer}, align 64"), elem, False)

    def put(self, where: Value, size: int, data: Value) -> None:
        """Store ``size`` bytes of each lane."""
        e = self.e
        buffer = transfer(e, size)
        e.emit(f"store {data.typed}, ptr {buffer}, align 64")
        if self.space == "generic":
            places, flags = resolved(e, self.space, where, size, Buffers.WRITE)
            scatter(e, places, flags, size, buffer)
            return
        moves(e, size)
        place = site(e, self.space)
        name = f"st_{self.space}_{size}"
        flags = e.let(f"call i32 @{name}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.mask()}, ptr {buffer})")
        fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))


@lowers(*(f"wmma.load.{matrix}{family}" for family in WMMA for matrix in "abc"))
def _load(e: Emitter, i: Instruction) -> None:
    matrix = i.row.op.split(".")[2]
    access = _Access(e, i, matrix, i.operands[1], i.operands[2] if len(i.operands) > 2 else None)
    targets = items_of(i.operands[0])
    width = BITS[i.type]
    # A register holds one element of at least 32 bits, or as many as fill it.
    register = max(width, 32)
    values: list[Value] = []
    for group in access.groups:
        whole: Value | None = None
        for where, first, count in access.pieces(group):
            piece = access.fetch(where, width * count // 8)
            if width < 32 and count < group.count:
                piece = extended(e, piece, 32, False)
                piece = e.op("shl {0}, {n1}", piece, e.literal(width * first, "i32")) if first else piece
                whole = piece if whole is None else e.op("or {0}, {n1}", whole, piece)
            else:
                values += _registers(e, piece, register)
        if whole is not None:
            values.append(whole)
    times, rest = divmod(len(targets), len(values))
    if rest or times != (1 if i.type != "f16" or matrix == "c" else 8 // len(values)):
        raise UnsupportedInstruction(i.text, i.line)
    for k, target in enumerate(targets):
        e.write(target, values[k % len(values)])


def _registers(e: Emitter, data: Value, width: int) -> list[Value]:
    """The registers of ``width`` bits that lie side by side in each lane's data."""
    total = int(data.elem[1:])
    if total == width:
        return [data]
    count = total // width
    parts = e.let(f"bitcast {data.typed} to <{LANES * count} x i{width}>")
    whole = Wide(e, parts, f"i{width}", LANES * count)
    return [whole.pick(range(k, LANES * count, count)).value() for k in range(count)]


@lowers(*(f"wmma.store.d{family}" for family in WMMA))
def _store(e: Emitter, i: Instruction) -> None:
    access = _Access(e, i, "d", i.operands[0], i.operands[2] if len(i.operands) > 2 else None)
    items = items_of(i.operands[1])
    width = BITS[i.type]
    per_group = 1 if width < 32 else 2
    if len(items) != per_group * len(access.groups):
        raise UnsupportedInstruction(i.text, i.line)
    for k, group in enumerate(access.groups):
        held = items[per_group * k : per_group * (k + 1)]
        registers = [e.vector(e.read(item, f"i{max(width, 32)}")) for item in held]
        for where, first, count in access.pieces(group):
            access.put(where, width * count // 8, _data(e, registers, width, first, count))


def _data(e: Emitter, registers: list[Value], width: int, first: int, count: int) -> Value:
    """``count`` elements from the ``first`` on of a pair, as the integer that memory holds."""
    if width >= 32:
        if count == 1:
            return registers[first]
        low, high = (Wide(e, r.name, r.elem, LANES) for r in registers)
        both = low.joined(high).pick([lane + LANES * k for lane in range(LANES) for k in range(2)])
        pair = f"i{2 * width}"
        return Value(e.let(f"bitcast {both.typed} to <{LANES} x {pair}>"), pair, False)
    if count == 2:
        return registers[0]
    word = Wide(e, registers[0].name, "i32", LANES)
    return (word.op("lshr", 16) if first else word).to("trunc", "i16").value()
