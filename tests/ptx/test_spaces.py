"""Generic addresses, local and constant memory, variables of the module, and what of it counts as traffic."""

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.counters import SharedCounters, TensorCounters
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.parser import load


def kernel(engine, body: str, declarations: str = "", variables: str = "") -> str:
    """PTX with the lane in %r0, `in` in %rd0 and its element of `in` in %rd1; %r9 goes to out[lane]."""
    text = engine.wrap(
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [in];\nmad.wide.u32 %rd1, %r0, 4, %rd0;\n"
        f"ld.param.u64 %rd2, [out];\nmad.wide.u32 %rd2, %r0, 4, %rd2;\n{body}\nst.global.u32 [%rd2], %r9;",
        ".param .u64 in, .param .u64 out",
        declarations,
    )
    return text.replace(".address_size 64\n", f".address_size 64\n{variables}\n")


def run(engine, body: str, declarations: str = "", variables: str = "", smem_bytes: int = 128):
    """out of 32 lanes and the counters; in[i] is 100 + i."""
    memory = Memory()
    memory.allocate("in", 128).view(np.uint32)[:] = np.arange(100, 132)
    out = memory.allocate("out", 128).view(np.uint32)
    counters = engine.launch(
        kernel(engine, body, declarations, variables),
        memory=memory,
        args=[np.uint64(memory.address(name)) for name in ("in", "out")],
        smem_bytes=smem_bytes,
    )
    return out.tolist(), counters


#: What the store to `out` counts: 128 bytes are four sectors.
OUT = TensorCounters(write_requests=1, write_sectors=4)
NOTHING = SharedCounters(0, 0, 0)


def test_generic_load_of_global_memory(engine):
    """The generic address of a global byte is its address; the access counts as one of global memory."""
    out, counters = run(engine, "ld.u32 %r9, [%rd1];")
    assert out == list(range(100, 132))
    assert counters.tensors["in"] == TensorCounters(read_requests=1, read_sectors=4)
    assert counters.shared == NOTHING


def test_generic_store_to_global_memory(engine):
    out, counters = run(engine, "st.u32 [%rd2], %r0;\nld.global.u32 %r9, [%rd2];\nadd.u32 %r9, %r9, 1;")
    assert out == list(range(1, 33))
    assert counters.tensors["out"] == TensorCounters(read_requests=1, read_sectors=4, write_requests=2, write_sectors=8)


def test_generic_access_to_shared_memory(engine):
    """cvta.shared adds the window. 32 neighbouring words take one wavefront, in each of the two accesses."""
    body = (
        "mul.wide.u32 %rd3, %r0, 4;\ncvta.shared.u64 %rd4, %rd3;\nst.u32 [%rd4], %r0;\n"
        "sub.u64 %rd5, 124, %rd3;\ncvt.u32.u64 %r1, %rd5;\nld.shared.u32 %r9, [%r1];"
    )
    out, counters = run(engine, body)
    assert out == list(range(31, -1, -1))
    assert counters.shared == SharedCounters(2, 2, 0)
    assert counters.tensors == {"in": TensorCounters(), "out": OUT}


@pytest.mark.parametrize(
    "type_, items, nbytes",
    [("u8", 1, 1), ("b16", 1, 2), ("v2.u16", 2, 4), ("f32", 1, 4), ("v2.b32", 2, 8), ("f64", 1, 8),
     ("v4.f32", 4, 16), ("v2.u64", 2, 16)],
)  # fmt: skip
@pytest.mark.parametrize("space", ["shared", "local", "global"])
def test_generic_accesses_of_all_sizes(engine, space, type_, items, nbytes):
    """Each lane moves its bytes through a generic address of the space and back."""
    memory = Memory()
    source, target = memory.allocate("in", 32 * nbytes), memory.allocate("out", 32 * nbytes)
    memory.allocate("room", 32 * nbytes)
    source[:] = np.arange(32 * nbytes) % 251
    width = max(16, 8 * nbytes // items)
    registers = [f"%v{k}" for k in range(items)]
    vector = registers[0] if items == 1 else f"{{{', '.join(registers)}}}"
    place = {
        "shared": f"mul.wide.u32 %rd3, %r0, {nbytes};\ncvta.shared.u64 %rd3, %rd3;",
        "local": "mov.u64 %rd3, depot;\ncvta.local.u64 %rd3, %rd3;",
        "global": f"ld.param.u64 %rd3, [room];\nmad.wide.u32 %rd3, %r0, {nbytes}, %rd3;",
    }[space]
    body = (
        f"mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [in];\nmad.wide.u32 %rd0, %r0, {nbytes}, %rd0;\n"
        f"ld.param.u64 %rd1, [out];\nmad.wide.u32 %rd1, %r0, {nbytes}, %rd1;\n{place}\n"
        f"ld.global.{type_} {vector}, [%rd0];\nst.{type_} [%rd3], {vector};\n"
        + "".join(f"mov.b{width} {r}, 0;\n" for r in registers)
        + f"ld.{type_} {vector}, [%rd3];\nst.global.{type_} [%rd1], {vector};"
    )
    declarations = f".reg .b{width} %v<{items}>;\n.local .align 16 .b8 depot[16];"
    engine.launch(
        engine.wrap(body, ".param .u64 in, .param .u64 out, .param .u64 room", declarations),
        memory=memory,
        args=[np.uint64(memory.address(name)) for name in ("in", "out", "room")],
        smem_bytes=32 * nbytes,
    )
    assert (target == source).all()


def test_lanes_in_different_spaces(engine):
    """Even lanes read global memory, odd ones shared memory, in one instruction: half of the sectors' bytes."""
    body = (
        "mul.wide.u32 %rd3, %r0, 4;\ncvta.shared.u64 %rd4, %rd3;\nadd.u32 %r1, %r0, 500;\nst.u32 [%rd4], %r1;\n"
        "and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 0;\nselp.b64 %rd5, %rd1, %rd4, %p0;\nld.u32 %r9, [%rd5];"
    )
    out, counters = run(engine, body)
    assert out == [100 + lane if lane % 2 == 0 else 500 + lane for lane in range(32)]
    assert counters.tensors["in"] == TensorCounters(read_requests=1, read_sectors=4)
    assert counters.shared == SharedCounters(2, 2, 0)


def test_guarded_generic_store(engine):
    """Lanes whose guard does not hold neither store nor count: lanes 0 to 7 fill one sector."""
    body = "setp.lt.u32 %p0, %r0, 8;\n@%p0 st.u32 [%rd1], %r0;\nld.global.u32 %r9, [%rd1];"
    out, counters = run(engine, body)
    assert out == [*range(8), *range(108, 132)]
    assert counters.tensors["in"] == TensorCounters(read_requests=1, read_sectors=4, write_requests=1, write_sectors=1)


LOCAL = ".local .align 16 .b8 depot[64];"


def test_local_memory_is_each_lanes_own(engine):
    """All lanes use the same address; nothing of it is traffic."""
    body = "st.local.u32 [depot+4], %r0;\nmov.u64 %rd3, depot;\nld.local.u32 %r9, [%rd3+4];"
    out, counters = run(engine, body, LOCAL)
    assert out == list(range(32))
    assert counters.tensors == {"in": TensorCounters(), "out": OUT}
    assert counters.shared == NOTHING


def test_local_array_with_an_index_of_each_lane(engine):
    """Word k of every lane holds 10 k + lane; lane l reads word l mod 16."""
    stores = "".join(f"add.u32 %r1, %r0, {10 * k};\nst.local.u32 [depot+{4 * k}], %r1;\n" for k in range(16))
    body = stores + "and.b32 %r2, %r0, 15;\nmul.wide.u32 %rd3, %r2, 4;\nmov.u64 %rd4, depot;\n"
    body += "add.u64 %rd3, %rd3, %rd4;\nld.local.u32 %r9, [%rd3];"
    out, _ = run(engine, body, LOCAL)
    assert out == [10 * (lane % 16) + lane for lane in range(32)]


def test_generic_address_of_local_memory(engine):
    body = (
        "mov.u64 %rd3, depot;\ncvta.local.u64 %rd4, %rd3;\nst.v2.u32 [%rd4+8], {%r0, %r0};\n"
        "ld.local.u32 %r9, [depot+12];\ncvta.to.local.u64 %rd5, %rd4;\nld.local.u32 %r1, [%rd5+8];\n"
        "add.u32 %r9, %r9, %r1;"
    )
    out, counters = run(engine, body, LOCAL)
    assert out == [2 * lane for lane in range(32)]
    assert counters.tensors == {"in": TensorCounters(), "out": OUT}


def test_two_warps_have_local_memory_of_their_own(engine):
    memory = Memory()
    out = memory.allocate("out", 256).view(np.uint32)
    body = (
        "mov.u32 %r0, %tid.x;\nst.local.u32 [depot], %r0;\nbar.sync 0;\nld.local.u32 %r9, [depot];\n"
        "ld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 4, %rd0;\nst.global.u32 [%rd0], %r9;"
    )
    text = engine.wrap(body, ".param .u64 out", LOCAL)
    engine.launch(text, memory=memory, args=[np.uint64(memory.address("out"))], block=(64, 1, 1))
    assert out.tolist() == list(range(64))


CONSTANTS = """
.const .align 4 .u32 powers[4] = {1, 10, 100, 1000};
.const .align 4 .f32 half = 0f3F000000;
.const .align 2 .u16 grid[2][3] = {{1, 2, 3}, {4, 5}};
.const .b8 letters[4] = {65, 66};
.const .align 8 .f64 third = 0d3FD5555555555555;
.const .align 4 .s32 below = -2;
"""


@pytest.mark.parametrize(
    "load_, expected",
    [
        ("ld.const.u32 %r9, [powers+8];", 100),
        ("ld.const.b32 %r9, [half];", 0x3F000000),
        # Row 1, column 1; what a list leaves out is zero.
        ("ld.const.u16 %r9, [grid+8];", 5),
        ("ld.const.u16 %r9, [grid+10];", 0),
        ("ld.const.u8 %r9, [letters+1];", 66),
        ("ld.const.u8 %r9, [letters+2];", 0),
        ("ld.const.b64 %rd3, [third];\ncvt.u32.u64 %r9, %rd3;", 0x55555555),
        ("ld.const.s32 %r9, [below];", 0xFFFFFFFE),
        ("mov.u64 %rd3, powers;\ncvta.const.u64 %rd3, %rd3;\nld.u32 %r9, [%rd3+12];", 1000),
        ("mov.u64 %rd3, powers;\ncvta.const.u64 %rd3, %rd3;\ncvta.to.const.u64 %rd3, %rd3;\n"
         "ld.const.v2.u32 {%r1, %r9}, [%rd3];", 10),
    ],
)  # fmt: skip
def test_constant_memory(engine, load_, expected):
    out, counters = run(engine, load_, variables=CONSTANTS)
    assert out == [expected] * 32
    assert counters.tensors == {"in": TensorCounters(), "out": OUT}


def test_constant_memory_with_an_index_of_each_lane(engine):
    body = "and.b32 %r1, %r0, 3;\nmul.wide.u32 %rd3, %r1, 4;\nmov.u64 %rd4, powers;\nadd.u64 %rd3, %rd3, %rd4;\n"
    out, _ = run(engine, body + "ld.const.u32 %r9, [%rd3];", variables=CONSTANTS)
    assert out == [10 ** (lane % 4) for lane in range(32)]


GLOBALS = """
.global .align 4 .u32 counter;
.global .align 4 .u32 table[4] = {7, 8, 9};
.visible .global .align 8 .u64 pointer = table;
"""


def test_global_variables_are_buffers_under_their_names(engine):
    """A variable without an initialiser is zero; its accesses count under its name."""
    body = (
        "ld.global.u32 %r1, [table+4];\nmov.u64 %rd3, table;\nld.global.u32 %r2, [%rd3+8];\n"
        "ld.global.u32 %r3, [counter];\nadd.u32 %r9, %r1, %r2;\nadd.u32 %r9, %r9, %r3;"
    )
    out, counters = run(engine, body, variables=GLOBALS)
    assert out == [17] * 32
    assert counters.tensors["table"] == TensorCounters(read_requests=2, read_sectors=2)
    assert counters.tensors["counter"] == TensorCounters(read_requests=1, read_sectors=1)
    assert counters.tensors["pointer"] == TensorCounters()


def test_a_variable_may_hold_an_address(engine):
    out, _ = run(engine, "ld.global.u64 %rd3, [pointer];\nld.global.u32 %r9, [%rd3];", variables=GLOBALS)
    assert out == [7] * 32


def test_global_variables_live_as_long_as_the_module(engine):
    """Each launch adds one; the host reads and writes the variable in between."""
    memory = Memory()
    memory.allocate("in", 128)
    memory.allocate("out", 128)
    body = (
        "setp.eq.u32 %p0, %r0, 0;\nld.global.u32 %r9, [counter];\nadd.u32 %r9, %r9, 1;\n"
        "@%p0 st.global.u32 [counter], %r9;"
    )
    module = load(kernel(engine, body, variables=GLOBALS))
    counter = module.variable("counter").view(np.uint32)
    args = [np.uint64(memory.address(name)) for name in ("in", "out")]
    for expected in (1, 2):
        engine.function(module.kernel("k"), grid=(1, 1, 1), block=(32, 1, 1), args=args, memory=memory)
        assert counter[0] == expected
    counter[0] = 41
    engine.function(module.kernel("k"), grid=(1, 1, 1), block=(32, 1, 1), args=args, memory=memory)
    assert counter[0] == 42


@pytest.mark.parametrize("space", ["global", "shared", "local", "const", "param"])
def test_isspacep(engine, space):
    """A generic address is in the space that it was made from and in no other; bit k stands for the k-th space."""
    spaces = ["global", "shared", "local", "const", "param"]
    place = "mov.u64 %rd3, %rd0;" if space == "global" else f"mov.u64 %rd3, 8;\ncvta.{space}.u64 %rd3, %rd3;"
    tests = "".join(
        f"isspacep.{other} %p0, %rd3;\nselp.u32 %r1, {1 << k}, 0, %p0;\nor.b32 %r9, %r9, %r1;\n"
        for k, other in enumerate(spaces)
    )
    out, _ = run(engine, f"{place}\nmov.u32 %r9, 0;\n{tests}")
    assert out == [1 << spaces.index(space)] * 32


def test_parameters_through_a_generic_address(engine):
    """The second parameter is at byte 8; its lower half is that of the address of `out`."""
    body = "mov.u64 %rd3, in;\ncvta.param.u64 %rd3, %rd3;\nld.u64 %rd4, [%rd3];\nld.global.u32 %r9, [%rd4];"
    out, _ = run(engine, body)
    assert out == [100] * 32


def test_prefetch_asks_for_nothing(engine):
    body = "prefetch.global.L2 [%rd0];\nprefetch.L1 [%rd0];\nprefetchu.L1 [%rd0];\nmov.u32 %r9, 5;"
    out, counters = run(engine, body)
    assert out == [5] * 32
    assert counters.tensors["in"] == TensorCounters()


@pytest.mark.parametrize(
    "load_",
    [
        "ld.volatile.global.u32", "ld.relaxed.gpu.global.u32", "ld.acquire.sys.global.u32", "ld.global.nc.u32",
        "ld.global.ca.u32", "ld.global.L1::evict_last.L2::128B.u32", "ld.relaxed.cta.u32", "ld.volatile.u32",
        "ld.weak.global.cs.u32", "ld.global.nc.L1::no_allocate.L2::256B.u32",
    ],
)  # fmt: skip
def test_loads_in_all_spellings(engine, load_):
    out, counters = run(engine, f"{load_} %r9, [%rd1];")
    assert out == list(range(100, 132))
    assert counters.tensors["in"] == TensorCounters(read_requests=1, read_sectors=4)


@pytest.mark.parametrize(
    "store",
    ["st.volatile.global.u32", "st.release.gpu.global.u32", "st.relaxed.sys.u32", "st.global.wt.u32", "st.weak.u32"],
)
def test_stores_in_all_spellings(engine, store):
    out, counters = run(engine, f"{store} [%rd1], %r0;\nld.global.u32 %r9, [%rd1];")
    assert out == list(range(32))
    assert counters.tensors["in"].write_sectors == 4


def test_eight_words_at_once(engine):
    """ld.global.v8.b32 moves 32 bytes of each lane: 32 sectors in one request."""
    memory = Memory()
    source = memory.allocate("in", 1024).view(np.uint32)
    source[:] = np.arange(256)
    out = memory.allocate("out", 1024).view(np.uint32)
    vector = "{" + ", ".join(f"%r{k}" for k in range(1, 9)) + "}"
    body = (
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [in];\nmad.wide.u32 %rd0, %r0, 32, %rd0;\nld.param.u64 %rd1, [out];\n"
        f"mad.wide.u32 %rd1, %r0, 32, %rd1;\nld.global.v8.b32 {vector}, [%rd0];\nst.global.v8.b32 [%rd1], {vector};"
    )
    counters = engine.launch(
        engine.wrap(body, ".param .u64 in, .param .u64 out"),
        memory=memory,
        args=[np.uint64(memory.address(name)) for name in ("in", "out")],
    )
    assert (out == source).all()
    assert counters.tensors["in"] == TensorCounters(read_requests=1, read_sectors=32)
    assert counters.tensors["out"] == TensorCounters(write_requests=1, write_sectors=32)


@pytest.mark.parametrize(
    "body, message",
    [
        ("mov.u64 %rd3, depot;\nld.local.u32 %r9, [%rd3+64];", "local"),
        ("mov.u64 %rd3, 58;\ncvta.local.u64 %rd3, %rd3;\nst.u32 [%rd3], %r0;", "multiple|aligned"),
        ("ld.const.u32 %r9, [powers+52];", "const"),
        ("mov.u64 %rd3, powers;\ncvta.const.u64 %rd3, %rd3;\nst.u32 [%rd3], %r0;", "written|no write"),
        ("mov.u64 %rd3, depot;\ncvta.local.u64 %rd3, %rd3;\natom.add.u32 %r9, [%rd3], 1;", "atomic"),
        ("mov.u64 %rd3, 0x7f00000000000000;\nld.u32 %r9, [%rd3];", "outside|no memory space"),
        ("mov.u64 %rd3, 4096;\ncvta.shared.u64 %rd3, %rd3;\nld.u32 %r9, [%rd3];", "shared"),
    ],
)
def test_illegal_accesses(engine, body, message):
    with pytest.raises(KernelFault, match=message):
        run(engine, f"mov.u32 %r9, 0;\n{body}", LOCAL, CONSTANTS)
