"""Mutants of a kernel of which it is known by hand what notices them, and a sample of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from only_key import PTX, line_of

from fa_bench import algorithms
from fa_bench.algorithms.base import KernelSpec
from fa_bench.algorithms.user import load
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import nvrtc_available
from fa_bench.errors import FaBenchError, UsageError
from fa_bench.model import gpus
from fa_bench.mutation.result import MutationTest, Outcome
from fa_bench.mutation.run import Request, build_names, own_files, run

A100 = gpus.get("a100-sxm-80")


@pytest.fixture
def own_case(own_kernel: Path) -> Iterator[Case]:
    algorithms.add(load(own_kernel))
    yield Case("only_key", AttentionShape(1, 1, 1, 5, 1, 64), "fp32", content=algorithms.content_of("only_key"))


def by_place(test: MutationTest) -> dict[tuple[int, str], Outcome]:
    return {(outcome.mutant.line, outcome.mutant.action): outcome for outcome in test.outcomes}


def test_each_verdict_is_the_one_known_by_hand(own_case: Case) -> None:
    test = run(Request((own_case,), A100))
    found = {key: (o.mutant.kind, o.verdict, o.finding) for key, o in by_place(test).items()}
    assert found == {
        # The threads of one warp read what those of the other wrote.
        (line_of(PTX, "NEEDED"), "dropped"): ("barrier", "checks", "race"),
        (line_of(PTX, "LAST"), "dropped"): ("barrier", "none", ""),
        (line_of(PTX, "MASK"), "always its first operand"): ("mask", "none", ""),
        (line_of(PTX, "MASK"), "always its second operand"): ("mask", "result", "wrong result"),
        (line_of(PTX, "SKIPS"), "always taken"): ("predicate", "none", ""),
        # Twice 1 is added to a register that nobody reads.
        (line_of(PTX, "SKIPS"), "never taken"): ("predicate", "work", ""),
        (line_of(PTX, "GUARD"), "always"): ("predicate", "fault", "out of bounds"),
        (line_of(PTX, "GUARD"), "never"): ("predicate", "checks", "never written"),
    }
    assert test.missed == []
    assert test.cases == ("only_key, 5x1 fp32 D=64 full H=1", "only_key, 5x1 fp32 D=64 full H=1, steep")


def test_a_survivor_has_its_reason_and_a_caught_mutant_its_sentence(own_case: Case) -> None:
    found = by_place(run(Request((own_case,), A100)))
    why = {key: outcome.sentence for key, outcome in found.items()}
    assert why[line_of(PTX, "LAST"), "dropped"] == "orders nothing that collides in these cases"
    assert why[line_of(PTX, "MASK"), "always its first operand"] == "its condition never varies in these cases"
    # Two warps of six CTAs run 28 instructions each; two more without the branch that jumps over them.
    assert why[line_of(PTX, "SKIPS"), "never taken"] == "saves 12 of 336 warp instructions"
    race = found[line_of(PTX, "NEEDED"), "dropped"]
    assert race.case == "only_key, 5x1 fp32 D=64 full H=1"
    assert f"(PTX line {line_of(PTX, 'st.shared')})" in race.sentence


def test_without_checks_only_what_shows_is_caught(own_case: Case) -> None:
    test = run(Request((own_case,), A100, checks=False))
    found = {key: o.verdict for key, o in by_place(test).items()}
    # The emulator's warps run one after the other up to a barrier: without it the first one reads the poison that the
    # second has not replaced yet. An O that was never written is poison too.
    assert found[line_of(PTX, "NEEDED"), "dropped"] == "result"
    assert found[line_of(PTX, "GUARD"), "never"] == "result"
    assert found[line_of(PTX, "GUARD"), "always"] == "fault"
    assert not test.checks


def test_a_change_within_the_bound_is_missed(own_kernel: Path, own_case: Case) -> None:
    """0 and 2^-26 are both within the error that fp32 explains; added to V's elements below 1/4 they differ."""
    ptx_file = own_kernel.with_suffix(".ptx")
    extra = "selp.f32 %f4, 0f32800000, 0f00000000, %p1; // TINY\n    add.f32 %f3, %f3, %f4;\n    setp.lt.u32 %p2"
    ptx_file.write_text(PTX.replace("setp.lt.u32 %p2", extra))
    algorithms.add(load(own_kernel))
    case = Case("only_key", own_case.shape, "fp32", content=algorithms.content_of("only_key"))
    test = run(Request((case,), A100, kinds=("mask",)))
    (missed,) = test.missed
    assert missed.mutant.line == line_of(ptx_file.read_text(), "TINY")
    assert missed.mutant.action == "always its second operand"
    assert "bytes of the output differ (only_key, 5x1" in missed.sentence


def test_what_no_case_reaches_says_so(own_kernel: Path, own_case: Case) -> None:
    unreached = "@%p2 bra $L_write;\n    bar.sync 0; // UNREACHED"
    own_kernel.with_suffix(".ptx").write_text(PTX.replace("@%p2 bra $L_write;", unreached))
    algorithms.add(load(own_kernel))
    case = Case("only_key", own_case.shape, "fp32", content=algorithms.content_of("only_key"))
    test = run(Request((case,), A100, kinds=("barrier",)))
    found = {outcome.mutant.line: outcome.sentence for outcome in test.outcomes}
    assert found[line_of(PTX, "SKIPS") + 1] == "never runs in these cases"


def test_an_endless_loop_ends(own_kernel: Path, own_case: Case) -> None:
    loop = (
        "mov.u32 %r10, 0;\n$L_top:\n    add.s32 %r10, %r10, 1;\n    setp.lt.s32 %p4, %r10, 3;\n    @%p4 bra $L_top;\n"
    )
    own_kernel.with_suffix(".ptx").write_text(PTX.replace("setp.lt.u32 %p2", f"{loop}    setp.lt.u32 %p2"))
    algorithms.add(load(own_kernel))
    case = Case("only_key", own_case.shape, "fp32", content=algorithms.content_of("only_key"))
    test = run(Request((case,), A100, kinds=("predicate",)))
    found = {outcome.mutant.action: (outcome.verdict, outcome.finding) for outcome in test.outcomes}
    assert found["always repeats"] == ("fault", "endless loop")
    assert found["never repeats"] == ("none", "")


def test_a_later_kernel_that_loops_on_what_a_mutant_left_ends_too(own_kernel: Path, own_case: Case) -> None:
    """Without the count that the first kernel writes, the second one would take 2^32 - 1 turns: poison is all ones."""
    count = """
.visible .entry count(.param .u64 p_w)
{
    .reg .pred %p<2>;  .reg .b32 %r<3>;  .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p_w];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 3;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st.global.u32 [%rd1], %r2;
    ret;
}
"""
    loop = """ld.param.u64 %rd7, [p_w];
    ld.global.u32 %r10, [%rd7];
$L_top:
    sub.u32 %r10, %r10, 1;
    setp.ne.u32 %p4, %r10, 0;
    @%p4 bra $L_top;
    setp.lt.u32 %p2"""
    changed = PTX.replace("setp.lt.u32 %p2", loop).replace(
        ".param .u32 p_keys)", ".param .u32 p_keys, .param .u64 p_w)"
    )
    own_kernel.with_suffix(".ptx").write_text(changed + count)
    first = """
[workspaces.W]
dtype = "i32"
shape = [1, 1, 1]
[[kernels]]
entry = "count"
grid = [1]
block = [32]
args = ["W"]
[[kernels]]"""
    toml = own_kernel.read_text().replace('"i32 seq_kv"]', '"i32 seq_kv", "W"]').replace("[[kernels]]", first)
    own_kernel.write_text(toml)
    algorithms.add(load(own_kernel))
    case = Case("only_key", own_case.shape, "fp32", content=algorithms.content_of("only_key"))
    test = run(Request((case,), A100, kinds=("predicate",), checks=False))
    found = {(o.kernel, o.mutant.action): (o.verdict, o.finding) for o in test.outcomes}
    assert found["count", "never"] == ("fault", "endless loop")


def test_a_kernel_that_fails_as_it_is_says_nothing(own_kernel: Path, own_case: Case) -> None:
    own_kernel.with_suffix(".ptx").write_text(PTX.replace("bar.sync 0;                          // NEEDED", ""))
    algorithms.add(load(own_kernel))
    case = Case("only_key", own_case.shape, "fp32", content=algorithms.content_of("only_key"))
    with pytest.raises(FaBenchError, match=r"^only_key, 5x1 .* fails as it is, so mutants say nothing\. .*race"):
        run(Request((case,), A100))


def test_nothing_to_drop_and_a_limit(own_case: Case) -> None:
    with pytest.raises(UsageError, match="have no wait that could be dropped"):
        run(Request((own_case,), A100, kinds=("wait",)))
    told: list[str] = []
    test = run(Request((own_case,), A100, limit=2), announce=lambda text, outcome: told.append(text))
    # Of eight in the order barrier, mask, predicate the first and the fifth.
    assert [outcome.mutant.action for outcome in test.outcomes] == ["dropped", "always taken"]
    assert told == ["only_key as it is (1/1)", "1/2 mutants", "2/2 mutants"]


def test_processes_find_the_same_in_the_same_order(own_kernel: Path, own_case: Case) -> None:
    request = Request((own_case,), A100, kinds=("barrier",), files=own_files(["only_key", "flash2"]))
    assert request.files == (own_kernel.resolve(),)
    assert run(request, jobs=2).outcomes == run(request).outcomes


def test_builds_are_named_by_what_differs() -> None:
    specs = [KernelSpec("a.cu", "a", (("DIM", "64"), ("CAUSAL", c), ("STAGES", s))) for c in "01" for s in "12"]
    names = build_names([*specs, KernelSpec("b.cu", "b", (("DIM", "64"),))])
    assert [names[spec] for spec in specs] == [f"CAUSAL={c} STAGES={s}" for c in "01" for s in "12"]
    assert names[KernelSpec("b.cu", "b", (("DIM", "64"),))] == ""


@pytest.mark.skipif(bool(nvrtc_available()), reason=nvrtc_available() or "")
def test_every_barrier_and_wait_of_flash2_is_missed_by_somebody() -> None:
    """More keys than queries, and fewer: some CTAs see no tile, and for them alone the last wait and barrier count."""
    shapes = [AttentionShape(1, 2, 1, q, k, 40, causal=True) for q, k in ((35, 67), (67, 35))]
    cases = tuple(Case("flash2", shape, tile=Tile(32, 16, 2, 2)) for shape in shapes)
    test = run(Request(cases, A100, kinds=("barrier", "wait")))
    assert len(test.outcomes) == 11
    assert {outcome.verdict for outcome in test.outcomes} == {"checks"}
    assert {outcome.finding for outcome in test.outcomes} == {"race", "in flight"}
    assert all("flash2_fwd.cu:" in outcome.mutant.source for outcome in test.outcomes)
