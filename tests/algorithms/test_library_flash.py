"""Tiles that libraries choose, from their sources, and the traffic that follows, against a walk over the tiles."""

from __future__ import annotations

import pytest

from fa_bench.algorithms.library_flash import LibraryModel, library_model, library_tile
from fa_bench.cases import AttentionShape, Case, DType, Layout
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu

A100, H100, RTX4090 = (gpus.get(slug) for slug in ("a100-sxm-80", "h100-sxm", "rtx-4090"))


def tile(impl: str, gpu: Gpu, head_dim: int, causal: bool = False, seq: int = 4096) -> tuple[int, int] | None:
    found = library_tile(Case(impl, AttentionShape(4, 32, 32, seq, seq, head_dim, causal)), gpu)
    return None if found is None else (found.block_m, found.block_n)


def model(case: Case, gpu: Gpu = A100) -> LibraryModel:
    found = library_model(case, gpu)
    assert found is not None
    return found


# (head_dim, causal) -> A100, H100, RTX 4090; read off flash_fwd_launch_template.h of flash-attn 2.8.3.
FLASH_ATTN_2 = {
    (32, False): ((128, 128), (128, 128), (128, 128)),
    (64, True): ((128, 128), (128, 128), (128, 128)),
    (80, False): ((128, 64), (128, 64), (128, 64)),
    (96, True): ((128, 64), (128, 64), (64, 64)),
    (128, False): ((128, 64), (128, 64), (128, 32)),
    (128, True): ((128, 64), (128, 64), (64, 64)),
    (160, False): ((128, 64), (128, 64), (128, 64)),
    # 2 · 256 · (128 + 2 · 64) = 128 KiB fit a CTA of an A100 and an H100; two CTAs of 96 KiB fit the H100 only.
    (256, False): ((128, 64), (64, 64), (64, 64)),
}


@pytest.mark.parametrize(("head_dim", "causal"), FLASH_ATTN_2, ids=str)
def test_tiles_of_flash_attention_2_are_those_of_its_launch_templates(head_dim: int, causal: bool) -> None:
    found = tuple(tile("flash-attn-2", gpu, head_dim, causal) for gpu in (A100, H100, RTX4090))
    assert found == FLASH_ATTN_2[head_dim, causal]


def test_pytorchs_copy_has_the_same_tiles_but_for_sizes_in_between() -> None:
    assert tile("torch-flash", RTX4090, 128, True) == (64, 64)
    assert tile("torch-flash", A100, 192) == (128, 64)
    # Its copy kept kernels for 160 and 224 columns.
    assert tile("torch-flash", A100, 160) is None and tile("torch-flash", A100, 200) is None


# (head_dim, causal) -> tile on Hopper; read off tile_size_fwd_sm90 of hopper/tile_size.h.
FLASH_ATTN_3 = {
    (64, False): (192, 192),
    (64, True): (192, 128),
    (96, False): (192, 144),
    (128, False): (128, 176),
    (128, True): (128, 128),
    (192, True): (128, 112),
    (256, False): (128, 80),
}


@pytest.mark.parametrize(("head_dim", "causal"), FLASH_ATTN_3, ids=str)
def test_tiles_of_flash_attention_3_are_those_of_its_table(head_dim: int, causal: bool) -> None:
    assert tile("flash-attn-3", H100, head_dim, causal) == FLASH_ATTN_3[head_dim, causal]
    assert tile("flash-attn-3", A100, head_dim, causal) is None


# The same table's columns for a window (is_local), which is not causal to a library: one right window of 0 or none.
FLASH_ATTN_3_LOCAL = {64: (192, 160), 96: (192, 128), 128: (128, 128), 192: (128, 96), 256: (128, 64)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", FLASH_ATTN_3_LOCAL)
def test_a_window_has_tiles_of_its_own_in_flash_attention_3(head_dim: int, causal: bool) -> None:
    shape = AttentionShape(4, 32, 32, 4096, 4096, head_dim, causal, window_left=512)
    found = library_tile(Case("flash-attn-3", shape), H100)
    assert found is not None
    # Clusters that share K and V are compiled for no mask alone (Enable_cluster in flash_fwd_launch_template.h).
    assert ((found.block_m, found.block_n), found.sharing) == (FLASH_ATTN_3_LOCAL[head_dim], 1)


def test_a_causal_window_does_not_run_flash_attention_2s_causal_kernel() -> None:
    # flash_api.cpp: is_causal is window_size_left < 0 and window_size_right == 0. On an RTX 4090 the tiles differ.
    shape = AttentionShape(4, 32, 32, 4096, 4096, 128, causal=True, window_left=512)
    found = library_tile(Case("flash-attn-2", shape), RTX4090)
    assert found is not None and (found.block_m, found.block_n) == (128, 32)


def walked(case: Case, block_m: int, block_n: int) -> dict[tuple[str, str], int]:
    """Bytes asked for, tile by tile, where rows are whole sectors: a program's view, without any formula of ours."""
    s, row = case.shape, case.shape.head_dim * case.itemsize
    bytes_of = {("Q", "read"): 0, ("K", "read"): 0, ("V", "read"): 0, ("O", "write"): 0, ("LSE", "write"): 0}
    for number in range(s.slices):
        for first in range(0, s.seq_q, block_m):
            last = min(first + block_m, s.seq_q) - 1
            bytes_of["Q", "read"] += (last - first + 1) * row
            bytes_of["O", "write"] += (last - first + 1) * row
            for key in range(0, s.seq_kv, block_n):
                if not s.causal or key <= last + s.seq_kv - s.seq_q:
                    rows = min(block_n, s.seq_kv - key)
                    bytes_of["K", "read"] += rows * row
                    bytes_of["V", "read"] += rows * row
        # Eight rows at a time: the sectors that hold their floats.
        start = number * s.seq_q
        for first in range(0, s.seq_q, 8):
            floats = range(start + first, start + min(first + 8, s.seq_q))
            bytes_of["LSE", "write"] += 32 * len({value // 8 for value in floats})
    return bytes_of


SHAPES = [
    AttentionShape(4, 32, 32, 512, 512, 64),
    AttentionShape(4, 32, 8, 517, 700, 128, causal=True),
    AttentionShape(8, 32, 32, 300, 270, 96, causal=True),  # 30 queries see nothing, but no whole tile
    AttentionShape(8, 32, 4, 300, 270, 256),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(("impl", "gpu"), [("flash-attn-2", A100), ("flash-attn-2", RTX4090), ("triton-flash", A100)])
def test_traffic_is_that_of_a_walk_over_the_tiles(impl: str, gpu: Gpu, layout: Layout, shape: AttentionShape) -> None:
    case = Case(impl, shape, "bf16", layout=layout)
    found = model(case, gpu)
    block_m, block_n = found.tile.block_m, found.tile.block_n
    assert {(part.tensor, part.op): part.bytes for part in found.traffic} == walked(case, block_m, block_n)


def test_a_cluster_of_two_asks_for_k_and_v_once() -> None:
    # 512 rows are 4 Q tiles of 128: two clusters, each reads 512 rows of 128 halves once. Per slice 2 · 512 · 256 B.
    shape = AttentionShape(1, 16, 16, 512, 512, 128)
    bytes_of = {part.tensor: part.bytes for part in model(Case("flash-attn-3", shape), H100).traffic}
    assert bytes_of["K"] == bytes_of["V"] == 16 * 2 * 512 * 256
    # 384 rows are 3 tiles, an odd number: no cluster. Likewise with a mask: tiles 1 ... 4 of 128 keys are 10 of 128.
    three = model(Case("flash-attn-3", AttentionShape(1, 16, 16, 384, 384, 128)), H100)
    assert {part.tensor: part.bytes for part in three.traffic}["K"] == 16 * 3 * 384 * 256
    masked = model(Case("flash-attn-3", AttentionShape(1, 16, 16, 512, 512, 128, True)), H100)
    assert {part.tensor: part.bytes for part in masked.traffic}["K"] == 16 * 10 * 128 * 256


def test_rows_that_straddle_sectors_are_counted_by_instruction() -> None:
    # D = 40: rows of 80 bytes, a tile of 64 columns, 4 rows of 128 bytes per instruction, so 4 · 80 bytes in one piece
    # are 10 sectors. 512 rows: 128 · 10 sectors for Q.
    found = model(Case("flash-attn-2", AttentionShape(4, 32, 32, 512, 512, 40)))
    assert {part.tensor: part.bytes for part in found.traffic}["Q"] == 128 * 128 * 10 * 32


def test_work_counts_whole_tiles_padded_columns_and_the_lanes_of_a_row() -> None:
    # D = 80 in 96 columns, tile 128 x 64. 512 rows, causal: tiles of 64 keys for the four Q tiles 2 + 4 + 6 + 8 = 20.
    found = model(Case("flash-attn-2", AttentionShape(4, 32, 32, 512, 512, 80, True)))
    assert found.work.flops_executed == 128 * 20 * 4 * 128 * 64 * 96
    # One per score; per row and tile but its first, four lanes that shrink O.
    assert found.work.exp_count == 128 * (20 * 128 * 64 + (20 - 4) * 128 * 4)
    assert found.tile.smem_bytes == 2 * 96 * (128 + 2 * 64)
    # Triton's loop treats all tiles alike: D = 64, two Q tiles of four tiles of keys.
    triton = model(Case("triton-flash", AttentionShape(1, 1, 1, 256, 256, 64)))
    assert triton.work.exp_count == 128 * (8 * 64 + 8 * 4)
    # A Q tile that sees no key shrinks nothing: rows 0 ... 127 of 200 see none of 64 keys, the others one tile.
    blind = model(Case("triton-flash", AttentionShape(1, 1, 1, 200, 64, 64, True)))
    assert blind.work.exp_count == 128 * (64 + 4)


@pytest.mark.parametrize(
    ("impl", "shape", "dtype"),
    [
        ("numpy-flash", AttentionShape(4, 32, 32, 512, 512, 64), "fp16"),
        ("xformers", AttentionShape(4, 32, 32, 512, 512, 64), "fp16"),
        ("flash-attn-2", AttentionShape(4, 32, 32, 512, 512, 64), "fp32"),
        # 2 · 1 tiles of 64 rows for 108 SMs: K and V are split.
        ("flash-attn-2", AttentionShape(1, 2, 2, 64, 4096, 64), "fp16"),
        # One query of four heads on a K/V head: one tile of four rows.
        ("flash-attn-2", AttentionShape(64, 32, 8, 1, 200, 64), "fp16"),
        # Queries 0 ... 255 see nothing.
        ("flash-attn-2", AttentionShape(4, 32, 32, 512, 256, 64, True), "fp16"),
        ("triton-flash", AttentionShape(4, 32, 32, 512, 512, 40), "fp16"),
    ],
)
def test_what_a_library_would_run_otherwise_has_no_model(impl: str, shape: AttentionShape, dtype: DType) -> None:
    assert library_model(Case(impl, shape, dtype), A100) is None


@pytest.mark.parametrize("shape", [AttentionShape(4, 32, 8, 512, 512, 64), AttentionShape(4, 32, 32, 64, 512, 128)])
def test_what_flash_attention_3_packs_or_tiles_otherwise_has_no_model(shape: AttentionShape) -> None:
    assert library_model(Case("flash-attn-3", shape), H100) is None


def test_a_split_is_ruled_out_by_enough_tiles_or_by_a_single_tile_of_keys() -> None:
    # 108 SMs: four fifths of two per SM are 172.8 tiles of 64 rows.
    assert library_tile(Case("flash-attn-2", AttentionShape(1, 173, 173, 64, 512, 64)), A100) is not None
    assert library_tile(Case("flash-attn-2", AttentionShape(1, 172, 172, 64, 512, 64)), A100) is None
    # A split's tiles have 256 keys at D = 64: no more than one, nothing to split.
    assert library_tile(Case("flash-attn-2", AttentionShape(1, 1, 1, 64, 256, 64)), A100) is not None
