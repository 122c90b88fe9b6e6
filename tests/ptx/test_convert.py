"""Conversions: rounding modes, ties, saturation, NaN, packing."""

import struct

import pytest

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
NAN, INF, NINF = 0x7FC00000, 0x7F800000, 0xFF800000


def f(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # A narrower type keeps the low bits; a wider register gets the sign of an s type and zeros for a u type.
        ("cvt.u32.u16", "32 16", [(0xFFFF, 0xFFFF)]),
        ("cvt.s32.s16", "32 16", [(0xFFFF, M32), (0x7FFF, 0x7FFF)]),
        ("cvt.u32.s16", "32 16", [(0x8000, 0xFFFF8000)]),
        ("cvt.s64.s32", "64 32", [(0x80000000, 0xFFFFFFFF80000000), (5, 5)]),
        ("cvt.u64.u32", "64 32", [(M32, M32)]),
        ("cvt.u32.u64", "32 64", [(0x123456789, 0x23456789)]),
        ("cvt.s16.s32", "16 32", [(0x18000, 0x8000)]),
        ("cvt.u8.u32", "32 32", [(0x1FF, 0xFF)]),
        ("cvt.s8.s32", "32 32", [(0x80, 0xFFFFFF80), (0x17F, 0x7F)]),
        ("cvt.s32.s8", "32 32", [(0x1FF, M32), (0x17F, 0x7F)]),
        ("cvt.u16.u8", "16 16", [(0x1FF, 0xFF)]),
        ("cvt.sat.s16.s32", "16 32", [(70000, 32767), (-70000, 0x8000), (5, 5)]),
        ("cvt.sat.u8.s32", "32 32", [(-5, 0), (300, 255), (7, 7)]),
        ("cvt.sat.s8.s32", "32 32", [(-200, -128), (200, 127)]),
        ("cvt.sat.u32.s32", "32 32", [(-1, 0), (1, 1)]),
        ("cvt.sat.s32.u32", "32 32", [(M32, 0x7FFFFFFF)]),
        ("cvt.sat.u32.u64", "32 64", [(1 << 40, M32), (9, 9)]),
        ("cvt.sat.s32.s64", "32 64", [(-(1 << 40), 0x80000000), (1 << 40, 0x7FFFFFFF)]),
    ],
)
def test_between_integers(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("cvt.rni.s32.f32", "32 32", [(f(2.5), 2), (f(3.5), 4), (f(-2.5), -2), (f(-2.6), -3)]),
        ("cvt.rzi.s32.f32", "32 32", [(f(2.9), 2), (f(-2.9), -2)]),
        ("cvt.rmi.s32.f32", "32 32", [(f(2.9), 2), (f(-2.1), -3)]),
        ("cvt.rpi.s32.f32", "32 32", [(f(2.1), 3), (f(-2.9), -2)]),
        # Out of range clamps; NaN gives 0 in up to 32 bits, and 2^63 in 64.
        (
            "cvt.rzi.s32.f32",
            "32 32",
            [(f(3e9), 0x7FFFFFFF), (f(-3e9), 0x80000000), (INF, 0x7FFFFFFF), (NINF, 0x80000000), (NAN, 0)],
        ),
        ("cvt.rzi.u32.f32", "32 32", [(f(-1), 0), (f(5e9), M32), (f(4e9), 4000000000), (NAN, 0)]),
        ("cvt.rzi.s16.f32", "16 32", [(f(40000), 32767), (f(-40000), 0x8000), (f(-7.9), -7)]),
        ("cvt.rzi.u16.f32", "16 32", [(f(70000), 65535), (f(-3), 0)]),
        (
            "cvt.rzi.s64.f32",
            "64 32",
            [(f(1e19), (1 << 63) - 1), (f(-1e19), 1 << 63), (NAN, 1 << 63), (f(-(2**40)), -(2**40))],
        ),
        ("cvt.rzi.u64.f32", "64 32", [(f(1e30), M64), (f(-1), 0), (NAN, 1 << 63), (f(2**63), 1 << 63)]),
        ("cvt.rpi.ftz.s32.f32", "32 32", [(1, 0), (f(0.5), 1)]),
        ("cvt.rpi.s32.f32", "32 32", [(1, 1)]),
    ],
)
def test_float_to_integer(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # 2^24 + 1 is a tie between 2^24 (even) and 2^24 + 2; 2^24 + 3 one between + 2 (odd) and + 4.
        ("cvt.rn.f32.s32", "32 32", [(16777217, 0x4B800000), (16777219, 0x4B800002), (-5, f(-5)), (0, 0)]),
        ("cvt.rn.f32.u32", "32 32", [(M32, f(2**32)), (16777217, 0x4B800000)]),
        ("cvt.rn.f32.s64", "32 64", [((1 << 63) - 1, f(2**63)), (1 << 63, f(-(2**63)))]),
        # 2^63 + 2^39 + 1 is just above a tie; rounding to double first would make it one.
        ("cvt.rn.f32.u64", "32 64", [(M64, f(2**64)), ((1 << 63) + (1 << 39) + 1, 0x5F000001)]),
        ("cvt.rn.f32.s16", "32 16", [(0x8000, f(-32768))]),
        ("cvt.rn.f32.u16", "32 16", [(0x8000, f(32768))]),
        ("cvt.rn.f32.u8", "32 16", [(0x1FF, f(255))]),
        ("cvt.rn.f32.s8", "32 16", [(0xFF, f(-1))]),
    ],
)
def test_integer_to_float(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, rows",
    [
        ("cvt.rni.f32.f32", [(f(2.5), f(2)), (f(3.5), f(4)), (f(-0.4), 0x80000000), (INF, INF), (NAN, "nan")]),
        ("cvt.rzi.f32.f32", [(f(-2.9), f(-2)), (f(1e20), f(1e20))]),
        ("cvt.rmi.f32.f32", [(f(-0.5), f(-1)), (f(0.5), 0)]),
        ("cvt.rpi.f32.f32", [(f(0.5), f(1)), (f(-0.5), 0x80000000)]),
        ("cvt.ftz.f32.f32", [(0x00400000, 0), (0x80400000, 0x80000000), (f(1), f(1))]),
        ("cvt.sat.f32.f32", [(f(1.5), f(1)), (f(-3), 0), (NAN, 0), (f(0.25), f(0.25))]),
    ],
)
def test_float_to_float(engine, op, rows):
    engine.check(op, "32 32", rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        (
            "cvt.rn.f16.f32",
            "16 32",
            [
                (f(1), 0x3C00),
                (0x80000000, 0x8000),
                (f(65504), 0x7BFF),
                # Half way from 65504, the largest number, to 65536: a tie, to the even side, which is infinity.
                (f(65520), 0x7C00),
                (0x477FEFFF, 0x7BFF),
                (f(-1e6), 0xFC00),
                (f(2**-24), 0x0001),
                (f(2**-25), 0x0000),
                (0x33000001, 0x0001),
                (f(1 + 2**-11), 0x3C00),
                (f(1 + 3 * 2**-11), 0x3C02),
                # The largest subnormal is 1023 * 2^-24; half a step more rounds to the least normal number.
                (f(1023.5 * 2**-24), 0x0400),
                (INF, 0x7C00),
                (NAN, "nan"),
            ],
        ),
        ("cvt.rn.sat.f16.f32", "16 32", [(f(2), 0x3C00), (f(-2), 0), (f(0.5), 0x3800), (NAN, 0)]),
        ("cvt.rn.relu.f16.f32", "16 32", [(f(-1), 0), (f(2), 0x4000), (NINF, 0)]),
        (
            "cvt.rn.bf16.f32",
            "16 32",
            [
                (f(1), 0x3F80),
                (0x3F808000, 0x3F80),
                (0x3F818000, 0x3F82),
                (0x3F808001, 0x3F81),
                (0x7F7FFFFF, 0x7F80),
                (0x7F800001, 0x7FFF),
                (0x00018000, 0x0002),
                (NINF, 0xFF80),
            ],
        ),
        ("cvt.rn.relu.bf16.f32", "16 32", [(f(-1), 0), (f(1), 0x3F80)]),
        # The first source goes to the upper half.
        ("cvt.rn.f16x2.f32", "32 32 32", [(f(1), f(-2), 0x3C00C000), (f(65520), 0, 0x7C000000)]),
        ("cvt.rn.bf16x2.f32", "32 32 32", [(f(1), f(-2), 0x3F80C000), (0x3F818000, 0x3F808000, 0x3F823F80)]),
        ("cvt.rn.relu.f16x2.f32", "32 32 32", [(f(-1), f(1), 0x00003C00)]),
        ("cvt.f32.f16", "32 16", [(0x3C00, f(1)), (0x0001, f(2**-24)), (0x83FF, f(-1023 * 2**-24)), (0xFC00, NINF)]),
        ("cvt.f32.f16", "32 16", [(0x7E00, "nan"), (0x7BFF, f(65504)), (0x8000, 0x80000000)]),
        ("cvt.f32.bf16", "32 16", [(0x3F80, f(1)), (0x0001, 0x00010000), (0xFF80, NINF), (0x7FC0, "nan")]),
    ],
)
def test_half_precision(engine, op, widths, rows):
    engine.check(op, widths, rows)
