"""Lanes that go different ways: branches, loops, early ends, and where they meet again."""

from __future__ import annotations

import numpy as np
import pytest

from fa_bench.ptx.memory import Memory

LANES = list(range(32))


def test_nested_branches(engine):
    """d = 1 (lane < 8), 2 (8 <= lane < 16, even), 3 (8 <= lane < 16, odd), 4 (else); then + 10 for all."""
    body = (
        "setp.lt.u32 %p0, %a, 16;\n@!%p0 bra HIGH;\nsetp.lt.u32 %p1, %a, 8;\n@%p1 bra LOW;\nand.b32 %r0, %a, 1;\n"
        "setp.eq.u32 %p2, %r0, 0;\n@%p2 bra EVEN;\nmov.u32 %d, 3;\nbra MEET;\nEVEN:\nmov.u32 %d, 2;\nbra MEET;\nLOW:\n"
        "mov.u32 %d, 1;\nMEET:\nbra END;\nHIGH:\nmov.u32 %d, 4;\nEND:\nadd.u32 %d, %d, 10;"
    )
    expected = [11] * 8 + [12, 13] * 4 + [14] * 16
    assert engine.evaluate(body, {"a": (32, LANES)}, {"d": 32})["d"] == expected


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n & 1 else n // 2
        steps += 1
    return steps


def test_loop_with_a_trip_count_per_lane(engine):
    """Collatz steps from 1 to 32: each lane leaves the loop at its own time, with a branch inside."""
    body = (
        "mov.u32 %d, 0;\nLOOP:\nsetp.eq.u32 %p0, %a, 1;\n@%p0 bra END;\nadd.u32 %d, %d, 1;\nand.b32 %r0, %a, 1;\n"
        "setp.eq.u32 %p1, %r0, 0;\n@%p1 bra HALVE;\nmad.lo.u32 %a, %a, 3, 1;\nbra LOOP;\nHALVE:\nshr.u32 %a, %a, 1;\n"
        "bra LOOP;\nEND:\nadd.u32 %d, %d, 0;"
    )
    result = engine.evaluate(body, {"a": (32, [lane + 1 for lane in LANES])}, {"d": 32})["d"]
    assert result == [collatz(lane + 1) for lane in LANES]


def test_nested_loops_with_continue_and_break(engine):
    """for i in range(lane): for j in range(i): if (i + j) % 3 == 0: continue; if j == 5: break; d += j + 1."""
    expected = []
    for lane in LANES:
        total = 0
        for i in range(lane):
            for j in range(i):
                if (i + j) % 3 == 0:
                    continue
                if j == 5:
                    break
                total += j + 1
        expected.append(total)
    body = (
        "mov.u32 %d, 0;\nmov.u32 %r0, 0;\nOUTER:\nsetp.ge.u32 %p0, %r0, %a;\n@%p0 bra END;\nmov.u32 %r1, 0;\nINNER:\n"
        "setp.ge.u32 %p1, %r1, %r0;\n@%p1 bra NEXT_I;\nadd.u32 %r2, %r0, %r1;\nrem.u32 %r2, %r2, 3;\n"
        "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra NEXT_J;\nsetp.eq.u32 %p3, %r1, 5;\n@%p3 bra NEXT_I;\n"
        "add.u32 %d, %d, %r1;\nadd.u32 %d, %d, 1;\nNEXT_J:\nadd.u32 %r1, %r1, 1;\nbra INNER;\nNEXT_I:\n"
        "add.u32 %r0, %r0, 1;\nbra OUTER;\nEND:\nadd.u32 %d, %d, 0;"
    )
    assert engine.evaluate(body, {"a": (32, LANES)}, {"d": 32})["d"] == expected


def test_block_behind_the_meeting_point(engine):
    """A branch to a block at the kernel's end that jumps back: odd lanes take it, all go on together."""
    body = (
        "and.b32 %r0, %a, 1;\nsetp.eq.u32 %p0, %r0, 1;\nmov.u32 %d, 5;\n@%p0 bra COLD;\nBACK:\nadd.u32 %d, %d, 1;\n"
        "bra END;\nCOLD:\nmul.lo.u32 %d, %a, 100;\nbra BACK;\nEND:\nadd.u32 %d, %d, 0;"
    )
    expected = [100 * lane + 1 if lane & 1 else 6 for lane in LANES]
    assert engine.evaluate(body, {"a": (32, LANES)}, {"d": 32})["d"] == expected


def test_both_sides_write_the_same_register_and_a_third_reads_it(engine):
    """Registers keep their values in lanes that were not active, over several branches."""
    body = (
        "mov.u32 %d, 1;\nsetp.lt.u32 %p0, %a, 20;\n@%p0 bra A1;\nmov.u32 %d, 2;\nA1:\nsetp.gt.u32 %p1, %a, 10;\n"
        "@%p1 bra A2;\nadd.u32 %d, %d, 40;\nA2:\nsetp.eq.u32 %p2, %d, 1;\n@%p2 bra A3;\nadd.u32 %d, %d, 100;\nA3:\n"
        "add.u32 %d, %d, 1000;"
    )
    expected = [1141] * 11 + [1001] * 9 + [1102] * 12
    assert engine.evaluate(body, {"a": (32, LANES)}, {"d": 32})["d"] == expected


def store_rows(engine, body: str, block: int = 32) -> np.ndarray:
    """Run ``body`` with the thread in %r0 and the address of its own row of ``out`` (poison before) in %rd0."""
    memory = Memory()
    out = memory.allocate("out", 4 * block).view(np.uint32)
    text = engine.wrap(
        f"mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 4, %rd0;\n{body}", ".param .u64 out"
    )
    engine.launch(text, memory=memory, args=[np.uint64(memory.address("out"))], block=(block, 1, 1))
    return out


POISON = 0xFFFFFFFF


@pytest.mark.parametrize("word", ["ret", "exit"])
def test_early_end_of_some_lanes(engine, word):
    body = f"setp.lt.u32 %p0, %r0, 10;\n@%p0 {word};\nst.global.u32 [%rd0], %r0;"
    assert store_rows(engine, body).tolist() == [POISON] * 10 + LANES[10:]


def test_early_end_inside_a_loop(engine):
    """Lane l runs l + 1 rounds and ends from within; every fourth lane stores before that."""
    body = (
        "mov.u32 %r1, 0;\nand.b32 %r2, %r0, 3;\nsetp.eq.u32 %p1, %r2, 0;\nLOOP:\nadd.u32 %r1, %r1, 1;\n"
        "setp.le.u32 %p0, %r1, %r0;\n@%p0 bra LOOP;\n@!%p1 exit;\nst.global.u32 [%rd0], %r1;\nbra LOOP2;\nLOOP2:"
    )
    assert store_rows(engine, body).tolist() == [lane + 1 if lane % 4 == 0 else POISON for lane in LANES]


def test_all_lanes_end_on_one_side(engine):
    body = "setp.lt.u32 %p0, %r0, 16;\n@%p0 bra STORE;\nexit;\nSTORE:\nst.global.u32 [%rd0], 7;"
    assert store_rows(engine, body).tolist() == [7] * 16 + [POISON] * 16


def test_lanes_beyond_the_block_do_not_exist(engine):
    """40 threads: the second warp has eight lanes; a vote sees only those."""
    body = "setp.ge.u32 %p0, %r0, 0;\nvote.sync.ballot.b32 %r1, %p0, -1;\nst.global.u32 [%rd0], %r1;"
    assert store_rows(engine, body, block=40).tolist() == [0xFFFFFFFF] * 32 + [0xFF] * 8


def test_uniform_branch_per_warp(engine):
    """Warps go different ways as a whole."""
    body = (
        "shr.u32 %r1, %r0, 5;\nsetp.eq.u32 %p0, %r1, 1;\n@%p0 bra SECOND;\nst.global.u32 [%rd0], 1;\nbra END;\n"
        "SECOND:\nst.global.u32 [%rd0], 2;\nEND:"
    )
    assert store_rows(engine, body, block=96).tolist() == [1] * 32 + [2] * 32 + [1] * 32


def test_unconditional_branch_and_fall_through_the_end(engine):
    body = "bra.uni OVER;\nst.global.u32 [%rd0], 1;\nOVER:\nst.global.u32 [%rd0], 2;"
    assert store_rows(engine, body).tolist() == [2] * 32


def test_the_end_of_the_text_ends_the_kernel(engine):
    """Lanes fall off the end, some of them after a jump there; no ret is needed."""
    memory = Memory()
    out = memory.allocate("out", 128).view(np.uint32)
    body = (
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 4, %rd0;\n"
        "setp.lt.u32 %p0, %r0, 4;\n@%p0 bra END;\nst.global.u32 [%rd0], %r0;\nEND:"
    )
    text = engine.wrap(body, ".param .u64 out").replace("ret;\n", "")
    engine.launch(text, memory=memory, args=[np.uint64(memory.address("out"))])
    assert out.tolist() == [POISON] * 4 + LANES[4:]


def test_a_lane_waits_for_a_lock_that_another_one_holds(engine):
    """Lanes spin until they have the lock; its holder stands behind the loop and must get on to give it up."""
    memory = Memory()
    words = memory.allocate("words", 8).view(np.uint32)
    words[:] = 0
    body = (
        "ld.param.u64 %rd0, [words];\nSPIN:\natom.global.cas.b32 %r0, [%rd0], 0, 1;\nsetp.ne.u32 %p0, %r0, 0;\n"
        "@%p0 bra SPIN;\nld.global.u32 %r1, [%rd0+4];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd0+4], %r1;\n"
        "membar.gl;\natom.global.exch.b32 %r2, [%rd0], 0;"
    )
    engine.launch(
        engine.wrap(body, ".param .u64 words"),
        memory=memory,
        args=[np.uint64(memory.address("words"))],
        block=(40, 1, 1),
    )
    assert words.tolist() == [0, 40]
