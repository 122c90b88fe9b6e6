"""How few elements any exact attention can move: the bound of Saha and Ye, and what its proof gives with constants.

References
----------
[3] Saha, Ye: The I/O Complexity of Attention, or How Optimal is FlashAttention? (arXiv 2402.07443).
[4] Hong, Kung: I/O complexity: the red-blue pebble game (STOC 1981).
[5] Li, Liang, Shi, Song, Zhou: Fine-grained Attention I/O Complexity: Comprehensive Analysis for Backward Passes
(arXiv 2410.09397). [6] Ballard, Demmel, Holtz, Schwartz: Minimizing Communication in Linear Algebra (arXiv 0905.2485).
"""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np

Regime = Literal["large cache", "small cache"]

LARGE: Final = "large cache"
SMALL: Final = "small cache"


def regime(head_dim: int, m_elements: int) -> Regime:
    """Which half of Theorem 3.1 of [3] holds: ``large cache`` for M >= d², else ``small cache``.

    Examples
    --------
    >>> regime(64, 4096), regime(64, 4095)
    ('large cache', 'small cache')
    """
    return LARGE if m_elements >= head_dim**2 else SMALL


def saha_ye(pairs: int, head_dim: int, m_elements: int) -> float:
    """Lower bound of exact attention with the standard matrix product, constant 1: ``min(N²·d²/M, N²·d/√M)``.

    Theorem 3.1 of [3]: the I/O complexity is Θ of that. For M >= d² it is N²·d²/M, which FlashAttention reaches
    (Theorem 2 of [1]), so that no algorithm is better by more than a constant; for M < d² it is N²·d/√M, that of the
    product QKᵀ alone, reached by square tiles that write QKᵀ to memory, and below FlashAttention's. Both are N² at
    M = d². Theorem 4.8 of [3] extends the large-cache half to fast matrix products (entries from a field of more than
    N elements). Proposition 3 of [1] is weaker: it rules out o(N²·d²/M) for all M in [d, N·d] together, from the end
    M = Θ(N·d) alone, where that is the N·d elements that must be read and written anyway.

    The paper's constant is hidden in Θ; the one that its proof gives is in :func:`proved_bound`. Above M = N·d the
    figure falls below the inputs and the output, which are read and written in any case: there those bind.

    Parameters
    ----------
    pairs : int
        Entries of QKᵀ that are computed: N² without a mask. The proof counts these entries and nothing else, so that
        under a mask the visible pairs stand here, and the product of lengths that differ; for M < d² it is the bound of
        the pairs·d products that make them, sparse ones included [6]. Backward they are the entries of dO·Vᵀ, which
        every algorithm of ours and of the papers computes. For the whole backward pass [5] has
        Θ(min((N²·d² + N·d³)/M, (N²·d + N·d²)/√M)), which for N >= d is Θ of the same.
    head_dim : int
        d of the product whose entries are counted: columns of Q and K forward, of V and dO backward. V's columns don't
        enter forward: the proof does not look beyond QKᵀ.
    m_elements : int
        M in elements: what the chip holds for one CTA. Registers are on chip too.

    Examples
    --------
    >>> saha_ye(1024**2, 64, 65536), saha_ye(1024**2, 64, 4096) == 1024**2, saha_ye(1024**2, 64, 1024)
    (65536.0, True, 2097152.0)
    """
    large = 1.0 * pairs * head_dim**2 / m_elements
    small = 1.0 * pairs * head_dim / _root(m_elements)
    # At M >= d² the first is the smaller; written as a sum so that arrays may stand here.
    return large * (m_elements >= head_dim**2) + small * (m_elements < head_dim**2)


def proved_bound(pairs: int, head_dim: int, m_elements: int) -> float:
    """The same bound with every constant kept: at least ``min(pairs / 2, pairs·d²/M) - M`` elements, and at least 0.

    From the proof of Lemma 3.3 of [3], with its O(·) written out. By [4], the accesses of any computation divide it
    into parts: at least M·(parts - 1) accesses, and for each part a dominator set of at most 2M values, through which
    all paths from the inputs into the part lead. Say u of these are entries of Q and K, and t lie inside the sums that
    make the entries of QKᵀ. An entry that the part computes either has one of the t in its sum, which is disjoint from
    all others', or has all d entries of its row of Q and all d of its column of K among the u. The latter lie in I rows
    and J columns with (I + J)·d <= u, so that there are at most I·J <= (u/2d)² of them. With t + u <= 2M both together
    are at most max(2M, M²/d²), and pairs / max(2M, M²/d²) parts are needed. (The paper bounds I·J by (u/d)².)

    For M >= 2d² this is the constant 1 of :func:`saha_ye`, less M. For less it says only pairs / 2: the small-cache
    half rests on the matrix product, whose constant is not tracked here. CTAs with M each that share nothing are
    bound by their sum: one M is taken off for each of them.

    Examples
    --------
    >>> proved_bound(4096**2, 64, 65536), proved_bound(1024**2, 64, 65536), proved_bound(1024**2, 64, 4096)
    (983040.0, 0.0, 520192.0)
    """
    half, large = pairs / 2, 1.0 * pairs * head_dim**2 / m_elements
    wide = m_elements >= 2 * head_dim**2
    bound = large * wide + half * (1 - wide) - m_elements
    return bound * (bound > 0)


def _root(m_elements: int) -> float:
    """√M, rounded correctly for one number as for an array of them, which a power of 0.5 is not."""
    return math.sqrt(m_elements) if isinstance(m_elements, int) else np.sqrt(m_elements)
