"""Lowering of loads, stores, ldmatrix, cp.async: addresses here, the work in ``ir/``."""

from __future__ import annotations

from fa_bench.ptx import runtime, runtime_math
from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import LANES, SHARED_WINDOW, Context, GlobalSite, SharedSite
from fa_bench.ptx.lower_arith import extended, lowers
from fa_bench.ptx.program import Addr, Imm, Instruction, Operand, Reg, Vec


def address(e: Emitter, operand: Operand, elem: str) -> Value:
    """``[base + offset]`` as ``elem`` (i64 for global, i32 for shared memory)."""
    assert isinstance(operand, Addr)
    if operand.base is None:
        return e.literal(operand.offset, elem)
    base = e.read(operand.base, elem)
    if operand.offset == 0:
        return base
    if base.literal:
        return e.literal(int(base.name) + operand.offset, elem)
    return e.op("add {0}, {n1}", base, e.literal(operand.offset, elem))


def shared_offset(e: Emitter, i: Instruction, operand: int) -> Value:
    """Offsets in shared memory of all lanes; without ``.shared`` the address is generic and must lie in its window."""
    if i.has("shared"):
        return e.vector(address(e, i.operands[operand], "i32"))
    generic = address(e, i.operands[operand], "i64")
    offset = e.op("sub {0}, {n1}", generic, e.literal(SHARED_WINDOW, "i64"))
    far = e.op("icmp ugt {0}, {n1}", offset, e.literal(0x7FFFFFFF, "i64"), elem="i1")
    return e.vector(e.select(far, e.literal(-16, "i32"), e.convert("trunc", offset, "i32")))


def site(e: Emitter, space: str) -> str:
    """Pointer to a new access site of the current instruction."""
    sites = e.global_sites if space == "global" else e.shared_sites
    if space == "global":
        e.bypasses.append(bypasses_l1(e.kernel.instructions[e.instruction_index]))
    stride = GlobalSite.STRIDE if space == "global" else SharedSite.WAYS * SharedSite.SIZE
    sites.append(e.instruction_index)
    base = "%gsites" if space == "global" else "%ssites"
    return e.field(base, stride * (len(sites) - 1))


def bypasses_l1(i: Instruction) -> bool:
    """Whether L1 has no part in a read: ``.cg``, ``.cv``, and accesses that other CTAs' threads must see the order of.

    PTX ISA, "Cache Operators" and "Memory Consistency Model": L1 is not coherent, so ``.volatile``, and ``.relaxed`` or
    ``.acquire`` beyond a CTA, go to L2.
    """
    ordered = any(i.has(word) for word in ("relaxed", "acquire")) and not i.has("cta")
    return ordered or any(i.has(word) for word in ("cg", "cv", "volatile"))


def fault_unless(e: Emitter, ok: str) -> None:
    """Leave the warp with the recorded fault unless the i1 ``ok`` is true."""
    index = e.instruction_index
    name = e.fresh("ok")
    e.emit(f"br i1 {ok}, label %{name}, label %{name}.not")
    e.label(f"{name}.not")
    pointer = e.field("%ctx", Context.FAULT_SITE)
    e.emit(f"store i32 {index}, ptr {pointer}, align 4")
    e.emit("br label %fault")
    e.label(name)


def items_of(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def widened(e: Emitter, i: Instruction, target: Operand, value: Value) -> Value:
    """A narrow load fills its wider register by the type's sign."""
    assert isinstance(target, Reg)
    width = e.kernel.registers.get(target.name, BITS[value.elem])
    if BITS[value.elem] < width:
        return extended(e, e.cast(value, f"i{BITS[value.elem]}"), width, i.type[0] == "s")
    return value


def moves(e: Emitter, size: int) -> None:
    """Make sure that the module can move ``size`` bytes per lane: loads, stores, ``@gather``, ``@scatter``."""
    e.define(f"moves_{size}", lambda: runtime.access(size))


def scatter(e: Emitter, places: str, flags: str, size: int, buffer: str) -> None:
    """Store ``size`` bytes of each lane at host addresses that are known to be good."""
    moves(e, size)
    what = f"<{LANES} x i64> {places}, i32 {e.guard_mask()}, i32 {flags}"
    e.emit(f"call void @scatter_{size}({what}, ptr {buffer})")
    kept = e.let(f"call i32 @observe_stored(ptr %ctx, {what}, i32 {size}, ptr {buffer})")
    fault_unless(e, e.let(f"icmp ne i32 {kept}, 0"))


def load_function(e: Emitter, space: str, size: int, quad: bool) -> str:
    """Name of the run-time function that loads ``size`` bytes per lane, ``quad`` as four vectors of 32-bit words."""
    if quad:
        e.define("quads", lambda: runtime.quads() + runtime.template("quad"))
        return f"ld_{space}_quad"
    moves(e, size)
    return f"ld_{space}_{size}"


@lowers("ld.global", "ld.shared")
def _load(e: Emitter, i: Instruction) -> None:
    space = i.row.op.removeprefix("ld.")
    items = items_of(i.operands[0])
    elem = ELEMENT[i.type]
    unit = BITS[elem] // 8
    size = unit * len(items)
    where = address(e, i.operands[1], "i64" if space == "global" else "i32")
    place = site(e, space)
    if where.uniform:
        pointer = e.let(
            f"call ptr @{space}_uniform(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, i32 {size})"
        )
        fault_unless(e, e.let(f"icmp ne ptr {pointer}, null"))
        values = []
        for k in range(len(items)):
            loaded = e.let(f"load {elem}, ptr {e.field(pointer, k * unit)}, align {unit}")
            values.append(Value(loaded, elem, True))
    else:
        buffer = transfer(e, size)
        quad = unit == 4 and len(items) == 4
        name = load_function(e, space, size, quad)
        flags = e.let(f"call i32 @{name}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, ptr {buffer})")
        fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
        values = unpacked(e, buffer, elem, len(items), quad)
    if i.has("acquire"):
        e.emit("fence acquire")
    for target, value in zip(items, values, strict=True):
        e.write(target, widened(e, i, target, value))


def first_active(e: Emitter, value: Value) -> Value:
    """A vector's element in the first lane that executes the instruction: what all of them have."""
    lane = e.let(f"call i32 @llvm.cttz.i32(i32 {e.guard_mask()}, i1 false)")
    lane = e.let(f"and i32 {lane}, {LANES - 1}")
    return Value(e.let(f"extractelement {value.typed}, i32 {lane}"), value.elem, True)


def unpacked(e: Emitter, buffer: str, elem: str, count: int, quad: bool) -> list[Value]:
    """The loaded vectors of all lanes; ``quad`` loads lie one after the other, others lane by lane."""
    if quad:
        parts = [e.let(f"load <{LANES} x {elem}>, ptr {e.field(buffer, 128 * k)}, align 64") for k in range(count)]
    else:
        data = e.let(f"load <{LANES * count} x {elem}>, ptr {buffer}, align 64")
        parts = [_every(e, data, LANES * count, elem, k, count) for k in range(count)]
    return [Value(part, elem, False) for part in parts]


def _every(e: Emitter, data: str, count: int, elem: str, k: int, step: int) -> str:
    """Elements k, k + step, ... of ``data``."""
    if step == 1:
        return data
    lanes = ", ".join(f"i32 {k + step * lane}" for lane in range(LANES))
    return e.let(f"shufflevector <{count} x {elem}> {data}, <{count} x {elem}> poison, <{LANES} x i32> <{lanes}>")


def transfer(e: Emitter, size: int) -> str:
    """Buffer for ``size`` bytes of every lane."""
    return e.alloca("xfer", LANES * 16) if size <= 16 else e.alloca("xfer.wide", LANES * 32)


def packed(e: Emitter, i: Instruction, items: tuple[Operand, ...]) -> tuple[str, int]:
    """Put what a store writes into a buffer, lane by lane; the buffer and the bytes of a lane."""
    elem = ELEMENT[i.type]
    size = BITS[elem] // 8 * len(items)
    parts = [e.vector(e.read(item, elem)).name for item in items]
    width = 1
    # Interleave pairwise: a0 b0 a1 b1 ..., then the same with pairs.
    while len(parts) > 1:
        half = len(parts) // 2
        merged = []
        for k in range(half):
            n = LANES * width
            lanes = ", ".join(
                f"i32 {side * n + lane * width + w}" for lane in range(LANES) for side in range(2) for w in range(width)
            )
            merged.append(
                e.let(
                    f"shufflevector <{n} x {elem}> {parts[2 * k]}, <{n} x {elem}> {parts[2 * k + 1]}, "
                    f"<{2 * n} x i32> <{lanes}>"
                )
            )
        parts, width = merged, 2 * width
    buffer = transfer(e, size)
    e.emit(f"store <{LANES * len(items)} x {elem}> {parts[0]}, ptr {buffer}, align 64")
    return buffer, size


@lowers("st.global", "st.shared")
def _store(e: Emitter, i: Instruction) -> None:
    space = i.row.op.removeprefix("st.")
    if i.has("release"):
        e.emit("fence release")
    where = e.vector(address(e, i.operands[0], "i64" if space == "global" else "i32"))
    buffer, size = packed(e, i, items_of(i.operands[1]))
    place = site(e, space)
    moves(e, size)
    flags = e.let(
        f"call i32 @st_{space}_{size}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, ptr {buffer})"
    )
    fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))


@lowers("ldmatrix")
def _ldmatrix(e: Emitter, i: Instruction) -> None:
    items = items_of(i.operands[0])
    trans = i.has("trans")
    name = f"ldmatrix_x{len(items)}" + ("_trans" if trans else "")
    e.define(name, lambda: runtime_math.ldmatrix(len(items), trans))
    where = shared_offset(e, i, 1)
    place = site(e, "shared")
    buffer = e.alloca("xfer", LANES * 16)
    flags = e.let(f"call i32 @{name}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, ptr {buffer})")
    fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
    for k, target in enumerate(items):
        data = e.let(f"load <{LANES} x i32>, ptr {e.field(buffer, 128 * k)}, align 64")
        e.write(target, Value(data, "i32", False))


@lowers("cp.async")
def _cp_async(e: Emitter, i: Instruction) -> None:
    size = i.operands[2]
    if not isinstance(size, Imm) or size.value not in (4, 8, 16) or (i.has("cg") and size.value != 16):
        raise UnsupportedInstruction(i.text, i.line)
    e.uses_queue = True
    target = e.vector(address(e, i.operands[0], "i32"))
    source = e.vector(address(e, i.operands[1], "i64"))
    whole = e.literal(int(size.value), "i32")
    nbytes = e.vector(e.intrinsic("llvm.umin", _source_bytes(e, i, whole), whole))
    gsite, ssite = site(e, "global"), site(e, "shared")
    flags = e.let(
        f"call i32 @cp_async(ptr %ctx, ptr %ws, ptr %queue, ptr {gsite}, ptr {ssite}, {target.typed}, "
        f"{source.typed}, {nbytes.typed}, i32 {e.guard_mask()}, i32 {size.value})"
    )
    fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))


def _source_bytes(e: Emitter, i: Instruction, whole: Value) -> Value:
    """Bytes that are read: all, as many as the fourth operand says, or none where it is a true predicate."""
    if len(i.operands) < 4:
        return whole
    last = i.operands[3]
    if isinstance(last, Reg) and e.kernel.registers[last.name] == 1:
        return e.select(e.read(last, "i1"), e.literal(0, "i32"), whole)
    return e.read(last, "i32")


@lowers("cp.async.commit_group")
def _commit(e: Emitter, i: Instruction) -> None:
    _whole_warp(e, i)
    e.emit("call void @cp_commit(ptr %ctx, ptr %ws, ptr %queue)")


@lowers("cp.async.wait_group")
def _wait_group(e: Emitter, i: Instruction) -> None:
    _whole_warp(e, i)
    pending = i.operands[0]
    if not isinstance(pending, Imm):
        raise UnsupportedInstruction(i.text, i.line)
    e.emit(f"call void @cp_wait(ptr %ctx, ptr %ws, ptr %queue, i32 {pending.value})")


@lowers("cp.async.wait_all")
def _wait_all(e: Emitter, i: Instruction) -> None:
    _whole_warp(e, i)
    e.emit("call void @cp_commit(ptr %ctx, ptr %ws, ptr %queue)")
    e.emit("call void @cp_wait(ptr %ctx, ptr %ws, ptr %queue, i32 0)")


def _whole_warp(e: Emitter, i: Instruction) -> None:
    """Copy groups are kept per warp: a guarded commit or wait would need them per thread."""
    if i.guard is not None:
        raise UnsupportedInstruction(i.text, i.line)
    e.uses_queue = True
