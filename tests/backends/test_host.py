"""The host backend: what it offers, times, measures, verifies and predicts."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from fa_bench.backends import baselines, host
from fa_bench.backends.baselines import TORCH_IMPLEMENTATIONS
from fa_bench.backends.host import HostBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import OutOfMemory, Unsupported
from fa_bench.measure.stopping import StoppingRule
from fa_bench.model.gpu import Gpu

SHAPE = AttentionShape(1, 4, 2, 70, 90, 32, causal=True)


def backend(samples: int = 3) -> HostBackend:
    # A clock that ticks 1 s per look: each sample takes 1000 ms, and the limit ends the run after `samples` of them,
    # at 2 · samples looks (one at the beginning, two per sample).
    ticks = itertools.count()
    limit_ms = (2 * samples) * 1000.0
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


@pytest.mark.parametrize("impl", TORCH_IMPLEMENTATIONS)
def test_torch_runs_on_the_cpu(any_gpu: Gpu, impl: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    result = backend(samples=1).run(Case(impl, SHAPE, "bf16"), any_gpu)
    assert result.verification is not None and result.verification.passed, result.verification
    # Resident memory may not rise at all for tensors this small; then it is not known, never 0.
    assert (result.mem_source == "rss") == (result.mem_peak_bytes is not None)
    assert result.mem_peak_bytes != 0


def test_the_last_timed_output_is_what_is_verified(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    right = host.numpy_impls.standard
    calls = itertools.count(1)

    def wrong_from_the_third_on(*args: object) -> tuple[np.ndarray, np.ndarray]:
        o, lse = right(*args)  # type: ignore[arg-type]
        return (o * 0, lse) if next(calls) >= 3 else (o, lse)

    monkeypatch.setattr(host.numpy_impls, "standard", wrong_from_the_third_on)
    case = Case("numpy-standard", SHAPE, "fp32")
    # One warm-up and two samples make three calls.
    result = backend(samples=2).run(case, any_gpu)
    assert result.verification is not None and not result.verification.passed


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
    assert HostBackend().implementations()[2:] == TORCH_IMPLEMENTATIONS


def test_says_what_it_runs_on_and_what_is_free() -> None:
    assert HostBackend().device
    if sys.platform == "linux":
        free = HostBackend().free_memory_bytes()
        assert free is not None and free > 0
