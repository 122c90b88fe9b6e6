"""ISA rows: arithmetic, logic, comparison, moves and conversions, lane by lane."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import BITS, COMPARE, COMPARE_UNORDERED, INT, MOVE, ROUNDING, Row, Table

#: Conversions that are executed: between integers, between f32 and integers, and f32 to and from 16-bit floats.
_CONVERSIONS: Final = (
    *((d, s) for d in (*INT, "u8", "s8") for s in (*INT, "u8", "s8")),
    *((d, "f32") for d in INT), *(("f32", s) for s in (*INT, "u8", "s8")), ("f32", "f32"),
    ("f16", "f32"), ("bf16", "f32"), ("f16x2", "f32"), ("bf16x2", "f32"), ("f32", "f16"), ("f32", "bf16"),
)  # fmt: skip


def _rows() -> tuple[Row, ...]:
    table = Table()
    f32 = ("f32",)
    for op in ("add", "sub"):
        table.add(f"{op}.int", op, "integer", INT, "d,a,b")
        table.add(f"{op}.f32", op, "fma", f32, "d,a,b", ("rn", "ftz", "sat"))
    table.add("mul.f32", "mul", "fma", f32, "d,a,b", ("rn", "ftz", "sat"))
    table.add("fma.f32", "fma", "fma", f32, "d,a,b,c", ("rn", "ftz", "sat"))
    table.add("mad.f32", "mad", "fma", f32, "d,a,b,c", ("rn", "ftz", "sat"))
    table.add("mul.lo", "mul.lo", "integer", INT, "d,a,b")
    table.add("mul.hi", "mul.hi", "integer", INT, "d,a,b")
    table.add("mul.wide", "mul.wide", "integer", ("s16", "u16", "s32", "u32"), "d,a,b")
    table.add("mad.lo", "mad.lo", "integer", INT, "d,a,b,c")
    table.add("mad.hi", "mad.hi", "integer", INT, "d,a,b,c")
    table.add("mad.wide", "mad.wide", "integer", ("s16", "u16", "s32", "u32"), "d,a,b,c")
    for op in ("div", "rem"):
        table.add(f"{op}.int", op, "integer", INT, "d,a,b")
    table.add("div.f32", "div", "sfu", f32, "d,a,b", ("rn", "approx", "full", "ftz"))
    for op in ("min", "max"):
        table.add(f"{op}.int", op, "integer", INT, "d,a,b")
        table.add(f"{op}.f32", op, "fma", f32, "d,a,b", ("ftz", "NaN"))
    table.add("abs.int", "abs", "integer", ("s16", "s32", "s64"), "d,a")
    table.add("neg.int", "neg", "integer", ("s16", "s32", "s64"), "d,a")
    for op in ("abs", "neg"):
        table.add(f"{op}.f32", op, "fma", f32, "d,a", ("ftz",))
    for op in ("rcp", "sqrt"):
        table.add(f"{op}.f32", op, "sfu", f32, "d,a", ("rn", "approx", "ftz"))
    for op in ("rsqrt", "ex2", "lg2"):
        table.add(f"{op}.f32", op, "sfu", f32, "d,a", ("approx", "ftz"))
    for op in ("and", "or", "xor"):
        table.add(op, op, "integer", BITS, "d,a,b")
    table.add("not", "not", "integer", BITS, "d,a")
    table.add("shl", "shl", "integer", ("b16", "b32", "b64"), "d,a,b")
    table.add("shr", "shr", "integer", ("b16", "b32", "b64", *INT), "d,a,b")
    for op in ("shf.l", "shf.r"):
        table.add(op, op, "integer", ("b32",), "d,a,b,c", ("wrap", "clamp"))
    table.add("lop3", "lop3", "integer", ("b32",), "d,a,b,c,i")
    table.add("prmt", "prmt", "integer", ("b32",), "d,a,b,c")
    table.add("bfe", "bfe", "integer", ("u32", "s32", "u64", "s64"), "d,a,b,c")
    table.add("bfi", "bfi", "integer", ("b32", "b64"), "d,a,b,c,e")
    table.add("popc", "popc", "integer", ("b32", "b64"), "d,a")
    table.add("clz", "clz", "integer", ("b32", "b64"), "d,a")
    table.add("brev", "brev", "integer", ("b32", "b64"), "d,a")
    table.add("setp.int", "setp", "integer", ("b16", "b32", "b64", *INT), "d,a,b,c", (*COMPARE, "and", "or", "xor"), 1)
    table.add("setp.f32", "setp", "fma", f32, "d,a,b,c", (*COMPARE, *COMPARE_UNORDERED, "and", "or", "xor", "ftz"), 1)
    table.add("selp", "selp", "move", MOVE, "d,a,b,c")
    table.add("mov", "mov", "move", ("pred", *MOVE), "d,a")
    table.add("cvt", "cvt", "convert",
        ("f32", "f16", "bf16", "f16x2", "bf16x2", *INT, "u8", "s8"), "d,a,b",
        (*ROUNDING, "rni", "rzi", "rmi", "rpi", "sat", "ftz", "relu"), 1, signatures=_CONVERSIONS)  # fmt: skip
    return table.rows


ROWS: Final = _rows()
