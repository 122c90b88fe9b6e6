"""Changes to the kernels: each finds its place exactly once, alone and together, and the kernels stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import KernelSpec
from fa_bench.compiler import kernels_dir
from fa_bench.errors import UsageError
from fa_bench.tracing import patches
from fa_bench.tracing.patches import Patch, apply, bug, bugs, changed_kernels, instrumentation, traced

ALL = (*instrumentation(), *(patch for found in bugs().values() for patch in found.patches))


@pytest.mark.parametrize("patch", ALL, ids=lambda patch: f"{patch.file}: {patch.find.strip().splitlines()[-1].strip()}")
def test_what_is_replaced_stands_exactly_once_in_its_kernel(patch: Patch) -> None:
    text = (kernels_dir() / patch.file).read_text(encoding="utf-8")
    assert text.count(patch.find) == 1
    assert patch.find != patch.replace


def test_the_bugs_are_those_of_the_command() -> None:
    assert list(bugs()) == ["missing-rescale", "missing-scale", "block-mask", "fp16-o"]


@pytest.mark.parametrize("found", bugs().values(), ids=lambda found: found.name)
def test_a_bug_changes_an_algorithm_or_says_why_it_cannot(found: patches.Bug) -> None:
    for name in algorithms.names("fwd"):
        diff = found.diff(name)
        assert bool(diff) != (name in found.absent)
        if diff:
            assert diff.startswith(f"--- kernels/{name}/")
            assert "\n-" in diff or "\n+" in diff


def test_a_diff_is_that_of_the_patch_and_of_nothing_else() -> None:
    assert bug("missing-scale").diff("flash2").splitlines()[3:] == [
        "     const int lane = threadIdx.x % WARP_SIZE;",
        "-    const float scale_log2 = scale * LOG2_E;",
        "+    const float scale_log2 = LOG2_E;",
        " ",
    ]


def test_an_unknown_bug_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no bug 'missing-scales'") as refused:
        bug("missing-scales")
    assert refused.value.hint == "Did you mean 'missing-scale'?"


def test_a_kernel_that_was_changed_is_refused() -> None:
    patch = Patch("a.cu", "one", "two")
    assert apply("one\n", [patch]) == "two\n"
    for text in ("none\n".replace("one", "ne"), "one one\n"):
        with pytest.raises(ValueError, match=r"a\.cu"):
            apply(text, [patch])


def test_changed_copies_lie_beside_the_kernels_as_they_are(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in kernels_dir().rglob("*") if path.is_file()}
    with changed_kernels() as folder:
        plain = (kernels_dir() / "flash2" / "flash2_fwd.cu").read_text(encoding="utf-8")
        assert (folder / "flash2" / "flash2_fwd.cu").read_text(encoding="utf-8") == plain
        right = (folder / "traced" / "flash2" / "flash2_fwd.cu").read_text(encoding="utf-8")
        wrong = (folder / "traced-missing-scale" / "flash2" / "flash2_fwd.cu").read_text(encoding="utf-8")
        # The bug is the only difference between the two that run.
        assert apply(right, [p for p in bug("missing-scale").patches if p.file.startswith("flash2")]) == wrong
        for name in ("traced", *(f"traced-{name}" for name in bugs())):
            assert (folder / name / "common" / "trace.cuh").is_file()
    assert not folder.exists()
    assert {path: path.read_bytes() for path in before} == before


def test_only_a_kernel_that_a_bug_changes_comes_from_its_folder() -> None:
    softmax = KernelSpec("standard/softmax.cu", "standard_softmax", (("NUM_WARPS", "8"),))
    scores = KernelSpec("standard/scores.cu", "standard_scores", (("BLOCK_N", "32"),))
    init = KernelSpec("flash1/flash1_init.cu", "flash1_init")
    found = bug("missing-scale")
    assert traced(scores, found, 32) == replace(scores, source="traced-missing-scale/standard/scores.cu")
    assert traced(scores, None, 32) == replace(scores, source="traced/standard/scores.cu")
    # The softmax kernel knows no tiles; it is told where the last one of a row is.
    assert traced(softmax, found, 32) == replace(
        softmax, source="traced/standard/softmax.cu", defines=(("NUM_WARPS", "8"), ("BLOCK_N", "32"))
    )
    assert traced(init, found, 32) is init
