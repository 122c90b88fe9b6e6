"""Reads of what was never written: shared, local and global memory, byte by byte."""

import pytest

NEVER = "never written"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("+ st.shared.u32 [%r2], %r0;\nld.shared.u32 %r9, [%r2];", ["lane 0", "4 bytes at shared offset 0, the first"]),
        # Only the lower half of each word is written.
        (
            "- st.shared.u16 [%r2], %r0;\n+ st.shared.u32 [%r2], %r0;\nld.shared.u32 %r9, [%r2];",
            ["shared offset 0, byte 2 of which"],
        ),
        # One lane's word is missing.
        (
            "- setp.ne.u32 %p0, %r4, 9;\n+ setp.ne.u32 %p0, %r4, 99;\n@%p0 st.shared.u32 [%r2], %r0;\n"
            "bar.warp.sync -1;\n"
            "ld.shared.u32 %r9, [%r2];",
            ["lane 9: 'ld", "shared offset 36,"],
        ),
        # The last of four words.
        (
            "shl.b32 %r5, %r0, 4;\n- st.shared.v2.u32 [%r5+4], {%r0, %r0};\n+ st.shared.v2.u32 [%r5+8], {%r0, %r0};\n"
            "st.shared.v2.u32 [%r5], {%r0, %r0};\nld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [%r5];",
            None,
        ),
        # Row 7 of the matrix.
        (
            "shl.b32 %r5, %r4, 4;\n- setp.ne.u32 %p0, %r4, 7;\n+ setp.ne.u32 %p0, %r4, 77;\n"
            "@%p0 st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};\n"
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r9, %r10, %r11, %r12}, [%r5];",
            ["lane 7: 'ldmatrix", "16 bytes at shared offset 112"],
        ),
        # All lanes read one word.
        ("+ st.shared.u32 [64], %r8;\nld.shared.u32 %r9, [64];", ["lane 0: 'ld", "shared offset 64"]),
        # By a generic address.
        (
            "cvta.shared.u64 %rd8, 0;\nadd.u64 %rd8, %rd8, 16;\n+ st.shared.u32 [16], %r8;\nld.u32 %r9, [%rd8];",
            ["shared offset 16"],
        ),
        # An atomic operation reads, too.
        ("+ st.shared.u32 [16], %r8;\nred.shared.add.u32 [16], 1;", ["updates 4 bytes at shared offset 16"]),
    ],
)
def test_shared_memory(pair, body, parts):
    if parts is None:
        # Words 2 and 3 are written where words 1 and 2 are: twin by twin the second store differs in its offset.
        body = (
            "shl.b32 %r5, %r0, 4;\nst.shared.v2.u32 [%r5], {%r0, %r0};\n- st.shared.u32 [%r5+8], %r0;\n"
            "+ st.shared.v2.u32 [%r5+8], {%r0, %r0};\nld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [%r5];"
        )
        parts = ["16 bytes at shared offset 0, byte 12 of which"]
    pair(body, NEVER, "warp 0", *parts, block=32)


def test_shared_memory_is_empty_for_each_cta(pair):
    """CTA 0 writes, CTA 1 does not: what it finds is not the other one's."""
    body = (
        "- setp.eq.u32 %p0, %r8, 0;\n+ setp.lt.u32 %p0, %r8, 2;\n@%p0 st.shared.u32 [%r2], %r0;\n"
        "ld.shared.u32 %r9, [%r2];"
    )
    pair(body, NEVER, r"CTA \(1, 0, 0\), warp 0, lane 0", block=32, grid=2)


LOCAL = ".local .align 16 .b8 buf[64];"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("+ st.local.u32 [buf], %r0;\nld.local.u32 %r9, [buf];", ["lane 0", "offset 0 of a thread's local memory"]),
        ("st.local.u32 [buf], %r0;\n- ld.local.u32 %r9, [buf+4];\n+ ld.local.u32 %r9, [buf];", ["offset 4 of"]),
        # Lane 5 skips its store; other lanes' memory is their own.
        (
            "- setp.ne.u32 %p0, %r4, 5;\n+ setp.ne.u32 %p0, %r4, 55;\n@%p0 st.local.u32 [buf], %r0;\n"
            "ld.local.u32 %r9, [buf];",
            ["lane 5"],
        ),
        (
            "st.local.v2.u32 [buf], {%r0, %r0};\n- ld.local.v4.u32 {%r9, %r10, %r11, %r12}, [buf];\n"
            "+ ld.local.v2.u32 {%r9, %r10}, [buf];",
            ["16 bytes", "byte 8 of which"],
        ),
        # By a generic address; warp 1 only.
        (
            "mov.u64 %rd8, buf;\ncvta.local.u64 %rd8, %rd8;\n- setp.eq.u32 %p0, %r1, 0;\n+ setp.lt.u32 %p0, %r1, 2;\n"
            "@%p0 st.u32 [%rd8], %r0;\nld.u32 %r9, [%rd8];",
            ["warp 1, lane 0"],
        ),
    ],
)
def test_local_memory(pair, body, parts):
    pair(body, NEVER, *parts, declarations=LOCAL)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        # A workspace.
        ("+ st.global.u32 [%rd7], %r0;\nld.global.u32 %r9, [%rd7];", ["lane 0", r"\(W \+ 0\), the first"]),
        # An output, read before it is written.
        ("+ st.global.u32 [%rd6], %r0;\nld.global.u32 %r9, [%rd6];", [r"\(O \+ 0\)"]),
        # The last byte.
        (
            "- st.global.u16 [%rd7+2], %r0;\n+ st.global.u32 [%rd7], %r0;\nld.global.u32 %r9, [%rd7];",
            [r"\(W \+ 0\), the first"],
        ),
        # Thread 63 of 64 reads one word too far.
        (
            "st.global.u32 [%rd7], %r0;\nbar.sync 0;\n- ld.global.u32 %r9, [%rd7+4];\n+ ld.global.u32 %r9, [%rd7+0];",
            ["lane 31", r"\(W \+ 256\)"],
        ),
        # The upper half of 32 bytes per lane.
        (
            "mad.wide.u32 %rd9, %r0, 32, %rd3;\nst.global.v4.u32 [%rd9], {%r0, %r0, %r0, %r0};\n"
            "+ st.global.v4.u32 [%rd9+16], {%r0, %r0, %r0, %r0};\n"
            "ld.global.v4.u64 {%rd10, %rd11, %rd12, %rd13}, [%rd9];",
            ["32 bytes", "byte 16 of which"],
        ),
        # All lanes the same word; a generic address; an atomic operation.
        ("+ st.global.u32 [%rd3+8], %r8;\nld.global.u32 %r9, [%rd3+8];", [r"\(W \+ 8\)"]),
        ("+ st.global.u32 [%rd3+8], %r8;\nld.u32 %r9, [%rd3+8];", [r"\(W \+ 8\)"]),
        ("+ st.global.u32 [%rd3+8], %r8;\natom.global.add.u32 %r9, [%rd3+8], 1;", [r"updates 4 bytes at .*\(W \+ 8\)"]),
        # A copy reads its source.
        (
            "mad.wide.u32 %rd9, %r0, 16, %rd3;\nshl.b32 %r5, %r0, 4;\n"
            "+ st.global.v4.u32 [%rd9], {%r0, %r0, %r0, %r0};\n"
            "cp.async.cg.shared.global [%r5], [%rd9], 16;",
            ["'cp.async.* reads 16 bytes", r"\(W \+ 0\)"],
        ),
        # ... as much of it as it says.
        (
            "mad.wide.u32 %rd9, %r0, 16, %rd3;\nshl.b32 %r5, %r0, 4;\nst.global.v2.u32 [%rd9], {%r0, %r0};\n"
            "- cp.async.cg.shared.global [%r5], [%rd9], 16;\n+ cp.async.cg.shared.global [%r5], [%rd9], 16, 8;",
            ["'cp.async", "byte 8 of which"],
        ),
    ],
)
def test_global_memory(pair, body, parts):
    pair(body, NEVER, *parts)
