"""cp.async: data arrives at the wait that covers it, and not before."""

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.counters import SharedCounters, TensorCounters
from fa_bench.ptx.memory import Memory

POISON = 0xFFFFFFFF


def copy(engine, steps: str, size: int = 16, block: int = 32, words: int = 1):
    """Run ``steps`` with the source in %rd0, the lane's shared offset in %r1; %r8+k goes to out[k] of the lane.

    The source holds words 0, 1, 2 ...; lane l of the copy has ``size`` bytes from ``size * l`` on.
    """
    memory = Memory()
    memory.allocate("X", 4096).view(np.uint32)[:] = np.arange(1024)
    out = memory.allocate("out", 4 * words * block).view(np.uint32).reshape(block, words)
    body = (
        f"mov.u32 %r0, %tid.x;\nmul.lo.u32 %r1, %r0, {size};\nld.param.u64 %rd0, [x];\nld.param.u64 %rd1, [out];\n"
        f"mad.wide.u32 %rd0, %r0, {size}, %rd0;\nmad.wide.u32 %rd1, %r0, {4 * words}, %rd1;\n{steps}\n"
        + "\n".join(f"st.global.u32 [%rd1+{4 * k}], %r{8 + k};" for k in range(words))
    )
    counters = engine.launch(
        engine.wrap(body, ".param .u64 x, .param .u64 out"),
        memory=memory,
        args=[np.uint64(memory.address("X")), np.uint64(memory.address("out"))],
        block=(block, 1, 1),
        smem_bytes=4096,
    )
    return out, counters


COPY = "cp.async.cg.shared.global [%r1], [%rd0], 16;\n"
COPY_SECOND = "cp.async.cg.shared.global [%r1+1024], [%rd0+512], 16;\n"
COMMIT = "cp.async.commit_group;\n"


@pytest.mark.parametrize(
    "waits, arrived",
    [
        ("", False),
        (COMMIT, False),
        # A wait for groups does not cover copies that no group holds.
        ("cp.async.wait_group 0;\n", False),
        (COMMIT + "cp.async.wait_group 1;\n", False),
        (COMMIT + "cp.async.wait_group 0;\n", True),
        (COMMIT + COMMIT + "cp.async.wait_group 1;\n", True),
        ("cp.async.wait_all;\n", True),
    ],
)
def test_data_arrives_at_the_wait_that_covers_it(engine, waits, arrived):
    """A missing wait leaves the poison of fresh shared memory in sight."""
    out, _ = copy(engine, COPY + waits + "ld.shared.u32 %r8, [%r1];")
    assert out[:, 0].tolist() == ([4 * lane for lane in range(32)] if arrived else [POISON] * 32)


def test_groups_arrive_oldest_first(engine):
    """After wait_group 1 of two groups, the first is there and the second is not."""
    steps = (
        COPY + COMMIT + COPY_SECOND + COMMIT + "cp.async.wait_group 1;\nld.shared.u32 %r8, [%r1];\n"
        "ld.shared.u32 %r9, [%r1+1024];\ncp.async.wait_group 0;\nld.shared.u32 %r10, [%r1+1024];"
    )
    out, _ = copy(engine, steps, words=3)
    assert out[5].tolist() == [20, POISON, 20 + 128]


def test_a_barrier_is_no_wait(engine):
    out, _ = copy(engine, COPY + COMMIT + "bar.sync 0;\nld.shared.u32 %r8, [%r1];", block=64)
    assert (out == POISON).all()


def test_waiting_warps_show_their_data_to_others_after_a_barrier(engine):
    """Each warp reads what the other one copied."""
    steps = COPY + "cp.async.wait_all;\nbar.sync 0;\nxor.b32 %r2, %r1, 512;\nld.shared.u32 %r8, [%r2];"
    out, _ = copy(engine, steps, block=64)
    assert out[:, 0].tolist() == [4 * (t ^ 32) for t in range(64)]


@pytest.mark.parametrize(
    "size, nbytes, expected",
    [
        # Bytes that the source size leaves are zero. Lane 1's source words are 4 to 7 (16 bytes), 2, 3 or 1.
        (16, 16, [4, 5, 6, 7]),
        (16, 8, [4, 5, 0, 0]),
        (16, 0, [0, 0, 0, 0]),
        (16, 6, [4, 5 & 0xFFFF, 0, 0]),
        (8, 4, [2, 0]),
        (4, 4, [1]),
        (4, 0, [0]),
    ],
)
def test_source_size_fills_with_zeros(engine, size, nbytes, expected):
    steps = (
        f"mov.u32 %r3, {nbytes};\ncp.async.ca.shared.global [%r1], [%rd0], {size}, %r3;\ncp.async.wait_all;\n"
        + "\n".join(f"ld.shared.u32 %r{8 + k}, [%r1+{4 * k}];" for k in range(size // 4))
    )
    out, _ = copy(engine, steps, size, words=size // 4)
    assert out[1].tolist() == expected


def test_a_size_of_zero_accesses_nothing(engine):
    """Lanes 16 to 31 copy zero bytes from far outside: no fault, no sectors, but their shared memory is zeroed."""
    steps = (
        "setp.lt.u32 %p0, %r0, 16;\nselp.u32 %r3, 16, 0, %p0;\nselp.b64 %rd2, %rd0, 64, %p0;\n"
        "cp.async.cg.shared.global [%r1], [%rd2], 16, %r3;\ncp.async.wait_all;\nld.shared.u32 %r8, [%r1+12];"
    )
    out, counters = copy(engine, steps)
    assert out[:, 0].tolist() == [4 * lane + 3 for lane in range(16)] + [0] * 16
    assert counters.tensors["X"] == TensorCounters(read_requests=1, read_sectors=8)
    # The shared write of all 32 lanes (4 phases), the load at a stride of 16 bytes (4 words per bank used).
    assert counters.shared == SharedCounters(2, 4 + 4, 3)


def test_a_true_predicate_ignores_the_source(engine):
    """The fourth operand may be a predicate: where it holds the lane copies zeros from nowhere."""
    steps = (
        "setp.ge.u32 %p0, %r0, 16;\nselp.b64 %rd2, 64, %rd0, %p0;\n"
        "cp.async.cg.shared.global [%r1], [%rd2], 16, %p0;\ncp.async.wait_all;\nld.shared.u32 %r8, [%r1];"
    )
    out, counters = copy(engine, steps)
    assert out[:, 0].tolist() == [4 * lane for lane in range(16)] + [0] * 16
    assert counters.tensors["X"].read_sectors == 8


def test_no_lane_with_bytes_is_no_request(engine):
    steps = "mov.u32 %r3, 0;\ncp.async.cg.shared.global [%r1], [%rd0], 16, %r3;\nmov.u32 %r8, 0;"
    _, counters = copy(engine, steps)
    assert counters.tensors["X"] == TensorCounters()


@pytest.mark.parametrize(
    "size, stride, sectors, wavefronts, conflicts",
    [
        (16, 16, 16, 4, 0),
        (8, 8, 8, 2, 0),
        (4, 4, 4, 1, 0),
        (16, 32, 16, 8, 4),  # shared rows 32 bytes apart: 8 lanes of a phase over 64 words
        (4, 128, 4, 32, 31),
    ],
)
def test_copies_count_as_a_global_read_and_a_shared_store(engine, size, stride, sectors, wavefronts, conflicts):
    steps = (
        f"mul.lo.u32 %r1, %r0, {stride};\ncp.async.ca.shared.global [%r1], [%rd0], {size};\ncp.async.wait_all;\n"
        "mov.u32 %r8, 0;"
    )
    _, counters = copy(engine, steps, size)
    assert counters.tensors["X"] == TensorCounters(read_requests=1, read_sectors=sectors)
    assert counters.shared == SharedCounters(1, wavefronts, conflicts)


def test_partial_source_counts_the_sectors_it_reads(engine):
    """16 bytes per lane, 4 of them read, from 48 bytes apart: a sector per lane, at 48 l mod 32 = 0 or 16."""
    steps = (
        "ld.param.u64 %rd2, [x];\nmad.wide.u32 %rd2, %r0, 48, %rd2;\nmov.u32 %r3, 4;\n"
        "cp.async.cg.shared.global [%r1], [%rd2], 16, %r3;\nmov.u32 %r8, 0;"
    )
    _, counters = copy(engine, steps)
    assert counters.tensors["X"].read_sectors == 32


def test_guarded_copies(engine):
    steps = (
        "setp.ge.u32 %p0, %r0, 24;\n@%p0 cp.async.cg.shared.global [%r1], [%rd0], 16;\ncp.async.wait_all;\n"
        "ld.shared.u32 %r8, [%r1];"
    )
    out, counters = copy(engine, steps)
    assert out[:, 0].tolist() == [POISON] * 24 + [4 * lane for lane in range(24, 32)]
    assert counters.tensors["X"].read_sectors == 4


def test_pipeline_of_two_stages(engine):
    """The usual double buffer: stage k+1 is under way while stage k is read; each round reads its own data."""
    steps = (
        "mov.u32 %r4, 0;\nmov.u32 %r8, 0;\nmov.u64 %rd2, %rd0;\n" + COPY + COMMIT + "LOOP:\n"
        "and.b32 %r5, %r4, 1;\nshl.b32 %r5, %r5, 9;\nadd.u32 %r6, %r1, %r5;\nxor.b32 %r5, %r5, 512;\n"
        "add.u32 %r7, %r1, %r5;\nadd.u64 %rd2, %rd2, 512;\n"
        "cp.async.cg.shared.global [%r7], [%rd2], 16;\ncp.async.commit_group;\ncp.async.wait_group 1;\n"
        "ld.shared.u32 %r3, [%r6];\nmad.lo.u32 %r8, %r8, 3, %r3;\nadd.u32 %r4, %r4, 1;\n"
        "setp.lt.u32 %p0, %r4, 4;\n@%p0 bra LOOP;"
    )
    out, _ = copy(engine, steps)
    for lane in range(32):
        total = 0
        for k in range(4):
            total = total * 3 + 128 * k + 4 * lane
        assert out[lane, 0] == total


@pytest.mark.parametrize("reads", [4, 8])
def test_a_copy_reads_no_more_than_its_source_size(engine, reads):
    """A buffer of 20 bytes: at offset 16 there are 4 to read; the copy's other bytes are zero. Eight are too many."""
    memory = Memory()
    memory.allocate("X", 20).view(np.uint32)[:] = [1, 2, 3, 4, 5]
    out = memory.allocate("out", 8).view(np.uint32)
    text = engine.wrap(
        "mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p0, %r0, 0;\nmov.u32 %r1, 0;\nld.param.u64 %rd0, [x];\n"
        f"ld.param.u64 %rd1, [out];\n@%p0 cp.async.cg.shared.global [%r1], [%rd0+16], 16, {reads};\n"
        "cp.async.wait_all;\nld.shared.v2.u32 {%r8, %r9}, [%r1];\nst.global.v2.u32 [%rd1], {%r8, %r9};",
        ".param .u64 x, .param .u64 out",
    )
    args = [np.uint64(memory.address("X")), np.uint64(memory.address("out"))]
    if reads == 8:
        with pytest.raises(KernelFault):
            engine.launch(text, memory=memory, args=args, smem_bytes=64)
        return
    counters = engine.launch(text, memory=memory, args=args, smem_bytes=64)
    assert out.tolist() == [5, 0]
    assert counters.tensors["X"] == TensorCounters(read_requests=1, read_sectors=1)
