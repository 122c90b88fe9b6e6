"""mbarrier: phases, states, counts, waiting warps, and copies that signal their arrival."""

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.memory import Memory


def run(engine, body: str, threads: int = 32, declarations: str = "") -> list[int]:
    """out[thread] = %r9; the thread is in %r0, its warp in %r1; mbarriers lie at 0, 8 of shared memory, data at 64."""
    memory = Memory()
    source = memory.allocate("in", 4 * threads).view(np.uint32)
    source[:] = np.arange(1000, 1000 + threads)
    out = memory.allocate("out", 4 * threads).view(np.uint32)
    text = engine.wrap(
        "mov.u32 %r0, %tid.x;\nshr.u32 %r1, %r0, 5;\nsetp.eq.u32 %p7, %r0, 0;\nmov.u32 %r9, 0;\n"
        "ld.param.u64 %rd8, [in];\n"
        f"mad.wide.u32 %rd8, %r0, 4, %rd8;\n{body}\nld.param.u64 %rd9, [out];\nmad.wide.u32 %rd9, %r0, 4, %rd9;\n"
        "st.global.u32 [%rd9], %r9;",
        ".param .u64 in, .param .u64 out",
        declarations,
    )
    engine.launch(
        text,
        memory=memory,
        args=[np.uint64(memory.address(name)) for name in ("in", "out")],
        block=(threads, 1, 1),
        smem_bytes=64 + 4 * threads,
    )
    return out.tolist()


INIT = "@%p7 mbarrier.init.shared.b64 [0], {count};\nbar.sync 0;\n"


def test_pending_counts_of_the_states(engine):
    """An arrival returns the state from before: lane 0 finds 40 pending arrivals, lane 1 finds 39, ... lane 31 nine."""
    body = INIT.format(count=40) + "mbarrier.arrive.shared.b64 %rd0, [0];\nmbarrier.pending_count.b64 %r9, %rd0;"
    assert run(engine, body) == [40 - lane for lane in range(32)]


def test_a_phase_completes_with_its_last_arrival(engine):
    """33 arrivals: after 32 the phase of the first state is not complete, after one more it is."""
    body = INIT.format(count=33) + (
        "mbarrier.arrive.shared.b64 %rd0, [0];\nmbarrier.test_wait.shared.b64 %p0, [0], %rd0;\n"
        "selp.u32 %r9, 1, 0, %p0;\n"
        "@%p7 mbarrier.arrive.shared.b64 %rd1, [0];\nmbarrier.test_wait.shared.b64 %p0, [0], %rd0;\n"
        "selp.u32 %r2, 2, 0, %p0;\nor.b32 %r9, %r9, %r2;"
    )
    assert run(engine, body) == [2] * 32


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_parities(engine, rounds):
    """After n complete phases the parity of the last complete one is that of n - 1: the wait for it is over."""
    body = INIT.format(count=32) + "mbarrier.arrive.shared.b64 %rd0, [0];\n" * rounds
    body += "mbarrier.test_wait.parity.shared.b64 %p0, [0], 0;\nmbarrier.test_wait.parity.shared.b64 %p1, [0], 1;\n"
    body += "selp.u32 %r9, 1, 0, %p0;\nselp.u32 %r2, 2, 0, %p1;\nor.b32 %r9, %r9, %r2;"
    assert run(engine, body) == [1 if rounds % 2 else 2] * 32


def test_no_complete_takes_many_at_once(engine):
    """Lane 0 takes 30 of 40 arrivals; 10 are pending for lane 1, 9 for lane 2, ..."""
    body = INIT.format(count=40) + (
        "setp.gt.u32 %p0, %r0, 0;\nsetp.lt.u32 %p1, %r0, 6;\nand.pred %p1, %p0, %p1;\n"
        "@%p7 mbarrier.arrive.noComplete.shared.b64 %rd0, [0], 30;\n@%p1 mbarrier.arrive.shared.b64 %rd0, [0];\n"
        "@%p7 mbarrier.pending_count.b64 %r9, %rd0;\n@%p1 mbarrier.pending_count.b64 %r9, %rd0;"
    )
    assert run(engine, body)[:6] == [40, 10, 9, 8, 7, 6]


def test_arrive_drop_makes_later_phases_smaller(engine):
    """Of 32 arrivals four are for the last time: the next phase begins with 28 pending."""
    body = INIT.format(count=32) + (
        "setp.lt.u32 %p0, %r0, 4;\n@%p0 mbarrier.arrive_drop.shared.b64 %rd0, [0];\n"
        "@!%p0 mbarrier.arrive.shared.b64 %rd0, [0];\n@%p7 mbarrier.arrive.shared.b64 %rd1, [0];\n"
        "@%p7 mbarrier.pending_count.b64 %r9, %rd1;"
    )
    assert run(engine, body)[0] == 28


def test_a_barrier_may_be_made_anew(engine):
    body = INIT.format(count=5) + (
        "@%p7 mbarrier.inval.shared.b64 [0];\n@%p7 mbarrier.init.shared.b64 [0], 7;\n"
        "@%p7 mbarrier.arrive.shared.b64 %rd0, [0];\n@%p7 mbarrier.pending_count.b64 %r9, %rd0;"
    )
    assert run(engine, body)[0] == 7


def test_generic_addresses_and_spelled_out_semantics(engine):
    body = (
        "mov.u64 %rd2, 8;\ncvta.shared.u64 %rd2, %rd2;\n@%p7 mbarrier.init.b64 [%rd2], 32;\nbar.sync 0;\n"
        "mbarrier.arrive.release.cta.b64 %rd0, [%rd2];\nmbarrier.test_wait.acquire.cta.b64 %p0, [%rd2], %rd0;\n"
        "selp.u32 %r9, 1, 0, %p0;"
    )
    assert run(engine, body) == [1] * 32


def test_warps_wait_for_each_other(engine):
    """Each warp stores, arrives and spins until all four have arrived; then it reads the opposite thread's word."""
    body = INIT.format(count=128) + (
        "shl.b32 %r2, %r0, 2;\nst.shared.u32 [%r2+64], %r0;\nmbarrier.arrive.shared.b64 %rd0, [0];\nWAIT:\n"
        "mbarrier.test_wait.shared.b64 %p0, [0], %rd0;\n@!%p0 bra WAIT;\nsub.u32 %r2, 508, %r2;\n"
        "ld.shared.u32 %r9, [%r2+64];"
    )
    assert run(engine, body, 128) == [127 - t for t in range(128)]


def test_a_producer_and_a_consumer_over_three_phases(engine):
    """Warp 0 fills a slot three times; warp 1 sums it up and frees it: 10 + 20 + 30 + 3 t."""
    body = (
        "@%p7 mbarrier.init.shared.b64 [0], 32;\n@%p7 mbarrier.init.shared.b64 [8], 32;\nbar.sync 0;\n"
        "and.b32 %r2, %r0, 31;\nshl.b32 %r3, %r2, 2;\nmov.u32 %r4, 0;\nsetp.eq.u32 %p0, %r1, 1;\n@%p0 bra CONSUMER;\n"
        "FILL:\nadd.u32 %r5, %r4, 1;\nmad.lo.u32 %r5, %r5, 10, %r2;\nst.shared.u32 [%r3+64], %r5;\n"
        "mbarrier.arrive.shared.b64 %rd0, [0];\nand.b32 %r6, %r4, 1;\nFREE:\n"
        "mbarrier.test_wait.parity.shared.b64 %p1, [8], %r6;\n@!%p1 bra FREE;\nadd.u32 %r4, %r4, 1;\n"
        "setp.lt.u32 %p2, %r4, 3;\n@%p2 bra FILL;\nbra DONE;\n"
        "CONSUMER:\nand.b32 %r6, %r4, 1;\nFULL:\nmbarrier.test_wait.parity.shared.b64 %p1, [0], %r6;\n@!%p1 bra FULL;\n"
        "ld.shared.u32 %r5, [%r3+64];\nadd.u32 %r9, %r9, %r5;\nmbarrier.arrive.shared.b64 %rd0, [8];\n"
        "add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p2, %r4, 3;\n@%p2 bra CONSUMER;\nDONE:"
    )
    assert run(engine, body, 64) == [0] * 32 + [60 + 3 * t for t in range(32)]


@pytest.mark.parametrize("noinc, count", [(".noinc", 64), ("", 32)])
def test_copies_signal_their_arrival(engine, noinc, count):
    """Each thread copies a word and arrives twice, once through its copy; without .noinc that one is not counted.

    The next warp's words are read behind the barrier alone.
    """
    body = (
        f"@%p7 mbarrier.init.shared.b64 [0], {2 * count};\nbar.sync 0;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r3, %r2, 64;\n"
        f"cp.async.ca.shared.global [%r3], [%rd8], 4;\ncp.async.mbarrier.arrive{noinc}.shared.b64 [0];\n"
        "mbarrier.arrive.shared.b64 %rd0, [0];\nWAIT:\nmbarrier.test_wait.shared.b64 %p0, [0], %rd0;\n@!%p0 bra WAIT;\n"
        "xor.b32 %r2, %r2, 128;\nld.shared.u32 %r9, [%r2+64];"
    )
    assert run(engine, body, 64) == [1000 + (t ^ 32) for t in range(64)]


@pytest.mark.parametrize(
    "body",
    [
        "mbarrier.init.shared.b64 [0], 0;",
        "mbarrier.init.shared.b64 [0], 0x100000;",
        "mbarrier.init.shared.b64 [4], 1;",
        "mbarrier.init.shared.b64 [4096], 1;",
        # The last arrival must not be one that does not complete.
        "mbarrier.init.shared.b64 [0], 5;\nmbarrier.arrive.noComplete.shared.b64 %rd0, [0], 5;",
        "mbarrier.init.shared.b64 [0], 5;\nmbarrier.arrive.noComplete.shared.b64 %rd0, [0], 6;",
    ],
)
def test_misuse_is_a_fault(engine, body):
    lines = "\n".join(f"@%p7 {line}" for line in body.splitlines())
    with pytest.raises(KernelFault):
        run(engine, lines)


def test_a_wait_for_ever_ends(engine):
    """Nobody else arrives: the spin uses up its budget."""
    body = "mbarrier.init.shared.b64 [0], 2;\nmbarrier.arrive.shared.b64 %rd0, [0];\nWAIT:\n"
    body += "mbarrier.test_wait.shared.b64 %p0, [0], %rd0;\n@!%p0 bra WAIT;"
    with pytest.raises(KernelFault, match="budget"):
        engine.launch(engine.wrap(body), memory=Memory(), block=(1, 1, 1), smem_bytes=8, budget=2000)
