"""The random bits of dropout: Philox, counted off by where a pair stands, so that every tile and pass drops the same.

The kernels' half is ``kernels/common/philox.cuh``; this is its definition, element for element.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Words = NDArray[np.uint32]

_ROUNDS: Final = 10
#: Multipliers, and what is added to the key after each round: the golden ratio and sqrt(3) - 1.
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def philox_4x32(counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], key: tuple[int, int]) -> tuple[Words, ...]:
    """Philox-4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3).

    Parameters
    ----------
    counter : four array_like of uint32
        Broadcast with one another.
    key : two int

    Returns
    -------
    tuple of four ndarray of uint32
    """
    c = [np.asarray(word, np.uint64) for word in np.broadcast_arrays(*counter)]
    low, high = key
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(_ROUNDS):
        first, second = c[0] * np.uint64(_MULTIPLIERS[0]), c[2] * np.uint64(_MULTIPLIERS[1])
        shift = np.uint64(32)
        c = [
            (second >> shift) ^ c[1] ^ np.uint64(low),
            second & mask,
            (first >> shift) ^ c[3] ^ np.uint64(high),
            first & mask,
        ]
        low, high = (low + _WEYL[0]) & 0xFFFFFFFF, (high + _WEYL[1]) & 0xFFFFFFFF
    return tuple(word.astype(np.uint32) for word in c)


def drop_threshold(dropout_p: float) -> int:
    """A pair is dropped if its 32 bits are below this."""
    return min(round(dropout_p * 2**32), 2**32 - 1)


def keep_mask(seed: int, batch: int, head: int, rows: ArrayLike, keys: int, dropout_p: float) -> NDArray[np.bool_]:
    """Which pairs dropout keeps.

    The counter is (column group, row, head, batch), the key the seed's two halves. A column group is what one lane
    holds of 16 columns of a row in mma accumulators: columns 2t, 2t + 1, 2t + 8 and 2t + 9, t = 0 ... 3, in the order
    of the four words. So one call serves four pairs wherever the tile begins.

    Parameters
    ----------
    seed : int
        At least 0; its lowest 64 bits count.
    batch, head : int
        Query head.
    rows : array_like of int
        Query rows.
    keys : int
        Number of keys.
    dropout_p : float

    Returns
    -------
    ndarray of bool, ``[rows, keys]``
    """
    groups = np.arange((keys + 15) // 16 * 4)
    words: Any = philox_4x32(
        (groups[None, :], np.asarray(rows)[:, None], head, batch), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    )
    # Of 16 columns [high half, t, low bit]: word 2 · half + bit of group t.
    sixteen = np.stack(words, axis=-1).reshape(len(words[0]), -1, 4, 2, 2)
    bits = sixteen.transpose(0, 1, 3, 2, 4).reshape(len(words[0]), -1)[:, :keys]
    return np.asarray(bits >= drop_threshold(dropout_p))
