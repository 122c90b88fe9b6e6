"""The predicted time, from numbers that fit on paper."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
from fa_bench.tuning.predict import balance_of, customers, kernel_ms, predict, queueing_ms

GPU = gpus.get("a100")
#: SMs times clocks per ms.
CLOCKS = 108 * 1.41e6


def test_ctas_queue_for_the_units_of_an_sm() -> None:
    """Two units, 4 and 2 ms of work. One customer: 6. With a second it finds 2/3 and 1/3 of a customer there: 4 · 5/3 +
    2 · 4/3 = 28/3 for both, 14/3 each. A third: it finds 10/7 and 4/7, so 4 · 17/7 + 2 · 11/7 = 90/7, 30/7 each.
    """
    assert queueing_ms([4, 2], 0, 1) == 6
    assert queueing_ms([4, 2], 0, 2) == pytest.approx(14 / 3)
    assert queueing_ms([4, 2], 0, 3) == pytest.approx(30 / 7)


def test_a_wait_is_hidden_by_other_ctas() -> None:
    """4 ms of work and 4 of waiting. Alone 8; another is at the unit half of the time: (4 · 1.5 + 4) / 2."""
    assert queueing_ms([4], 4, 1) == 8
    assert queueing_ms([4], 4, 2) == 5


def test_small_ctas_count_for_their_share_of_the_schedulers() -> None:
    assert [customers(6, 2), customers(3, 1), customers(5, 2)] == [(3, 3), (1, 1), (2, 2)]


def test_a_cta_of_eight_warps_is_between_one_and_two() -> None:
    """4 and 2 ms: one customer takes 6, two take 14/3; half-way is 16/3."""
    assert [customers(1, 8), customers(2, 8)] == [(1, 2), (2, 4)]
    assert kernel_ms({"tensor": 4.0, "shared": 2.0, "issue": 0.0, "dram": 0.0}, (1, 2), 1.0) == pytest.approx(16 / 3)


def test_issue_and_dram_bound_from_below() -> None:
    alone = {"tensor": 1.0, "issue": 5.0, "dram": 2.0}
    assert kernel_ms(alone, (1, 1), 1.0) == 5
    assert kernel_ms(alone | {"dram": 7.0}, (1, 1), 1.0) == 7
    # Half of the SMs have nothing to do; DRAM has as much as before.
    assert kernel_ms(alone | {"dram": 7.0}, (1, 1), 0.5) == 10


def test_an_sm_with_one_cta_more_is_waited_for() -> None:
    assert balance_of(109, GPU) == pytest.approx(109 / 216)


def test_the_terms_of_a_tile() -> None:
    """One slice of 128 x 128, D = 64, tile 64 x 64: two CTAs, four tiles of scores, 4 · 4 · 64³ = 4,194,304 FLOPs.

    108 wavefronts are 1 clock of all SMs, 432 instructions too. 128 · 32 lanes are 64 clocks of 64 lanes: 19.5 TFLOP/s
    / 2 / 108 / 1.41 GHz = 64.03 lanes. With one stage 8 copies are waited for, 8 · 279 clocks of 108 SMs' time.
    """
    flash2 = algorithms.get("flash2")
    case = Case("flash2", AttentionShape(1, 1, 1, 128, 128, 64), tile=Tile(64, 64, 1, 4))
    work = flash2.work(case)
    assert work is not None
    counted = {"wavefronts": 108.0, "conflicts": 0.0, "instructions": 432.0, "float_instructions": 128.0}
    made = predict(case, work, flash2.program(case).launches, {"flash2_fwd": 2039}, {"flash2_fwd": counted}, 2, GPU)  # type: ignore[dict-item]
    assert made is not None
    clock_ms = 1 / 1.41e6
    assert made.terms_ms["shared"] == pytest.approx(clock_ms)
    assert made.terms_ms["issue"] == pytest.approx(clock_ms)
    assert made.terms_ms["fma"] == pytest.approx(128 * 32 / (64.03 * CLOCKS), rel=1e-3)
    assert made.terms_ms["wait"] == pytest.approx(8 * 279 / CLOCKS)
    assert made.terms_ms["tensor"] == pytest.approx(4_194_304 / 312e9)
    assert made.terms_ms["dram"] == pytest.approx(1e-6)
    assert made.balance == pytest.approx(2 / 108)
    units = [made.terms_ms[unit] for unit in ("tensor", "fma", "exp", "shared")]
    # A CTA has its SM to itself, although two would fit.
    assert made.ms == pytest.approx((sum(units) + made.terms_ms["wait"]) / (2 / 108))


def test_with_a_second_stage_each_cta_waits_for_its_first_keys() -> None:
    """Two CTAs: nothing runs before the first K is there; all other copies are a tile ahead."""
    flash2 = algorithms.get("flash2")
    case = Case("flash2", AttentionShape(1, 1, 1, 128, 128, 64), tile=Tile(64, 64, 2, 4))
    work = flash2.work(case)
    assert work is not None
    counted = {"wavefronts": 1.0, "conflicts": 0.0, "instructions": 1.0, "float_instructions": 1.0}
    made = predict(case, work, flash2.program(case).launches, {}, {"flash2_fwd": counted}, 2, GPU)  # type: ignore[dict-item]
    assert made is not None
    assert made.terms_ms["wait"] == pytest.approx(2 * 279 / CLOCKS)
