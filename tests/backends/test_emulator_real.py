"""The emulator backend with the real compiler and the real emulator: every algorithm, end to end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from fa_bench import algorithms
from fa_bench.backends import emulator, why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model.gpu import Gpu

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(impl: str, shape: AttentionShape, dtype: str, layout: str = "bhsd") -> Case:
    case = Case(impl, shape, dtype, layout=layout)  # type: ignore[arg-type]
    return replace(case, tile=algorithms.get(impl).resolve(case, Tile(32, 32)))


def global_bytes(result: RunResult) -> Counter[tuple[str, str, str]]:
    assert result.counts is not None
    return Counter({(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]})


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_every_algorithm_is_right_and_moves_what_its_model_says(impl: str, dtype: str, any_gpu: Gpu) -> None:
    case = case_of(impl, AttentionShape(1, 2, 1, 70, 90, 40, causal=True), dtype)
    result = EmulatorBackend(jobs=1).run(case, any_gpu)
    assert result.verification is not None and result.verification.passed, result.verification
    model: Counter[tuple[str, str, str]] = Counter()
    for part in algorithms.get(impl).traffic(case):
        model[part.kernel, part.tensor, part.op] += part.bytes
    assert global_bytes(result) == +model  # "+" leaves out tensors with 0 bytes
    assert result.resources is not None and result.resources.registers > 0
    assert result.samples is None


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_one_slice_per_class_counts_like_all_slices(
    impl: str, layout: str, any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2 batches · 4 heads of 8 rows with D = 40: several alignment classes in either layout, fewer than slices.
    case = case_of(impl, AttentionShape(2, 4, 2, 8, 24, 40), "fp16", layout)
    whole = EmulatorBackend(jobs=1, all_slices=True).run(case, any_gpu)
    monkeypatch.setattr(emulator, "ALL_SLICES_FMA", 0)
    some = EmulatorBackend(jobs=1).run(case, any_gpu)
    assert whole.counts is not None and some.counts is not None
    assert whole.counts.fraction == 1.0
    assert global_bytes(some) == global_bytes(whole)
    assert some.counts.extra == whole.counts.extra
    if any(launch.ctas_per_slice for launch in algorithms.get(impl).program(case).launches):
        assert some.counts.fraction < 1.0
    assert some.verification is not None and some.verification.passed, some.verification
