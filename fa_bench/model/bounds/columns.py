"""What the papers say of one pass over one slice, for a stated M: the columns of ``io-model``."""

from __future__ import annotations

from dataclasses import dataclass

from fa_bench.model.bounds.backward import flash1_backward
from fa_bench.model.bounds.elements import flash1_blocks
from fa_bench.model.bounds.forward import flash1
from fa_bench.model.bounds.lower import saha_ye
from fa_bench.model.bounds.orders import flash1_theorem2, flash1_theorem5


@dataclass(frozen=True, slots=True)
class Theory:
    """Elements of one slice, or arrays of them.

    Attributes
    ----------
    block_m, block_n : int
        Br and Bc of the first paper for M.
    theorem : float
        Theorem 2 forward, Theorem 5 backward: constant 1.
    algorithm : int
        Algorithm 1 forward, Algorithm 4 backward, at those block sizes, every access counted.
    bound : float
        The bound of Saha and Ye, constant 1.
    """

    block_m: int
    block_n: int
    theorem: float
    algorithm: int
    bound: float


def theory(
    backward: bool, seq_q: int, seq_kv: int, head_dim: int, m_elements: int, pairs: int, head_dim_v: int | None = None
) -> Theory:
    """The papers' figures for the forward or the backward pass.

    Parameters
    ----------
    pairs : int
        Visible pairs of a query and a key, for the bound; theorems and algorithms see no mask.

    Examples
    --------
    >>> theory(False, 1024, 1024, 64, 41728, 1024**2)
    Theory(block_m=64, block_n=163, theorem=102927.7055214724, algorithm=1536000, bound=102927.7055214724)
    """
    block_m, block_n = flash1_blocks(m_elements, head_dim, head_dim_v)
    algorithm, theorem = (flash1_backward, flash1_theorem5) if backward else (flash1, flash1_theorem2)
    # The product whose entries the bound counts: QKᵀ, backward dO·Vᵀ.
    dim = head_dim_v if backward and head_dim_v is not None else head_dim
    return Theory(
        block_m,
        block_n,
        theorem(seq_q, seq_kv, head_dim, m_elements, head_dim_v),
        algorithm(seq_q, seq_kv, head_dim, block_n, head_dim_v).total,
        saha_ye(pairs, dim, m_elements),
    )
