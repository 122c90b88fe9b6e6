"""f64, directed roundings, and the other single-precision forms. Patterns worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

ONE, MINUS, TWO, HALF = 0x3FF << 52, 0xBFF << 52, 0x400 << 52, 0x3FE << 52
INF, NAN, LARGEST, SIGN = 0x7FF << 52, 0x7FF8 << 48, (0x7FF << 52) - 1, 1 << 63
#: 2^-53, half a step above 1.
TINY = (0x3FF - 53) << 52


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("add.f64", "64 64 64", [(ONE, TINY, ONE), (ONE + 1, TINY, ONE + 2), (1, 1, 2), (INF, INF | SIGN, "nan")]),
        ("add.rz.f64", "64 64 64", [(ONE + 1, TINY, ONE + 1), (LARGEST, LARGEST, LARGEST), (ONE, MINUS, 0)]),
        ("add.rm.f64", "64 64 64", [(MINUS, TINY | SIGN, MINUS + 1), (ONE, TINY, ONE), (ONE, MINUS, SIGN)]),
        ("add.rp.f64", "64 64 64", [(ONE, TINY, ONE + 1), (ONE, 1, ONE + 1), (LARGEST, LARGEST, INF), (ONE, MINUS, 0)]),
        ("sub.rn.f64", "64 64 64", [(TWO, ONE, ONE), (SIGN, 0, SIGN), (0, 0, 0)]),
        # (1 + 2^-52)^2 = 1 + 2^-51 + 2^-104.
        ("mul.rn.f64", "64 64 64", [(ONE + 1, ONE + 1, ONE + 2), (LARGEST, TWO, INF), (INF, 0, "nan")]),
        ("mul.rp.f64", "64 64 64", [(ONE + 1, ONE + 1, ONE + 3), (1, HALF, 1)]),
        ("mul.rz.f64", "64 64 64", [(1, HALF, 0), (1 | SIGN, HALF, SIGN)]),
        # The same minus 1 keeps the last bit: 2^-51 + 2^-104 = 2^-51 (1 + 2^-53) rounds to 2^-51, or up by one step.
        ("fma.rn.f64", "64 64 64 64", [(ONE + 1, ONE + 1, MINUS, 0x3CC << 52), (ONE, ONE, MINUS, 0)]),
        ("fma.rp.f64", "64 64 64 64", [(ONE + 1, ONE + 1, MINUS, (0x3CC << 52) + 1)]),
        ("fma.rm.f64", "64 64 64 64", [(ONE, ONE, MINUS, SIGN)]),
        ("mad.rn.f64", "64 64 64 64", [(TWO, TWO, ONE, 0x4014 << 48)]),
        (
            "div.rn.f64",
            "64 64 64",
            [(ONE, 0x4008 << 48, 0x3FD5555555555555), (ONE, 0, INF), (0, 0, "nan"), (ONE, INF, 0)],
        ),
        ("div.rp.f64", "64 64 64", [(ONE, 0x4008 << 48, 0x3FD5555555555556)]),
        ("div.rm.f64", "64 64 64", [(MINUS, 0x4008 << 48, 0xBFD5555555555556)]),
        ("rcp.rn.f64", "64 64", [(TWO, HALF), (0, INF), (SIGN, INF | SIGN), (0x4008 << 48, 0x3FD5555555555555)]),
        ("rcp.rp.f64", "64 64", [(0x4008 << 48, 0x3FD5555555555556)]),
        # The root of 2 is 1.6A09E667F3BCC908...
        (
            "sqrt.rn.f64",
            "64 64",
            [(TWO, 0x3FF6A09E667F3BCD), (0x401 << 52, TWO), (SIGN, SIGN), (MINUS, "nan"), (INF, INF)],
        ),
        ("sqrt.rm.f64", "64 64", [(TWO, 0x3FF6A09E667F3BCC)]),
        ("sqrt.rz.f64", "64 64", [(TWO, 0x3FF6A09E667F3BCC)]),
        ("sqrt.rp.f64", "64 64", [(1, (0x3FF - 537) << 52)]),
        ("min.f64", "64 64 64", [(ONE, TWO, ONE), (NAN, TWO, TWO), (0, SIGN, SIGN), (NAN, NAN, "nan")]),
        ("max.f64", "64 64 64", [(SIGN, 0, 0), (INF | SIGN, MINUS, MINUS)]),
        ("abs.f64", "64 64", [(MINUS, ONE), (SIGN | 1, 1)]),
        ("neg.f64", "64 64", [(ONE, MINUS), (0, SIGN)]),
        ("copysign.f64", "64 64 64", [(SIGN, ONE, MINUS), (0, MINUS, ONE)]),
    ],
)
def test_double(engine, op, widths, rows):
    engine.check(op, widths, rows)


F1, F2, F3, FMAX, FINF, FSIGN = 0x3F800000, 0x40000000, 0x40400000, 0x7F7FFFFF, 0x7F800000, 0x80000000
#: 2^-24, half a step above 1.
FTINY = 0x33800000


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("add.rz.f32", "32 32 32", [(F1 + 1, FTINY, F1 + 1), (FMAX, FMAX, FMAX), (F1, F1 | FSIGN, 0)]),
        (
            "add.rm.f32",
            "32 32 32",
            [(F1, FTINY, F1), (F1 | FSIGN, 1 | FSIGN, (F1 | FSIGN) + 1), (F1, F1 | FSIGN, FSIGN)],
        ),
        ("add.rp.f32", "32 32 32", [(F1, 1, F1 + 1), (FMAX, 1, FINF), (FMAX | FSIGN, FMAX | FSIGN, FMAX | FSIGN)]),
        # Flushed, the least subnormal is no reason to round up; and .sat ends at 1.
        ("add.rp.ftz.f32", "32 32 32", [(F1, 1, F1)]),
        ("add.rp.sat.f32", "32 32 32", [(F1, 1, F1), (F1 | FSIGN, 0, 0)]),
        ("sub.rz.f32", "32 32 32", [(F1, 1, 0x3F7FFFFF)]),
        ("mul.rp.f32", "32 32 32", [(F1 + 1, F1 + 1, F1 + 3), (1, 1, 1)]),
        ("mul.rz.f32", "32 32 32", [(F1 + 1, F1 + 1, F1 + 2), (1, 1, 0), (FMAX, F2, FMAX)]),
        ("fma.rm.f32", "32 32 32 32", [(F1, F1, F1 | FSIGN, FSIGN), (F1 + 1, F1 + 1, 0, F1 + 2)]),
        ("fma.rp.f32", "32 32 32 32", [(F1 + 1, F1 + 1, 0, F1 + 3), (F1, F1, 1, F1 + 1)]),
        ("mad.rz.f32", "32 32 32 32", [(F3, F3, F1, 0x41200000)]),
        ("div.rz.f32", "32 32 32", [(F1, F3, 0x3EAAAAAA), (F1, 0, FINF)]),
        ("div.rp.f32", "32 32 32", [(F1, F3, 0x3EAAAAAB), (F1 | FSIGN, F3, 0xBEAAAAAA)]),
        ("rcp.rm.f32", "32 32", [(F3, 0x3EAAAAAA), (F3 | FSIGN, 0xBEAAAAAB)]),
        # The root of 2 is 1.6A09E6 67F..., of which f32 has 3FB504F3 below.
        ("sqrt.rp.f32", "32 32", [(F2, 0x3FB504F4), (0x40800000, F2)]),
        ("sqrt.rz.f32", "32 32", [(F2, 0x3FB504F3)]),
        ("add.rn.f32x2", "64 64 64", [(F1 << 32 | F2, F1 << 32 | F1, F2 << 32 | F3)]),
        ("sub.f32x2", "64 64 64", [(F2 << 32 | F1, F1 << 32 | F1, F1 << 32)]),
        ("mul.ftz.f32x2", "64 64 64", [(F2 << 32 | 1, F2 << 32 | F1, 0x40800000 << 32)]),
        ("fma.rn.f32x2", "64 64 64 64", [(F2 << 32 | F1, F2 << 32 | F1, F1 << 32 | F1, 0x40A00000 << 32 | F2)]),
        ("copysign.f32", "32 32 32", [(FSIGN, F1, F1 | FSIGN), (F1, FINF | FSIGN, FINF)]),
    ],
)
def test_single_in_other_roundings_and_packed(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, function, sources, bound",
    [
        # PTX ISA: 2^-20.5 absolute within two periods (sin, cos); 2^-11 relative (tanh).
        ("sin.approx.f32", np.sin, np.linspace(-6.2, 6.2, 32), (0, 2**-20.5)),
        ("cos.approx.f32", np.cos, np.linspace(-6.2, 6.2, 32), (0, 2**-20.5)),
        ("tanh.approx.f32", np.tanh, np.linspace(-9, 9, 32), (2**-11, 0)),
    ],
)
def test_transcendental(engine, op, function, sources, bound):
    given = sources.astype(np.float32)
    patterns = [int(v) for v in given.view(np.uint32)]
    results = engine.evaluate(f"{op} %d, %a;", {"a": (32, patterns)}, {"d": 32})["d"]
    found = np.array(results, np.uint32).view(np.float32).astype(np.float64)
    exact = function(given.astype(np.float64))
    assert np.all(np.abs(found - exact) <= np.abs(exact) * bound[0] + bound[1])


def test_transcendental_at_their_ends(engine):
    engine.check("sin.approx.f32", "32 32", [(0, 0), (FSIGN, FSIGN), (FINF, "nan")])
    engine.check("cos.approx.f32", "32 32", [(0, F1), (FINF | FSIGN, "nan")])
    engine.check("sin.approx.ftz.f32", "32 32", [(FSIGN | 1, FSIGN)])
    engine.check("tanh.approx.f32", "32 32", [(FINF, F1), (FINF | FSIGN, F1 | FSIGN), (0x7FC00000, "nan")])


def test_coarse_reciprocals(engine):
    """The .ftz forms use the upper half of the source and give an upper half; 20 bits of mantissa are in it."""
    for op, function in (("rcp.approx.ftz.f64", lambda x: 1 / x), ("rsqrt.approx.f64", lambda x: x**-0.5)):
        given = np.array([3.0, 0.7, 1e300, 5e-200, 2.0])
        results = engine.evaluate(f"{op} %d, %a;", {"a": (64, [int(v) for v in given.view(np.uint64)])}, {"d": 64})["d"]
        found = np.array(results, np.uint64).view(np.float64)
        assert np.all(np.abs(found / function(given) - 1) < 2**-19)
        assert ".ftz" not in op or all(r & 0xFFFFFFFF == 0 for r in results)
    engine.check("rcp.approx.ftz.f64", "64 64", [(0, INF), (SIGN, INF | SIGN), (INF, 0), (NAN, "nan"), (1, INF)])
    engine.check("rsqrt.approx.f64", "64 64", [(0, INF), (INF, 0), (MINUS, "nan")])
