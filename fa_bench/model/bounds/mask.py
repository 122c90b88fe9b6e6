"""Which blocks of the N x N scores a mask leaves: what algorithms that skip blocks visit."""

from __future__ import annotations

from dataclasses import dataclass

from fa_bench.cases import AttentionShape
from fa_bench.sizes import ceil_div


@dataclass(frozen=True, slots=True)
class MaskBlocks:
    """Blocks of block_m x block_n scores in which some pair is visible.

    Attributes
    ----------
    nonzero, blocks : int
        Such blocks, and all of them.
    visited_rows, visited_keys : int
        Rows of Q, and of K, of the nonzero blocks, all of these together.
    """

    nonzero: int
    blocks: int
    visited_rows: int
    visited_keys: int

    @property
    def density(self) -> float:
        """s of Proposition 4: the fraction of blocks that are not zero."""
        return self.nonzero / self.blocks


def mask_blocks(shape: AttentionShape, block_m: int, block_n: int) -> MaskBlocks:
    """Count the blocks of one slice that its mask leaves.

    A window moves by one key from query to query, so that what the queries of a block of rows see together is one run
    of keys: from the first key of the first query to the last key of the last.

    Examples
    --------
    A causal mask leaves the blocks on the diagonal and below: 1 + 2 + 3 + 4 of 16.

    >>> mask_blocks(AttentionShape(1, 1, 1, 256, 256, 64, causal=True), 64, 64)
    MaskBlocks(nonzero=10, blocks=16, visited_rows=640, visited_keys=640)
    """
    nonzero = rows = keys = 0
    for start in range(0, shape.seq_q, block_m):
        stop = min(start + block_m, shape.seq_q)
        first, end = shape.visible_range(start)[0], shape.visible_range(stop - 1)[1]
        if first < end:
            low, high = first // block_n, ceil_div(end, block_n)
            nonzero += high - low
            rows += (high - low) * (stop - start)
            keys += min(high * block_n, shape.seq_kv) - low * block_n
    return MaskBlocks(nonzero, ceil_div(shape.seq_q, block_m) * ceil_div(shape.seq_kv, block_n), rows, keys)
