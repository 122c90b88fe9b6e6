"""A tuning from its question to its answer, on a backend that counts by a formula."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made_tiles import CountingBackend, timed

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import UsageError
from fa_bench.model import gpus
from fa_bench.records import Record
from fa_bench.tuning.counts import Trial, trial
from fa_bench.tuning.known import known
from fa_bench.tuning.run import Question, question, tune

GPU = gpus.get("a100")
FLASH2 = algorithms.get("flash2")
SHAPE = AttentionShape(4, 16, 16, 4096, 4096, 128)
ASKED = Question(Case("flash2", SHAPE), FLASH2, GPU, (1,))


def attempt(cases: Sequence[Case]) -> Generator[Trial, None, None]:
    backend = CountingBackend()
    return (trial(case, FLASH2, backend, GPU) for case in cases)


def test_every_legal_tile_is_tried_and_every_other_has_its_reason() -> None:
    """25 sizes, FlashAttention-1's 128 x 160, and FlashAttention-2's 128 x 64 with four warps where ours has eight; two
    lack registers or shared memory: 256 x 128, 256 x 256.
    """
    said: list[str] = []
    tuning = tune(ASKED, attempt, announce=said.append)
    assert len(tuning.tried) == tuning.total == 25
    assert [(str(r.tile), r.lack) for r in tuning.refused] == [("256x128", "registers"), ("256x256", "smem")]
    assert said[0] == "0/25 tiles tried"
    assert said[-1].startswith("25/25 tiles tried; flash2 ")
    assert {made.trial.status for made in tuning.tried} == {"ok"}
    assert [str(outcome.rule.tile) for outcome in tuning.rules] == ["128x32", "128x64", "128x160", "16x16", "16x16"]
    assert all(outcome.known in tuning.tried for outcome in tuning.rules)


def test_global_bytes_are_the_model_s_at_the_length_that_was_asked() -> None:
    tuning = tune(ASKED, attempt)
    (made,) = (made for made in tuning.tried if made.tile == Tile(128, 64, 1, 4))
    # Q, O 64 MiB each, LSE 1 MiB; K and V: 32 tiles of Q read 64 MiB each. Sixty-four slices of 4096 rows of 256 B.
    assert made.global_bytes == (2 * 64 + 1 + 2 * 32 * 64) * 2**20


def test_times_decide_where_there_is_a_gpu_and_tiles_are_timed_in_groups() -> None:
    groups: list[int] = []

    def timer(cases: Sequence[Case]) -> list[Record]:
        groups.append(len(cases))
        made = [known(next(iter(attempt([case]))), FLASH2, GPU) for case in cases]
        times = [1.0 if case.tile == Tile(32, 128, 1, 2) else 2.0 for case in cases]
        records = [timed(one, ms).record for one, ms in zip(made, times, strict=True)]
        return [record for record in records if record is not None]

    tuning = tune(ASKED, attempt, timer)
    assert tuning.ranking.basis == "time"
    assert tuning.ranking.best is not None
    assert tuning.ranking.best.tile == Tile(32, 128, 1, 2)
    assert groups == [4] * 6 + [1]


def test_dram_bytes_are_counted_of_the_recommendation_and_the_rules_only() -> None:
    asked: list[Case] = []

    def dram(case: Case) -> int:
        asked.append(case)
        return 1000 + len(asked)

    tuning = tune(ASKED, attempt, dram=dram)
    best = tuning.ranking.best
    assert best is not None
    assert best.dram_bytes_emulated == 1001
    # 128 x 32, 128 x 64, 128 x 160, 16 x 16 of the rules, and the recommendation if it is none of them.
    assert {str(case.tile) for case in asked} == {"128x32", "128x64", "128x160", "16x16", str(best.tile)}
    assert len(asked) == len(set(asked))
    counted = {made.tile for made in tuning.tried if made.dram_bytes_emulated is not None}
    assert counted == {case.tile for case in asked}


def test_an_interrupt_keeps_what_was_tried() -> None:
    def stopped(cases: Sequence[Case]) -> Generator[Trial, None, None]:
        yield from attempt(cases[:3])
        raise KeyboardInterrupt

    tuning = tune(ASKED, stopped)
    assert tuning.interrupted
    assert (len(tuning.tried), tuning.total) == (3, 25)
    assert any(outcome.known is None and outcome.refused is None for outcome in tuning.rules)


def test_an_interrupt_before_anything_was_tried_is_one() -> None:
    def stopped(cases: Sequence[Case]) -> Generator[Trial, None, None]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(ASKED, stopped)


def test_a_kernel_that_is_built_for_its_length_is_refused() -> None:
    with pytest.raises(UsageError, match="standard has kernels that are built for the length"):
        question(Case("standard", SHAPE), algorithms.get("standard"), GPU, (1,))


def test_a_gpu_that_runs_none_of_our_kernels_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"flash2 needs cp\.async .* so compute capability 8\.0"):
        tune(Question(Case("flash2", SHAPE), FLASH2, gpus.get("t4"), (1,)), attempt)


def test_only_the_depths_that_were_asked_for_are_tried() -> None:
    """At D = 64 our default has two stages."""
    shape = AttentionShape(4, 16, 16, 4096, 4096, 64)
    assert FLASH2.auto_tile(Case("flash2", shape), GPU).stages == 2
    for stages in (1, 2):
        tuning = tune(Question(Case("flash2", shape), FLASH2, GPU, (stages,)), attempt)
        assert {made.tile.stages for made in tuning.tried} == {stages}
