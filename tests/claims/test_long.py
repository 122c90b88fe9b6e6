"""Claim (s)."""

from __future__ import annotations

import pytest
from judgements import passed, values

from fa_bench.claims import long


def test_memory_and_time_of_a_million() -> None:
    """Q, K, V and O of 2²⁰ rows of 128 in fp16 are 256 MiB each, LSE 4 MiB; S and P 2 · 2⁴⁰ · 2 B = 4 TiB.

    32 heads: (1024 + 4) · 32 MiB = 32.125 GiB of 80; 2²²: four times that. 4·N²·d = 5.63e14 FLOP at 312 TFLOP/s:
    1.804 s, at 2²² 16 times as long; an H200 has 989.4 TFLOP/s: 0.569 s.
    """
    judgement = long.too_long()
    found = values(judgement)
    assert found["memory_2_20_1"] == pytest.approx(1028 / 1024 / 80)
    assert found["memory_2_20_32"] == pytest.approx(32.125 / 80)
    assert found["memory_2_22_32"] == pytest.approx(4 * 32.125 / 80)
    assert found["extra_2_20"] == 4 * 2**20
    assert found["standard_2_20"] == pytest.approx(4 * 2**40, rel=1e-4)
    assert found["time_2_20"] == pytest.approx(1804, abs=1)
    assert found["time_2_22"] == pytest.approx(16 * found["time_2_20"], rel=1e-3)
    assert found["time_2_20_h200"] == pytest.approx(569, abs=1)
    # No kernel is faster than the roofline, and FlashAttention-2 reaches over half of it.
    assert found["time_2_20"] < found["predicted_2_20"] < 2 * found["time_2_20"]
    assert found["time_2_20_h200"] < found["predicted_2_20_h200"] < 2 * found["time_2_20_h200"]
    assert passed(judgement) == {"memory_2_22_32"}


def test_other_lengths_turn_the_verdict() -> None:
    assert long.too_long(lengths=(2**14,)).verdict == "does-not-hold"
    # One head of 2²⁷: 128 times 1.004 GiB.
    assert long.too_long(lengths=(2**27,)).verdict == "holds"
