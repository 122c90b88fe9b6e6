"""FlashAttention's table of memory: what is allocated here, and what the published figures have beside it."""

from __future__ import annotations

import pytest

from fa_bench.cases import AttentionShape
from fa_bench.model import gpus
from fa_bench.validation import fa1_memory
from fa_bench.validation.result import LeftOut

A100 = gpus.get("a100-sxm-40")
MIB = 1024**2


def shape(seq: int) -> AttentionShape:
    return AttentionShape(16, 8, 8, seq, seq, 64)


def test_what_standard_attention_allocates() -> None:
    # N = 1024: a tensor of N x D is 128 slices · 1024 · 64 · 2 B = 16 MiB, one of N x N 256 MiB, LSE 0.5 MiB.
    # Q, K, V, O and their gradients; S, P, dP and dS: 8 · 16 + 4 · 256 + 0.5 = 1152.5 MiB.
    assert fa1_memory.allocated_bytes("standard", shape(1024), A100) == 1152.5 * MIB


def test_what_flash_attention_allocates() -> None:
    # Eight tensors of 16 MiB, LSE and the row sums, 0.5 MiB each; with atomics dQ once more in fp32, 32 MiB.
    assert fa1_memory.allocated_bytes("flash2", shape(1024), A100) == 129 * MIB
    assert fa1_memory.allocated_bytes("flash2-atomic", shape(1024), A100) == 161 * MIB


def test_a_published_row_beside_ours() -> None:
    rows = fa1_memory.validate().comparisons[0].rows
    row = next(row for row in rows if row["method"] == "PyTorch Attention" and row["seq"] == 1024)
    assert (row["memory_bytes_published"], row["memory_bytes_model"]) == (1184 * MIB, 1152.5 * MIB)
    # 1152.5 / 1184 - 1, and (1184 - 1152.5) / 16 tensors.
    assert row["memory_deviation"] == pytest.approx(-0.026605, abs=1e-6)
    assert row["tensors_missing"] == pytest.approx(1.96875)


def test_the_rest_is_the_same_number_of_tensors_at_every_length() -> None:
    # What has no N² in it, in whole tensors but for LSE (1/32 of one) and what is cut off whole MiB.
    rows = fa1_memory.validate().comparisons[0].rows
    assert len(rows) == 6 + 5 + 10
    for row in rows:
        whole = 3 if row["method"] == "FlashAttention" else 2
        assert row["tensors_missing"] == pytest.approx(whole, abs=1 / 16), row


def test_the_published_sums_are_whole_tensors_of_mebibytes() -> None:
    # 4 N² + 10 N·D for PyTorch, to the last MiB at all six lengths: the unit is MiB.
    for row in fa1_memory.validate().comparisons[0].rows:
        if row["method"] == "PyTorch Attention":
            n = row["seq"]
            assert row["memory_bytes_published"] == 128 * 2 * (4 * n * n + 10 * n * 64)


def test_what_computes_less_is_left_out() -> None:
    assert fa1_memory.validate().left_out == (
        LeftOut("table 21, 9 methods", 72, "approximate or sparse: less work than the shape says"),
    )


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing here holds what 'Reformer' holds"):
        fa1_memory.impl_of("Reformer", 512)
