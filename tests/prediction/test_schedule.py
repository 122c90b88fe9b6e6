"""When the last CTA ends: worked out by hand, and against a schedule of every CTA."""

from __future__ import annotations

import pytest

from fa_bench.prediction.schedule import Grid


def brute(lengths: list[float], places: int) -> float:
    """Each CTA in turn to the place that is free first."""
    ends = [0.0] * places
    for length in lengths:
        first = min(range(places), key=ends.__getitem__)
        ends[first] += length
    return max(ends)


@pytest.mark.parametrize(
    ("grid", "sms", "overhead", "end"),
    [
        # Four SMs, four equal CTAs of 3 tiles: one round. A fifth CTA: a second one.
        (Grid((3,), 4), 4, 0.0, 3.0),
        (Grid((3,), 5), 4, 0.0, 6.0),
        # Each CTA takes half a tile more: two rounds of 3.5.
        (Grid((3,), 5), 4, 0.5, 7.0),
        # 1 2 3 4 on two SMs: 1 then 3, 2 then 4 -> 6. Longest first: 4 then 1, 3 then 2 -> 5.
        (Grid((1, 2, 3, 4), 1), 2, 0.0, 6.0),
        (Grid((1, 2, 3, 4), 1, "longest first"), 2, 0.0, 5.0),
    ],
)
def test_one_cta_per_sm(grid: Grid, sms: int, overhead: float, end: float) -> None:
    assert grid.end(sms, 1, overhead) == pytest.approx(end)


def test_two_ctas_share_an_sm() -> None:
    """Eight places of half the speed hold four CTAs of 4 tiles for 8; alone on an SM each, they would take 4.

    The end lies 0.4 of the way between: 4 + 0.4 * 4. Eight CTAs fill all places: 8 either way.
    """
    assert Grid((4,), 4).end(4, 2, 0.0) == pytest.approx(5.6)
    assert Grid((4,), 8).end(4, 2, 0.0) == pytest.approx(8.0)


@pytest.mark.parametrize("slices", [1, 7, 40])
def test_every_cta_is_scheduled_as_by_hand(slices: int) -> None:
    lengths = (1, 4, 2, 7, 3)
    asked = [float(length) for _ in range(slices) for length in lengths]
    # 40 slices have 200 CTAs, more than the 8 per place that are scheduled one by one: before them all places are busy.
    assert Grid(lengths, slices).end(6, 1, 0.0) == pytest.approx(brute(asked, 6), rel=0.02)


def test_longest_first_is_sorted_over_all_slices() -> None:
    lengths = (5, 1, 3)
    asked = sorted((float(length) for _ in range(9) for length in lengths), reverse=True)
    assert Grid(lengths, 9, "longest first").end(4, 1, 0.0) == pytest.approx(brute(asked, 4))


def test_no_schedule_beats_the_mean_nor_the_longest() -> None:
    grid = Grid(tuple(range(1, 65)), 33)
    end = grid.end(132, 1, 1.5)
    assert end >= (grid.tiles + 1.5 * grid.ctas) / 132
    assert end >= 65.5
    # Graham's bound for list scheduling: the mean, and at most one longest CTA more.
    assert end <= (grid.tiles + 1.5 * grid.ctas) / 132 + 65.5


def test_between_grid_points_the_end_lies_on_a_line() -> None:
    grid = Grid((2, 4, 6), 11)
    low, middle, high = (grid.end(7, 1, overhead) for overhead in (1.0, 1.5, 2.0))
    assert middle == pytest.approx((low + high) / 2)
