"""Single precision: exact rounding, subnormals, signed zeros, infinities, NaN, and the bounds of the approximations."""

import math
import struct

import numpy as np
import pytest

INF, NINF, NAN = 0x7F800000, 0xFF800000, 0x7FC00000
ZERO, NZERO = 0, 0x80000000
ONE, HALF, TWO, THREE = 0x3F800000, 0x3F000000, 0x40000000, 0x40400000
LARGEST = 0x7F7FFFFF
LEAST_NORMAL = 0x00800000  # 2^-126
SUBNORMAL = 0x00400000  # 2^-127


def bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def value(pattern: int) -> float:
    return struct.unpack("<f", struct.pack("<I", pattern))[0]


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        (
            "add.f32",
            "32 32 32",
            [
                (ONE, TWO, THREE),
                (NZERO, ZERO, ZERO),
                (NZERO, NZERO, NZERO),
                (LARGEST, LARGEST, INF),
                (INF, NINF, "nan"),
                (NAN, ONE, "nan"),
                (SUBNORMAL, SUBNORMAL, LEAST_NORMAL),
                # 1 + 2^-24 is a tie and stays at the even 1; 1 + 3 * 2^-24 is a tie and goes up to 1 + 2^-22.
                (ONE, 0x33800000, ONE),
                (0x3F800001, 0x33800000, 0x3F800002),
            ],
        ),
        # Subnormal sources and results are zeros of the same sign.
        (
            "add.ftz.f32",
            "32 32 32",
            [(SUBNORMAL, SUBNORMAL, ZERO), (0x80400000, NZERO, NZERO), (0x00C00000, 0x80800000, ZERO), (ONE, 1, ONE)],
        ),
        ("add.sat.f32", "32 32 32", [(HALF, ONE, ONE), (bits(-2), ONE, ZERO), (NAN, ONE, ZERO), (HALF, ZERO, HALF)]),
        ("sub.rn.f32", "32 32 32", [(ONE, HALF, HALF), (INF, INF, "nan"), (ZERO, ONE, bits(-1)), (ONE, ONE, ZERO)]),
        (
            "mul.f32",
            "32 32 32",
            [
                (TWO, THREE, bits(6)),
                (ZERO, INF, "nan"),
                (bits(-1), ZERO, NZERO),
                (LEAST_NORMAL, HALF, SUBNORMAL),
                # 2^-149 / 2 is a tie and goes to the even 0; 3 * 2^-149 / 2 goes up to 2 * 2^-149.
                (1, HALF, 0),
                (3, HALF, 2),
            ],
        ),
        ("mul.ftz.f32", "32 32 32", [(LEAST_NORMAL, HALF, ZERO), (0x80800000, HALF, NZERO), (SUBNORMAL, TWO, ZERO)]),
        ("mul.sat.f32", "32 32 32", [(TWO, TWO, ONE), (TWO, bits(-1), ZERO), (ZERO, INF, ZERO)]),
        (
            "fma.rn.f32",
            "32 32 32 32",
            [
                # (1 + 2^-23)^2 - (1 + 2^-22) = 2^-46; rounding the product first would give 0.
                (0x3F800001, 0x3F800001, 0xBF800002, 0x28800000),
                # (1 + 2^-23)(1 - 2^-23) 2^-24 = 2^-24 - 2^-70, just below half of the last place of 1 + 2^-23: stays.
                # Rounding to double first would make it a tie and move it.
                (0x33800001, 0x3F7FFFFE, 0x3F800001, 0x3F800001),
                # The same with + 2^-24 + ... : (1 + 2^-23)^2 2^-24 is above half: goes up.
                (0x33800001, 0x3F800001, 0x3F800000, 0x3F800001),
                (ZERO, INF, ONE, "nan"),
                (INF, ONE, NINF, "nan"),
                (LARGEST, TWO, NINF, NINF),
                (LARGEST, TWO, bits(-1), INF),
                (bits(-1), ZERO, ZERO, ZERO),
                (bits(-1), ZERO, NZERO, NZERO),
                (LEAST_NORMAL, HALF, 1, 0x00400001),
            ],
        ),
        ("fma.rn.ftz.f32", "32 32 32 32", [(LEAST_NORMAL, HALF, 1, 0), (ONE, ONE, 1, ONE)]),
        ("fma.rn.sat.f32", "32 32 32 32", [(TWO, TWO, ONE, ONE), (ONE, bits(-1), ZERO, ZERO)]),
        ("mad.rn.f32", "32 32 32 32", [(0x3F800001, 0x3F800001, 0xBF800002, 0x28800000)]),
    ],
)
def test_exact_arithmetic(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # 1/3 = 0x3EAAAAAA + 2/3 of a last place: rounds up.
        (
            "div.rn.f32",
            "32 32 32",
            [
                (ONE, THREE, 0x3EAAAAAB),
                (ONE, ZERO, INF),
                (ONE, NZERO, NINF),
                (ZERO, ZERO, "nan"),
                (INF, INF, "nan"),
                (1, TWO, 0),
                (3, TWO, 2),
                (LEAST_NORMAL, TWO, SUBNORMAL),
            ],
        ),
        ("div.rn.ftz.f32", "32 32 32", [(LEAST_NORMAL, TWO, ZERO), (ONE, SUBNORMAL, INF)]),
        (
            "rcp.rn.f32",
            "32 32",
            [(THREE, 0x3EAAAAAB), (NZERO, NINF), (INF, ZERO), (NAN, "nan"), (0x7F000000, SUBNORMAL)],
        ),
        ("rcp.rn.ftz.f32", "32 32", [(SUBNORMAL, INF), (0x7F000000, ZERO)]),
        # The square root of 2 is 1.41421356237...; 0x3FB504F3 is 1.41421354, the next one 1.41421366.
        ("sqrt.rn.f32", "32 32", [(TWO, 0x3FB504F3), (bits(-1), "nan"), (NZERO, NZERO), (INF, INF), (bits(9), THREE)]),
    ],
)
def test_exact_division_and_roots(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        (
            "max.f32",
            "32 32 32",
            [
                (ONE, TWO, TWO),
                (NAN, ONE, ONE),
                (ONE, NAN, ONE),
                (NAN, NAN, "nan"),
                (NZERO, ZERO, ZERO),
                (ZERO, NZERO, ZERO),
            ],
        ),
        (
            "min.f32",
            "32 32 32",
            [
                (ONE, TWO, ONE),
                (NAN, ONE, ONE),
                (ONE, NAN, ONE),
                (NAN, NAN, "nan"),
                (NZERO, ZERO, NZERO),
                (ZERO, NZERO, NZERO),
            ],
        ),
        ("max.NaN.f32", "32 32 32", [(NAN, ONE, "nan"), (ONE, NAN, "nan"), (ONE, TWO, TWO), (NZERO, ZERO, ZERO)]),
        ("min.NaN.f32", "32 32 32", [(NAN, ONE, "nan"), (NINF, ONE, NINF), (ZERO, NZERO, NZERO)]),
        ("max.ftz.f32", "32 32 32", [(SUBNORMAL, ZERO, ZERO), (SUBNORMAL, bits(-1), ZERO)]),
        ("min.ftz.f32", "32 32 32", [(SUBNORMAL, ONE, ZERO)]),
        ("abs.f32", "32 32", [(bits(-1), ONE), (NZERO, ZERO), (NINF, INF), (NAN, "nan"), (0x80000001, 1)]),
        ("abs.ftz.f32", "32 32", [(0x80400000, ZERO)]),
        ("neg.f32", "32 32", [(ONE, bits(-1)), (ZERO, NZERO), (INF, NINF), (NAN, "nan")]),
        ("neg.ftz.f32", "32 32", [(SUBNORMAL, NZERO)]),
    ],
)
def test_extremes_and_signs(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # The tables of special values in the PTX ISA.
        (
            "ex2.approx.f32",
            "32 32",
            [(NINF, ZERO), (NZERO, ONE), (ZERO, ONE), (0x80000001, ONE), (INF, INF), (NAN, "nan")],
        ),
        ("ex2.approx.ftz.f32", "32 32", [(SUBNORMAL, ONE), (bits(-127.5), ZERO), (bits(-200), ZERO), (bits(128), INF)]),
        (
            "lg2.approx.f32",
            "32 32",
            [(NINF, "nan"), (NZERO, NINF), (ZERO, NINF), (INF, INF), (bits(-1), "nan"), (ONE, ZERO)],
        ),
        ("lg2.approx.ftz.f32", "32 32", [(SUBNORMAL, NINF)]),
        ("rsqrt.approx.f32", "32 32", [(NINF, "nan"), (NZERO, NINF), (ZERO, INF), (INF, ZERO), (NAN, "nan")]),
        ("rsqrt.approx.ftz.f32", "32 32", [(SUBNORMAL, INF), (0x80400000, NINF)]),
        ("rcp.approx.f32", "32 32", [(NINF, NZERO), (NZERO, NINF), (ZERO, INF), (INF, ZERO), (NAN, "nan")]),
        ("rcp.approx.ftz.f32", "32 32", [(SUBNORMAL, INF), (0x80400000, NINF), (LARGEST, ZERO)]),
        ("sqrt.approx.f32", "32 32", [(NZERO, NZERO), (ZERO, ZERO), (INF, INF), (bits(-1), "nan")]),
        ("sqrt.approx.ftz.f32", "32 32", [(SUBNORMAL, ZERO), (0x80400000, NZERO)]),
        ("div.full.f32", "32 32 32", [(ONE, ZERO, INF), (ZERO, ZERO, "nan"), (INF, INF, "nan")]),
        ("div.approx.f32", "32 32 32", [(ONE, ZERO, INF), (ONE, INF, ZERO), (ZERO, ZERO, "nan")]),
        # A divisor between 2^126 and 2^128 makes div.approx 0, or NaN if the dividend is infinite.
        ("div.approx.ftz.f32", "32 32 32", [(LARGEST, LARGEST, ZERO), (INF, LARGEST, "nan"), (ONE, 0x7F000000, ZERO)]),
    ],
)
def test_special_values_of_approximations(engine, op, widths, rows):
    engine.check(op, widths, rows)


#: 32 values over many binades, and some near 1.
GRID = [*np.float32(1.7) ** np.arange(-12, 13), 0.999, 1.001, 0.5, 4.0, 1e-30, 1e30, 3.0]


@pytest.mark.parametrize(
    "op, exact, inputs, relative, absolute",
    [
        # Largest errors in the PTX ISA: relative, or absolute where the result is near zero.
        ("ex2.approx.f32", lambda x: 2.0**x, np.linspace(-20, 20, 32), 2**-22, 0),
        ("lg2.approx.f32", math.log2, GRID, 2**-22, 2**-22),
        ("rcp.approx.f32", lambda x: 1 / x, GRID, 2**-23, 0),
        ("sqrt.approx.f32", math.sqrt, GRID, 2**-22, 0),
        ("rsqrt.approx.f32", lambda x: 1 / math.sqrt(x), GRID, 2**-22, 0),
    ],
)
def test_bounds_of_approximations(engine, op, exact, inputs, relative, absolute):
    given = [bits(float(x)) for x in inputs]
    results = engine.evaluate(f"{op} %d, %a;", {"a": (32, given)}, {"d": 32})["d"]
    for pattern, result in zip(given, results, strict=True):
        expected = exact(value(pattern))
        assert abs(value(result) - expected) <= relative * abs(expected) + absolute, f"{op} {value(pattern)}"


@pytest.mark.parametrize("op", ["div.approx.f32", "div.full.f32"])
def test_bounds_of_approximate_division(engine, op):
    """At most 2 ulp, that is 2^-22 relative."""
    given = [bits(float(x)) for x in GRID]
    results = engine.evaluate(f"{op} %d, %a, %b;", {"a": (32, given), "b": (32, given[::-1])}, {"d": 32})["d"]
    for a, b, result in zip(given, given[::-1], results, strict=True):
        expected = value(a) / value(b)
        assert abs(value(result) - expected) <= 2**-22 * expected
