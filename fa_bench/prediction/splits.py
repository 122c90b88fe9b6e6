"""FlashAttention-2 with few queries: heads joined into the rows of a tile, keys split over CTAs.

A single query of grouped heads is run as one query head per K/V head with a row for each of the group
(``seqlenq_ngroups_swapped`` of ``mha_fwd``). Where CTAs of 64 rows would leave SMs idle, each walks through a part of
the keys and writes its O and LSE in fp32; a second kernel combines the parts (``set_params_splitkv`` and
``num_splits_heuristic``, ``csrc/flash_attn/flash_api.cpp`` of flash-attn 2.8.3; the tile is that of
``run_mha_fwd_splitkv_dispatch``). Releases before 2.2 do neither.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fa_bench.algorithms.library_flash import (
    SPLIT_BLOCK_M,
    SPLIT_CTAS_PER_SM,
    may_split_keys,
    split_block_n,
    split_grid,
)
from fa_bench.cases import AttentionShape, Case
from fa_bench.model.gpu import Gpu
from fa_bench.prediction.kernels import Kernel, MemoryPass, mma_forward, tensor_bytes
from fa_bench.prediction.schedule import Grid
from fa_bench.sizes import ceil_div

_WARPS: Final = 4
_MOST_SPLITS: Final = 128
#: Share of the best use of the places for CTAs that is enough.
_GOOD: Final = 0.85


def joined(case: Case) -> Case:
    """The case as it is run: a single query of grouped heads as rows of one head, which see all keys.

    Examples
    --------
    >>> decoding = Case("flash-attn-2", AttentionShape(8, 32, 8, 1, 8192, 128, causal=True))
    >>> joined(decoding).shape
    AttentionShape(batch=8, heads_q=8, heads_kv=8, seq_q=4, seq_kv=8192, head_dim=128, causal=False, window_left=None, \
window_right=None, head_dim_v=None, seqlens=None)
    """
    shape = case.shape
    if shape.seq_q > 1 or shape.group == 1 or shape.windowed:
        return case
    sizes = (shape.batch, shape.heads_kv, shape.heads_kv, shape.group, shape.seq_kv, shape.head_dim)
    return replace(case, shape=AttentionShape(*sizes))


def split_count(case: Case, gpu: Gpu) -> int:
    """Parts that the keys are split into; 1 for none.

    The fewest with which CTAs use 85 % of what the best number of parts would of all places in their waves.

    Examples
    --------
    64 CTAs for 216 places on an A100: in three parts they use 192 of 216, and no number of parts more than 99 %.

    >>> from fa_bench.model import gpus
    >>> decoding = joined(Case("flash-attn-2", AttentionShape(8, 32, 8, 1, 8192, 128)))
    >>> split_count(decoding, gpus.get("a100-sxm-80"))
    3
    """
    shape = case.shape
    if not may_split_keys(case, gpu):
        return 1
    blocks = ceil_div(shape.seq_kv, split_block_n(shape.head_dim))
    ctas, places = split_grid(case, gpu)
    used = {}
    for parts in range(1, min(_MOST_SPLITS, places, blocks) + 1):
        # With as many blocks a part as before there is a part without any.
        if parts == 1 or ceil_div(blocks, parts) != ceil_div(blocks, parts - 1):
            waves = ctas * parts / places
            used[parts] = waves / -(-waves // 1)
    enough = _GOOD * max(used.values())
    return next(parts for parts, share in used.items() if share >= enough)


def split_forward(case: Case, dim: int, parts: int) -> list[Kernel]:
    """The two kernels of a forward pass whose keys are split.

    Parameters
    ----------
    case : Case
        As `joined` gives it.
    dim : int
        Columns of the tile.
    parts : int
        Of the keys, at least 2.
    """
    shape = case.shape
    main = mma_forward(case, SPLIT_BLOCK_M, split_block_n(shape.head_dim), dim, _WARPS, SPLIT_CTAS_PER_SM)
    lengths = tuple(ceil_div(tiles, parts) for tiles in main.grid.lengths for _ in range(parts))
    output, _ = tensor_bytes(case)
    partial = 4.0 * parts * shape.slices * shape.seq_q * (shape.head_dim + 1)
    return [
        replace(main, grid=Grid(lengths, shape.slices), dram_bytes=main.dram_bytes - output + partial),
        MemoryPass("combine", partial + output),
    ]
