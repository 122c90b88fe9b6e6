"""ISA rows: integer arithmetic, logic, comparison and moves, lane by lane."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import BITS, COMBINE, COMPARE, INT, MOVE, Row, Table

#: Fixed byte permutations of ``prmt``.
_PERMUTATIONS: Final = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
_WORD: Final = ("u32", "s32")


def _less_common(table: Table) -> None:
    """Integer instructions that compilers emit now and then."""
    for op in ("add", "sub"):
        table.add(f"{op}.sat", op, "integer", ("s32",), "d,a,b", choose=(("sat",),))
    table.add("add.16x2", "add", "integer", ("u16x2", "s16x2"), "d,a,b")
    for op in ("min", "max"):
        table.add(f"{op}.16x2", op, "integer", ("u16x2", "s16x2"), "d,a,b")
        table.add(f"{op}.relu", op, "integer", ("s32", "s16x2"), "d,a,b", choose=(("relu",),))
    table.add("mad.hi.sat", "mad.hi", "integer", ("s32",), "d,a,b,c", choose=(("sat",),))
    for half in ("lo", "hi"):
        table.add(f"mul24.{half}", f"mul24.{half}", "integer", _WORD, "d,a,b")
        table.add(f"mad24.{half}", f"mad24.{half}", "integer", _WORD, "d,a,b,c")
    table.add("mad24.hi.sat", "mad24.hi", "integer", ("s32",), "d,a,b,c", choose=(("sat",),))
    table.add("sad", "sad", "integer", INT, "d,a,b,c")
    pairs = tuple((a, b) for a in _WORD for b in _WORD)
    table.add("dp4a", "dp4a", "integer", _WORD, "d,a,b,c", signatures=pairs)
    for half in ("lo", "hi"):
        table.add(f"dp2a.{half}", f"dp2a.{half}", "integer", _WORD, "d,a,b,c", signatures=pairs)
    table.add("bfind", "bfind", "integer", ("u32", "s32", "u64", "s64"), "d,a", ("shiftamt",))
    table.add("cnot", "cnot", "integer", ("b16", "b32", "b64"), "d,a")
    ends = (("wrap", "clamp"),)
    table.add("bmsk", "bmsk", "integer", ("b32",), "d,a,b", choose=ends)
    table.add("szext", "szext", "integer", _WORD, "d,a,b", choose=ends)
    slct = tuple(t for t in MOVE if t not in ("f16", "bf16"))
    for type_, flush in (("s32", ()), ("f32", ("ftz",))):
        table.add(f"slct.{type_}", "slct", "move", tuple(dict.fromkeys((*slct, type_))), "d,a,b,c", flush,
            signatures=tuple((t, type_) for t in slct))  # fmt: skip


def _carries(table: Table) -> None:
    """Multi-word arithmetic through the carry flag."""
    types = ("u32", "s32", "u64", "s64")
    for op in ("add", "sub"):
        table.add(f"{op}.cc", f"{op}.cc", "integer", types, "d,a,b", carry="out")
        table.add(f"{op}c", f"{op}c", "integer", types, "d,a,b", carry="in")
        table.add(f"{op}c.cc", f"{op}c.cc", "integer", types, "d,a,b", carry="in out")
    for half in ("lo", "hi"):
        table.add(f"mad.{half}.cc", f"mad.{half}.cc", "integer", types, "d,a,b,c", carry="out")
        table.add(f"madc.{half}", f"madc.{half}", "integer", types, "d,a,b,c", carry="in")
        table.add(f"madc.{half}.cc", f"madc.{half}.cc", "integer", types, "d,a,b,c", carry="in out")


def _rows() -> tuple[Row, ...]:
    table = Table()
    _less_common(table)
    _carries(table)
    for op in ("add", "sub"):
        table.add(f"{op}.int", op, "integer", INT, "d,a,b")
    table.add("mul.lo", "mul.lo", "integer", INT, "d,a,b")
    table.add("mul.hi", "mul.hi", "integer", INT, "d,a,b")
    table.add("mul.wide", "mul.wide", "integer", ("s16", "u16", "s32", "u32"), "d,a,b")
    table.add("mad.lo", "mad.lo", "integer", INT, "d,a,b,c")
    table.add("mad.hi", "mad.hi", "integer", INT, "d,a,b,c")
    table.add("mad.wide", "mad.wide", "integer", ("s16", "u16", "s32", "u32"), "d,a,b,c")
    for op in ("div", "rem"):
        table.add(f"{op}.int", op, "integer", INT, "d,a,b")
    for op in ("min", "max"):
        table.add(f"{op}.int", op, "integer", INT, "d,a,b")
    table.add("abs.int", "abs", "integer", ("s16", "s32", "s64"), "d,a")
    table.add("neg.int", "neg", "integer", ("s16", "s32", "s64"), "d,a")
    for op in ("and", "or", "xor"):
        table.add(op, op, "integer", BITS, "d,a,b")
    table.add("not", "not", "integer", BITS, "d,a")
    table.add("shl", "shl", "integer", ("b16", "b32", "b64"), "d,a,b")
    table.add("shr", "shr", "integer", ("b16", "b32", "b64", *INT), "d,a,b")
    for op in ("shf.l", "shf.r"):
        table.add(op, op, "integer", ("b32",), "d,a,b,c", ("wrap", "clamp"))
    table.add("lop3", "lop3", "integer", ("b32",), "d,a,b,c,i")
    table.add("prmt", "prmt", "integer", ("b32",), "d,a,b,c")
    table.add("prmt.mode", "prmt", "integer", ("b32",), "d,a,b,c", choose=(_PERMUTATIONS,))
    table.add("bfe", "bfe", "integer", ("u32", "s32", "u64", "s64"), "d,a,b,c")
    table.add("bfi", "bfi", "integer", ("b32", "b64"), "d,a,b,c,e")
    table.add("popc", "popc", "integer", ("b32", "b64"), "d,a")
    table.add("clz", "clz", "integer", ("b32", "b64"), "d,a")
    table.add("brev", "brev", "integer", ("b32", "b64"), "d,a")
    table.add("setp.int", "setp", "integer", ("b16", "b32", "b64", *INT), "d,a,b,c",
        optional=1, choose=(COMPARE, COMBINE))  # fmt: skip
    table.add("selp", "selp", "move", MOVE, "d,a,b,c")
    table.add("mov", "mov", "move", ("pred", *MOVE), "d,a")
    return table.rows


ROWS: Final = _rows()
