"""Loads and stores: types, vectors, sign extension, parameters, shared memory."""

import numpy as np
import pytest

from fa_bench.ptx.memory import Memory


@pytest.mark.parametrize(
    "type_, width, expected",
    [
        # Memory holds the bytes 81 F2 03 84 ... : a narrow type fills the register with its sign or with zeros.
        ("u8", 32, 0x81),
        ("b8", 32, 0x81),
        ("s8", 32, 0xFFFFFF81),
        ("s8", 16, 0xFF81),
        ("u8", 16, 0x81),
        ("u16", 32, 0xF281),
        ("s16", 32, 0xFFFFF281),
        ("b16", 16, 0xF281),
        ("f16", 16, 0xF281),
        ("bf16", 16, 0xF281),
        ("u32", 32, 0x8403F281),
        ("s32", 64, 0xFFFFFFFF8403F281),
        ("u32", 64, 0x8403F281),
        ("f32", 32, 0x8403F281),
        ("b64", 64, 0x112233448403F281),
        ("f64", 64, 0x112233448403F281),
    ],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_load_extends_to_the_register(engine, space, type_, width, expected):
    """Shared memory gets the same eight bytes first; then the load."""
    memory = Memory()
    memory.allocate("in", 8)[:] = [0x81, 0xF2, 0x03, 0x84, 0x44, 0x33, 0x22, 0x11]
    out = memory.allocate("out", 8).view(np.uint64)
    out[:] = 0
    source = "%rd0" if space == "global" else "buffer"
    body = (
        "ld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\nld.global.b64 %rd2, [%rd0];\n"
        f"st.shared.b64 [buffer], %rd2;\nld.{space}.{type_} %d, [{source}];\nst.global.b{width} [%rd1], %d;"
    )
    text = engine.wrap(body, ".param .u64 in, .param .u64 out", f".shared .align 8 .b8 buffer[8];\n.reg .b{width} %d;")
    engine.launch(
        text,
        memory=memory,
        args=[np.uint64(memory.address("in")), np.uint64(memory.address("out"))],
        block=(1, 1, 1),
    )
    assert int(out[0]) == expected


@pytest.mark.parametrize("type_", ["b8", "u8", "s8"])
def test_store_takes_the_low_bits(engine, type_):
    memory = Memory()
    out = memory.allocate("out", 4)
    body = f"ld.param.u64 %rd0, [out];\nmov.u32 %r0, 0x12345678;\nst.global.{type_} [%rd0+1], %r0;"
    engine.launch(
        engine.wrap(body, ".param .u64 out"), memory=memory, args=[np.uint64(memory.address("out"))], block=(1, 1, 1)
    )
    assert out.tolist() == [0xFF, 0x78, 0xFF, 0xFF]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    "vector, type_, nbytes",
    [("v2", "f32", 8), ("v4", "b32", 16), ("v2", "b64", 16), ("v4", "u16", 8), ("v2", "b16", 4)],
)
def test_vectors(engine, space, vector, type_, nbytes):
    """Each lane copies a vector; element k is at the lowest address plus k times the element's size."""
    memory = Memory()
    source = memory.allocate("in", 32 * nbytes)
    source[:] = np.arange(32 * nbytes) % 251
    target = memory.allocate("out", 32 * nbytes)
    count = int(vector[1])
    registers = ", ".join(f"%v{k}" for k in range(count))
    width = nbytes // count * 8
    via = (
        f"mad.wide.u32 %rd3, %r0, {nbytes}, 0;\ncvt.u32.u64 %r1, %rd3;\n"
        f"st.shared.{vector}.{type_} [%r1], {{{registers}}};\n"
        + "".join(f"mov.b{width} %v{k}, 0;\n" for k in range(count))
        + f"ld.shared.{vector}.{type_} {{{registers}}}, [%r1];\n"
        if space == "shared"
        else ""
    )
    body = (
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n"
        f"mad.wide.u32 %rd0, %r0, {nbytes}, %rd0;\nmad.wide.u32 %rd1, %r0, {nbytes}, %rd1;\n"
        f"ld.global.{vector}.{type_} {{{registers}}}, [%rd0];\n{via}"
        f"st.global.{vector}.{type_} [%rd1], {{{registers}}};"
    )
    text = engine.wrap(body, ".param .u64 in, .param .u64 out", f".reg .b{width} {registers};")
    engine.launch(
        text,
        memory=memory,
        args=[np.uint64(memory.address("in")), np.uint64(memory.address("out"))],
        smem_bytes=32 * nbytes,
    )
    assert (target == source).all()


def test_load_into_a_sink_and_in_reverse(engine):
    """``_`` drops an element; lanes may read in any order."""
    memory = Memory()
    source = memory.allocate("in", 256).view(np.uint32)
    source[:] = np.arange(64)
    target = memory.allocate("out", 128).view(np.uint32)
    body = (
        "mov.u32 %r0, %tid.x;\nsub.u32 %r1, 31, %r0;\nld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n"
        "mad.wide.u32 %rd0, %r1, 8, %rd0;\nmad.wide.u32 %rd1, %r0, 4, %rd1;\n"
        "ld.global.v2.u32 {_, %r2}, [%rd0];\nst.global.u32 [%rd1], %r2;"
    )
    engine.launch(
        engine.wrap(body, ".param .u64 in, .param .u64 out"),
        memory=memory,
        args=[np.uint64(memory.address("in")), np.uint64(memory.address("out"))],
    )
    assert target.tolist() == [2 * (31 - lane) + 1 for lane in range(32)]


def test_parameters_have_their_types_and_alignment(engine):
    """u8 at 0, f32 at 4, u64 at 8, u16 at 16, an array aligned to 8 at 24: each is aligned to its size."""
    memory = Memory()
    out = memory.allocate("out", 40).view(np.uint64)
    out[:] = 0
    params = ".param .u8 a, .param .f32 b, .param .u64 out, .param .u16 c, .param .align 8 .b8 s[8]"
    body = (
        "ld.param.u64 %rd0, [out];\nld.param.u8 %r0, [a];\nld.param.f32 %r1, [b];\nld.param.u16 %r2, [c];\n"
        "ld.param.v2.u32 {%r3, %r4}, [s];\nld.param.u8 %r5, [s+5];\n"
        "st.global.u32 [%rd0], %r0;\nst.global.u32 [%rd0+4], %r1;\nst.global.u32 [%rd0+8], %r2;\n"
        "st.global.u32 [%rd0+16], %r3;\nst.global.u32 [%rd0+20], %r4;\nst.global.u32 [%rd0+24], %r5;"
    )
    structure = np.array([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88], np.uint8)
    args = [np.uint8(200), np.float32(1.5), np.uint64(memory.address("out")), np.uint16(60000), structure]
    engine.launch(engine.wrap(body, params), memory=memory, args=args, block=(1, 1, 1))
    assert out.tolist() == [0x3FC00000000000C8, 60000, 0x8877665544332211, 0x66, 0]


def test_shared_memory_starts_poisoned_and_is_per_block(engine):
    """Each block reads 0xFFFFFFFF before it writes, whatever the one before it left; static lies before dynamic."""
    memory = Memory()
    out = memory.allocate("out", 16).view(np.uint32)
    body = (
        "ld.param.u64 %rd0, [out];\nmov.u32 %r0, %ctaid.x;\nmad.wide.u32 %rd0, %r0, 8, %rd0;\n"
        "ld.shared.u32 %r1, [fixed+4];\nld.shared.u32 %r2, [dynamic];\nst.shared.u32 [fixed+4], %r0;\n"
        "st.shared.u32 [dynamic], %r0;\nst.global.v2.u32 [%rd0], {%r1, %r2};"
    )
    text = engine.wrap(body, ".param .u64 out", ".shared .align 4 .b8 fixed[8];").replace(
        ".visible", ".extern .shared .align 16 .b8 dynamic[];\n.visible"
    )
    engine.launch(
        text,
        memory=memory,
        args=[np.uint64(memory.address("out"))],
        grid=(2, 1, 1),
        block=(1, 1, 1),
        smem_bytes=4,
    )
    assert out.tolist() == [0xFFFFFFFF] * 4


def test_only_the_blocks_asked_for_run(engine):
    memory = Memory()
    out = memory.allocate("out", 24).view(np.uint32)
    body = (
        "ld.param.u64 %rd0, [out];\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ctaid.y;\nmad.lo.u32 %r0, %r1, 3, %r0;\n"
        "mad.wide.u32 %rd0, %r0, 4, %rd0;\nst.global.u32 [%rd0], %r0;"
    )
    counters = engine.launch(
        engine.wrap(body, ".param .u64 out"),
        memory=memory,
        args=[np.uint64(memory.address("out"))],
        grid=(3, 2, 1),
        block=(1, 1, 1),
        ctas=[1, 5],
    )
    assert out.tolist() == [0xFFFFFFFF, 1, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 5]
    assert counters.ctas == 2
    assert counters.tensors["out"].write_requests == 2
