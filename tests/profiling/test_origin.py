"""Pointers followed from parameters to accesses."""

from __future__ import annotations

from fa_bench import ptx
from fa_bench.profiling.origin import origins


def kernel(body: str) -> ptx.Kernel:
    return ptx.load(
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 k_a, .param .u64 k_b, .param .u32 k_n)\n{\n"
        ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<20>;\n"
        f"ld.param.u64 %rd1, [k_a];\nld.param.u64 %rd2, [k_b];\nld.param.u32 %r1, [k_n];\n{body}\nret;\n}}\n"
    ).kernel("k")


def accesses(body: str) -> list[set[str]]:
    """Origins of the accesses behind the three loads of parameters, in order."""
    return [set(names) for names in origins(kernel(body), {0: "A", 8: "B"}).values()]


def test_through_arithmetic() -> None:
    assert accesses("""
        mul.wide.u32 %rd3, %r1, 4;
        add.s64 %rd4, %rd1, %rd3;
        ld.global.f32 %f1, [%rd4+16];
        st.global.f32 [%rd2], %f1;
    """) == [{"A"}, {"B"}]


def test_through_a_loop_and_a_selection() -> None:
    assert accesses("""
    loop:
        ld.global.f32 %f1, [%rd1];
        add.s64 %rd1, %rd1, 4;
        setp.lt.u32 %p1, %r1, 9;
        @%p1 bra loop;
        selp.b64 %rd5, %rd1, %rd2, %p1;
        ld.global.f32 %f2, [%rd5];
    """) == [{"A"}, {"A", "B"}]


def test_a_pointer_out_of_memory_comes_from_nowhere() -> None:
    assert accesses("""
        ld.global.u64 %rd6, [%rd1];
        ld.global.f32 %f1, [%rd6];
    """) == [{"A"}, set()]


def test_what_was_loaded_does_not_make_an_index_a_pointer() -> None:
    assert accesses("""
        ld.global.u32 %r2, [%rd1];
        mul.wide.u32 %rd3, %r2, 4;
        add.s64 %rd4, %rd2, %rd3;
        ld.global.f32 %f1, [%rd4];
    """) == [{"A"}, {"B"}]


def test_a_number_is_no_pointer() -> None:
    assert accesses("""
        cvt.u64.u32 %rd7, %r1;
        ld.global.f32 %f1, [%rd7];
    """) == [set()]
