"""Compulsory traffic: what any attention kernel must move, however large its cache."""

from __future__ import annotations

from fa_bench.cases import Case


def compulsory_read_bytes(case: Case) -> int:
    """Bytes of Q, K and V, each read once, for a backward pass with dO and, where it is alone, O: the floor of reads.

    ``batch · (heads_q · seq_q + 2 · heads_kv · seq_kv) · head_dim · itemsize`` forward, with head_dim_v for V; dO and O
    are as large as Q. K and V count by the heads that are stored, not by the query heads that share them. Not counted:
    padding of partly used sectors, and that a kernel may leave out the rows of Q which see no key (causal with
    seq_q > seq_kv), and of K and V which no query sees. Rows of a packed batch are those of all its sequences.

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
    as_o = {"fwd": 0, "bwd": 2, "fwd+bwd": 1}[case.direction]
    batch, rows_q, rows_kv = s.tensor_sizes
    q, o = s.heads_q * rows_q * s.head_dim, s.heads_q * rows_q * s.dim_v
    kv = s.heads_kv * rows_kv * (s.head_dim + s.dim_v)
    return batch * (q + as_o * o + kv) * case.itemsize


def compulsory_write_bytes(case: Case) -> int:
    """Bytes of O, written once: ``batch · heads_q · seq_q · head_dim · itemsize``; backward, of dQ, dK and dV.

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
    batch, rows_q, rows_kv = s.tensor_sizes
    o = s.heads_q * rows_q * s.dim_v if case.forward else 0
    gradients = 0
    if case.backward:
        gradients = s.heads_q * rows_q * s.head_dim + s.heads_kv * rows_kv * (s.head_dim + s.dim_v)
    return batch * (o + gradients) * case.itemsize
