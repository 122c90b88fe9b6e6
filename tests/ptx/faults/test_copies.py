"""Asynchronous copies: their data are there when their warp has waited, and for others behind a barrier."""

import pytest

COPY = "shl.b32 %r5, %r0, 4;\nmad.wide.u32 %rd9, %r0, 16, %rd0;\ncp.async.cg.shared.global [%r5], [%rd9], 16;\n"
COMMIT = "cp.async.commit_group;\n"
WAIT = "cp.async.wait_group 0;\n"
#: The first word that the same lane of the other warp copied.
OTHER = "xor.b32 %r6, %r5, 512;\nld.shared.u32 %r9, [%r6];"
OWN = "ld.shared.u32 %r9, [%r5];"

IN_FLIGHT = "is in flight"
RACE = "no barrier orders the two"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (COPY + COMMIT + "+ cp.async.wait_group 0;\n" + OWN, [IN_FLIGHT, "warp 0, lane 0: 'ld", "shared offset 0"]),
        (COPY + COMMIT + "+ cp.async.wait_all;\n" + OWN, [IN_FLIGHT, "'cp.async.* of warp 0, lane 0"]),
        # A copy that was not committed is in no group that a wait could cover.
        (COPY + "+ cp.async.commit_group;\n" + WAIT + OWN, [IN_FLIGHT]),
        # One group too many may be pending.
        (COPY + COMMIT + "- cp.async.wait_group 1;\n+ cp.async.wait_group 0;\n" + OWN, [IN_FLIGHT]),
        # Two groups: after a wait for all but one the second one is in flight.
        (
            COPY + COMMIT + "cp.async.cg.shared.global [%r5+2048], [%rd9], 16;\n" + COMMIT + "cp.async.wait_group 1;\n"
            "- ld.shared.u32 %r9, [%r5+2048];\n+ ld.shared.u32 %r9, [%r5];",
            [IN_FLIGHT, "shared offset 2048"],
        ),
        # The wait is the issuing warp's; others need a barrier behind it.
        (COPY + COMMIT + WAIT + "+ bar.sync 0;\n" + OTHER, [RACE, "'cp.async", "'ld.shared"]),
        (COPY + COMMIT + "- bar.sync 0;\n" + WAIT + "+ bar.sync 0;\n" + OTHER, [IN_FLIGHT, "of warp 1, lane 0"]),
        # Stored into while the copy may still arrive.
        (COPY + COMMIT + "+ cp.async.wait_group 0;\nst.shared.u32 [%r5+4], %r0;", [IN_FLIGHT, "writes 4 bytes"]),
        # Copied to twice.
        (
            COPY + COMMIT + "+ cp.async.wait_group 0;\ncp.async.cg.shared.global [%r5], [%rd9], 16;",
            [IN_FLIGHT, "copies"],
        ),
        # The next tile is copied over data that the other warp may still read.
        (
            COPY + COMMIT + WAIT + "bar.sync 0;\n" + OTHER + "\n+ bar.sync 0;\n"
            "cp.async.cg.shared.global [%r5], [%rd9], 16;",
            [RACE, "'ld.shared.* of warp|warp 1, lane 0: 'ld.shared"],
        ),
    ],
    ids=[
        *("no wait", "no wait for all", "no commit", "one group too many", "second group"),
        *("no barrier", "barrier before the wait", "stored into", "copied to twice", "copied over what is read"),
    ],
)
def test_waits(pair, body, parts):
    pair(body, *parts)


@pytest.mark.parametrize(
    "copy",
    [
        "cp.async.ca.shared.global [%r5], [%rd9], 4;",
        "cp.async.ca.shared.global [%r5], [%rd9], 8;",
        # Fewer bytes are read than written; the rest is zero, when the copy is done.
        "cp.async.cg.shared.global [%r5], [%rd9], 16, 4;",
        "cp.async.cg.shared.global [%r5], [%rd9], 16, 0;",
        # A guarded copy, of a ragged tile.
        "@%p1 cp.async.cg.shared.global [%r5], [%rd9], 16;",
    ],
)
@pytest.mark.parametrize("block", [64, 40])
def test_sizes(pair, copy, block):
    """Lanes 4 to 7 of each warp read what they copied."""
    body = (
        "shl.b32 %r5, %r0, 4;\nmad.wide.u32 %rd9, %r0, 16, %rd0;\nsetp.lt.u32 %p1, %r4, 8;\nshr.u32 %r6, %r4, 2;\n"
        f"setp.eq.u32 %p2, %r6, 1;\n{copy}\n{COMMIT}+ {WAIT}@%p2 {OWN}"
    )
    pair(body, IN_FLIGHT, "warp 0, lane 4: '@%p2 ld", "shared offset 64", block=block)


def test_ldmatrix_of_a_tile_in_flight(pair):
    """The usual pipeline of one stage: copy, wait, barrier, ldmatrix of rows that the other warp copied."""
    body = (
        COPY + COMMIT + "+ cp.async.wait_group 0;\nbar.sync 0;\nxor.b32 %r6, %r5, 512;\n"
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r9, %r10, %r11, %r12}, [%r6];"
    )
    pair(body, IN_FLIGHT, "ldmatrix", "of warp 1, lane 0", "16 bytes")


def test_two_stages(pair):
    """Four tiles through two buffers; without the barrier at the end a buffer is refilled while it may be read."""
    body = (
        COPY + COMMIT + "mov.u32 %r7, 0;\nmov.u32 %r10, %r5;\nLOOP:\nxor.b32 %r11, %r10, 4096;\n"
        "cp.async.cg.shared.global [%r11], [%rd9], 16;\n" + COMMIT + "cp.async.wait_group 1;\nbar.sync 0;\n"
        "xor.b32 %r6, %r10, 512;\nld.shared.u32 %r9, [%r6];\n+ bar.sync 0;\nmov.u32 %r10, %r11;\n"
        "add.u32 %r7, %r7, 1;\nsetp.lt.u32 %p0, %r7, 4;\n@%p0 bra LOOP;"
    )
    pair(body, RACE, "'cp.async", "'ld.shared")


@pytest.mark.parametrize("arrive", ["cp.async.mbarrier.arrive.noinc.shared.b64 [8192]", "cp.async.wait_all"])
def test_copies_that_an_mbarrier_follows(pair, arrive):
    """Warp 0 copies, and the arrival behind its copies tells warp 1, which waits. An arrival that does not follow the
    copies says nothing of them, unless the warp has waited for them."""
    copies = "shl.b32 %r5, %r0, 4;\nmad.wide.u32 %rd9, %r0, 16, %rd0;\ncp.async.cg.shared.global [%r5], [%rd9], 16;\n"
    plain = "mbarrier.arrive.shared.b64 %rd10, [8192];\n"
    signal = f"+ {arrive};\n- {plain}" if "mbarrier" in arrive else f"+ {arrive};\n{plain}"
    body = (
        "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r7, 32;\n@%p1 mbarrier.init.shared.b64 [8192], %r7;\nbar.sync 0;\n"
        f"setp.eq.u32 %p0, %r1, 1;\n@%p0 bra SECOND;\n{copies}{signal}bra END;\nSECOND:\nmov.u32 %r7, 0;\nWAIT:\n"
        "mbarrier.test_wait.parity.shared.b64 %p2, [8192], %r7;\n@!%p2 bra WAIT;\nshl.b32 %r5, %r4, 4;\n"
        "ld.shared.u32 %r9, [%r5];\nEND:"
    )
    pair(body, IN_FLIGHT, "warp 1, lane 0: 'ld", "of warp 0, lane 0", smem_bytes=8200)


def test_a_second_arrival_orders_nothing_that_was_copied_later(pair):
    """Copies issued behind the arrival are not part of it."""
    body = (
        "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r7, 32;\n@%p1 mbarrier.init.shared.b64 [8192], %r7;\nbar.sync 0;\n"
        "setp.eq.u32 %p0, %r1, 1;\n@%p0 bra SECOND;\n" + COPY + "cp.async.mbarrier.arrive.noinc.shared.b64 [8192];\n"
        "- cp.async.cg.shared.global [%r5+1024], [%rd9], 16;\nbra END;\nSECOND:\nst.shared.u32 [%r2+1024], %r0;\n"
        "mov.u32 %r7, 0;\nWAIT:\nmbarrier.test_wait.parity.shared.b64 %p2, [8192], %r7;\n@!%p2 bra WAIT;\n"
        "ld.shared.u32 %r9, [%r2+1024];\nEND:"
    )
    pair(body, RACE, "cp.async.*1024", smem_bytes=8200)
