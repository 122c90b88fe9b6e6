"""``cvt`` among f16, bf16, f32, f64, tf32, fp8 and integers, in every rounding. Patterns worked out by hand."""

from __future__ import annotations

import struct

import pytest


def f64(number: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def f32(number: float) -> int:
    return struct.unpack("<I", struct.pack("<f", number))[0]


INF64, NAN64, INF32, NAN32 = f64(float("inf")), 0x7FF8 << 48, 0x7F800000, 0x7FC00000
MAX32 = 0x7F7FFFFF


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # A hair above halfway: rounding to f32 on the way would lose the hair and end at the even neighbour.
        (
            "cvt.rn.f16.f64",
            "16 64",
            [(f64(1 + 2**-11), 0x3C00), (f64(1 + 2**-11 + 2**-52), 0x3C01), (f64(1e6), 0x7C00)],
        ),
        ("cvt.rn.bf16.f64", "16 64", [(f64(1 + 2**-8), 0x3F80), (f64(1 + 2**-8 + 2**-52), 0x3F81), (NAN64, "nan")]),
        ("cvt.rz.f16.f64", "16 64", [(f64(1e6), 0x7BFF), (f64(-1 - 2**-11 - 2**-52), 0xBC00)]),
        ("cvt.rm.f16.f64", "16 64", [(f64(-1 - 2**-40), 0xBC01), (f64(1e-30), 0), (f64(-1e-30), 0x8001)]),
        ("cvt.rp.bf16.f64", "16 64", [(f64(1e-300), 1), (f64(-1e-300), 0x8000), (f64(3e38), 0x7F62)]),
        ("cvt.rn.f32.f64", "32 64", [(f64(1 / 3), 0x3EAAAAAB), (f64(1e300), INF32), (f64(2.0**-130), 0x80000)]),
        ("cvt.rz.f32.f64", "32 64", [(f64(1 / 3), 0x3EAAAAAA), (f64(1e300), MAX32), (f64(2.0**-150), 0)]),
        ("cvt.rp.f32.f64", "32 64", [(f64(2.0**-200), 1), (f64(-1e300), MAX32 | 1 << 31), (INF64, INF32)]),
        ("cvt.rm.f32.f64", "32 64", [(f64(-(2.0**-200)), 0x80000001), (f64(1e300), MAX32)]),
        ("cvt.rn.ftz.f32.f64", "32 64", [(f64(2.0**-130), 0), (f64(-(2.0**-130)), 1 << 31)]),
        ("cvt.rn.sat.f32.f64", "32 64", [(f64(1.5), f32(1)), (f64(-3), 0), (NAN64, 0), (f64(0.5), f32(0.5))]),
        ("cvt.f64.f32", "64 32", [(f32(0.1), f64(0.10000000149011612)), (1, f64(2.0**-149)), (INF32, INF64)]),
        ("cvt.ftz.f64.f32", "64 32", [(1, 0), (1 | 1 << 31, 1 << 63)]),
        ("cvt.f64.f16", "64 16", [(1, f64(2.0**-24)), (0xFC00, INF64 | 1 << 63), (0x7E00, "nan")]),
        ("cvt.f64.bf16", "64 16", [(0x4049, f64(3.140625))]),
        # 1 + 2^-10 is far below the middle of bf16's step; 65504 is above the middle of its own.
        ("cvt.rn.bf16.f16", "16 16", [(0x3C01, 0x3F80), (0x7BFF, 0x4780), (1, 0x3380)]),
        ("cvt.rp.bf16.f16", "16 16", [(0x3C01, 0x3F81)]),
        ("cvt.rz.bf16.f16", "16 16", [(0x7BFF, 0x477F)]),
        ("cvt.rn.f16.bf16", "16 16", [(0x7F7F, 0x7C00), (1, 0), (0x3F81, 0x3C08)]),
        ("cvt.rz.f16.bf16", "16 16", [(0x7F7F, 0x7BFF)]),
        ("cvt.rn.f16.f32", "16 32", [(f32(1 + 2**-11), 0x3C00), (f32(-65520.0), 0xFC00)]),
        ("cvt.rz.f16.f32", "16 32", [(f32(1 + 2**-11 + 2**-20), 0x3C00), (f32(1e6), 0x7BFF)]),
        ("cvt.rm.f16.f32", "16 32", [(f32(-1 - 2**-20), 0xBC01), (1, 0)]),
        ("cvt.rp.f16.f32", "16 32", [(f32(1 + 2**-20), 0x3C01), (1, 1), (1 | 1 << 31, 0x8000)]),
        ("cvt.rz.bf16.f32", "16 32", [(0x3F80FFFF, 0x3F80), (MAX32, 0x7F7F)]),
        ("cvt.rp.bf16.f32", "16 32", [(0x3F800001, 0x3F81), (MAX32, 0x7F80)]),
        ("cvt.rn.relu.f16.f32", "16 32", [(f32(-1), 0), (f32(2), 0x4000), (NAN32, "nan"), (f32(1e6), 0x7C00)]),
        ("cvt.rz.relu.bf16.f32", "16 32", [(f32(-1), 0), (0x3F80FFFF, 0x3F80)]),
        ("cvt.rn.satfinite.f16.f32", "16 32", [(f32(1e6), 0x7BFF), (INF32 | 1 << 31, 0xFBFF), (NAN32, "nan")]),
        ("cvt.rn.satfinite.bf16.f32", "16 32", [(MAX32, 0x7F7F), (INF32, 0x7F7F)]),
        ("cvt.rn.relu.f16x2.f32", "32 32 32", [(f32(-1), f32(2), 0x00004000), (f32(3), f32(-2), 0x42000000)]),
        ("cvt.rz.bf16x2.f32", "32 32 32", [(0x3F80FFFF, f32(2), 0x3F804000)]),
        ("cvt.rn.relu.satfinite.f16x2.f32", "32 32 32", [(INF32, f32(-5), 0x7BFF0000)]),
    ],
)
def test_between_floats(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("cvt.rni.f16.f16", "16 16", [(0x4100, 0x4000), (0x4300, 0x4400), (0xB800, 0x8000)]),
        ("cvt.rzi.f16.f16", "16 16", [(0xBE00, 0xBC00), (0x3BFF, 0)]),
        ("cvt.rmi.f64.f64", "64 64", [(f64(-0.5), f64(-1)), (f64(2.5), f64(2)), (f64(1e300), f64(1e300))]),
        ("cvt.rpi.bf16.bf16", "16 16", [(0xBF00, 0x8000), (0x3F81, 0x4000)]),
        ("cvt.sat.f64.f64", "64 64", [(f64(1.5), f64(1)), (f64(-1), 0), (NAN64, 0), (f64(0.25), f64(0.25))]),
        ("cvt.rni.ftz.f32.f32", "32 32", [(1 | 1 << 31, 1 << 31), (f32(0.5), 0), (f32(1.5), f32(2))]),
    ],
)
def test_to_integral_numbers(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # NaN is 0, but the top bit where f64 or 64 bits are involved (PTX ISA, "cvt").
        ("cvt.rni.s32.f64", "32 64", [(f64(2.5), 2), (f64(-3.5), -4), (f64(1e300), 2**31 - 1), (NAN64, 1 << 31)]),
        ("cvt.rzi.u32.f64", "32 64", [(f64(-0.9), 0), (f64(-5), 0), (f64(4294967295.9), -1), (NAN64, 1 << 31)]),
        ("cvt.rmi.u16.f64", "16 64", [(f64(-0.1), 0), (f64(1e9), 0xFFFF), (NAN64, 0x8000)]),
        (
            "cvt.rpi.s64.f64",
            "64 64",
            [(f64(-0.5), 0), (f64(1e19), 2**63 - 1), (NAN64, 1 << 63), (f64(2**53 - 0.5), 2**53)],
        ),
        ("cvt.rzi.u64.f64", "64 64", [(f64(1.9e19), -1), (f64(2.0**63), 1 << 63)]),
        ("cvt.rni.s32.f16", "32 16", [(0x4100, 2), (0xFC00, -(2**31)), (0x7E00, 0)]),
        ("cvt.rzi.s64.f16", "64 16", [(0x7BFF, 65504), (0x7E00, 1 << 63)]),
        ("cvt.rzi.u8.f16", "16 16", [(0x5CB0, 0xFF), (0xBC00, 0), (0x4900, 10)]),
        ("cvt.rzi.s8.f32", "32 32", [(f32(-200), 0xFFFFFF80), (f32(-3.7), -3), (f32(300), 127)]),
        ("cvt.rni.s16.bf16", "16 16", [(0x4020, 2), (0xC2FE, -127), (0x7FC0, 0)]),
        ("cvt.rn.f16.s32", "16 32", [(2049, 0x6800), (65519, 0x7BFF), (65520, 0x7C00), (-3, 0xC200)]),
        ("cvt.rp.f16.u32", "16 32", [(2049, 0x6801), (65505, 0x7C00)]),
        ("cvt.rz.f16.s32", "16 32", [(100000, 0x7BFF), (-100000, 0xFBFF)]),
        ("cvt.rn.bf16.s32", "16 32", [(257, 0x4380), (259, 0x4382)]),
        ("cvt.rp.bf16.s16", "16 16", [(257, 0x4381), (-257, 0xC380)]),
        # 2^32 (2^8 + 1) 2^15 and one more: halfway between bf16 numbers, and a hair above.
        ("cvt.rn.bf16.u64", "16 64", [(2**64 - 1, 0x5F80), (257 << 47, 0x5B00), ((257 << 47) + 1, 0x5B01)]),
        ("cvt.rn.f32.u64", "32 64", [(2**64 - 1, 0x5F800000), ((2**24 + 1) << 30, 0x5A800000)]),
        ("cvt.rm.f32.u64", "32 64", [(2**64 - 1, 0x5F7FFFFF)]),
        ("cvt.rz.f32.s32", "32 32", [(16777217, 0x4B800000), (-16777217, 0xCB800000)]),
        ("cvt.rp.f32.s32", "32 32", [(16777217, 0x4B800001), (-16777217, 0xCB800000)]),
        ("cvt.rn.f64.u64", "64 64", [(2**64 - 1, f64(2.0**64)), (2**53 + 1, f64(2.0**53))]),
        ("cvt.rz.f64.u64", "64 64", [(2**64 - 1, f64(2.0**64) - 1)]),
        ("cvt.rp.f64.s64", "64 64", [(2**53 + 1, f64(2.0**53) + 1), (-(2**63), f64(-(2.0**63)))]),
        ("cvt.rn.f64.s8", "64 16", [(0x80, f64(-128))]),
        ("cvt.rn.sat.f32.s32", "32 32", [(5, f32(1)), (-5, 0)]),
    ],
)
def test_with_integers(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, rows",
    [
        # tf32 has 10 bits of mantissa; 1 + 2^-11 is halfway.
        (
            "cvt.rna.tf32.f32",
            [(0x3F801000, 0x3F802000), (0xBF801000, 0xBF802000), (0x3F800FFF, 0x3F800000), (MAX32, INF32)],
        ),
        ("cvt.rn.tf32.f32", [(0x3F801000, 0x3F800000), (0x3F803000, 0x3F804000)]),
        ("cvt.rz.tf32.f32", [(0x3F801FFF, 0x3F800000), (MAX32, 0x7F7FE000)]),
        ("cvt.rn.relu.tf32.f32", [(f32(-1), 0), (f32(1), f32(1))]),
        ("cvt.rna.satfinite.tf32.f32", [(MAX32, 0x7F7FE000), (INF32 | 1 << 31, 0xFF7FE000), (NAN32, "nan")]),
    ],
)
def test_tf32(engine, op, rows):
    engine.check(op, "32 32", rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # e4m3: 1 = 38, largest 448 = 7E, least 2^-9 = 01, NaN 7F. e5m2: 1 = 3C, largest 57344 = 7B, least 2^-16.
        ("cvt.rn.satfinite.e4m3x2.f32", "16 32 32", [(f32(1), f32(-448), 0x38FE), (f32(464), INF32 | 1 << 31, 0x7EFE)]),
        (
            "cvt.rn.satfinite.e4m3x2.f32",
            "16 32 32",
            [(f32(2**-10), f32(1.5 * 2**-10), 0x0001), (NAN32, f32(17), 0x7F58)],
        ),
        ("cvt.rn.satfinite.relu.e4m3x2.f32", "16 32 32", [(f32(-1), f32(1), 0x0038)]),
        ("cvt.rn.satfinite.e5m2x2.f32", "16 32 32", [(f32(1), f32(1e6), 0x3C7B), (INF32, f32(-(2.0**-16)), 0x7B81)]),
        ("cvt.rn.satfinite.e4m3x2.f16x2", "16 32", [(0x3C00BC00, 0x38B8), (0x7BFF1800, 0x7E01)]),
        ("cvt.rn.satfinite.relu.e5m2x2.f16x2", "16 32", [(0xBC003C00, 0x003C)]),
        ("cvt.rn.f16x2.e4m3x2", "32 16", [(0x7E38, 0x5F003C00), (0x0181, 0x18009800)]),
        ("cvt.rn.f16x2.e5m2x2", "32 16", [(0x7C01, 0x7C000100), (0xBC7B, 0xBC007B00)]),
        ("cvt.rn.relu.f16x2.e4m3x2", "32 16", [(0xB838, 0x00003C00)]),
    ],
)
def test_fp8(engine, op, widths, rows):
    engine.check(op, widths, rows)
