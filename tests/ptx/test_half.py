"""f16, bf16 and their packed forms: one rounding, subnormals, NaN, saturation. Patterns worked out by hand.

f16: 1 = 3C00, 2 = 4000, 3 = 4200, largest 65504 = 7BFF, least normal 2^-14 = 0400, least 2^-24 = 0001, infinity 7C00.
bf16: 1 = 3F80, 2 = 4000, largest 7F7F, infinity 7F80.
"""

from __future__ import annotations

import math

import numpy as np
import pytest


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # Ties to even: 1 + 2^-11 is halfway to 3C01, 3C01 + 2^-11 halfway to 3C02; 2^-11 = 1000.
        ("add.f16", "16 16 16", [(0x3C00, 0x1000, 0x3C00), (0x3C01, 0x1000, 0x3C02), (0x8000, 0x8000, 0x8000)]),
        # 65504 + 16 is halfway to 65536 and overflows, + 15 does not; 16 = 4C00, 15 = 4B80.
        ("add.rn.f16", "16 16 16", [(0x7BFF, 0x4C00, 0x7C00), (0x7BFF, 0x4B80, 0x7BFF), (0x7C00, 0xFC00, "nan")]),
        # Subnormals stay, unless flushed as sources or as result: -2^-24 = 2^-14 - (2^-14 + 2^-24).
        ("add.f16", "16 16 16", [(0x0001, 0x0001, 0x0002), (0x0400, 0x8401, 0x8001), (0x3C00, 0xBC00, 0)]),
        ("add.ftz.f16", "16 16 16", [(0x0001, 0x0001, 0x0000), (0x0400, 0x8401, 0x8000), (0x0001, 0x3C00, 0x3C00)]),
        ("add.sat.f16", "16 16 16", [(0x3C00, 0x3C00, 0x3C00), (0xBC00, 0, 0), (0x7E00, 0, 0), (0x3800, 0, 0x3800)]),
        ("sub.f16", "16 16 16", [(0x4000, 0x3C00, 0x3C00), (0x3C00, 0x3C00, 0), (0x7C00, 0x7C00, "nan")]),
        # 2^-14 * 2^-11 is half the least number: even is zero; 1.5 times that is nearer to 2^-24.
        (
            "mul.f16",
            "16 16 16",
            [(0x3E00, 0x3E00, 0x4080), (0x0400, 0x1000, 0), (0x0400, 0x1200, 1), (0x7C00, 0, "nan")],
        ),
        # (1 + 2^-10)(1 - 2^-10) - 1 = -2^-20 = 16 steps of 2^-24: the product is not rounded.
        ("fma.rn.f16", "16 16 16 16", [(0x3C01, 0x3BFE, 0xBC00, 0x8010), (0x7BFF, 0x4000, 0xFBFF, 0x7BFF)]),
        ("fma.rn.ftz.f16", "16 16 16 16", [(0x3C01, 0x3BFE, 0xBC00, 0x8000)]),
        (
            "fma.rn.relu.f16",
            "16 16 16 16",
            [(0x3C00, 0xBC00, 0, 0), (0x4000, 0x4000, 0, 0x4400), (0x7E00, 0, 0, "nan")],
        ),
        ("fma.rn.sat.f16", "16 16 16 16", [(0x4000, 0x4000, 0, 0x3C00), (0x3C00, 0xBC00, 0, 0), (0x7E00, 0, 0, 0)]),
        # bf16 has eight bits: 1 + 2^-8 is halfway; 2^-8 = 3B80.
        (
            "add.bf16",
            "16 16 16",
            [(0x3F80, 0x3B80, 0x3F80), (0x3F81, 0x3B80, 0x3F82), (1, 1, 2), (0x7F80, 0xFF80, "nan")],
        ),
        ("sub.rn.bf16", "16 16 16", [(0x4000, 0x3F80, 0x3F80), (0x8000, 0, 0x8000)]),
        ("mul.bf16", "16 16 16", [(0x7F7F, 0x4000, 0x7F80), (0x3FC0, 0x3FC0, 0x4010)]),
        # (1 + 2^-7)(1 - 2^-7) - 1 = -2^-14.
        ("fma.rn.bf16", "16 16 16 16", [(0x3F81, 0x3F7E, 0xBF80, 0xB880)]),
        ("fma.rn.relu.bf16", "16 16 16 16", [(0x3F80, 0xBF80, 0, 0), (0x7FC0, 0, 0, "nan")]),
    ],
)
def test_arithmetic(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # Halves do not touch each other: (2, 1) + (1, 2) = (3, 3); NaN in one leaves the other.
        ("add.f16x2", "32 32 32", [(0x40003C00, 0x3C004000, 0x42004200), (0x7C00FC00, 0x3C00FC00, 0x7C00FC00)]),
        ("sub.f16x2", "32 32 32", [(0x40003C00, 0x3C003C00, 0x3C000000)]),
        ("mul.rn.bf16x2", "32 32 32", [(0x40003F80, 0x40004000, 0x40804000)]),
        ("fma.rn.f16x2", "32 32 32 32", [(0x3C013C00, 0x3BFE3C00, 0xBC003C00, 0x80104000)]),
        ("fma.rn.bf16x2", "32 32 32 32", [(0x3F813F80, 0x3F7E3F80, 0xBF803F80, 0xB8804000)]),
        ("neg.f16x2", "32 32", [(0x3C00BC00, 0xBC003C00), (0x00008000, 0x80000000)]),
        ("abs.bf16x2", "32 32", [(0xBF803F80, 0x3F803F80)]),
        ("max.f16x2", "32 32 32", [(0x3C004000, 0x40003C00, 0x40004000), (0x7E003C00, 0x3C007E00, 0x3C003C00)]),
        ("min.NaN.bf16x2", "32 32 32", [(0x3F803F80, 0x40004000, 0x3F803F80)]),
    ],
)
def test_packed(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # One NaN gives way, two do not; -0 is below +0.
        (
            "min.f16",
            "16 16 16",
            [(0x3C00, 0x4000, 0x3C00), (0x7E00, 0x4000, 0x4000), (0x8000, 0, 0x8000), (0, 0x8000, 0x8000)],
        ),
        ("max.f16", "16 16 16", [(0x8000, 0, 0), (0xFC00, 0xBC00, 0xBC00), (0x7E00, 0xFE00, "nan")]),
        ("max.NaN.f16", "16 16 16", [(0x7E00, 0x3C00, "nan"), (0x3C00, 0x4000, 0x4000)]),
        ("min.ftz.f16", "16 16 16", [(0x0001, 0x3C00, 0), (0x8001, 0, 0x8000)]),
        ("min.bf16", "16 16 16", [(0xBF80, 0x3F80, 0xBF80), (0x7FC0, 1, 1)]),
        ("max.NaN.bf16", "16 16 16", [(0x7FC0, 1, "nan")]),
        ("abs.f16", "16 16", [(0xBC00, 0x3C00), (0x8001, 1)]),
        ("abs.ftz.f16", "16 16", [(0x8001, 0)]),
        ("neg.ftz.f16", "16 16", [(0x0001, 0x8000), (0x3C00, 0xBC00)]),
        ("neg.bf16", "16 16", [(0x3F80, 0xBF80), (0, 0x8000)]),
    ],
)
def test_extremes_and_signs(engine, op, widths, rows):
    engine.check(op, widths, rows)


def bfloat(patterns: list[int]) -> np.ndarray:
    return (np.array(patterns, np.uint32) << 16).view(np.float32).astype(np.float64)


def half(patterns: list[int]) -> np.ndarray:
    return np.array(patterns, np.uint16).view(np.float16).astype(np.float64)


@pytest.mark.parametrize(
    "op, read, sources, function, relative, absolute",
    [
        # PTX ISA: maximum relative error 2^-9.9 (f16) and 2^-7 (bf16); for tanh 2^-10.987 absolute and 2^-8 relative.
        ("ex2.approx.f16", half, [0x3C00, 0xBC00, 0x4900, 0x3555, 0xC9AB, 0], np.exp2, 2**-9.9, 2**-25),
        ("ex2.approx.ftz.bf16", bfloat, [0x3F80, 0xBF80, 0x4120, 0x3EAB, 0xC135, 0], np.exp2, 2**-7, 0),
        ("tanh.approx.f16", half, [0x3C00, 0xBC00, 0x4900, 0x3555, 0x0001, 0], np.tanh, 0, 2**-10.987),
        ("tanh.approx.bf16", bfloat, [0x3F80, 0xBF80, 0x4120, 0x3EAB, 0], np.tanh, 2**-8, 0),
    ],
)
def test_approximations_are_within_the_documented_error(engine, op, read, sources, function, relative, absolute):
    results = engine.evaluate(f"{op} %d, %a;", {"a": (16, sources)}, {"d": 16})["d"]
    exact = function(read(sources))
    assert np.all(np.abs(read(results) - exact) <= np.abs(exact) * relative + absolute)


def test_approximations_at_their_ends(engine):
    """2^inf = inf, 2^-inf = 0, 2^NaN = NaN; 2^16 overflows f16; tanh of an infinity is 1. bf16 flushes subnormals."""
    engine.check("ex2.approx.f16", "16 16", [(0x7C00, 0x7C00), (0xFC00, 0), (0x7E00, "nan"), (0x4C00, 0x7C00)])
    engine.check("ex2.approx.ftz.bf16", "16 16", [(0x7F80, 0x7F80), (0xFF80, 0), (0xC300, 0), (1, 0x3F80)])
    engine.check("tanh.approx.f16", "16 16", [(0x7C00, 0x3C00), (0xFC00, 0xBC00), (0x7E00, "nan")])
    engine.check("tanh.approx.bf16x2", "32 32", [(0x7F80FF80, 0x3F80BF80)])
    assert math.exp2(-128) < 2**-126  # what 0xC300 = -128 gives is subnormal
