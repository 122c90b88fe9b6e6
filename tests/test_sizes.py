"""Arithmetic on numbers and on arrays of them: the same, and as Python's own functions say."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fa_bench.sizes import ceil_div, choose, clamp, covering_power_up_to, floor_sum, least, most

small = st.integers(-50, 50)


@given(st.lists(st.tuples(small, small, st.integers(0, 60)), min_size=1, max_size=5))
def test_arrays_are_element_by_element_what_numbers_are(cases: list[tuple[int, int, int]]) -> None:
    one, other, more = (np.array(column) for column in zip(*cases, strict=True))
    for index, (a, b, c) in enumerate(cases):
        assert (least(a, b), most(a, b), clamp(a, b, b + c)) == (min(a, b), max(a, b), min(max(a, b), b + c))
        assert ceil_div(a, 7) == math.ceil(a / 7)
        assert least(one, other)[index] == min(a, b)
        assert most(one, other)[index] == max(a, b)
        assert clamp(one, other, other + more)[index] == clamp(a, b, b + c)
        assert choose(one > other, one, 0)[index] == (a if a > b else 0)
        assert ceil_div(one, 7)[index] == ceil_div(a, 7)


def test_python_numbers_stay_exact_beyond_64_bits() -> None:
    assert most(2**70, 3) == 2**70
    assert type(least(2**70, 2**71)) is int
    # 0 + 1 + ... + (2⁴⁰ - 1), each exactly.
    assert floor_sum(2**40, 16, 16, 0) == 2**39 * (2**40 - 1)


def test_covering_powers_are_cut() -> None:
    assert [covering_power_up_to(n, 8) for n in (0, 1, 2, 3, 4, 5, 8, 9)] == [1, 1, 2, 4, 4, 8, 8, 8]
    assert covering_power_up_to(np.array([1, 3, 100]), 16).tolist() == [1, 4, 16]


@given(st.integers(0, 60), st.integers(1, 256), st.integers(1, 256), st.integers(0, 5000))
def test_a_floor_sum_is_the_sum_of_floors(count: int, divisor: int, step: int, start: int) -> None:
    expected = sum((step * i + start) // divisor for i in range(count))
    assert floor_sum(count, divisor, step, start) == expected
    both = floor_sum(np.array([count, 0]), divisor, step, np.array([start, 9]))
    assert both.tolist() == [expected, 0]
