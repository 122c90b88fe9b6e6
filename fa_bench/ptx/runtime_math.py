"""Run-time part of matrix and special-function instructions, as LLVM IR text.

``mma.m16n8k16`` works on three forms. A is expanded to 16 columns of 16 f32, C is kept as 8 columns of 16 f32,
B stays in its lanes' order, whose f32 copy is already ``[n][k]``. One step of the product is then a column of A
times one broadcast element of B: 128 vector FMAs, no shuffles. Products of 16-bit floats are exact in f32, and
the sum runs over k = 0 ... 15 with one rounding each.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from fa_bench.ptx.emitter import float_literal
from fa_bench.ptx.layout import Context

F16: Final = "<16 x float>"


def _f32(number: float) -> str:
    return float_literal(struct.unpack("<I", struct.pack("<f", number))[0])


def _indices(values: list[int]) -> str:
    return "<" + ", ".join(f"i32 {v}" for v in values) + ">"


class _Body:
    """Lines of one function with numbered temporaries."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def let(self, expression: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {expression}")
        return f"%v{self.count}"

    def do(self, line: str) -> None:
        self.lines.append("  " + line)

    def at(self, base: str, offset: int) -> str:
        return base if not offset else self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def text(self, header: str) -> str:
        return header + " #1 {\n" + "\n".join(self.lines) + "\n}\n"


def expand_a(kind: str) -> str:
    """``@mma_expand_a_KIND(buffer, a0..a3)``: 16 columns (k) of 16 rows, f32.

    Fragment layout (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4r+t holds, in a0, row r, columns 2t and
    2t+1; a1 is rows + 8; a2, a3 are columns + 8.
    """
    b = _Body()
    for half, (low, high) in enumerate((("%a0", "%a1"), ("%a2", "%a3"))):
        for t in range(4):
            rows = [4 * r + t for r in range(8)]
            pair = b.let(
                f"shufflevector <32 x i32> {low}, <32 x i32> {high}, <16 x i32> "
                + _indices(rows + [32 + r for r in rows])
            )
            for h in range(2):
                column = b.at("%buf", 64 * (8 * half + 2 * t + h))
                b.do(f"store {F16} {_half(b, pair, h, kind, 16)}, ptr {column}, align 64")
    b.do("ret void")
    arguments = ", ".join(f"<32 x i32> %a{k}" for k in range(4))
    return b.text(f"define internal void @mma_expand_a_{kind}(ptr %buf, {arguments})")


def _half(b: _Body, pair: str, h: int, kind: str, n: int) -> str:
    """Lower (0) or upper (1) 16 bits of each 32-bit lane as f32."""
    if kind == "bf16":
        op = f"shl <{n} x i32> {pair}, splat (i32 16)" if h == 0 else f"and <{n} x i32> {pair}, splat (i32 -65536)"
        return b.let(f"bitcast <{n} x i32> {b.let(op)} to <{n} x float>")
    if h:
        pair = b.let(f"lshr <{n} x i32> {pair}, splat (i32 16)")
    bits = b.let(f"trunc <{n} x i32> {pair} to <{n} x i16>")
    return b.let(f"fpext <{n} x half> {b.let(f'bitcast <{n} x i16> {bits} to <{n} x half>')} to <{n} x float>")


def expand_c() -> str:
    """``@mma_expand_c(buffer, c0..c3)``: 8 columns of 16 rows. Lane 4r+t holds row r, columns 2t, 2t+1; then r+8."""
    b = _Body()
    for t in range(4):
        rows = [4 * r + t for r in range(8)]
        for h in range(2):
            column = b.let(
                f"shufflevector <32 x float> %c{h}, <32 x float> %c{2 + h}, <16 x i32> "
                + _indices(rows + [32 + r for r in rows])
            )
            b.do(f"store {F16} {column}, ptr {b.at('%buf', 64 * (2 * t + h))}, align 64")
    b.do("ret void")
    arguments = ", ".join(f"<32 x float> %c{k}" for k in range(4))
    return b.text(f"define internal void @mma_expand_c(ptr %buf, {arguments})")


def collapse_c() -> str:
    """``@mma_collapse_c(buffer, out)``: the four lane vectors c0..c3, 128 bytes each, from the columns."""
    b = _Body()
    columns = [b.let(f"load {F16}, ptr {b.at('%buf', 64 * k)}, align 64") for k in range(8)]
    for h in range(2):
        ab = b.let(f"shufflevector {F16} {columns[h]}, {F16} {columns[2 + h]}, <32 x i32> " + _indices(list(range(32))))
        cd = b.let(
            f"shufflevector {F16} {columns[4 + h]}, {F16} {columns[6 + h]}, <32 x i32> " + _indices(list(range(32)))
        )
        for top in range(2):
            # Lane 4r+t takes column t (of the four with this h), row r + 8·top.
            lanes = [16 * (lane % 4) + lane // 4 + 8 * top for lane in range(32)]
            c = b.let(f"shufflevector <32 x float> {ab}, <32 x float> {cd}, <32 x i32> " + _indices(lanes))
            b.do(f"store <32 x float> {c}, ptr {b.at('%out', 128 * (2 * top + h))}, align 64")
    b.do("ret void")
    return b.text("define internal void @mma_collapse_c(ptr %buf, ptr %out)")


def multiply(kind: str) -> str:
    """``@mma_KIND(a, c, b, b0, b1)``: C += A·B in place on the expanded forms; ``b`` is room for B's f32 copy.

    The copy lies in memory that the caller owns: a local one would be turned back into registers, and each
    broadcast into a shuffle, where a load broadcasts for nothing.

    Lane 4n+t holds, in b0, column n, rows (k) 2t and 2t+1; b1 is rows + 8.
    """
    b = _Body()
    for half, register in enumerate(("%b0", "%b1")):
        for h in range(2):
            place = b.at("%b", 256 * half + 128 * h)
            b.do(f"store <32 x float> {_half(b, register, h, kind, 32)}, ptr {place}, align 64")
    acc = [b.let(f"load {F16}, ptr {b.at('%c', 64 * n)}, align 64") for n in range(8)]
    for k in range(16):
        half, t, h = k // 8, k % 8 // 2, k % 2
        a = b.let(f"load {F16}, ptr {b.at('%a', 64 * k)}, align 64")
        for n in range(8):
            scalar = b.let(f"load float, ptr {b.at('%b', 256 * half + 128 * h + 4 * (4 * n + t))}, align 4")
            one = b.let(f"insertelement {F16} poison, float {scalar}, i64 0")
            wide = b.let(f"shufflevector {F16} {one}, {F16} poison, <16 x i32> zeroinitializer")
            acc[n] = b.let(f"call {F16} @llvm.fma.v16f32({F16} {a}, {F16} {wide}, {F16} {acc[n]})")
    for n in range(8):
        b.do(f"store {F16} {acc[n]}, ptr {b.at('%c', 64 * n)}, align 64")
    b.do("ret void")
    return b.text(f"define internal void @mma_{kind}(ptr %a, ptr %c, ptr %b, <32 x i32> %b0, <32 x i32> %b1)")


def ldmatrix(count: int, trans: bool) -> str:
    """``@ldmatrix_xN[_trans](ctx, site, offsets, mask, out) -> flags``.

    Lane 8m+r gives the address of row r of matrix m; register m of lane 4r+t receives elements 2t, 2t+1 of row r
    (of column r with ``.trans``).
    """
    b = _Body()
    b.do("%slots = alloca <32 x i32>, align 64")
    b.do(f"%m = and i32 %mask, {(1 << 8 * count) - 1 if count < 4 else -1}")
    b.do("%flags = call i32 @shared_count(ptr %ctx, ptr %site, <32 x i32> %a, i32 %m, i32 16)")
    b.do("%ok = icmp ne i32 %flags, 0\n  br i1 %ok, label %go, label %bad\nbad:\n  ret i32 0\ngo:")
    b.do("store <32 x i32> %a, ptr %slots, align 64")
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
    b = _Body()
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
    b = _Body()
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
    b = _Body()
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


def _half_of(b: _Body, value: str, h: int) -> str:
    lanes = _indices(list(range(16 * h, 16 * h + 16)))
    return b.let(f"shufflevector <32 x i32> {value}, <32 x i32> poison, <16 x i32> {lanes}")
