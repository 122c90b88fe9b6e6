"""Windows and features in float64 against the definitions, one pair at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fa_bench.cases import AttentionShape, Case, Features
from fa_bench.random_bits import keep_mask
from fa_bench.reference import attention_fp64, make_inputs, verify
from fa_bench.scoring import Scoring, alibi_slopes
from fa_bench.storage import decode, encode

SHAPE = AttentionShape(2, 4, 2, 9, 13, 16, head_dim_v=24)
FEATURES = [
    Features(),
    Features(softcap=2.0),
    Features(bias=True),
    Features(alibi=True),
    Features(sinks=True),
    Features(dropout_p=0.4),
    Features(softcap=5.0, bias=True, alibi=True, sinks=True, dropout_p=0.2),
]
MASKS = [{}, {"causal": True}, {"window_left": 3}, {"window_left": 2, "window_right": 1}, {"window_right": 0}]


def one_by_one(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """O and LSE with Python's own loops."""
    s, f = case.shape, case.features
    t = {name: decode(values, np.float64) for name, values in make_inputs(case).items()}
    o, lse = np.zeros((s.batch, s.heads_q, s.seq_q, s.dim_v)), np.full((s.batch, s.heads_q, s.seq_q), -np.inf)
    for b, h, i in np.ndindex(*lse.shape):
        scores = {}
        for j in range(s.seq_kv):
            apart = i + s.seq_kv - s.seq_q - j
            if s.causal and apart < 0:
                continue
            if s.window_left is not None and apart > s.window_left:
                continue
            if s.window_right is not None and -apart > s.window_right:
                continue
            x = float(t["Q"][b, h, i] @ t["K"][b, h // s.group, j]) / math.sqrt(s.head_dim)
            if f.softcap:
                x = f.softcap * math.tanh(x / f.softcap)
            if f.bias:
                x += t["bias"][0, h, i, j]
            if f.alibi:
                x -= t["slopes"][0, h, 0] * abs(apart)
            scores[j] = x
        total = sum(math.exp(x) for x in scores.values())
        if f.sinks:
            total += math.exp(t["sinks"][0, h, 0])
        if total:
            lse[b, h, i] = math.log(total)
        kept = keep_mask(case.seed, b, h, [i], s.seq_kv, f.dropout_p)[0]
        for j, x in scores.items():
            if kept[j]:
                o[b, h, i] += math.exp(x) / total / (1 - f.dropout_p) * t["V"][b, h // s.group, j]
    return o, lse


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: ",".join(mask) or "full")
@pytest.mark.parametrize("features", FEATURES, ids=lambda features: ",".join(features.named) or "plain")
def test_attention_is_what_the_definitions_say(features: Features, mask: dict[str, int]) -> None:
    case = Case("flash2", replace(SHAPE, **mask), "fp32", seed=5, features=features)
    inputs = make_inputs(case)
    o, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape, scoring=Scoring.of(case, inputs))
    expected_o, expected_lse = one_by_one(case)
    assert np.allclose(o, expected_o, rtol=1e-12, atol=1e-13)
    assert np.allclose(lse, expected_lse, rtol=1e-12)


@pytest.mark.parametrize("features", FEATURES, ids=lambda features: ",".join(features.named) or "plain")
def test_a_right_output_passes_and_another_feature_does_not(features: Features) -> None:
    case = Case("flash2", replace(SHAPE, window_left=6), seed=5, features=features)
    inputs = make_inputs(case)
    o, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape, scoring=Scoring.of(case, inputs))
    assert verify(case, encode(o, "fp16"), lse.astype(np.float32), inputs).passed
    if features != Features():
        plain, plain_lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape)
        assert not verify(case, encode(plain, "fp16"), plain_lse.astype(np.float32), inputs).passed
    wider = replace(case.shape, window_left=7)
    other, other_lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], wider, scoring=Scoring.of(case, inputs))
    assert not verify(case, encode(other, "fp16"), other_lse.astype(np.float32), inputs).passed


def test_rows_that_see_nothing_are_zero_with_the_sink_as_their_normaliser() -> None:
    # 9 queries, 3 keys, no right window: queries 0 to 5 lie above the first key.
    shape = AttentionShape(1, 2, 1, 9, 3, 8, causal=True)
    for sinks in (False, True):
        case = Case("flash2", shape, "fp32", features=Features(sinks=sinks))
        inputs = make_inputs(case)
        o, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], shape, scoring=Scoring.of(case, inputs))
        assert not o[:, :, :6].any()
        expected = inputs["sinks"][0] if sinks else -np.inf
        assert np.allclose(lse[0, :, :6], expected, rtol=1e-12)
        assert verify(case, encode(o, "fp32"), lse.astype(np.float32), inputs).passed
        assert not verify(case, encode(o, "fp32"), np.where(lse < 0, 0, lse).astype(np.float32), inputs).passed


def test_alibi_slopes() -> None:
    # 8 heads: 2^-1 ... 2^-8. 12 heads: those, then every other one of 16 heads: 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
    assert alibi_slopes(8).tolist() == [2.0**-k for k in range(1, 9)]
    assert np.allclose(alibi_slopes(12)[8:], [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    assert alibi_slopes(1).tolist() == [2.0**-8]
