"""Nominal FLOPs, by hand."""

from __future__ import annotations

import pytest

from fa_bench.cases import AttentionShape, Direction
from fa_bench.model import flops

#: batch 64, 16 heads, N = 1024, D = 64: the shape whose FLOPs people ask about.
PAPER = AttentionShape(64, 16, 16, 1024, 1024, 64)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("fwd", 274_877_906_944),  # 4 * 64 * 16 * 1024^2 * 64 = 2^38
        ("bwd", 687_194_767_360),  # 2.5 * 2^38
        ("fwd+bwd", 962_072_674_304),  # 3.5 * 2^38
    ],
)
def test_the_papers_shape(direction: Direction, expected: int) -> None:
    assert flops.nominal(PAPER, direction) == expected


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "causal", "expected"),
    [
        (4, 4, False, 512),  # 4 * 16 pairs * 8
        (4, 4, True, 256),  # half of it: the papers leave out half of the diagonal
        (3, 3, True, 144),  # 4 * 4.5 * 8: half of nine pairs
        (2, 5, True, 288),  # 4 * 9 visible pairs * 8
        (5, 2, True, 96),  # 4 * 3 * 8
    ],
)
def test_causal_counts(seq_q: int, seq_kv: int, causal: bool, expected: int) -> None:
    assert flops.nominal(AttentionShape(1, 1, 1, seq_q, seq_kv, 8, causal)) == expected


def test_flops_follow_the_query_heads() -> None:
    # 2 * 8 slices * 4 * 16 pairs * 8, shared K/V heads or not
    for heads_kv in (8, 2, 1):
        assert flops.nominal(AttentionShape(2, 8, heads_kv, 4, 4, 8)) == 8192


def test_rate() -> None:
    # 2^38 FLOPs in 2 ms = 137.4 TFLOP/s
    assert flops.tflops(2**38, 2.0) == pytest.approx(137.438953472)


@pytest.mark.parametrize("time_ms", [0.0, -1.0, float("nan")])
def test_a_time_that_is_not_positive_has_no_rate(time_ms: float) -> None:
    with pytest.raises(ValueError, match="time_ms must be positive"):
        flops.tflops(1, time_ms)


def test_a_packed_batch_counts_each_sequence() -> None:
    # 4 · 8 FLOPs a pair, two heads: 2 · 5 pairs and 3 · 1; sequences without queries or keys have none.
    shape = AttentionShape.packed([(2, 5), (0, 9), (3, 1), (4, 0)], 2, 1, 8)
    assert flops.nominal(shape) == 32 * 2 * 13
