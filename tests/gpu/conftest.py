"""A real GPU, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fa_bench import algorithms
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.cases import Case
from fa_bench.errors import UsageError
from fa_bench.measure.stopping import StoppingRule
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu

Run = Callable[..., RunResult]


@pytest.fixture(scope="session", autouse=True)
def _needs_a_gpu() -> None:
    if reason := why_not("cuda"):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def target(_needs_a_gpu: None) -> Gpu:
    """The registry's entry of the GPU here; any Ampere for one that it does not know yet."""
    import cupy

    try:
        return gpus.get(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    except UsageError:
        return gpus.get("a100-sxm-80")


def resolved(case: Case, gpu: Gpu) -> Case:
    """``case`` with its implementation's default tile if it has a kernel of ours and no tile."""
    if case.impl not in algorithms.names() or case.tile is not None:
        return case
    algorithm = algorithms.get(case.impl)
    return replace(case, tile=algorithm.resolve(case, algorithm.auto_tile(case, gpu)))


@pytest.fixture(scope="session")
def run(target: Gpu) -> Iterator[Run]:
    """Runs a case on the GPU: ``run(case, l2="cold")``. Short sampling: these tests are about being right."""
    from fa_bench.backends.cuda import CudaBackend

    rule = StoppingRule(max_elapsed_ms=100.0, min_sampled_ms=20.0)
    backends = {l2: CudaBackend(l2=l2, rule=rule) for l2 in ("cold", "warm")}
    yield lambda case, l2="cold": backends[l2].run(resolved(case, target), target)
    for backend in backends.values():
        backend.close()
