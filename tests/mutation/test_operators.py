"""What can be dropped of a kernel: mutants worked out by hand, one family of instructions after the other."""

from __future__ import annotations

import pytest

from fa_bench import ptx
from fa_bench.mutation import operators
from fa_bench.mutation.result import KINDS, Edit, Mutant

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p_x)
{
    .reg .pred %p<8>;  .reg .b32 %r<16>;  .reg .b64 %rd<4>;  .reg .f32 %f<4>;
    .shared .align 16 .b8 s[256];
    ld.param.u64 %rd1, [p_x];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, s;
"""


def found(body: str) -> list[Mutant]:
    """All mutants of a kernel with this body; all of them, and their probes, can be read."""
    text = operators.without_comments(f"{HEAD}{body}\n    ret;\n}}\n")
    every = operators.mutants(text, "k")
    for mutant in every:
        ptx.load(mutant.edit.applied(text))
        if mutant.probe is not None:
            ptx.load(mutant.probe.applied(text))
    return every


def changes(body: str) -> list[tuple[str, str, str]]:
    """(kind, action, what stands in the instruction's place) of each mutant."""
    return [(mutant.kind, mutant.action, mutant.edit.text) for mutant in found(body)]


@pytest.mark.parametrize(
    "barrier", ["bar.sync 0", "barrier.sync 1, 64", "bar.warp.sync -1", "membar.gl", "fence.acq_rel.gpu"]
)
def test_a_barrier_is_dropped(barrier: str) -> None:
    assert changes(f"{barrier};") == [("barrier", "dropped", "")]


@pytest.mark.parametrize("wait", ["cp.async.wait_group 1", "cp.async.wait_all", "cp.async.commit_group"])
def test_a_wait_is_dropped(wait: str) -> None:
    assert changes(f"{wait};") == [("wait", "dropped", "")]


def test_waiting_for_an_mbarrier_succeeds_at_once() -> None:
    body = "mbarrier.init.shared.b64 [%r2], 32; mbarrier.arrive.shared.b64 %rd2, [%r2];"
    wait = "mbarrier.test_wait.shared.b64 %p1, [%r2], %rd2;"
    assert changes(f"{body}\n{wait}\n@%p1 bra $L;\n$L:")[0] == ("wait", "never waits", "mov.pred %p1, -1;")


def test_waiting_for_a_phase_succeeds_at_once_and_a_copy_does_not_arrive() -> None:
    body = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];\nmbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;"
    assert changes(f"{body}\n@%p1 bra $L;\n$L:")[:2] == [
        ("wait", "dropped", ""),
        ("wait", "never waits", "mov.pred %p1, -1;"),
    ]


def test_a_guard_is_lifted_or_takes_all() -> None:
    assert changes("setp.eq.u32 %p1, %r1, 0;\n@!%p1 st.global.u32 [%rd1], %r1;") == [
        ("predicate", "always", "st.global.u32 [%rd1], %r1;"),
        ("predicate", "never", ""),
    ]


def test_a_branch_is_always_or_never_taken_and_the_end_of_a_loop_always_or_never_repeats() -> None:
    body = "setp.eq.u32 %p1, %r1, 0;\n$L_top:\n@%p1 bra $L_end;\n@!%p1 bra $L_top;\n$L_end:"
    assert [(action, text) for _, action, text in changes(body)] == [
        ("always taken", "bra $L_end;"),
        ("never taken", ""),
        ("always repeats", "bra $L_top;"),
        ("never repeats", ""),
    ]


def test_a_selection_is_made_for_good() -> None:
    body = "setp.eq.u32 %p1, %r1, 0;\nselp.f32 %f1, %f2, 0fFF800000, %p1;\nst.global.f32 [%rd1], %f1;"
    assert changes(body) == [
        ("mask", "always its first operand", "mov.f32 %f1, %f2;"),
        ("mask", "always its second operand", "mov.f32 %f1, 0fFF800000;"),
    ]


def test_a_bound_is_lost_on_either_side_and_a_maximum_of_floats_is_none() -> None:
    assert changes("min.s32 %r3, %r1, 7;\nmax.f32 %f1, %f2, %f3;") == [
        ("mask", "without its second operand", "mov.s32 %r3, %r1;"),
        ("mask", "without its first operand", "mov.s32 %r3, 7;"),
    ]


def test_of_two_conditions_either_is_dropped_and_their_comparisons_are_left_alone() -> None:
    body = (
        "setp.lt.u32 %p1, %r1, 9;\nsetp.gt.u32 %p2, %r1, 2;\nand.pred %p3, %p1, %p2;\n"
        "selp.u32 %r3, 5, 6, %p3;\nst.global.u32 [%rd1], %r3;"
    )
    assert changes(body) == [
        ("mask", "without its second condition", "mov.pred %p3, %p1;"),
        ("mask", "without its first condition", "mov.pred %p3, %p2;"),
        ("mask", "always its first operand", "mov.u32 %r3, 5;"),
        ("mask", "always its second operand", "mov.u32 %r3, 6;"),
    ]


def test_a_comparison_with_a_condition_loses_either() -> None:
    body = "setp.eq.u32 %p1, %r1, 0;\nsetp.lt.or.u32 %p2, %r1, 9, %p1;\nvote.sync.ballot.b32 %r3, %p2, -1;"
    assert changes(body) == [
        ("mask", "without its first condition", "mov.pred %p2, %p1;"),
        ("mask", "without its second condition", "setp.lt.u32 %p2, %r1, 9;"),
    ]


def test_a_comparison_that_nothing_else_stands_for_is_always_true_or_false() -> None:
    assert changes("setp.eq.u32 %p1, %r1, 0;\nvote.sync.ballot.b32 %r3, %p1, -1;") == [
        ("mask", "always true", "mov.pred %p1, -1;"),
        ("mask", "always false", "mov.pred %p1, 0;"),
    ]


def test_a_copy_loses_its_zero_fill_and_the_selection_of_the_whole_size_is_the_same_mutant() -> None:
    body = (
        "setp.eq.u32 %p1, %r1, 0;\nselp.b32 %r3, 16, 0, %p1;\n"
        "cp.async.cg.shared.global [%r2], [%rd1], 16, %r3;\ncp.async.cg.shared.global [%r2], [%rd1], 16;"
    )
    assert changes(body) == [
        ("mask", "always its second operand", "mov.b32 %r3, 0;"),
        ("mask", "not cut: no zero-fill", "cp.async.cg.shared.global [%r2], [%rd1], 16;"),
    ]


def test_a_predicate_that_went_through_a_register_is_mutated_where_it_guards() -> None:
    body = (
        "setp.lt.u32 %p1, %r1, 9;\nselp.u32 %r3, 1, 0, %p1;\n"
        "{ .reg .pred inside; setp.ne.b32 inside, %r3, 0;\n@inside st.global.u32 [%rd1], %r1; }"
    )
    assert changes(body) == [
        ("predicate", "always", "st.global.u32 [%rd1], %r1;"),
        ("predicate", "never", ""),
    ]


def test_arithmetic_and_memory_are_no_mutants() -> None:
    assert changes("add.s32 %r3, %r1, 1;\nst.global.u32 [%rd1], %r3;") == []


def test_an_edit_changes_one_statement_and_no_line() -> None:
    text = operators.without_comments(f"{HEAD}bar.sync 0; bar.sync 0; // bar.sync 0;\nbar.sync\n 0;\n    ret;\n}}\n")
    every = operators.mutants(text, "k")
    line = HEAD.count("\n") + 1
    # Two on one line are told apart by nothing, so the first stands for both; comments are no statements.
    assert [mutant.line for mutant in every] == [line, line + 1]
    changed = every[1].edit.applied(text)
    assert changed.count("\n") == text.count("\n") and "bar.sync 0; bar.sync 0;" in changed
    assert Edit(1, 3, "x").applied("abcd") == "axd"


def test_copies_of_a_statement_are_one_mutant_and_the_last_stands_for_them() -> None:
    body = "setp.eq.u32 %p1, %r1, 0;\n" + "@%p1 st.global.u32 [%rd1], %r1;\n" * 3 + "bar.sync 0;"
    text = operators.without_comments(f"{HEAD}{body}\n    ret;\n}}\n")
    first = HEAD.count("\n") + 2
    every = operators.mutants(text, "k", lambda line: "a.cu:7")
    assert [(mutant.action, mutant.line) for mutant in every[:2]] == [("always", first), ("never", first)]
    some = operators.one_of_each(every)
    assert [(mutant.action, mutant.line, mutant.copies) for mutant in some] == [
        ("always", first + 2, 3),
        ("never", first + 2, 3),
        ("dropped", first + 3, 1),
    ]
    assert [mutant.kind for mutant in operators.of_kinds(some, KINDS)] == ["barrier", "predicate", "predicate"]
    assert operators.of_kinds(some, ["wait"]) == []
    # Without line information nothing says that two are copies of each other.
    assert all(mutant.copies == 1 for mutant in operators.one_of_each(operators.mutants(text, "k")))
