"""The papers' forward passes, every access counted, in elements of one slice."""

from __future__ import annotations

from fa_bench.model.bounds.elements import Elements
from fa_bench.sizes import ceil_div


def standard(seq_q: int, seq_kv: int, head_dim: int, head_dim_v: int | None = None) -> Elements:
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
    pairs, dim_v = seq_q * seq_kv, head_dim if head_dim_v is None else head_dim_v
    return Elements(
        reads={"Q": seq_q * head_dim, "K": seq_kv * head_dim, "S": pairs, "P": pairs, "V": seq_kv * dim_v},
        writes={"S": pairs, "P": pairs, "O": seq_q * dim_v},
    )


def flash1(
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    block_n: int,
    head_dim_v: int | None = None,
    visited_rows: int | None = None,
) -> Elements:
    """Algorithm 1 of [1], every access counted: ``2·N·d + Tc·N·(3·d + 4)`` with Tc = ⌈N/Bc⌉.

    K and V blocks in the outer loop are read once. Each of the Tc passes goes over all rows: it reads Q_i, O_i, l_i
    and m_i (line 8: 2d + 2 elements a row) and writes O_i, l_i and m_i (lines 12, 13: d + 2). The block size Br
    of the inner loop cancels out. Algorithm 5 (block-sparse) differs in one thing: a zero block's rows are neither
    read nor written, so that `visited_rows` stands for Tc·N; K_j and V_j are read all the same, before the inner loop.
    Left out: the initialisation of O, l and m in line 2, ``N·(d + 2)`` writes.

    Parameters
    ----------
    block_n : int
        Bc, rows of K and V per block.
    head_dim_v : int, optional
        Columns of V and O, where they are not those of Q and K.
    visited_rows : int, optional
        Algorithm 5: rows of Q over all nonzero blocks (:class:`MaskBlocks`); by default no block is zero.

    Examples
    --------
    >>> flash1(1024, 1024, 64, 163).loaded, flash1(1024, 1024, 64, 163).total
    (1062912, 1536000)
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    rows = ceil_div(seq_kv, block_n) * seq_q if visited_rows is None else visited_rows
    return Elements(
        reads={
            "K": seq_kv * head_dim,
            "V": seq_kv * dim_v,
            "Q": rows * head_dim,
            "O": rows * dim_v,
            "l": rows,
            "m": rows,
        },
        writes={"O": rows * dim_v, "l": rows, "m": rows},
    )


def flash2(
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    block_m: int,
    head_dim_v: int | None = None,
    visited_keys: int | None = None,
) -> Elements:
    """Algorithm 1 of [2], every access counted: ``2·N·d + Tr·2·N·d + N`` with Tr = ⌈N/Br⌉.

    Q blocks in the outer loop are read once; each of them reads all of K and V, and writes its rows of O and of
    the logsumexp once, when its inner loop is done. Under a causal mask blocks that lie wholly above the diagonal are
    skipped ([2], section 3.1): `visited_keys` then stands for Tr·N.

    Parameters
    ----------
    block_m : int
        Br, rows of Q per block.
    head_dim_v : int, optional
        Columns of V and O, where they are not those of Q and K.
    visited_keys : int, optional
        Keys over all blocks that are not skipped (:class:`MaskBlocks`); by default none is.

    Examples
    --------
    >>> flash2(1024, 1024, 64, 64).total
    2229248
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    keys = ceil_div(seq_q, block_m) * seq_kv if visited_keys is None else visited_keys
    return Elements(
        reads={"Q": seq_q * head_dim, "K": keys * head_dim, "V": keys * dim_v},
        writes={"O": seq_q * dim_v, "LSE": seq_q},
    )


def split_kv(
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    block_m: int,
    block_n: int,
    splits: int,
    head_dim_v: int | None = None,
) -> Elements:
    """FlashAttention-2 with K and V divided among ``splits`` CTAs (flash-decoding), every access counted.

    Each K/V block of a row of Q blocks belongs to one split, so that K and V are read as by :func:`flash2`: Tr times.
    What is added: Q_i is read by each split that has a block; each split writes its own O and logsumexp in fp32, also
    a split without a block (O = 0, LSE = -inf); and a second kernel reads them all and writes O and the logsumexp. That
    is ``N·d·(used - 1) + 2·splits·N·(d + 1)`` elements more, of which the partial ones have four bytes. With one split
    there is nothing to combine, and O is written at once.

    How blocks are dealt out is that of FlashAttention's kernel ``flash_fwd_splitkv``: ⌈⌈Skv/Bc⌉/splits⌉ to each split
    in turn, so that the last ones may have none. Left out: masks, and that a combine kernel may skip empty splits.

    Parameters
    ----------
    block_m, block_n : int
        Br and Bc.
    splits : int
        At least 1.

    Examples
    --------
    One query, 8192 keys, d = 128: 16 splits cost 16 · 2 · 129 elements, and Q another 15 times.

    >>> whole, split = (split_kv(1, 8192, 128, 64, 64, splits) for splits in (1, 16))
    >>> whole.total, split.total - whole.total
    (2097409, 6048)
    >>> split.nbytes(2, fp32=PARTIAL)
    4215172
    """
    dim_v = head_dim if head_dim_v is None else head_dim_v
    blocks = ceil_div(seq_kv, block_n)
    used = ceil_div(blocks, ceil_div(blocks, splits))
    keys = ceil_div(seq_q, block_m) * seq_kv
    partial = seq_q * splits * (splits > 1)
    parts = {"O_partial": partial * dim_v, "LSE_partial": partial}
    return Elements(
        reads={"Q": used * seq_q * head_dim, "K": keys * head_dim, "V": keys * dim_v, **parts},
        writes={**parts, "O": seq_q * dim_v, "LSE": seq_q},
    )


#: Tensors of :func:`split_kv` that are fp32 whatever the inputs are.
PARTIAL = ("O_partial", "LSE_partial", "LSE")
