"""The order of tiles with figures that were made up, and which is recommended."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from made_tiles import known, timed

from fa_bench.tuning.rank import rank


def test_predictions_beyond_a_fifth_decide() -> None:
    slow, fast = known(128, ms=1.21, nbytes=1), known(64, ms=1.0, nbytes=8)
    ranking = rank([slow, fast])
    assert (ranking.basis, ranking.best) == ("prediction", fast)
    assert ranking.ratio(slow) == 1.21


def test_predictions_within_a_fifth_are_not_told_apart_and_the_fewest_bytes_win() -> None:
    least, close, far = known(64, ms=1.0, nbytes=8), known(128, ms=1.19, nbytes=4), known(256, ms=2.0, nbytes=2)
    ranking = rank([far, least, close])
    assert ranking.order == (least, close, far)
    assert ranking.close == (least, close)
    assert ranking.best == close
    assert ranking.fewest_bytes == far


def test_a_tile_that_spills_comes_last() -> None:
    spills, clean = known(128, ms=1.0, nbytes=1, spill=56), known(64, ms=3.0)
    ranking = rank([spills, clean])
    assert ranking.order == (clean, spills)
    assert ranking.best == clean


def test_a_tile_that_spills_is_held_against_no_other() -> None:
    """Its prediction is a third of the least, and leaves out what spilling costs."""
    spills, clean = known(128, ms=1.0, nbytes=1, spill=56), known(64, ms=3.0)
    ranking = rank([spills, clean])
    assert [ranking.ratio(one) for one in ranking.order] == [1.0, None]
    measured = rank([timed(spills, 1.0), timed(clean, 3.0)])
    assert [measured.ratio(one) for one in measured.order] == [1.0, 3.0]


def test_where_every_tile_spills_one_is_recommended() -> None:
    assert rank([known(64, ms=2.0, spill=8), known(128, ms=1.0, spill=8)]).best == known(128, ms=1.0, spill=8)


def test_a_measured_time_decides_over_prediction_spills_and_bytes() -> None:
    predicted = timed(known(64, ms=1.0, nbytes=1), 2.0)
    measured = timed(known(128, ms=9.0, nbytes=9, spill=8), 1.9)
    ranking = rank([predicted, measured])
    assert (ranking.basis, ranking.best) == ("time", measured)
    assert ranking.close == (measured,)


def test_a_wrong_tile_is_out_however_fast() -> None:
    for wrong in (known(128, ms=0.1, status="wrong_result"), timed(known(128, ms=0.1), 0.1, "wrong_result")):
        ranking = rank([wrong, known(64, ms=1.0)])
        assert ranking.best == known(64, ms=1.0)
        assert ranking.out == (wrong,)


def test_a_time_that_cannot_be_is_no_time() -> None:
    impossible = timed(known(128, ms=1.0), 0.001, "invalid_timing")
    ranking = rank([impossible, timed(known(64, ms=2.0), 2.0)])
    assert ranking.out == (impossible,)


def test_without_a_compiler_bytes_are_all_there_is() -> None:
    few, many = (known(m, nbytes=n, spill=None, status="unknown") for m, n in ((128, 1), (64, 2)))
    ranking = rank([many, few])
    assert (ranking.basis, ranking.order) == ("bytes", (few, many))


def test_no_tile_no_recommendation() -> None:
    ranking = rank([known(status="failed")])
    assert ranking.best is None
    assert ranking.close == ()
