"""Energy per launch on a fake board, whose counter moves in steps as the clock goes on. No figure here is a GPU's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fa_bench.measure.energy import Energy, energy_per_launch


class Board:
    """A GPU that draws ``watts``, runs launches of ``launch_ms`` and updates its counter every ``period_ms``.

    Reading takes ``read_ms``, during which what is queued goes on.
    """

    def __init__(self, launch_ms: float, period_ms: float, watts: float = 300.0, read_ms: float = 1.0) -> None:
        self.launch_ms, self.period_ms, self.watts, self.read_ms = launch_ms, period_ms, watts, read_ms
        self.now_ms = 93.0  # shortly before a step of most counters
        self.busy_until_ms = 0.0
        self.idle_ms = 0.0
        self.launches = 0

    def launch(self) -> None:
        if self.launches:
            self.idle_ms += max(0.0, self.now_ms - self.busy_until_ms)
        self.busy_until_ms = max(self.busy_until_ms, self.now_ms) + self.launch_ms
        self.launches += 1

    def synchronize(self) -> None:
        self.now_ms = max(self.now_ms, self.busy_until_ms)

    def read_mj(self) -> int | None:
        self.now_ms += self.read_ms
        return int(self.watts * (self.now_ms // self.period_ms) * self.period_ms)

    def clock(self) -> float:
        return self.now_ms / 1e3

    def measure(self, read: Callable[[], int | None] | None = None, **limits: float) -> Energy:
        return energy_per_launch(
            read or self.read_mj,
            self.launch,
            self.synchronize,
            launch_ms=self.launch_ms,
            clock=self.clock,
            **limits,
        )


@pytest.mark.parametrize("period_ms", [1.0, 20.0, 100.0])
@pytest.mark.parametrize("launch_ms", [0.05, 1.0, 7.0, 400.0])
def test_energy_is_power_times_the_time_of_a_launch_however_coarse_the_counter(
    launch_ms: float, period_ms: float
) -> None:
    board = Board(launch_ms, period_ms)
    energy = board.measure()
    # 300 W for so many ms is as many times 300 mJ. Two steps are seen up to a chunk (10 ms or a launch) late, in 1 s.
    assert energy.mj_per_launch == pytest.approx(300 * launch_ms, rel=0.025 if launch_ms < 100 else 0.11)
    assert energy.launches is not None and energy.launches * launch_ms >= 990
    assert energy.reason == ""


def test_the_gpu_is_never_idle_while_the_counter_is_read() -> None:
    board = Board(launch_ms=1.0, period_ms=20.0, read_ms=8.0)
    board.measure()
    assert board.idle_ms == 0.0


def test_readings_around_the_batch_alone_would_carry_the_counters_period() -> None:
    # Why steps: with a counter of 400 ms, 1 s of launches between any two moments reads as 2 or 3 steps of it.
    board = Board(launch_ms=1.0, period_ms=400.0)
    before, launched = board.read_mj(), board.launches
    while board.launches - launched < 1000:
        board.launch()
        board.synchronize()
    after = board.read_mj()
    assert before is not None and after is not None
    assert abs((after - before) / 1000 / 300 - 1) > 0.15
    assert board.measure().mj_per_launch == pytest.approx(300, rel=0.02)


def test_a_board_without_a_counter_has_a_reason_and_launches_nothing() -> None:
    board = Board(1.0, 20.0)
    assert board.measure(lambda: None).reason == "the board has no energy counter that can be read"
    assert board.launches == 0


def test_a_counter_that_stops_answering_leaves_no_figure() -> None:
    answers = iter([5, 5, None])
    assert Board(1.0, 20.0).measure(lambda: next(answers)) == Energy(reason="the energy counter stopped answering")


def test_a_counter_that_does_not_move_costs_a_second_and_no_more() -> None:
    board = Board(1.0, 20.0)
    # Zero is a reading like any other.
    assert board.measure(lambda: 0) == Energy(reason="the energy counter did not move in 1 s")
    assert 1000 <= board.now_ms - 93 < 1030


def test_a_counter_is_not_given_up_during_a_launch_of_more_than_a_second() -> None:
    board = Board(2400.0, 100.0)
    # Read at the start of the first three launches: the second reading is a step, the third ends the batch.
    assert board.measure().launches == 1


def test_a_counter_that_moves_once_ends_at_the_cap() -> None:
    board = Board(1.0, 20.0)
    assert board.measure(lambda: int(board.now_ms > 500)).reason == "the energy counter moved too rarely in 6 s"


def test_a_counter_that_starts_anew_leaves_no_figure() -> None:
    board = Board(1.0, 20.0)
    assert board.measure(lambda: 10**6 - int(board.now_ms)).reason == "the energy counter ran backwards"


def test_a_launch_that_does_not_fit_twice_is_not_tried() -> None:
    board = Board(2600.0, 20.0)
    assert board.measure().reason == "one launch takes too long for a measurement of 6 s"
    assert board.launches == 0
