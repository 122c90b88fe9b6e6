"""What is known of buffers before, between and after the launches of a program."""

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.errors import KernelFault

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
#: Thread t of 32 copies word t of its first buffer to word t + 1 of its second one (modulo 32 with ``wrap``).
COPY = HEAD + (
    ".visible .entry k(.param .u64 from, .param .u64 to)\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<6>;\n"
    "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [from];\nld.param.u64 %rd1, [to];\nmad.wide.u32 %rd2, %r0, 4, %rd0;\n"
    "add.u32 %r1, %r0, 1;\n{wrap}mad.wide.u32 %rd3, %r1, 4, %rd1;\nld.global.u32 %r2, [%rd2];\n"
    "st.global.u32 [%rd3], %r2;\nret;\n}\n"
)
WRAP = "and.b32 %r1, %r1, 31;\n"


def copy(
    memory: ptx.Memory, checks: ptx.Sanitizer, source: str, target: str, wrap: bool = True, times: int = 1
) -> None:
    kernel = ptx.load(COPY.replace("{wrap}", WRAP if wrap else "")).kernel("k")
    args = [np.uint64(memory.address(name)) for name in (source, target)]
    ptx.launch(kernel, grid=(times, 1, 1), block=(32, 1, 1), args=args, memory=memory, checks=checks)


def memory_of(**sizes: int) -> ptx.Memory:
    memory = ptx.Memory()
    for name, nbytes in sizes.items():
        memory.allocate(name, nbytes)
    return memory


def test_elements_by_offset():
    """Rows of three elements of 2 bytes, 16 bytes apart: bytes 6 to 15 of each row are nobody's."""
    rows = ptx.Elements(2, (2, 3), (16, 2))
    assert rows.places().tolist() == [[0, 2, 4], [16, 18, 20]]
    assert [rows.index_of(offset) for offset in (0, 5, 6, 15, 16, 21, 22)] == [
        *((0, 0), (0, 2), None, None, (1, 0), (1, 2), None)
    ]


def test_elements_whose_last_axis_is_not_the_closest():
    """[batch, heads, seq] stored as batch, seq, heads, with one batch."""
    layout = ptx.Elements(4, (1, 2, 3), (24, 4, 8))
    assert [layout.index_of(4 * k) for k in range(6)] == [(0, h, s) for s in range(3) for h in range(2)]


def test_what_one_launch_wrote_the_next_one_may_read():
    memory, checks = memory_of(X=128, W=128, O=128), ptx.Sanitizer(ptx.Checks({"X": None}, {"O": None}))
    copy(memory, checks, "X", "W")
    copy(memory, checks, "W", "O")
    checks.require_outputs()
    assert checks.written("W").all() and checks.written("O").all()


def test_without_the_first_launch_there_is_nothing_to_read():
    memory, checks = memory_of(X=128, W=128, O=128), ptx.Sanitizer(ptx.Checks({"X": None}, {"O": None}))
    with pytest.raises(KernelFault, match=r"lane 0: 'ld\.global.*\(W \+ 0\), the first of which was never written"):
        copy(memory, checks, "W", "O")


def test_launches_are_in_order():
    """Each CTA of the second launch reads what each of the first wrote: no race, but CTAs of one launch make one."""
    memory, checks = memory_of(X=128, W=128, O=128), ptx.Sanitizer(ptx.Checks({"X": None}))
    copy(memory, checks, "X", "W")
    copy(memory, checks, "W", "O")
    copy(memory, checks, "X", "W")
    with pytest.raises(KernelFault, match=r"of CTA \(0, 0, 0\) writes; no release"):
        copy(memory, checks, "X", "W", times=2)


def test_the_first_empty_element_is_named():
    """Words 1 to 32 are written, of an output of 34 words, 2 x 17: the first and the last one are missing."""
    elements = ptx.Elements(4, (2, 17), (68, 4))
    memory, checks = memory_of(X=128, O=136), ptx.Sanitizer(ptx.Checks({"X": None}, {"O": elements}))
    copy(memory, checks, "X", "O", wrap=False)
    assert np.flatnonzero(checks.written("O")).tolist() == list(range(4, 132))
    with pytest.raises(KernelFault, match=r"output O\[0, 0\] \(byte 0\) was never written, nor were 1 others of 34"):
        checks.require_outputs()
    with pytest.raises(KernelFault, match=r"output O\[1, 16\] \(byte 132\) was never written\."):
        checks.require_outputs({"O": np.array([[False], [True]])})


def test_bytes_between_the_elements_of_an_input_hold_nothing():
    """Two rows of 15 words, 16 words apart: word 15 is between them. With rows of 16 there is nothing between them."""
    gaps, whole = (ptx.Elements(4, (2, columns), (64, 4)) for columns in (15, 16))
    memory = memory_of(X=128, W=128)
    with pytest.raises(KernelFault, match=r"lane 15: 'ld\.global.*\(X \+ 60\), the first of which was never written"):
        copy(memory, ptx.Sanitizer(ptx.Checks({"X": gaps})), "X", "W")
    copy(memory, ptx.Sanitizer(ptx.Checks({"X": whole})), "X", "W")


def test_a_finding_names_the_element():
    """Lane 0 writes word 1 of X, which is row 0, column 1."""
    memory = memory_of(X=128, Y=128)
    checks = ptx.Sanitizer(ptx.Checks({"X": ptx.Elements(4, (2, 16), (64, 4))}, initialised=frozenset({"Y"})))
    with pytest.raises(KernelFault, match=r"lane 0: 'st\.global.*\(X \+ 4, X\[0, 1\]\), which is an input"):
        copy(memory, checks, "Y", "X")


def test_variables_of_the_module_hold_data():
    text = HEAD + (
        ".global .align 4 .b32 v[32] = {1, 2, 3};\n.visible .entry k(.param .u64 o)\n{\n.reg .b32 %r<2>;\n"
        ".reg .b64 %rd<2>;\nld.global.u32 %r0, [v+64];\nret;\n}\n"
    )
    memory = memory_of(O=4)
    args = [np.uint64(memory.address("O"))]
    checks = ptx.Sanitizer(ptx.Checks())
    ptx.launch(ptx.load(text).kernel("k"), grid=(1, 1, 1), block=(32, 1, 1), args=args, memory=memory, checks=checks)
    assert not checks.written("v").any()


def test_numbers_of_ctas_do_not_run_out():
    """Two numbers are left before the words of the shadow are full: launches are in order, so that it may forget."""
    memory, checks = memory_of(X=128, W=128), ptx.Sanitizer(ptx.Checks({"X": None}))
    checks._ctas = 2**21 - 3
    copy(memory, checks, "X", "W")
    copy(memory, checks, "X", "W")
    copy(memory, checks, "W", "W")
    assert checks._ctas < 10
    with pytest.raises(ValueError, match="2,097,151 CTAs apart; this launch has 2,097,152"):
        copy(memory, checks, "X", "W", times=2**21)


def test_the_checks_name_buffers_that_exist():
    memory = memory_of(X=128, W=128)
    with pytest.raises(ValueError, match="'Z', which is no buffer"):
        copy(memory, ptx.Sanitizer(ptx.Checks({"Z": None})), "X", "W")


def test_a_buffer_that_changes_its_size_is_refused():
    """The shadow of 128 bytes does not reach over 256."""
    checks = ptx.Sanitizer(ptx.Checks(initialised=frozenset({"X"})))
    small, large = memory_of(X=128, W=128), memory_of(X=128, W=256)
    copy(small, checks, "X", "W")
    with pytest.raises(ValueError, match="'W' has 256 bytes; the checks know it with 128"):
        copy(large, checks, "X", "W")
