"""Compulsory traffic: what any attention kernel must move, however large its cache."""

from __future__ import annotations

from fa_bench.cases import Case


def compulsory_read_bytes(case: Case) -> int:
    """Bytes of Q, K and V, each read once: the floor of DRAM reads.

    ``batch · (heads_q · seq_q + 2 · heads_kv · seq_kv) · head_dim · itemsize``. K and V count by the heads that
    are stored, not by the query heads that share them. Not counted: padding of partly used sectors, and that a
    kernel may leave out the rows of Q which see no key (causal with seq_q > seq_kv).

    Parameters
    ----------
    case : Case
        Its implementation and tile do not matter.

    Returns
    -------
    int
        Bytes.
    """
    s = case.shape
    return s.batch * (s.heads_q * s.seq_q + 2 * s.heads_kv * s.seq_kv) * s.head_dim * case.itemsize


def compulsory_write_bytes(case: Case) -> int:
    """Bytes of O, written once: ``batch · heads_q · seq_q · head_dim · itemsize``.

    LSE is a tensor of its own and not part of it. Written lines may stay in L2, so this is no floor of DRAM
    writes during a kernel.

    Parameters
    ----------
    case : Case

    Returns
    -------
    int
        Bytes.
    """
    s = case.shape
    return s.batch * s.heads_q * s.seq_q * s.head_dim * case.itemsize
