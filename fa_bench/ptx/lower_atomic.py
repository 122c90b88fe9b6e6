"""Lowering of ``atom`` and ``red``: addresses are checked and counted as one access, then lanes take their turns."""

from __future__ import annotations

from fa_bench.ptx import runtime_atomic
from fa_bench.ptx.emitter import Emitter, Value
from fa_bench.ptx.isa_atomic import OPERATIONS
from fa_bench.ptx.layout import LANES, WINDOW_SHIFT, Buffers
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.lower_memory import address, fault_unless, site
from fa_bench.ptx.lower_space import resolved
from fa_bench.ptx.program import Instruction


def _places(e: Emitter, i: Instruction, size: int) -> tuple[str, str]:
    """Host addresses of the lanes, and the mask of those in global memory."""
    operand = i.operands[0 if i.row.op == "red" else 1]
    if i.has("shared"):
        where = e.vector(address(e, operand, "i32"))
        place = site(e, "shared")
        flags = e.let(
            f"call i32 @shared_check(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, i32 {size}, "
            f"i64 {Buffers.ATOMIC})"
        )
        fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
        return e.let(f"call <{LANES} x i64> @shared_addresses(ptr %ctx, {where.typed})"), "0"
    where = e.vector(address(e, operand, "i64"))
    if i.has("global"):
        flags = e.let(
            f"call i32 @global_check(ptr %ctx, ptr {site(e, 'global')}, {where.typed}, i32 {e.guard_mask()}, "
            f"i32 {size}, i64 {Buffers.ATOMIC})"
        )
        fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
        return where.name, "-1"
    places, _ = resolved(e, "generic", where, size, Buffers.ATOMIC)
    top = e.op("lshr {0}, {n1}", where, e.literal(WINDOW_SHIFT, "i64"))
    outside = e.op("icmp eq {0}, {n1}", top, e.literal(0, "i64"), elem="i1")
    return places, e.let(f"bitcast {outside.typed} to i32")


def _operation(i: Instruction) -> str:
    return next(word for word in OPERATIONS if i.has(word))


def _atomic(e: Emitter, i: Instruction) -> None:
    """``.add.f32`` flushes subnormals in global memory only (PTX ISA, "atom")."""
    elem = f"i{i.bits}"
    operation = _operation(i)
    returns = i.row.op == "atom"
    values = [e.vector(e.read(operand, elem)) for operand in i.operands[2 if returns else 1 :]]
    places, flush = _places(e, i, i.bits // 8)
    buffers = [e.alloca(f"atomic.{k}", 8 * LANES) for k in range(3)]
    for value, buffer in zip(values, buffers, strict=False):
        e.emit(f"store {value.typed}, ptr {buffer}, align 64")
    name = e.define(runtime_atomic.name(operation, i.type), lambda: runtime_atomic.function(operation, i.type))
    e.emit(
        f"call void @{name}(<{LANES} x i64> {places}, i32 {e.guard_mask()}, i32 {flush}, "
        f"ptr {buffers[0]}, ptr {buffers[1]}, ptr {buffers[2]})"
    )
    if returns:
        old = e.let(f"load <{LANES} x {elem}>, ptr {buffers[2]}, align 64")
        e.write(i.operands[0], Value(old, elem, False))


for _word in ("atom", "red"):
    for _name in (*OPERATIONS, "add.half"):
        if _word == "atom" or _name not in ("exch", "cas"):
            lowers(f"{_word}.{_name}")(_atomic)
