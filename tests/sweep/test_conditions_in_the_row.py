"""What a row says of the conditions that nobody chose: values of the inputs, alignment of the mask, the timer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_sweep import EPOCH, GPU, predict

from fa_bench.backends.base import RunResult, Samples, Verification
from fa_bench.cases import AttentionShape, Case
from fa_bench.sweep.build import Site, run_record, unrun_record

CASE = Case("numpy-flash", AttentionShape(1, 1, 1, 2, 5, 64), seed=3)
SITE = Site("run", EPOCH, "host", "a CPU", GPU)


def test_a_row_says_which_values_were_drawn_and_by_which_seed() -> None:
    record = unrun_record(SITE, CASE, "error", "Why.", None)
    assert (record.init, record.seed) == ("normal", 3)


@pytest.mark.parametrize(("causal", "align"), [(True, "bottom-right"), (False, None)])
def test_a_causal_row_says_where_its_mask_is_aligned(causal: bool, align: str | None) -> None:
    case = replace(CASE, shape=replace(CASE.shape, causal=causal))
    assert unrun_record(SITE, case, "error", "Why.", None).causal_align == align


def test_a_time_stands_beside_its_timer_and_the_state_of_l2() -> None:
    verification = Verification(1e-4, 1e-4, bound=1e-3, reference="fp64", passed=True)
    samples = Samples((1.0, 2.0, 3.0), "host-clock", "warm")
    record = run_record(SITE, CASE, RunResult(samples=samples, verification=verification), predict(CASE, GPU))
    assert (record.time_ms, record.time_source, record.l2_state) == (2.0, "host-clock", "warm")
