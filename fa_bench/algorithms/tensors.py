"""What all attention kernels share: tensors in either layout, stride arguments, the padded head dimension."""

from __future__ import annotations

from typing import Final

from fa_bench.algorithms.base import Buffer, Role, Scalar
from fa_bench.cases import Case

#: Head dimensions that kernels are compiled for; any multiple of 8 up to 256 runs in the next larger tile.
PADDED_HEAD_DIMS: Final = (32, 64, 96, 128, 192, 256)

ELEMENT_DEFINES: Final = {"fp16": "ELEMENT_FP16", "bf16": "ELEMENT_BF16", "fp32": "ELEMENT_FP32"}


def padded_head_dim(head_dim: int) -> int:
    """Columns of the tile that holds ``head_dim`` columns."""
    return next(dim for dim in PADDED_HEAD_DIMS if dim >= head_dim)


def attention_tensor(name: str, case: Case, heads: int, seq: int, role: Role) -> Buffer:
    """A ``[batch, heads, seq, head_dim]`` tensor of ``case``, in its type and layout."""
    dim = case.shape.head_dim
    if case.layout == "bhsd":
        head, row = seq * dim, dim
    else:
        head, row = dim, heads * dim
    shape = (case.shape.batch, heads, seq, dim)
    return Buffer(name, case.dtype, shape, (heads * seq * dim, head, row, 1), role)


def qkvo(case: Case) -> tuple[Buffer, Buffer, Buffer, Buffer]:
    """The tensors Q, K, V and O of ``case``."""
    shape = case.shape
    return (
        attention_tensor("Q", case, shape.heads_q, shape.seq_q, "input"),
        attention_tensor("K", case, shape.heads_kv, shape.seq_kv, "input"),
        attention_tensor("V", case, shape.heads_kv, shape.seq_kv, "input"),
        attention_tensor("O", case, shape.heads_q, shape.seq_q, "output"),
    )


def row_vector(name: str, case: Case, role: Role) -> Buffer:
    """A contiguous fp32 ``[batch, heads_q, seq_q]`` buffer: LSE, l, m."""
    shape = case.shape
    strides = (shape.heads_q * shape.seq_q, shape.seq_q, 1)
    return Buffer(name, "fp32", (shape.batch, shape.heads_q, shape.seq_q), strides, role)


def stride_arguments(*buffers: Buffer) -> tuple[Scalar, ...]:
    """Batch, head and row strides of each buffer, in elements, as kernels take them."""
    return tuple(Scalar("i64", stride) for buffer in buffers for stride in buffer.strides[:3])
