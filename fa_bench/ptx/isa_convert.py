"""ISA rows: ``cvt`` between integers, f16, bf16, f32, f64, tf32 and packed fp8."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import INT, ROUNDING, ROUNDING_TO_INTEGER, Row, Table

_INTEGERS: Final = (*INT, "u8", "s8")
_FLOATS: Final = ("f16", "bf16", "f32", "f64")
_TWO: Final = ("rn", "rz")
_F8X2: Final = ("e4m3x2", "e5m2x2")
#: Conversions that lose nothing.
_WIDEN: Final = (("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "bf16"), ("f64", "f32"))
#: Conversions that round; f16 and bf16 hold each other's numbers only in part.
_NARROW: Final = (
    ("f16", "f64"), ("bf16", "f64"), ("f32", "f64"), ("f16", "bf16"), ("bf16", "f16"),
)  # fmt: skip


def _rows() -> tuple[Row, ...]:
    table = Table()

    def add(
        name: str,
        signatures: tuple[tuple[str, str], ...],
        modifiers: tuple[str, ...],
        choose: tuple[tuple[str, ...], ...] = (),
        operands: str = "d,a",
    ) -> None:
        types = tuple(dict.fromkeys(t for signature in signatures for t in signature))
        table.add(name, "cvt", "convert", types, operands, modifiers, signatures=signatures, choose=choose)

    add("cvt.int", tuple((d, s) for d in _INTEGERS for s in _INTEGERS), ("sat",))
    add("cvt.float.to.int", tuple((d, s) for d in _INTEGERS for s in _FLOATS),
        ("ftz", "sat"), (ROUNDING_TO_INTEGER,))  # fmt: skip
    add("cvt.int.to.float", tuple((d, s) for d in _FLOATS for s in _INTEGERS), ("sat",), (ROUNDING,))
    add("cvt.same", tuple((f, f) for f in _FLOATS), ("ftz", "sat"), (("", *ROUNDING_TO_INTEGER),))
    add("cvt.widen", _WIDEN, ("ftz", "sat"))
    add("cvt.narrow", _NARROW, ("ftz", "sat"), (ROUNDING,))
    half = (("f16", "f32"), ("bf16", "f32"))
    add("cvt.half", half, ("ftz", "sat"), (ROUNDING,))
    add("cvt.half.relu", half, ("relu", "satfinite"), (_TWO,))
    add("cvt.half.pair", (("f16x2", "f32"), ("bf16x2", "f32")), ("relu", "satfinite"), (_TWO,),
        "d,a,b")  # fmt: skip
    add("cvt.tf32", (("tf32", "f32"),), ("relu", "satfinite"), (_TWO,))
    add("cvt.tf32.away", (("tf32", "f32"),), ("satfinite",), (("rna",),))
    add("cvt.f8", tuple((f, "f32") for f in _F8X2), ("relu",), (("rn",), ("satfinite",)), "d,a,b")
    add("cvt.f8.from.half", tuple((f, "f16x2") for f in _F8X2), ("relu",), (("rn",), ("satfinite",)))
    add("cvt.f8.to.half", tuple(("f16x2", f) for f in _F8X2), ("relu",), (("rn",),))
    return table.rows


ROWS: Final = _rows()
