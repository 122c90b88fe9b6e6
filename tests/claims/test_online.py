"""Claims (h) and (i), and the small functions that they are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from judgements import passed, values

from fa_bench.claims import online
from fa_bench.claims.result import ROUNDING


def test_the_update_of_o_lacks_a_factor_and_those_of_m_and_l_do_not() -> None:
    judgement = online.updates()
    found = values(judgement)
    assert passed(judgement) == {"statistics", "output_1"}
    assert judgement.verdict == "holds-if"
    # The more blocks, the more of them are added whole.
    assert ROUNDING < found["o_error_4"] < found["o_error_32"]
    assert found["o_error_mended"] < 1e-13


def test_with_the_factor_it_holds() -> None:
    assert online.updates(online.right_weight).verdict == "holds"


def test_two_blocks_of_one_key_each_by_hand() -> None:
    """Scores 0 and ln 3: P = 1/4, 3/4, so O = (1 · 4 + 3 · 8) / 4 = 7 of V = 4, 8.

    As printed: after the first block O = 4, m = 0, l = 1; then m = ln 3, l = 1/3 + 1 = 4/3, and
    O = 4 · (1 / (4/3)) · (1/3) + 8 = 1 + 8 = 9. The factor is 1 · 1 / (4/3) = 3/4: 1 + 6 = 7.
    """
    s, v = np.array([[0.0, math.log(3)]]), np.array([[4.0], [8.0]])
    o, m, l = online.online(s, v, 2, online.printed_weight)  # noqa: E741 - the papers' names
    assert o.item() == pytest.approx(9)
    assert (m.item(), l.item()) == pytest.approx((math.log(3), 4 / 3))
    assert online.online(s, v, 2, online.right_weight)[0].item() == pytest.approx(7)


def test_the_pseudo_code_by_hand() -> None:
    """d = 1, so that 1/√d is 1: q = 1, k = 0 and ln 3, V = 4 and 8, two blocks.

    As printed: O = 4, l = 1; then m = ln 3, O = 4/3 + 8 = 28/3, l = 4/3, O/l = 7. It is right only because blocks of
    one key have softmax 1 = e^(S − m_new) where the maximum rises. In one block O = 7, l = 4/3: 21/4 = 5.25.
    """
    q, k, v = np.array([[1.0]]), np.array([[0.0], [math.log(3)]]), np.array([[4.0], [8.0]])
    assert online.pseudo_code(q, k, v, 2, scaled=True, unnormalised=False).item() == pytest.approx(7)
    assert online.pseudo_code(q, k, v, 1, scaled=True, unnormalised=False).item() == pytest.approx(5.25)
    assert online.pseudo_code(q, k, v, 1, scaled=True, unnormalised=True).item() == pytest.approx(7)


def test_the_scale_counts_where_d_is_not_one() -> None:
    """d = 4: q·k = 4 · ln 3 / 2 over √4 is ln 3, so P = 1/4, 3/4; unscaled e^(2 ln 3) = 9: 1/10, 9/10."""
    q = np.ones((1, 4))
    k = np.stack([np.zeros(4), np.full(4, math.log(3) / 2)])
    v = np.array([[4.0], [8.0]])
    assert online.pseudo_code(q, k, v, 1, scaled=True, unnormalised=True).item() == pytest.approx(7)
    assert online.pseudo_code(q, k, v, 1, scaled=False, unnormalised=True).item() == pytest.approx(7.6)


def test_neither_correction_is_enough_alone() -> None:
    judgement = online.algorithm_as_code()
    found = values(judgement)
    assert judgement.verdict == "does-not-hold"
    assert min(found["only_scaled_1"], found["only_scaled"], found["only_unnormalised"]) > 0.5
    assert found["both_mended"] < 1e-13


def test_the_pseudo_code_holds_with_both_corrections() -> None:
    assert passed(online.algorithm_as_code(scaled=True)) == {"standard"}
    assert online.algorithm_as_code(scaled=True, unnormalised=True).verdict == "holds"


def test_an_error_that_is_no_number_is_infinite() -> None:
    assert online.relative_error(np.array([np.nan, 1.0]), np.array([1.0, 1.0])) == math.inf
    assert online.relative_error(np.array([1.0, 3.0]), np.array([1.0, 4.0])) == 0.25
