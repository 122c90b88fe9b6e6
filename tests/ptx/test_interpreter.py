"""What only the interpreter does: it refuses undefined behaviour that the JIT may let pass, and warps take turns."""

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.interpreter.float32 import fused_multiply_add
from fa_bench.ptx.memory import Memory

pytestmark = pytest.mark.parametrize("engine", ["interpreter"], indirect=True)


@pytest.mark.parametrize(
    "body, message",
    [
        (
            "shfl.sync.idx.b32 %r1, %r0, 0, 31, 0xfffffffe;",
            r"lane 0\): its member mask 0xfffffffe does not name the lane",
        ),
        ("match.any.sync.b32 %r1, %r0, 1;", "does not name the lane itself"),
        ("redux.sync.add.u32 %r1, %r0, 1;", "does not name the lane itself"),
        (
            "setp.lt.u32 %p0, %r0, 8;\n@%p0 shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;",
            "names a lane that does not execute it",
        ),
        (
            "setp.eq.u32 %p0, %r0, 0;\nselp.b32 %r2, 3, -1, %p0;\nvote.sync.any.pred %p1, %p0, %r2;",
            "differs from that of",
        ),
        (
            "setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nbar.warp.sync -1;\nbra B;\nA:\nbar.warp.sync -1;\nB:",
            "wait for each other",
        ),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [0];", None),
        (
            "setp.lt.u32 %p0, %r0, 8;\n@%p0 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [0];",
            "all 32 lanes.*but 8 do",
        ),
        ("mov.u32 %r1, 17;\ncp.async.cg.shared.global [0], [%rd0], 16, %r1;", "source size 17 is more than"),
        ("cp.async.ca.shared.global [0], [%rd0], 12;", "4, 8 or 16 bytes, not 12"),
        ("cp.async.wait_group %r0;", "integer constant"),
        ("bar.sync 16;", "numbered 0 to 15"),
        ("bar.sync 0, 48;", "multiple of 32, not 48"),
        ("bar.sync %r0;", r"operand 1 differs between lanes"),
    ],
)
def test_undefined_behaviour_is_a_fault(engine, body, message):
    memory = Memory()
    memory.allocate("X", 64)
    text = engine.wrap(f"mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [x];\n{body}", ".param .u64 x")
    arguments = {"memory": memory, "args": [np.uint64(memory.address("X"))], "smem_bytes": 64}
    if message is None:
        assert engine.launch(text, **arguments).ctas == 1
    else:
        with pytest.raises(KernelFault, match=message):
            engine.launch(text, **arguments)


@pytest.mark.parametrize(
    "instruction",
    [
        "bar.sync 0",
        "shfl.sync.idx.b32 %r1, %r0, 0, 31, 0",
        "vote.sync.ballot.b32 %r1, %p1, 0",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [3]",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r1, %r1, %r1}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
        "{%r1, %r1, %r1, %r1}",
        "trap",
        "cp.async.ca.shared.global [1], [1], 4",
    ],
)
def test_a_guard_that_is_false_everywhere_skips_warp_wide_instructions(engine, instruction):
    memory = Memory()
    out = memory.allocate("out", 4).view(np.uint32)
    body = (
        "mov.u32 %r0, %tid.x;\nmov.u32 %r1, 77;\nsetp.gt.u32 %p0, %r0, 99;\nmov.pred %p1, 1;\n"
        f"@%p0 {instruction};\nld.param.u64 %rd0, [out];\nst.global.u32 [%rd0], %r1;"
    )
    engine.launch(engine.wrap(body, ".param .u64 out"), memory=memory, args=[np.uint64(memory.address("out"))])
    assert out[0] == 77


def test_warps_that_disagree_about_a_barrier(engine):
    body = "mov.u32 %r0, %tid.x;\nand.b32 %r1, %r0, 32;\nadd.u32 %r1, %r1, 32;\nbar.sync 1, %r1;\nbar.sync 1, 96;"
    with pytest.raises(KernelFault, match="give barrier 1 different counts"):
        engine.launch(engine.wrap(body), memory=Memory(), block=(96, 1, 1))


def test_a_spinning_warp_does_not_starve_the_one_it_waits_for(engine):
    """Warp 0 spins on a word of shared memory until warp 1 has counted to 1000 and stores it."""
    memory = Memory()
    out = memory.allocate("out", 4).view(np.uint32)
    body = (
        "mov.u32 %r0, %tid.x;\nsetp.ge.u32 %p0, %r0, 32;\n@%p0 bra OTHER;\nSPIN:\nld.volatile.shared.u32 %r1, [0];\n"
        "setp.ne.u32 %p1, %r1, 1000;\n@%p1 bra SPIN;\nld.param.u64 %rd0, [out];\nst.global.u32 [%rd0], %r1;\nbra END;\n"
        "OTHER:\nmov.u32 %r2, 0;\nCOUNT:\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, 1000;\n@%p2 bra COUNT;\n"
        "st.volatile.shared.u32 [0], %r2;\nEND:"
    ).replace(".volatile.shared", ".shared.volatile")
    text = engine.wrap(body, ".param .u64 out")
    engine.launch(text, memory=memory, args=[np.uint64(memory.address("out"))], block=(64, 1, 1), smem_bytes=4)
    assert out[0] == 1000


def test_fused_multiply_add_against_exact_arithmetic(engine):
    """Against Python's integers: every float32 is m * 2^e, so the exact result is one too; numpy rounds it once.

    Exponents are drawn close together, so that most sums round, many of them near ties.
    """
    random = np.random.default_rng(3)
    signs = random.choice([-1, 1], (3, 20000))
    mantissas = random.integers(1 << 23, 1 << 24, (3, 20000)) * signs
    # Few significant bits in c and a power of two for some of the factors: ties and near ties.
    mantissas[2] &= -(1 << 12)
    exponents = random.integers(-12, 13, (3, 20000))
    a, b, c = (np.ldexp(m, e).astype(np.float32) for m, e in zip(mantissas, exponents, strict=True))
    found = fused_multiply_add(a, b, c)
    for k in range(20000):
        (ma, mb, mc), (ea, eb, ec) = (x[:, k].tolist() for x in (mantissas, exponents))
        low = min(ea + eb, ec)
        exact = (ma * mb << ea + eb - low) + (mc << ec - low)
        assert float(found[k]) == nearest_float32(exact, low)


def nearest_float32(mantissa: int, exponent: int) -> float:
    """``mantissa * 2^exponent`` rounded to 24 bits, ties to even, on integers alone."""
    excess = max(abs(mantissa).bit_length() - 24, 0)
    quotient, rest = divmod(abs(mantissa), 1 << excess)
    half = (1 << excess) // 2
    quotient += excess > 0 and (rest > half or (rest == half and quotient & 1 == 1))
    return float(np.ldexp(float(quotient), exponent + excess)) * (-1 if mantissa < 0 else 1)
