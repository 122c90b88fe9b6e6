"""bar.sync: order between warps, named barriers, exits, and diagnoses of deadlocks."""

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.memory import Memory


def store(engine, body: str, block: int) -> list[int]:
    """Run ``body`` with the thread in %r0, its warp in %r1, 4 * thread in %r2; then %r9 goes to out[thread]."""
    memory = Memory()
    out = memory.allocate("out", 4 * block).view(np.uint32)
    text = engine.wrap(
        "mov.u32 %r0, %tid.x;\nshr.u32 %r1, %r0, 5;\nshl.b32 %r2, %r0, 2;\nmov.u32 %r9, 0;\n"
        f"{body}\nld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 4, %rd0;\nst.global.u32 [%rd0], %r9;",
        ".param .u64 out",
    )
    engine.launch(
        text, memory=memory, args=[np.uint64(memory.address("out"))], block=(block, 1, 1), smem_bytes=4 * block
    )
    return out.tolist()


@pytest.mark.parametrize("barrier", ["bar.sync 0", "barrier.sync 0", "barrier.sync.aligned 3", "bar.sync 1, 128"])
def test_every_warp_sees_the_others_stores(engine, barrier):
    """Thread t reads what thread 127 - t stored, which another warp did."""
    body = f"st.shared.u32 [%r2], %r0;\n{barrier};\nsub.u32 %r3, 508, %r2;\nld.shared.u32 %r9, [%r3];"
    assert store(engine, body, 128) == [127 - t for t in range(128)]


def test_barriers_in_a_loop(engine):
    """Ten rounds in which the value moves on by one warp: two barriers each."""
    body = (
        "mov.u32 %r4, 0;\nmov.u32 %r9, %r0;\nLOOP:\nst.shared.u32 [%r2], %r9;\nbar.sync 0;\n"
        "add.u32 %r3, %r2, 128;\nand.b32 %r3, %r3, 511;\nld.shared.u32 %r9, [%r3];\nbar.sync 0;\nadd.u32 %r4, %r4, 1;\n"
        "setp.lt.u32 %p0, %r4, 10;\n@%p0 bra LOOP;"
    )
    assert store(engine, body, 128) == [(t + 320) % 128 for t in range(128)]


def test_named_barriers_pair_warps(engine):
    """Warps 0, 1 meet at barrier 1, warps 2, 3 at barrier 2 (numbers and counts in registers)."""
    body = (
        "st.shared.u32 [%r2], %r0;\nshr.u32 %r3, %r1, 1;\nsetp.eq.u32 %p0, %r3, 0;\n@!%p0 bra OTHER;\nmov.u32 %r4, 1;\n"
        "mov.u32 %r5, 64;\nbar.sync %r4, %r5;\nbra READ;\nOTHER:\nbar.sync 2, 64;\nREAD:\nxor.b32 %r3, %r2, 128;\n"
        "ld.shared.u32 %r9, [%r3];"
    )
    assert store(engine, body, 128) == [t ^ 32 for t in range(128)]


def test_warps_that_ended_are_not_waited_for(engine):
    """Warps 2 and 3 end; the others still pass their barrier, and lanes that ended do not hold it up either."""
    body = (
        "setp.ge.u32 %p0, %r0, 60;\n@%p0 exit;\nst.shared.u32 [%r2], %r0;\nbar.sync 0;\nxor.b32 %r3, %r2, 4;\n"
        "ld.shared.u32 %r9, [%r3];"
    )
    assert store(engine, body, 128) == [t ^ 1 for t in range(60)] + [0xFFFFFFFF] * 68


def test_a_block_of_part_of_a_warp(engine):
    body = "st.shared.u32 [%r2], %r0;\nbar.sync 0;\nsub.u32 %r3, 188, %r2;\nld.shared.u32 %r9, [%r3];"
    assert store(engine, body, 48) == [47 - t for t in range(48)]


def test_lanes_meet_before_the_barrier(engine):
    """Both sides of a branch reach the same barrier together."""
    body = (
        "and.b32 %r3, %r0, 1;\nsetp.eq.u32 %p0, %r3, 1;\n@%p0 bra ODD;\nmov.u32 %r4, 10;\nbra MEET;\nODD:\n"
        "mov.u32 %r4, 20;\nMEET:\nst.shared.u32 [%r2], %r4;\nbar.sync 0;\nxor.b32 %r3, %r2, 132;\n"
        "ld.shared.u32 %r9, [%r3];"
    )
    assert store(engine, body, 64) == [20, 10] * 32


def test_lanes_that_leave_by_a_common_end_are_not_waited_for(engine):
    """An early return compiles to a branch to the last instruction, behind the barrier."""
    body = (
        "mov.u32 %r9, 5;\nsetp.ge.u32 %p0, %r0, 20;\n@%p0 bra END;\nst.shared.u32 [%r2], %r0;\nbar.sync 0;\n"
        "xor.b32 %r3, %r2, 4;\nld.shared.u32 %r9, [%r3];\nEND:"
    )
    assert store(engine, body, 64) == [t ^ 1 for t in range(20)] + [5] * 44


def test_lanes_behind_the_barrier_come_back_before_it(engine):
    """A block at the kernel's end that jumps back to the barrier: the others wait for its lanes."""
    body = (
        "mov.u32 %r4, 1;\nand.b32 %r3, %r0, 1;\nsetp.eq.u32 %p0, %r3, 1;\n@%p0 bra COLD;\nMEET:\n"
        "st.shared.u32 [%r2], %r4;\nbar.sync 0;\nxor.b32 %r3, %r2, 4;\nld.shared.u32 %r9, [%r3];\nbra END;\nCOLD:\n"
        "mov.u32 %r4, 2;\nbra MEET;\nEND:"
    )
    assert store(engine, body, 32) == [2, 1] * 16


def test_divergent_barrier_is_a_fault(engine):
    """Half of a warp waits at one barrier, half at another."""
    body = "setp.lt.u32 %p0, %r0, 16;\n@%p0 bra LOW;\nbar.sync 5;\nbra END;\nLOW:\nbar.sync 6;\nEND:"
    with pytest.raises(KernelFault, match=r"warp 0.*bar\.sync 5.*PTX line 16"):
        store(engine, body, 32)


def test_deadlock_names_who_waits_where(engine):
    """Warp 0 waits at barrier 1 and warp 1 at barrier 2, each for both of them."""
    body = "setp.eq.u32 %p0, %r1, 0;\n@%p0 bra FIRST;\nbar.sync 2, 64;\nbra END;\nFIRST:\nbar.sync 1, 64;\nEND:"
    with pytest.raises(KernelFault, match="deadlock") as fault:
        store(engine, body, 64)
    assert "warp 0 waits at barrier 1" in str(fault.value)
    assert "warp 1 waits at barrier 2" in str(fault.value)
    assert str(fault.value).count("32 of 64 threads arrived") == 2


def test_barrier_for_more_threads_than_come(engine):
    body = "setp.eq.u32 %p0, %r1, 3;\n@%p0 exit;\nbar.sync 1, 128;"
    with pytest.raises(KernelFault, match=r"warp 2 waits at barrier 1.*96 of 128 threads arrived"):
        store(engine, body, 128)
