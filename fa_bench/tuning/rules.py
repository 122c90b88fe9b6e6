"""Rules that choose a tile without trying any: of an article, of the papers, of a package, and our own default.

M is the on-chip memory that a CTA may have on the target (``smem_per_block_bytes``). The papers' M is in elements; that
a rule is misread with M in bytes happens, so the square rule stands here with both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from fa_bench.algorithms.base import Algorithm
from fa_bench.algorithms.library_flash import library_tile
from fa_bench.cases import Case, Tile
from fa_bench.errors import Unsupported
from fa_bench.model.bounds import flash1_blocks, sram_elements
from fa_bench.model.gpu import WARP_SIZE, Gpu

#: ``square``: blocks of √(M/4d) on either side; ``square-bytes``: the same with M in bytes.
RuleName = Literal["auto", "flash-attention-2", "flash-attention-1", "square", "square-bytes"]
_UNIT: Final = 16
_LARGEST: Final = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule says.

    Parameters
    ----------
    name : RuleName
    exact : tuple of float
        block_m and block_n as the rule has them.
    tile : Tile
        The same as multiples of 16 from 16 to 256, rounded down: a larger block might not fit.
    m : int, optional
        M, in elements or for ``square-bytes`` in bytes; None where the rule has none.
    """

    name: RuleName
    exact: tuple[float, float]
    tile: Tile
    m: int | None = None


def square_side(m: int, head_dim: int) -> float:
    """√(M/4d): the side of a square block, as articles have it; M in elements.

    Examples
    --------
    192 KiB of fp16 at d = 64, and the same bytes taken for elements:

    >>> round(square_side(192 * 1024 // 2, 64), 1), round(square_side(192 * 1024, 64), 1)
    (19.6, 27.7)
    """
    return math.sqrt(m / (4 * head_dim))


def rules(bare: Case, algorithm: Algorithm, gpu: Gpu) -> tuple[Rule, ...]:
    """All rules for a shape on ``gpu``, our own first; those that say nothing about it are left out.

    Parameters
    ----------
    bare : Case
        Its tile is ignored.
    algorithm : Algorithm
        Whose default ``auto`` is.
    gpu : Gpu
    """
    head_dim = bare.shape.head_dim
    elements = sram_elements(gpu.smem_per_block_bytes, bare.itemsize)
    found = []
    try:
        auto = algorithm.auto_tile(bare, gpu)
        found.append(Rule("auto", (auto.block_m, auto.block_n), auto))
    except Unsupported:
        pass
    published = library_tile(replace(bare, impl="flash-attn-2", tile=None), gpu)
    if published is not None:
        tile = Tile(published.block_m, published.block_n, num_warps=published.threads // WARP_SIZE)
        found.append(Rule("flash-attention-2", (tile.block_m, tile.block_n), tile))
    paper_m, paper_n = flash1_blocks(elements, head_dim)
    found.append(Rule("flash-attention-1", (paper_m, paper_n), _legal(paper_m, paper_n), elements))
    return (*found, _square("square", elements, head_dim), _square("square-bytes", gpu.smem_per_block_bytes, head_dim))


def _square(name: RuleName, m: int, head_dim: int) -> Rule:
    side = square_side(m, head_dim)
    return Rule(name, (side, side), _legal(side, side), m)


def _legal(block_m: float, block_n: float) -> Tile:
    return Tile(_rounded(block_m), _rounded(block_n))


def _rounded(block: float) -> int:
    return min(_LARGEST, max(_UNIT, math.floor(block / _UNIT) * _UNIT))
