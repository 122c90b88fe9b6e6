"""bar.arrive and bar.red: warps that do not wait, and votes of a whole CTA."""

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.memory import Memory


def run(engine, body: str, threads: int) -> list[int]:
    """out[thread] = %r9; the thread is in %r0, its warp in %r1, 4 * thread in %r2."""
    memory = Memory()
    out = memory.allocate("out", 4 * threads).view(np.uint32)
    text = engine.wrap(
        "mov.u32 %r0, %tid.x;\nshr.u32 %r1, %r0, 5;\nshl.b32 %r2, %r0, 2;\nmov.u32 %r9, 0;\n"
        f"{body}\nld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 4, %rd0;\nst.global.u32 [%rd0], %r9;",
        ".param .u64 out",
    )
    engine.launch(
        text, memory=memory, args=[np.uint64(memory.address("out"))], block=(threads, 1, 1), smem_bytes=4 * threads
    )
    return out.tolist()


@pytest.mark.parametrize("word", ["bar", "barrier"])
def test_producers_arrive_and_consumers_wait(engine, word):
    """Warps 0 to 2 store, arrive and go on; warp 3 waits for all 128 threads, then reads what warp 0 stored."""
    body = (
        f"st.shared.u32 [%r2], %r0;\nsetp.eq.u32 %p0, %r1, 3;\n@%p0 bra WAIT;\n{word}.arrive 1, 128;\nbra DONE;\n"
        f"WAIT:\n{word}.sync 1, 128;\nld.shared.u32 %r9, [%r2+-384];\nDONE:"
    )
    assert run(engine, body, 128) == [0] * 96 + list(range(32))


def test_an_early_arrival_belongs_to_the_next_phase(engine):
    """Warp 0 arrives for three phases before warp 1 waits for the first: 64 threads each, so it goes ahead by itself.

    Barrier 1 opens when warp 1 comes for each; warp 0's arrivals at barriers 2 and 3 keep until then.
    """
    body = (
        "st.shared.u32 [%r2], %r0;\nsetp.eq.u32 %p0, %r1, 1;\n@%p0 bra WAIT;\nbar.arrive 1, 64;\nbar.arrive 2, 64;\n"
        "bar.arrive 3, 64;\nbra DONE;\nWAIT:\nbar.sync 1, 64;\nbar.sync 2, 64;\nbar.sync 3, 64;\n"
        "ld.shared.u32 %r9, [%r2+-128];\nDONE:"
    )
    assert run(engine, body, 64) == [0] * 32 + list(range(32))


@pytest.mark.parametrize(
    "operation, condition, expected",
    [
        # Threads 10 to 13 vote yes.
        ("or.pred", "sub.u32 %r3, %r0, 10;\nsetp.lt.u32 %p0, %r3, 4;", 1),
        ("and.pred", "sub.u32 %r3, %r0, 10;\nsetp.lt.u32 %p0, %r3, 4;", 0),
        ("popc.u32", "sub.u32 %r3, %r0, 10;\nsetp.lt.u32 %p0, %r3, 4;", 4),
        ("or.pred", "setp.lt.u32 %p0, %r0, 0;", 0),
        ("and.pred", "setp.lt.u32 %p0, %r0, 200;", 1),
        ("popc.u32", "setp.lt.u32 %p0, %r0, 77;", 77),
    ],
)
@pytest.mark.parametrize("word", ["bar.red", "barrier.cta.red"])
def test_votes(engine, word, operation, condition, expected):
    target = "%r9" if operation == "popc.u32" else "%p1"
    after = "" if operation == "popc.u32" else "selp.u32 %r9, 1, 0, %p1;"
    assert run(engine, f"{condition}\n{word}.{operation} {target}, 0, %p0;\n{after}", 96) == [expected] * 96


def test_negated_votes_of_some_warps(engine):
    """Warps 0 and 1 vote at barrier 2: of threads 0 to 63 those from 40 on do not hold the predicate."""
    body = (
        "setp.lt.u32 %p0, %r0, 40;\nsetp.gt.u32 %p2, %r1, 1;\n@%p2 bra DONE;\nbar.red.popc.u32 %r9, 2, 64, !%p0;\nDONE:"
    )
    assert run(engine, body, 96) == [24] * 64 + [0] * 32


def test_votes_orders_memory_like_a_barrier(engine):
    body = (
        "st.shared.u32 [%r2], %r0;\nsetp.eq.u32 %p0, %r0, %r0;\nbar.red.popc.u32 %r4, 0, %p0;\nsub.u32 %r3, 252, %r2;\n"
        "ld.shared.u32 %r9, [%r3];\nadd.u32 %r9, %r9, %r4;"
    )
    assert run(engine, body, 64) == [63 - t + 64 for t in range(64)]


def test_votes_in_a_loop(engine):
    """Thread t drops out of the count in round t: 64 + 63 + ... + 61 over four rounds."""
    body = (
        "mov.u32 %r4, 0;\nLOOP:\nsetp.ge.u32 %p0, %r0, %r4;\nbar.red.popc.u32 %r5, 0, %p0;\nadd.u32 %r9, %r9, %r5;\n"
        "add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, 4;\n@%p1 bra LOOP;"
    )
    assert run(engine, body, 64) == [64 + 63 + 62 + 61] * 64


def test_too_few_arrivals_are_a_deadlock(engine):
    body = "setp.eq.u32 %p0, %r1, 1;\n@%p0 bra WAIT;\nbar.arrive 1, 96;\nbra DONE;\nWAIT:\nbar.sync 1, 96;\nDONE:"
    with pytest.raises(KernelFault, match=r"warp 1 waits at barrier 1.*64 of 96 threads arrived"):
        run(engine, body, 64)


def test_nanosleep_changes_nothing(engine):
    assert run(engine, "nanosleep.u32 100;\nmov.u32 %r9, 3;", 32) == [3] * 32
