"""Gradients in float64 against finite differences and autograd; bounds against right and wrong arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fa_bench import storage
from fa_bench.cases import AttentionShape, Case, Features
from fa_bench.random_bits import keep_mask
from fa_bench.reference import attention_fp64, make_inputs
from fa_bench.reference_backward import GRADIENTS, gradients_fp64, verify_gradients
from fa_bench.scoring import Scoring
from fa_bench.storage import decode, encode

SHAPES = [
    AttentionShape(1, 1, 1, 33, 33, 16),
    AttentionShape(2, 4, 2, 17, 40, 24, causal=True),
    AttentionShape(1, 3, 1, 40, 17, 8, causal=True),  # rows 0 to 22 see nothing
    AttentionShape(2, 2, 1, 21, 50, 16, window_left=5, window_right=3),  # keys 0 to 23 are seen by no query
    AttentionShape(1, 2, 1, 40, 17, 8, window_left=9),  # rows 0 to 22 see nothing
]
DROPOUT = Features(dropout_p=0.3)
PLAIN = Features()
FEATURES = pytest.mark.parametrize("features", [PLAIN, DROPOUT], ids=["plain", "dropout"])


def backward(shape: AttentionShape, dtype: str = "fp16", seed: int = 0, features: Features = PLAIN) -> Case:
    return Case("flash2", shape, dtype, direction="bwd", seed=seed, features=features)  # type: ignore[arg-type]


def visible(shape: AttentionShape) -> NDArray[np.bool_]:
    """Which keys each query sees, pair by pair."""
    seen = np.zeros((shape.seq_q, shape.seq_kv), bool)
    for i, j in np.ndindex(seen.shape):
        apart = j - i - shape.diagonal
        left, right = (np.inf if side is None else side for side in (shape.window_left, shape.right))
        seen[i, j] = -left <= apart <= right
    return seen


def scaled(case: Case) -> NDArray[np.float64]:
    """What dropout multiplies the probabilities by: ``[B, Hq, Sq, Skv]``."""
    s, p = case.shape, case.features.dropout_p
    factors = np.ones((s.batch, s.heads_q, s.seq_q, s.seq_kv))
    for b, h in np.ndindex(*factors.shape[:2]):
        factors[b, h] = keep_mask(case.seed, b, h, np.arange(s.seq_q), s.seq_kv, p) / (1 - p)
    return factors


@FEATURES
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_finite_differences_of_the_forward_pass(shape: AttentionShape, features: Features) -> None:
    case = backward(shape, "fp32", features=features)
    inputs = {name: values.astype(np.float64) for name, values in make_inputs(case).items()}
    scoring = Scoring.of(case, inputs)
    found = gradients_fp64(*(inputs[n] for n in ("Q", "K", "V", "dO")), shape, scoring)
    gradients = dict(zip(GRADIENTS, found, strict=True))
    rng = np.random.default_rng(1)

    def loss(changed: dict[str, NDArray[Any]]) -> float:
        o, _ = attention_fp64(changed["Q"], changed["K"], changed["V"], shape, scoring=scoring)
        return float((o * changed["dO"]).sum())

    for name in "QKV":
        for _ in range(4):
            place = tuple(int(rng.integers(n)) for n in inputs[name].shape)
            step = np.zeros_like(inputs[name])
            step[place] = 1e-5
            up, down = (loss({**inputs, name: inputs[name] + sign * step}) for sign in (1, -1))
            assert gradients[f"d{name}"][place] == pytest.approx((up - down) / 2e-5, abs=1e-7)


@FEATURES
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_autograd_in_float64(shape: AttentionShape, features: Features) -> None:
    torch = pytest.importorskip("torch")
    case = backward(shape, "fp32", features=features)
    inputs = make_inputs(case)
    q, k, v, do = (torch.tensor(inputs[n], dtype=torch.float64) for n in ("Q", "K", "V", "dO"))
    for tensor in (q, k, v):
        tensor.requires_grad_()
    scores = q @ k.repeat_interleave(shape.group, 1).mT / shape.head_dim**0.5
    seen = torch.tensor(visible(shape))
    # A row that sees nothing has no softmax: here its scores are all kept, and its output dropped.
    blind = ~seen.any(1, keepdim=True)
    p = scores.masked_fill(~(seen | blind), -torch.inf).softmax(-1) * ~blind * torch.tensor(scaled(case))
    (p @ v.repeat_interleave(shape.group, 1) * do).sum().backward()
    ours = gradients_fp64(*(inputs[n] for n in ("Q", "K", "V", "dO")), shape, Scoring.of(case, inputs))
    for tensor, gradient in zip((q, k, v), ours, strict=True):
        assert np.allclose(tensor.grad.numpy(), gradient, rtol=1e-12, atol=1e-13)


def computed(case: Case, inputs: dict[str, NDArray[Any]], *, stored: bool) -> dict[str, NDArray[Any]]:
    """A backward pass in fp32 with storage in the case's type: ``stored`` keeps S, P and dP too, as Algorithm 3."""
    shape, dtype = case.shape, case.dtype
    scale = np.float32(1 / np.sqrt(shape.head_dim))

    def rounded(values: NDArray[Any]) -> NDArray[Any]:
        return decode(encode(values, dtype), np.float32)

    q, k, v, do = (decode(inputs[n], np.float32) for n in ("Q", "K", "V", "dO"))
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    kept = scaled(case).astype(np.float32)
    for b in range(shape.batch):
        for h in range(shape.heads_q):
            g = h // shape.group
            s = scale * (q[b, h] @ k[b, g].T)
            if stored:
                s = rounded(s)
            s[~visible(shape)] = -np.inf
            top = s.max(axis=1, keepdims=True)
            e = np.exp(s - np.where(np.isneginf(top), 0, top))
            total = e.sum(axis=1, keepdims=True)
            p = e / np.where(total == 0, 1, total)
            d = kept[b, h]
            o = rounded(rounded(p) * d @ v[b, g])
            if stored:
                p = rounded(p)
            dp = do[b, h] @ v[b, g].T * d
            if stored:
                dp = rounded(dp)
            ds = rounded(p * (dp - (o * do[b, h]).sum(axis=1, keepdims=True)))
            dq[b, h] = scale * (ds @ k[b, g])
            dk[b, g] += scale * (ds.T @ q[b, h])
            dv[b, g] += (rounded(p) * d).T @ do[b, h]
    return {name: encode(values, dtype) for name, values in zip(GRADIENTS, (dq, dk, dv), strict=True)}


@FEATURES
@pytest.mark.parametrize("stored", [False, True], ids=["recomputed", "stored"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("shape", [*SHAPES, AttentionShape(1, 1, 1, 400, 500, 64, causal=True)])
def test_right_arithmetic_passes(shape: AttentionShape, dtype: str, stored: bool, features: Features) -> None:
    for seed in range(2):
        case = backward(shape, dtype, seed, features)
        inputs = make_inputs(case)
        found = verify_gradients(case, computed(case, inputs, stored=stored), inputs)
        assert found.passed, found.detail
        assert 0 < found.max_abs_err <= found.bound


SHAPE = AttentionShape(1, 2, 1, 100, 130, 64, causal=True)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_a_gradient_that_is_off_by_two_percent_fails(gradient: str, dtype: str) -> None:
    case = backward(SHAPE, dtype)
    inputs = make_inputs(case)
    gradients = computed(case, inputs, stored=False)
    assert verify_gradients(case, gradients, inputs).passed
    gradients[gradient] = encode(decode(gradients[gradient]) * np.float32(1.02), dtype)
    found = verify_gradients(case, gradients, inputs)
    assert not found.passed
    assert found.detail.startswith(f"{gradient} is off by")


@pytest.mark.parametrize(
    ("gradient", "what"),
    [("dV", "other seed"), ("dQ", "other seed"), ("dK", "other seed"), ("dQ", "no dropout"), ("dV", "no dropout")],
)
def test_what_another_mask_gives_fails(gradient: str, what: str) -> None:
    case = backward(SHAPE, features=DROPOUT)
    inputs = make_inputs(case)
    right = computed(case, inputs, stored=False)
    assert verify_gradients(case, right, inputs).passed
    other = replace(case, seed=1) if what == "other seed" else replace(case, features=PLAIN)
    wrong = computed(other, inputs, stored=False)[gradient]
    found = verify_gradients(case, {**right, gradient: wrong}, inputs)
    assert not found.passed
    assert found.detail.startswith(f"{gradient} is off by")


def test_a_window_that_is_a_key_wider_fails() -> None:
    shape = AttentionShape(1, 2, 1, 100, 130, 64, window_left=20, window_right=10)
    case = backward(shape)
    inputs = make_inputs(case)
    assert verify_gradients(case, computed(case, inputs, stored=False), inputs).passed
    for side in ("window_left", "window_right"):
        wider = replace(shape, **{side: getattr(shape, side) + 1})
        wrong = computed(backward(wider), inputs, stored=False)
        for gradient in GRADIENTS:
            right = computed(case, inputs, stored=False)
            assert not verify_gradients(case, {**right, gradient: wrong[gradient]}, inputs).passed


def test_a_forgotten_delta_a_head_and_a_nan_fail() -> None:
    case = backward(SHAPE)
    inputs = make_inputs(case)
    right = computed(case, inputs, stored=False)
    # dK of one query head alone, where two share it.
    alone = computed(backward(AttentionShape(1, 1, 1, 100, 130, 64, causal=True)), {
        **inputs, "Q": inputs["Q"][:, :1], "dO": inputs["dO"][:, :1],
    }, stored=False)  # fmt: skip
    assert not verify_gradients(case, {**right, "dK": alone["dK"]}, inputs).passed
    # dS = P ∘ dP.
    zero = {**inputs, "dO": inputs["dO"]}
    q, k, v, do = (decode(zero[n], np.float64) for n in ("Q", "K", "V", "dO"))
    wrong = np.zeros_like(q)
    for h in range(2):
        s = q[0, h] @ k[0, 0].T / 8
        s[np.triu_indices(100, 31, 130)] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        wrong[0, h] = (p * (do[0, h] @ v[0, 0].T)) @ k[0, 0] / 8
    assert not verify_gradients(case, {**right, "dQ": encode(wrong, "fp16")}, inputs).passed
    right["dV"] = right["dV"].copy()
    right["dV"][0, 0, 129, 63] = np.nan
    found = verify_gradients(case, right, inputs)
    assert not found.passed
    assert found.detail == "dV is not finite in row 129 of slice 0."


def test_large_cases_are_sampled_with_first_and_last_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    # 3 slices x 600 x 700 pairs; with a limit of 10^6 they are sampled: 2 of 3 heads, and in each of dQ, dK and dV
    # 64 + 64 rows of the ends and up to 128 drawn.
    monkeypatch.setattr("fa_bench.reference_backward.FULL_PAIRS", 10**6)
    case = backward(AttentionShape(1, 3, 3, 600, 700, 16))
    inputs = make_inputs(case)
    gradients = computed(case, inputs, stored=False)
    found = verify_gradients(case, gradients, inputs)
    assert found.passed, found.detail
    rows = int(found.reference.split()[2])
    assert 2 * 3 * 128 < rows <= 2 * 3 * 256
    last = gradients["dK"].copy()
    last[0, :, 699] = 0
    assert not verify_gradients(case, {**gradients, "dK": last}, inputs).passed


def test_inputs_of_a_backward_case_are_those_of_the_forward_one_and_do() -> None:
    shape = SHAPES[1]
    forward, both = make_inputs(Case("flash2", shape)), make_inputs(backward(shape))
    assert set(both) - set(forward) == {"dO"}
    assert all(np.array_equal(forward[name], both[name]) for name in "QKV")
    assert both["dO"].shape == both["Q"].shape
    assert storage.decode(both["dO"]).std() == pytest.approx(1, abs=0.1)
