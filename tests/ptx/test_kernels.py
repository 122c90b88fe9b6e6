"""The repository's own kernels on both engines: each result is right, and all counts are the same.

Control instructions are left out: a branch to a ``ret`` is one guarded exit in the JIT, and a branch and a ``ret`` in
the interpreter.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fa_bench import algorithms, ptx
from fa_bench.backends import why_not
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
from fa_bench.ptx import interpreter

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def interpret(kernel: Any, *, jobs: int, **launch: Any) -> ptx.LaunchCounters:
    """The interpreter in the place of the JIT; it has one thread."""
    return interpreter.run(kernel, **launch)


@pytest.mark.parametrize("dtype", ["fp16", pytest.param("bf16", marks=pytest.mark.slow), "fp32"])
@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_engines_agree_on_every_kernel(impl: str, dtype: str) -> None:
    """Ragged, causal, 48-byte rows in fp16: partial tiles, zero-size copies and divergent lanes."""
    case = Case(impl, AttentionShape(1, 1, 1, 19, 21, 24, causal=True), dtype)  # type: ignore[arg-type]
    case = replace(case, tile=algorithms.get(impl).resolve(case, Tile(16, 16)))
    compiled = EmulatorBackend(jobs=1).run(case, gpus.get("a100-sxm-80"))
    stand_in = SimpleNamespace(load=ptx.load, Memory=ptx.Memory, launch=interpret)
    interpreted = EmulatorBackend(jobs=1, ptx=stand_in).run(case, gpus.get("a100-sxm-80"))
    for result in (compiled, interpreted):
        assert result.verification is not None and result.verification.passed, result.verification
    assert compiled.counts is not None and interpreted.counts is not None
    assert set(compiled.counts.traffic["global"]) == set(interpreted.counts.traffic["global"])
    for kernel, extra in compiled.counts.extra.items():
        expected = dict(interpreted.counts.extra[kernel])
        assert {**extra, "instructions_control": 0} == {**expected, "instructions_control": 0}
