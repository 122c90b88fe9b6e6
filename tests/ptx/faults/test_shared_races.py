"""Races in shared memory: two warps, one of them writes, and nothing orders the two."""

import pytest

RACE = "no barrier orders the two"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        # Each warp reads what the other one wrote; the second warp's write comes too late for the first one's read.
        (
            "st.shared.u32 [%r2], %r0;\n+ bar.sync 0;\nld.shared.u32 %r9, [%r3];",
            ["warp 1, lane 0: 'st.shared.u32", "4 bytes at shared offset 128", "'ld.shared.u32.* of warp 0, lane 0"],
        ),
        # Only warp 1 writes, then warp 0 reads: found although the emulator runs warp 0 first.
        (
            "setp.eq.u32 %p0, %r1, 1;\n@%p0 st.shared.u32 [%r2], %r0;\n+ bar.sync 0;\n"
            "setp.eq.u32 %p1, %r1, 0;\n@%p1 ld.shared.u32 %r9, [%r3];",
            ["shared offset 128", "warp 1, lane 0", "of warp 0, lane 0"],
        ),
        # Only warp 0 writes, then warp 1 reads: the same in the order in which the emulator runs them.
        (
            "setp.eq.u32 %p0, %r1, 0;\n@%p0 st.shared.u32 [%r2], %r0;\n+ bar.sync 0;\n"
            "setp.eq.u32 %p1, %r1, 1;\n@%p1 ld.shared.u32 %r9, [%r3];",
            ["warp 1, lane 0: '@%p1 ld.shared.u32", "shared offset 0", "of warp 0, lane 0 writes"],
        ),
        # Both warps write the same word, each another value.
        (
            "mov.u32 %r5, 64;\n+ shl.b32 %r5, %r1, 2;\nsetp.eq.u32 %p0, %r4, 7;\n@%p0 st.shared.u32 [%r5], %r1;",
            ["warp 1, lane 7", "shared offset 64", "of warp 0, lane 7 writes"],
        ),
        # Written again while the other warp may still read the first value.
        (
            "st.shared.u32 [%r2], %r0;\nbar.sync 0;\nld.shared.u32 %r9, [%r3];\n+ bar.sync 0;\n"
            "st.shared.u32 [%r2], %r9;",
            ["'ld.shared.u32 %r9", "'st.shared.u32 .%r2., %r9"],
        ),
        # In a loop the barrier at its end is missing: a race between iterations.
        (
            "mov.u32 %r5, 0;\nLOOP:\nst.shared.u32 [%r2], %r5;\nbar.sync 0;\nld.shared.u32 %r9, [%r3];\n+ bar.sync 0;\n"
            "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p0, %r5, 3;\n@%p0 bra LOOP;",
            ["'st.shared.u32", "'ld.shared.u32"],
        ),
        # Every lane of both warps reads one word, which thread 40 writes.
        (
            "setp.eq.u32 %p0, %r0, 40;\n@%p0 st.shared.u32 [12], %r0;\n+ bar.sync 0;\nld.shared.u32 %r9, [12];",
            ["warp 1, lane 8", "shared offset 12", "of warp 0, lane 31 reads"],
        ),
        # The barrier is there, but the second warp goes around it.
        (
            "st.shared.u32 [%r2], %r0;\nsetp.eq.u32 %p0, %r1, 1;\n- @%p0 bra READ;\nbar.sync 0;\nREAD:\n"
            "@%p0 ld.shared.u32 %r9, [%r3];",
            ["warp 1, lane 0: '@%p0 ld", "of warp 0, lane 0 writes"],
        ),
    ],
)
def test_words(pair, body, parts):
    pair(body, RACE, *parts)


#: What one warp writes and the other one reads: bytes to the other warp's place, the store to %r5, the load from %r6.
WIDTHS = {
    "bytes": (32, "st.shared.u8 [%r5], %r0;", "ld.shared.u8 %r9, [%r6];"),
    "halves": (64, "st.shared.u16 [%r5], %r0;", "ld.shared.u16 %r9, [%r6];"),
    "pairs": (256, "st.shared.v2.u32 [%r5], {%r0, %r0};", "ld.shared.v2.u32 {%r9, %r10}, [%r6];"),
    "quads": (512, "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};", "ld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [%r6];"),
    "double words": (256, "st.shared.u64 [%r5], %rd0;", "ld.shared.u64 %rd9, [%r6];"),
    "one byte of a word": (128, "st.shared.u32 [%r5], %r0;", "ld.shared.u8 %r9, [%r6+3];"),
    "a word over bytes": (128, "st.shared.u32 [%r5], %r0;", "ld.shared.v4.u8 {%r9, %r10, %r11, %r12}, [%r6];"),
    "ldmatrix": (
        512,
        "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r9, %r10, %r11, %r12}, [%r6];",
    ),
    "ldmatrix of one matrix": (
        512,
        "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};",
        "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r9}, [%r6];",
    ),
    "stmatrix": (
        512,
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r0, %r0, %r0, %r0};",
        "ld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [%r6];",
    ),
}


@pytest.mark.parametrize(
    # All lanes of a warp take part in a matrix instruction.
    ("name", "block"),
    [(name, block) for name in WIDTHS for block in (64, 40) if block == 64 or "matrix" not in name],
)
def test_widths(pair, name, block):
    """Warp w stores and then loads what the other one stores; of 40 threads the second warp has eight."""
    distance, store, load = WIDTHS[name]
    step = distance // 32
    # Eight lanes of each warp load, so that they read what is there.
    guard = "" if "matrix" in name else "setp.lt.u32 %p0, %r4, 8;\n@%p0 "
    body = f"mul.lo.u32 %r5, %r0, {step};\nxor.b32 %r6, %r5, {distance};\n{store}\n+ bar.sync 0;\n{guard}{load}"
    pair(body, RACE, r"warp 1, lane \d", r"of warp 0, lane \d", block=block)


#: Word 0 is 0 and word 1 is 0; %r10 = 0, %r11 = 1.
ZEROED = (
    "mov.u32 %r10, 0;\nmov.u32 %r11, 1;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.v2.u32 [0], {%r10, %r10};\n"
    "bar.sync 0;\n"
)
KINDS = {
    "generic address": (
        "cvta.shared.u64 %rd8, 0;\ncvt.u64.u32 %rd9, %r2;\nadd.u64 %rd9, %rd9, %rd8;\nst.u32 [%rd9], %r0;\n"
        "+ bar.sync 0;\nld.shared.u32 %r9, [%r3];"
    ),
    "plain read of a counter": ZEROED + "red.shared.add.u32 [0], 1;\n+ bar.sync 0;\nld.shared.u32 %r9, [0];",
    "plain store to a counter": ZEROED + "- st.shared.u32 [0], %r1;\n+ red.shared.add.u32 [0], %r1;",
    # Warp 1 waits for a flag that warp 0 raises behind its data: a volatile one orders them.
    "flag": ZEROED + (
        "setp.eq.u32 %p1, %r1, 1;\n@%p1 bra WAIT;\nst.shared.u32 [%r2+8], %r0;\n- st.shared.u32 [0], %r11;\n"
        "+ st.volatile.shared.u32 [0], %r11;\nbra END;\nWAIT:\nld.volatile.shared.u32 %r9, [0];\n"
        "setp.ne.u32 %p2, %r9, 1;\n@%p2 bra WAIT;\nld.shared.u32 %r9, [%r3+8];\nEND:"
    ),
    # Lane 0 of each warp adds to word 1 while it holds the lock in word 0; a store behind the lock is not protected.
    "lock": ZEROED + (
        "setp.ne.u32 %p1, %r4, 0;\n@%p1 bra END;\nLOCK:\natom.shared.cas.b32 %r9, [0], %r10, %r11;\n"
        "setp.ne.u32 %p2, %r9, 0;\n@%p2 bra LOCK;\nld.shared.u32 %r12, [4];\nadd.u32 %r12, %r12, 1;\n"
        "st.shared.u32 [4], %r12;\natom.shared.exch.b32 %r9, [0], %r10;\n- st.shared.u32 [4], %r12;\nEND:"
    ),
    # 16 x 16 halves that the other warp stored.
    "wmma.load": (
        "shl.b32 %r5, %r0, 4;\nst.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};\n+ bar.sync 0;\nxor.b32 %r6, %r1, 1;\n"
        "shl.b32 %r6, %r6, 9;\nmov.u32 %r7, 16;\n"
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 "
        "{%r16, %r17, %r18, %r19, %r20, %r21, %r22, %r23}, [%r6], %r7;"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_access(pair, name):
    pair(KINDS[name], RACE, "of warp [01]")


@pytest.mark.parametrize(
    "body",
    [
        # A lane reads what its neighbour wrote.
        "st.shared.u32 [%r2], %r0;\n+ bar.warp.sync -1;\nxor.b32 %r5, %r2, 4;\nld.shared.u32 %r9, [%r5];",
        # All lanes read what lane 3 wrote.
        "setp.eq.u32 %p0, %r4, 3;\n@%p0 st.shared.u32 [16], %r0;\n+ bar.warp.sync -1;\nld.shared.u32 %r9, [16];",
        # A lane writes what its neighbour may still read.
        "st.shared.u32 [%r2], %r0;\nbar.warp.sync -1;\nxor.b32 %r5, %r2, 4;\nld.shared.u32 %r9, [%r5];\n"
        "+ bar.warp.sync -1;\nst.shared.u32 [%r2], %r9;",
        # Lane 0 writes what all have read.
        "st.shared.u32 [16], %r1;\nld.shared.u32 %r9, [16];\n+ bar.warp.sync -1;\nsetp.eq.u32 %p0, %r4, 0;\n"
        "@%p0 st.shared.u32 [16], %r0;",
        # A wait for copies is each thread's own.
        "shl.b32 %r5, %r0, 4;\nmad.wide.u32 %rd9, %r0, 16, %rd0;\ncp.async.cg.shared.global [%r5], [%rd9], 16;\n"
        "cp.async.wait_all;\n+ bar.warp.sync -1;\nxor.b32 %r6, %r5, 16;\nld.shared.u32 %r9, [%r6];",
        # A shuffle brings the lanes together, so that what was read is there; a plain move does not.
        "st.shared.u32 [%r2], %r0;\nbar.warp.sync -1;\nld.shared.u32 %r9, [%r2];\n- mov.u32 %r9, %r9;\n"
        "+ shfl.sync.bfly.b32 %r9, %r9, 1, 31, -1;\nxor.b32 %r5, %r2, 4;\nst.shared.u32 [%r5], %r9;",
    ],
    ids=["neighbour", "one writes", "one still reads", "all have read", "copies", "shuffle"],
)
def test_lanes_that_no_warp_barrier_orders(pair, body):
    pair(body, "no bar.warp.sync orders the two lanes", "warp 0, lane [0-9]+.* of warp 0, lane [0-9]+", block=32)


@pytest.mark.parametrize(
    ("body", "block"),
    [
        # One word by all lanes of a warp: each its own number, or all that of the warp.
        ("- st.shared.u32 [8], %r0;\n+ st.shared.u32 [8], %r1;", 32),
        ("- st.shared.u8 [9], %r4;\n+ st.shared.u8 [9], %r1;", 32),
        ("- st.shared.v4.u32 [16], {%r1, %r1, %r1, %r4};\n+ st.shared.v4.u32 [16], {%r1, %r1, %r1, %r1};", 32),
        ("- st.global.u32 [%rd2], %r0;\n+ st.global.u32 [%rd2], %r1;", 32),
        ("- st.u32 [%rd2], %r0;\n+ st.u32 [%rd2], %r1;", 32),
        # Of 20 lanes pairs meet.
        ("- shr.u32 %r5, %r0, 1;\n+ mov.u32 %r5, %r0;\nshl.b32 %r5, %r5, 2;\nst.shared.u32 [%r5], %r0;", 20),
        # Rows of a matrix on top of each other.
        (
            "shl.b32 %r5, %r0, 4;\n- and.b32 %r5, %r5, 15;\nstmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r0};",
            32,
        ),
    ],
)
def test_lanes_that_write_different_values_to_one_place(pair, body, block):
    pair(body, "different values", r"warp 0, lane \d+: '.*its lane \d+", r"shared offset|\(O \+ 0\b", block=block)
