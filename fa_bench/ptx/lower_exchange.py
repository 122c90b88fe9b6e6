"""Lowering of exchanges over a whole warp: match, redux, and the moves of 8 x 8 matrices."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.emitter import Emitter, Value
from fa_bench.ptx.layout import LANES, Buffers, Context
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.lower_memory import fault_unless, first_active, items_of, shared_offset, site
from fa_bench.ptx.program import Instruction, Pair

_V32: Final = f"<{LANES} x i32>"
#: LLVM's reduction and the value that changes nothing, by operation and sign.
_REDUCTIONS: Final[dict[str, tuple[str, int]]] = {
    "addu": ("add", 0), "adds": ("add", 0), "and": ("and", -1), "or": ("or", 0), "xor": ("xor", 0),
    "minu": ("umin", -1), "maxu": ("umax", 0), "mins": ("smin", 0x7FFFFFFF), "maxs": ("smax", -0x80000000),
}  # fmt: skip


def _match_function(bits: int) -> str:
    """IR of ``@match_BITS(values, members, active)``: which of its active members have a lane's value."""
    vector = f"<{LANES} x i{bits}>"
    lines = [f"define internal {_V32} @match_{bits}({vector} %x, {_V32} %members, i32 %active) #1 {{"]
    result = "poison"
    for lane in range(LANES):
        lines += [
            f"  %v{lane} = extractelement {vector} %x, i64 {lane}",
            f"  %i{lane} = insertelement {vector} poison, i{bits} %v{lane}, i64 0",
            f"  %s{lane} = shufflevector {vector} %i{lane}, {vector} poison, {_V32} zeroinitializer",
            f"  %c{lane} = icmp eq {vector} %x, %s{lane}",
            f"  %b{lane} = bitcast <{LANES} x i1> %c{lane} to i32",
            f"  %r{lane} = insertelement {_V32} {result}, i32 %b{lane}, i64 {lane}",
        ]
        result = f"%r{lane}"
    return "\n".join(
        [
            *lines,
            f"  %a1 = insertelement {_V32} poison, i32 %active, i64 0",
            f"  %a = shufflevector {_V32} %a1, {_V32} poison, {_V32} zeroinitializer",
            f"  %m = and {_V32} %members, %a",
            f"  %found = and {_V32} {result}, %m",
            f"  ret {_V32} %found",
            "}",
            "",
        ]
    )


@lowers("match.any", "match.all")
def _match(e: Emitter, i: Instruction) -> None:
    value = e.read(i.operands[1], f"i{i.bits}")
    mask = Value(e.guard_mask(), "i32", True)
    members = e.read(i.operands[2], "i32")
    named = e.op("and {0}, {n1}", members, mask)
    if value.uniform and members.uniform:
        found = named
    else:
        name = e.define(f"match_{i.bits}", lambda: _match_function(i.bits))
        call = f"call {_V32} @{name}({e.vector(value).typed}, {e.vector(members).typed}, i32 {mask.name})"
        found = Value(e.let(call), "i32", False)
    target = i.operands[0]
    if i.row.name == "match.any":
        e.write(target, found)
        return
    every = e.op("icmp eq {0}, {n1}", found, named, elem="i1")
    if isinstance(target, Pair):
        e.write(target.second, every)
        target = target.first
    e.write(target, e.select(every, found, e.literal(0, "i32")))


def _reduction_function(name: str, reduction: str, neutral: int) -> str:
    """IR of ``@NAME(values, members, active)``: each group of lanes that name each other gets its own result."""
    return f"""define internal {_V32} @{name}({_V32} %x, {_V32} %members, i32 %active) #1 {{
  %none = icmp eq i32 %active, 0
  br i1 %none, label %done, label %group
group:
  %left = phi i32 [ %active, %0 ], [ %left.next, %group ]
  %result = phi {_V32} [ zeroinitializer, %0 ], [ %result.next, %group ]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %own = shl i32 1, %lane
  %named = extractelement {_V32} %members, i32 %lane
  %taking = and i32 %named, %active
  %mask = or i32 %taking, %own
  %on = bitcast i32 %mask to <{LANES} x i1>
  %y = select <{LANES} x i1> %on, {_V32} %x, {_V32} splat (i32 {neutral})
  %sum = call i32 @llvm.vector.reduce.{reduction}.v32i32({_V32} %y)
  %one = insertelement {_V32} poison, i32 %sum, i64 0
  %all = shufflevector {_V32} %one, {_V32} poison, {_V32} zeroinitializer
  %result.next = select <{LANES} x i1> %on, {_V32} %all, {_V32} %result
  %rest = xor i32 %mask, -1
  %left.next = and i32 %left, %rest
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %group, label %done
done:
  %out = phi {_V32} [ zeroinitializer, %0 ], [ %result.next, %group ]
  ret {_V32} %out
}}
"""


@lowers("redux.int", "redux.bits")
def _redux(e: Emitter, i: Instruction) -> None:
    value, members = (e.read(operand, "i32") for operand in i.operands[1:])
    word = next(m for m in ("add", "min", "max", "and", "or", "xor") if i.has(m))
    sign = i.type[0] if i.row.name == "redux.int" else ""
    reduction, neutral = _REDUCTIONS[word + sign]
    name = e.define(f"redux_{reduction}", lambda: _reduction_function(f"redux_{reduction}", reduction, neutral))
    mask = e.guard_mask()
    call = f"call {_V32} @{name}({e.vector(value).typed}, {e.vector(members).typed}, i32 {mask})"
    result = Value(e.let(call), "i32", False)
    if value.uniform and members.uniform:
        result = first_active(e, result)
    e.write(i.operands[0], result)


def _transposed(e: Emitter, value: Value) -> Value:
    """The transposed 8 x 8 matrix of 16-bit elements: lane l holds elements 2 (l mod 4) and the next of row l / 4."""
    halves = e.let(f"bitcast {e.vector(value).typed} to <{2 * LANES} x i16>")
    indices = ", ".join(f"i32 {8 * column + row}" for row in range(8) for column in range(8))
    turned = e.let(
        f"shufflevector <{2 * LANES} x i16> {halves}, <{2 * LANES} x i16> poison, <{2 * LANES} x i32> <{indices}>"
    )
    return Value(e.let(f"bitcast <{2 * LANES} x i16> {turned} to {_V32}"), "i32", False)


@lowers("movmatrix")
def _movmatrix(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], _transposed(e, e.read(i.operands[1], "i32")))


def _stmatrix_function(count: int) -> str:
    """IR of ``@stmatrix_xN(ctx, site, offsets, mask, data) -> flags``: lane 8m+r addresses row r of matrix m."""
    on = (1 << 8 * count) - 1 if count < 4 else -1
    return f"""define internal i32 @stmatrix_x{count}(ptr %ctx, ptr %site, {_V32} %a, i32 %mask, ptr %data) #1 {{
  %slots = alloca {_V32}, align 64
  %m = and i32 %mask, {on}
  %flags = call i32 @shared_check(ptr %ctx, ptr %site, {_V32} %a, i32 %m, i32 16, i64 {Buffers.WRITE})
  %ok = icmp ne i32 %flags, 0
  %some = icmp ne i32 %m, 0
  %go = and i1 %ok, %some
  store {_V32} %a, ptr %slots, align 64
  %p.sh = getelementptr i8, ptr %ctx, i64 {Context.SHARED}
  %sh = load ptr, ptr %p.sh, align 8
  br i1 %go, label %row, label %done
row:
  %left = phi i32 [ %m, %0 ], [ %left.next, %row ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %sp = getelementptr i32, ptr %slots, i64 %l64
  %offset = load i32, ptr %sp, align 4
  %offset64 = zext i32 %offset to i64
  %to = getelementptr i8, ptr %sh, i64 %offset64
  %from.o = shl i64 %l64, 4
  %from = getelementptr i8, ptr %data, i64 %from.o
  %v = load <2 x i64>, ptr %from, align 16
  store <2 x i64> %v, ptr %to, align 16
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %row, label %stored
stored:
  %there = call <32 x i64> @shared_addresses(ptr %ctx, {_V32} %a)
  %kept = call i32 @observe_stored(ptr %ctx, <{LANES} x i64> %there, i32 %m, i32 %flags, i32 16, ptr %data)
  %lost = icmp eq i32 %kept, 0
  %result = select i1 %lost, i32 0, i32 %flags
  ret i32 %result
done:
  ret i32 %flags
}}
"""


@lowers("stmatrix")
def _stmatrix(e: Emitter, i: Instruction) -> None:
    items = items_of(i.operands[1])
    where = shared_offset(e, i, 0)
    buffer = e.alloca("xfer", LANES * 16)
    for k, item in enumerate(items):
        value = e.read(item, "i32")
        value = _transposed(e, value) if i.has("trans") else e.vector(value)
        # Row r of a matrix is what lanes 4r to 4r+3 hold.
        e.emit(f"store {value.typed}, ptr {e.field(buffer, 128 * k)}, align 64")
    name = e.define(f"stmatrix_x{len(items)}", lambda: _stmatrix_function(len(items)))
    place = site(e, "shared")
    flags = e.let(f"call i32 @{name}(ptr %ctx, ptr {place}, {where.typed}, i32 {e.guard_mask()}, ptr {buffer})")
    fault_unless(e, e.let(f"icmp ne i32 {flags}, 0"))
