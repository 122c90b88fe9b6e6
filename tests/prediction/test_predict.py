"""Predictions as a whole: what has none, what they say of themselves, and how they answer to a change of the case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fa_bench.cases import AttentionShape, Case, Direction, Features
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.prediction import implementations, predict_time
from fa_bench.prediction.constants import Constants, Errors, Generation, Implementation, shipped
from fa_bench.prediction.explain import explain

H100 = gpus.get("h100-sxm")
SHAPE = AttentionShape(4, 16, 16, 4096, 4096, 128)


@pytest.mark.parametrize(
    ("case", "gpu", "reason"),
    [
        (Case("flashinfer", SHAPE), "h100-sxm", "There is no time model for flashinfer."),
        (Case("flash-attn-3", SHAPE), "a100-sxm-80", "flash-attn-3 runs on compute capability 9.0 alone"),
        (Case("flash-attn-4", SHAPE), "h100-sxm", "compute capability 10.0 alone, not for h100-sxm"),
        (Case("flash-attn-2", SHAPE, dtype="fp32"), "h100-sxm", "flash-attn-2 has no kernels for fp32."),
        (Case("flash-attn-2", SHAPE), "t4", "flash-attn-2 in fp16 needs compute capability 8.0: not on t4"),
        # 7.5 is a T4's, and enough for fp16: what it lacks is bf16.
        (Case("flash-attn-1", SHAPE, dtype="bf16"), "t4", "flash-attn-1 in bf16 needs compute capability 8.0: not on"),
        (Case("flash-attn-2", SHAPE, features=Features(softcap=30)), "h100-sxm", "knows nothing of softcap 30"),
        (Case("flash-attn-2", replace(SHAPE, head_dim_v=64)), "h100-sxm", "head_dim of V that differs"),
        (Case("flash-attn-2", AttentionShape.packed([(5, 7)], 1, 1, 64)), "h100-sxm", "packed batches"),
        (Case("flash2", SHAPE, dtype="fp32"), "h100-sxm", "Nothing was counted of flash2"),
        (Case("flash-attn-1", replace(SHAPE, head_dim=136)), "h100-sxm", "no kernels for more than 128 columns"),
        (
            Case("standard", AttentionShape(1, 1, 1, 2**20, 2**20, 64)),
            "h100-sxm",
            "Its tensors would need 4.00 TiB, and",
        ),
        (Case("flash1", SHAPE, direction="bwd"), "h100-sxm", "flash1 has no kernels for bwd"),
    ],
)
def test_what_has_no_time(case: Case, gpu: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        predict_time(case, gpus.get(gpu))


@pytest.mark.parametrize("gpu", gpus.all_gpus(), ids=lambda gpu: gpu.slug)
def test_every_gpu_has_a_time_for_pytorch(gpu: gpus.Gpu) -> None:
    made = predict_time(Case("pytorch-eager", AttentionShape(1, 8, 8, 1024, 1024, 64)), gpu)
    assert 0 < made.low_ms < made.ms < made.high_ms
    assert made.terms_ms[made.limiter] == max(made.terms_ms.values())


@pytest.mark.parametrize("impl", implementations())
def test_every_implementation_has_a_time_somewhere(impl: str) -> None:
    gpu = gpus.get("b200-sxm" if impl == "flash-attn-4" else "h100-sxm")
    made = predict_time(Case(impl, SHAPE), gpu)
    # No faster than the tensor cores at the highest clock, and no slower than a hundredth of their peak.
    peak = gpu.fp16_tensor_tflops or 0.0
    assert peak / 100 < made.tflops < peak * gpu.boost_max_mhz / gpu.boost_mhz


@pytest.mark.parametrize("impl", ["flash-attn-2", "flash-attn-3", "torch-cudnn", "pytorch-eager", "flash2"])
def test_longer_sequences_take_longer_and_masks_save_time(impl: str) -> None:
    times = [predict_time(Case(impl, replace(SHAPE, seq_q=n, seq_kv=n)), H100).ms for n in (512, 1024, 4096, 8192)]
    assert times == sorted(times)
    # Twice the length, four times the pairs; less what short ones lose to launches and the last wave.
    assert 3.5 < times[3] / times[2] < 4.1
    if impl != "pytorch-eager":
        causal = predict_time(Case(impl, replace(SHAPE, causal=True)), H100).ms
        assert 0.5 < causal / predict_time(Case(impl, SHAPE), H100).ms < 0.75


def test_both_passes_are_the_sum_of_each() -> None:
    forward, backward, both = (
        predict_time(Case("flash-attn-2", SHAPE, direction=direction), H100).ms
        for direction in ("fwd", "bwd", "fwd+bwd")
    )
    assert both == pytest.approx(forward + backward)


def test_a_board_with_less_power_per_sm_runs_slower() -> None:
    """An L4 has 72 W for 58 SMs at 2040 MHz, 0.609 W per SM and GHz; an RTX 4090 450 / 128 / 2.52 = 1.395."""
    clocks = [
        predict_time(Case("flash-attn-2", SHAPE), gpu).clock_mhz / gpu.boost_mhz
        for gpu in map(gpus.get, ("rtx-4090", "l4"))
    ]
    assert clocks[1] / clocks[0] == pytest.approx((0.6085 / 1.395) ** (1 / 3), rel=1e-3)


def test_only_a_board_that_was_fitted_goes_beyond_its_boost() -> None:
    """The RTX 5090 of the published times ran above its data sheet's clock; a GB10 of its generation isn't said to."""
    case = Case("flash-attn-2", SHAPE)
    own, other = (predict_time(case, gpu).clock_mhz / gpu.boost_mhz for gpu in map(gpus.get, ("rtx-5090", "gb10")))
    assert own > 1.0
    assert other == 1.0


def test_a_locked_clock_slows_the_sms_and_not_memory() -> None:
    fast, slow = (predict_time(Case("flash-attn-3", SHAPE), H100, clock_mhz=mhz) for mhz in (1800, 900))
    assert slow.terms_ms["tensor"] == pytest.approx(2 * fast.terms_ms["tensor"])
    assert slow.terms_ms["dram"] == fast.terms_ms["dram"]
    assert slow.clock_mhz == 900


def test_a_small_grid_leaves_sms_idle_and_says_so() -> None:
    """One head of 2048 queries, whose keys cuDNN doesn't split: 16 CTAs of 128 rows for 108 SMs, two on each."""
    made = predict_time(Case("torch-cudnn", AttentionShape(1, 1, 1, 2048, 2048, 128)), gpus.get("a100-sxm-80"))
    assert made.waves == pytest.approx(16 / 216)
    assert made.balance < 0.2
    assert made.tail == pytest.approx(1 - made.balance)
    assert any("SMs wait" in sentence for sentence in made.advice)


def test_the_advice_names_a_batch_that_fills_the_last_wave() -> None:
    """FlashAttention-3 on 11 heads of 8192: 704 CTAs of 128 rows, 5.3 waves of 132 SMs, so 6; 12 fill 5.8 of 6."""
    made = predict_time(Case("flash-attn-3", AttentionShape(1, 11, 11, 8192, 8192, 128)), H100)
    assert made.balance == pytest.approx(704 / 132 / 6, abs=0.01)
    assert any("a batch of" in sentence for sentence in made.advice)


def test_constants_of_others_are_named_and_widen_the_interval() -> None:
    case = Case("flash-attn-2", SHAPE)
    own = predict_time(case, gpus.get("a100-sxm-80"))
    other = predict_time(case, gpus.get("l40s"))
    assert own.notes == ()
    assert other.notes == ("No published time is of l40s: constants of other GPUs of ada.",)
    assert other.high_ms / other.ms > own.high_ms / own.ms
    turing = predict_time(Case("pytorch-eager", AttentionShape(1, 1, 1, 512, 512, 64)), gpus.get("t4"))
    assert turing.notes[0].startswith("No published time is of turing, nor of t4: constants of")
    # Nobody published a time of our kernels, so theirs is no narrower than that of all.
    assert predict_time(Case("flash2", SHAPE), H100).high_ms / predict_time(Case("flash2", SHAPE), H100).ms == (
        pytest.approx(max(shipped().errors["all"].high, shipped().errors["flash-attn-2"].high))
    )
    assert predict_time(Case("flash2", SHAPE), H100).notes == ("The constants of flash2 are flash-attn-2's.",)


def test_sdpas_math_says_that_it_was_never_fitted_and_runs_on_fp32_lanes() -> None:
    case = Case("torch-math", SHAPE)
    made = predict_time(case, H100)
    assert made.notes == ("Nothing but its GPU's constants was fitted for torch-math.",)
    assert made.terms_ms["tensor"] == 0 < made.terms_ms["fma"]
    assert "fp32 lanes" in explain(case, H100, made)
    # Scores of 64 slices in fp32, forward: two products of 2·64·4096²·128 FLOPs at no more than 66.9 TFLOP/s.
    assert made.ms > 2 * 2 * 64 * 4096**2 * 128 / 66.9e12 * 1e3


def test_constants_can_be_handed_over() -> None:
    """Twice the tile factor and no overhead: twice the SM time, here nearly all of it."""
    errors = Errors(0.5, 2.0, 1)
    one, two = (
        Constants(
            {"hopper": Generation(1.0, 1.0, 0.0)},
            {"flash-attn-2": Implementation(factor, 0.0)},
            {"all": errors},
            errors,
            ("h100-sxm",),
            {},
        )
        for factor in (1.0, 2.0)
    )
    case = Case("flash-attn-2", SHAPE)
    assert predict_time(case, H100, constants=two).ms == pytest.approx(
        2 * predict_time(case, H100, constants=one).ms, rel=1e-3
    )
    made = predict_time(case, H100, constants=one)
    assert (made.low_ms, made.high_ms) == (made.ms * 0.5, made.ms * 2.0)
    with pytest.raises(Unsupported, match="No published time was fitted for flash-attn-3"):
        predict_time(Case("flash-attn-3", SHAPE), H100, constants=one)


def test_an_explanation_adds_up() -> None:
    case = Case("flash-attn-2", SHAPE, direction="fwd+bwd")
    made = predict_time(case, H100)
    text = explain(case, H100, made)
    assert sum(time.ms for time in made.kernels) == pytest.approx(made.ms)
    assert "4,194,304 FLOPs by mma" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "dot of O and dO" in text


def test_at_most_three_constants_for_a_generation_and_two_for_an_implementation() -> None:
    known = shipped()
    assert known.generations and known.implementations
    assert all(len(generation.__dataclass_fields__) <= 3 for generation in known.generations.values())
    assert all(len(one.__dataclass_fields__) <= 2 for one in known.implementations.values())


@pytest.mark.parametrize("mask", [{"causal": True}, {"window_left": 100, "window_right": 100}])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_products_of_standard_attention_take_as_long_under_a_mask(mask: dict[str, Any], direction: Direction) -> None:
    # They multiply every row by every key, so their CTAs are alike whatever is masked.
    full, masked = (
        predict_time(Case("standard", shape, direction=direction), H100)
        for shape in (AttentionShape(4, 8, 8, 1024, 1024, 128), AttentionShape(4, 8, 8, 1024, 1024, 128, **mask))
    )
    for one, other in zip(full.kernels, masked.kernels, strict=True):
        assert other.balance == one.balance
        # Masking adds some instructions to the product that it follows.
        assert one.ms <= other.ms < 1.1 * one.ms
