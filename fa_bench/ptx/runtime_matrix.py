"""Run-time part of matrix products, as LLVM IR text.

A product of 16 rows and 8 columns works on three forms. A is expanded to columns of 16 f32, C is kept as 8 columns
of 16 f32, B stays in its lanes' order, whose f32 copy is already ``[n][k]``. One step of the product is then a column
of A times one broadcast element of B: vector FMAs, no shuffles. Products of two numbers of up to 16 bits, or of
tf32, are exact in f32, and the sum runs over k = 0, 1, ... with one rounding each. Eight-bit integers are calculated
the same way: all sums of 32 products are exact. f64 products have f64 columns.
"""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.fragments import of_a, of_b, per_register
from fa_bench.ptx.layout import LANES
from fa_bench.ptx.lower_convert import f8_single
from fa_bench.ptx.runtime_math import Body
from fa_bench.ptx.wide import Wide

ROWS: Final = 16
COLUMNS: Final = 8


def _element(kind: str) -> tuple[str, int]:
    """IR type and bytes of an element of the expanded forms."""
    return ("double", 8) if kind == "f64" else ("float", 4)


def _register(kind: str) -> str:
    return f"<{LANES} x {'double' if kind == 'f64' else 'i32'}>"


def a_bytes(kind: str, depth: int) -> int:
    """Size of the expanded form of A."""
    return ROWS * depth * _element(kind)[1]


def b_bytes(kind: str, depth: int) -> int:
    """Room that :func:`multiply` needs."""
    return COLUMNS * depth * _element(kind)[1]


def c_bytes(kind: str) -> int:
    """Size of the expanded form of C."""
    return ROWS * COLUMNS * _element(kind)[1]


def decoded(words: Wide, h: int, kind: str) -> Wide:
    """Element h of each register as f32 (f64 stays)."""
    match kind:
        case "f64":
            return words
        case "tf32":
            return words.op("and", -0x2000).cast("float")
        case "bf16":
            return (words.op("and", -0x10000) if h else words.op("shl", 16)).cast("float")
        case "f16":
            return (words.op("lshr", 16) if h else words).to("trunc", "i16").cast("half").to("fpext", "float")
        case "s8":
            return words.op("shl", 24 - 8 * h).op("ashr", 24).to("sitofp", "float")
        case "u8":
            return words.op("lshr", 8 * h).op("and", 255).to("sitofp", "float")
    return f8_single((words.op("lshr", 8 * h) if h else words).to("trunc", "i8"), kind)


def expand_a(kind: str, depth: int) -> str:
    """``@mma_expand_a_KIND_K(buffer, a0, ...)``: ``depth`` columns of 16 rows."""
    b = Body()
    groups = of_a(kind, depth)
    each = per_register(kind)
    size = _element(kind)[1]
    register = "double" if kind == "f64" else "i32"
    for k in range(depth // each):
        # The rows of one column are spread over two registers, the upper and the lower eight.
        rows = {
            row: (r, lane)
            for r, group in enumerate(groups)
            for lane, (row, column) in enumerate(group.places)
            if column == each * k
        }
        first, second = sorted({r for r, _ in rows.values()})
        lanes = [lane + LANES * (r == second) for _, (r, lane) in sorted(rows.items())]
        pair = Wide(b, f"%a{first}", register, LANES).joined(Wide(b, f"%a{second}", register, LANES)).pick(lanes)
        for h in range(each):
            column = b.at("%buf", ROWS * size * (each * k + h))
            b.do(f"store {decoded(pair, h, kind).typed}, ptr {column}, align 64")
    b.do("ret void")
    arguments = ", ".join(f"{_register(kind)} %a{k}" for k in range(len(groups)))
    return b.text(f"define internal void @mma_expand_a_{kind}_{depth}(ptr %buf, {arguments})")


def expand_c(elem: str) -> str:
    """``@mma_expand_c_ELEM(buffer, c0..c3)``: 8 columns of 16 rows.

    Lane 4r+t holds row r, columns 2t and 2t+1; then the same of row r+8.
    """
    b = Body()
    size = 8 if elem == "double" else 4
    c = [Wide(b, f"%c{k}", elem, LANES) for k in range(4)]
    for t in range(4):
        rows = [4 * r + t for r in range(8)]
        for h in range(2):
            column = c[h].joined(c[2 + h]).pick(rows + [LANES + r for r in rows])
            b.do(f"store {column.typed}, ptr {b.at('%buf', ROWS * size * (2 * t + h))}, align 64")
    b.do("ret void")
    arguments = ", ".join(v.typed for v in c)
    return b.text(f"define internal void @mma_expand_c_{elem}(ptr %buf, {arguments})")


def collapse_c(elem: str) -> str:
    """``@mma_collapse_c_ELEM(buffer, out)``: the four lane vectors c0..c3, one after the other, from the columns."""
    b = Body()
    size = 8 if elem == "double" else 4
    shape = f"<{ROWS} x {elem}>"
    columns = [
        Wide(b, b.let(f"load {shape}, ptr {b.at('%buf', ROWS * size * k)}, align 64"), elem, ROWS)
        for k in range(COLUMNS)
    ]
    for h in range(2):
        low, high = columns[h].joined(columns[2 + h]), columns[4 + h].joined(columns[6 + h])
        for top in range(2):
            # Lane 4r+t takes column t (of the four with this h), row r + 8·top.
            lanes = [ROWS * (lane % 4) + lane // 4 + 8 * top for lane in range(LANES)]
            place = b.at("%out", LANES * size * (2 * top + h))
            b.do(f"store {low.joined(high).pick(lanes).typed}, ptr {place}, align 64")
    b.do("ret void")
    return b.text(f"define internal void @mma_collapse_c_{elem}(ptr %buf, ptr %out)")


def multiply(kind: str, depth: int) -> str:
    """``@mma_KIND_K(a, c, b, b0, ...)``: C += A·B in place on the expanded forms; ``b`` is room for B's f32 copy.

    The copy lies in memory that the caller owns: a local one would be turned back into registers, and each
    broadcast into a shuffle, where a load broadcasts for nothing.
    """
    b = Body()
    groups = of_b(kind, depth)
    each = per_register(kind)
    elem, size = _element(kind)
    column = f"<{ROWS} x {elem}>"
    suffix = f"v{ROWS}f{8 * size}"
    place: dict[tuple[int, int], int] = {}
    for r, group in enumerate(groups):
        for h in range(each):
            start = LANES * size * (each * r + h)
            source = Wide(b, f"%b{r}", "double" if kind == "f64" else "i32", LANES)
            b.do(f"store {decoded(source, h, kind).typed}, ptr {b.at('%b', start)}, align 64")
            place |= {(k + h, n): start + size * lane for lane, (k, n) in enumerate(group.places)}
    acc = [b.let(f"load {column}, ptr {b.at('%c', ROWS * size * n)}, align 64") for n in range(COLUMNS)]
    for k in range(depth):
        a = b.let(f"load {column}, ptr {b.at('%a', ROWS * size * k)}, align 64")
        for n in range(COLUMNS):
            scalar = b.let(f"load {elem}, ptr {b.at('%b', place[k, n])}, align {size}")
            one = b.let(f"insertelement {column} poison, {elem} {scalar}, i64 0")
            wide = b.let(f"shufflevector {column} {one}, {column} poison, <{ROWS} x i32> zeroinitializer")
            acc[n] = b.let(f"call {column} @llvm.fma.{suffix}({column} {a}, {column} {wide}, {column} {acc[n]})")
    for n in range(COLUMNS):
        b.do(f"store {column} {acc[n]}, ptr {b.at('%c', ROWS * size * n)}, align 64")
    b.do("ret void")
    arguments = ", ".join(f"{_register(kind)} %b{k}" for k in range(len(groups)))
    return b.text(f"define internal void @mma_{kind}_{depth}(ptr %a, ptr %c, ptr %b, {arguments})")
