"""Shapes at which others' kernels were wrong, on every kernel of ours: one example each, without a search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fa_bench import algorithms
from fa_bench.backends import why_not
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")

pytestmark = [
    pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator"))),
    pytest.mark.parametrize("impl", algorithms.names("fwd")),
]


def assert_right(impl: str, shape: AttentionShape, tile: Tile) -> None:
    case = Case(impl, shape)
    case = replace(case, tile=algorithms.get(impl).resolve(case, tile))
    result = EmulatorBackend(jobs=1, all_slices=True).run(case, A100)
    assert result.verification is not None and result.verification.passed, result.verification


@pytest.mark.parametrize(("seq", "block"), [(192, 128), (1, 32), (31, 32), (33, 32), (137, 128)])
def test_lengths_that_are_no_multiple_of_the_block(impl: str, seq: int, block: int) -> None:
    assert_right(impl, AttentionShape(1, 1, 1, seq, seq, 16), Tile(block, block))


@pytest.mark.parametrize(("seq_q", "seq_kv"), [(2, 5), (5, 2), (1, 40), (40, 17)])
def test_causal_with_other_keys_than_queries(impl: str, seq_q: int, seq_kv: int) -> None:
    # Of 5 queries on 2 keys the first three see nothing, of 40 on 17 the first 23.
    assert_right(impl, AttentionShape(1, 1, 1, seq_q, seq_kv, 16, causal=True), Tile(16, 16))


def test_four_query_heads_on_two_of_keys(impl: str) -> None:
    assert_right(impl, AttentionShape(1, 4, 2, 20, 20, 16), Tile(16, 16))
