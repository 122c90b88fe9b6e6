"""What is illegal ends in a message that names instruction, line, lane, address and the nearest buffer."""

import re

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.memory import Memory


def fault(engine, body: str, block: int = 32, smem_bytes: int = 0, **limits: int) -> str:
    """The message of the fault that ``body`` makes: %rd0 is the address of X (256 bytes), %r0 the lane."""
    memory = Memory()
    memory.allocate("X", 256)
    memory.allocate("Y", 64)
    text = engine.wrap(f"mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [x];\n{body}", ".param .u64 x")
    with pytest.raises(KernelFault) as caught:
        engine.launch(
            text,
            memory=memory,
            args=[np.uint64(memory.address("X"))],
            block=(block, 1, 1),
            smem_bytes=smem_bytes,
            **limits,
        )
    address = memory.address("X")
    return str(caught.value).replace(f"{address:#x}", "START").replace(f"{address + 256:#x}", "END")


def assert_names(message: str, *parts: str) -> None:
    for part in parts:
        assert re.search(part, message), f"{part!r} not in {message!r}"


def test_read_past_the_end(engine):
    """Lane l reads at 8 l + 8: lane 31 is the first one outside the 256 bytes."""
    message = fault(engine, "mad.wide.u32 %rd1, %r0, 8, %rd0;\nld.global.u32 %r1, [%rd1+8];")
    assert_names(message, r"'ld\.global\.u32 %r1, \[%rd1\+8\]'", "PTX line 13", "lane 31", "END", "outside", r"\bX\b")
    assert_names(message, r"CTA \(0, 0, 0\)", "warp 0", "4 bytes", "nearest")


def test_write_before_the_start(engine):
    message = fault(engine, "sub.u64 %rd1, %rd0, 4;\nst.global.u32 [%rd1], %r0;")
    assert_names(message, r"'st\.global\.u32", "PTX line 13", "lane 0", "outside every buffer", r"nearest.*\bX\b")


def test_access_across_the_end(engine):
    """16 bytes from byte 248 on: eight too many."""
    message = fault(engine, "ld.global.b64 %rd1, [%rd0+248];\nadd.u64 %rd0, %rd0, 4;\nst.global.b64 [%rd0+252], %rd1;")
    assert_names(message, r"'st\.global\.b64", "END", r"\bX\b")
    message = fault(
        engine, "mov.u32 %r1, 16;\nmad.wide.u32 %rd0, %r0, %r1, %rd0;\nld.global.v2.b32 {%r1, %r2}, [%rd0];"
    )
    assert_names(message, "lane 16", "END")


def test_null_pointer(engine):
    message = fault(engine, "mov.u64 %rd1, 0;\nld.global.u32 %r1, [%rd1+16];")
    assert_names(message, "0x10", "outside every buffer", "nearest")


def test_misaligned_global_access(engine):
    message = fault(engine, "mad.wide.u32 %rd1, %r0, 2, %rd0;\nld.global.u32 %r1, [%rd1];")
    assert_names(message, "lane 1", r"aligned|multiple of 4", r"PTX line 13")


def test_vectors_are_aligned_as_a_whole(engine):
    message = fault(engine, "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];")
    assert_names(message, "lane 0", r"aligned|multiple of 16")


def test_lanes_whose_guard_is_false_make_no_fault(engine):
    """Only lane 7 accesses, and it is the one to blame."""
    message = fault(engine, "setp.eq.u32 %p0, %r0, 7;\nmov.u64 %rd1, 64;\n@%p0 ld.global.u32 %r1, [%rd1];")
    assert_names(message, "lane 7", "0x40")


def test_outside_shared_memory(engine):
    """Lane l stores at 4 l: lane 16 is the first one outside 64 bytes."""
    message = fault(engine, "shl.b32 %r1, %r0, 2;\nst.shared.u32 [%r1], %r0;", smem_bytes=64)
    assert_names(message, r"'st\.shared\.u32", "lane 16", "64", "shared memory", "PTX line 13")


def test_negative_shared_offset(engine):
    message = fault(engine, "mov.u32 %r1, 0;\nst.shared.u32 [%r1+-4], %r0;", smem_bytes=64)
    assert_names(message, r"'st\.shared\.u32", "lane 0", "shared memory")


def test_misaligned_shared_access(engine):
    message = fault(engine, "shl.b32 %r1, %r0, 2;\nld.shared.b64 %rd1, [%r1];", smem_bytes=512)
    assert_names(message, "lane 1", r"aligned|multiple of 8")


def test_ldmatrix_row_outside_or_misaligned(engine):
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];"
    message = fault(engine, f"shl.b32 %r1, %r0, 4;\n{load}", smem_bytes=64)
    assert_names(message, "ldmatrix", "lane 4", "shared memory")
    message = fault(engine, f"shl.b32 %r1, %r0, 3;\n{load}", smem_bytes=512)
    assert_names(message, "ldmatrix", "lane 1", r"aligned|multiple of 16")


@pytest.mark.parametrize(
    "body, parts",
    [
        ("cp.async.cg.shared.global [0], [%rd0+256], 16;", ["END", r"\bX\b", "cp.async"]),
        ("cp.async.ca.shared.global [0], [%rd0+2], 4;", ["lane 0", r"aligned|multiple of 4"]),
        ("cp.async.cg.shared.global [64], [%rd0], 16;", ["lane 0", "shared memory"]),
        ("cp.async.ca.shared.global [4], [%rd0], 8;", ["lane 0", r"aligned|multiple of 8"]),
    ],
)
def test_copies_are_checked_when_they_start(engine, body, parts):
    assert_names(fault(engine, body, smem_bytes=64), *parts)


def test_the_right_warp_and_block_are_blamed(engine):
    """Of three warps only thread 70, lane 6 of warp 2, is illegal; of two blocks the second."""
    memory = Memory()
    body = (
        "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.y;\nsetp.eq.u32 %p0, %r0, 70;\nsetp.eq.and.u32 %p0, %r1, 1, %p0;\n"
        "mov.u64 %rd0, 128;\n@%p0 ld.global.u32 %r2, [%rd0];"
    )
    with pytest.raises(KernelFault, match=r"CTA \(0, 1, 0\), warp 2, lane 6.*no buffer|lane 6.*no buffer"):
        engine.launch(engine.wrap(body), memory=memory, grid=(1, 2, 1), block=(96, 1, 1))


def test_trap(engine):
    message = fault(engine, "setp.eq.u32 %p0, %r0, 3;\n@%p0 trap;")
    assert_names(message, "trap", "PTX line 13")


def test_a_trap_that_no_lane_takes(engine):
    body = "mov.u32 %r0, %tid.x;\nsetp.gt.u32 %p0, %r0, 99;\n@%p0 trap;"
    assert engine.launch(engine.wrap(body), memory=Memory()).ctas == 1


def test_endless_loop_runs_out_of_its_budget(engine):
    message = fault(engine, "LOOP:\nadd.u32 %r1, %r1, 1;\nbra LOOP;", budget=1000)
    assert_names(message, "budget", "CTA")


def test_endless_loop_around_a_barrier_runs_out_of_its_budget(engine):
    """Each turn is one backward jump; the barrier must not renew what the CTA may still take."""
    message = fault(engine, "LOOP:\nadd.u32 %r1, %r1, 1;\nbar.sync 0;\nbra LOOP;", budget=1000)
    assert_names(message, "budget", "CTA")


def test_waiting_for_another_warp_runs_out_of_its_budget(engine):
    """Warp 0 spins until somebody stores a 1, and nobody does."""
    body = "LOOP:\nld.shared.u32 %r1, [0];\nsetp.ne.u32 %p0, %r1, 1;\n@%p0 bra LOOP;"
    assert_names(fault(engine, body, smem_bytes=4, budget=1000), "budget")


@pytest.mark.parametrize(
    "args, block",
    [
        ([], (32, 1, 1)),
        ([np.uint32(1)], (32, 1, 1)),
        ([np.uint64(1), np.uint64(2)], (32, 1, 1)),
        ([np.uint64(1)], (1025, 1, 1)),
    ],
)
def test_malformed_launches(engine, args, block):
    with pytest.raises(ValueError):
        engine.launch(engine.wrap("mov.u32 %r0, 0;", ".param .u64 x"), memory=Memory(), args=args, block=block)


def test_blocks_outside_the_grid(engine):
    with pytest.raises(ValueError, match="CTA 4"):
        engine.launch(engine.wrap("mov.u32 %r0, 0;"), memory=Memory(), grid=(2, 2, 1), ctas=[0, 4])
