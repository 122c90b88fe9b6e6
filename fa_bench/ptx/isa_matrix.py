"""ISA rows: matrix products of a warp, ``mma`` and ``wmma``."""

from __future__ import annotations

from itertools import product
from typing import Final

from fa_bench.ptx.isa_row import Row, Table

_F8: Final = ("e4m3", "e5m2")
_I8: Final = ("s8", "u8")
_HALF: Final = (("f32", "f16", "f16", "f32"), ("f16", "f16", "f16", "f16"), ("f32", "bf16", "bf16", "f32"))
_TF32: Final = (("f32", "tf32", "tf32", "f32"),)
_QUARTER: Final = tuple((d, a, b, d) for d in ("f32", "f16") for a, b in product(_F8, _F8))
_INTEGER: Final = tuple(("s32", a, b, "s32") for a, b in product(_I8, _I8))
_DOUBLE: Final = (("f64", "f64", "f64", "f64"),)

#: Shapes of ``mma`` -> family of element types -> signatures (D, A, B, C).
MMA: Final[dict[str, dict[str, tuple[tuple[str, ...], ...]]]] = {
    "m16n8k4": {"tf32": _TF32, "f64": _DOUBLE},
    "m16n8k8": {"half": _HALF, "tf32": _TF32, "f64": _DOUBLE},
    "m16n8k16": {"half": _HALF, "f8": _QUARTER, "int": _INTEGER, "f64": _DOUBLE},
    "m16n8k32": {"f8": _QUARTER, "int": _INTEGER},
    "m8n8k4": {"f64": _DOUBLE},
    "m8n8k16": {"int": _INTEGER},
}

_WMMA_SHAPES: Final = ("m16n16k16", "m32n8k16", "m8n32k16")
_LAYOUTS: Final = ("row", "col")
#: Family of ``wmma`` -> shapes, types of A and B, types of C and D.
WMMA: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    "": (_WMMA_SHAPES, ("f16", "bf16", *_I8), ("f16", "f32", "s32")),
    ".tf32": (("m16n16k8",), ("tf32",), ("f32",)),
    ".f64": (("m8n8k4",), ("f64",), ("f64",)),
}


def _types(signatures: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t for signature in signatures for t in signature))


def _mma(table: Table) -> None:
    for shape, families in MMA.items():
        for family, signatures in families.items():
            table.add(f"mma.{shape}.{family}", f"mma.sync.aligned.{shape}.row.col", "tensor", _types(signatures),
                "d,a,b,c", ("satfinite",) if family == "int" else (), lane_varying=True,
                signatures=signatures)  # fmt: skip


def _wmma(table: Table) -> None:
    """The elements of a ``wmma`` fragment lie as the ISA leaves open: see :mod:`fa_bench.ptx.fragments`."""
    for suffix, (shapes, inputs, accumulators) in WMMA.items():
        choice = (_LAYOUTS, shapes, ("", "global", "shared"))
        for matrix, types in (("a", inputs), ("b", inputs), ("c", accumulators)):
            table.add(f"wmma.load.{matrix}{suffix}", f"wmma.load.{matrix}.sync.aligned", "load-store", types,
                "d,[a],n", (), 1, lane_varying=True, choose=choice)  # fmt: skip
        table.add(f"wmma.store.d{suffix}", "wmma.store.d.sync.aligned", "load-store", accumulators,
            "[a],b,n", (), 1, choose=choice)  # fmt: skip
    op = "wmma.mma.sync.aligned"
    floats = ("f16", "f32")
    half = (*product(floats, floats), ("f32", "bf16", "bf16", "f32"))
    integer = tuple(("s32", t, t, "s32") for t in _I8)
    for name, signatures, shapes, more in (
        ("wmma.mma", half, _WMMA_SHAPES, ()),
        ("wmma.mma.int", integer, _WMMA_SHAPES, ("satfinite",)),
        ("wmma.mma.tf32", _TF32, ("m16n16k8",), ()),
        ("wmma.mma.f64", _DOUBLE, ("m8n8k4",), ("rn",)),
    ):
        table.add(name, op, "tensor", _types(signatures), "d,a,b,c", (*_LAYOUTS, *more), lane_varying=True,
            signatures=signatures, choose=(shapes,))  # fmt: skip


def _rows() -> tuple[Row, ...]:
    table = Table()
    _mma(table)
    _wmma(table)
    return table.rows


ROWS: Final = _rows()
