"""FLOPs as the FlashAttention papers count them.

A multiply-add is two FLOPs. Only the matrix products count; softmax, scaling and masking do not. FLOPs follow the
query heads, so that sharing K/V heads does not lower them.
"""

from __future__ import annotations

from typing import Final

from fa_bench.cases import AttentionShape, Case, Direction

#: Matrix products per visible pair, over the columns of Q and K and over those of V: QKᵀ and PV forward; backward
#: recomputes QKᵀ and adds dV, dP, dQ and dK.
_COLUMNS: Final[dict[Direction, tuple[int, int]]] = {"fwd": (1, 1), "bwd": (3, 2), "fwd+bwd": (4, 3)}


def nominal(shape: AttentionShape, direction: Direction = "fwd") -> int:
    """Nominal FLOPs of attention.

    Forward ``4 · batch · heads_q · pairs · head_dim``: two products of 2·D FLOPs per (query, key) pair. Backward
    has five such products, 2.5 times as much; both together 3.5 times.

    Parameters
    ----------
    shape : AttentionShape
        ``pairs`` is ``seq_q · seq_kv``, half of it when causal and square (the papers' convention, which leaves
        out half of the diagonal), and the exact number of visible pairs for other causal shapes; in a packed batch
        each sequence's own.
    direction : {"fwd", "bwd", "fwd+bwd"}

    Returns
    -------
    int
        FLOPs; exact.

    References
    ----------
    FlashAttention-2 (arXiv 2307.08691), section 4.1.

    Examples
    --------
    >>> nominal(AttentionShape(64, 16, 16, 1024, 1024, 64))
    274877906944
    """
    qk, pv = _COLUMNS[direction]
    return (qk * shape.head_dim + pv * shape.dim_v) * shape.twice_nominal_pairs


def multiply_adds(case: Case) -> int:
    """Multiply-adds of all visible pairs, as a measure of work: every product over head_dim columns."""
    return sum(_COLUMNS[case.direction]) * case.shape.total_visible_pairs * case.shape.head_dim


def tflops(flops: int, time_ms: float) -> float:
    """Rate in 10^12 FLOP/s.

    Raises
    ------
    ValueError
        If ``time_ms`` is not positive: such a time is no measurement.

    Examples
    --------
    >>> tflops(274877906944, 2.0)
    137.438953472
    """
    if not time_ms > 0:
        raise ValueError(f"time_ms must be positive, not {time_ms}")
    return flops / time_ms * 1e-9
