"""What orders warps and what doesn't: named barriers, arrivals, mbarriers; and barriers that can't be passed."""

import pytest

RACE = r"no bar\S+ orders the two"
BRANCH = "setp.eq.u32 %p0, %r1, 1;\n@%p0 bra SECOND;\n"


@pytest.mark.parametrize(
    ("body", "block"),
    [
        # Two pairs of warps, a barrier each: the partner's data are ordered, the other pair's aren't.
        (
            "shr.u32 %r5, %r1, 1;\nadd.u32 %r5, %r5, 1;\nmov.u32 %r6, 64;\nst.shared.u32 [%r2], %r0;\n"
            "bar.sync %r5, %r6;\n"
            "- xor.b32 %r7, %r2, 256;\n+ xor.b32 %r7, %r2, 128;\nld.shared.u32 %r9, [%r7];",
            128,
        ),
        # A named barrier for all.
        ("st.shared.u32 [%r2], %r0;\n+ barrier.sync.aligned 3, 64;\nld.shared.u32 %r9, [%r3];", 64),
        # The producer arrives and goes on; what it writes afterwards is not ordered.
        (
            BRANCH + "st.shared.u32 [%r2], %r0;\nbar.arrive 1, 64;\n- st.shared.u32 [%r2], %r4;\nbra END;\nSECOND:\n"
            "bar.sync 1, 64;\nld.shared.u32 %r9, [%r3];\nEND:",
            64,
        ),
        # The consumer must wait, not just arrive.
        (
            BRANCH + "st.shared.u32 [%r2], %r0;\nbar.arrive 1, 64;\nbra END;\nSECOND:\n- bar.arrive 1, 64;\n"
            "+ bar.sync 1, 64;\nld.shared.u32 %r9, [%r3];\nEND:",
            64,
        ),
        # A barrier of the wrong number orders nothing.
        (
            BRANCH
            + "st.shared.u32 [%r2], %r0;\nbar.arrive 1, 64;\nbar.arrive 2, 64;\nbra END;\nSECOND:\nbar.arrive 1, 64;\n"
            "+ bar.sync 2, 64;\nld.shared.u32 %r9, [%r3];\nEND:",
            64,
        ),
        # The votes of a barrier order as the barrier does.
        (
            "setp.eq.u32 %p1, %r0, 0;\nst.shared.u32 [%r2], %r0;\n+ bar.red.popc.u32 %r9, 0, %p1;\n"
            "ld.shared.u32 %r9, [%r3];",
            64,
        ),
    ],
    ids=["pairs", "named", "behind an arrival", "arrival only", "other number", "votes"],
)
def test_barriers_order_those_that_take_part(pair, body, block):
    pair(body, RACE, block=block)


#: Warp {producer} stores and arrives, the other one waits and loads.
MBARRIER = (
    "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r5, 32;\n@%p1 mbarrier.init.shared.b64 [0], %r5;\n{before}bar.sync 0;\n"
    "setp.ne.u32 %p0, %r1, {producer};\n@%p0 bra SECOND;\n"
    "st.shared.u32 [%r2+64], %r0;\nmbarrier.arrive.shared.b64 %rd9, [0];\n{after}bra END;\nSECOND:\n"
    "mov.u32 %r6, 0;\nWAIT:\nmbarrier.test_wait.parity.shared.b64 %p2, [0], %r6;\n{loop}@!%p2 bra WAIT;\n"
    "ld.shared.u32 %r9, [%r3+64];\nEND:"
)  # fmt: skip


@pytest.mark.parametrize(
    "marks",
    [
        # Without the barrier between them, an arrival may come before the initialisation.
        {"before": "+ "},
        # What is written behind the arrival is not ordered.
        {"after": "- st.shared.u32 [%r2+64], %r4;\n"},
        # Asking once is not waiting: warp 0 does so before warp 1 has arrived.
        {"loop": "+ ", "producer": "1"},
    ],
    ids=["initialised too late", "behind the arrival", "no loop"],
)
def test_mbarriers(pair, marks):
    pair(MBARRIER.format(**{"before": "", "after": "", "loop": "", "producer": "0", **marks}), RACE)


def test_an_mbarrier_that_nobody_initialised(pair):
    body = (
        "mov.u32 %r5, 33;\n+ @%p0 mbarrier.init.shared.b64 [0], %r5;\nbar.sync 0;\n"
        "mbarrier.arrive.shared.b64 %rd9, [0];"
    )
    pair(
        "setp.eq.u32 %p0, %r0, 0;\n" + body.replace("mbarrier.arrive", "@%p0 mbarrier.arrive"),
        "never written",
        "warp 0, lane 0",
        "shared offset 0",
    )


@pytest.mark.parametrize("other", ["bar.sync 1, 96", "barrier.sync 1", "bar.arrive 1, 32"])
def test_thread_counts_differ(pair, other):
    """Of three warps two meet at barrier 1 for 64 threads; one of them says something else."""
    body = (
        "setp.eq.u32 %p0, %r1, 2;\n@%p0 bra END;\nsetp.eq.u32 %p0, %r1, 1;\n@%p0 bra SECOND;\nbar.sync 1, 64;\n"
        "bra END;\n"
        f"SECOND:\n- {other};\n+ bar.sync 1, 64;\nEND:"
    )
    pair(body, "different thread counts", "warp 1: '", "barrier 1", r"expect(s)? 64\b", block=96)


def test_a_warp_that_ended_does_not_arrive(pair):
    body = "setp.eq.u32 %p0, %r1, 1;\n- @%p0 exit;\nbar.sync 1, 64;"
    pair(body, "deadlock", "warp 0 waits at barrier 1, where 32 of 64 threads arrived", "warp 1 has ended")


def test_lanes_of_a_warp_at_two_barriers(pair):
    """The branch goes through the middle of warp 0, or between the warps."""
    body = (
        "- setp.lt.u32 %p0, %r0, 16;\n+ setp.lt.u32 %p0, %r0, 32;\n@%p0 bra LOW;\nbar.sync 5, 32;\nbra END;\nLOW:\n"
        "bar.sync 6, 32;\nEND:"
    )
    pair(body, "part of a warp", "bar.sync [56], 32", "warp 0")


@pytest.mark.parametrize("barrier", ["bar.sync 0", "bar.sync 0, 96"])
def test_lanes_that_ended_before_a_barrier(pair, barrier):
    """Warp 2 has ended, and so have the upper lanes of warp 1; the rest is ordered by the barrier, and by it only.

    With a count of its own a barrier waits for that many threads, whoever has ended.
    """
    body = (
        f"setp.ge.u32 %p0, %r0, 48;\n@%p0 exit;\nst.shared.u32 [%r2], %r0;\n+ {barrier.split(',')[0]};\n"
        "and.b32 %r5, %r3, 63;\nld.shared.u32 %r9, [%r5];"
    )
    if "," in barrier:
        body = body.replace("+ bar.sync 0;", f"- {barrier};\n+ bar.sync 0;")
        pair(body, "deadlock", "64 of 96 threads arrived", "warp 2 has ended", block=96)
    else:
        pair(body, RACE, block=96)


#: Warp 0 of CTA 0 passes 2^25 barriers: as many as a clock can count.
LONG = (
    "setp.ne.u32 %p1, %r8, 0;\n@%p1 bra SHORT;\nmov.u32 %r5, 0;\nLOOP:\n" + 4 * "bar.warp.sync -1;\n"
    + f"add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p2, %r5, {2**23};\n@%p2 bra LOOP;\n"
)  # fmt: skip


def test_clocks_start_anew_with_a_cta(pair):
    """What is found in CTA 1 does not depend on how long CTA 0 ran."""
    body = LONG + "bra END;\nSHORT:\nst.shared.u32 [%r2], %r0;\n+ bar.sync 0;\nld.shared.u32 %r9, [%r3];\nEND:"
    pair(body, "warp 1, lane 0.*no barrier orders the two", r"CTA \(1, 0, 0\)", grid=2)


def test_a_full_clock_makes_no_false_alarm(launcher):
    """In the same CTA it can't tell lanes apart any more."""
    body = LONG + (
        "SHORT:\nst.shared.u32 [%r2], %r0;\nbar.warp.sync -1;\nxor.b32 %r5, %r2, 4;\nld.shared.u32 %r9, [%r5];\n"
        "bar.sync 0;\nld.shared.u32 %r9, [%r3];"
    )
    assert launcher.finding(body) == ""
