"""Lowering of loads, stores, ldmatrix, cp.async: addresses here, the work in ``runtime_memory``."""

from __future__ import annotations

from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import LANES, Context, GlobalSite, SharedSite
from fa_bench.ptx.lower_arith import extended, lowers
from fa_bench.ptx.program import Addr, Imm, Instruction, Operand, Reg, Symbol, Vec


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


def site(e: Emitter, space: str) -> str:
    """Pointer to a new access site of the current instruction."""
    sites = e.global_sites if space == "global" else e.shared_sites
    stride = GlobalSite.STRIDE if space == "global" else SharedSite.WAYS * SharedSite.SIZE
    sites.append(e.instruction_index)
    base = "%gsites" if space == "global" else "%ssites"
    return e.field(base, stride * (len(sites) - 1))


def fault_unless(e: Emitter, ok: str) -> None:
    """Leave the warp with the recorded fault unless the i1 ``ok`` is true."""
    index = e.instruction_index
    name = e.fresh("ok")
    e.emit(f"br i1 {ok}, label %{name}, label %fault{index}")
    e.label(f"fault{index}")
    pointer = e.field("%ctx", Context.FAULT_SITE)
    e.emit(f"store i32 {index}, ptr {pointer}, align 4")
    e.emit("br label %fault")
    e.label(name)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


@lowers("ld.param")
def _ld_param(e: Emitter, i: Instruction) -> None:
    source = i.operands[1]
    assert isinstance(source, Addr)
    if not isinstance(source.base, Symbol):
        raise UnsupportedInstruction(i.text, i.line)
    name = source.base.name
    offset = next(p.offset for p in e.kernel.params if p.name == name) + source.offset
    elem, step = ELEMENT[i.type], BITS[ELEMENT[i.type]] // 8
    values = []
    for k in range(len(_items(i.operands[0]))):
        pointer = e.field("%params", offset + k * step)
        values.append(Value(e.let(f"load {elem}, ptr {pointer}, align {step}"), elem, True))
    for target, value in zip(_items(i.operands[0]), values, strict=True):
        e.write(target, _widened(e, i, target, value))


def _widened(e: Emitter, i: Instruction, target: Operand, value: Value) -> Value:
    """A narrow load fills its wider register by the type's sign."""
    assert isinstance(target, Reg)
    width = e.kernel.registers.get(target.name, BITS[value.elem])
    if BITS[value.elem] < width:
        return extended(e, e.cast(value, f"i{BITS[value.elem]}"), width, i.type[0] == "s")
    return value


@lowers("ld.global", "ld.shared")
def _load(e: Emitter, i: Instruction) -> None:
    space = i.row.op.removeprefix("ld.")
    items = _items(i.operands[0])
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
        buffer = e.alloca("xfer", LANES * 16)
        quad = unit == 4 and len(items) == 4
        name = f"ld_{space}_{'quad' if quad else size}"
        e.runtime.add(name)
        flags = e.let(f"call i32 @{name}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, ptr {buffer})")
        fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
        values = _unpacked(e, buffer, elem, len(items), quad)
    for target, value in zip(items, values, strict=True):
        e.write(target, _widened(e, i, target, value))


def _unpacked(e: Emitter, buffer: str, elem: str, count: int, quad: bool) -> list[Value]:
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


@lowers("st.global", "st.shared")
def _store(e: Emitter, i: Instruction) -> None:
    space = i.row.op.removeprefix("st.")
    items = _items(i.operands[1])
    elem = ELEMENT[i.type]
    size = BITS[elem] // 8 * len(items)
    where = e.vector(address(e, i.operands[0], "i64" if space == "global" else "i32"))
    values = [e.vector(e.read(item, elem)) for item in items]
    buffer = e.alloca("xfer", LANES * 16)
    data = values[0].name
    width = 1
    # Interleave pairwise: a0 b0 a1 b1 ..., then the same with pairs.
    parts = [v.name for v in values]
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
        data = parts[0]
    e.emit(f"store <{LANES * len(items)} x {elem}> {data}, ptr {buffer}, align 64")
    place = site(e, space)
    e.runtime.add(f"st_{space}_{size}")
    flags = e.let(
        f"call i32 @st_{space}_{size}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, ptr {buffer})"
    )
    fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))


@lowers("ldmatrix")
def _ldmatrix(e: Emitter, i: Instruction) -> None:
    items = _items(i.operands[0])
    name = f"ldmatrix_x{len(items)}" + ("_trans" if i.has("trans") else "")
    if not i.has(f"x{len(items)}"):
        raise UnsupportedInstruction(i.text, i.line)
    e.runtime.add(name)
    where = e.vector(address(e, i.operands[1], "i32"))
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
    e.runtime.add("copy_queue")
    target = e.vector(address(e, i.operands[0], "i32"))
    source = e.vector(address(e, i.operands[1], "i64"))
    whole = e.literal(int(size.value), "i32")
    nbytes = e.read(i.operands[3], "i32") if len(i.operands) > 3 else whole
    nbytes = e.vector(e.intrinsic("llvm.umin", nbytes, whole))
    gsite, ssite = site(e, "global"), site(e, "shared")
    flags = e.let(
        f"call i32 @cp_async(ptr %ctx, ptr %ws, ptr %queue, ptr {gsite}, ptr {ssite}, {target.typed}, "
        f"{source.typed}, {nbytes.typed}, i32 {e.guard_mask()}, i32 {size.value})"
    )
    fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))


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
    e.runtime.add("copy_queue")
