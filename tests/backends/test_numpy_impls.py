"""The NumPy implementations against fp64, over shapes, masks, heads, types and tiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fa_bench.backends import numpy_impls
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.measure.memory import traced_peak
from fa_bench.reference import make_inputs, verify


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads = draw(st.integers(1, 2))
    shape = AttentionShape(
        draw(st.integers(1, 2)), kv_heads * draw(st.integers(1, 3)), kv_heads,
        draw(st.integers(1, 100)), draw(st.integers(1, 100)), 8 * draw(st.integers(1, 5)), draw(st.booleans()),
    )  # fmt: skip
    tile = draw(st.sampled_from([None, Tile(16, 16), Tile(16, 48), Tile(64, 32)]))
    return Case("numpy-flash", shape, draw(st.sampled_from(["fp16", "bf16", "fp32"])), tile)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_both_match_fp64(case: Case) -> None:
    inputs = make_inputs(case)
    q, k, v = (inputs[n] for n in "QKV")
    for o, lse in (
        numpy_impls.standard(q, k, v, case.shape, case.dtype),
        numpy_impls.flash(q, k, v, case.shape, case.dtype, case.tile),
    ):
        assert o.shape == q.shape and o.dtype == q.dtype and lse.dtype == np.float32
        verdict = verify(case, o, lse, inputs)
        assert verdict.passed, verdict.detail


@pytest.mark.parametrize("attend", [numpy_impls.standard, numpy_impls.flash])
def test_a_masked_key_never_wins(attend: object) -> None:
    # Scores -20000 (visible) and 0 (masked): with a finite stand-in for -inf such as -10000, the masked key
    # would take all the weight. O must be the visible value, 1, and LSE the visible score.
    q, k, v = (np.zeros((1, 1, n, 8), np.float32) for n in (1, 2, 2))
    q[..., 0] = -20000 * math.sqrt(8)
    k[0, 0, 0, 0] = 1
    v[0, 0, 0], v[0, 0, 1] = 1, 100
    # seq_q = 2 puts row 0 on the diagonal: it sees key 0 alone.
    q2 = np.concatenate([q, q], axis=2)
    o, lse = attend(q2, k, v, AttentionShape(1, 1, 1, 2, 2, 8, causal=True), "fp32")  # type: ignore[operator]
    np.testing.assert_array_equal(o[0, 0, 0], np.ones(8))
    assert lse[0, 0, 0] == pytest.approx(-20000)


def test_block_sizes_are_the_papers() -> None:
    shape = AttentionShape(1, 1, 1, 4096, 4096, 64)
    # M = 65536 elements: Bc = ceil(65536 / (4 · 64)) = 256, Br = min(256, 64) = 64.
    assert numpy_impls.block_sizes(shape, None) == (64, 256)
    # d = 40: Bc = ceil(65536 / 160) = ceil(409.6) = 410.
    assert numpy_impls.block_sizes(AttentionShape(1, 1, 1, 9, 9, 40), None) == (40, 410)
    assert numpy_impls.block_sizes(shape, Tile(128, 32)) == (128, 32)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("impl", ["standard", "flash"])
def test_predicted_memory_holds_and_is_not_wasteful(impl: str, dtype: str, causal: bool) -> None:
    case = Case(f"numpy-{impl}", AttentionShape(1, 2, 1, 700, 900, 64, causal), dtype)
    inputs = make_inputs(case)
    q, k, v = (inputs[n] for n in "QKV")
    attend = getattr(numpy_impls, impl)
    _, peak = traced_peak(lambda: attend(q, k, v, case.shape, case.dtype))
    peak += sum(x.nbytes for x in inputs.values())
    predicted = getattr(numpy_impls, f"{impl}_bytes")(case)
    assert 0.6 * predicted < peak <= predicted
    # Standard attention holds S: 2 · 700 · 900 float32 = 5.04 MB. Flash stays far below that.
    assert (peak > 5_040_000) == (impl == "standard")
