"""Claims (k), (l) and (m)."""

from __future__ import annotations

import numpy as np
import pytest
from judgements import passed, values

from fa_bench.claims import backward
from fa_bench.claims.online import relative_error


def test_the_gradient_of_q_by_hand() -> None:
    """One query, two keys, d = 1: q = 0, k = 0, 1, so P = 1/2, 1/2; v = 2, 4; dO = 1.

    O = Σ P·v, dO/dq = Σ_j P_j (v_j − O) k_j = 1/2 · (4 − 3) · 1 = 1/2.
    As stated: dO·Vᵀ = 2, 4; Σ over the one column that P and dO share: 1/2 · 1; (2 − 1/2, 4 − 1/2) ∘ P = 3/4, 7/4.
    """
    q, k, v = np.array([[0.0]]), np.array([[0.0], [1.0]]), np.array([[2.0], [4.0]])
    d_o, p = np.array([[1.0]]), np.array([[0.5, 0.5]])
    assert backward.right_gradient(q, k, v, d_o, p).tolist() == [[0.5]]
    assert backward.printed_gradient(q, k, v, d_o, p).tolist() == [[0.75, 1.75]]
    assert backward.differences(q, k, v, d_o).item() == pytest.approx(0.5, abs=1e-9)


def test_the_gradient_as_stated_has_another_shape_and_another_value() -> None:
    judgement = backward.query_gradient()
    found = values(judgement)
    assert found["size"] == 3  # 24 x 24 for 24 x 8
    assert found["with_k"] > 0.1
    assert max(found["right"], found["right_rectangular"]) < 1e-8
    assert judgement.verdict == "does-not-hold"


def test_the_right_gradient_holds_and_half_of_it_does_not() -> None:
    assert backward.query_gradient(backward.right_gradient).verdict == "holds"

    def without_k(q, k, v, d_o, p):  # type: ignore[no-untyped-def]
        d_p = d_o @ v.T
        return p * (d_p - (p * d_p).sum(axis=1, keepdims=True)) / q.shape[1] ** 0.5

    # The sum mended and K left out: the value is right once K is appended.
    assert passed(backward.query_gradient(without_k)) == {"value"}


def test_finite_differences_find_a_wrong_gradient() -> None:
    q, k, v, d_o = np.random.default_rng(0).standard_normal((4, 6, 3))
    p = np.exp(q @ k.T / 3**0.5)
    p /= p.sum(axis=1, keepdims=True)
    numeric = backward.differences(q, k, v, d_o)
    assert relative_error(backward.right_gradient(q, k, v, d_o, p), numeric) < 1e-8
    assert relative_error(2 * backward.right_gradient(q, k, v, d_o, p), numeric) > 0.9


def test_what_is_stored() -> None:
    """m and l of 4096 rows are 2 · 16 KiB; LSE 16 KiB. Q, K, V and O are 512 KiB each: O + LSE = 528 of 2064 KiB."""
    judgement = backward.stored_statistics()
    found = values(judgement)
    assert (found["flash1_rows"], found["flash2_rows"]) == (2, 1)
    assert found["named_share"] == pytest.approx(528 / 2064)
    assert found["score_matrix"] == pytest.approx(32 * 1024 / 2064)
    assert passed(judgement) == {"flash1"}
    assert passed(backward.stored_statistics(stated_rows=1)) == {"flash2"}


def test_when_recomputing_is_faster() -> None:
    """Break-even d = rate · bytes / (2 · bandwidth): 312 · 2 / 3 = 208 and 19.5 · 4 / 3 = 26.

    N = 4096, d = 64: 2·N²·d = 2.147 GFLOP are 6.88 µs at 312 TFLOP/s and 110.1 µs at 19.5; reading 33.6 MB at 1.5 TB/s
    takes 22.4 µs, 67.1 MB 44.7 µs.
    """
    judgement = backward.recomputation()
    found = values(judgement)
    assert (found["tensor_break_even"], found["vector_break_even"]) == pytest.approx((208, 26))
    assert found["tensor_recompute"] == pytest.approx(6.883e-3, abs=1e-6)
    assert found["vector_recompute"] == pytest.approx(110.13e-3, abs=1e-5)
    assert (found["tensor_read"], found["vector_read"]) == pytest.approx((22.37e-3, 44.74e-3), abs=1e-5)
    # 16 · 108 · 1.41 GHz = 2.436e12 exponentials a second.
    assert found["exponentials"] == pytest.approx(6.886e-3, abs=1e-6)
    assert (found["flops_backward"], found["flops_both"]) == pytest.approx((5 / 4, 7 / 6))
    assert passed(judgement) == {"faster_tensor"}


def test_other_rates_and_other_flops_turn_the_readings() -> None:
    # At 312 TFLOP/s fp32 would be faster as well; at 60 TFLOP/s, 60 · 2 / 3 = 40 < 64, tensor cores would not.
    assert {"faster_tensor", "faster_vector"} <= passed(backward.recomputation(vector_tflops=312))
    assert backward.recomputation(tensor_tflops=60).verdict == "does-not-hold"
    assert backward.recomputation(stated_flops=1.2, vector_tflops=312).verdict == "holds"


def test_both_passes_move_less_and_execute_more() -> None:
    """Seven products for six with atomics; nine where dQ has a kernel of its own that makes S and dP again."""
    found = values(backward.recomputation())
    assert found["work_standard"] == 1
    assert found["work_flash2_atomic"] == pytest.approx(7 / 6)
    assert found["work_flash2"] == pytest.approx(9 / 6)
    assert found["dram_standard"] > 10 * max(found["dram_flash2"], found["dram_flash2_atomic"])
