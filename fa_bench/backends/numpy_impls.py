"""Attention in NumPy: the textbook, and Algorithm 1 of the FlashAttention paper line by line.

Made to be read. Both take Q, K, V in their storage type (fp16, fp32, or bf16 bit patterns), compute in float32 and
give O in the storage type and the log-sum-exp. Shapes: ``Q [B, Hq, Sq, D]``, ``K, V [B, Hkv, Skv, D]``.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.storage import decode, encode

Array = NDArray[Any]

#: Elements of fast memory that the default block sizes of `flash` assume: 256 KiB of float32, a part of one CPU
#: core's L2 cache. It is the M of the paper, in elements.
FAST_MEMORY_ELEMENTS: Final = 64 * 1024


def _by_kv_head(x: Array, shape: AttentionShape) -> Array:
    """Tensor as ``[B, Hkv, heads per K/V head, seq, D]`` in float32, so that grouped heads broadcast."""
    return decode(x).reshape(shape.batch, shape.heads_kv, -1, x.shape[2], shape.head_dim)


def standard(q: Array, k: Array, v: Array, shape: AttentionShape, dtype: str) -> tuple[Array, Array]:
    """Standard attention: the whole S and P in memory, ``batch · heads_q · seq_q · seq_kv`` float32.

    Returns
    -------
    O : ndarray, ``[B, Hq, Sq, D]`` in the storage type
    LSE : ndarray of float32, ``[B, Hq, Sq]``
    """
    s = _by_kv_head(q, shape) @ _by_kv_head(k, shape).swapaxes(-1, -2)
    s *= np.float32(1 / math.sqrt(shape.head_dim))
    if shape.causal:
        hidden = np.arange(shape.seq_kv) > np.arange(shape.seq_q)[:, None] + shape.diagonal
        np.copyto(s, -np.inf, where=hidden)
    m = s.max(axis=-1, keepdims=True)
    m[np.isneginf(m)] = 0  # a row that sees nothing: exp(-inf - 0) = 0 in every place, instead of NaN
    p = np.exp(np.subtract(s, m, out=s), out=s)
    l = p.sum(axis=-1, keepdims=True)  # noqa: E741 - the papers' name
    with np.errstate(divide="ignore"):
        lse = (m + np.log(l)).reshape(q.shape[:3])
    p /= np.where(l == 0, np.float32(1), l)
    o = p @ _by_kv_head(v, shape)
    return encode(o.reshape(q.shape), dtype), lse


def standard_bytes(case: Case) -> int:
    """Peak memory of `standard` in bytes, inputs and output included."""
    s = case.shape
    pairs = s.seq_q * s.seq_kv
    per_row = 4 * 4 * s.slices * s.seq_q  # m, l, LSE and one of their temporaries
    return _tensors_bytes(case) + per_row + 4 * s.slices * pairs + (pairs if s.causal else 0)


def block_sizes(shape: AttentionShape, tile: Tile | None) -> tuple[int, int]:
    """``(Br, Bc)``: the tile's, or the paper's ``Bc = ceil(M / 4d)``, ``Br = min(Bc, d)``."""
    if tile is not None:
        return tile.block_m, tile.block_n
    b_c = math.ceil(FAST_MEMORY_ELEMENTS / (4 * shape.head_dim))
    return min(b_c, shape.head_dim), b_c


def flash(
    q: Array, k: Array, v: Array, shape: AttentionShape, dtype: str, tile: Tile | None = None
) -> tuple[Array, Array]:
    """FlashAttention, Algorithm 1 of Dao et al. 2022; the comments carry the paper's line numbers.

    Beyond the paper: the softmax scale τ = 1/sqrt(d), the causal mask (aligned bottom-right; blocks that are all
    masked are skipped), all heads at once, and guards for rows that have seen nothing yet, whose m is still
    -inf: ``-inf - (-inf)`` must not become NaN.

    Returns
    -------
    O : ndarray, ``[B, Hq, Sq, D]`` in the storage type
    LSE : ndarray of float32, ``[B, Hq, Sq]``
    """
    n_q, n_kv, d = shape.seq_q, shape.seq_kv, shape.head_dim
    tau = np.float32(1 / math.sqrt(d))
    Q, K, V = (_by_kv_head(x, shape) for x in (q, k, v))
    b_r, b_c = block_sizes(shape, tile)  # 1: block sizes
    O = np.zeros_like(Q)  # 2: O = 0, l = 0, m = -inf  # noqa: E741 - the papers' name
    l = np.zeros(Q.shape[:-1], np.float32)  # noqa: E741 - likewise
    m = np.full(Q.shape[:-1], -np.inf, np.float32)
    for j in range(0, n_kv, b_c):  # 3, 5: for each block of K and V
        K_j, V_j = K[..., j : j + b_c, :], V[..., j : j + b_c, :]  # 6: load K_j, V_j
        for i in range(0, n_q, b_r):  # 4, 7: for each block of Q
            rows = np.s_[..., i : i + b_r]
            last = min(i + b_r, n_q) - 1
            if shape.causal and j > last + shape.diagonal:
                continue
            Q_i, O_i, l_i, m_i = Q[..., i : i + b_r, :], O[..., i : i + b_r, :], l[rows], m[rows]  # 8: load
            S_ij = tau * (Q_i @ K_j.swapaxes(-1, -2))  # 9: S = τ Q Kᵀ
            if shape.causal and j + K_j.shape[-2] - 1 > i + shape.diagonal:
                key, query = np.arange(j, j + K_j.shape[-2]), np.arange(i, last + 1)
                S_ij[..., key > query[:, None] + shape.diagonal] = -np.inf
            m_ij = S_ij.max(axis=-1)  # 10: m̃ = rowmax(S)
            P_ij = np.exp(S_ij - _finite(m_ij)[..., None])  # 10: P̃ = exp(S - m̃)
            l_ij = P_ij.sum(axis=-1)  # 10: l̃ = rowsum(P̃)
            m_new = np.maximum(m_i, m_ij)  # 11: m_new = max(m, m̃)
            old, new = np.exp(m_i - _finite(m_new)), np.exp(m_ij - _finite(m_new))
            l_new = old * l_i + new * l_ij  # 11: l_new = e^(m - m_new) l + e^(m̃ - m_new) l̃
            inverse = 1 / np.where(l_new == 0, np.float32(1), l_new)
            # 12: O = diag(l_new)⁻¹ (diag(l) e^(m - m_new) O + e^(m̃ - m_new) P̃ V)
            O_i[...] = (inverse * l_i * old)[..., None] * O_i + (inverse * new)[..., None] * (P_ij @ V_j)
            l[rows], m[rows] = l_new, m_new  # 13: l = l_new, m = m_new
    with np.errstate(divide="ignore"):
        lse = m + np.log(l)
    return encode(O.reshape(q.shape), dtype), lse.reshape(q.shape[:3])  # 16: return O


def _finite(m: Array) -> Array:
    """Row maxima with -inf (nothing seen) replaced by 0: ``exp(-inf - 0)`` is the 0 that is meant."""
    return np.where(np.isneginf(m), np.float32(0), m)


def flash_bytes(case: Case) -> int:
    """Peak memory of `flash` in bytes, inputs and output included."""
    s = case.shape
    b_r, b_c = block_sizes(s, case.tile)
    b_r, b_c = min(b_r, s.seq_q), min(b_c, s.seq_kv)
    block = 4 * s.slices * (3 * b_r * b_c + 3 * b_r * s.head_dim)
    # The accumulator O, which fp32 inputs share with the output, and l, m, LSE.
    accumulator = 4 * s.slices * s.seq_q * (s.head_dim + 4)
    return _tensors_bytes(case) + accumulator + block


def _tensors_bytes(case: Case) -> int:
    """Q, K, V and O in the storage type, and float32 copies of them where that is another type."""
    s = case.shape
    elements = 2 * s.head_dim * (s.slices * s.seq_q + s.batch * s.heads_kv * s.seq_kv)
    return elements * (case.itemsize if case.dtype == "fp32" else case.itemsize + 4)
