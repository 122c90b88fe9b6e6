"""Comparisons in every format, ``set``, ``testp`` and ``slct``. Patterns worked out by hand."""

from __future__ import annotations

import pytest

NAN = {"f64": 0x7FF8 << 48, "f32": 0x7FC00000, "f16": 0x7E00, "bf16": 0x7FC0}
ONE = {"f64": 0x3FF << 52, "f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
TWO = {"f64": 0x400 << 52, "f32": 0x40000000, "f16": 0x4000, "bf16": 0x4000}
BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}

#: Relation -> its truth for (1, 2), (2, 1), (1, 1), (1, NaN).
TRUTH = {
    "eq": "0010", "ne": "1100", "lt": "1000", "le": "1010", "gt": "0100", "ge": "0110",
    "equ": "0011", "neu": "1101", "ltu": "1001", "leu": "1011", "gtu": "0101", "geu": "0111",
    "num": "1110", "nan": "0001",
}  # fmt: skip


def cases(type_: str) -> tuple[list[int], list[int]]:
    one, two, nan = ONE[type_], TWO[type_], NAN[type_]
    return [one, two, one, one], [two, one, one, nan]


@pytest.mark.parametrize("type_", ["f64", "f16", "bf16"])
@pytest.mark.parametrize("relation", TRUTH)
def test_setp(engine, relation, type_):
    """The second predicate is the opposite."""
    a, b = cases(type_)
    found = engine.evaluate(
        f"setp.{relation}.{type_} %p|%q, %a, %b;", {"a": (BITS[type_], a), "b": (BITS[type_], b)}, {"p": 1, "q": 1}
    )
    assert "".join(map(str, found["p"])) == TRUTH[relation]
    assert all(p + q == 1 for p, q in zip(found["p"], found["q"], strict=True))


@pytest.mark.parametrize("type_", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("relation", ["lt", "geu", "nan"])
def test_packed_setp(engine, relation, type_):
    """The first predicate is of the lower halves, the second of the upper ones."""
    a, b = cases(type_[:-2])
    upper = [1, 2, 3, 0]
    found = engine.evaluate(
        f"setp.{relation}.{type_} %p|%q, %a, %b;",
        {
            "a": (32, [a[u] << 16 | low for u, low in zip(upper, a, strict=True)]),
            "b": (32, [b[u] << 16 | low for u, low in zip(upper, b, strict=True)]),
        },
        {"p": 1, "q": 1},
    )
    assert "".join(map(str, found["p"])) == TRUTH[relation]
    assert "".join(map(str, found["q"])) == "".join(TRUTH[relation][u] for u in upper)


def test_setp_combines_and_flushes(engine):
    """p and q are both combined with c. Flushed, the least f16 equals zero; zeros of either sign are equal."""
    inputs = {"a": (16, [0x3C00, 0x3C00]), "b": (16, [0x4000, 0x4000]), "c": (1, [0, 1])}
    found = engine.evaluate("setp.lt.and.f16 %p|%q, %a, %b, %c;", inputs, {"p": 1, "q": 1})
    assert (found["p"], found["q"]) == ([0, 1], [0, 0])
    found = engine.evaluate("setp.lt.xor.f16 %p|%q, %a, %b, !%c;", inputs, {"p": 1, "q": 1})
    assert (found["p"], found["q"]) == ([0, 1], [1, 0])
    inputs = {"a": (16, [1, 0x8000]), "b": (16, [0, 0])}
    assert engine.evaluate("setp.eq.f16 %p, %a, %b;", inputs, {"p": 1})["p"] == [0, 1]
    assert engine.evaluate("setp.eq.ftz.f16 %p, %a, %b;", inputs, {"p": 1})["p"] == [1, 1]


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("set.lt.f32.f32", "32 32 32", [(ONE["f32"], TWO["f32"], ONE["f32"]), (TWO["f32"], ONE["f32"], 0)]),
        ("set.gt.u32.f64", "32 64 64", [(TWO["f64"], ONE["f64"], -1), (NAN["f64"], ONE["f64"], 0)]),
        ("set.gtu.s32.f64", "32 64 64", [(NAN["f64"], ONE["f64"], -1)]),
        ("set.eq.ftz.u32.f32", "32 32 32", [(1, 0x80000001, -1)]),
        ("set.eq.u32.f32", "32 32 32", [(1, 0x80000001, 0), (0, 0x80000000, -1)]),
        ("set.le.u16.f16", "16 16 16", [(0x3C00, 0x3C00, -1), (0x4000, 0x3C00, 0)]),
        ("set.ne.f16.f16", "16 16 16", [(0x3C00, 0x4000, 0x3C00)]),
        ("set.ge.bf16.bf16", "16 16 16", [(0x3F80, 0x3F80, 0x3F80), (0x3F80, 0x4000, 0)]),
        # (2 < 1, 1 < 2)
        ("set.lt.f16x2.f16x2", "32 32 32", [(0x40003C00, 0x3C004000, 0x00003C00)]),
        ("set.lt.u32.f16x2", "32 32 32", [(0x3C004000, 0x40003C00, 0xFFFF0000)]),
        ("set.eq.bf16x2.bf16x2", "32 32 32", [(0x3F803F80, 0x3F804000, 0x3F800000)]),
        ("set.lt.u32.s32", "32 32 32", [(-1, 0, -1), (0, -1, 0)]),
        ("set.lo.f32.u32", "32 32 32", [(-1, 0, 0), (0, -1, ONE["f32"])]),
        ("set.eq.bf16.b16", "16 16 16", [(7, 7, 0x3F80)]),
        ("set.hs.u32.u64", "32 64 64", [(1 << 40, 1, -1)]),
    ],
)
def test_set(engine, op, widths, rows):
    engine.check(op, widths, rows)


def test_set_combines(engine):
    inputs = {"a": (32, [1, 1]), "b": (32, [2, 2]), "c": (1, [0, 1])}
    assert engine.evaluate("set.lt.and.u32.s32 %d, %a, %b, %c;", inputs, {"d": 32})["d"] == [0, 0xFFFFFFFF]
    assert engine.evaluate("set.gt.or.f32.s32 %d, %a, %b, !%c;", inputs, {"d": 32})["d"] == [ONE["f32"], 0]


@pytest.mark.parametrize(
    "question, answers",
    [
        # of 1, 0, the least subnormal, infinity, NaN
        ("finite", "11100"), ("infinite", "00010"), ("number", "11110"), ("notanumber", "00001"),
        ("normal", "11000"), ("subnormal", "00100"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_testp(engine, question, answers, type_):
    infinity = {"f32": 0x7F800000, "f64": 0x7FF << 52}[type_]
    given = [ONE[type_], 0, 1, infinity, NAN[type_]]
    found = engine.evaluate(f"testp.{question}.{type_} %p, %a;", {"a": (BITS[type_], given)}, {"p": 1})["p"]
    assert "".join(map(str, found)) == answers


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("slct.u32.s32", "32 32 32 32", [(1, 2, 0, 1), (1, 2, -1, 2)]),
        ("slct.b64.s32", "64 64 64 32", [(1 << 40, 2, 5, 1 << 40)]),
        # -0 is not below zero, NaN chooses b; a negative subnormal is below zero unless flushed.
        ("slct.f32.f32", "32 32 32 32", [(1, 2, 0x80000000, 1), (1, 2, 0x7FC00000, 2), (1, 2, 0x80000001, 2)]),
        ("slct.ftz.u32.f32", "32 32 32 32", [(1, 2, 0x80000001, 1), (1, 2, 0xBF800000, 2)]),
        ("slct.f64.f32", "64 64 64 32", [(1, 2, 0x3F800000, 1)]),
    ],
)
def test_slct(engine, op, widths, rows):
    engine.check(op, widths, rows)
