"""What is known of the libraries' kernels: tiles of FlashAttention-2 and -3, and the traffic that follows from them.

Their loop is that of `fa_bench.algorithms.flash2`: a CTA per Q tile, K and V streamed past it, O and LSE written once.
So the formulas are the same sums over tiles, with the tile that a library chooses for head dimension, mask and GPU; the
choice is a fact of a version, and its source stands beside it. Nobody executes these kernels here: for them the model
is an estimate, where for ours it is exact. ``triton-flash`` is a kernel of ours, and its bytes are exact too.

A case that a library would run in another way has no model, which is better than a wrong one:

* where few Q tiles leave SMs idle, FlashAttention-2 splits K and V and combines the parts with a second kernel;
* a single query of grouped heads is run as one tile of several heads;
* a Q tile that sees no key is written by a path of its own;
* FlashAttention-3 may pack grouped heads into one tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fa_bench.algorithms.base import SECTOR_BYTES, KernelSpec, Launch, Program, TensorBytes, Work
from fa_bench.algorithms.slices import row_vector_sectors, tensor_sectors
from fa_bench.algorithms.tensors import padded_head_dim, qkvo, row_vector
from fa_bench.algorithms.tiles import WARP_SIZE, Access, StreamPlan, covering_power
from fa_bench.cases import Case, Tile
from fa_bench.model.gpu import Gpu
from fa_bench.sizes import ceil_div

#: Rows of LSE that a store covers: an accumulator of an mma gives a warp eight consecutive rows at a time.
_LSE_ROWS: Final = 8
#: Lanes that share a row of an accumulator.
_ROW_LANES: Final = 4
#: Rows of Q of FlashAttention-2's kernel that splits K and V, and CTAs of it that an SM is taken to hold.
SPLIT_BLOCK_M: Final = 64
SPLIT_CTAS_PER_SM: Final = 2


#: A warp's copy of 16 bytes per lane, of rows in pieces of 64 columns or of 32.
_WIDE: Final = Access(4, 128)
_NARROW: Final = Access(8, 64)


@dataclass(frozen=True, slots=True)
class LibraryTile:
    """A library's tile for a case, and what its model needs beside it.

    Parameters
    ----------
    kernel : str
        Name of the kernel.
    block_m, block_n : int
        Rows of Q and of K/V.
    threads : int
    dim : int
        Columns of the tile in shared memory.
    buffers : int
        Tiles of K, and of V, in shared memory.
    access : Access
        What a warp's instruction covers of a matrix.
    sharing : int
        CTAs that a tile of K or V is asked for once for: 2 in a cluster that multicasts.
    first_apart : bool
        Whether a row's first tile is apart from the loop, so that it shrinks no O.
    """

    kernel: str
    block_m: int
    block_n: int
    threads: int
    dim: int
    buffers: int = 1
    access: Access = _WIDE
    sharing: int = 1
    first_apart: bool = True

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a CTA, for elements of 2 bytes."""
        return 2 * self.dim * (self.block_m + 2 * self.buffers * self.block_n)


@dataclass(frozen=True, slots=True)
class LibraryModel:
    """The model of one case: its tile, buffers and launch, global traffic and work."""

    tile: LibraryTile
    program: Program
    traffic: tuple[TensorBytes, ...]
    work: Work


def triton_tile(head_dim: int) -> Tile:
    """The tile of ``triton-flash``: 96 KiB of shared memory at most, with two tiles of K and of V under way.

    A warp has 16 rows of Q: with fewer, Triton lets several warps compute the same scores.
    """
    if head_dim <= 64:
        return Tile(128, 64, num_warps=4)
    return Tile(128, 64, num_warps=8) if head_dim <= 128 else Tile(64, 32, num_warps=4)


def library_tile(case: Case, gpu: Gpu) -> LibraryTile | None:
    """The tile that a library's kernel has for ``case`` on ``gpu``; None where it is not known.

    Parameters
    ----------
    case : Case
        Of ``flash-attn-2``, ``flash-attn-3``, ``torch-flash`` or ``triton-flash``; None for any other.
    gpu : Gpu
    """
    if case.dtype == "fp32" or gpu.compute_capability < (8, 0):
        return None
    if case.impl == "triton-flash":
        return _triton(case)
    if _has_blind_tile(case):
        return None
    if case.impl == "flash-attn-3":
        return _flash_attn_3(case, gpu)
    if case.impl not in ("flash-attn-2", "torch-flash"):
        return None
    # PyTorch's copy of FlashAttention-2 still has kernels for 160 and 224 columns, with tiles of their own.
    if case.impl == "torch-flash" and _between_sizes(case.shape.head_dim):
        return None
    # A single query of grouped heads is run as rows of one head.
    joins = case.shape.seq_q == 1 and case.shape.group > 1
    return None if joins or may_split_keys(case, gpu) else flash_attn_2_tile(case, gpu)


def library_model(case: Case, gpu: Gpu) -> LibraryModel | None:
    """Traffic and work of a library's kernel, where its tile is known.

    Global bytes, with T = ceil(seq_q / block_m) Q tiles per slice and n(t) rows of K that tile t visits (whole tiles,
    cut at seq_kv; causal: none behind the tile's last row):

    * Q: each row once, and O; LSE: four bytes per row, stored eight rows at a time;
    * K, V: Σ_t n(t) rows per query head, over the CTAs of a cluster that share them.

    Left out: L1 (the loads bypass it or are bulk copies), what a persistent scheduler or a library's own bookkeeping
    reads, and the padding of a head dimension, which is computed with but not copied.

    Work counts whole tiles and padded columns. Exponentials: one per score, and one per tile for the factor that
    shrinks O in each of the lanes that share a row; the libraries' kernels have none for a row's first tile.
    """
    tile = library_tile(case, gpu)
    if tile is None:
        return None
    shape = case.shape
    plan = StreamPlan(case, Tile(tile.block_m, tile.block_n))
    q, k, v, o = qkvo(case)
    lse = row_vector("LSE", case, "output")
    reach, group = plan.key_reach(), shape.group
    sectors = {
        ("Q", "read"): tensor_sectors(q, tile.access),
        ("K", "read"): tensor_sectors(k, tile.access, reach) * group // tile.sharing,
        ("V", "read"): tensor_sectors(v, tile.access, reach) * group // tile.sharing,
        ("O", "write"): tensor_sectors(o, tile.access),
        ("LSE", "write"): row_vector_sectors(lse, _LSE_ROWS),
    }
    tiles = reach.blocks * shape.slices
    rescaled = tiles - tile.first_apart * reach.seeing * shape.slices
    flops = 4 * tiles * tile.block_m * tile.block_n * tile.dim
    exps = tile.block_m * (tiles * tile.block_n + rescaled * _ROW_LANES)
    launch = Launch(
        kernel=KernelSpec(source=case.impl, entry=tile.kernel),
        grid=(shape.slices * plan.q_blocks, 1, 1),
        block=(tile.threads, 1, 1),
        smem_bytes=tile.smem_bytes,
        args=(),
        ctas_per_slice=plan.q_blocks,
    )
    return LibraryModel(
        tile,
        Program((q, k, v, o, lse), (launch,)),
        tuple(
            TensorBytes(tile.kernel, tensor, "read" if op == "read" else "write", count * SECTOR_BYTES)
            for (tensor, op), count in sectors.items()
        ),
        Work(flops, exps, ((tile.kernel, flops, 0, exps),)),
    )


def flash_attn_2_tile(case: Case, gpu: Gpu) -> LibraryTile:
    """The table of FlashAttention-2 without dropout.

    Source: ``csrc/flash_attn/src/flash_fwd_launch_template.h`` and ``kernel_traits.h`` of flash-attn 2.8.3. "sm8x"
    there is 8.6 and 8.9, without 8.0. For 192 < head_dim <= 256 the taller tile is taken where it fits and two CTAs of
    the other don't: on an A100, not on an H100.
    """
    dim = padded_head_dim(case.shape.head_dim)
    major, minor = gpu.compute_capability
    sm8x = major == 8 and minor > 0
    block_m, block_n, warps = 128, 64, 4
    if dim <= 64:
        block_n = 128
    elif dim in (96, 128) and sm8x:
        block_m, block_n = (64, 64) if is_causal(case) else (128, 64 if dim == 96 else 32)
    elif dim == 192:
        warps = 8
    elif dim == 256:
        tall = 2 * dim * (128 + 2 * 64)
        two_low = 2 * (2 * dim * (64 + 2 * 64))
        fits = gpu.smem_per_block_bytes >= tall and gpu.smem_per_sm_bytes < two_low
        block_m, warps = (128, 8) if fits else (64, 4)
    access = _WIDE if dim % 64 == 0 else _NARROW
    return LibraryTile("flash_fwd_kernel", block_m, block_n, warps * WARP_SIZE, dim, access=access)


def _flash_attn_3(case: Case, gpu: Gpu) -> LibraryTile | None:
    """FlashAttention-3's tile where the bytes that it asks for are known."""
    shape = case.shape
    if gpu.compute_capability != (9, 0) or shape.group > 1 or shape.seq_q <= 64 or shape.head_dim % 16:
        return None
    return flash_attn_3_tile(case)


def flash_attn_3_tile(case: Case) -> LibraryTile:
    """The table of FlashAttention-3 for Hopper and 16-bit types.

    Source: ``hopper/tile_size.h`` and ``hopper/flash_fwd_launch_template.h`` of the main branch of 2025; earlier builds
    had other tiles. Without a mask and from 128 columns on, two CTAs of a cluster share K and V where the number of Q
    tiles is even. Up to 64 queries have a smaller tile. A window has tiles of its own.
    """
    shape = case.shape
    causal, local, dim = is_causal(case), shape.windowed, max(64, padded_head_dim(shape.head_dim))
    block_m, block_n = {
        64: (192, 160 if local else 128 if causal else 192),
        96: (192, 128 if local else 144),
        128: (128, 128 if causal or local else 176),
        192: (128, 96 if local else 112),
        256: (128, 64 if local else 80),
    }[dim]
    pairs = not causal and not local and dim >= 128 and -(-shape.seq_q // block_m) % 2 == 0
    # One warpgroup per 64 rows, and one that loads.
    threads = 128 * (block_m // 64 + 1)
    return LibraryTile("FlashAttnFwdSm90", block_m, block_n, threads, dim, buffers=2, sharing=2 if pairs else 1)


def _triton(case: Case) -> LibraryTile | None:
    """`triton_tile`; only rows of whole sectors, since Triton's copies are as wide as it can prove them aligned."""
    if case.shape.head_dim * case.itemsize % SECTOR_BYTES:
        return None
    head_dim = case.shape.head_dim
    tile, dim = triton_tile(head_dim), covering_power(head_dim)
    threads = tile.num_warps * WARP_SIZE
    return LibraryTile("flash_forward", tile.block_m, tile.block_n, threads, dim, buffers=2, first_apart=False)


def is_causal(case: Case) -> bool:
    """Whether a library runs its causal kernel: not for a single query, which sees all keys, nor for a window."""
    return case.shape.causal and case.shape.seq_q > 1 and not case.shape.windowed


def _between_sizes(head_dim: int) -> bool:
    return 128 < head_dim <= 160 or 192 < head_dim <= 224


def _has_blind_tile(case: Case) -> bool:
    """Whether a whole Q tile may see no key: the smallest tiles have 64 rows."""
    return case.shape.causal and -case.shape.diagonal >= 64


def split_block_n(head_dim: int) -> int:
    """Keys per tile of FlashAttention-2's kernel that splits them (``run_mha_fwd_splitkv_dispatch``)."""
    return 256 if head_dim <= 64 else 128 if head_dim <= 128 else 64


def split_grid(case: Case, gpu: Gpu) -> tuple[int, int]:
    """CTAs of FlashAttention-2's kernel that splits K and V, before it does, and the places that it counts for them."""
    return case.shape.slices * ceil_div(case.shape.seq_q, SPLIT_BLOCK_M), SPLIT_CTAS_PER_SM * gpu.sm_count


def may_split_keys(case: Case, gpu: Gpu) -> bool:
    """Whether FlashAttention-2 may split K and V.

    Source: ``num_splits_heuristic`` and ``set_params_splitkv`` of ``csrc/flash_attn/flash_api.cpp``, flash-attn 2.8.3:
    never with CTAs for at least four fifths of two per SM (earlier: of one per SM), nor with a single tile of K. Below
    that it depends; then this says yes.
    """
    ctas, places = split_grid(case, gpu)
    return case.shape.seq_kv > split_block_n(case.shape.head_dim) and ctas < 0.8 * places
