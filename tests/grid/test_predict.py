"""A grid's predictions are those of its cases one by one, to the byte, whatever the axes hold."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_by_one import Row, from_grid, in_order, one_by_one

from fa_bench.algorithms.user import load
from fa_bench.cases import MAX_SEQ, Features
from fa_bench.cli.planning import ModelOnly, resolved
from fa_bench.grid.plan import BLOCK_CASES, case_count, groups
from fa_bench.grid.predict import blocks
from fa_bench.grid.sizes import Sizes
from fa_bench.model import gpus
from fa_bench.sweep.plan import SweepRequest, plan
from fa_bench.sweep.predict import predict

A100 = gpus.get("a100-sxm-80")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "row_attention.toml"
FEATURES = [Features(bias=True), Features(softcap=30.0, alibi=True), Features(sinks=True, dropout_p=0.1, bias=True)]


def some(rng: random.Random, values: list[Any], most: int) -> tuple[Any, ...]:
    return tuple(rng.sample(values, rng.randint(1, min(most, len(values)))))


def a_length(rng: random.Random) -> int:
    return rng.choice([rng.randint(1, 40), rng.randint(41, 600), rng.randint(601, 20_000), 16 << rng.randint(0, 10)])


def a_request(rng: random.Random) -> SweepRequest:
    """Several values on some axes, from ragged to aligned; what can't run is among them."""
    heads_kv = rng.choice([1, 2, 3, 5, 8])
    tiles = [(16 * rng.randint(1, 8), 16 * rng.randint(1, 8)) for _ in range(2)]
    window = (rng.choice([None, rng.randint(0, 3000)]), rng.choice([None, 0, rng.randint(0, 900)]))
    return SweepRequest(
        seqs=tuple({a_length(rng) for _ in range(rng.randint(1, 4))}),
        seqs_kv=rng.choice([(), tuple({a_length(rng) for _ in range(rng.randint(1, 4))})]),
        head_dims=some(rng, [8, 24, 32, 40, 64, 72, 96, 128, 192, 200, 256], 2),
        blocks=some(rng, ["auto", "auto", *tiles], 2),
        stages=rng.choice([(), (1,), (2, 1)]),
        impls=some(rng, ["standard", "flash1", "flash2", "flash2", "flash2-atomic"], 2),
        dtypes=some(rng, ["fp16", "bf16", "fp32"], 2),
        causal=some(rng, [False, True], 2),
        layouts=some(rng, ["bhsd", "bshd"], 2),
        directions=rng.choice([("fwd",), some(rng, ["fwd", "bwd", "fwd+bwd"], 3)]),
        windows=rng.choice([(None,), (None,), (None, window)]),
        features=rng.choice([(Features(),), (Features(),), some(rng, FEATURES, 2)]),
        head_dim_v=rng.choice([None, None, None, 48]),
        batches=rng.choice([(), some(rng, [1, 2, 3, 7, 40], 2)]),
        heads=some(rng, [heads_kv, 2 * heads_kv, 6 * heads_kv], 2),
        heads_kv=rng.choice([(), (heads_kv,)]),
    )


def requests() -> list[tuple[SweepRequest, str]]:
    rng = random.Random(20)
    return [
        (a_request(rng), rng.choice(["a100-sxm-80", "a100-sxm-80", "h100-sxm", "rtx-4090", "t4"])) for _ in range(40)
    ]


@pytest.mark.parametrize(("request_", "gpu"), requests())
def test_a_grid_is_its_cases_one_by_one(request_: SweepRequest, gpu: str) -> None:
    """Tile, status, reason, global bytes, work, compulsory bytes: every column of every case."""
    assert in_order(from_grid(request_, gpus.get(gpu))) == in_order(one_by_one(request_, gpus.get(gpu)))


@pytest.mark.parametrize(("request_", "gpu"), requests()[:6])
def test_dram_bytes_and_rooflines_are_those_of_cases_one_by_one(request_: SweepRequest, gpu: str) -> None:
    rows, alone = (make(request_, gpus.get(gpu), predict) for make in (from_grid, one_by_one))
    assert in_order(rows) == in_order(alone)


def test_dram_bytes_of_cases_of_different_sorts_side_by_side() -> None:
    """Cases that fit in L2 and that don't, of one wave and of many, whose tensors repeat or not, in one block."""
    request = SweepRequest(
        seqs=(129, 500, 1024, 3000, 8192), batches=(1, 4), heads=(1, 12), heads_kv=(1,), causal=(False, True),
        impls=("standard", "flash1", "flash2"), layouts=("bshd", "bhsd"),
    )  # fmt: skip
    for gpu in ("a30", "rtx-4090"):
        rows, alone = (make(request, gpus.get(gpu), predict) for make in (from_grid, one_by_one))
        assert in_order(rows) == in_order(alone)
        assert {row["roofline_limiter"] for row in rows} >= {"tensor", "dram"}
        assert any(row["dram_write_bytes_model"] == 0 for row in rows)
        assert any(row["dram_read_bytes_model"] > 2 * row["compulsory_read_bytes"] for row in rows)


def test_dram_bytes_where_bytes_times_ctas_exceed_64_bits() -> None:
    # 2¹⁶ x 2¹⁶ scores of 128 heads are 2⁴⁰ bytes, written by 2⁹ · 2⁹ · 2⁷ = 2²⁵ CTAs.
    request = SweepRequest(seqs=(2**16, 2**17), heads=(128,), impls=("standard", "flash1", "flash2"))
    rows, alone = (make(request, A100, predict) for make in (from_grid, one_by_one))
    assert in_order(rows) == in_order(alone)


def test_the_sample_has_cases_of_every_sort() -> None:
    rows = [row for request, gpu in requests() for row in from_grid(request, gpus.get(gpu))]
    assert len(rows) > 5000
    assert set(Counter(row["status"] for row in rows)) == {"run", "skipped", "unsupported"}
    ran = [row for row in rows if row["status"] == "run"]
    assert len(ran) > 1500
    for axis, values in {
        "impl": {"standard", "flash1", "flash2", "flash2-atomic"},
        "direction": {"fwd", "bwd", "fwd+bwd"},
        "layout": {"bhsd", "bshd"},
        "dtype": {"fp16", "bf16", "fp32"},
        "causal": {False, True},
        "bias": {False, True},
        "sinks": {False, True},
    }.items():
        assert {row[axis] for row in ran} == values, axis
    for told in (
        [row for row in ran if row["window_left"] is not None],
        [row for row in ran if row["heads_q"] > row["heads_kv"]],
        [row for row in ran if row["seq_q"] > row["seq_kv"] and row["causal"]],
    ):
        assert len(told) > 25


def by_sizes(rows: list[Row]) -> dict[tuple[int, ...], Row]:
    return {tuple(row[name] for name in ("batch", "heads_q", "seq_q")): row for row in rows}


def test_counts_beyond_64_bits_are_exact() -> None:
    # 2²⁷ queries and keys have 2⁵⁴ pairs; four products over 64 columns are 2⁶² FLOPs for each of 4 slices: 2⁶⁴.
    request = SweepRequest(seqs=(1024, MAX_SEQ), heads=(4,), impls=("flash2",))
    rows = by_sizes(from_grid(request, A100))
    assert rows[1, 4, MAX_SEQ]["flops_nominal"] == 2**64
    assert rows[1, 4, MAX_SEQ]["flops_executed"] == 2**64
    assert rows[1, 4, 1024]["flops_nominal"] == 4 * 64 * 4 * 2**20
    assert in_order(list(rows.values())) == in_order(one_by_one(request, A100))


def test_cases_beyond_a_grid_are_refused_with_their_own_number_of_ctas() -> None:
    # Tiles of 16 queries: 2²⁷ / 16 = 2²³ CTAs for each of 512 slices are 2³², and a grid holds 2³¹ - 1.
    request = SweepRequest(seqs=(64, MAX_SEQ), heads=(1, 512), blocks=((16, 16),), impls=("flash2",))
    rows = by_sizes(from_grid(request, A100))
    assert [rows[1, heads, seq]["status"] for heads in (1, 512) for seq in (64, MAX_SEQ)] == [
        *("run", "run", "run", "unsupported"),
    ]
    assert rows[1, 512, MAX_SEQ]["reason"].startswith("flash2_fwd needs 4294967296 CTAs, a grid holds 2147483647")
    assert in_order(list(rows.values())) == in_order(one_by_one(request, A100))


def test_what_may_not_fit_is_found_before_it_is_computed() -> None:
    lengths = np.array([1024, MAX_SEQ, MAX_SEQ])
    ones, slices = np.ones(3, np.int64), np.array([1, 1, 2**31 - 1])
    found = Sizes(ones, slices, ones, lengths, lengths).exceed_64_bits(64)
    # Padded to tiles, (2²⁷ + 2⁸)² · 64 · 32 is above 2⁶⁵.
    assert found.tolist() == [False, True, True]


def test_tokens_and_hidden_set_batch_and_heads() -> None:
    request = SweepRequest(seqs=(100, 512, 4096), head_dims=(64, 128), tokens=16_384, hidden=2048, impls=("flash2",))
    rows = from_grid(request, A100)
    # 16384 / 100 = 163.84, 16384 / 512 = 32, 16384 / 4096 = 4 sequences; 2048 / 64 = 32 and 2048 / 128 = 16 heads.
    assert {(row["seq_q"], row["batch"]) for row in rows} == {(100, 163), (512, 32), (4096, 4)}
    assert {(row["head_dim"], row["heads_q"]) for row in rows} == {(64, 32), (128, 16)}
    assert in_order(rows) == in_order(one_by_one(request, A100))


def test_packed_batches_and_kernels_of_the_users_are_predicted_one_by_one() -> None:
    packed = SweepRequest(seqs=(), seqlens=((5, 7), (300, 90)), heads=(2, 4), impls=("flash2",))
    assert [row["seqlens"] for row in from_grid(packed, A100)] == ["5x7 300x90"] * 2
    assert in_order(from_grid(packed, A100)) == in_order(one_by_one(packed, A100))
    request = resolved(SweepRequest(seqs=(64, 128), impls=("flash2", str(EXAMPLE))), (ModelOnly(),))
    rows = from_grid(request, A100)
    assert {row["impl"] for row in rows} == {"flash2", load(EXAMPLE).name}
    assert in_order(rows) == in_order(one_by_one(request, A100))


def test_a_plan_of_lengths_of_a_kind_is_a_plan_of_each() -> None:
    """Default tiles change with lengths up to 128, and then no more."""
    lengths = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300, 1000, 9999)
    request = SweepRequest(
        seqs=lengths,
        seqs_kv=lengths,
        impls=("standard", "flash1", "flash2"),
        directions=("fwd", "bwd"),
        dtypes=("fp16", "fp32"),
    )
    tiles = {
        (
            planned.case.impl,
            planned.case.direction,
            planned.case.dtype,
            planned.case.shape.seq_q,
            planned.case.shape.seq_kv,
        ): planned.case.tile
        for planned in plan(request, (ModelOnly(),), A100).cases
    }
    found = groups(request, (ModelOnly(),), A100)
    for group in found:
        case = group.planned.case
        for seq_q, seq_kv in zip(group.seq_q.tolist(), group.seq_kv.tolist(), strict=True):
            assert tiles.pop((case.impl, case.direction, case.dtype, seq_q, seq_kv)) == case.tile
    assert not tiles


def test_no_more_than_a_block_is_in_memory() -> None:
    request = SweepRequest(seqs=tuple(range(129, 10_000)), batches=(1, 2, 3), impls=("flash2",))
    counts = [block.count for block in blocks(request, (ModelOnly(),), A100)]
    assert sum(counts) == 3 * (10_000 - 129) == case_count(request, 1)
    assert counts == [BLOCK_CASES, 3 * (10_000 - 129) - BLOCK_CASES]


def test_there_is_no_loop_over_cases() -> None:
    """Calls of Python and C functions for a grid of 8 times as many cases are not a tenth more."""

    def calls(batches: int) -> int:
        request = SweepRequest(
            seqs=tuple(range(129, 1000)), batches=tuple(range(1, batches + 1)), impls=("standard", "flash1", "flash2"),
            causal=(False, True), layouts=("bhsd", "bshd"),
        )  # fmt: skip
        counted = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            for _ in blocks(request, (ModelOnly(),), A100):
                pass
        finally:
            sys.setprofile(None)
        return counted

    calls(1)  # fills caches
    few, many = calls(1), calls(8)
    # 871 lengths, 12 groups: the larger grid has 83,616 cases.
    assert few < many < 1.1 * few
    assert many < 83_616


def test_an_axis_with_a_value_twice_counts_once() -> None:
    once = SweepRequest(seqs=(64, 256), batches=(2,), heads=(4,), impls=("flash2",))
    twice = replace(once, seqs=(256, 64, 256), batches=(2, 2), heads=(4, 4), causal=(False, False))
    assert in_order(from_grid(twice, A100)) == in_order(from_grid(once, A100))
    assert case_count(twice, 1) == case_count(once, 1) == 2
