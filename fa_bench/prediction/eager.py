"""Attention as PyTorch runs it without a fused kernel: products, and elementwise kernels between them.

What ``benchmark_flash_attention.py`` of FlashAttention calls "PyTorch": ``baddbmm`` for the scaled scores, an addition
of the mask, ``softmax``, dropout, and a product with V. S and P are tensors of the case's type with a pass for each
read and write. In tensors of seq_q x seq_kv per slice, fwd: S written; mask: read and written; softmax: read and
written; dropout: read and written, a byte-mask written; P read. bwd: P read for dV; dP written; dropout as before;
softmax: dP and P read, dS written; dS read for dQ and for dK. Q, K, V and O are made contiguous and back: two passes
each forward, three tensors' gradients more backward.

The mask is broadcast over batch and heads, which PyTorch does element by element, not in vectors.

``torch-math`` is what `scaled_dot_product_attention` does without a fused kernel
(``aten/src/ATen/native/transformers/attention.cpp``, `_scaled_dot_product_attention_math`, PyTorch 2.5 and later): Q, K
and V of 16 bits become fp32 (unless `allowFP16BF16ReductionMathSDP`), Q and K are scaled, and products, S and P are
fp32. PyTorch multiplies fp32 without TF32 unless it is allowed, so on the fp32 lanes, which are taken at their peak.
`_safe_softmax` looks for rows without a key: S compared, the result reduced, P written anew. At the end O and P are
converted. In fp32 the arithmetic of a broadcast hides behind twice the bytes.
"""

from __future__ import annotations

from typing import Final

from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu
from fa_bench.prediction.kernels import Kernel, MemoryPass
from fa_bench.prediction.memory import demand_memory

_FP32: Final = 4
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
    demand_memory(tensors * scores, gpu)
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


def torch_math(case: Case, gpu: Gpu) -> list[Kernel]:
    """The kernels of PyTorch's scaled dot product attention without a fused kernel.

    Raises
    ------
    Unsupported
        If S and P don't fit in the GPU's memory.
    """
    shape, narrow = case.shape, case.itemsize
    pairs = shape.slices * shape.seq_q * shape.seq_kv
    scores = float(_FP32 * pairs)
    # Elements of a tensor like Q and of one like K, as given and with its heads repeated.
    queries = float(shape.slices * shape.seq_q * shape.head_dim)
    repeated = float(shape.slices * shape.seq_kv * shape.head_dim)
    given = repeated * shape.heads_kv / shape.heads_q
    demand_memory((4 if case.backward else 3) * scores, gpu)
    half, grouped, dropout = narrow < _FP32, shape.heads_kv < shape.heads_q, case.features.dropout_p > 0
    cast = float(narrow + _FP32 if half else 0)

    def product(name: str) -> MemoryPass:
        return MemoryPass(name, scores + _FP32 * (queries + repeated), 2.0 * pairs * shape.head_dim, fp32=True)

    kernels: list[Kernel] = []
    if case.forward:
        repeats = 2 * _FP32 * (given + repeated) if grouped else 0.0
        inputs = cast * (queries + 2 * given) + repeats + 2 * _FP32 * (queries + repeated)
        if case.layout == "bshd":
            inputs += 2 * _FP32 * (queries + 2 * repeated)
        kernels += [MemoryPass("casts and scaling", inputs), product("QK^T")]
        if shape.causal or shape.windowed:
            kernels.append(MemoryPass("mask", 2 * scores))
        kernels += [MemoryPass("softmax", 2 * scores), MemoryPass("rows without keys", 3 * scores + 2 * pairs)]
        if dropout:
            kernels.append(MemoryPass("dropout", 2 * scores + pairs))
        kernels.append(product("PV"))
        if half:
            kernels.append(MemoryPass("O and P from fp32", cast * (queries + pairs)))
    if case.backward:
        kernels += [MemoryPass("dO to fp32", cast * queries)] if half else []
        kernels += [product("dV"), product("dP")]
        if dropout:
            kernels.append(MemoryPass("dropout, backward", 2 * scores + pairs))
        kernels += [MemoryPass("rows without keys, backward", 2 * scores)]
        kernels += [MemoryPass("softmax, backward", 3 * scores), product("dQ"), product("dK")]
        sums = 2 * _FP32 * (given + repeated) if grouped else 0.0
        gradients = 2 * _FP32 * (queries + repeated) + sums + cast * (queries + 2 * given)
        kernels.append(MemoryPass("scaling and casts, backward", gradients))
    return kernels
