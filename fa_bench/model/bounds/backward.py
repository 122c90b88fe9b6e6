"""The papers' backward passes, every access counted, in elements of one slice."""

from __future__ import annotations

from fa_bench.model.bounds.elements import Elements
from fa_bench.sizes import ceil_div


def standard_backward(seq_q: int, seq_kv: int, head_dim: int, head_dim_v: int | None = None) -> Elements:
    """Standard attention backward (Algorithm 3 of [1]), every access counted: ``7·N² + 8·N·d``.

    dV = Pᵀ·dO with the P of the forward pass, dP = dO·Vᵀ, dS from P and dP, dQ = dS·K, dK = dSᵀ·Q: each step reads its
    operands from HBM and writes its result there. With the forward pass, eleven passes over N² elements. Theorem 5 of
    [1] keeps the order, Θ(N·d + N²). Left out: as in :func:`standard`.

    Examples
    --------
    >>> standard_backward(1024, 1024, 64).total
    7864320
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    pairs, queries, keys = seq_q * seq_kv, seq_q * head_dim, seq_kv * head_dim
    values, outputs = seq_kv * dim_v, seq_q * dim_v
    return Elements(
        reads={"P": 2 * pairs, "dO": 2 * outputs, "V": values, "dP": pairs, "dS": 2 * pairs, "K": keys, "Q": queries},
        writes={"dV": values, "dP": pairs, "dS": pairs, "dQ": queries, "dK": keys},
    )


def flash1_backward(
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    block_n: int,
    head_dim_v: int | None = None,
    visited_rows: int | None = None,
) -> Elements:
    """Algorithm 4 of [1], every access counted: ``4·N·d + Tc·N·(5·d + 2)`` with Tc = ⌈N/Bc⌉.

    K and V blocks in the outer loop are read once, their gradients written once. Each of the Tc passes goes over all
    rows: it reads Q_i, O_i, dO_i, dQ_i, l_i and m_i (line 10) and writes dQ_i. Left out: the initialisation of dQ, dK
    and dV in line 5.

    Parameters
    ----------
    block_n : int
        Bc, rows of K and V per block.
    head_dim_v : int, optional
        Columns of V and O, where they are not those of Q and K.
    visited_rows : int, optional
        Rows of Q over all blocks that are not skipped (:class:`MaskBlocks`); by default none is.

    Examples
    --------
    >>> flash1_backward(1024, 1024, 64, 256).total
    1581056
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    rows = ceil_div(seq_kv, block_n) * seq_q if visited_rows is None else visited_rows
    keys, values = seq_kv * head_dim, seq_kv * dim_v
    as_q, as_o = rows * head_dim, rows * dim_v
    return Elements(
        reads={"K": keys, "V": values, "Q": as_q, "O": as_o, "dO": as_o, "dQ": as_q, "l": rows, "m": rows},
        writes={"dQ": as_q, "dK": keys, "dV": values},
    )


def flash2_backward(
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    block_n: int,
    head_dim_v: int | None = None,
    visited_rows: int | None = None,
) -> Elements:
    """Algorithm 2 of [2], every access counted: ``6·N·d + N + Tc·N·(5·d + 2)`` with Tc = ⌈N/Bc⌉.

    The loops of :func:`flash1_backward`, with L and D in the place of l and m; before them D = rowsum(dO ∘ O) reads dO
    and O and writes N elements. Left out: the initialisation of dQ; that line 15 names dQ_i a second time; and that a
    kernel doesn't need O_i once it has D_i.

    Parameters
    ----------
    block_n : int
        Bc, rows of K and V per block.
    head_dim_v : int, optional
        Columns of V and O, where they are not those of Q and K.
    visited_rows : int, optional
        Rows of Q over all blocks that are not skipped (:class:`MaskBlocks`); by default none is.

    Examples
    --------
    >>> flash2_backward(1024, 1024, 64, 64).total
    5669888
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    rows = ceil_div(seq_kv, block_n) * seq_q if visited_rows is None else visited_rows
    keys, values, outputs = seq_kv * head_dim, seq_kv * dim_v, seq_q * dim_v
    as_q, as_o = rows * head_dim, rows * dim_v
    return Elements(
        reads={
            "K": keys,
            "V": values,
            "Q": as_q,
            "O": outputs + as_o,
            "dO": outputs + as_o,
            "dQ": as_q,
            "L": rows,
            "D": rows,
        },
        writes={"D": seq_q, "dQ": as_q, "dK": keys, "dV": values},
    )
