"""``mma`` in every shape: fragments transcribed from the figures of the PTX ISA, products checked against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fa_bench.ptx.memory import Memory

Place = Callable[[int, int, int], tuple[int, int]]

# (groupID g, threadID_in_group t, element index i) -> (row, column), as the ISA writes them.
C16: Place = lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2)  # noqa: E731
C8: Place = lambda g, t, i: (g, 2 * t + i % 2)  # noqa: E731
#: Shape and element width -> places of A, of B, of C.
FRAGMENTS: dict[tuple[str, int], tuple[Place, Place, Place]] = {
    ("m16n8k4", 32): (lambda g, t, i: (g + 8 * i, t), lambda g, t, i: (t, g), C16),
    ("m16n8k4", 64): (lambda g, t, i: (g + 8 * i, t), lambda g, t, i: (t, g), C16),
    ("m16n8k8", 16): (lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2), lambda g, t, i: (2 * t + i, g), C16),
    ("m16n8k8", 32): (lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)), lambda g, t, i: (t + 4 * i, g), C16),
    ("m16n8k8", 64): (lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)), lambda g, t, i: (t + 4 * i, g), C16),
    ("m16n8k16", 16): (
        lambda g, t, i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
        lambda g, t, i: (2 * t + i % 2 + 8 * (i // 2), g),
        C16,
    ),
    ("m16n8k16", 8): (lambda g, t, i: (g + 8 * (i // 4), 4 * t + i % 4), lambda g, t, i: (4 * t + i, g), C16),
    ("m16n8k16", 64): (lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)), lambda g, t, i: (t + 4 * i, g), C16),
    ("m16n8k32", 8): (
        lambda g, t, i: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8)),
        lambda g, t, i: (4 * t + i % 4 + 16 * (i // 4), g),
        C16,
    ),
    ("m8n8k4", 64): (lambda g, t, i: (g, t), lambda g, t, i: (t, g), C8),
    ("m8n8k16", 8): (lambda g, t, i: (g, 4 * t + i), lambda g, t, i: (4 * t + i, g), C8),
}
WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f64": 64}


def patterns(values: np.ndarray, type_: str) -> np.ndarray:
    """Patterns of small integers in a type."""
    match type_:
        case "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint64)
        case "bf16":
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
        case "tf32" | "f32":
            return values.astype(np.float32).view(np.uint32).astype(np.uint64)
        case "f64":
            return values.astype(np.float64).view(np.uint64)
        case "e5m2":
            # The upper half of an f16.
            return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint64)
        case "e4m3":
            # Another bias than f16's (7, not 15) and three of its ten bits of mantissa; zero has no exponent.
            half = values.astype(np.float16).view(np.uint16).astype(np.int64)
            magnitude = np.where(half & 0x7FFF, (half & 0x7FFF) - (8 << 10) >> 7, 0)
            return (magnitude | half >> 8 & 0x80).astype(np.uint64)
    return (values.astype(np.int64) % 2 ** WIDTH[type_]).astype(np.uint64)


def fragment(matrix: np.ndarray, type_: str, place: Place) -> np.ndarray:
    """Registers [lane, register] (uint64) that hold ``matrix``."""
    each = max(32 // WIDTH[type_], 1)
    count = matrix.size // 32
    bits = patterns(matrix, type_)
    registers = np.zeros((32, -(-count // each)), np.uint64)
    for lane in range(32):
        for i in range(count):
            registers[lane, i // each] |= bits[place(lane // 4, lane % 4, i)] << np.uint64(WIDTH[type_] * (i % each))
    return registers


def run(engine: Any, opcode: str, fragments: list[np.ndarray], wide: bool) -> np.ndarray:
    """Registers of D [lane, register]."""
    memory = Memory()
    bits = [64 if wide else 32] * 3
    columns = np.concatenate(fragments, axis=1)
    source = memory.allocate("in", 32 * 8 * columns.shape[1]).view(np.uint64).reshape(32, -1)
    source[:] = columns
    names, lines, column = [], [], 0
    for letter, registers, width in zip("abc", fragments, bits, strict=True):
        group = [f"%{letter}{k}" for k in range(registers.shape[1])]
        lines.append(f".reg .b{width} {', '.join(group)};")
        for name in group:
            lines.append(f"ld.global.b{width} {name}, [%rd0+{8 * column}];")
            column += 1
        names.append("{" + ", ".join(group) + "}")
    count = fragments[2].shape[1]
    target = memory.allocate("out", 32 * 8 * count).view(np.uint64).reshape(32, -1)
    target[:] = 0
    results = [f"%d{k}" for k in range(count)]
    lines += [f".reg .b{bits[2]} {', '.join(results)};", f"{opcode} {{{', '.join(results)}}}, {', '.join(names)};"]
    lines += [f"st.global.b{bits[2]} [%rd1+{8 * k}], {name};" for k, name in enumerate(results)]
    body = (
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n"
        f"mad.wide.u32 %rd0, %r0, {8 * columns.shape[1]}, %rd0;\nmad.wide.u32 %rd1, %r0, {8 * count}, %rd1;\n"
    )
    text = engine.wrap(body + "\n".join(lines), ".param .u64 in, .param .u64 out")
    counters = engine.launch(
        text, memory=memory, args=[np.uint64(memory.address("in")), np.uint64(memory.address("out"))]
    )
    assert counters.instructions["tensor"] == 1
    return target


def sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


CASES = [
    ("m16n8k4", "f32.tf32.tf32.f32"), ("m16n8k8", "f32.tf32.tf32.f32"),
    ("m16n8k8", "f32.f16.f16.f32"), ("m16n8k8", "f16.f16.f16.f16"), ("m16n8k8", "f32.bf16.bf16.f32"),
    ("m16n8k16", "f32.f16.f16.f32"), ("m16n8k16", "f16.f16.f16.f16"), ("m16n8k16", "f32.bf16.bf16.f32"),
    ("m16n8k4", "f64.f64.f64.f64"), ("m16n8k8", "f64.f64.f64.f64"), ("m16n8k16", "f64.f64.f64.f64"),
    ("m8n8k4", "f64.f64.f64.f64"), ("m8n8k16", "s32.s8.s8.s32"), ("m16n8k16", "s32.u8.s8.s32"),
    ("m16n8k32", "s32.s8.u8.s32"), ("m16n8k32", "s32.u8.u8.s32"), ("m16n8k16", "f32.e4m3.e5m2.f32"),
    ("m16n8k32", "f32.e4m3.e4m3.f32"), ("m16n8k32", "f32.e5m2.e4m3.f32"), ("m16n8k32", "f16.e5m2.e5m2.f16"),
]  # fmt: skip


@pytest.mark.parametrize("shape, types", CASES)
def test_product(engine, shape, types):
    """Small integers are exact in every type, and so are their sums."""
    m, n, k = sizes(shape)
    to, of_a, of_b, of_c = types.split(".")
    place_a, place_b, place_c = FRAGMENTS[shape, WIDTH[of_a]]
    r = np.random.default_rng(m * n * k)
    low = 0 if of_a == "u8" else -4
    a = r.integers(low, 5, (m, k))
    b = r.integers(0 if of_b == "u8" else -4, 5, (k, n))
    c = r.integers(-99, 99, (m, n))
    parts = [fragment(a, of_a, place_a), fragment(b, of_b, place_b), fragment(c, of_c, place_c)]
    found = run(engine, f"mma.sync.aligned.{shape}.row.col.{types}", parts, to == "f64")
    assert np.array_equal(found, fragment(a @ b + c, to, place_c))


@pytest.mark.parametrize(
    "shape, of_a, of_b", [("m8n8k16", "s8", "u8"), ("m16n8k32", "u8", "u8"), ("m16n8k16", "s8", "s8")]
)
@pytest.mark.parametrize("satfinite", [False, True])
def test_integer_products_at_their_ends(engine, shape, of_a, of_b, satfinite):
    """Extreme bytes; C near the ends of s32 wraps, or stays there with .satfinite."""
    m, n, k = sizes(shape)
    place_a, place_b, place_c = FRAGMENTS[shape, 8]
    r = np.random.default_rng(k)
    ends = {"s8": [-128, 127, -1], "u8": [0, 255, 128]}
    a, b = r.choice(ends[of_a], (m, k)), r.choice(ends[of_b], (k, n))
    c = r.choice([2**31 - 1, -(2**31), 5], (m, n))
    exact = a @ b + c
    expected = np.clip(exact, -(2**31), 2**31 - 1) if satfinite else exact
    parts = [fragment(a, of_a, place_a), fragment(b, of_b, place_b), fragment(c, "s32", place_c)]
    suffix = ".satfinite" if satfinite else ""
    found = run(engine, f"mma.sync.aligned.{shape}.row.col{suffix}.s32.{of_a}.{of_b}.s32", parts, False)
    assert np.array_equal(found, fragment(expected, "s32", place_c))


def identity(shape: str, type_: str, values: np.ndarray) -> list[np.ndarray]:
    """Fragments of A = [values; 0 ...] as first row, B = ones in column 0, C = 0."""
    m, n, k = sizes(shape)
    place_a, place_b, place_c = FRAGMENTS[shape, WIDTH[type_]]
    a = np.zeros((32, fragment(np.zeros((m, k), int), type_, place_a).shape[1]), np.uint64)
    each = max(32 // WIDTH[type_], 1)
    for lane in range(32):
        for i in range(m * k // 32):
            row, column = place_a(lane // 4, lane % 4, i)
            if row == 0:
                a[lane, i // each] |= np.uint64(int(values[column]) << WIDTH[type_] * (i % each))
    ones = np.zeros((k, n), int)
    ones[:, 0] = 1
    c = np.zeros((m, n), int)
    return [a, fragment(ones, type_, place_b), fragment(c, "f64" if type_ == "f64" else "f32", place_c)]


def test_sums_run_in_order_with_one_rounding_each(engine):
    """2^24 + 1 + 1 + 1 - 2^24 is 0 step by step: each 1 is halfway and the even sum stays."""
    values = patterns(np.array([2**24, 1, 1, 1, -(2**24), 0, 0, 0]), "tf32")
    found = run(
        engine, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", identity("m16n8k8", "tf32", values), False
    )
    assert found[0, 0] == 0
    # 2^24 + 3 rounds to 2^24 + 4 in one step, and the last addition leaves 4.
    values = patterns(np.array([2**24, 3, -(2**24), 0, 0, 0, 0, 0]), "tf32")
    found = run(
        engine, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", identity("m16n8k8", "tf32", values), False
    )
    assert found[0, 0] == patterns(np.array([4]), "f32")[0]


def test_tf32_reads_nineteen_bits(engine):
    """1 + 2^-11 and more below are cut to 1."""
    values = np.zeros(8, np.uint64)
    values[0] = 0x3F801FFF
    found = run(
        engine, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", identity("m16n8k8", "tf32", values), False
    )
    assert found[0, 0] == 0x3F800000


def test_double_products_are_fused(engine):
    """(1 + 2^-52)(1) - 1 summed is 2^-52; rounding products first would not differ, so square them through B = A."""
    m, n, k = sizes("m8n8k4")
    place_a, place_b, place_c = FRAGMENTS["m8n8k4", 64]
    near = np.array(1.0).view(np.uint64) + np.uint64(1)
    a, b, c = (np.zeros((32, count), np.uint64) for count in (1, 1, 2))
    for lane in range(32):
        if place_a(lane // 4, lane % 4, 0) == (0, 0):
            a[lane, 0] = near
        if place_b(lane // 4, lane % 4, 0) == (0, 0):
            b[lane, 0] = near
        if place_c(lane // 4, lane % 4, 0) == (0, 0):
            c[lane, 0] = np.array(-1.0 - 2.0**-51).view(np.uint64)
    found = run(engine, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", [a, b, c], True)
    # (1 + 2^-52)^2 = 1 + 2^-51 + 2^-104.
    assert found[0, 0] == np.array(2.0**-104).view(np.uint64)
    assert (m, n, k) == (8, 8, 4)


def test_half_accumulators_round_once(engine):
    """2048 + 1 + 1 = 2050 in f32, exact in f16; rounding to f16 after each product would stay at 2048."""
    a, b, c = identity("m16n8k8", "f16", patterns(np.array([2048, 1, 1, 0, 0, 0, 0, 0]), "f16"))
    place_c = FRAGMENTS["m16n8k8", 16][2]
    c = fragment(np.zeros((16, 8), int), "f16", place_c)
    found = run(engine, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", [a, b, c], False)
    assert found[0, 0] & np.uint64(0xFFFF) == patterns(np.array([2050]), "f16")[0]
