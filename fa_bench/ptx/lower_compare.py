"""Lowering of comparisons and selections: ``setp``, ``set``, ``selp``, ``slct``."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.emitter import BITS, ELEMENT, Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.isa_row import COMPARE, COMPARE_UNORDERED
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.lower_half import single
from fa_bench.ptx.program import Instruction, Pair
from fa_bench.ptx.wide import PACKED, Wide, flushed, read

_UNSIGNED: Final = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}
_FLOAT: Final = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip
_ONE: Final = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}


def _comparison(e: Emitter, i: Instruction) -> Wide:
    """The truth of ``a CmpOp b``, for each part of a packed type."""
    name = next(c for c in (*COMPARE, *COMPARE_UNORDERED) if i.has(c))
    a, b = read(e, i.operands[1:3], i.type)
    if "f" not in i.type:
        return a.compare(_UNSIGNED.get(name) or ("s" if i.type[0] == "s" else "u") + name, b)
    if i.has("ftz"):
        a, b = flushed(a), flushed(b)
    if i.type.startswith("bf16"):
        a, b = single(a), single(b)
    return a.compare(_FLOAT[name], b)


def _combined(e: Emitter, i: Instruction, values: list[Value]) -> list[Value]:
    """Truth values after ``.and``, ``.or`` or ``.xor`` with the predicate c."""
    combine = next((c for c in ("and", "or", "xor") if i.has(c)), None)
    if (combine is None) != (len(i.operands) == 3):
        raise UnsupportedInstruction(i.text, i.line)
    if combine is None:
        return values
    c = e.read(i.operands[3], "i1")
    return [e.op(f"{combine} {{0}}, {{n1}}", value, c) for value in values]


@lowers(*(f"setp.{t}" for t in ("int", "f32", "f64", "f16", "bf16")))
def _setp(e: Emitter, i: Instruction) -> None:
    truth = _comparison(e, i)
    target = i.operands[0]
    if not isinstance(target, Pair):
        e.write(target, _combined(e, i, [truth.value()])[0])
        return
    both = _combined(e, i, [truth.value(), truth.invert().value()])
    e.write(target.first, both[0])
    e.write(target.second, both[1])


@lowers("setp.f16x2", "setp.bf16x2")
def _setp_packed(e: Emitter, i: Instruction) -> None:
    """p is the truth of the lower halves, q that of the upper ones."""
    target = i.operands[0]
    if not isinstance(target, Pair):
        raise UnsupportedInstruction(i.text, i.line)
    halves = _halves(_comparison(e, i))
    both = _combined(e, i, halves)
    e.write(target.first, both[0])
    e.write(target.second, both[1])


def _halves(truth: Wide) -> list[Value]:
    if truth.count == 2:
        return [truth.at(k).value() for k in range(2)]
    return [truth.pick(range(k, truth.count, 2)).value() for k in range(2)]


@lowers(*(f"set.{t}" for t in ("int", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2")))
def _set(e: Emitter, i: Instruction) -> None:
    """1.0 where true if the target is a float, else all ones; 16 bits for each part of a packed source."""
    to, source = i.form.types
    truth = _comparison(e, i)
    if source not in PACKED:
        elem = f"i{BITS[ELEMENT[to]]}"
        (holds,) = _combined(e, i, [truth.value()])
        e.write(i.operands[0], e.select(holds, e.literal(_ONE.get(to, -1), elem), e.literal(0, elem)))
        return
    low, high = (
        e.select(holds, e.literal(_ONE.get(to, 0xFFFF), "i32"), e.literal(0, "i32"))
        for holds in _combined(e, i, _halves(truth))
    )
    e.write(i.operands[0], e.op("or {0}, {n1}", low, e.op("shl {0}, {n1}", high, e.literal(16, "i32"))))


@lowers("selp")
def _selp(e: Emitter, i: Instruction) -> None:
    elem = ELEMENT[i.type]
    a, b = (e.read(o, elem) for o in i.operands[1:3])
    e.write(i.operands[0], e.select(e.read(i.operands[3], "i1"), a, b))


@lowers("slct.s32", "slct.f32")
def _slct(e: Emitter, i: Instruction) -> None:
    """a where c is at least zero (-0 is, NaN is not), else b."""
    to, source = i.form.types
    a, b = (e.read(o, ELEMENT[to]) for o in i.operands[1:3])
    (c,) = read(e, i.operands[3:], source)
    if i.has("ftz"):
        c = flushed(c)
    chosen = c.compare("sge", 0) if source == "s32" else c.compare("oge", 0.0)
    e.write(i.operands[0], e.select(chosen.value(), a, b))
