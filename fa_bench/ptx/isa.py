"""The instruction set as data: one row per instruction form that the emulator executes.

A row says how an instruction is spelled, which types and modifiers it takes, what its operands are and which
class it counts as. The parser refuses whatever no row covers. The lowering (``lower_*.py``) and the interpreter
(``interpreter.py``) each register one function per row name; a test demands that both are complete.

Source of all forms: NVIDIA, "Parallel Thread Execution ISA", sections named after the instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.errors import FaBenchError

InstructionClass = Literal["tensor", "fma", "sfu", "integer", "convert", "move", "load-store", "sync", "control"]


class PtxError(FaBenchError):
    """PTX text that cannot be read."""


class UnsupportedInstruction(PtxError):
    """An instruction that no ISA row covers; the message names it and its line."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(f"The emulator does not know the instruction {text!r} (PTX line {line}).")
        self.text = text
        self.line = line


#: Bits of each PTX type.
TYPE_BITS: Final[dict[str, int]] = {
    "pred": 1,
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64,
}  # fmt: skip

_INT16: Final = ("s16", "u16")
_INT: Final = (*_INT16, "s32", "u32", "s64", "u64")
_BITS: Final = ("pred", "b16", "b32", "b64")
_MOVE: Final = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16")
_MEMORY: Final = ("b8", "u8", "s8", *_MOVE)
_COMPARE: Final = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs")
_COMPARE_UNORDERED: Final = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
#: Conversions that are executed: between integers, between f32 and integers, and f32 to and from 16-bit floats.
_CONVERSIONS: Final = (
    *((d, s) for d in (*_INT, "u8", "s8") for s in (*_INT, "u8", "s8")),
    *((d, "f32") for d in _INT), *(("f32", s) for s in (*_INT, "u8", "s8")), ("f32", "f32"),
    ("f16", "f32"), ("bf16", "f32"), ("f16x2", "f32"), ("bf16x2", "f32"), ("f32", "f16"), ("f32", "bf16"),
)  # fmt: skip
_CACHE: Final = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::no_allocate", "L2::128B", "L2::256B", "L2::64B")
_ORDER: Final = ("weak", "volatile", "relaxed", "cta", "gpu", "sys")


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction form.

    Parameters
    ----------
    name : str
        Key of its semantics, unique.
    op : str
        Opcode as written, with the modifiers that select the operation (``mul.lo``, ``cp.async``).
    klass : InstructionClass
        What it counts as in the instruction mix.
    types : tuple of str
        Types that may stand in the opcode; empty for untyped instructions.
    modifiers : tuple of str
        Further suffixes that are allowed.
    operands : str
        Operand roles in order: ``d`` destination, ``a b c`` sources, ``[a]`` address, ``L`` label.
    optional : int
        How many trailing operands may be missing.
    lane_varying : bool
        True if the result differs between lanes although all sources are uniform.
    signatures : tuple of tuple of str
        If not empty: the exact sequences of types that are executed (``("f16x2", "f32")`` for a conversion).
    """

    name: str
    op: str
    klass: InstructionClass
    types: tuple[str, ...] = ()
    modifiers: tuple[str, ...] = ()
    operands: str = ""
    optional: int = 0
    lane_varying: bool = False
    signatures: tuple[tuple[str, ...], ...] = ()

    @property
    def writes(self) -> bool:
        """Whether the first operand is a destination register (or a vector of them)."""
        return self.operands.startswith("d")


def _rows() -> tuple[Row, ...]:
    rows: list[Row] = []

    def row(name: str, op: str, klass: InstructionClass, types: tuple[str, ...], operands: str,
            modifiers: tuple[str, ...] = (), optional: int = 0, lane_varying: bool = False,
            signatures: tuple[tuple[str, ...], ...] = ()) -> None:  # fmt: skip
        rows.append(Row(name, op, klass, types, modifiers, operands, optional, lane_varying, signatures))

    f32 = ("f32",)
    rounding = ("rn", "rz", "rm", "rp")
    for op in ("add", "sub"):
        row(f"{op}.int", op, "integer", _INT, "d,a,b")
        row(f"{op}.f32", op, "fma", f32, "d,a,b", ("rn", "ftz", "sat"))
    row("mul.f32", "mul", "fma", f32, "d,a,b", ("rn", "ftz", "sat"))
    row("fma.f32", "fma", "fma", f32, "d,a,b,c", ("rn", "ftz", "sat"))
    row("mad.f32", "mad", "fma", f32, "d,a,b,c", ("rn", "ftz", "sat"))
    row("mul.lo", "mul.lo", "integer", _INT, "d,a,b")
    row("mul.hi", "mul.hi", "integer", _INT, "d,a,b")
    row("mul.wide", "mul.wide", "integer", ("s16", "u16", "s32", "u32"), "d,a,b")
    row("mad.lo", "mad.lo", "integer", _INT, "d,a,b,c")
    row("mad.hi", "mad.hi", "integer", _INT, "d,a,b,c")
    row("mad.wide", "mad.wide", "integer", ("s16", "u16", "s32", "u32"), "d,a,b,c")
    for op in ("div", "rem"):
        row(f"{op}.int", op, "integer", _INT, "d,a,b")
    row("div.f32", "div", "sfu", f32, "d,a,b", ("rn", "approx", "full", "ftz"))
    for op in ("min", "max"):
        row(f"{op}.int", op, "integer", _INT, "d,a,b")
        row(f"{op}.f32", op, "fma", f32, "d,a,b", ("ftz", "NaN"))
    row("abs.int", "abs", "integer", ("s16", "s32", "s64"), "d,a")
    row("neg.int", "neg", "integer", ("s16", "s32", "s64"), "d,a")
    for op in ("abs", "neg"):
        row(f"{op}.f32", op, "fma", f32, "d,a", ("ftz",))
    for op in ("rcp", "sqrt"):
        row(f"{op}.f32", op, "sfu", f32, "d,a", ("rn", "approx", "ftz"))
    for op in ("rsqrt", "ex2", "lg2"):
        row(f"{op}.f32", op, "sfu", f32, "d,a", ("approx", "ftz"))
    for op in ("and", "or", "xor"):
        row(op, op, "integer", _BITS, "d,a,b")
    row("not", "not", "integer", _BITS, "d,a")
    row("shl", "shl", "integer", ("b16", "b32", "b64"), "d,a,b")
    row("shr", "shr", "integer", ("b16", "b32", "b64", *_INT), "d,a,b")
    for op in ("shf.l", "shf.r"):
        row(op, op, "integer", ("b32",), "d,a,b,c", ("wrap", "clamp"))
    row("lop3", "lop3", "integer", ("b32",), "d,a,b,c,i")
    row("prmt", "prmt", "integer", ("b32",), "d,a,b,c")
    row("bfe", "bfe", "integer", ("u32", "s32", "u64", "s64"), "d,a,b,c")
    row("bfi", "bfi", "integer", ("b32", "b64"), "d,a,b,c,e")
    row("popc", "popc", "integer", ("b32", "b64"), "d,a")
    row("clz", "clz", "integer", ("b32", "b64"), "d,a")
    row("brev", "brev", "integer", ("b32", "b64"), "d,a")
    row("setp.int", "setp", "integer", ("b16", "b32", "b64", *_INT), "d,a,b,c", (*_COMPARE, "and", "or", "xor"), 1)
    row("setp.f32", "setp", "fma", f32, "d,a,b,c", (*_COMPARE, *_COMPARE_UNORDERED, "and", "or", "xor", "ftz"), 1)
    row("selp", "selp", "move", _MOVE, "d,a,b,c")
    row("mov", "mov", "move", ("pred", *_MOVE), "d,a")
    row("cvt", "cvt", "convert",
        ("f32", "f16", "bf16", "f16x2", "bf16x2", *_INT, "u8", "s8"), "d,a,b",
        (*rounding, "rni", "rzi", "rmi", "rpi", "sat", "ftz", "relu"), 1, signatures=_CONVERSIONS)  # fmt: skip
    row("cvta", "cvta", "move", ("u64", "u32"), "d,a", ("global", "shared", "param"))
    row("cvta.to", "cvta.to", "move", ("u64", "u32"), "d,a", ("global", "shared", "param"))
    row("ld.param", "ld.param", "load-store", _MEMORY, "d,[a]", ("v2", "v4"))
    for space in ("global", "shared"):
        row(f"ld.{space}", f"ld.{space}", "load-store", _MEMORY, "d,[a]", ("v2", "v4", *_CACHE, *_ORDER))
        row(f"st.{space}", f"st.{space}", "load-store", _MEMORY, "[a],b", ("v2", "v4", *_CACHE, *_ORDER))
    row("ldmatrix", "ldmatrix.sync.aligned", "load-store", ("b16",), "d,[a]",
        ("m8n8", "x1", "x2", "x4", "trans", "shared"), lane_varying=True)  # fmt: skip
    row("mma", "mma.sync.aligned", "tensor", ("f32", "f16", "bf16"), "d,a,b,c",
        ("m16n8k16", "row", "col"), lane_varying=True,
        signatures=(("f32", "f16", "f16", "f32"), ("f32", "bf16", "bf16", "f32")))  # fmt: skip
    row("cp.async", "cp.async", "load-store", (), "[d],[a],n,b",
        ("ca", "cg", "shared", "global", "L2::64B", "L2::128B", "L2::256B"), 1)  # fmt: skip
    row("cp.async.commit_group", "cp.async.commit_group", "sync", (), "")
    row("cp.async.wait_group", "cp.async.wait_group", "sync", (), "n")
    row("cp.async.wait_all", "cp.async.wait_all", "sync", (), "")
    row("bar.sync", "bar.sync", "sync", (), "n,n", (), 1)
    row("barrier.sync", "barrier.sync", "sync", (), "n,n", ("aligned",), 1)
    row("bar.warp.sync", "bar.warp.sync", "sync", (), "m")
    row("membar", "membar", "sync", (), "", ("cta", "gl", "sys"))
    row("fence", "fence", "sync", (), "", ("sc", "acq_rel", "cta", "gpu", "sys"))
    row("shfl.sync", "shfl.sync", "integer", ("b32",), "d,a,b,c,m", ("up", "down", "bfly", "idx"), lane_varying=True)
    row("vote.sync", "vote.sync", "integer", ("pred", "b32"), "d,a,m", ("all", "any", "uni", "ballot"))
    row("activemask", "activemask", "integer", ("b32",), "d")
    row("bra", "bra", "control", (), "L", ("uni",))
    row("ret", "ret", "control", (), "", ("uni",))
    row("exit", "exit", "control", (), "")
    row("trap", "trap", "control", (), "")
    return tuple(rows)


ROWS: Final[tuple[Row, ...]] = _rows()
_BY_OP: Final[dict[str, list[Row]]] = {}
for _row in ROWS:
    _BY_OP.setdefault(_row.op, []).append(_row)
_LONGEST_OP: Final = max(op.count(".") + 1 for op in _BY_OP)


@dataclass(frozen=True, slots=True)
class Form:
    """An opcode matched to its row: the types in written order and the modifiers."""

    row: Row
    types: tuple[str, ...]
    modifiers: frozenset[str]


def match(opcode: str) -> Form | None:
    """Find the row that covers ``opcode`` (e.g. ``mul.wide.s32``), or None."""
    parts = opcode.split(".")
    for length in range(min(len(parts), _LONGEST_OP), 0, -1):
        rows = _BY_OP.get(".".join(parts[:length]))
        if rows is None:
            continue
        rest = parts[length:]
        types = tuple(p for p in rest if p in TYPE_BITS)
        modifiers = frozenset(p for p in rest if p not in TYPE_BITS)
        for row in rows:
            if (
                bool(types) == bool(row.types)
                and set(types) <= set(row.types)
                and modifiers <= set(row.modifiers)
                and (not row.signatures or types in row.signatures)
            ):
                return Form(row, types, modifiers)
    return None
