"""Compulsory bytes, by hand."""

from __future__ import annotations

import pytest

from fa_bench.cases import AttentionShape, Case, Features
from fa_bench.model.compulsory import compulsory_read_bytes, compulsory_write_bytes


@pytest.mark.parametrize(("dtype", "itemsize"), [("fp16", 2), ("bf16", 2), ("fp32", 4)])
def test_each_tensor_once(dtype: str, itemsize: int) -> None:
    # Q, K, V of 1024 x 64 elements each; O the same
    case = Case("flash2", AttentionShape(1, 1, 1, 1024, 1024, 64), dtype=dtype)  # type: ignore[arg-type]
    assert compulsory_read_bytes(case) == 3 * 65536 * itemsize
    assert compulsory_write_bytes(case) == 65536 * itemsize


def test_kv_counts_by_its_own_heads_and_length() -> None:
    # FlashAttention-2 on an A30 at S = 512, 32 heads on 8, D = 128 (Nsight Compute data): Q = O = 32 * 512 * 128 * 2
    # = 4,194,304 and K = V = 8 * 512 * 128 * 2 = 1,048,576; so reads 6.29 MB and writes 4.19 MB.
    case = Case("flash2", AttentionShape(1, 32, 8, 512, 512, 128))
    assert compulsory_read_bytes(case) == 6_291_456
    assert compulsory_write_bytes(case) == 4_194_304


def test_lengths_are_not_mixed_up() -> None:
    # batch 2, heads 4 on 2, seq_q 3, seq_kv 5, D 8, fp32: reads 2 * (4*3 + 2*2*5) * 8 * 4 = 2048; writes 2*4*3*8*4
    case = Case("flash1", AttentionShape(2, 4, 2, 3, 5, 8, causal=True), dtype="fp32")
    assert compulsory_read_bytes(case) == 2048
    assert compulsory_write_bytes(case) == 768


def test_a_backward_pass_reads_do_and_o_and_writes_three_gradients() -> None:
    # batch 2, heads 4 on 2, seq_q 3, seq_kv 5, D 8, fp32: a tensor like Q has 2*4*3*8*4 = 768 bytes, one like K
    # 2*2*5*8*4 = 640. Alone it reads Q, O, dO, K, V; after the forward pass O need not leave the chip. It writes dQ,
    # dK, dV, and the forward pass O.
    shape = AttentionShape(2, 4, 2, 3, 5, 8)
    alone, both = (Case("flash2", shape, dtype="fp32", direction=direction) for direction in ("bwd", "fwd+bwd"))
    assert (compulsory_read_bytes(alone), compulsory_write_bytes(alone)) == (3 * 768 + 2 * 640, 768 + 2 * 640)
    assert (compulsory_read_bytes(both), compulsory_write_bytes(both)) == (2 * 768 + 2 * 640, 2 * 768 + 2 * 640)


def test_keys_that_no_query_sees_are_left_out_and_a_bias_is_read() -> None:
    # 1 query, 16,384 keys, a window of 128 to the left: 129 keys are seen. D = 128, fp16, 8 heads: Q has 2,048 bytes,
    # K and V of 129 keys 2 * 8 * 129 * 256 = 528,384.
    decode = Case("flash2", AttentionShape(1, 8, 8, 1, 16384, 128, window_left=128, window_right=0))
    assert compulsory_read_bytes(decode) == 2_048 + 528_384
    # 64 queries of 128 keys, 16 to the left: the first query sees from key 64 - 16 = 48 on, so 80 keys.
    # 2 batches, 1 head, D = 8: (64 + 2 * 80) * 8 * 2 bytes each; a bias of 64 x 128, read once, is not windowed.
    chunk = AttentionShape(2, 1, 1, 64, 128, 8, causal=True, window_left=16)
    assert compulsory_read_bytes(Case("flash2", chunk)) == 2 * (64 + 2 * 80) * 16
    biased = Case("flash2", AttentionShape(2, 1, 1, 64, 128, 8), features=Features(bias=True))
    assert compulsory_read_bytes(biased) == 2 * (64 + 2 * 128) * 16 + 64 * 128 * 2


def test_neither_mask_nor_layout_changes_them() -> None:
    plain = Case("flash2", AttentionShape(1, 1, 1, 64, 64, 64))
    masked = Case("flash2", AttentionShape(1, 1, 1, 64, 64, 64, causal=True), layout="bshd")
    assert compulsory_read_bytes(plain) == compulsory_read_bytes(masked)


def test_of_a_packed_batch_there_is_no_padding() -> None:
    # 5 + 0 queries in 2 heads, 7 keys and 3 that nobody asks for in one; D 8, V 16, fp16: Q 2·5·8, K and V 7·(8 + 16),
    # O 2·5·16 elements.
    case = Case("flash2", AttentionShape.packed([(5, 7), (0, 3)], 2, 1, 8, head_dim_v=16))
    assert compulsory_read_bytes(case) == (80 + 168) * 2
    assert compulsory_write_bytes(case) == 160 * 2
