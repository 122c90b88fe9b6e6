"""What the first paper proves of its algorithms: orders, here with the constant 1, in elements of one slice.

Each product is taken in floating point in the same order for one case and for an array of them, so that both give the
same bits.
"""

from __future__ import annotations

from fa_bench.model.bounds.elements import mean_dim_times_two


def flash1_theorem2(seq_q: int, seq_kv: int, head_dim: int, m_elements: int, head_dim_v: int | None = None) -> float:
    """HBM accesses of FlashAttention by Theorem 2 of [1], constant 1: ``N²·d² / M`` elements.

    Tc = N/Bc = Θ(N·d/M) passes, each over the N·d elements of Q and as many of O. The theorem gives the order,
    Θ(N²·d²/M) for d <= M <= N·d, and no constant: Algorithm 1 with the paper's block sizes moves several times as much
    (:func:`flash1`). Where V and O have columns of their own number, d is the mean of both: of Q and O in a pass, and
    of the four tiles in Bc.

    Parameters
    ----------
    m_elements : int
        M in elements. An article that puts bytes here gets a figure ``itemsize`` times too low: that one is
        :func:`flash1_theorem2_m_in_bytes`.

    Examples
    --------
    >>> from fa_bench.model.bounds import sram_elements
    >>> round(flash1_theorem2(4096, 4096, 64, sram_elements(192 * 1024, 2)) / 4096**2, 3)
    0.042
    """
    return 1.0 * seq_q * seq_kv * mean_dim_times_two(head_dim, head_dim_v) ** 2 / (4 * m_elements)


def flash1_theorem2_m_in_bytes(
    seq_q: int, seq_kv: int, head_dim: int, sram_bytes: int, head_dim_v: int | None = None
) -> float:
    """Theorem 2 of [1] as it is often misread, with M in bytes; in "elements" all the same.

    Kept beside :func:`flash1_theorem2` because published figures use it; never used by a model of ours.

    Examples
    --------
    >>> round(flash1_theorem2_m_in_bytes(4096, 4096, 64, 192 * 1024) / 4096**2, 3)
    0.021
    """
    return flash1_theorem2(seq_q, seq_kv, head_dim, sram_bytes, head_dim_v)


def flash1_theorem5(seq_q: int, seq_kv: int, head_dim: int, m_elements: int, head_dim_v: int | None = None) -> float:
    """HBM accesses of FlashAttention's backward pass by Theorem 5 of [1], constant 1: ``N²·d² / M`` elements.

    The same order as forward, by the same argument: Tc = Θ(N·d/M) passes over Q, O, dO and dQ. The constant is what
    differs: Algorithm 4 moves 5d + 2 elements of a row in each pass, Algorithm 1 3d + 4.

    Examples
    --------
    >>> flash1_theorem5(1024, 1024, 64, 65536)
    65536.0
    """
    return flash1_theorem2(seq_q, seq_kv, head_dim, m_elements, head_dim_v)


def standard_order(seq_q: int, seq_kv: int, head_dim: int, head_dim_v: int | None = None) -> int:
    """HBM accesses of standard attention by Theorems 2 (forward) and 5 (backward) of [1], constant 1: ``N·d + N²``.

    N·d is the size of O, forward, and of Q and its gradient; the larger of both widths counts.

    Examples
    --------
    >>> standard_order(1024, 1024, 64)
    1114112
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    return seq_q * (dim_v + (head_dim - dim_v) * (head_dim > dim_v)) + seq_q * seq_kv


def flash1_proposition4(
    seq_q: int, seq_kv: int, head_dim: int, m_elements: int, density: float, head_dim_v: int | None = None
) -> float:
    """HBM accesses of block-sparse FlashAttention by Proposition 4 of [1], constant 1: ``N·d + N²·d²·s / M``.

    Only nonzero blocks are visited, so that Theorem 2's figure is scaled by s; O, N·d elements, is written however
    small s is. An order like Theorem 2, for d <= M <= N·d; :func:`flash1` with `visited_rows` counts Algorithm 5.

    Parameters
    ----------
    density : float
        s, the fraction of nonzero blocks at the paper's block sizes (:meth:`MaskBlocks.density`), from 0 to 1.

    Examples
    --------
    >>> flash1_proposition4(1024, 1024, 64, 65536, 0.5)
    98304.0
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    return seq_q * dim_v + density * flash1_theorem2(seq_q, seq_kv, head_dim, m_elements, head_dim_v)
