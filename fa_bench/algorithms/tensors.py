"""What all attention kernels share: tensors in either layout, stride arguments, the padded head dimension."""

from __future__ import annotations

from typing import Final

from fa_bench.algorithms.base import Buffer, Role, Scalar
from fa_bench.cases import AttentionShape, Case
from fa_bench.random_bits import drop_threshold
from fa_bench.sizes import ceil_div, least

#: Head dimensions that kernels are compiled for; any multiple of 8 up to 256 runs in the next larger tile.
PADDED_HEAD_DIMS: Final = (32, 64, 96, 128, 192, 256)

#: Elements that rows of the bias are padded to a multiple of.
_BIAS_UNIT: Final = 8

ELEMENT_DEFINES: Final = {"fp16": "ELEMENT_FP16", "bf16": "ELEMENT_BF16", "fp32": "ELEMENT_FP32"}


def padded_head_dim(head_dim: int) -> int:
    """Columns of the tile that holds ``head_dim`` columns."""
    return next(dim for dim in PADDED_HEAD_DIMS if dim >= head_dim)


def attention_tensor(name: str, case: Case, heads: int, seq: int, role: Role, head_dim: int | None = None) -> Buffer:
    """A ``[batch, heads, seq, head_dim]`` tensor of ``case``, in its type and layout; with a head_dim of its own."""
    dim = case.shape.head_dim if head_dim is None else head_dim
    if case.layout == "bhsd":
        head, row = seq * dim, dim
    else:
        head, row = dim, heads * dim
    shape = (case.shape.tensor_sizes[0], heads, seq, dim)
    return Buffer(name, case.dtype, shape, (heads * seq * dim, head, row, 1), role)


def qkvo(case: Case) -> tuple[Buffer, Buffer, Buffer, Buffer]:
    """The tensors Q, K, V and O of ``case``."""
    shape = case.shape
    _, queries, keys = shape.tensor_sizes
    return (
        attention_tensor("Q", case, shape.heads_q, queries, "input"),
        attention_tensor("K", case, shape.heads_kv, keys, "input"),
        attention_tensor("V", case, shape.heads_kv, keys, "input", shape.dim_v),
        attention_tensor("O", case, shape.heads_q, queries, "output", shape.dim_v),
    )


def feature_tensors(case: Case) -> tuple[Buffer, ...]:
    """What the features of ``case`` take beside Q, K and V: bias, slopes, sinks.

    A row of the bias is padded to whole 8 elements; one bias serves all batches.
    """
    shape, features = case.shape, case.features
    pitch = ceil_div(shape.seq_kv, _BIAS_UNIT) * _BIAS_UNIT
    strides = (0, shape.seq_q * pitch, pitch, 1)
    bias = Buffer("bias", case.dtype, (1, shape.heads_q, shape.seq_q, pitch), strides, "input")
    slopes, sinks = (Buffer(name, "fp32", (1, shape.heads_q, 1), (0, 1, 1), "input") for name in ("slopes", "sinks"))
    asked = ((bias, features.bias), (slopes, features.alibi), (sinks, features.sinks))
    return tuple(buffer for buffer, there in asked if there)


def row_vector(name: str, case: Case, role: Role) -> Buffer:
    """A contiguous fp32 ``[batch, heads_q, seq_q]`` buffer: LSE, l, m."""
    heads = case.shape.heads_q
    batch, queries, _ = case.shape.tensor_sizes
    return Buffer(name, "fp32", (batch, heads, queries), (heads * queries, queries, 1), role)


def stride_arguments(*buffers: Buffer) -> tuple[Scalar, ...]:
    """Batch, head and row strides of each buffer, in elements, as kernels take them."""
    return tuple(Scalar("i64", stride) for buffer in buffers for stride in buffer.strides[:3])


def window_defines(shape: AttentionShape) -> dict[str, int]:
    """The sides of a window that kernels are compiled for, beside a causal mask."""
    return {
        "WINDOW_LEFT": int(shape.window_left is not None),
        "WINDOW_RIGHT": int(shape.window_right is not None and not shape.causal),
    }


def feature_defines(case: Case) -> dict[str, int]:
    """Mask and features that forward kernels are compiled for, 1 where a case asks for one."""
    features = case.features
    return {
        "CAUSAL": int(case.shape.causal),
        **window_defines(case.shape),
        "SOFTCAP": int(features.softcap > 0),
        "BIAS": int(features.bias),
        "ALIBI": int(features.alibi),
        "SINKS": int(features.sinks),
        "DROPOUT": int(features.dropout_p > 0),
    }


def window_arguments(shape: AttentionShape) -> tuple[Scalar, ...]:
    """Keys to the left and to the right of the diagonal that a query sees.

    No limit is one that no key is beyond; sums of positions then stay within 32 bits.
    """
    limit = shape.seq_q + shape.seq_kv
    sides = (shape.window_left, shape.window_right)
    return tuple(Scalar("i32", limit if side is None else least(side, limit)) for side in sides)


def dropout_arguments(case: Case) -> tuple[Scalar, ...]:
    """Seed, below what a pair is dropped, and by what the others are scaled."""
    p = case.features.dropout_p
    return Scalar("u64", case.seed & (2**64 - 1)), Scalar("u32", drop_threshold(p)), Scalar("f32", 1 / (1 - p))
