"""The Triton kernel of `fa_bench.backends.triton_flash` on PyTorch's tensors."""

from __future__ import annotations

import importlib
import math
from typing import Any, Final

from fa_bench.algorithms.library_flash import triton_tile
from fa_bench.backends.baselines import TORCH, TRITON
from fa_bench.backends.torch_impls import Call
from fa_bench.cases import Case

#: Tiles of K and V that are under way at a time: one is computed with, one is loaded.
NUM_STAGES: Final = 2


def flash(case: Case, q: Any, k: Any, v: Any) -> Call:
    """Launch ``flash_forward``; O gets Q's memory layout. Triton compiles at the first call, which is not timed."""
    torch, shape = TORCH.load(), case.shape
    TRITON.load()
    kernel = importlib.import_module("fa_bench.backends.triton_flash").flash_forward
    tile = triton_tile(shape.head_dim)
    grid = (shape.slices * math.ceil(shape.seq_q / tile.block_m), 1, 1)
    sizes = (shape.heads_q, shape.group, shape.seq_q, shape.seq_kv)

    def run() -> tuple[Any, Any]:
        o = torch.empty_like(q)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        strides = [stride for x in (q, k, v, o) for stride in x.stride()[:3]]
        kernel[grid](
            *(q, k, v, o, lse, *strides, *sizes, scale_log2(shape.head_dim)),
            **constants(case),
            num_warps=tile.num_warps,
            num_stages=NUM_STAGES,
        )
        return o, lse

    return Call(run, lambda result: result)


def scale_log2(head_dim: int) -> float:
    """The softmax scale in units of log 2."""
    return 1 / (math.sqrt(head_dim) * math.log(2))


def constants(case: Case) -> dict[str, Any]:
    """Values that the kernel is compiled with; ``tl.arange`` takes powers of 2 only, and a product at least 16."""
    tile, head_dim = triton_tile(case.shape.head_dim), case.shape.head_dim
    dim = max(16, 1 << (head_dim - 1).bit_length())
    return {
        "HEAD_DIM": head_dim,
        "DIM": dim,
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "CAUSAL": case.shape.causal,
    }
