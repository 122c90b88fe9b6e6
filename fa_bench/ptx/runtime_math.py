"""Run-time functions of ``ex2``, ``lg2``, shuffles and matrix loads, as LLVM IR text."""

from __future__ import annotations

import math
import struct
from typing import Final

from fa_bench.ptx.layout import Buffers, Context
from fa_bench.ptx.literals import float_literal


def _f32(number: float) -> str:
    return float_literal(struct.unpack("<I", struct.pack("<f", number))[0])


def _indices(values: list[int]) -> str:
    return "<" + ", ".join(f"i32 {v}" for v in values) + ">"


class Body:
    """Lines of one function with numbered temporaries."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def let(self, expression: str) -> str:
        """Write ``%vN = expression`` and return ``%vN``."""
        self.count += 1
        self.lines.append(f"  %v{self.count} = {expression}")
        return f"%v{self.count}"

    def do(self, line: str) -> None:
        """Write a line."""
        self.lines.append("  " + line)

    def at(self, base: str, offset: int) -> str:
        """Pointer ``offset`` bytes behind ``base``."""
        return base if not offset else self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def text(self, header: str) -> str:
        """The function under its header."""
        return header + " #1 {\n" + "\n".join(self.lines) + "\n}\n"


def ldmatrix(count: int, trans: bool) -> str:
    """``@ldmatrix_xN[_trans](ctx, site, offsets, mask, out) -> flags``.

    Lane 8m+r gives the address of row r of matrix m; register m of lane 4r+t receives elements 2t, 2t+1 of row r
    (of column r with ``.trans``).
    """
    b = Body()
    b.do("%slots = alloca <32 x i32>, align 64")
    b.do(f"%m = and i32 %mask, {(1 << 8 * count) - 1 if count < 4 else -1}")
    b.do(f"%flags = call i32 @shared_count(ptr %ctx, ptr %site, <32 x i32> %a, i32 %m, i32 16, i64 {Buffers.READ})")
    b.do("%ok = icmp ne i32 %flags, 0\n  br i1 %ok, label %go, label %bad\nbad:\n  ret i32 0\ngo:")
    # Lanes that are off read where shared memory begins.
    b.do("%on = bitcast i32 %m to <32 x i1>")
    b.do("%safe = select <32 x i1> %on, <32 x i32> %a, <32 x i32> zeroinitializer")
    b.do("store <32 x i32> %safe, ptr %slots, align 64")
    shared = b.let(f"load ptr, ptr {b.at('%ctx', Context.SHARED)}, align 8")
    for m in range(count):
        quads = []
        for q in range(2):
            rows = []
            for r in range(4):
                offset = b.let(f"load i32, ptr {b.at('%slots', 4 * (8 * m + 4 * q + r))}, align 4")
                pointer = b.let(f"getelementptr i8, ptr {shared}, i64 {b.let(f'zext i32 {offset} to i64')}")
                rows.append(b.let(f"load <4 x i32>, ptr {pointer}, align 16"))
            pairs = [
                b.let(f"shufflevector <4 x i32> {x}, <4 x i32> {y}, <8 x i32> " + _indices(list(range(8))))
                for x, y in ((rows[0], rows[1]), (rows[2], rows[3]))
            ]
            quads.append(
                b.let(
                    f"shufflevector <8 x i32> {pairs[0]}, <8 x i32> {pairs[1]}, <16 x i32> " + _indices(list(range(16)))
                )
            )
        whole = b.let(
            f"shufflevector <16 x i32> {quads[0]}, <16 x i32> {quads[1]}, <32 x i32> " + _indices(list(range(32)))
        )
        if trans:
            halves = b.let(f"bitcast <32 x i32> {whole} to <64 x i16>")
            turned = b.let(
                f"shufflevector <64 x i16> {halves}, <64 x i16> poison, <64 x i32> "
                + _indices([8 * c + r for r in range(8) for c in range(8)])
            )
            whole = b.let(f"bitcast <64 x i16> {turned} to <32 x i32>")
        b.do(f"store <32 x i32> {whole}, ptr {b.at('%out', 128 * m)}, align 64")
    b.do("ret i32 %flags")
    name = f"ldmatrix_x{count}" + ("_trans" if trans else "")
    return b.text(f"define internal i32 @{name}(ptr %ctx, ptr %site, <32 x i32> %a, i32 %mask, ptr %out)")


#: 2^r on [-1/2, 1/2]: minimax in relative error (Remez exchange, degree 6), 2^-29 before rounding to f32.
EX2_COEFFICIENTS: Final = (
    1.00000000055, 0.69314720574, 0.24022646891, 0.05550328777, 0.00961848896, 0.00133999312, 0.00015345812,
)  # fmt: skip


def ex2() -> str:
    """``@ex2``: 2^x; subnormal results are rounded once, not flushed."""
    b = Body()
    v = "<32 x float>"

    def splat(number: float) -> str:
        return f"splat (float {_f32(number)})"

    def bits(number: int) -> str:
        return f"splat (i32 {number})"

    low = b.let(f"fcmp olt {v} %x, {splat(-151.0)}")
    x = b.let(f"select <32 x i1> {low}, {v} {splat(-151.0)}, {v} %x")
    high = b.let(f"fcmp ogt {v} {x}, {splat(129.0)}")
    x = b.let(f"select <32 x i1> {high}, {v} {splat(129.0)}, {v} {x}")
    # Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low mantissa bits.
    magic = 12582912.0
    shifted = b.let(f"fadd {v} {x}, {splat(magic)}")
    whole = b.let(f"fsub {v} {shifted}, {splat(magic)}")
    r = b.let(f"fsub {v} {x}, {whole}")
    n = b.let(f"sub <32 x i32> {b.let(f'bitcast {v} {shifted} to <32 x i32>')}, {bits(0x4B400000)}")
    p = splat(EX2_COEFFICIENTS[-1])
    for c in reversed(EX2_COEFFICIENTS[:-1]):
        p = b.let(f"call {v} @llvm.fma.v32f32({v} {p}, {v} {r}, {v} {splat(c)})")
    # Two factors, so that neither leaves the normal range.
    half = b.let(f"ashr <32 x i32> {n}, {bits(1)}")
    for part in (half, b.let(f"sub <32 x i32> {n}, {half}")):
        biased = b.let(f"add <32 x i32> {part}, {bits(127)}")
        scale = b.let(f"bitcast <32 x i32> {b.let(f'shl <32 x i32> {biased}, {bits(23)}')} to {v}")
        p = b.let(f"fmul {v} {p}, {scale}")
    b.do(f"ret {v} {p}")
    return b.text(f"define internal {v} @ex2({v} %x)")


def lg2() -> str:
    """``@lg2``: log2 x by m = 2^-e x in [√½, √2), s = (m-1)/(m+1), log2 m = 2/ln 2 · (s + s³/3 + s⁵/5 + ...)."""
    b = Body()
    v = "<32 x float>"

    def splat(number: float) -> str:
        return f"splat (float {_f32(number)})"

    tiny = b.let(f"fcmp olt {v} %x, {splat(2.0**-126)}")
    scaled = b.let(f"fmul {v} %x, {splat(2.0**24)}")
    x = b.let(f"select <32 x i1> {tiny}, {v} {scaled}, {v} %x")
    pattern = b.let(f"bitcast {v} {x} to <32 x i32>")
    # 0x3F3504F3 is √½: subtracting it puts the exponent of m in [√½, √2) into the upper bits.
    offset = b.let(f"sub <32 x i32> {pattern}, splat (i32 {0x3F3504F3})")
    exponent = b.let(f"ashr <32 x i32> {offset}, splat (i32 23)")
    m_bits = b.let(f"sub <32 x i32> {pattern}, {b.let(f'shl <32 x i32> {exponent}, splat (i32 23)')}")
    m = b.let(f"bitcast <32 x i32> {m_bits} to {v}")
    e = b.let(f"sitofp <32 x i32> {exponent} to {v}")
    less = b.let(f"fsub {v} {e}, {splat(24.0)}")
    e = b.let(f"select <32 x i1> {tiny}, {v} {less}, {v} {e}")
    s = b.let(f"fdiv {v} {b.let(f'fsub {v} {m}, {splat(1.0)}')}, {b.let(f'fadd {v} {m}, {splat(1.0)}')}")
    s2 = b.let(f"fmul {v} {s}, {s}")
    p = splat(2 / math.log(2) / 9)
    for odd in (7, 5, 3, 1):
        p = b.let(f"call {v} @llvm.fma.v32f32({v} {p}, {v} {s2}, {v} {splat(2 / math.log(2) / odd)})")
    result = b.let(f"call {v} @llvm.fma.v32f32({v} {p}, {v} {s}, {v} {e})")
    # 0 -> -inf, below 0 or NaN -> NaN, +inf -> +inf.
    zero = b.let(f"fcmp oeq {v} %x, zeroinitializer")
    result = b.let(f"select <32 x i1> {zero}, {v} splat (float 0xFFF0000000000000), {v} {result}")
    negative = b.let(f"fcmp ult {v} %x, zeroinitializer")
    result = b.let(f"select <32 x i1> {negative}, {v} splat (float 0x7FF8000000000000), {v} {result}")
    infinite = b.let(f"fcmp oeq {v} %x, splat (float 0x7FF0000000000000)")
    result = b.let(f"select <32 x i1> {infinite}, {v} %x, {v} {result}")
    b.do(f"ret {v} {result}")
    return b.text(f"define internal {v} @lg2({v} %x)")


def permute(avx512: bool) -> str:
    """``@permute(values, lanes)``: lane l takes the value of lane ``lanes[l]``."""
    b = Body()
    v = "<16 x i32>"
    if avx512:
        x = [_half_of(b, "%x", h) for h in range(2)]
        halves = [
            b.let(f"call {v} @llvm.x86.avx512.vpermi2var.d.512({v} {x[0]}, {v} {_half_of(b, '%lanes', h)}, {v} {x[1]})")
            for h in range(2)
        ]
        whole = b.let(f"shufflevector {v} {halves[0]}, {v} {halves[1]}, <32 x i32> " + _indices(list(range(32))))
        b.do(f"ret <32 x i32> {whole}")
    else:
        b.do("%slots = alloca <32 x i32>, align 64")
        b.do("%index = alloca <32 x i32>, align 64")
        b.do("%out = alloca <32 x i32>, align 64")
        b.do("store <32 x i32> %x, ptr %slots, align 64")
        b.do("store <32 x i32> %lanes, ptr %index, align 64")
        for lane in range(32):
            source = b.let(f"load i32, ptr {b.at('%index', 4 * lane)}, align 4")
            pointer = b.let(f"getelementptr i32, ptr %slots, i64 {b.let(f'zext i32 {source} to i64')}")
            b.do(f"store i32 {b.let(f'load i32, ptr {pointer}, align 4')}, ptr {b.at('%out', 4 * lane)}, align 4")
        b.do(f"ret <32 x i32> {b.let('load <32 x i32>, ptr %out, align 64')}")
    return b.text("define internal <32 x i32> @permute(<32 x i32> %x, <32 x i32> %lanes)")


def _half_of(b: Body, value: str, h: int) -> str:
    lanes = _indices(list(range(16 * h, 16 * h + 16)))
    return b.let(f"shufflevector <32 x i32> {value}, <32 x i32> poison, <16 x i32> {lanes}")
