"""Saturation, packed halves, 24-bit products, dot products, bit fields, fixed permutations, carry chains."""

from __future__ import annotations

import pytest

M32, MIN32, MAX32 = 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("add.sat.s32", "32 32 32", [(MAX32, 1, MAX32), (MIN32, -1, MIN32), (5, -7, -2)]),
        ("sub.sat.s32", "32 32 32", [(MIN32, 1, MIN32), (MAX32, -1, MAX32), (0, MIN32, MAX32)]),
        # 2^31 * 2 >> 32 = 1, on top of the largest.
        (
            "mad.hi.sat.s32",
            "32 32 32 32",
            [(0x40000000, 4, MAX32, MAX32), (0x40000000, 4, 1, 2), (MIN32, 2, MIN32, MIN32)],
        ),
        ("add.u16x2", "32 32 32", [(0xFFFF0001, 0x00010002, 0x00000003)]),
        ("add.s16x2", "32 32 32", [(0x7FFFFFFF, 0x00010001, 0x80000000)]),
        ("min.u16x2", "32 32 32", [(0xFFFF0001, 0x00010002, 0x00010001)]),
        ("max.s16x2", "32 32 32", [(0xFFFF0001, 0x00010002, 0x00010002)]),
        ("min.relu.s32", "32 32 32", [(-5, 3, 0), (7, 3, 3)]),
        ("max.relu.s16x2", "32 32 32", [(0xFFFF8000, 0xFFFE0003, 0x00000003)]),
        # Low 24 bits: 0xFFFFFF is -1 signed.
        ("mul24.lo.u32", "32 32 32", [(0xFF000003, 0x01000005, 15), (0xFFFFFF, 0xFFFFFF, 0xFE000001)]),
        ("mul24.hi.u32", "32 32 32", [(0xFFFFFF, 0xFFFFFF, 0xFFFFFE00)]),
        ("mul24.lo.s32", "32 32 32", [(0xFFFFFF, 5, -5)]),
        ("mul24.hi.s32", "32 32 32", [(0x800000, 0x7FFFFF, -(2**23) * (2**23 - 1) >> 16)]),
        ("mad24.lo.s32", "32 32 32 32", [(0xFFFFFF, 5, 7, 2)]),
        ("mad24.hi.u32", "32 32 32 32", [(0xFFFFFF, 0xFFFFFF, 0x200, 0)]),
        # -2^23 * -2^23 >> 16 = 2^30.
        (
            "mad24.hi.sat.s32",
            "32 32 32 32",
            [(0x800000, 0x800000, 0x40000000, MAX32), (0x800000, 0x800000, 1, 0x40000001)],
        ),
        ("sad.u32", "32 32 32 32", [(3, 10, 100, 107), (10, 3, 100, 107), (M32, 0, 1, 0)]),
        ("sad.s16", "16 16 16 16", [(-5, 5, 1, 11)]),
        ("sad.s64", "64 64 64 64", [(-(1 << 40), 1 << 40, 0, 1 << 41)]),
        # 1*5 + 2*6 + 3*7 + (-1 or 255)*8
        ("dp4a.u32.u32", "32 32 32 32", [(0xFF030201, 0x08070605, 10, 2088)]),
        ("dp4a.s32.u32", "32 32 32 32", [(0xFF030201, 0x08070605, 10, 40)]),
        ("dp4a.s32.s32", "32 32 32 32", [(0x80808080, 0x80808080, 0, 65536)]),
        ("dp2a.lo.u32.u32", "32 32 32 32", [(0x00030002, 0x04030205, 1, 1 + 2 * 5 + 3 * 2)]),
        ("dp2a.hi.s32.s32", "32 32 32 32", [(0xFFFF0002, 0xFF030205, 1, 1 + 2 * 3 + 1)]),
        ("bfind.u32", "32 32", [(1, 0), (0x80000001, 31), (0, M32)]),
        ("bfind.s32", "32 32", [(-1, M32), (-2, 0), (MIN32, 30), (0x40, 6)]),
        ("bfind.shiftamt.u32", "32 32", [(1, 31), (MIN32, 0), (0, M32)]),
        ("bfind.shiftamt.s64", "32 64", [(1, 63), (-2, 63), (-1, M32), (1 << 62, 1)]),
        ("cnot.b32", "32 32", [(0, 1), (7, 0)]),
        ("cnot.b16", "16 16", [(0, 1), (0x8000, 0)]),
        ("bmsk.clamp.b32", "32 32 32", [(1, 2, 6), (28, 8, 0xF0000000), (32, 1, 0), (0, 32, M32), (4, 99, 0xFFFFFFF0)]),
        ("bmsk.wrap.b32", "32 32 32", [(1, 2, 6), (33, 2, 6), (0, 32, 0), (31, 2, MIN32)]),
        ("szext.clamp.s32", "32 32 32", [(0xFF, 8, -1), (0x7F, 8, 0x7F), (5, 0, 0), (0x12345678, 32, 0x12345678)]),
        ("szext.wrap.s32", "32 32 32", [(0xFF, 40, -1), (M32, 32, 0)]),
        ("szext.clamp.u32", "32 32 32", [(0xFFF, 8, 0xFF), (M32, 99, M32)]),
    ],
)
def test_values(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "mode, expected",
    [
        # Bytes of a are 0 to 3, of b 4 to 7, so the result spells which were picked, for selectors 0 to 3.
        ("f4e", [0x03020100, 0x04030201, 0x05040302, 0x06050403]),
        ("b4e", [0x05060700, 0x06070001, 0x07000102, 0x00010203]),
        ("rc8", [0x00000000, 0x01010101, 0x02020202, 0x03030303]),
        ("ecl", [0x03020100, 0x03020101, 0x03020202, 0x03030303]),
        ("ecr", [0x00000000, 0x01010100, 0x02020100, 0x03020100]),
        ("rc16", [0x01000100, 0x03020302, 0x01000100, 0x03020302]),
    ],
)
def test_fixed_permutations(engine, mode, expected):
    rows = [(0x03020100, 0x07060504, 8 + selector, result) for selector, result in enumerate(expected)]
    engine.check(f"prmt.b32.{mode}", "32 32 32 32", rows)


def test_addition_of_128_bits(engine):
    """(2^128 - 1) + 1 = 0 with a carry out; the carry passes through both middle words."""
    given = {"a": (64, [-1, 5]), "b": (64, [-1, 7]), "c": (64, [1, 3]), "e": (64, [0, 1])}
    body = "add.cc.u64 %d, %a, %c;\naddc.cc.u64 %f, %b, %e;\naddc.u32 %g, 0, 0;"
    found = engine.evaluate(body, given, {"d": 64, "f": 64, "g": 32})
    assert found == {"d": [0, 8], "f": [0, 8], "g": [1, 0]}


def test_subtraction_borrows(engine):
    """0 - 1 over two 32-bit words; a further word shows the borrow."""
    given = {"a": (32, [0, 5]), "b": (32, [0, 9]), "c": (32, [1, 3]), "e": (32, [0, 2])}
    body = "sub.cc.u32 %d, %a, %c;\nsubc.cc.u32 %f, %b, %e;\nsubc.s32 %g, 0, 0;"
    found = engine.evaluate(body, given, {"d": 32, "f": 32, "g": 32})
    assert found == {"d": [M32, 2], "f": [M32, 7], "g": [M32, 0]}


def test_product_of_64_bits_by_words(engine):
    """(2^32 - 1)^2 = 2^64 - 2^33 + 1, added to 2^32 + (2^32 - 1): the lower words carry."""
    given = {"a": (32, [M32]), "b": (32, [M32])}
    body = "mad.lo.cc.u32 %d, %a, %a, %b;\nmadc.hi.cc.u32 %f, %a, %a, 1;\naddc.u32 %g, 0, 0;"
    found = engine.evaluate(body, given, {"d": 32, "f": 32, "g": 32})
    total = M32 * M32 + (1 << 32) + M32
    assert found == {"d": [total & M32], "f": [total >> 32 & M32], "g": [total >> 64]}


def test_signed_high_product_with_carry(engine):
    """-1 * 5 has -1 as its upper half; with the carry of 2^32 - 1 + 1 that is 0."""
    given = {"a": (32, [M32]), "b": (32, [5])}
    body = "add.cc.u32 %d, %a, 1;\nmadc.hi.s32 %f, %a, %b, 0;\nmadc.lo.cc.s32 %g, %a, %b, 5;"
    assert engine.evaluate(body, given, {"d": 32, "f": 32, "g": 32}) == {"d": [0], "f": [0], "g": [1]}


def test_carry_crosses_blocks_and_guards(engine):
    """The flag lives over a branch, and an instruction that is guarded off leaves it."""
    given = {"a": (32, [M32, 1]), "q": (1, [0, 0])}
    body = (
        "add.cc.u32 %d, %a, 1;\nsetp.eq.u32 %p0, %a, 1;\n@%p0 bra OVER;\nmov.u32 %r0, 7;\nOVER:\n"
        "@%q add.cc.u32 %r1, 0, 0;\naddc.u32 %f, 0, 0;"
    )
    assert engine.evaluate(body, given, {"d": 32, "f": 32}) == {"d": [0, 2], "f": [1, 0]}
