"""Every head dimension that is accepted runs, whatever it is padded to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.tensors import PADDED_HEAD_DIMS, padded_head_dim
from fa_bench.backends import why_not
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import MAX_HEAD_DIM, AttentionShape, Case, DType, Tile
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
#: Beside the powers of two: those that people ask for, and the first and the last of each padding.
ASKED_FOR = (8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 104, 128, 136, 160, 192, 200, 224, 256)
QUICK = (8, 80, 160, 256)


def test_every_accepted_head_dim_has_a_tile_that_holds_it() -> None:
    for head_dim in range(8, MAX_HEAD_DIM + 1, 8):
        AttentionShape(1, 1, 1, 1, 1, head_dim)
        padded = padded_head_dim(head_dim)
        # The next larger one: not one that is too small, nor one that reads more than need be.
        assert padded == min(dim for dim in PADDED_HEAD_DIMS if dim >= head_dim)


@pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))
@pytest.mark.parametrize("impl", algorithms.names("fwd"))
@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [
        pytest.param(dtype, dim, marks=[] if dtype == "fp16" and dim in QUICK else [pytest.mark.slow])
        for dtype in ("fp16", "bf16", "fp32")
        for dim in ASKED_FOR
    ],
)
def test_every_accepted_head_dim_is_right_and_moves_its_own_columns_only(
    impl: str, dtype: DType, head_dim: int
) -> None:
    # Two tiles of queries, two of keys, neither full.
    algorithm = algorithms.get(impl)
    case = Case(impl, AttentionShape(1, 1, 1, 17, 19, head_dim), dtype)
    case = replace(case, tile=algorithm.resolve(case, Tile(16, 16)))
    assert algorithm.unsupported(case, A100) is None
    result = EmulatorBackend(jobs=1, all_slices=True).run(case, A100)
    assert result.verification is not None and result.verification.passed, result.verification
    assert result.counts is not None
    counted = {(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}
    assert counted == {(t.kernel, t.tensor, t.op): t.bytes for t in algorithm.traffic(case)}
