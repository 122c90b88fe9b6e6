"""The host backend: what it offers, times, measures, verifies and predicts."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from fa_bench.backends import baselines, host, turns
from fa_bench.backends.base import RunResult
from fa_bench.backends.host import HostBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import OutOfMemory, Unsupported
from fa_bench.measure.stopping import StoppingRule
from fa_bench.model.gpu import Gpu

TORCH = tuple(b.name for b in baselines.BASELINES if "host" in b.places)
SHAPE = AttentionShape(1, 4, 2, 70, 90, 32, causal=True)


def backend(samples: int = 3) -> HostBackend:
    # A clock that ticks 1 s per look. A sample is between two looks, and two more stand around its turn, which so takes
    # 3 s: the limit ends the case after `samples` turns.
    ticks = itertools.count()
    limit_ms = samples * 3000.0
    return HostBackend(rule=StoppingRule(max_elapsed_ms=limit_ms, min_samples=100), clock=lambda: float(next(ticks)))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("impl", ["numpy-standard", "numpy-flash"])
def test_runs_and_verifies(any_gpu: Gpu, impl: str, dtype: str, layout: str) -> None:
    case = Case(impl, SHAPE, dtype, Tile(16, 32), layout)
    result = backend().run(case, any_gpu)
    assert result.verification is not None and result.verification.passed, result.verification
    assert result.samples is not None
    assert result.samples.times_ms == (1000.0, 1000.0, 1000.0)
    assert result.samples.source == "host-clock" and result.samples.l2_state == "" and result.samples.noisy
    assert result.counts is None and result.resources is None
    assert result.mem_source == "allocator"
    assert result.mem_peak_bytes is not None
    assert 0 < result.mem_peak_bytes <= backend().required_bytes(case)


@pytest.mark.parametrize("impl", TORCH)
def test_torch_runs_on_the_cpu(any_gpu: Gpu, impl: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    result = backend(samples=1).run(Case(impl, SHAPE, "bf16"), any_gpu)
    assert result.verification is not None and result.verification.passed, result.verification
    # Resident memory may not rise at all for tensors this small; then it is not known, never 0.
    assert (result.mem_source == "rss") == (result.mem_peak_bytes is not None)
    assert result.mem_peak_bytes != 0


def test_an_output_that_goes_wrong_after_the_first_runs_is_found(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    right = host.numpy_impls.standard
    calls = itertools.count(1)

    def wrong_from_the_fourth_on(*args: object) -> tuple[np.ndarray, np.ndarray]:
        o, lse = right(*args)  # type: ignore[arg-type]
        return (o * 0, lse) if next(calls) >= 4 else (o, lse)

    monkeypatch.setattr(host.numpy_impls, "standard", wrong_from_the_fourth_on)
    case = Case("numpy-standard", SHAPE, "fp32")
    # One warm-up and two samples make three calls; the fourth comes after the loop, and is the one that is verified.
    result = backend(samples=2).run(case, any_gpu)
    assert result.verification is not None and not result.verification.passed


def test_cases_are_timed_in_turns_on_the_same_inputs(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made, ran = [], []
    make_inputs = turns.reference.make_inputs
    standard, flash = host.numpy_impls.standard, host.numpy_impls.flash
    monkeypatch.setattr(turns.reference, "make_inputs", lambda case: made.append(case.impl) or make_inputs(case))
    monkeypatch.setattr(host.numpy_impls, "standard", lambda *args: ran.append("standard") or standard(*args))
    monkeypatch.setattr(host.numpy_impls, "flash", lambda *args: ran.append("flash") or flash(*args))
    cases = [Case("numpy-standard", SHAPE, "fp32"), Case("numpy-flash", SHAPE, "fp32", Tile(16, 32))]
    results = backend(samples=3).run_together(cases, any_gpu)
    for result in results:
        assert isinstance(result, RunResult) and result.samples is not None
        assert result.samples.times_ms == (1000.0,) * 3
        assert result.verification is not None and result.verification.passed
    # Each warms up for itself, then A B A B A B, then one run more of each, which is verified.
    assert ran == ["standard", "flash", *["standard", "flash"] * 3, "standard", "flash"]
    assert made == ["numpy-standard"]


def test_a_case_that_fails_does_not_take_the_others_with_it(any_gpu: Gpu) -> None:
    cases = [Case("flash2", SHAPE, "fp32"), Case("numpy-standard", SHAPE, "fp32")]
    refused, result = backend().run_together(cases, any_gpu)
    assert isinstance(refused, Unsupported)
    assert isinstance(result, RunResult) and result.verification is not None and result.verification.passed


def test_a_case_that_does_not_fit_beside_others_runs_alone(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    standard, calls = host.numpy_impls.standard, itertools.count(1)

    def too_large_at_first(*args: object) -> tuple[np.ndarray, np.ndarray]:
        if next(calls) == 1:
            raise MemoryError
        return standard(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(host.numpy_impls, "standard", too_large_at_first)
    cases = [Case("numpy-standard", SHAPE, "fp32"), Case("numpy-flash", SHAPE, "fp32", Tile(16, 32))]
    for result in backend().run_together(cases, any_gpu):
        assert isinstance(result, RunResult) and result.verification is not None and result.verification.passed


def test_out_of_memory_is_ours(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(host.numpy_impls, "standard", fail)
    with pytest.raises(OutOfMemory, match="numpy-standard ran out of memory"):
        backend().run(Case("numpy-standard", SHAPE), any_gpu)


def test_unknown_implementation_is_refused(any_gpu: Gpu) -> None:
    with pytest.raises(Unsupported, match="flash2"):
        backend().run(Case("flash2", SHAPE), any_gpu)


def test_standard_at_16k_is_predicted_to_need_its_score_matrix() -> None:
    shape = AttentionShape(1, 1, 1, 16384, 16384, 64)
    # S alone: 16384² float32 = 1 GiB; flash needs megabytes, most of them for the verification.
    standard = HostBackend().required_bytes(Case("numpy-standard", shape))
    assert 2**30 < standard < 1.3 * 2**30
    assert HostBackend().required_bytes(Case("numpy-flash", shape)) < 0.3 * 2**30


def test_torch_is_offered_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines.importlib.util, "find_spec", lambda name: None)
    assert HostBackend().implementations() == ("numpy-standard", "numpy-flash")
    monkeypatch.setattr(baselines.importlib.util, "find_spec", lambda name: object())
    assert HostBackend().implementations()[2:] == TORCH


def test_says_what_it_runs_on_and_what_is_free() -> None:
    assert HostBackend().device
    if sys.platform == "linux":
        free = HostBackend().free_memory_bytes()
        assert free is not None and free > 0
