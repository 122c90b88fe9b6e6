"""The reference itself: input draws, bfloat16, fp64 attention, and bounds that are neither loose nor tight."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_bench import reference
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.reference import attention_fp64, make_inputs, verify
from fa_bench.storage import decode, encode, from_bf16, to_bf16

# ------------------------------------------------------------------------------------------------ bfloat16


@pytest.mark.parametrize(
    ("bits32", "bits16"),
    [
        (0x3F800000, 0x3F80),  # 1.0 is exact
        (0x3F808000, 0x3F80),  # 1 + 2^-8 lies half-way between 1 and 1 + 2^-7: to the even one, 1
        (0x3F818000, 0x3F82),  # 1 + 3·2^-8 lies half-way too: the even one is 1 + 2^-6
        (0x3F808001, 0x3F81),  # just above half-way: up
        (0x7F7FFFFF, 0x7F80),  # the largest float32 is beyond the largest bfloat16: infinity
        (0xFF800000, 0xFF80),  # -infinity
        (0x00018000, 0x0002),  # subnormals round like the rest (1.5 steps, tie to even)
        (0x80000000, 0x8000),  # -0
    ],
)
def test_bf16_rounds_to_nearest_even(bits32: int, bits16: int) -> None:
    value = np.array([bits32], dtype=np.uint32).view(np.float32)
    assert to_bf16(value)[0] == bits16


@pytest.mark.parametrize("bits32", [0x7FC00000, 0x7F800001, 0xFFFFFFFF])
def test_bf16_keeps_nan(bits32: int) -> None:
    # 0x7F800001 is a NaN whose payload lies in the dropped half; 0xFFFFFFFF would carry into +0.
    value = np.array([bits32], dtype=np.uint32).view(np.float32)
    assert math.isnan(from_bf16(to_bf16(value))[0])


@given(st.integers(0, 0xFFFF))
def test_bf16_round_trip_is_exact(bits16: int) -> None:
    bits = np.array([bits16], dtype=np.uint16)
    value = from_bf16(bits)
    if not np.isnan(value[0]):
        assert to_bf16(value)[0] == bits16


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120))
def test_bf16_error_is_at_most_half_a_unit(value: float) -> None:
    error = abs(float(from_bf16(to_bf16(np.array([value])))[0]) - value)
    assert error <= max(2.0**-8 * abs(value), 2.0**-134)


def test_encode_keeps_shape_and_decode_inverts_it() -> None:
    values = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    for dtype, kind in (("fp16", np.float16), ("bf16", np.uint16), ("fp32", np.float32)):
        stored = encode(values, dtype)
        assert stored.dtype == kind and stored.shape == (1, 2, 3)
        np.testing.assert_array_equal(decode(stored), values)


# -------------------------------------------------------------------------------------------------- inputs


def shape_of(
    seq_q: int,
    seq_kv: int,
    head_dim: int = 16,
    *,
    batch: int = 1,
    heads: int = 1,
    kv_heads: int = 1,
    causal: bool = False,
) -> AttentionShape:
    return AttentionShape(batch, heads, kv_heads, seq_q, seq_kv, head_dim, causal)


def test_inputs_are_seeded_standard_normal_in_logical_order() -> None:
    shape = shape_of(300, 200, 32, batch=2, heads=4, kv_heads=2)
    inputs = make_inputs(Case("flash2", shape, "fp16", layout="bshd", seed=7))
    assert inputs["Q"].shape == (2, 4, 300, 32) and inputs["K"].shape == inputs["V"].shape == (2, 2, 200, 32)
    assert all(x.dtype == np.float16 for x in inputs.values())
    for x in inputs.values():
        # 25,600 draws or more: the mean is within 5/sqrt(n) = 0.03, the deviation within 5/sqrt(2n) = 0.02.
        values = x.astype(np.float64)
        assert abs(values.mean()) < 0.032 and abs(values.std() - 1) < 0.023
    again = make_inputs(Case("numpy-flash", shape, "fp16", seed=7))
    other = make_inputs(Case("flash2", shape, "fp16", seed=8))
    for name in "QKV":
        np.testing.assert_array_equal(inputs[name], again[name])
        assert not np.array_equal(inputs[name], other[name])
    assert not np.array_equal(inputs["K"], inputs["V"])


def test_dtypes_store_the_same_draw() -> None:
    shape = shape_of(5, 5)
    exact = make_inputs(Case("flash2", shape, "fp32"))["K"]
    for dtype in ("fp16", "bf16"):
        np.testing.assert_array_equal(make_inputs(Case("flash2", shape, dtype))["K"], encode(exact, dtype))


# ------------------------------------------------------------------------------------------ fp64 attention


def test_two_keys_by_hand() -> None:
    # D = 8, q = (sqrt 8, 0 ...), keys (ln 3, 0 ...) and 0: scores ln 3 and 0, so P = (3/4, 1/4).
    # v = 4 and 8: O = 3 + 2 = 5. LSE = ln(3 + 1) = ln 4.
    q, k, v = np.zeros((1, 1, 1, 8)), np.zeros((1, 1, 2, 8)), np.empty((1, 1, 2, 8))
    q[..., 0], k[0, 0, 0, 0] = math.sqrt(8), math.log(3)
    v[0, 0, 0], v[0, 0, 1] = 4, 8
    o, lse = attention_fp64(q, k, v, shape_of(1, 2, 8))
    np.testing.assert_allclose(o, 5.0, rtol=1e-14)
    assert lse[0, 0, 0] == pytest.approx(math.log(4), rel=1e-14)


@pytest.mark.parametrize(("seq_q", "seq_kv", "seen"), [(2, 5, [4, 5]), (5, 2, [0, 0, 0, 1, 2]), (3, 3, [1, 2, 3])])
def test_causal_is_bottom_right_and_blind_rows_are_zero(seq_q: int, seq_kv: int, seen: list[int]) -> None:
    # Zero scores: a row's output is the mean of the values it sees, and its LSE is ln(number seen).
    v = np.broadcast_to(np.arange(1.0, seq_kv + 1)[:, None], (1, 1, seq_kv, 8))
    zeros_q, zeros_k = np.zeros((1, 1, seq_q, 8)), np.zeros((1, 1, seq_kv, 8))
    o, lse = attention_fp64(zeros_q, zeros_k, v, shape_of(seq_q, seq_kv, 8, causal=True))
    expected_o = [(n + 1) / 2 if n else 0.0 for n in seen]  # mean of 1 ... n
    expected_lse = [math.log(n) if n else -math.inf for n in seen]
    np.testing.assert_allclose(o[0, 0, :, 0], expected_o, rtol=1e-14)
    np.testing.assert_allclose(lse[0, 0], expected_lse, rtol=1e-14)


def test_query_heads_share_kv_heads_in_groups() -> None:
    # 4 query heads on 2 K/V heads: heads 0, 1 use head 0 and 2, 3 use head 1 (not i mod 2).
    shape = shape_of(2, 3, 8, batch=2, heads=4, kv_heads=2)
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 4, 2, 8)), rng.standard_normal((2, 2, 3, 8))
    v = np.arange(4.0).reshape(2, 2, 1, 1) * np.ones((2, 2, 3, 8))
    o, _ = attention_fp64(q, k, v, shape)
    np.testing.assert_allclose(o[:, :, 0, 0], [[0, 0, 1, 1], [2, 2, 3, 3]], rtol=1e-14)


def test_chunks_and_picked_rows_agree_with_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shape_of(37, 41, 16, heads=2, causal=True)
    inputs = make_inputs(Case("flash2", shape, "bf16"))
    o, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], shape)
    monkeypatch.setattr(reference, "CHUNK_PAIRS", 3 * 41)  # three rows at a time
    o3, lse3 = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], shape, rows=[0, 5, 36, 7])
    np.testing.assert_allclose(o3, o[:, :, [0, 5, 36, 7]], rtol=1e-13)
    np.testing.assert_allclose(lse3, lse[:, :, [0, 5, 36, 7]], rtol=1e-13)


# -------------------------------------------------------------------------------------------- verification


def low_precision(case: Case, inputs: dict[str, np.ndarray], *, scale: float = 1.0, shift: int = 0) -> tuple:
    """Standard attention whose scores, probabilities and output are rounded to the case's dtype.

    The worst that a correct implementation may do; ``scale`` and ``shift`` make it an incorrect one: a factor on
    the softmax scale, keys by which the causal mask is off.
    """
    s = case.shape
    q, k, v = (decode(inputs[n]) for n in "QKV")
    k, v = np.repeat(k, s.group, axis=1), np.repeat(v, s.group, axis=1)

    def rounded(x: np.ndarray) -> np.ndarray:
        return decode(encode(x, case.dtype))

    scores = rounded(q @ k.swapaxes(2, 3) * np.float32(scale / math.sqrt(s.head_dim)))
    if s.causal:
        hidden = np.arange(s.seq_kv) > np.arange(s.seq_q)[:, None] + s.diagonal + shift
        scores[..., hidden] = -np.inf
    top = scores.max(axis=-1, keepdims=True)
    p = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = p.sum(axis=-1, keepdims=True)
    o = rounded(p / np.where(total == 0, 1, total)) @ v
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return encode(o, case.dtype), lse


CASES = [
    Case("standard", shape_of(sq, skv, d, heads=2, kv_heads=1, causal=causal), dtype)
    for dtype in ("fp16", "bf16", "fp32")
    for sq, skv, d in ((1, 1, 8), (127, 300, 40), (300, 127, 64), (512, 512, 256))
    for causal in (False, True)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_results_pass_with_room(case: Case) -> None:
    inputs = make_inputs(case)
    o, lse = low_precision(case, inputs)
    verdict = verify(case, o, lse, inputs)
    assert verdict.passed, verdict.detail
    assert verdict.reference == "fp64"
    # Not tight: three quarters of the bound are never used, since its λ is about ten standard deviations. A few
    # roundings alone can come near it, so that one exact product (1, 1) has its own certain bound.
    if case.shape.seq_q > 1:
        assert verdict.max_abs_err < 0.75 * verdict.bound


@pytest.mark.parametrize(("dtype", "coarser"), [("fp16", "bf16"), ("fp32", "fp16")])
def test_errors_of_a_coarser_type_are_too_large(dtype: str, coarser: str) -> None:
    case = Case("standard", shape_of(256, 256, 64), dtype)
    inputs = make_inputs(case)
    o, _ = low_precision(replace(case, dtype=coarser), inputs)
    assert not verify(case, encode(decode(o), dtype), None, inputs).passed


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_bound_grows_with_the_values_and_is_no_relative_one(dtype: str) -> None:
    # 900 keys average out: outputs are small beside the values, and some lie near 0, where the last place of what was
    # added up is a large part of what is left. Values ten times as large make the same error ten times as large.
    case = Case("standard", shape_of(8, 900, 64), dtype)
    inputs = make_inputs(case)
    large = inputs | {"V": encode(10 * decode(inputs["V"]), dtype)}
    verdicts = []
    for drawn in (inputs, large):
        o, lse = low_precision(case, drawn)
        verdicts.append(verify(case, o, lse, drawn))
        assert verdicts[-1].passed, verdicts[-1].detail
    assert verdicts[1].bound == pytest.approx(10 * verdicts[0].bound, rel=0.05)
    assert 5 < verdicts[1].max_abs_err / verdicts[0].max_abs_err < 20
    exact, _ = attention_fp64(large["Q"], large["K"], large["V"], case.shape)
    relative = np.abs(decode(o, np.float64) - exact) / np.abs(exact)
    assert relative.max() > 16 * reference.UNIT_ROUNDOFF[dtype]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize(
    ("wrong", "seq"),
    [
        ({"scale": math.sqrt(80 / 96)}, 512),
        ({"scale": math.sqrt(80 / 96)}, 2048),
        ({"shift": 1}, 512),
        ({"shift": -1}, 512),
    ],
    ids=["scale of the padded head", "the same, long", "mask one too far", "mask one too short"],
)
def test_wrong_scale_and_mask_fail(dtype: str, wrong: dict[str, float], seq: int) -> None:
    case = Case("flash2", shape_of(seq, seq, 80, causal="shift" in wrong), dtype)
    inputs = make_inputs(case)
    o, _ = low_precision(case, inputs, **wrong)
    verdict = verify(case, o, None, inputs)
    assert not verdict.passed
    assert "O is" in verdict.detail


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("fault", ["no rescale of O", "no rescale of l", "last key dropped", "wrong kv head"])
def test_a_flash_kernel_with_one_fault_fails(dtype: str, fault: str) -> None:
    shape = shape_of(256, 257, 64, heads=2, kv_heads=2)
    case = Case("flash2", shape, dtype)
    inputs = make_inputs(case)
    q, k, v = (decode(inputs[n]) for n in "QKV")
    if fault == "wrong kv head":
        k, v = k[:, :1], v[:, :1]
    keys = shape.seq_kv - (fault == "last key dropped")
    o, total = np.zeros_like(q), np.zeros((*q.shape[:3], 1), np.float32)
    m = np.full_like(total, -np.inf)
    for j in range(0, keys, 64):
        here = slice(j, min(j + 64, keys))
        s = q @ k[:, :, here].swapaxes(2, 3) / np.float32(8)
        m_new = np.maximum(m, s.max(axis=-1, keepdims=True))
        alpha, p = np.exp(m - m_new), np.exp(s - m_new)
        total = (1 if fault == "no rescale of l" else alpha) * total + p.sum(axis=-1, keepdims=True)
        o = (1 if fault == "no rescale of O" else alpha) * o + p @ v[:, :, here]
        m = m_new
    assert not verify(case, encode(o / total, dtype), None, inputs).passed


def right_case(seq_q: int = 70, seq_kv: int = 50) -> tuple:
    case = Case("flash2", shape_of(seq_q, seq_kv, 16, heads=2, causal=True), "fp16")
    inputs = make_inputs(case)
    return case, inputs, *low_precision(case, inputs)


def test_nan_fails_and_shows() -> None:
    case, inputs, o, lse = right_case()
    o[0, 1, 33, 2] = np.nan
    verdict = verify(case, o, lse, inputs)
    assert not verdict.passed and math.isnan(verdict.max_abs_err)
    assert verdict.detail == "O is not finite in row 33 of slice 1."


@pytest.mark.parametrize(
    ("row", "value", "complaint"),
    [
        (3, 0.0, "LSE is 0.0 in row 3 of slice 0; it must be -inf."),  # rows 0 ... 19 of 70 x 50 see nothing
        (3, np.nan, "LSE is nan in row 3 of slice 0; it must be -inf."),
        (40, -np.inf, "LSE is -inf in row 40 of slice 0; it must be finite."),
    ],
)
def test_infinities_of_the_lse_must_match(row: int, value: float, complaint: str) -> None:
    case, inputs, o, lse = right_case()
    lse[0, 0, row] = value
    verdict = verify(case, o, lse, inputs)
    assert not verdict.passed and verdict.detail == complaint


def test_wrong_lse_fails() -> None:
    case, inputs, o, lse = right_case()
    lse[0, 1, 69] += np.float32(0.02)  # log base 2 instead of e, or a wrong scale, is off by far more
    verdict = verify(case, o, lse, inputs)
    assert not verdict.passed and verdict.detail.startswith("LSE is off by 0.02")


def test_blind_rows_must_be_exactly_zero() -> None:
    case, inputs, o, lse = right_case()
    o[0, 0, 19, 5] = 2.0**-24  # the smallest fp16
    assert not verify(case, o, lse, inputs).passed


def test_slices_that_were_not_run_are_not_looked_at() -> None:
    case, inputs, o, lse = right_case()
    o[0, 1], lse[0, 1] = np.nan, np.nan
    assert not verify(case, o, lse, inputs).passed
    assert verify(case, o, lse, inputs, slices=[0]).passed


def test_large_cases_compare_drawn_rows_and_edge_tiles() -> None:
    # 3 slices x 4096 x 1024 pairs = 1.5 · 2^23: sampled.
    case = Case("flash2", shape_of(4096, 1024, 16, heads=3), "fp16", Tile(128, 64))
    picked = reference.rows_to_verify(case)
    assert picked.keys() == {0, 1, 2}
    for index in (0, 2):
        assert {*range(128), *range(3968, 4096)} <= set(picked[index].tolist())
    drawn = sum(len(rows) for rows in picked.values()) - 4 * 128
    assert 200 < drawn <= 256  # a few of the 256 fall into the edge tiles (1 in 24)
    assert 40 < len(picked[1]) < 140  # about a third
    for index, rows in reference.rows_to_verify(case).items():
        np.testing.assert_array_equal(rows, picked[index])
    other = reference.rows_to_verify(Case("flash2", case.shape, "fp16", Tile(128, 64), seed=1))
    assert not np.array_equal(other[1], picked[1])
    assert reference.rows_to_verify(case, slices=[1]).keys() == {1}


def test_sampled_rows_still_see_nan_anywhere() -> None:
    case = Case("flash2", shape_of(4096, 4096, 8), "fp16")
    inputs = make_inputs(case)
    o = np.zeros((1, 1, 4096, 8), np.float16)
    unpicked = next(row for row in range(100, 4096) if row not in set(reference.rows_to_verify(case)[0].tolist()))
    o[0, 0, unpicked] = np.nan
    assert verify(case, o, None, inputs).detail == f"O is not finite in row {unpicked} of slice 0."
    # Zeros instead of the answer fail as well, and the rows are counted.
    verdict = verify(case, np.zeros_like(o), None, inputs)
    assert not verdict.passed and verdict.reference.startswith("fp64, ")


def test_predicted_memory_covers_the_verification() -> None:
    from fa_bench.measure.memory import traced_peak

    case = Case("flash2", shape_of(2048, 2048, 64, causal=True), "fp16")

    def run() -> None:
        inputs = make_inputs(case)
        verify(case, np.zeros((1, 1, 2048, 64), np.float16), None, inputs)

    _, peak = traced_peak(run)
    assert 0.4 * reference.verification_bytes(case) < peak <= reference.verification_bytes(case)


def test_a_signalling_nan_fails_without_a_warning() -> None:
    """What a wrong kernel leaves may be any pattern: 0x7D00 is a signalling NaN of fp16."""
    case = Case("flash2", AttentionShape(1, 1, 1, 4, 4, 8), tile=Tile(16, 16))
    inputs = make_inputs(case)
    exact, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape)
    o = encode(exact, "fp16")
    o.view(np.uint16)[0, 0, 1, 2] = 0x7D00
    got_lse = lse.astype(np.float32)
    assert not verify(case, o, got_lse, inputs).passed
    got_lse.view(np.uint32)[0, 0, 3] = 0x7F800001  # one of float32
    assert not verify(case, encode(exact, "fp16"), got_lse, inputs).passed


# ---------------------------------------------------------------------------------------------- packed batches

LENGTHS = ((3, 5), (0, 4), (6, 2), (4, 0), (1, 7))


@pytest.mark.parametrize("causal", [False, True])
def test_each_sequence_of_a_packed_batch_is_attended_alone(causal: bool) -> None:
    case = Case("flash2", AttentionShape.packed(LENGTHS, 4, 2, 16, causal))
    inputs = make_inputs(case)
    assert inputs["cu_seqlens_q"].tolist() == [[[0, 3, 3, 9, 13, 14]]]
    assert inputs["cu_seqlens_kv"].tolist() == [[[0, 5, 9, 11, 11, 18]]]
    o, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape)
    assert o.shape == (1, 4, 14, 16) and lse.shape == (1, 4, 14)
    for queries, keys in (((0, 3), (0, 5)), ((3, 9), (9, 11)), ((13, 14), (11, 18))):
        alone = AttentionShape(1, 4, 2, queries[1] - queries[0], keys[1] - keys[0], 16, causal)
        k, v = (inputs[name][:, :, slice(*keys)] for name in ("K", "V"))
        expected, expected_lse = attention_fp64(inputs["Q"][:, :, slice(*queries)], k, v, alone)
        np.testing.assert_array_equal(o[:, :, slice(*queries)], expected)
        np.testing.assert_array_equal(lse[:, :, slice(*queries)], expected_lse)
    # Four queries without a key.
    assert not o[:, :, 9:13].any() and np.isneginf(lse[:, :, 9:13]).all()


def test_a_packed_batch_is_verified_row_by_row() -> None:
    case = Case("flash2", AttentionShape.packed(LENGTHS, 4, 2, 16))
    inputs = make_inputs(case)
    exact, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape)
    o, got_lse = encode(exact, "fp16"), lse.astype(np.float32)
    verdict = verify(case, o, got_lse, inputs)
    assert verdict.passed and verdict.reference == "fp64"
    # Row 13 is row 0 of sequence 4, row 9 row 0 of sequence 3; head 2 of them is slice 18 and 14.
    for row, sentence in ((13, "row 0 of slice 18"), (9, "in a row of slice 14 that sees no key")):
        wrong = o.copy()
        wrong[0, 2, row, 3] += 1
        assert sentence in verify(case, wrong, got_lse, inputs).detail
    wrong_lse = got_lse.copy()
    wrong_lse[0, 2, 9] = 0.0
    assert verify(case, o, wrong_lse, inputs).detail == "LSE is 0.0 in row 0 of slice 14; it must be -inf."
    # Neither side of a window hides what a sequence without keys hasn't got.
    windowed = replace(case, shape=replace(case.shape, window_left=9, window_right=9))
    assert verify(windowed, o, got_lse, inputs).passed
    # Rows of two sequences exchanged.
    wrong = o.copy()
    wrong[0, :, [2, 3]] = o[0, :, [3, 2]]
    assert not verify(case, wrong, None, inputs).passed


def test_of_a_large_packed_batch_rows_of_all_lengths_are_drawn() -> None:
    shape = AttentionShape.packed([(100, 4096), (0, 4096), (3000, 4096), (20, 10)], 1, 1, 8)
    picked = reference.rows_to_verify(Case("flash2", shape, tile=Tile(16, 16)))
    assert {index: bool((rows < shape.sequence(index).seq_q).all()) for index, rows in picked.items()} == {
        0: True, 2: True, 3: True,
    }  # fmt: skip
    # The first and last tile of the first and of the last sequence.
    assert {0, 15, 84, 99} <= set(picked[0].tolist())
    assert set(picked[3].tolist()) >= {0, 15, 4, 19}
    # 256 draws of 3,120 rows; most are of the long sequence.
    assert 200 < len(picked[2]) <= 256
