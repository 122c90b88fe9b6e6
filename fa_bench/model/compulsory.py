"""Compulsory traffic: what any attention kernel must move, however large its cache."""

from __future__ import annotations

from fa_bench.cases import Case


def compulsory_read_bytes(case: Case) -> int:
    """Bytes of Q, K, V and a bias, each read once, for a backward pass with dO and, where it is alone, O: a floor.

    ``batch · (heads_q · seq_q + 2 · heads_kv · seq_kv) · head_dim · itemsize`` forward, with head_dim_v for V; dO and O
    are as large as Q. K and V count by the heads that are stored, not by the query heads that share them. Not counted:
    padding of partly used sectors, and that a kernel may leave out the rows of Q which see no key (causal with
    seq_q > seq_kv). Keys that no query sees (beyond a window, or of a sequence without queries) are left out, and of a
    bias, which all batches share, pairs that the mask hides.

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
    batch, rows_q, _ = s.tensor_sizes
    q, o = s.heads_q * rows_q * s.head_dim, s.heads_q * rows_q * s.dim_v
    keys = sum(times * sequence.seen_keys for sequence, times in s.by_length())
    kv = s.heads_kv * keys * (s.head_dim + s.dim_v)
    bias = s.heads_q * s.visible_pairs if case.features.bias else 0
    return (batch * (q + as_o * o) + kv + bias) * case.itemsize


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
