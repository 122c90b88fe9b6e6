"""``wmma``: load, multiply and store in every shape, type, layout and space, checked against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fa_bench.ptx.memory import Memory

#: Shape and type of A -> registers of the fragments of A, B and, by type of C and D, of C.
REGISTERS = {
    ("m16n16k16", "f16"): (8, 8), ("m32n8k16", "f16"): (8, 8), ("m8n32k16", "f16"): (8, 8),
    ("m16n16k16", "bf16"): (4, 4), ("m32n8k16", "bf16"): (8, 2), ("m8n32k16", "bf16"): (2, 8),
    ("m16n16k16", "s8"): (2, 2), ("m32n8k16", "s8"): (4, 1), ("m8n32k16", "s8"): (1, 4),
    ("m16n16k16", "u8"): (2, 2), ("m32n8k16", "u8"): (4, 1), ("m8n32k16", "u8"): (1, 4),
    ("m16n16k8", "tf32"): (4, 4), ("m8n8k4", "f64"): (1, 1),
}  # fmt: skip
ACCUMULATORS = {"f32": 8, "f16": 4, "s32": 8, "f64": 2}


def stored(values: np.ndarray, type_: str, row_major: bool, pitch: int) -> np.ndarray:
    """Bytes of a matrix in memory, ``pitch`` elements from row to row (column to column)."""
    ordered = values if row_major else values.T
    padded = np.zeros((ordered.shape[0], pitch), np.float64)
    padded[:, : ordered.shape[1]] = ordered
    if type_ == "bf16":
        return (padded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).ravel()
    dtype = {"f16": np.float16, "tf32": np.float32, "f32": np.float32, "s8": np.int8, "u8": np.uint8, "s32": np.int32,
             "f64": np.float64}[type_]  # fmt: skip
    return padded.astype(dtype).view(np.uint8).ravel()


def group(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{k}" for k in range(count)) + "}"


@pytest.mark.parametrize(
    "shape, of_a, of_c, of_d",
    [
        ("m16n16k16", "f16", "f32", "f32"), ("m16n16k16", "f16", "f16", "f32"), ("m32n8k16", "f16", "f16", "f16"),
        ("m8n32k16", "f16", "f32", "f16"), ("m16n16k16", "bf16", "f32", "f32"), ("m32n8k16", "bf16", "f32", "f32"),
        ("m8n32k16", "bf16", "f32", "f32"), ("m16n16k16", "s8", "s32", "s32"), ("m32n8k16", "u8", "s32", "s32"),
        ("m8n32k16", "s8", "s32", "s32"), ("m16n16k8", "tf32", "f32", "f32"), ("m8n8k4", "f64", "f64", "f64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "layouts, space",
    [
        # layouts of A, B, C and D
        (("row", "col", "row", "row"), "global"),
        (("col", "row", "col", "col"), "shared"),
        (("row", "row", "col", "row"), ""),
    ],
)
def test_product(engine, shape, of_a, of_c, of_d, layouts, space):
    m, rest = shape[1:].split("n")
    n, k = (int(v) for v in rest.split("k"))
    m = int(m)
    r = np.random.default_rng(m + n)
    low = 0 if of_a == "u8" else -4
    a, b, c = r.integers(low, 5, (m, k)), r.integers(low, 5, (k, n)), r.integers(-50, 50, (m, n))
    expected = a @ b + c
    pitches = [dims[1] if layout == "row" else dims[0] for dims, layout in zip(
        ((m, k), (k, n), (m, n), (m, n)), layouts, strict=True)]  # fmt: skip
    # A and C lie with padding, B and D without, so that B needs no stride operand.
    pitches[0] += 16
    pitches[2] += 8
    memory = Memory()
    names = ("A", "B", "C")
    for name, values, type_, layout, pitch in zip(names, (a, b, c), (of_a, of_a, of_c), layouts, pitches, strict=False):
        data = stored(values, type_, layout == "row", pitch)
        memory.allocate(name, data.size)[:] = data
    sizes = [memory.array(name).size for name in names]
    memory.allocate("D", stored(expected, of_d, layouts[3] == "row", pitches[3]).size)
    counts = (*REGISTERS[shape, of_a], ACCUMULATORS[of_c], ACCUMULATORS[of_d])
    width = 64 if of_a == "f64" else 32
    lines = [f".reg .b{width} {group(letter, count)[1:-1]};" for letter, count in zip("abcd", counts, strict=True)]
    lines += ["mov.u32 %r0, %tid.x;"]
    offset = 0
    places = []
    for position, name in enumerate(names):
        lines.append(f"ld.param.u64 %rd{position}, [{name}];")
        if space != "global":
            # Copied to shared memory, byte after byte: 32 lanes at a time.
            lines += [
                f"cvt.u64.u32 %rd8, %r0;\nadd.u64 %rd9, %rd{position}, %rd8;\nadd.u32 %r1, %r0, {offset};",
                "mov.u32 %r2, %r0;",
                f"COPY{name}:\nld.global.u8 %r3, [%rd9];\nst.shared.u8 [%r1], %r3;\nadd.u64 %rd9, %rd9, 32;",
                f"add.u32 %r1, %r1, 32;\nadd.u32 %r2, %r2, 32;\nsetp.lt.u32 %p0, %r2, {sizes[position]};",
                f"@%p0 bra COPY{name};",
            ]
            if space == "shared":
                places.append(f"[{offset}]")
            else:
                lines.append(f"mov.u64 %rd{position}, {offset};\ncvta.shared.u64 %rd{position}, %rd{position};")
                places.append(f"[%rd{position}]")
            offset += -(-sizes[position] // 32) * 32
        else:
            places.append(f"[%rd{position}]")
    suffix = f"{shape}.{space}" if space else shape
    fa, fb, fc, fd = (group(letter, count) for letter, count in zip("abcd", counts, strict=True))
    lines += [
        "ld.param.u64 %rd3, [D];",
        f"wmma.load.a.sync.aligned.{layouts[0]}.{suffix}.{of_a} {fa}, {places[0]}, {pitches[0]};",
        f"wmma.load.b.sync.aligned.{layouts[1]}.{suffix}.{of_a} {fb}, {places[1]};",
        f"wmma.load.c.sync.aligned.{layouts[2]}.{suffix}.{of_c} {fc}, {places[2]}, {pitches[2]};",
    ]
    types = {"f16": f"{of_d}.{of_c}", "bf16": "f32.bf16.bf16.f32", "tf32": "f32.tf32.tf32.f32",
             "f64": "f64.f64.f64.f64"}.get(of_a, f"s32.{of_a}.{of_a}.s32")  # fmt: skip
    rounding = ".rn" if of_a == "f64" else ""
    lines += [
        f"wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}{rounding}.{types} {fd}, {fa}, {fb}, {fc};",
        f"wmma.store.d.sync.aligned.{layouts[3]}.{shape}.global.{of_d} [%rd3], {fd}, {pitches[3]};",
    ]
    text = engine.wrap("\n".join(lines), ", ".join(f".param .u64 {name}" for name in (*names, "D")))
    engine.launch(
        text,
        memory=memory,
        args=[np.uint64(memory.address(name)) for name in (*names, "D")],
        smem_bytes=max(offset, 1),
    )
    assert np.array_equal(memory.array("D"), stored(expected, of_d, layouts[3] == "row", pitches[3]))


@pytest.mark.parametrize(
    "layout, requests, sectors",
    [
        # Rows of 32 bytes: each of the four registers is a word of all lanes, eight rows of one sector.
        ("row", 4, 32),
        # A register's two elements lie in different columns: eight accesses of 2 bytes. Those of one lie in eight rows
        # of the same four columns, 16 bytes of each: four sectors.
        ("col", 8, 32),
    ],
)
def test_what_a_load_counts(engine, layout, requests, sectors):
    memory = Memory()
    memory.allocate("A", 512)
    body = f"ld.param.u64 %rd0, [A];\nwmma.load.a.sync.aligned.{layout}.m16n16k16.global.f16 {group('a', 8)}, [%rd0];"
    text = engine.wrap(body, ".param .u64 A", ".reg .b32 %a<8>;")
    counters = engine.launch(text, memory=memory, args=[np.uint64(memory.address("A"))])
    assert counters.tensors["A"].read_requests == requests
    assert counters.tensors["A"].read_sectors == sectors
