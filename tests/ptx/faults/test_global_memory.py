"""Races between CTAs, writes to inputs, outputs that stay empty."""

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.errors import KernelFault

RACE = "no release and acquire orders the two"
#: Each CTA has a place of its own in W, 256 bytes behind the last one's.
OWN = "mad.wide.u32 %rd9, %r8, 256, %rd7;\n"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        # Both CTAs write one place.
        (
            "- mov.u32 %r5, 0;\n+ mov.u32 %r5, %r8;\nmad.wide.u32 %rd9, %r5, 256, %rd7;\nst.global.u32 [%rd9], %r0;",
            [r"CTA \(1, 0, 0\), warp 0, lane 0: 'st", r"\(W \+ 0\)", r"of warp 0, lane 0 of CTA \(0, 0, 0\) writes"],
        ),
        # Sixteen bytes per lane, of which the last two meet with the next CTA's first.
        (
            "mad.wide.u32 %rd9, %r0, 16, %rd3;\n- mov.u32 %r5, 1008;\n+ mov.u32 %r5, 1024;\n"
            "mad.wide.u32 %rd9, %r8, %r5, %rd9;\nst.global.v4.u32 [%rd9], {%r0, %r0, %r0, %r0};",
            [r"CTA \(1, 0, 0\), warp 0, lane 0", r"\(W \+ 1008\)", r"warp 1, lane 31 of CTA \(0, 0, 0\)"],
        ),
        # Neighbouring bytes are no race; one byte is.
        (
            "mov.u32 %r5, 1;\n- mov.u32 %r5, 0;\nmad.wide.u32 %rd9, %r8, %r5, %rd3;\nsetp.eq.u32 %p0, %r0, 0;\n"
            "@%p0 st.global.u8 [%rd9], %r0;",
            [r"\(W \+ 0\)", "writes 1 byte at"],
        ),
        # CTA 0 writes what CTA 1 reads.
        (
            "- setp.eq.u32 %p0, %r8, 0;\n+ setp.eq.u32 %p0, %r8, 1;\n@%p0 st.global.u32 [%rd5], %r0;\n"
            "setp.eq.u32 %p1, %r8, 1;\n@%p1 ld.global.u32 %r9, [%rd5];",
            [r"CTA \(1, 0, 0\).*'@%p1 ld", r"\(Y \+ 0\)", r"of CTA \(0, 0, 0\) writes"],
        ),
        # CTA 0 reads what CTA 1 writes.
        (
            "setp.eq.u32 %p0, %r8, 0;\n@%p0 ld.global.u32 %r9, [%rd5];\n- setp.eq.u32 %p1, %r8, 1;\n"
            "+ setp.eq.u32 %p1, %r8, 0;\n@%p1 st.global.u32 [%rd5], %r0;",
            [r"CTA \(1, 0, 0\).*'@%p1 st", r"\(Y \+ 0\)", r"of CTA \(0, 0, 0\) reads"],
        ),
        # All CTAs count.
        ("- st.global.u32 [%rd1], %r8;\n+ red.global.add.u32 [%rd1], %r8;", [r"\(Y \+ 0\)"]),
        # Atomic for the threads of a CTA only.
        ("- red.relaxed.cta.global.add.u32 [%rd1], 1;\n+ red.relaxed.gpu.global.add.u32 [%rd1], 1;", [r"\(Y \+ 0\)"]),
        # A volatile read polls what others update; a plain one does not.
        (
            "red.global.add.u32 [%rd1], 1;\n- ld.global.u32 %r9, [%rd1+4];\n+ ld.global.u32 %r9, [%rd1+8];\n"
            "setp.eq.u32 %p0, %r0, 0;\n@%p0 red.global.add.u32 [%rd1+4], 1;",
            [r"\(Y \+ 4\)"],
        ),
        # A copy reads what the other CTA writes.
        (
            "- setp.eq.u32 %p0, %r8, 0;\n+ setp.eq.u32 %p0, %r8, 1;\n@%p0 st.global.u32 [%rd5], %r0;\n"
            "setp.eq.u32 %p1, %r8, 1;\n@%p1 cp.async.ca.shared.global [%r2], [%rd5], 4;",
            ["cp.async", r"of CTA \(0, 0, 0\) writes"],
        ),
    ],
)
def test_ctas_that_nothing_orders(pair, body, parts):
    pair(body, RACE, *parts, grid=2)


#: The last CTA adds up what all have left in W: it is the one that counts to two.
LAST = (
    OWN + "st.global.u32 [%rd9], %r0;\n{fence}bar.sync 0;\nsetp.eq.u32 %p0, %r0, 0;\n@!%p0 bra COUNTED;\n"
    "{count}\nst.shared.u32 [0], %r9;\nCOUNTED:\nbar.sync 0;\nld.shared.u32 %r9, [0];\nsetp.ne.u32 %p1, %r9, 1;\n"
    "@%p1 bra END;\nld.global.u32 %r10, [%rd7];\n{reset}END:"
)
COUNT = "atom.global.add.u32 %r9, [%rd1], 1;"


@pytest.mark.parametrize(
    "marks",
    [
        {"fence": "+ membar.gl;\n"},
        {"fence": "+ fence.acq_rel.gpu;\n"},
        {
            "count": (
                "- atom.relaxed.gpu.global.add.u32 %r9, [%rd1], 1;\n+ atom.acq_rel.gpu.global.add.u32 %r9, [%rd1], 1;"
            )
        },
        # Written behind the fence: not released.
        {"fence": "membar.gl;\n- st.global.u32 [%rd9], %r0;\n"},
        # A fence for the CTA only.
        {"fence": "- membar.cta;\n+ membar.gl;\n"},
    ],
    ids=["membar", "fence", "acq_rel", "behind the fence", "scope"],
)
def test_the_last_cta_reads_what_the_others_released(pair, marks):
    pair(LAST.format(**{"fence": "", "count": COUNT, "reset": "", **marks}), RACE, r"\(W \+ (0|128)\)", grid=2)


def test_the_last_cta_may_reset_the_counter(pair):
    reset = "@%p0 st.global.u32 [%rd1], %r0;\n"
    pair(LAST.format(fence="+ membar.gl;\n", count=COUNT, reset=reset), RACE, grid=2)


def test_release_and_acquire(pair):
    """CTA 0 sends words by st.release; CTA 1 has them after ld.acquire of the flag, not after a plain load."""
    body = (
        "setp.eq.u32 %p0, %r8, 1;\n@%p0 bra SECOND;\nst.global.u32 [%rd7], %r0;\nbar.sync 0;\n"
        "setp.eq.u32 %p1, %r0, 0;\n"
        "@%p1 st.release.gpu.global.u32 [%rd1], %r0;\nbra END;\nSECOND:\n- ld.global.u32 %r9, [%rd1+4];\n"
        "+ ld.acquire.gpu.global.u32 %r9, [%rd1];\nld.global.u32 %r9, [%rd7];\nEND:"
    )
    pair(body, RACE, r"\(W \+ 0\)", r"CTA \(1, 0, 0\)", grid=2)


def test_ctas_are_named_by_their_own_numbers():
    """Of a grid of 3 x 2 only the CTAs (1, 1) and (2, 0) run, in this order: linear numbers 4 and 2."""
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 y)\n{\n.reg .b64 %rd<2>;\n"
        ".reg .b32 %r<2>;\nld.param.u64 %rd0, [y];\nmov.u32 %r0, 0;\nst.global.u32 [%rd0], %r0;\nret;\n}\n"
    )
    memory = ptx.Memory()
    memory.allocate("Y", 4)
    with pytest.raises(KernelFault, match=r"CTA \(2, 0, 0\), warp 0.*of CTA \(1, 1, 0\) writes"):
        ptx.launch(
            ptx.load(text).kernel("k"),
            grid=(3, 2, 1),
            block=(32, 1, 1),
            args=[np.uint64(memory.address("Y"))],
            memory=memory,
            ctas=[4, 2],
            checks=ptx.Sanitizer(ptx.Checks()),
        )


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("- st.global.u32 [%rd4], %r0;\n+ st.global.u32 [%rd5], %r0;", ["warp 0, lane 0: 'st", r"\(X \+ 0\)"]),
        ("- st.u32 [%rd4+256], %r0;\n+ st.u32 [%rd5+256], %r0;", [r"4 bytes at .*\(X \+ 256\)"]),
        ("- red.global.add.u32 [%rd0], 1;\n+ red.global.add.u32 [%rd1], 1;", ["updates"]),
        # One lane only, by a wrong pointer.
        (
            "setp.eq.u32 %p0, %r0, 37;\n- @%p0 mov.u64 %rd5, %rd4;\nst.global.u32 [%rd5], %r0;",
            ["warp 1, lane 5", r"\(X \+ 148\)"],
        ),
        ("mad.wide.u32 %rd9, %r0, 16, %rd1;\n- mad.wide.u32 %rd9, %r0, 16, %rd0;\n"
         "st.global.v4.u32 [%rd9], {%r0, %r0, %r0, %r0};", ["16 bytes"]),
    ],
)  # fmt: skip
def test_inputs_are_not_written(pair, body, parts):
    pair(body, "is an input", *parts)


def test_both_lines_of_a_race_have_their_source(launcher):
    """The caller names lines: here line 27 of the PTX is ``k.cu:270``, and so on."""
    message = launcher.finding("st.shared.u32 [%r2], %r0;\nld.shared.u32 %r9, [%r3];", lambda line: f"k.cu:{10 * line}")
    first, second = 24, 25
    assert f"(PTX line {first}, k.cu:{10 * first})" in message
    assert f"(PTX line {second}, k.cu:{10 * second})" in message
