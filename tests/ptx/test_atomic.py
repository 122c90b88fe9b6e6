"""atom and red: results, returned values, order of the lanes, what is counted."""

import struct

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.ptx.counters import SharedCounters, TensorCounters
from fa_bench.ptx.memory import Memory


def f32(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f64(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


M32, M64 = 2**32 - 1, 2**64 - 1

#: Operation -> (old value, operands, new value); the old value is returned.
CASES = {
    "add.u32": [(5, 7, 12), (M32, 2, 1)],
    "add.s32": [(5, -7, -2), (0x7FFFFFFF, 1, 0x80000000)],
    "add.u64": [(M64, 3, 2), (1 << 40, 1 << 40, 1 << 41)],
    "add.f32": [(f32(1.5), f32(2.25), f32(3.75)), (f32(1), f32(2**-24), f32(1))],
    "add.f64": [(f64(1.5), f64(2.25), f64(3.75)), (f64(2**-1074), f64(2**-1074), f64(2**-1073))],
    "min.u32": [(5, M32, 5), (5, 4, 4)],
    "min.s32": [(5, -1, -1), (-5, -1, -5)],
    "max.u32": [(5, M32, M32)],
    "max.s32": [(5, -1, 5)],
    "min.s64": [(5, -1, -1)],
    "max.u64": [(5, M64, M64)],
    "min.u64": [(1 << 40, 1 << 33, 1 << 33)],
    "max.s64": [(-(1 << 40), -1, -1)],
    # inc: up to the operand, then 0; dec: from 0, or from above the operand, to the operand.
    "inc.u32": [(3, 5, 4), (5, 5, 0), (9, 5, 0)],
    "dec.u32": [(3, 5, 2), (0, 5, 5), (9, 5, 5)],
    "and.b32": [(0b1100, 0b1010, 0b1000)],
    "or.b32": [(0b1100, 0b1010, 0b1110)],
    "xor.b32": [(0b1100, 0b1010, 0b0110)],
    "and.b64": [(M64, 1 << 63, 1 << 63)],
    "or.b64": [(1, 1 << 63, 1 | 1 << 63)],
    "xor.b64": [(M64, 1, M64 - 1)],
    # 1.0 + 2^-11 is a tie in f16 and stays; 1.0 + 0.5 in bf16.
    "add.noftz.f16": [(0x3C00, 0x1000, 0x3C00), (0x3C00, 0x3800, 0x3E00), (0x0001, 0x0001, 0x0002)],
    "add.noftz.bf16": [(0x3F80, 0x3F00, 0x3FC0)],
    "add.noftz.f16x2": [(0x3C000001, 0x38000001, 0x3E000002)],
    "add.noftz.bf16x2": [(0x3F803F80, 0x3F00BF80, 0x3FC00000)],
}
EXCHANGES = {
    "exch.b32": [(1, 2, 2)],
    "exch.b64": [(1, 1 << 40, 1 << 40)],
    "cas.b16": [(7, 7, 9, 9), (7, 6, 9, 7)],
    "cas.b32": [(7, 7, 9, 9), (7, 6, 9, 7)],
    "cas.b64": [(1 << 40, 1 << 40, 3, 3), (1 << 40, 0, 3, 1 << 40)],
}


def width_of(operation: str) -> int:
    type_ = operation.rsplit(".", 1)[1]
    return 32 if type_.endswith("x2") else 16 if type_ == "bf16" else int(type_[1:])


def run(engine, word: str, space: str, operation: str, rows):
    """One operation in each of the first lanes, on 8 bytes of its own: returned values, new values, counters."""
    width = width_of(operation)
    columns = list(zip(*rows, strict=True))[:-1]
    memory = Memory()
    table = memory.allocate("table", 256 * len(columns)).view(np.uint64).reshape(len(columns), 32)
    table[:] = 0
    for k, column in enumerate(columns):
        table[k, : len(rows)] = [v % 2**width for v in column]
    old = memory.allocate("old", 256).view(np.uint64)
    old[:] = 0
    names = [f"%v{k}" for k in range(1, len(columns))]
    loads = "".join(f"ld.global.b{width} {n}, [%rd0+{256 * k}];\n" for k, n in enumerate(["%v0", *names]))
    inside = space != "shared" and space != "generic.shared"
    setup = "mov.u64 %rd2, %rd0;" if inside else f"mul.wide.u32 %rd2, %r0, 8;\nst.shared.b{width} [%rd2], %v0;"
    if space == "generic.shared":
        setup += "\ncvta.shared.u64 %rd2, %rd2;"
    spelled = f"{word}.{space}.{operation}" if space in ("global", "shared") else f"{word}.{operation}"
    target = "%d, " if word == "atom" else ""
    fetch = "" if inside else f"cvt.u32.u64 %r1, %rd2;\nld.shared.b{width} %v0, [%r1];\nst.global.b{width} [%rd0], %v0;"
    body = (
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [table];\nmad.wide.u32 %rd0, %r0, 8, %rd0;\n"
        "ld.param.u64 %rd1, [old];\n"
        f"mad.wide.u32 %rd1, %r0, 8, %rd1;\nmov.b{width} %d, 0;\n{loads}{setup}\n"
        f"{spelled} {target}[%rd2], {', '.join(names)};\n{fetch}\nst.global.b{width} [%rd1], %d;"
    )
    text = engine.wrap(body, ".param .u64 table, .param .u64 old", f".reg .b{width} %v<3>, %d;")
    counters = engine.launch(
        text,
        memory=memory,
        args=[np.uint64(memory.address(n)) for n in ("table", "old")],
        block=(len(rows), 1, 1),
        smem_bytes=256,
    )
    return old[: len(rows)].tolist(), table[0, : len(rows)].tolist(), counters


@pytest.mark.parametrize("space", ["global", "shared", "generic", "generic.shared"])
@pytest.mark.parametrize("operation", [*CASES, *EXCHANGES])
def test_atom_returns_the_old_value(engine, operation, space):
    rows = {**CASES, **EXCHANGES}[operation]
    width = width_of(operation)
    old, new, counters = run(engine, "atom", space, operation, rows)
    assert old == [row[0] % 2**width for row in rows]
    assert new == [row[-1] % 2**width for row in rows]
    in_global = space in ("global", "generic")
    assert counters.tensors["table"].atomic_requests == int(in_global)
    assert counters.tensors["table"].atomic_sectors == int(in_global)


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize("operation", CASES)
def test_red_only_changes_memory(engine, operation, space):
    rows = CASES[operation]
    width = width_of(operation)
    old, new, _ = run(engine, "red", space, operation, rows)
    assert old == [0] * len(rows)
    assert new == [row[-1] % 2**width for row in rows]


@pytest.mark.parametrize("space, expected", [("global", 0), ("shared", 2)])
def test_f32_sums_flush_subnormals_in_global_memory_only(engine, space, expected):
    """2^-149 + 2^-149: zero in global memory, 2^-148 in shared memory."""
    assert run(engine, "atom", space, "add.f32", [(1, 1, 2)])[1] == [expected]


def in_one_place(engine, operation: str, initial: int, operand: str = "%r0", guard: str = "") -> tuple[list[int], int]:
    """All lanes at once on one word of global memory: the returned values and the result."""
    memory = Memory()
    word = memory.allocate("word", 4).view(np.uint32)
    word[0] = initial
    out = memory.allocate("out", 128).view(np.uint32)
    body = (
        "mov.u32 %r0, %tid.x;\nand.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 1;\nmov.u32 %r9, 0;\n"
        f"ld.param.u64 %rd0, [word];\n{guard} atom.global.{operation} %r9, [%rd0], {operand};\n"
        "ld.param.u64 %rd1, [out];\nmad.wide.u32 %rd1, %r0, 4, %rd1;\nst.global.u32 [%rd1], %r9;"
    )
    counters = engine.launch(
        engine.wrap(body, ".param .u64 word, .param .u64 out"),
        memory=memory,
        args=[np.uint64(memory.address(n)) for n in ("word", "out")],
    )
    assert counters.tensors["word"] == TensorCounters(atomic_requests=1, atomic_sectors=1)
    return out.tolist(), int(word[0])


def test_lanes_take_their_turns_in_order(engine):
    """Lane l finds the sum of the numbers below l; all make 0 + 1 + ... + 31 = 496."""
    assert in_one_place(engine, "add.u32", 0) == ([lane * (lane - 1) // 2 for lane in range(32)], 496)


def test_exchange_hands_the_value_from_lane_to_lane(engine):
    assert in_one_place(engine, "exch.b32", 77) == ([77, *range(31)], 31)


def test_compare_and_swap_succeeds_once(engine):
    """Only lane 0 finds 5; it leaves 9."""
    assert in_one_place(engine, "cas.b32", 5, "5, 9") == ([5] + [9] * 31, 9)


def test_a_ticket_wraps_around(engine):
    """inc with 9 counts modulo 10: 32 tickets from 0 on."""
    assert in_one_place(engine, "inc.u32", 0, "9") == ([lane % 10 for lane in range(32)], 2)


def test_lanes_without_guard_do_not_take_part(engine):
    """The odd lanes add one each."""
    assert in_one_place(engine, "add.u32", 100, "1", "@%p0") == (
        [100 + lane // 2 if lane % 2 else 0 for lane in range(32)],
        116,
    )


def test_sectors_of_scattered_atomics(engine):
    """Lanes 128 bytes apart touch 32 sectors in one request."""
    memory = Memory()
    words = memory.allocate("words", 4096).view(np.uint32)
    words[:] = 0
    body = (
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [words];\nmad.wide.u32 %rd0, %r0, 128, %rd0;\n"
        "red.global.add.u32 [%rd0], %r0;"
    )
    text = engine.wrap(body, ".param .u64 words")
    counters = engine.launch(text, memory=memory, args=[np.uint64(memory.address("words"))])
    assert words[::32].tolist() == list(range(32))
    assert counters.tensors["words"] == TensorCounters(atomic_requests=1, atomic_sectors=32)
    assert counters.tensors["words"].atomic_bytes == 1024


def test_conflicts_of_shared_atomics(engine):
    """Lanes 0 to 15 ask for words 32 k of bank 0, the others for words 32 k + 1 of bank 1: 16 wavefronts."""
    memory = Memory()
    body = (
        "mov.u32 %r0, %tid.x;\nand.b32 %r1, %r0, 15;\nshl.b32 %r1, %r1, 7;\nshr.u32 %r2, %r0, 4;\n"
        "mad.lo.u32 %r1, %r2, 4, %r1;\nred.shared.add.u32 [%r1], 1;"
    )
    counters = engine.launch(engine.wrap(body), memory=memory, smem_bytes=2048)
    assert counters.shared == SharedCounters(1, 16, 15)


@pytest.mark.parametrize(
    "spelled", ["atom.relaxed.gpu.global.add.u32", "atom.acq_rel.sys.global.add.u32", "atom.acquire.cta.global.add.u32"]
)
def test_orders_and_scopes(engine, spelled):
    memory = Memory()
    memory.allocate("word", 4).view(np.uint32)[0] = 3
    body = f"ld.param.u64 %rd0, [word];\n{spelled} %r0, [%rd0], 4;"
    text = engine.wrap(body, ".param .u64 word")
    engine.launch(text, memory=memory, args=[np.uint64(memory.address("word"))], block=(1, 1, 1))
    assert memory.array("word").view(np.uint32)[0] == 7


def test_worker_threads_do_not_lose_updates():
    """2,000 CTAs of 32 lanes on two threads; the f32 sum of ones is exact up to 2^24."""
    memory = Memory()
    words = memory.allocate("words", 8).view(np.uint32)
    words[:] = 0
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 words)\n{\n.reg .b64 %p;\n"
        "ld.param.u64 %p, [words];\nred.global.add.u32 [%p], 1;\nred.global.add.f32 [%p+4], 0f3F800000;\nret;\n}\n"
    )
    kernel = ptx.load(text).kernel("k")
    args = [np.uint64(memory.address("words"))]
    ptx.launch(kernel, grid=(2000, 1, 1), block=(32, 1, 1), args=args, memory=memory, jobs=2)
    assert words[0] == 64000
    assert words.view(np.float32)[1] == 64000
