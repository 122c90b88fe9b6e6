"""Lowering of accesses by generic address, and to local, constant and parameter memory."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx import runtime
from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.layout import (
    CONST_WINDOW,
    LANES,
    PARAM_WINDOW,
    WINDOW_SHIFT,
    WINDOWS,
    Buffers,
    Context,
)
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.lower_memory import (
    address,
    fault_unless,
    first_active,
    items_of,
    moves,
    packed,
    scatter,
    site,
    transfer,
    unpacked,
    widened,
)
from fa_bench.ptx.program import Instruction

#: Constant memory and parameters: fields of the context with their address and size, and their window.
_BANKS: Final = {
    "const": (Context.CONSTANT, Context.CONSTANT_SIZE, CONST_WINDOW),
    "param": (Context.PARAMS, Context.PARAMS_SIZE, PARAM_WINDOW),
}


def local_stride(local_bytes: int) -> int:
    """Bytes between the local memories of neighbouring lanes."""
    return -(-local_bytes // 16) * 16


def uses_spaces(e: Emitter) -> None:
    """The module needs the run-time functions of this family."""
    nbytes = e.kernel.local_bytes
    e.define("spaces", lambda: runtime.template("spaces", LOCAL_BYTES=nbytes, LOCAL_STRIDE=local_stride(nbytes)))


def resolved(e: Emitter, space: str, where: Value, size: int, direction: int) -> tuple[str, str]:
    """Check an access of all lanes; the IR names of their host addresses (a vector) and of how they lie (flags)."""
    uses_spaces(e)
    gsite, ssite = (site(e, s) for s in ("global", "shared")) if space == "generic" else ("null", "null")
    places = e.alloca("places", 8 * LANES)
    flags = e.let(
        f"call i32 @{space}_check(ptr %ctx, ptr %local, ptr {gsite}, ptr {ssite}, {e.vector(where).typed}, "
        f"i32 {e.guard_mask()}, i32 {size}, i64 {direction}, ptr {places})"
    )
    fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
    return e.let(f"load <{LANES} x i64>, ptr {places}, align 64"), flags


def _space(i: Instruction) -> str:
    return i.row.name.partition(".")[2] or "generic"


@lowers("ld", "ld.local", "ld.const", "ld.param")
def _load(e: Emitter, i: Instruction) -> None:
    items = items_of(i.operands[0])
    elem = ELEMENT[i.type]
    unit = BITS[elem] // 8
    size = unit * len(items)
    where = address(e, i.operands[1], "i64")
    space = _space(i)
    if where.uniform and space in _BANKS:
        pointer = _bank_place(e, i, space, where, size)
        loaded = (e.let(f"load {elem}, ptr {e.field(pointer, k * unit)}, align {unit}") for k in range(len(items)))
        values = [Value(name, elem, True) for name in loaded]
    else:
        places, flags = resolved(e, space, where, size, Buffers.READ)
        buffer = transfer(e, size)
        moves(e, size)
        e.emit(f"call void @gather_{size}(<{LANES} x i64> {places}, i32 {e.guard_mask()}, i32 {flags}, ptr {buffer})")
        values = unpacked(e, buffer, elem, len(items), False)
        if where.uniform and not e.flow.varies(i):
            values = [first_active(e, value) for value in values]
    if i.has("acquire"):
        e.emit("fence acquire")
    for target, value in zip(items, values, strict=True):
        e.write(target, widened(e, i, target, value))


def _bank_place(e: Emitter, i: Instruction, space: str, where: Value, size: int) -> str:
    """Host address of a place in constant memory or parameters that all lanes read."""
    base, extent, window = _BANKS[space]
    limit = e.kernel.param_bytes if space == "param" else e.kernel.storage.constant.size
    if where.literal and 0 <= int(where.name) <= limit - size and int(where.name) % size == 0:
        bank = "%params" if space == "param" else e.let(f"load ptr, ptr {e.field('%ctx', base)}, align 8")
        return e.field(bank, int(where.name))
    uses_spaces(e)
    pointer = e.let(
        f"call ptr @bank_place(ptr %ctx, i64 {base}, i64 {extent}, i64 {window}, {where.typed}, "
        f"i32 {e.guard_mask()}, i32 {size})"
    )
    fault_unless(e, e.let(f"icmp ne ptr {pointer}, null"))
    return pointer


@lowers("st", "st.local")
def _store(e: Emitter, i: Instruction) -> None:
    space = _space(i)
    if i.has("release"):
        e.emit("fence release")
    buffer, size = packed(e, i, items_of(i.operands[1]))
    places, flags = resolved(e, space, address(e, i.operands[0], "i64"), size, Buffers.WRITE)
    scatter(e, places, flags, size, buffer)


@lowers("cvta", "cvta.to")
def _cvta(e: Emitter, i: Instruction) -> None:
    value = e.read(i.operands[1], "i64")
    window = next(number for space, number in WINDOWS.items() if i.has(space)) << WINDOW_SHIFT
    if window:
        word = "sub" if i.row.name == "cvta.to" else "add"
        value = e.op(f"{word} {{0}}, {{n1}}", value, e.literal(window, "i64"))
    e.write(i.operands[0], value)


@lowers("isspacep")
def _isspacep(e: Emitter, i: Instruction) -> None:
    top = e.op("lshr {0}, {n1}", e.read(i.operands[1], "i64"), e.literal(WINDOW_SHIFT, "i64"))
    number = next(number for space, number in WINDOWS.items() if i.has(space))
    e.write(i.operands[0], e.op("icmp eq {0}, {n1}", top, e.literal(number, "i64"), elem="i1"))


@lowers("prefetch", "prefetchu")
def _hint(e: Emitter, i: Instruction) -> None:
    """No effect on what a kernel computes or asks of memory."""
