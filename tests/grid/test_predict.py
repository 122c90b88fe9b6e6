"""A grid's predictions are those of its cases one by one, to the byte, whatever the axes hold."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fa_bench.cases import Features
from fa_bench.model import gpus
from fa_bench.sweep.plan import SweepRequest
from tests.grid.conftest import from_grid, in_order, one_by_one


def some(rng: random.Random, values: list[Any], most: int) -> tuple[Any, ...]:
    return tuple(rng.sample(values, rng.randint(1, min(most, len(values)))))


def a_length(rng: random.Random) -> int:
    return rng.choice([rng.randint(1, 40), rng.randint(41, 600), rng.randint(601, 20_000), 16 << rng.randint(0, 10)])


def a_request(rng: random.Random) -> SweepRequest:
    """Some axes with several values, others with one, as many as make a few dozen cases; from ragged to aligned."""
    heads_kv = rng.choice([1, 2, 3, 5, 8])
    tiles = [(16 * rng.randint(1, 16), 16 * rng.randint(1, 16)) for _ in range(2)]
    return SweepRequest(
        seqs=tuple({a_length(rng) for _ in range(rng.randint(1, 5))}),
        seqs_kv=rng.choice([(), tuple({a_length(rng) for _ in range(rng.randint(1, 4))})]),
        head_dims=some(rng, [8, 24, 32, 40, 64, 72, 96, 128, 192, 200, 256], 2),
        blocks=some(rng, ["auto", *tiles], 2),
        stages=rng.choice([(), (1,), (2, 1)]),
        impls=some(rng, ["standard", "flash1", "flash2", "flash2-atomic"], 2),
        dtypes=some(rng, ["fp16", "bf16", "fp32"], 2),
        causal=some(rng, [False, True], 2),
        layouts=some(rng, ["bhsd", "bshd"], 2),
        directions=some(rng, ["fwd", "bwd", "fwd+bwd"], 2),
        windows=rng.choice([(None,), (None,), (None, (rng.randint(0, 3000), rng.choice([None, 0, rng.randint(0, 900)])))]),
        features=rng.choice([(Features(),), (Features(),), some(rng, FEATURES, 2)]),
        head_dim_v=rng.choice([None, None, None, 48]),
        batches=rng.choice([(), some(rng, [1, 2, 3, 7, 40], 2)]),
        heads=some(rng, [heads_kv, 2 * heads_kv, 6 * heads_kv], 2),
        heads_kv=rng.choice([(), (heads_kv,)]),
    )


FEATURES = [Features(bias=True), Features(softcap=30.0, alibi=True), Features(sinks=True, dropout_p=0.1, bias=True)]


@pytest.mark.parametrize("seed", range(20))
def test_a_grid_is_its_cases_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    gpu = gpus.get(rng.choice(["a100-sxm-80", "h100-sxm", "rtx-4090", "t4"]))
    request = a_request(rng)
    assert in_order(from_grid(request, gpu)) == in_order(one_by_one(request, gpu))
