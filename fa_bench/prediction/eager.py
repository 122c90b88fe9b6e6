"""Attention as PyTorch runs it without a fused kernel: products, and elementwise kernels between them.

What ``benchmark_flash_attention.py`` of FlashAttention calls "PyTorch": ``baddbmm`` for the scaled scores, an addition
of the mask, ``softmax``, dropout, and a product with V. S and P are tensors of the case's type with a pass for each
read and write. In tensors of seq_q x seq_kv per slice, fwd: S written; mask: read and written; softmax: read and
written; dropout: read and written, a byte-mask written; P read. bwd: P read for dV; dP written; dropout as before;
softmax: dP and P read, dS written; dS read for dQ and for dK. Q, K, V and O are made contiguous and back: two passes
each forward, three tensors' gradients more backward.

The mask is broadcast over batch and heads, which PyTorch does element by element, not in vectors.
"""

from __future__ import annotations

from typing import Final

from fa_bench.cases import Case
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu
from fa_bench.prediction.kernels import Kernel, MemoryPass
from fa_bench.units import format_bytes

#: Passes over a tensor like Q to make Q, K, V and O contiguous, and backward dO, dQ, dK, dV and their sum.
_FORWARD_COPIES: Final = 8
_BACKWARD_COPIES: Final = 12


def pytorch_eager(case: Case, gpu: Gpu) -> list[Kernel]:
    """The kernels of a case.

    Raises
    ------
    Unsupported
        If S and P don't fit in the GPU's memory.
    """
    shape, size = case.shape, case.itemsize
    pairs = shape.slices * shape.seq_q * shape.seq_kv
    scores, rows = float(pairs * size), float(shape.slices * max(shape.seq_q, shape.seq_kv) * shape.head_dim * size)
    tensors = 4 if case.backward else 2
    if tensors * scores > gpu.mem_bytes:
        need, have = format_bytes(int(tensors * scores)), format_bytes(gpu.mem_bytes)
        raise Unsupported(f"S, P and their gradients would need {need}, and {gpu.slug} has {have}.")
    flops, dropout = 2.0 * pairs * shape.head_dim, case.features.dropout_p > 0

    def product(name: str) -> MemoryPass:
        return MemoryPass(name, scores + 2 * rows, flops)

    kernels: list[Kernel] = []
    if case.forward:
        kernels.append(product("QK^T"))
        if shape.causal or shape.windowed:
            kernels.append(MemoryPass("mask", 2 * scores, broadcasts=True))
        kernels.append(MemoryPass("softmax", 2 * scores))
        if dropout:
            kernels.append(MemoryPass("dropout", 2 * scores + pairs))
        kernels += [product("PV"), MemoryPass("copies", _FORWARD_COPIES * rows)]
    if case.backward:
        kernels += [product("dV"), product("dP")]
        if dropout:
            kernels.append(MemoryPass("dropout, backward", 2 * scores + pairs))
        kernels.append(MemoryPass("softmax, backward", 3 * scores))
        kernels += [product("dQ"), product("dK"), MemoryPass("copies, backward", _BACKWARD_COPIES * rows)]
    return kernels
