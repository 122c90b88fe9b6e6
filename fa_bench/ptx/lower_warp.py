"""Lowering of warp-wide instructions: mma, shuffles, votes."""

from __future__ import annotations

from dataclasses import dataclass, field

from fa_bench.ptx.emitter import IOTA, Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import LANES
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.program import Imm, Instruction, Operand, Pair, Reg, Vec


@dataclass
class Fragments:
    """Expanded mma operands of the block being lowered (see runtime_math).

    An accumulator stays expanded from one mma to the next; its lane form is made when somebody reads it.
    """

    a_buffers: dict[tuple[str, ...], str] = field(default_factory=dict)
    #: registers (d0..d3) -> buffer that holds their current values
    accumulators: dict[tuple[str, ...], str] = field(default_factory=dict)
    c_used: int = 0


def fragments(e: Emitter) -> Fragments:
    """The fragments of the current block."""
    state = e.block_state.get("mma")
    if not isinstance(state, Fragments):
        state = Fragments()
        e.block_state["mma"] = state
    return state


def _regs(operand: Operand) -> tuple[str, ...]:
    if not isinstance(operand, Vec):
        return ()
    return tuple(item.name for item in operand.items if isinstance(item, Reg))


@lowers("mma")
def _mma(e: Emitter, i: Instruction) -> None:
    if i.guard is not None:
        raise UnsupportedInstruction(i.text, i.line)
    d, a, b, c = i.operands
    assert isinstance(d, Vec) and isinstance(a, Vec) and isinstance(b, Vec) and isinstance(c, Vec)
    kind = i.form.types[1]
    e.runtime.update({f"mma_{kind}", f"mma_expand_a_{kind}", "mma_expand_c", "mma_collapse_c"})
    state = fragments(e)
    pa = _expanded_a(e, state, a, kind)
    bv = [e.vector(e.read(item, "i32")) for item in b.items]
    pc = _accumulator(e, state, c, _regs(d))
    room = e.alloca("frag_b", 512)
    e.emit(f"call void @mma_{kind}(ptr {pa}, ptr {pc}, ptr {room}, {bv[0].typed}, {bv[1].typed})")
    names = _regs(d)
    for name in names:
        forget(state, name, keep=pc)

    def force() -> None:
        # A register that was overwritten since then is no longer this product's.
        mine = [(k, n) for k, n in enumerate(names) if e.lazy.get(n) is force]
        out = e.alloca("lanes", 512)
        e.emit(f"call void @mma_collapse_c(ptr {pc}, ptr {out})")
        for k, n in mine:
            del e.lazy[n]
            loaded = e.let(f"load <{LANES} x float>, ptr {e.field(out, 128 * k)}, align 64")
            e.values[n] = Value(loaded, "float", False)

    for name in names:
        e.values.pop(name, None)
        e.lazy[name] = force
        e.written.add(name)
    state.accumulators[names] = pc


def _expanded_a(e: Emitter, state: Fragments, a: Vec, kind: str) -> str:
    values = [e.vector(e.read(item, "i32")) for item in a.items]
    key = (kind, *(v.name for v in values))
    if key not in state.a_buffers:
        buffer = e.alloca(f"frag_a{len(state.a_buffers)}", 1024)
        arguments = ", ".join(v.typed for v in values)
        e.emit(f"call void @mma_expand_a_{kind}(ptr {buffer}, {arguments})")
        state.a_buffers[key] = buffer
    return state.a_buffers[key]


def _accumulator(e: Emitter, state: Fragments, c: Vec, targets: tuple[str, ...]) -> str:
    names = _regs(c)
    if len(names) == 4 and names in state.accumulators and all(n in e.lazy for n in names):
        # In place, unless somebody still wants the old values.
        if any(n not in targets and e.needed_after(n) for n in names):
            e.lazy[names[0]]()
        buffer = state.accumulators.pop(names)
        for n in names:
            e.lazy.pop(n, None)
        return buffer
    values = [e.vector(e.read(item, "float")) for item in c.items]
    buffer = e.alloca(f"frag_c{state.c_used}", 512)
    state.c_used += 1
    arguments = ", ".join(v.typed for v in values)
    e.emit(f"call void @mma_expand_c(ptr {buffer}, {arguments})")
    return buffer


def forget(state: Fragments, name: str, keep: str) -> None:
    """Drop accumulators whose register ``name`` is overwritten."""
    stale = [names for names, buffer in state.accumulators.items() if name in names and buffer != keep]
    for names in stale:
        del state.accumulators[names]


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
        e.runtime.add("permute")
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


@lowers("bar.warp.sync", "membar", "fence")
def _nothing(e: Emitter, i: Instruction) -> None:
    """Lanes of a warp run in step and memory is sequentially consistent here: nothing to order."""
