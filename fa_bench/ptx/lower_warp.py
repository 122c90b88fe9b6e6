"""Lowering of warp-wide instructions: shuffles, votes."""

from __future__ import annotations

from fa_bench.ptx import host, runtime_math
from fa_bench.ptx.emitter import IOTA, Emitter, Value
from fa_bench.ptx.layout import LANES
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.program import Imm, Instruction, Pair


def shuffle_sources(mode: str, step: int, clamp: int) -> list[tuple[int, bool]]:
    """Source lane and predicate of each lane (PTX ISA, "shfl.sync"); out of range keeps its own lane.

    Parameters
    ----------
    mode : {"up", "down", "bfly", "idx"}
    step, clamp : int
        Operands b and c: lane or offset, and the segment mask (bits 8 to 12) with the clamp (bits 0 to 4).
    """
    segment, limit, step = clamp >> 8 & 31, clamp & 31, step & 31
    result = []
    for lane in range(LANES):
        first = lane & segment
        last = first | (limit & ~segment & 31)
        source = {
            "up": lane - step,
            "down": lane + step,
            "bfly": lane ^ step,
            "idx": first | (step & ~segment & 31),
        }[mode]
        inside = source >= last if mode == "up" else source <= last
        result.append((source if inside else lane, inside))
    return result


@lowers("shfl.sync")
def _shfl(e: Emitter, i: Instruction) -> None:
    value = e.vector(e.read(i.operands[1], "i32"))
    mode = next(m for m in ("up", "down", "bfly", "idx") if i.has(m))
    step, clamp = i.operands[2], i.operands[3]
    if isinstance(step, Imm) and isinstance(clamp, Imm):
        table = shuffle_sources(mode, int(step.value), int(clamp.value))
        lanes = ", ".join(f"i32 {source}" for source, _ in table)
        moved = e.let(f"shufflevector {value.typed}, {value.type} poison, <{LANES} x i32> <{lanes}>")
        flags = ", ".join(f"i1 {str(inside).lower()}" for _, inside in table)
        inside = Value(f"<{flags}>", "i1", False)
    else:
        source, inside = _dynamic_sources(e, i, mode)
        e.define("permute", lambda: runtime_math.permute(host.has("avx512f")))
        moved = e.let(f"call <{LANES} x i32> @permute({value.typed}, {source.typed})")
    target = i.operands[0]
    if isinstance(target, Pair):
        e.write(target.second, inside)
        target = target.first
    e.write(target, Value(moved, "i32", False))


def _dynamic_sources(e: Emitter, i: Instruction, mode: str) -> tuple[Value, Value]:
    """:func:`shuffle_sources` for operands that are registers."""
    b = e.op("and {0}, {n1}", e.read(i.operands[2], "i32"), e.literal(31, "i32"))
    c = e.read(i.operands[3], "i32")
    lane = Value(IOTA, "i32", False)
    segment = e.op("and {0}, {n1}", e.op("lshr {0}, {n1}", c, e.literal(8, "i32")), e.literal(31, "i32"))
    first = e.op("and {0}, {n1}", lane, segment)
    free = e.op("xor {0}, {n1}", segment, e.literal(31, "i32"))
    last = e.op("or {0}, {n1}", first, e.op("and {0}, {n1}", c, free))
    if mode == "idx":
        source = e.op("or {0}, {n1}", first, e.op("and {0}, {n1}", b, free))
    else:
        source = e.op({"up": "sub", "down": "add", "bfly": "xor"}[mode] + " {0}, {n1}", lane, b)
    inside = e.op(f"icmp {'sge' if mode == 'up' else 'sle'} {{0}}, {{n1}}", source, last, elem="i1")
    return e.select(inside, source, lane), inside


@lowers("vote.sync")
def _vote(e: Emitter, i: Instruction) -> None:
    """Lanes may vote in groups, each under its own member mask."""
    predicate = e.vector(e.read(i.operands[1], "i1"))
    active = Value(e.guard_mask(), "i32", True)
    yes = Value(e.let(f"bitcast {predicate.typed} to i32"), "i32", True)
    members = e.op("and {0}, {n1}", e.read(i.operands[2], "i32"), active)
    votes = e.op("and {0}, {n1}", members, yes)
    if i.has("ballot"):
        e.write(i.operands[0], votes)
        return
    every = e.op("icmp eq {0}, {n1}", votes, members, elem="i1")
    none = e.op("icmp eq {0}, {n1}", votes, e.literal(0, "i32"), elem="i1")
    if i.has("all"):
        result = every
    elif i.has("any"):
        result = e.op("xor {0}, {n1}", none, Value("true", "i1", True))
    else:
        result = e.op("or {0}, {n1}", every, none)
    e.write(i.operands[0], result)


@lowers("activemask")
def _activemask(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], Value(e.mask(), "i32", True))
