"""xFormers' memory-efficient attention, by whichever of its operators it chooses for the case.

As in xformers 0.0.35 (``xformers/ops/fmha`` of https://github.com/facebookresearch/xformers): tensors are
``[batch, seq, heads, head_dim]``, strided at will but for the last axis; with shared K/V heads
``[batch, seq, kv_heads, group, head_dim]``, K and V expanded along the group without a copy. A class stands for the
bottom-right mask. ``memory_efficient_attention_forward_requires_grad`` gives LSE with the same forward operator.
"""

from __future__ import annotations

from typing import Any

from fa_bench.backends.baselines import XFORMERS, hides
from fa_bench.backends.torch_impls import Call, Output
from fa_bench.cases import Case


def memory_efficient(case: Case, q: Any, k: Any, v: Any) -> Call:
    """``xformers.ops.fmha.memory_efficient_attention_forward_requires_grad``."""
    fmha = XFORMERS.load("xformers.ops.fmha")
    attend, shape = fmha.memory_efficient_attention_forward_requires_grad, case.shape
    bias = fmha.attn_bias.LowerTriangularFromBottomRightMask() if hides(case) else None
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if shape.group > 1:
        q = q.unflatten(2, (shape.heads_kv, shape.group))
        k, v = (x.unsqueeze(3).expand(-1, -1, -1, shape.group, -1) for x in (k, v))

    def finish(result: Any) -> Output:
        o, lse = result
        if shape.group > 1:
            o, lse = o.flatten(2, 3), lse.flatten(1, 2)
        # Some operators pad LSE to a multiple of their tile.
        return o.transpose(1, 2), lse[..., : shape.seq_q]

    return Call(lambda: attend(q, k, v, attn_bias=bias), finish)
