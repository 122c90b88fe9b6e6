"""The normal distribution, against the error function and by known figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fa_bench.model.normal import normal


def test_known_figures() -> None:
    # One, two and three standard deviations: 0.8413447460685429, 0.9772498680518208, 0.9986501019683699.
    found = normal(np.array([0.0, 1.0, 2.0, 3.0, -1.0]))
    expected = [0.5, 0.8413447460685429, 0.9772498680518208, 0.9986501019683699, 1 - 0.8413447460685429]
    assert found.tolist() == pytest.approx(expected, abs=1e-14)
    assert float(normal(0.0)) == 0.5


def test_it_is_that_of_the_error_function_everywhere() -> None:
    points = np.linspace(-9, 9, 30_011)
    exact = np.array([0.5 * (1 + math.erf(z / math.sqrt(2))) for z in points])
    assert np.abs(normal(points) - exact).max() < 2e-14


def test_far_out_it_is_certain() -> None:
    assert normal(np.array([8.5, 40.0, math.inf])).tolist() == [1.0, 1.0, 1.0]
    assert normal(np.array([-8.5, -40.0, -math.inf])).tolist() == [0.0, 0.0, 0.0]


def test_a_number_and_an_array_of_it_agree() -> None:
    points = np.random.default_rng(3).normal(0, 3, 500)
    assert normal(points).tolist() == [float(normal(float(point))) for point in points]
