"""Sectors, requests, wavefronts, conflicts and instruction classes, worked out by hand."""

import numpy as np
import pytest

from fa_bench.ptx.counters import LaunchCounters, SharedCounters, TensorCounters
from fa_bench.ptx.memory import Memory


def access_global(engine, instruction: str, stride: int, offset: int = 0, guard: str = "") -> LaunchCounters:
    """One instruction per lane at ``offset + stride * lane`` of an 8 KiB buffer that starts on a sector."""
    memory = Memory()
    memory.allocate("X", 8192)
    body = (
        "mov.u32 %r0, %tid.x;\nmov.u32 %r1, 0;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\nmov.u32 %r4, 0;\n"
        f"ld.param.u64 %rd0, [x];\nmad.wide.u32 %rd0, %r0, {stride}, %rd0;\n"
        f"{guard}{instruction.format(f'[%rd0+{offset}]')};"
    )
    text = engine.wrap(body, ".param .u64 x", ".reg .b16 %h;")
    return engine.launch(text, memory=memory, args=[np.uint64(memory.address("X"))])


@pytest.mark.parametrize(
    "instruction, stride, offset, sectors",
    [
        ("ld.global.u32 %r1, {}", 4, 0, 4),  # 128 bytes in a row
        ("ld.global.u32 %r1, {}", 4, 4, 5),  # the same, over one more sector
        ("ld.global.u32 %r1, {}", 0, 0, 1),  # all lanes at one address
        ("ld.global.u32 %r1, {}", 8, 0, 8),  # every second word of 256 bytes
        ("ld.global.u32 %r1, {}", 128, 0, 32),  # a sector per lane
        ("ld.global.u8 %r1, {}", 1, 0, 1),
        ("ld.global.u8 %r1, {}", 1, 16, 2),
        ("ld.global.b16 %h, {}", 2, 0, 2),
        ("ld.global.v2.u32 {{%r1, %r2}}, {}", 8, 0, 8),
        ("ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, {}", 16, 0, 16),  # 512 bytes
        ("ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, {}", 16, 16, 17),
        # Rows of 80 bytes, 16 from each: the starts 80 l mod 32 are 0, 16, 0, 16 ...: never over a sector's end.
        ("ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, {}", 80, 0, 32),
        ("ld.global.u64 %rd1, {}", 16, 0, 16),
    ],
)
def test_read_sectors(engine, instruction, stride, offset, sectors):
    counters = access_global(engine, instruction, stride, offset)
    assert counters.tensors == {"X": TensorCounters(read_requests=1, read_sectors=sectors)}
    assert counters.tensors["X"].read_bytes == 32 * sectors
    assert counters.shared == SharedCounters()


@pytest.mark.parametrize(
    "instruction, stride, sectors",
    [
        ("st.global.u32 {}, %r1", 4, 4),
        ("st.global.u16 {}, %h", 2, 2),
        ("st.global.u16 {}, %h", 64, 32),  # a partly written sector counts whole
        ("st.global.v4.u32 {}, {{%r1, %r2, %r3, %r4}}", 16, 16),
    ],
)
def test_write_sectors(engine, instruction, stride, sectors):
    counters = access_global(engine, instruction, stride)
    assert counters.tensors == {"X": TensorCounters(write_requests=1, write_sectors=sectors)}


@pytest.mark.parametrize(
    "lanes, requests, sectors",
    [(8, 1, 1), (9, 1, 2), (0, 0, 0), (32, 1, 4)],
)
def test_lanes_whose_guard_is_false_count_nothing(engine, lanes, requests, sectors):
    counters = access_global(engine, "ld.global.u32 %r1, {}", 4, guard=f"setp.lt.u32 %p0, %r0, {lanes};\n@%p0 ")
    assert counters.tensors["X"] == TensorCounters(read_requests=requests, read_sectors=sectors)


def test_one_instruction_over_two_buffers_is_a_request_of_either(engine):
    """Even lanes read A, odd lanes B, 4 bytes each 4 bytes apart: 32 lanes over 128 bytes, every second word."""
    memory = Memory()
    memory.allocate("A", 128)
    memory.allocate("B", 128)
    memory.allocate("C", 128)
    body = (
        "mov.u32 %r0, %tid.x;\nand.b32 %r1, %r0, 1;\nsetp.eq.u32 %p0, %r1, 0;\n"
        "ld.param.u64 %rd0, [a];\nld.param.u64 %rd1, [b];\nselp.b64 %rd2, %rd0, %rd1, %p0;\n"
        "mad.wide.u32 %rd2, %r0, 4, %rd2;\nld.global.u32 %r2, [%rd2];"
    )
    counters = engine.launch(
        engine.wrap(body, ".param .u64 a, .param .u64 b"),
        memory=memory,
        args=[np.uint64(memory.address("A")), np.uint64(memory.address("B"))],
    )
    half = TensorCounters(read_requests=1, read_sectors=4)
    assert counters.tensors == {"A": half, "B": half, "C": TensorCounters()}


def access_shared(engine, instruction: str, stride: int, guard: str = "") -> SharedCounters:
    """One instruction per lane at ``stride * lane`` of shared memory."""
    body = (
        f"mov.u32 %r0, %tid.x;\nmul.lo.u32 %r1, %r0, {stride};\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\nmov.u32 %r4, 0;\n"
        f"mov.u32 %r5, 0;\nmov.u64 %rd0, 0;\n{guard}{instruction.format('[%r1]')};"
    )
    text = engine.wrap(body, "", ".reg .b16 %h;")
    return engine.launch(text, memory=Memory(), smem_bytes=32 * 1024).shared


@pytest.mark.parametrize(
    "instruction, stride, wavefronts, conflicts",
    [
        ("ld.shared.u32 %r2, {}", 4, 1, 0),  # lane l in bank l
        ("ld.shared.u32 %r2, {}", 0, 1, 0),  # one word for all: a broadcast
        ("ld.shared.u32 %r2, {}", 8, 2, 1),  # word 2l: 16 banks with two words each
        ("ld.shared.u32 %r2, {}", 16, 4, 3),
        ("ld.shared.u32 %r2, {}", 128, 32, 31),  # all in bank 0
        ("ld.shared.u32 %r2, {}", 132, 1, 0),  # word 33l: bank l again (padding)
        ("ld.shared.u32 %r2, {}", 12, 1, 0),  # word 3l: 3 is prime to 32
        ("ld.shared.u8 %r2, {}", 1, 1, 0),  # 8 words
        ("ld.shared.u8 %r2, {}", 128, 32, 31),
        ("ld.shared.b16 %h, {}", 2, 1, 0),  # 16 words
        ("ld.shared.b16 %h, {}", 64, 16, 15),  # word 16l: 16 words in bank 0, 16 in bank 16
        # 64 bits: two phases of 16 lanes, at best one wavefront each.
        ("ld.shared.u64 %rd0, {}", 8, 2, 0),
        ("ld.shared.v2.u32 {{%r2, %r3}}, {}", 8, 2, 0),
        ("ld.shared.u64 %rd0, {}", 16, 4, 2),  # words 4l, 4l+1: 16 lanes over 64 words, two per bank used
        ("ld.shared.u64 %rd0, {}", 0, 2, 0),
        # 128 bits: four phases of 8 lanes.
        ("ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, {}", 16, 4, 0),
        ("ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, {}", 32, 8, 4),  # 8 lanes over 64 words
        ("ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, {}", 128, 32, 28),
        ("ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, {}", 144, 4, 0),  # word 36l: bank 4l
        ("st.shared.u32 {}, %r2", 4, 1, 0),
        ("st.shared.u32 {}, %r2", 128, 32, 31),
        ("st.shared.v4.u32 {}, {{%r2, %r3, %r4, %r5}}", 16, 4, 0),
    ],
)
def test_bank_conflicts(engine, instruction, stride, wavefronts, conflicts):
    counted = access_shared(engine, instruction, stride)
    assert counted == SharedCounters(1, wavefronts, conflicts)


@pytest.mark.parametrize(
    "lanes, instruction, stride, expected",
    [
        (8, "ld.shared.u32 %r2, {}", 128, SharedCounters(1, 8, 7)),
        (0, "ld.shared.u32 %r2, {}", 128, SharedCounters()),
        # 12 active lanes are two of the four phases: 8 lanes, then 4.
        (12, "ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, {}", 16, SharedCounters(1, 2, 0)),
        (12, "ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, {}", 128, SharedCounters(1, 12, 10)),
        (20, "ld.shared.u64 %rd0, {}", 128, SharedCounters(1, 20, 18)),
    ],
)
def test_only_phases_with_active_lanes_count(engine, lanes, instruction, stride, expected):
    guard = f"setp.lt.u32 %p0, %r0, {lanes};\n@%p0 "
    assert access_shared(engine, instruction, stride, guard) == expected


@pytest.mark.parametrize(
    "matrices, row_bytes, wavefronts, conflicts",
    [
        (4, 16, 4, 0),  # 8 rows of 16 bytes in a row: all 32 banks once
        (4, 128, 32, 28),  # 8 rows in the same four banks
        (4, 144, 4, 0),
        (2, 128, 16, 14),
        (1, 128, 8, 7),
        (1, 32, 2, 1),
        (2, 16, 2, 0),
    ],
)
def test_ldmatrix_has_one_phase_per_matrix(engine, matrices, row_bytes, wavefronts, conflicts):
    registers = ", ".join(f"%r{2 + k}" for k in range(matrices))
    instruction = f"ldmatrix.sync.aligned.m8n8.x{matrices}.shared.b16 {{{{{registers}}}}}, {{}}"
    counted = access_shared(engine, instruction, row_bytes)
    assert counted == SharedCounters(1, wavefronts, conflicts)


def test_a_repeated_instruction_counts_each_time_with_its_own_addresses(engine):
    """Three rounds over one load: strides of 4, 8 and 128 bytes give 1 + 2 + 32 wavefronts of one phase each."""
    body = (
        "mov.u32 %r0, %tid.x;\nmov.u32 %r3, 4;\nLOOP:\nmul.lo.u32 %r1, %r0, %r3;\nld.shared.u32 %r2, [%r1];\n"
        "setp.eq.u32 %p0, %r3, 128;\n@%p0 bra END;\nsetp.eq.u32 %p1, %r3, 8;\nselp.u32 %r3, 128, 8, %p1;\n"
        "bra LOOP;\nEND:"
    )
    counters = engine.launch(engine.wrap(body), memory=Memory(), smem_bytes=4096)
    assert counters.shared == SharedCounters(3, 35, 32)


def test_instruction_classes(engine):
    """Warp instructions by class; a false guard still counts; two warps count twice."""
    body = (
        "mov.u32 %r0, %tid.x;\nadd.u32 %r1, %r0, 1;\nsetp.lt.u32 %p0, %r0, 0;\n@%p0 add.u32 %r1, %r0, 2;\n"
        "cvt.rn.f32.u32 %r2, %r0;\nfma.rn.f32 %r3, %r2, %r2, %r2;\nex2.approx.f32 %r4, %r3;\nbar.sync 0;\n"
        "st.shared.u32 [0], %r4;"
    )
    counters = engine.launch(engine.wrap(body), memory=Memory(), smem_bytes=4, block=(64, 1, 1))
    per_warp = {
        "move": 1,
        "integer": 3,
        "convert": 1,
        "fma": 1,
        "sfu": 1,
        "sync": 1,
        "load-store": 1,
        "control": 1,  # ret
    }
    assert dict(counters.instructions) == {k: 2 * v for k, v in per_warp.items()}
    assert counters.warp_instructions == 20


def test_divergent_sides_count_once_each(engine):
    """Lanes 0-15 run one add, the others two: each side is its own warp instructions."""
    body = (
        "mov.u32 %r0, %tid.x;\nsetp.lt.u32 %p0, %r0, 16;\n@%p0 bra LOW;\nadd.u32 %r1, %r0, 1;\nadd.u32 %r1, %r1, 1;\n"
        "bra END;\nLOW:\nadd.u32 %r1, %r0, 3;\nEND:"
    )
    counters = engine.launch(engine.wrap(body), memory=Memory())
    assert dict(counters.instructions) == {"move": 1, "integer": 4, "control": 3}


def test_counters_check_themselves():
    with pytest.raises(ValueError, match=r"TensorCounters\.read_sectors must not be negative, but it is -1"):
        TensorCounters(read_sectors=-1)
    with pytest.raises(ValueError, match=r"SharedCounters\.conflicts"):
        SharedCounters(conflicts=-1)
    with pytest.raises(ValueError, match="is 3, but the classes sum to 2"):
        LaunchCounters(instructions={"fma": 2}, warp_instructions=3)
    with pytest.raises(ValueError, match=r"LaunchCounters\.ctas"):
        LaunchCounters(ctas=-1)
