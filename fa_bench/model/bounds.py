"""The papers' formulas for memory accesses, in elements of one slice (one batch entry, one query head).

These are the figures that papers and articles quote. They count elements, not bytes or sectors, they know nothing
of padding, and they see neither masks nor shared K/V heads. What a kernel of ours really asks of memory is
``algorithm.traffic(case)``; the two stand in different columns.

Sizes: Q and O are ``[seq_q, head_dim]``, K and V are ``[seq_kv, head_dim]``; the papers have N for both lengths
and d for head_dim. M is the size of the on-chip memory *in elements*: :func:`sram_elements` converts it.

References
----------
[1] FlashAttention (arXiv 2205.14135). [2] FlashAttention-2 (arXiv 2307.08691).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements that an algorithm moves between HBM and the chip, by tensor."""

    reads: Mapping[str, int]
    writes: Mapping[str, int]

    @property
    def loaded(self) -> int:
        """Elements read, all tensors together."""
        return sum(self.reads.values())

    @property
    def stored(self) -> int:
        """Elements written, all tensors together."""
        return sum(self.writes.values())

    @property
    def total(self) -> int:
        """Elements read and written."""
        return self.loaded + self.stored


def sram_elements(sram_bytes: int, itemsize: int) -> int:
    """M as the papers mean it: how many elements of ``itemsize`` bytes fit in ``sram_bytes``.

    Examples
    --------
    163 KiB, the most that one CTA may have on an A100, in fp32 and in fp16:

    >>> sram_elements(163 * 1024, 4), sram_elements(163 * 1024, 2)
    (41728, 83456)
    """
    return sram_bytes // itemsize


def standard(seq_q: int, seq_kv: int, head_dim: int) -> Elements:
    """Standard attention (Algorithm 0 of [1]), every access counted: ``4·N² + 4·N·d``.

    Three steps, each reading its operands from HBM and writing its result there: S = QKᵀ reads Q and K and writes
    S; P = softmax(S) reads S and writes P; O = PV reads P and V and writes O. So S and P are written once and read
    once each. Theorem 2 of [1] keeps the order, Θ(N·d + N²). Left out: that a product in tiles reads its operands
    more than once, and that the row pitch of S and P may be padded.

    Examples
    --------
    >>> standard(1024, 1024, 64).total
    4456448
    """
    pairs = seq_q * seq_kv
    return Elements(
        reads={"Q": seq_q * head_dim, "K": seq_kv * head_dim, "S": pairs, "P": pairs, "V": seq_kv * head_dim},
        writes={"S": pairs, "P": pairs, "O": seq_q * head_dim},
    )


def flash1_theorem2(seq_q: int, seq_kv: int, head_dim: int, m_elements: int) -> float:
    """HBM accesses of FlashAttention by Theorem 2 of [1], constant 1: ``N²·d² / M`` elements.

    The theorem gives the order, Θ(N²·d²/M) for d <= M <= N·d, and no constant: Algorithm 1 with the paper's block
    sizes moves several times as much (:func:`flash1`).

    Parameters
    ----------
    m_elements : int
        M in elements. An article that puts bytes here gets a figure ``itemsize`` times too low: that one is
        :func:`flash1_theorem2_m_in_bytes`.

    Examples
    --------
    >>> round(flash1_theorem2(4096, 4096, 64, sram_elements(192 * 1024, 2)) / 4096**2, 3)
    0.042
    """
    return seq_q * seq_kv * head_dim**2 / m_elements


def flash1_theorem2_m_in_bytes(seq_q: int, seq_kv: int, head_dim: int, sram_bytes: int) -> float:
    """Theorem 2 of [1] as it is often misread, with M in bytes; in "elements" all the same.

    Kept beside :func:`flash1_theorem2` because published figures use it; never used by a model of ours.

    Examples
    --------
    >>> round(flash1_theorem2_m_in_bytes(4096, 4096, 64, 192 * 1024) / 4096**2, 3)
    0.021
    """
    return seq_q * seq_kv * head_dim**2 / sram_bytes


def flash1_blocks(m_elements: int, head_dim: int) -> tuple[int, int]:
    """Block sizes of Algorithm 1, line 1, of [1]: ``(Br, Bc)`` with Bc = ⌈M/4d⌉ and Br = min(Bc, d).

    The four is for the four tiles that share the chip: Q_i, K_j, V_j and O_i. The ceiling makes the tiles exceed M
    where 4d does not divide it; a real kernel also rounds to its instruction's shape.

    Examples
    --------
    163 KiB at d = 64 in fp32, in fp16, and with bytes mistaken for elements:

    >>> flash1_blocks(41728, 64), flash1_blocks(83456, 64), flash1_blocks(166912, 64)
    ((64, 163), (64, 326), (64, 652))
    """
    block_n = math.ceil(m_elements / (4 * head_dim))
    return min(block_n, head_dim), block_n


def flash1(seq_q: int, seq_kv: int, head_dim: int, block_n: int) -> Elements:
    """Algorithm 1 of [1], every access counted: ``2·N·d + Tc·N·(3·d + 4)`` with Tc = ⌈N/Bc⌉.

    K and V blocks in the outer loop are read once. Each of the Tc passes goes over all rows: it reads Q_i, O_i, l_i
    and m_i (line 8: 2d + 2 elements a row) and writes O_i, l_i and m_i (lines 12, 13: d + 2). The block size Br
    of the inner loop cancels out. Left out: the initialisation of O, l and m in line 2, ``N·(d + 2)`` writes.

    Parameters
    ----------
    block_n : int
        Bc, rows of K and V per block.

    Examples
    --------
    >>> flash1(1024, 1024, 64, 163).loaded, flash1(1024, 1024, 64, 163).total
    (1062912, 1536000)
    """
    passes = math.ceil(seq_kv / block_n)
    rows = passes * seq_q
    return Elements(
        reads={
            "K": seq_kv * head_dim,
            "V": seq_kv * head_dim,
            "Q": rows * head_dim,
            "O": rows * head_dim,
            "l": rows,
            "m": rows,
        },
        writes={"O": rows * head_dim, "l": rows, "m": rows},
    )


def flash2(seq_q: int, seq_kv: int, head_dim: int, block_m: int) -> Elements:
    """Algorithm 1 of [2], every access counted: ``2·N·d + Tr·2·N·d + N`` with Tr = ⌈N/Br⌉.

    Q blocks in the outer loop are read once; each of them reads all of K and V, and writes its rows of O and of
    the logsumexp once, when its inner loop is done. Left out: masks, which let whole blocks be skipped.

    Parameters
    ----------
    block_m : int
        Br, rows of Q per block.

    Examples
    --------
    >>> flash2(1024, 1024, 64, 64).total
    2229248
    """
    blocks = math.ceil(seq_q / block_m)
    return Elements(
        reads={
            "Q": seq_q * head_dim,
            "K": blocks * seq_kv * head_dim,
            "V": blocks * seq_kv * head_dim,
        },
        writes={"O": seq_q * head_dim, "LSE": seq_q},
    )


def standard_backward(seq_q: int, seq_kv: int, head_dim: int) -> Elements:
    """Standard attention backward (Algorithm 3 of [1]), every access counted: ``7·N² + 8·N·d``.

    dV = Pᵀ·dO with the P of the forward pass, dP = dO·Vᵀ, dS from P and dP, dQ = dS·K, dK = dSᵀ·Q: each step reads its
    operands from HBM and writes its result there. With the forward pass, eleven passes over N² elements. Theorem 5 of
    [1] keeps the order, Θ(N·d + N²). Left out: as in :func:`standard`.

    Examples
    --------
    >>> standard_backward(1024, 1024, 64).total
    7864320
    """
    pairs, queries, keys = seq_q * seq_kv, seq_q * head_dim, seq_kv * head_dim
    return Elements(
        reads={"P": 2 * pairs, "dO": 2 * queries, "V": keys, "dP": pairs, "dS": 2 * pairs, "K": keys, "Q": queries},
        writes={"dV": keys, "dP": pairs, "dS": pairs, "dQ": queries, "dK": keys},
    )


def flash1_backward(seq_q: int, seq_kv: int, head_dim: int, block_n: int) -> Elements:
    """Algorithm 4 of [1], every access counted: ``4·N·d + Tc·N·(5·d + 2)`` with Tc = ⌈N/Bc⌉.

    K and V blocks in the outer loop are read once, their gradients written once. Each of the Tc passes goes over all
    rows: it reads Q_i, O_i, dO_i, dQ_i, l_i and m_i (line 10) and writes dQ_i. Left out: the initialisation of dQ, dK
    and dV in line 5.

    Parameters
    ----------
    block_n : int
        Bc, rows of K and V per block.

    Examples
    --------
    >>> flash1_backward(1024, 1024, 64, 256).total
    1581056
    """
    rows, keys = math.ceil(seq_kv / block_n) * seq_q, seq_kv * head_dim
    passed = dict.fromkeys(("Q", "O", "dO", "dQ"), rows * head_dim)
    return Elements(
        reads={"K": keys, "V": keys, **passed, "l": rows, "m": rows},
        writes={"dQ": rows * head_dim, "dK": keys, "dV": keys},
    )


def flash2_backward(seq_q: int, seq_kv: int, head_dim: int, block_n: int) -> Elements:
    """Algorithm 2 of [2], every access counted: ``6·N·d + N + Tc·N·(5·d + 2)`` with Tc = ⌈N/Bc⌉.

    The loops of :func:`flash1_backward`, with L and D in the place of l and m; before them D = rowsum(dO ∘ O) reads dO
    and O and writes N elements. Left out: the initialisation of dQ; that line 15 names dQ_i a second time; and that a
    kernel doesn't need O_i once it has D_i.

    Parameters
    ----------
    block_n : int
        Bc, rows of K and V per block.

    Examples
    --------
    >>> flash2_backward(1024, 1024, 64, 64).total
    5669888
    """
    rows, keys, queries = math.ceil(seq_kv / block_n) * seq_q, seq_kv * head_dim, seq_q * head_dim
    passed = rows * head_dim
    return Elements(
        reads={
            "K": keys,
            "V": keys,
            "Q": passed,
            "O": queries + passed,
            "dO": queries + passed,
            "dQ": passed,
            "L": rows,
            "D": rows,
        },
        writes={"D": seq_q, "dQ": passed, "dK": keys, "dV": keys},
    )
