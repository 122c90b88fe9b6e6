"""ISA rows: floating-point arithmetic and comparison in every format; see :mod:`~fa_bench.ptx.isa_scalar` for the rest.

Directed roundings have rows of their own: they are executed another way than rounding to nearest.
"""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import COMBINE, COMPARE, COMPARE_FLOAT, DIRECTED, INT, ROUNDING, Row, Table

_SET_INTEGER: Final = ("u32", "s32")
_TESTS: Final = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
_SOURCES: Final = ("b16", "b32", "b64", *INT)


def _single(table: Table) -> None:
    f32 = ("f32",)
    for op in ("add", "sub", "mul"):
        table.add(f"{op}.f32", op, "fma", f32, "d,a,b", ("rn", "ftz", "sat"))
        table.add(f"{op}.f32.directed", op, "fma", f32, "d,a,b", ("ftz", "sat"), choose=(DIRECTED,))
        table.add(f"{op}.f32x2", op, "fma", ("f32x2",), "d,a,b", ("rn", "ftz"))
    for op in ("fma", "mad"):
        table.add(f"{op}.f32", op, "fma", f32, "d,a,b,c", ("ftz", "sat"), choose=(("rn",),))
        table.add(f"{op}.f32.directed", op, "fma", f32, "d,a,b,c", ("ftz", "sat"), choose=(DIRECTED,))
    table.add("fma.f32x2", "fma", "fma", ("f32x2",), "d,a,b,c", ("ftz",), choose=(("rn",),))
    table.add("div.f32", "div", "sfu", f32, "d,a,b", ("ftz",), choose=(("rn", "approx", "full"),))
    table.add("div.f32.directed", "div", "sfu", f32, "d,a,b", ("ftz",), choose=(DIRECTED,))
    for op in ("min", "max"):
        table.add(f"{op}.f32", op, "fma", f32, "d,a,b", ("ftz", "NaN"))
    for op in ("abs", "neg"):
        table.add(f"{op}.f32", op, "fma", f32, "d,a", ("ftz",))
    for op in ("rcp", "sqrt"):
        table.add(f"{op}.f32", op, "sfu", f32, "d,a", ("ftz",), choose=(("rn", "approx"),))
        table.add(f"{op}.f32.directed", op, "sfu", f32, "d,a", ("ftz",), choose=(DIRECTED,))
    for op in ("rsqrt", "ex2", "lg2", "sin", "cos"):
        table.add(f"{op}.f32", op, "sfu", f32, "d,a", ("ftz",), choose=(("approx",),))
    table.add("tanh.f32", "tanh", "sfu", f32, "d,a", choose=(("approx",),))
    table.add("copysign", "copysign", "fma", ("f32", "f64"), "d,a,b")
    table.add("testp", "testp", "fma", ("f32", "f64"), "d,a", choose=(_TESTS,))


def _half(table: Table) -> None:
    f16, bf16 = ("f16", "f16x2"), ("bf16", "bf16x2")
    rn = (("rn",),)
    for op in ("add", "sub", "mul"):
        table.add(f"{op}.f16", op, "fma", f16, "d,a,b", ("rn", "ftz", "sat"))
        table.add(f"{op}.bf16", op, "fma", bf16, "d,a,b", ("rn",))
    table.add("fma.f16", "fma", "fma", f16, "d,a,b,c", ("ftz", "sat"), choose=rn)
    table.add("fma.f16.relu", "fma", "fma", f16, "d,a,b,c", ("ftz",), choose=(("rn",), ("relu",)))
    table.add("fma.bf16", "fma", "fma", bf16, "d,a,b,c", ("relu",), choose=rn)
    for op in ("min", "max"):
        table.add(f"{op}.f16", op, "fma", f16, "d,a,b", ("ftz", "NaN"))
        table.add(f"{op}.bf16", op, "fma", bf16, "d,a,b", ("NaN",))
    for op in ("abs", "neg"):
        table.add(f"{op}.f16", op, "fma", f16, "d,a", ("ftz",))
        table.add(f"{op}.bf16", op, "fma", bf16, "d,a")
    approx = (("approx",),)
    table.add("ex2.f16", "ex2", "sfu", f16, "d,a", choose=approx)
    table.add("ex2.bf16", "ex2", "sfu", bf16, "d,a", choose=(("approx",), ("ftz",)))
    table.add("tanh.half", "tanh", "sfu", (*f16, *bf16), "d,a", choose=approx)


def _double(table: Table) -> None:
    f64 = ("f64",)
    for op in ("add", "sub", "mul"):
        table.add(f"{op}.f64", op, "fma", f64, "d,a,b", choose=(("", *ROUNDING),))
    for op in ("fma", "mad"):
        table.add(f"{op}.f64", op, "fma", f64, "d,a,b,c", choose=(ROUNDING,))
    table.add("div.f64", "div", "sfu", f64, "d,a,b", choose=(ROUNDING,))
    for op in ("min", "max"):
        table.add(f"{op}.f64", op, "fma", f64, "d,a,b")
    for op in ("abs", "neg"):
        table.add(f"{op}.f64", op, "fma", f64, "d,a")
    for op in ("rcp", "sqrt"):
        table.add(f"{op}.f64", op, "sfu", f64, "d,a", choose=(ROUNDING,))
    table.add("rcp.approx.f64", "rcp", "sfu", f64, "d,a", choose=(("approx",), ("ftz",)))
    table.add("rsqrt.approx.f64", "rsqrt", "sfu", f64, "d,a", ("ftz",), choose=(("approx",),))


def _compare(table: Table) -> None:
    """``setp`` writes predicates, ``set`` all ones or 1.0; a packed ``setp`` has one predicate per half."""
    for type_, flush in (("f32", ("ftz",)), ("f64", ()), ("f16", ("ftz",)), ("bf16", ())):
        table.add(f"setp.{type_}", "setp", "fma", (type_,), "d,a,b,c", flush, 1, choose=(COMPARE_FLOAT, COMBINE))
        integers = _SET_INTEGER if type_ in ("f32", "f64") else ("u16", "s16", *_SET_INTEGER)
        targets = (*integers, "f32", "f16", "bf16") if type_ in ("f32", "f64") else (*integers, "f16", "bf16")
        table.add(f"set.{type_}", "set", "fma", tuple(dict.fromkeys((*targets, type_))), "d,a,b,c", flush, 1,
            signatures=tuple((t, type_) for t in targets), choose=(COMPARE_FLOAT, COMBINE))  # fmt: skip
    for type_, flush in (("f16x2", ("ftz",)), ("bf16x2", ())):
        table.add(f"setp.{type_}", "setp", "fma", (type_,), "d|q,a,b,c", flush, 1, choose=(COMPARE_FLOAT, COMBINE))
        table.add(f"set.{type_}", "set", "fma", (type_, *_SET_INTEGER), "d,a,b,c", flush, 1,
            signatures=tuple((t, type_) for t in (type_, *_SET_INTEGER)), choose=(COMPARE_FLOAT, COMBINE))  # fmt: skip
    targets = (*_SET_INTEGER, "f32", "f16", "bf16")
    table.add("set.int", "set", "integer", tuple(dict.fromkeys((*targets, *_SOURCES))), "d,a,b,c",
        optional=1, signatures=tuple((t, s) for t in targets for s in _SOURCES),
        choose=(COMPARE, COMBINE))  # fmt: skip


def _rows() -> tuple[Row, ...]:
    table = Table()
    _single(table)
    _half(table)
    _double(table)
    _compare(table)
    return table.rows


ROWS: Final = _rows()
