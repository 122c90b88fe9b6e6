"""match, redux, stmatrix, movmatrix: data between lanes."""

import numpy as np
import pytest

from fa_bench.ptx.counters import SharedCounters
from fa_bench.ptx.memory import Memory

LANE = range(32)


def test_match_any_names_the_lanes_with_the_same_value(engine):
    """Value lane mod 3: lane l finds the lanes l mod 3, l mod 3 + 3, ..."""
    inputs = {"a": (32, [lane % 3 for lane in LANE])}
    found = engine.evaluate("match.any.sync.b32 %d, %a, -1;", inputs, {"d": 32})["d"]
    assert found == [sum(1 << k for k in LANE if k % 3 == lane % 3) for lane in LANE]


def test_match_any_of_64_bits_in_two_groups(engine):
    """Only the upper half of the value differs; each half of the warp is a group of its own."""
    inputs = {
        "a": (64, [(lane % 2) << 40 for lane in LANE]),
        "m": (32, [0xFFFF if lane < 16 else 0xFFFF0000 for lane in LANE]),
    }
    found = engine.evaluate("match.any.sync.b64 %d, %a, %m;", inputs, {"d": 32})["d"]
    even = 0x5555
    assert found == [(even << lane % 2) << (16 if lane >= 16 else 0) for lane in LANE]


@pytest.mark.parametrize("odd_one, expected", [(None, 0xFFFFFFFF), (17, 0)])
def test_match_all(engine, odd_one, expected):
    """The member mask and true if all agree, else 0 and false."""
    inputs = {"a": (32, [int(lane == odd_one) for lane in LANE])}
    found = engine.evaluate("match.all.sync.b32 %d|%p, %a, -1;", inputs, {"d": 32, "p": 1})
    assert found == {"d": [expected] * 32, "p": [int(expected != 0)] * 32}


@pytest.mark.parametrize(
    "operation, values, expected",
    [
        ("add.u32", list(LANE), 496),
        ("add.s32", [-lane for lane in LANE], 2**32 - 496),
        ("add.u32", [0xFFFFFFFF] * 32, 2**32 - 32),
        ("min.u32", [5, 0xFFFFFFFF, *[7] * 30], 5),
        ("min.s32", [5, 0xFFFFFFFF, *[7] * 30], 0xFFFFFFFF),
        ("max.u32", [5, 0xFFFFFFFF, *[7] * 30], 0xFFFFFFFF),
        ("max.s32", [5, 0xFFFFFFFF, *[7] * 30], 7),
        ("and.b32", [0xFF ^ 1 << lane % 8 for lane in LANE], 0),
        ("and.b32", [0x700 | lane for lane in LANE], 0x700),
        ("or.b32", [1 << lane for lane in LANE], 0xFFFFFFFF),
        # An even number of each bit, but for bit 8 in lane 3.
        ("xor.b32", [0x55 | (lane == 3) << 8 for lane in LANE], 0x100),
    ],
)
def test_redux(engine, operation, values, expected):
    inputs = {"a": (32, values)}
    assert engine.evaluate(f"redux.sync.{operation} %d, %a, -1;", inputs, {"d": 32})["d"] == [expected] * 32


def test_redux_in_groups(engine):
    """Even and odd lanes: 0 + 2 + ... + 30 = 240, 1 + 3 + ... + 31 = 256."""
    inputs = {"a": (32, list(LANE)), "m": (32, [0x55555555 << lane % 2 for lane in LANE])}
    found = engine.evaluate("redux.sync.add.u32 %d, %a, %m;", inputs, {"d": 32})["d"]
    assert found == [256 if lane % 2 else 240 for lane in LANE]


def test_redux_of_the_lanes_that_take_a_branch(engine):
    """The lanes below 10 sum 45 under their mask; the others never get there."""
    body = "mov.u32 %d, 0;\nsetp.ge.u32 %p0, %lane, 10;\n@%p0 bra DONE;\nredux.sync.add.u32 %d, %lane, 0x3FF;\nDONE:"
    assert engine.evaluate(body, {}, {"d": 32})["d"] == [45] * 10 + [0] * 22


def test_movmatrix_transposes(engine):
    """Lane t holds elements (t div 4, 2 (t mod 4)) and the next one; element (r, c) is 16 r + c."""
    inputs = {"a": (32, [(16 * (t // 4) + 2 * (t % 4) + 1) << 16 | 16 * (t // 4) + 2 * (t % 4) for t in LANE])}
    found = engine.evaluate("movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;", inputs, {"d": 32})["d"]
    assert found == [(16 * (2 * (t % 4) + 1) + t // 4) << 16 | 16 * (2 * (t % 4)) + t // 4 for t in LANE]


@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("generic", [False, True])
def test_stmatrix(engine, matrices, trans, generic):
    """Element (r, c) of matrix m is 64 m + 8 r + c; its row lies where lane 8 m + r points to, at 16 (31 - lane)."""
    memory = Memory()
    out = memory.allocate("out", 512).view(np.uint16)
    values = [f"%r{8 + m}" for m in range(matrices)]
    fill = ""
    for m, value in enumerate(values):
        # Lane t: row t div 4, columns 2 (t mod 4) and the next, or the other way round.
        rows, columns = ("%r2", "%r3") if trans else ("%r3", "%r2")
        step = 8 if trans else 1
        fill += (
            f"mad.lo.u32 %r4, {rows}, 8, {columns};\nadd.u32 %r4, %r4, {64 * m};\nadd.u32 %r5, %r4, {step};\n"
            f"shl.b32 %r5, %r5, 16;\nor.b32 {value}, %r5, %r4;\n"
        )
    where = "cvt.u64.u32 %rd1, %r1;\ncvta.shared.u64 %rd1, %rd1;\n" if generic else ""
    spelled = f"stmatrix.sync.aligned.m8n8.x{matrices}{'.trans' if trans else ''}{'' if generic else '.shared'}.b16"
    body = (
        "mov.u32 %r0, %tid.x;\nsub.u32 %r1, 31, %r0;\nshl.b32 %r1, %r1, 4;\nand.b32 %r2, %r0, 3;\n"
        "shl.b32 %r2, %r2, 1;\n"
        f"shr.u32 %r3, %r0, 2;\n{fill}{where}{spelled} [{'%rd1' if generic else '%r1'}], {{{', '.join(values)}}};\n"
        "bar.sync 0;\nshl.b32 %r4, %r0, 4;\nld.shared.v4.b32 {%r8, %r9, %r10, %r11}, [%r4];\n"
        "ld.param.u64 %rd0, [out];\n"
        "mad.wide.u32 %rd0, %r0, 16, %rd0;\nst.global.v4.b32 [%rd0], {%r8, %r9, %r10, %r11};"
    )
    counters = engine.launch(
        engine.wrap(body, ".param .u64 out"), memory=memory, args=[np.uint64(memory.address("out"))], smem_bytes=512
    )
    rows = out.reshape(32, 8)
    for lane in range(8 * matrices):
        assert rows[31 - lane].tolist() == list(range(8 * lane, 8 * lane + 8))
    assert (rows[: 32 - 8 * matrices] == 0xFFFF).all()
    # One request of as many phases as matrices, and the load's four.
    assert counters.shared == SharedCounters(2, matrices + 4, 0)
