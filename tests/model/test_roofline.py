"""The roofline, by hand, with figures that make each unit bind."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from fa_bench.algorithms.base import Work
from fa_bench.cases import AttentionShape, Case
from fa_bench.model import gpus
from fa_bench.model.roofline import (
    KernelBound,
    Roofline,
    arithmetic_intensity,
    kernel_bounds,
    ridge_flop_per_byte,
    roofline,
)

A100 = gpus.get("a100-sxm-80")
H100 = gpus.get("h100-sxm")
T4 = gpus.get("t4")
CASE = Case("flash2", AttentionShape(1, 1, 1, 1024, 1024, 64))


def work(*per_kernel: tuple[str, int, int, int]) -> Work:
    return Work(
        flops_executed=sum(tensor + fma for _, tensor, fma, _ in per_kernel),
        exp_count=sum(exp for *_, exp in per_kernel),
        per_kernel=per_kernel,
    )


@pytest.mark.parametrize(
    ("kernel", "dram_bytes", "ms", "limiter"),
    [
        # 312 GFLOP at 312 TFLOP/s
        (("k", 312 * 10**9, 0, 0), 0, 1.0, "tensor"),
        # 39 GFLOP at 19.5 TFLOP/s
        (("k", 0, 39 * 10**9, 0), 0, 2.0, "fma"),
        # 6.117 GB at 2039 GB/s
        (("k", 0, 0, 0), 6_117_000_000, 3.0, "dram"),
        # 16 * 108 SMs * 1.41 GHz = 2.43648 T/s, 4 ms of it
        (("k", 0, 0, 9_745_920_000), 0, 4.0, "exp"),
        # all at once: the slowest decides, nothing adds
        (("k", 312 * 10**9, 39 * 10**9, 9_745_920_000), 6_117_000_000, 4.0, "exp"),
    ],
)
def test_each_unit_can_bind(kernel: tuple[str, int, int, int], dram_bytes: int, ms: float, limiter: str) -> None:
    result = roofline(CASE, work(kernel), {"k": dram_bytes}, A100)
    assert result.ms == pytest.approx(ms, rel=1e-12)
    assert result.limiter == limiter


def test_kernels_add_and_the_largest_share_is_named() -> None:
    # scores 1 ms on tensor cores, softmax 3 ms on DRAM, pv 1.5 ms on tensor cores: 5.5 ms, 3 of them DRAM
    per_kernel = work(("scores", 312 * 10**9, 0, 0), ("softmax", 0, 0, 1000), ("pv", 468 * 10**9, 0, 0))
    dram = {"scores": 1000, "softmax": 6_117_000_000, "pv": 1000}
    result = roofline(CASE, per_kernel, dram, A100)
    assert result == Roofline(pytest.approx(5.5), "dram")
    # With the softmax at 2 ms the two products together, 2.5 ms, are the larger share.
    assert roofline(CASE, per_kernel, dram | {"softmax": 4_078_000_000}, A100).limiter == "tensor"


def test_launches_of_one_kernel_are_one_kernel() -> None:
    twice = work(("k", 156 * 10**9, 0, 0), ("k", 156 * 10**9, 0, 0))
    assert roofline(CASE, twice, {"k": 1}, A100) == roofline(CASE, work(("k", 312 * 10**9, 0, 0)), {"k": 1}, A100)


def test_a_kernel_that_only_moves_bytes_counts() -> None:
    # flash1's initialisation does no arithmetic: 2.039 GB are 1 ms
    assert roofline(CASE, work(), {"init": 2_039_000_000}, A100) == Roofline(pytest.approx(1.0), "dram")


@pytest.mark.parametrize(
    ("dtype", "gpu", "known"),
    [("bf16", T4, False), ("fp16", T4, True), ("bf16", A100, True), ("fp32", A100, True), ("fp32", T4, False)],
)
def test_a_peak_that_is_not_known_gives_none_and_not_zero(dtype: str, gpu: gpus.Gpu, known: bool) -> None:
    case = dataclasses.replace(CASE, dtype=dtype)  # type: ignore[arg-type]
    result = roofline(case, work(("k", 10**9, 0, 0)), {"k": 10**6}, gpu)
    assert (result == Roofline(None, None)) is not known
    assert (result.ms is not None) is known


def test_a_peak_that_is_not_needed_does_not_matter() -> None:
    # fp32 by plain FMA on a T4, which has no TF32: 8.1 GFLOP at 8.1 TFLOP/s
    case = dataclasses.replace(CASE, dtype="fp32")
    assert roofline(case, work(("k", 0, 8_100_000_000, 0)), {}, T4) == Roofline(pytest.approx(1.0), "fma")


def test_without_work_and_bytes_nothing_is_known() -> None:
    assert roofline(CASE, work(), {}, A100) == Roofline(None, None)


def test_terms_by_kernel_keep_their_order() -> None:
    bounds = kernel_bounds(CASE, work(("b", 0, 195, 0), ("a", 312, 0, 0)), {"init": 2039, "a": 4078}, A100)
    assert bounds is not None
    assert [bound.kernel for bound in bounds] == ["b", "a", "init"]
    # 312 FLOP / 312e12 = 1e-12 s; 4078 B / 2039e9 = 2e-9 s
    expected: Mapping[str, float] = {"tensor": 1e-9, "fma": 0.0, "dram": 2e-6, "exp": 0.0}
    assert bounds[1].times_ms == pytest.approx(expected)
    assert (bounds[1].limiter, bounds[1].ms) == ("dram", pytest.approx(2e-6))


def test_units_that_tie_are_named_in_a_fixed_order() -> None:
    assert KernelBound("k", {"tensor": 1.0, "fma": 1.0, "dram": 1.0, "exp": 1.0}).limiter == "tensor"


def test_exponentials_bind_before_dram_on_an_h100() -> None:
    # FlashAttention-3, section 3: per SM and clock 4096 tensor FLOPs against 16 exponentials. Forward attention has
    # 4 D FLOPs per exponential: at D = 64 exactly as long as the exponentials take, so both show 256 FLOP per exp.
    pairs = 10**9
    bounds = kernel_bounds(CASE, work(("k", 4 * 64 * pairs, 0, pairs)), {}, H100)
    assert bounds is not None
    assert bounds[0].times_ms["exp"] == pytest.approx(bounds[0].times_ms["tensor"], rel=1e-3)


def test_arithmetic_intensity() -> None:
    # FlashAttention on compulsory bytes, fp16: 4 N^2 D / (4 N D * 2) = N / 2
    assert arithmetic_intensity(4 * 4096**2 * 64, 4 * 4096 * 64 * 2) == 2048
    assert arithmetic_intensity(1, 0) is None


@pytest.mark.parametrize(
    ("gpu", "dtype", "ridge"),
    [
        ("a100-sxm-80", "fp16", 153.0),  # 312 / 2.039
        ("a100-sxm-40", "fp16", 200.6),  # 312 / 1.555
        ("t4", "bf16", None),
    ],
)
def test_ridge(gpu: str, dtype: str, ridge: float | None) -> None:
    assert ridge_flop_per_byte(gpus.get(gpu), dtype) == (None if ridge is None else pytest.approx(ridge, abs=0.05))
