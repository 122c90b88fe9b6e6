"""FlashAttention-2, forward, as a Triton kernel: one program per Q tile, K and V streamed past it, O written once.

The algorithm of ``kernels/flash2``, where Triton decides about threads, shared memory and the pipelining of loads.
Scores are kept in units of log 2, so that an exponential is one ``ex2``. The loop is split where the mask begins, and
only the part behind it compares indices.

Imports triton, so it is imported only where that is installed.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _step(
    acc, m, total, q, k_at, v_at, rows, keys, columns, k_row, v_row, seq_kv, diagonal, scale_log2,
    HEAD_DIM: tl.constexpr, DIM: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One tile of K and V: scores, new row maxima and sums, O rescaled and added to."""
    inside = keys[:, None] < seq_kv
    if DIM != HEAD_DIM:
        inside = inside & (columns[None, :] < HEAD_DIM)
    k_tile = k_at + keys[:, None].to(tl.int64) * k_row + columns[None, :]
    v_tile = v_at + keys[:, None].to(tl.int64) * v_row + columns[None, :]
    if MASKED or DIM != HEAD_DIM:
        k = tl.load(k_tile, mask=inside, other=0.0)
        v = tl.load(v_tile, mask=inside, other=0.0)
    else:
        k = tl.load(k_tile)
        v = tl.load(v_tile)
    s = tl.dot(q, tl.trans(k)) * scale_log2
    if MASKED:
        visible = keys[None, :] < seq_kv
        if CAUSAL:
            visible = visible & (keys[None, :] <= rows[:, None] + diagonal)
        s = tl.where(visible, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    # Where nothing was seen yet m_new is -inf: subtract 0 instead, 2^-inf is the 0 that is meant.
    safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.math.exp2(s - safe[:, None])
    alpha = tl.math.exp2(m - safe)
    total = total * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
    return acc, m_new, total


# Sizes are ordinary arguments: a length of 1 or a multiple of 16 is no reason to compile anew.
@triton.jit(do_not_specialize=["heads_q", "group", "seq_q", "seq_kv"])
def flash_forward(
    Q,  # [batch, heads_q, seq_q, HEAD_DIM], rows contiguous; likewise O
    K,  # [batch, heads_kv, seq_kv, HEAD_DIM]; likewise V
    V,
    O,  # noqa: E741 - the papers' name
    LSE,  # [batch, heads_q, seq_q], float32
    q_batch, q_head, q_row,  # strides in elements
    k_batch, k_head, k_row,
    v_batch, v_head, v_row,
    o_batch, o_head, o_row,
    heads_q, group, seq_q, seq_kv,
    scale_log2,  # softmax scale / ln 2
    HEAD_DIM: tl.constexpr, DIM: tl.constexpr,  # columns, and the power of 2 that holds them
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One Q tile of one (batch, query head) slice."""
    tiles = tl.cdiv(seq_q, BLOCK_M)
    tile, slice_index = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    batch, head = (slice_index // heads_q).to(tl.int64), (slice_index % heads_q).to(tl.int64)
    head_kv = head // group
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, DIM)
    diagonal = seq_kv - seq_q

    in_rows = rows[:, None] < seq_q
    if DIM != HEAD_DIM:
        in_rows = in_rows & (columns[None, :] < HEAD_DIM)
    offsets = rows[:, None].to(tl.int64)
    q = tl.load(
        Q + batch * q_batch + head * q_head + offsets * q_row + columns[None, :], mask=in_rows, other=0.0
    )  # fmt: skip
    k_at = K + batch * k_batch + head_kv * k_head
    v_at = V + batch * v_batch + head_kv * v_head

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DIM], tl.float32)
    end, whole = seq_kv, seq_kv
    if CAUSAL:
        end = tl.minimum(seq_kv, tl.maximum(0, tl.minimum((tile + 1) * BLOCK_M, seq_q) + diagonal))
        # Keys up to here are visible to the tile's first row, and so to all.
        whole = tl.minimum(seq_kv, tl.maximum(0, tile * BLOCK_M + diagonal + 1))
    whole = whole // BLOCK_N * BLOCK_N
    for start in range(0, whole, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        acc, m, total = _step(
            acc, m, total, q, k_at, v_at, rows, keys, columns, k_row, v_row, seq_kv, diagonal, scale_log2,
            HEAD_DIM, DIM, False, CAUSAL,
        )  # fmt: skip
    for start in range(whole, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        acc, m, total = _step(
            acc, m, total, q, k_at, v_at, rows, keys, columns, k_row, v_row, seq_kv, diagonal, scale_log2,
            HEAD_DIM, DIM, True, CAUSAL,
        )  # fmt: skip

    out = acc * (1.0 / tl.where(total == 0.0, 1.0, total))[:, None]
    tl.store(
        O + batch * o_batch + head * o_head + offsets * o_row + columns[None, :],
        out.to(O.dtype.element_ty),
        mask=in_rows,
    )
    # A row that saw nothing has m = -inf and total = 0: -inf, as it should be.
    lse = (m + tl.math.log2(total)) * 0.6931471805599453
    tl.store(LSE + slice_index.to(tl.int64) * seq_q + rows, lse, mask=rows < seq_q)
