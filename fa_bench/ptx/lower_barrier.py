"""Lowering of what orders warps without holding them: arrivals at a CTA barrier, fences, ``mbarrier``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fa_bench.ptx.emitter import Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import FLAG_OK, LANES, SHARED_WINDOW, Access, Context
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.lower_memory import address, fault_unless, first_active, moves
from fa_bench.ptx.program import Instruction, Operand

#: Bits of an mbarrier's word: below are the counts, from here on stands the phase.
_PHASE_SHIFT: Final = 40
_PENDING: Final = (1 << 20) - 1
_ARRIVES: Final = Access.READS | Access.WRITES | Access.RELEASES | Access.STRONG


def barrier_operands(e: Emitter, i: Instruction, operands: Sequence[Operand]) -> tuple[str, str]:
    """Number of a barrier and the threads that it expects (0 for all of the CTA); both are those of the whole warp."""
    number = e.read(operands[0], "i32")
    count = e.read(operands[1], "i32") if len(operands) > 1 else e.literal(0, "i32")
    if i.guard is not None or not number.uniform or not count.uniform:
        raise UnsupportedInstruction(i.text, i.line)
    return e.let(f"and i32 {number.name}, 15"), count.name


@lowers("bar.arrive", "barrier.arrive")
def _arrive(e: Emitter, i: Instruction) -> None:
    """The whole warp arrives and goes on."""
    number, count = barrier_operands(e, i, i.operands)
    if e.block.index in e.flow.diverged:
        together = e.let(f"icmp eq i32 {e.mask()}, {e.let('load i32, ptr %live, align 4')}")
        fault_if_not(e, together, 13)
    allowed = e.let(f"call i32 @observe_arrive(ptr %ctx, i32 {number}, i32 {count})")
    fault_unless(e, e.let(f"icmp ne i32 {allowed}, 0"))
    e.emit(f"call void @barrier_arrive(ptr %ctx, i32 {number}, i32 {count})")


def fault_if_not(e: Emitter, ok: str, kind: int) -> None:
    """Leave the warp with a fault of this kind unless the i1 ``ok`` is true."""
    name = e.fresh("ok")
    e.emit(f"br i1 {ok}, label %{name}, label %{name}.not")
    e.label(f"{name}.not")
    for field, value in ((Context.FAULT_KIND, kind), (Context.FAULT_SITE, e.instruction_index)):
        e.emit(f"store i32 {value}, ptr {e.field('%ctx', field)}, align 4")
    e.emit("br label %fault")
    e.label(name)


@lowers("bar.warp.sync")
def _warp_barrier(e: Emitter, i: Instruction) -> None:
    """Lanes of a warp run in step."""


@lowers("membar", "fence")
def _fence(e: Emitter, i: Instruction) -> None:
    """The warps of a CTA run on one thread of the host; other CTAs may run on others."""
    e.emit("call void @observe_lanes(ptr %ctx)")
    if not i.has("cta"):
        e.emit("fence seq_cst")
        e.emit("call void @observe_fence(ptr %ctx)")


@lowers("nanosleep")
def _sleep(e: Emitter, i: Instruction) -> None:
    """The warp's slice is over at its next backward jump."""
    e.emit("store i64 0, ptr %slice, align 8")


def _places(e: Emitter, i: Instruction, operand: int, access: int) -> tuple[str, Value]:
    """Buffer with the host addresses of the lanes' mbarriers, which are accessed so, and their address operand."""
    where = address(e, i.operands[operand], "i64")
    offset = where if i.has("shared") else e.op("sub {0}, {n1}", where, e.literal(SHARED_WINDOW, "i64"))
    at = e.alloca("mbarriers", 8 * LANES)
    ok = e.let(f"call i32 @mbarrier_places(ptr %ctx, {e.vector(offset).typed}, i32 {e.guard_mask()}, ptr {at})")
    fault_unless(e, e.let(f"icmp ne i32 {ok}, 0"))
    seen = e.let(
        f"call i32 @observe_mbarrier(ptr %ctx, ptr {at}, i32 {e.guard_mask()}, i32 {access}, i32 {e.instruction_index})"
    )
    fault_unless(e, e.let(f"icmp ne i32 {seen}, 0"))
    return at, where


def _counts(e: Emitter, value: Value) -> str:
    buffer = e.alloca("mbarrier.counts", 4 * LANES)
    e.emit(f"store {e.vector(value).typed}, ptr {buffer}, align 64")
    return buffer


@lowers("mbarrier.init")
def _init(e: Emitter, i: Instruction) -> None:
    at, _ = _places(e, i, 0, Access.WRITES)
    counts = _counts(e, e.read(i.operands[1], "i32"))
    ok = e.let(f"call i32 @mbarrier_init(ptr %ctx, ptr {at}, i32 {e.guard_mask()}, ptr {counts})")
    fault_unless(e, e.let(f"icmp ne i32 {ok}, 0"))


@lowers("mbarrier.inval")
def _inval(e: Emitter, i: Instruction) -> None:
    at, _ = _places(e, i, 0, Access.WRITES)
    moves(e, 8)
    places = e.let(f"load <{LANES} x i64>, ptr {at}, align 64")
    zeros = e.alloca("mbarrier.words", 8 * LANES)
    e.emit(f"store <{LANES} x i64> zeroinitializer, ptr {zeros}, align 64")
    e.emit(f"call void @scatter_8(<{LANES} x i64> {places}, i32 {e.guard_mask()}, i32 {FLAG_OK}, ptr {zeros})")


@lowers("mbarrier.arrive", "mbarrier.arrive.noComplete", "mbarrier.arrive_drop", "mbarrier.arrive_drop.noComplete")
def _mbarrier_arrive(e: Emitter, i: Instruction) -> None:
    at, _ = _places(e, i, 1, _ARRIVES)
    partial = i.row.name.endswith("noComplete")
    counts = _counts(e, e.read(i.operands[2], "i32") if partial else e.literal(1, "i32"))
    drop = str("arrive_drop" in i.row.name).lower()
    states = e.alloca("mbarrier.words", 8 * LANES)
    ok = e.let(
        f"call i32 @mbarrier_arrive(ptr %ctx, ptr {at}, i32 {e.guard_mask()}, ptr {counts}, i32 {int(partial)}, "
        f"i1 {drop}, ptr {states})"
    )
    fault_unless(e, e.let(f"icmp ne i32 {ok}, 0"))
    e.write(i.operands[0], Value(e.let(f"load <{LANES} x i64>, ptr {states}, align 64"), "i64", False))


@lowers("mbarrier.test_wait", "mbarrier.test_wait.parity")
def _test_wait(e: Emitter, i: Instruction) -> None:
    """A phase that is not complete ends the warp's slice at its next backward jump: others must get there."""
    at, where = _places(e, i, 1, Access.READS | Access.STRONG)
    if any(other.row.name == "cp.async.mbarrier.arrive" for other in e.kernel.instructions):
        e.emit("call void @mbarrier_settle(ptr %ctx)")
    moves(e, 8)
    places = e.let(f"load <{LANES} x i64>, ptr {at}, align 64")
    words = e.alloca("mbarrier.words", 8 * LANES)
    mask = e.guard_mask()
    e.emit(f"call void @gather_8(<{LANES} x i64> {places}, i32 {mask}, i32 {FLAG_OK}, ptr {words})")
    word = Value(e.let(f"load <{LANES} x i64>, ptr {words}, align 64"), "i64", False)
    parity = i.row.name.endswith("parity")
    asked = e.read(i.operands[2], "i32" if parity else "i64")
    if where.uniform and asked.uniform:
        word = first_active(e, word)
    phase = e.op("lshr {0}, {n1}", word, e.literal(_PHASE_SHIFT, "i64"))
    if parity:
        low = e.op("and {0}, {n1}", e.convert("trunc", phase, "i32"), e.literal(1, "i32"))
        done = e.op("icmp ne {0}, {n1}", low, asked, elem="i1")
    else:
        old = e.op("lshr {0}, {n1}", asked, e.literal(_PHASE_SHIFT, "i64"))
        done = e.op("icmp ne {0}, {n1}", old, phase, elem="i1")
    bits = e.let(f"bitcast {e.vector(done).typed} to i32")
    missing = e.let(f"and i32 {e.let(f'xor i32 {bits}, -1')}, {mask}")
    slice_left = e.let("load i64, ptr %slice, align 8")
    rest = e.let(f"select i1 {e.let(f'icmp eq i32 {missing}, 0')}, i64 {slice_left}, i64 0")
    e.emit(f"store i64 {rest}, ptr %slice, align 8")
    e.emit(f"call void @observe_passed(ptr %ctx, ptr {at}, i32 {e.let(f'and i32 {bits}, {mask}')})")
    e.write(i.operands[0], done)


@lowers("mbarrier.pending_count")
def _pending_count(e: Emitter, i: Instruction) -> None:
    pending = e.op("and {0}, {n1}", e.read(i.operands[1], "i64"), e.literal(_PENDING, "i64"))
    e.write(i.operands[0], e.convert("trunc", pending, "i32"))


@lowers("cp.async.mbarrier.arrive")
def _arrive_behind_copies(e: Emitter, i: Instruction) -> None:
    e.uses_queue = True
    at, _ = _places(e, i, 0, _ARRIVES)
    if not i.has("noinc"):
        e.emit(f"call void @mbarrier_expect(ptr {at}, i32 {e.guard_mask()})")
    places = e.let(f"load <{LANES} x i64>, ptr {at}, align 64")
    e.emit(
        f"call void @queue_push_arrive(ptr %ctx, ptr %ws, ptr %queue, <{LANES} x i64> {places}, i32 {e.guard_mask()})"
    )
