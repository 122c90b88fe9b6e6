"""Bitwise logic, shifts, bit fields."""

import pytest

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("and.b32", "32 32 32", [(0xFF00FF00, 0x0FF00FF0, 0x0F000F00)]),
        ("or.b16", "16 16 16", [(0xF000, 0x000F, 0xF00F)]),
        ("xor.b64", "64 64 64", [(M64, 0xFF, M64 - 0xFF)]),
        ("not.b32", "32 32", [(0x0000FFFF, 0xFFFF0000)]),
        ("not.b16", "16 16", [(0, 0xFFFF)]),
        ("and.pred", "1 1 1", [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1)]),
        ("or.pred", "1 1 1", [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)]),
        ("xor.pred", "1 1 1", [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]),
        ("not.pred", "1 1", [(0, 1), (1, 0)]),
    ],
)
def test_logic(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # Amounts of at least the width clamp: everything is shifted out. The amount is unsigned and 32 bits wide.
        ("shl.b32", "32 32 32", [(1, 31, 0x80000000), (1, 32, 0), (1, 33, 0), (1, M32, 0), (3, 0, 3)]),
        ("shl.b16", "16 16 32", [(1, 15, 0x8000), (1, 16, 0), (1, 0x10001, 0)]),
        ("shl.b64", "64 64 32", [(1, 63, 1 << 63), (1, 64, 0), (1, 32, 1 << 32)]),
        ("shr.u32", "32 32 32", [(0x80000000, 31, 1), (0x80000000, 32, 0), (M32, 100, 0)]),
        ("shr.b32", "32 32 32", [(0x80000000, 4, 0x08000000)]),
        ("shr.s32", "32 32 32", [(0x80000000, 31, M32), (0x80000000, 32, M32), (0x40000000, 64, 0), (-8, 1, -4)]),
        ("shr.s16", "16 16 32", [(0x8000, 3, 0xF000), (0x8000, 16, 0xFFFF)]),
        ("shr.u16", "16 16 32", [(0x8000, 3, 0x1000), (0x8000, 16, 0)]),
        ("shr.s64", "64 64 32", [(1 << 63, 63, M64), (1 << 63, 64, M64)]),
        ("shr.u64", "64 64 32", [(1 << 63, 63, 1), (1 << 63, 64, 0)]),
    ],
)
def test_shifts(engine, op, widths, rows):
    engine.check(op, widths, rows)


A, B = 0x89ABCDEF, 0x01234567


@pytest.mark.parametrize(
    "op, rows",
    [
        # {b, a} = 0x01234567_89ABCDEF. Left by 8: upper word of the shifted pair; right by 8: its lower word.
        ("shf.l.wrap.b32", [(A, B, 8, 0x23456789), (A, B, 32, B), (A, B, 40, 0x23456789), (A, B, 0, B)]),
        ("shf.l.clamp.b32", [(A, B, 8, 0x23456789), (A, B, 32, A), (A, B, 40, A), (A, B, 0, B)]),
        ("shf.r.wrap.b32", [(A, B, 8, 0x6789ABCD), (A, B, 32, A), (A, B, 40, 0x6789ABCD), (A, B, 0, A)]),
        ("shf.r.clamp.b32", [(A, B, 8, 0x6789ABCD), (A, B, 32, B), (A, B, 40, B), (A, B, 0, A)]),
    ],
)
def test_funnel_shifts(engine, op, rows):
    engine.check(op, "32 32 32 32", rows)


@pytest.mark.parametrize(
    "table, expected",
    [
        # ta = 0xF0, tb = 0xCC, tc = 0xAA: the table of a function is the function of these three.
        (0xF0 & 0xCC & 0xAA, 0x0F0F0F0F & 0x33333333 & 0x55555555),
        (0xF0 | 0xCC | 0xAA, 0x0F0F0F0F | 0x33333333 | 0x55555555),
        (0xF0 ^ 0xCC ^ 0xAA, 0x0F0F0F0F ^ 0x33333333 ^ 0x55555555),
        ((0xF0 & 0xCC) | (~0xF0 & 0xFF & 0xAA), (0x0F0F0F0F & 0x33333333) | (0xF0F0F0F0 & 0x55555555)),
        (0x00, 0),
        (0xFF, M32),
    ],
)
def test_lop3(engine, table, expected):
    inputs = {"a": (32, [0x0F0F0F0F]), "b": (32, [0x33333333]), "c": (32, [0x55555555])}
    assert engine.evaluate(f"lop3.b32 %d, %a, %b, %c, {table};", inputs, {"d": 32})["d"] == [expected]


def test_prmt(engine):
    """Bytes 0 to 7 are 80 81 72 73 (a) and 94 95 66 67 (b); a nibble with bit 3 set replicates the byte's top bit."""
    a, b = 0x73728180, 0x67669594
    engine.check(
        "prmt.b32",
        "32 32 32 32",
        [
            (a, b, 0x3210, a),
            (a, b, 0x7654, b),
            (a, b, 0x0123, 0x80817273),
            (a, b, 0x5410, 0x95948180),
            (a, b, 0x98BA, 0xFFFF0000),
            (a, b, 0xCDEF, 0xFFFF0000),
            (a, b, 0xFFFF3210, a),
        ],
    )


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("bfe.u32", "32 32 32 32", [(0x12345678, 8, 8, 0x56), (M32, 28, 8, 0xF), (M32, 32, 4, 0), (M32, 5, 0, 0)]),
        # 0xF6 from position 4, length 4 is 0xF: the sign bit of the field fills the rest; beyond bit 31 it is bit 31.
        (
            "bfe.s32",
            "32 32 32 32",
            [
                (0xF6, 4, 4, M32),
                (0x76, 4, 4, 7),
                (0x80000000, 28, 8, 0xFFFFFFF8),
                (0x80000000, 40, 4, M32),
                (M32, 3, 0, 0),
            ],
        ),
        # Only the low 8 bits of position and length count: 0x104 is 4.
        ("bfe.u32", "32 32 32 32", [(0xABCD, 0x104, 0x108, 0xBC), (0x12345678, 0, 255, 0x12345678)]),
        ("bfe.u64", "64 64 32 32", [(0x123456789ABCDEF0, 32, 16, 0x5678), (M64, 60, 32, 0xF)]),
        ("bfe.s64", "64 64 32 32", [(1 << 63, 60, 4, M64 - 7), (0xF0, 4, 4, M64)]),
    ],
)
def test_bfe(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # a goes into b; what would stick out beyond the top is dropped; length 0 leaves b.
        (
            "bfi.b32",
            "32 32 32 32 32",
            [
                (0xAB, 0x11111111, 8, 8, 0x1111AB11),
                (0xFF, 0, 28, 8, 0xF0000000),
                (M32, 0x1234, 0, 0, 0x1234),
                (M32, 0x1234, 32, 4, 0x1234),
                (0x55, 0xFFFFFFFF, 0, 32, 0x55),
            ],
        ),
        ("bfi.b64", "64 64 64 32 32", [(0xAB, 0, 56, 8, 0xAB << 56), (M64, 0, 32, 4, 0xF << 32)]),
    ],
)
def test_bfi(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("popc.b32", "32 32", [(0, 0), (M32, 32), (0x80000001, 2)]),
        ("popc.b64", "32 64", [(M64, 64), (1 << 40, 1)]),
        ("clz.b32", "32 32", [(0, 32), (1, 31), (0x80000000, 0)]),
        ("clz.b64", "32 64", [(0, 64), (1, 63), (1 << 32, 31)]),
        ("brev.b32", "32 32", [(1, 0x80000000), (0x80000000, 1), (0x0000F00D, 0xB00F0000)]),
        ("brev.b64", "64 64", [(1, 1 << 63), (0x2, 1 << 62)]),
    ],
)
def test_counting_and_reversal(engine, op, widths, rows):
    engine.check(op, widths, rows)
