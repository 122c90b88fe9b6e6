"""FlashInfer's prefill attention over ragged K and V, planned once and run many times, as it is meant to be used.

As in flashinfer-python 0.7.4 (``flashinfer/prefill.py`` of https://github.com/flashinfer-ai/flashinfer): tensors are
``[tokens, heads, head_dim]``, the sequences of a batch one after the other; the causal mask is aligned bottom-right;
LSE, ``[tokens, heads]``, is to base 2.
"""

from __future__ import annotations

import math
from typing import Any, Final

from fa_bench.backends.baselines import FLASHINFER, FLASHINFER_WORKSPACE_BYTES, TORCH
from fa_bench.backends.torch_impls import Call, Output
from fa_bench.cases import Case

#: Its own kernels. Others that it may choose (cuDNN, CUTLASS ...) have conventions of their own for LSE.
_BASE_2: Final = ("fa2", "fa3")


def prefill(case: Case, q: Any, k: Any, v: Any) -> Call:
    """``flashinfer.BatchPrefillWithRaggedKVCacheWrapper``; plan and workspace are made here, outside of the time.

    The wrapper chooses one of its backends for the GPU. Where that is not one of its own, LSE is left out.
    """
    torch, shape = TORCH.load(), case.shape
    workspace = torch.empty(FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    wrapper = FLASHINFER.load().BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
    starts = torch.arange(shape.batch + 1, dtype=torch.int32, device=q.device)
    wrapper.plan(
        starts * shape.seq_q,
        starts * shape.seq_kv,
        shape.heads_q,
        shape.heads_kv,
        shape.head_dim,
        causal=shape.causal,
        q_data_type=q.dtype,
        kv_data_type=k.dtype,
    )
    with_lse = getattr(wrapper, "_backend", "") in _BASE_2
    # Views: sequences lie one after the other in bshd, and a batch of one has no next.
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))

    def finish(result: Any) -> Output:
        o, lse = result if with_lse else (result, None)
        o = o.unflatten(0, (shape.batch, shape.seq_q)).transpose(1, 2)
        if lse is None:
            return o, None
        return o, lse.unflatten(0, (shape.batch, shape.seq_q)).transpose(1, 2) * math.log(2)

    return Call(lambda: wrapper.run(q, k, v, return_lse=with_lse), finish)
