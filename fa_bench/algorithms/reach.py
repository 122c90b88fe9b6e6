"""Which rows of a tensor the tiles of another one read, summed over these tiles in closed form.

A tile of queries reads the keys that its mask and window leave it; a tile of keys the queries that see one of them.
Both are a run of whole blocks, cut at the tensor's end, whose ends move by one tile's rows from tile to tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fa_bench.sizes import ceil_div, clamp, floor_sum

#: Blocks are multiples of so many rows.
UNIT_ROWS: Final = 16


@dataclass(frozen=True, slots=True)
class Reach:
    """Rows that the tiles of one slice read, all tiles together.

    Parameters
    ----------
    inside : int
        Σ of the ends of runs that end before the tensor does, less Σ of the starts of all: a multiple of `UNIT_ROWS`.
    to_end : int
        Runs that end where the tensor does.
    blocks : int
        Blocks of all runs.
    seeing : int
        Tiles that read anything.
    """

    inside: int
    to_end: int
    blocks: int
    seeing: int

    def rows(self, length: int) -> int:
        """Rows of all runs, of a tensor of ``length`` rows."""
        return self.inside + self.to_end * length


#: Every row once.
ONCE: Final = Reach(0, 1, 1, 1)


def reach(
    tiles: int, tile_rows: int, length: int, block: int, diagonal: int, before: int | None, after: int | None
) -> Reach:
    """What the tiles of one tensor read of another.

    Row i of the first tensor sees rows ``i + diagonal - before`` to ``i + diagonal + after`` of the other, as far as it
    has them. Tile t, rows ``t · tile_rows`` to ``(t + 1) · tile_rows``, reads the blocks of what its rows see; the last
    tile is cut at the tensor's end, and reads to the other one's end.

    Parameters
    ----------
    tiles, tile_rows : int
        Of the first tensor.
    length, block : int
        Rows of the other tensor, and of its blocks. ``tile_rows`` and ``block`` are multiples of `UNIT_ROWS`.
    diagonal : int
        ``length`` less the rows of the first tensor.
    before, after : int, optional
        None for no limit.

    Examples
    --------
    Causal, four tiles of 64 queries and four blocks of 64 keys: 64 + 128 + 192 rows, and one tile that reads all.

    >>> reach(4, 64, 256, 64, 0, None, 0)
    Reach(inside=384, to_end=1, blocks=10, seeing=4)
    """
    blocks = ceil_div(length, block)
    ending = blind = ended = skipped = 0
    if after is not None:
        # Tile t reads ceil(x / block) blocks with x = (t + 1) tile_rows + offset: nothing up to x = 0, and nothing of
        # the last block up to x = block (blocks - 1).
        offset = diagonal + after
        ending = clamp((block * (blocks - 1) - offset) // tile_rows, 0, tiles)
        blind = clamp(-offset // tile_rows, 0, ending)
        ended = floor_sum(ending - blind, block, tile_rows, (blind + 1) * tile_rows + offset + block - 1)
    if before is not None:
        # It leaves out floor(x / block) blocks with x = t tile_rows + offset, where x is not negative.
        offset = diagonal - before
        first = clamp(ceil_div(-offset, tile_rows), 0, tiles)
        skipped = floor_sum(tiles - first, block, tile_rows, first * tile_rows + offset)
    return Reach(
        inside=block * (ended - skipped),
        to_end=tiles - ending,
        blocks=ended + (tiles - ending) * blocks - skipped,
        seeing=(tiles - blind) * (length > 0),
    )
