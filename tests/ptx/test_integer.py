"""Integer arithmetic against patterns worked out from the PTX ISA's definitions."""

import pytest

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF
MIN32, MAX32 = 0x80000000, 0x7FFFFFFF
MIN64, MAX64 = 1 << 63, (1 << 63) - 1


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # Sums and differences wrap modulo 2^width.
        ("add.s32", "32 32 32", [(MAX32, 1, MIN32), (M32, 1, 0), (2, 3, 5)]),
        ("add.u16", "16 16 16", [(0xFFFF, 1, 0), (0x7FFF, 1, 0x8000)]),
        ("add.s64", "64 64 64", [(M64, 1, 0), (0xFFFFFFFF, 1, 0x100000000)]),
        ("sub.u32", "32 32 32", [(0, 1, M32), (5, 3, 2), (MIN32, 1, MAX32)]),
        ("sub.s16", "16 16 16", [(0x8000, 1, 0x7FFF)]),
        ("sub.u64", "64 64 64", [(0, 1, M64)]),
        # 0x12345678 * 0x9ABCDEF0 = 0x0B00EA4E_242D2080; low half first, then the high half unsigned.
        ("mul.lo.u32", "32 32 32", [(0x12345678, 0x9ABCDEF0, 0x242D2080), (M32, M32, 1)]),
        ("mul.hi.u32", "32 32 32", [(0x12345678, 0x9ABCDEF0, 0x0B00EA4E), (M32, M32, 0xFFFFFFFE)]),
        # Signed: -1 * -1 = 1, high half 0; -2^31 * 2 = -2^32, high half -1.
        ("mul.hi.s32", "32 32 32", [(M32, M32, 0), (MIN32, 2, M32), (MIN32, MIN32, 0x40000000)]),
        ("mul.lo.s16", "16 16 16", [(0x0100, 0x0100, 0), (0xFFFF, 3, 0xFFFD)]),
        ("mul.hi.s16", "16 16 16", [(0xFFFF, 3, 0xFFFF), (0x4000, 4, 1)]),
        ("mul.hi.u16", "16 16 16", [(0xFFFF, 0xFFFF, 0xFFFE)]),
        # (2^64 - 1)^2 = 2^128 - 2^65 + 1.
        ("mul.lo.u64", "64 64 64", [(M64, M64, 1), (1 << 32, 1 << 31, 1 << 63)]),
        ("mul.hi.u64", "64 64 64", [(M64, M64, M64 - 1), (1 << 63, 2, 1)]),
        ("mul.hi.s64", "64 64 64", [(M64, M64, 0), (MIN64, 2, M64)]),
        ("mul.wide.s32", "64 32 32", [(M32, 5, M64 - 4), (MIN32, MIN32, 1 << 62)]),
        ("mul.wide.u32", "64 32 32", [(M32, M32, 0xFFFFFFFE00000001)]),
        ("mul.wide.s16", "32 16 16", [(0x8000, 0x8000, 0x40000000), (0xFFFF, 2, 0xFFFFFFFE)]),
        ("mul.wide.u16", "32 16 16", [(0xFFFF, 0xFFFF, 0xFFFE0001)]),
        ("mad.lo.s32", "32 32 32 32", [(3, 4, 5, 17), (M32, M32, M32, 0)]),
        ("mad.lo.u64", "64 64 64 64", [(1 << 32, 1 << 32, 7, 7)]),
        ("mad.hi.u32", "32 32 32 32", [(M32, M32, 3, 1)]),
        ("mad.hi.s32", "32 32 32 32", [(MIN32, 2, 3, 2)]),
        ("mad.wide.s32", "64 32 32 64", [(M32, 4, 3, M64), (2, 3, 1 << 40, (1 << 40) + 6)]),
        ("mad.wide.u16", "32 16 16 32", [(0xFFFF, 2, 2, 0x20000)]),
    ],
)
def test_sums_and_products(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # Quotients truncate toward zero; the remainder has the dividend's sign. By zero: all ones, and the dividend.
        ("div.s32", "32 32 32", [(-7, 2, -3), (7, -2, -3), (MIN32, M32, MIN32), (5, 0, M32), (-5, 0, M32)]),
        ("rem.s32", "32 32 32", [(-7, 2, -1), (7, -2, 1), (MIN32, M32, 0), (5, 0, 5), (-5, 0, -5)]),
        ("div.u32", "32 32 32", [(M32, 2, MAX32), (7, 0, M32), (3, M32, 0)]),
        ("rem.u32", "32 32 32", [(M32, 10, 5), (7, 0, 7)]),
        ("div.s16", "16 16 16", [(0x8000, 0xFFFF, 0x8000), (-9, 4, -2)]),
        ("rem.u16", "16 16 16", [(0xFFFF, 0x100, 0xFF)]),
        ("div.u64", "64 64 64", [(M64, 3, 0x5555555555555555), (1, 0, M64)]),
        ("rem.s64", "64 64 64", [(-(10**12) - 1, 10**12, -1), (MIN64, M64, 0)]),
    ],
)
def test_division(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("min.s32", "32 32 32", [(M32, 1, M32), (MIN32, MAX32, MIN32)]),
        ("min.u32", "32 32 32", [(M32, 1, 1)]),
        ("max.s32", "32 32 32", [(M32, 1, 1), (MIN32, MAX32, MAX32)]),
        ("max.u32", "32 32 32", [(M32, 1, M32)]),
        ("max.u16", "16 16 16", [(0xFFFF, 1, 0xFFFF)]),
        ("min.s16", "16 16 16", [(0xFFFF, 1, 0xFFFF)]),
        ("min.s64", "64 64 64", [(M64, 1, M64)]),
        ("max.u64", "64 64 64", [(M64, 1, M64)]),
        # The smallest integer has no positive counterpart.
        ("abs.s32", "32 32", [(-5, 5), (5, 5), (MIN32, MIN32)]),
        ("abs.s16", "16 16", [(0x8000, 0x8000), (-3, 3)]),
        ("abs.s64", "64 64", [(-1, 1)]),
        ("neg.s32", "32 32", [(1, M32), (0, 0), (MIN32, MIN32)]),
        ("neg.s16", "16 16", [(1, 0xFFFF)]),
        ("neg.s64", "64 64", [(MIN64, MIN64), (7, -7)]),
    ],
)
def test_extremes_and_signs(engine, op, widths, rows):
    engine.check(op, widths, rows)
