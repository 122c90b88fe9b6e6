"""Claims (r), (t) and (u)."""

from __future__ import annotations

import numpy as np
import pytest
from judgements import passed, values

from fa_bench.claims import emulated, exactness
from fa_bench.claims.online import Float64, drawn, printed_weight, softmax


def test_it_is_exact() -> None:
    judgement = exactness.exact()
    found = values(judgement)
    assert judgement.verdict == "holds"
    assert found["algebra"] < 1e-13
    # fp16 has 11 bits, and |O| < 1 here: half of the last place is at most 2^-12. Rounding P and S adds more.
    assert found["flash2_error"] < found["rounded_standard"] < 2**-9


def test_with_the_wrong_update_it_would_not_be() -> None:
    assert "algebra" not in passed(exactness.exact(printed_weight))


def test_without_a_compiler_float64_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "run", lambda case: None)
    judgement = exactness.exact()
    assert (judgement.lacking, judgement.verdict) == (("compiler",), "holds-if")


def test_tiling_is_not_sparsity() -> None:
    """Of 8 x 8 blocks 2 in each row are kept: 16 of 64. Q-outer in blocks of 32 at N = 256, d = 64:

    2·256·64 + 64 · 2·32·64 = 294,912 elements, and with 16 blocks 98,304; standard 4·256² + 4·256·64 = 327,680.
    """
    judgement = exactness.tiling_or_sparsity()
    found = values(judgement)
    assert judgement.verdict == "holds"
    assert (found["tiled_flops"], found["sparse_flops"]) == (1, 0.25)
    assert (found["tiled_moved"], found["sparse_moved"]) == (294_912 / 327_680, 98_304 / 327_680)


def test_a_tiling_that_is_wrong_would_be_noticed() -> None:
    assert "same_result" not in passed(exactness.tiling_or_sparsity(printed_weight))


def test_linear_attention_has_low_rank_and_is_no_approximation() -> None:
    judgement = exactness.linear_attention()
    found = values(judgement)
    assert (found["rank"], found["softmax_rank"]) == (64, 256)
    assert found["best_error"] < found["error"] / 2
    assert passed(judgement) == {"rank"}


def test_features_that_give_softmax_itself_turn_both_readings() -> None:
    """φ(Q) = P and φ(K) = 1: the matrix is P, of full rank and without error."""
    q, k, _ = drawn(exactness.SEQ, exactness.D)
    given = iter((softmax(q @ k.T / 8), np.eye(exactness.SEQ)))

    def feature(x: Float64) -> Float64:
        return next(given)

    judgement = exactness.linear_attention(feature)
    assert values(judgement)["rank"] == 256
    assert passed(judgement) == {"approximation"}
