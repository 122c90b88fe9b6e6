"""FlashAttention in a few dozen lines of PyTorch: blocks, an online softmax and a backward that recomputes.

`FlashAttention` is a drop-in attention module in (batch, seq, heads, dim). It is written to be read and to be right,
not to be fast: every block is a handful of PyTorch calls. What makes it right where short versions of it fail:

* the causal mask is made from each block's own offsets and aligned bottom-right;
* a masked score is -inf, and a row that has seen nothing so far keeps m = -inf without making NaN;
* scores, row sums and the output are accumulated in float32 whatever the input's dtype;
* the backward pass keeps Q, K, V, O and one log-sum-exp per row, and recomputes P block by block.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

#: Rows of Q and of K/V per block.
DEFAULT_BLOCK = (128, 256)


class _Blocks:
    """Loops over blocks and masks; tensors are ``[batch, heads, seq, dim]`` from here on."""

    def __init__(self, seq_q: int, seq_kv: int, block: tuple[int, int], causal: bool) -> None:
        self.seq_q, self.seq_kv = seq_q, seq_kv
        self.block_m, self.block_n = block
        self.causal = causal
        self.diagonal = seq_kv - seq_q  # query i sees keys j <= i + diagonal

    def queries(self) -> list[slice]:
        """Blocks of query rows."""
        return [slice(i, min(i + self.block_m, self.seq_q)) for i in range(0, self.seq_q, self.block_m)]

    def keys(self, rows: slice) -> list[slice]:
        """Blocks of keys of which ``rows`` see at least one."""
        end = min(self.seq_kv, rows.stop + self.diagonal) if self.causal else self.seq_kv
        return [slice(j, min(j + self.block_n, self.seq_kv)) for j in range(0, end, self.block_n)]

    def scores(self, q: Tensor, k: Tensor, rows: slice, keys: slice, scale: float) -> Tensor:
        """``scale · q kᵀ`` of one block in float32, -inf where masked."""
        s = scale * (q @ k.transpose(-1, -2))
        if self.causal and keys.stop - 1 > rows.start + self.diagonal:
            query = torch.arange(rows.start, rows.stop, device=q.device)
            key = torch.arange(keys.start, keys.stop, device=q.device)
            s = s.masked_fill(key > query[:, None] + self.diagonal, -math.inf)
        return s


class _FlashFunction(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Forward and backward over blocks. ``q [B, H, Sq, D]``; ``k, v [B, H, Skv, D]``."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, block: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        blocks = _Blocks(q.shape[2], k.shape[2], block, causal)
        o = torch.empty_like(q)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        for rows in blocks.queries():
            q_i = q[:, :, rows].float()
            acc = torch.zeros_like(q_i)
            m = torch.full(q_i.shape[:3], -math.inf, device=q.device)
            total = torch.zeros_like(m)
            for keys in blocks.keys(rows):
                s = blocks.scores(q_i, k[:, :, keys].float(), rows, keys, scale)
                m_new = torch.maximum(m, s.amax(dim=-1))
                # Where nothing was seen yet m_new is -inf: subtract 0 instead, exp(-inf) is the 0 that is meant.
                safe = m_new.masked_fill(m_new == -math.inf, 0.0)
                p = torch.exp(s - safe[..., None])
                alpha = torch.exp(m - safe)
                total = alpha * total + p.sum(dim=-1)
                acc = alpha[..., None] * acc + p @ v[:, :, keys].float()
                m = m_new
            o[:, :, rows] = (acc / total.masked_fill(total == 0, 1.0)[..., None]).to(o.dtype)
            lse[:, :, rows] = m + torch.log(total)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.blocks, ctx.scale = blocks, scale
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Tensor, _d_lse: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        blocks, scale = ctx.blocks, ctx.scale
        d_q = torch.empty_like(q)
        d_k, d_v = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v))
        for rows in blocks.queries():
            q_i, d_o_i = q[:, :, rows].float(), d_o[:, :, rows].float()
            delta = (d_o_i * o[:, :, rows].float()).sum(dim=-1)  # rowsum(dO ∘ O) = rowsum(dP ∘ P)
            lse_i = lse[:, :, rows]
            lse_i = lse_i.masked_fill(lse_i == -math.inf, 0.0)  # sees nothing: P = exp(-inf - 0) = 0
            d_q_i = torch.zeros_like(q_i)
            for keys in blocks.keys(rows):
                k_j, v_j = k[:, :, keys].float(), v[:, :, keys].float()
                p = torch.exp(blocks.scores(q_i, k_j, rows, keys, scale) - lse_i[..., None])
                d_v[:, :, keys] += p.transpose(-1, -2) @ d_o_i
                d_s = p * (d_o_i @ v_j.transpose(-1, -2) - delta[..., None]) * scale
                d_q_i += d_s @ k_j
                d_k[:, :, keys] += d_s.transpose(-1, -2) @ q_i
            d_q[:, :, rows] = d_q_i.to(q.dtype)
        return d_q, d_k.to(k.dtype), d_v.to(v.dtype), None, None, None


class FlashAttention(nn.Module):  # type: ignore[misc]  # likewise
    """Exact attention that never holds the N×N matrix, forward or backward.

    Parameters
    ----------
    causal : bool
        Mask aligned bottom-right: key j is visible to query i iff ``j <= i + seq_kv - seq_q``. A query that sees
        nothing gives 0, and its gradient is 0.
    block : (int, int)
        Rows of Q and of K/V per block; any positive sizes, also beyond the sequence.
    scale : float, optional
        Softmax scale, 1/sqrt(dim) by default.
    """

    def __init__(
        self, *, causal: bool = False, block: tuple[int, int] = DEFAULT_BLOCK, scale: float | None = None
    ) -> None:
        super().__init__()
        self.causal, self.block, self.scale = causal, block, scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of ``q [batch, seq_q, heads_q, dim]`` over ``k, v [batch, seq_kv, heads_kv, dim]``.

        ``heads_q`` is a multiple of ``heads_kv``; query head h uses K/V head ``h // (heads_q / heads_kv)``.
        Returns ``[batch, seq_q, heads_q, dim]`` in the dtype of ``q``.
        """
        return self.with_lse(q, k, v)[0]

    def with_lse(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Like `forward`, and the log-sum-exp ``[batch, heads_q, seq_q]`` in float32 (no gradient)."""
        group, rest = divmod(q.shape[2], k.shape[2])
        if rest:
            raise ValueError(f"{q.shape[2]} query heads are not a multiple of {k.shape[2]} K/V heads")
        scale = 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale
        # A repeated head is an expanded one to autograd: the gradients of its copies are summed.
        k, v = (x.repeat_interleave(group, dim=2) if group > 1 else x for x in (k, v))
        o, lse = _FlashFunction.apply(*(x.transpose(1, 2) for x in (q, k, v)), scale, self.causal, self.block)
        return o.transpose(1, 2), lse
