"""Tiles of the kernels: lengths against every pair, work and bytes worked out by hand, and against library_flash."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from fa_bench.algorithms.library_flash import library_model
from fa_bench.cases import AttentionShape, Case
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.prediction.eager import pytorch_eager, torch_math
from fa_bench.prediction.kernels import (
    MemoryPass,
    TiledKernel,
    backward_lengths,
    forward_lengths,
    mma_backward,
    mma_forward,
    wgmma_forward,
)
from fa_bench.prediction.libraries import cudnn, flash_attn_1, flash_attn_2, flash_attn_3, triton
from fa_bench.prediction.timing import tile_cycles

SHAPES = [
    AttentionShape(1, 1, 1, seq_q, seq_kv, 64, causal, left, None if causal else right)
    for seq_q, seq_kv in ((1, 1), (100, 100), (97, 200), (200, 150))
    for causal, left, right in ((False, None, None), (True, None, None), (True, 40, None), (False, 30, 20))
]


def visited(shape: AttentionShape, block_m: int, block_n: int) -> set[tuple[int, int]]:
    """Tiles between the first and the last that have a visible pair, for each block of queries."""
    tiles = set()
    for query in range(shape.seq_q):
        first, end = shape.visible_range(query)
        tiles |= {(query // block_m, key // block_n) for key in range(first, end)}
    return tiles


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("block_m", "block_n"), [(16, 32), (32, 16)])
def test_forward_lengths_are_the_tiles_with_a_visible_pair(shape: AttentionShape, block_m: int, block_n: int) -> None:
    tiles = visited(shape, block_m, block_n)
    blocks = range(-(-shape.seq_q // block_m))
    assert forward_lengths(shape, block_m, block_n) == tuple(sum(m == block for m, _ in tiles) for block in blocks)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("block_m", "block_n"), [(16, 32), (32, 16)])
def test_backward_lengths_are_the_tiles_with_a_visible_pair(shape: AttentionShape, block_m: int, block_n: int) -> None:
    tiles = visited(shape, block_m, block_n)
    blocks = range(-(-shape.seq_kv // block_n))
    assert backward_lengths(shape, block_m, block_n) == tuple(sum(n == block for _, n in tiles) for block in blocks)


def test_a_forward_tile_of_mma() -> None:
    """128 x 64 x 128, four warps: 4·128·64·128 FLOPs, 8192 exponentials.

    Shared memory in elements: Q once, 128·128; K and V by each warp, 4·64·128 each; K and V written, 2·64·128.
    """
    case = Case("flash-attn-2", AttentionShape(1, 2, 2, 256, 256, 128))
    kernel = mma_forward(case, 128, 64, 128, 4, 2)
    assert kernel.tensor_flops == 4194304
    assert kernel.exps == 8192
    assert kernel.smem_bytes == 2 * (16384 + 2 * 32768 + 16384)
    assert kernel.l2_bytes == 2 * 16384
    # Two heads, two Q tiles each, four K tiles a Q tile.
    assert (kernel.grid.ctas, kernel.grid.tiles) == (4, 16)
    # Q, K, V and O of two heads: 4 · 2·256·128 elements of two bytes.
    assert kernel.dram_bytes == 4 * 2 * 256 * 128 * 2


def test_a_backward_tile_of_mma() -> None:
    """64 x 128 x 64, eight warps, S in 2 x 4, dK and dV in 4 x 2, dQ in 4 x 2.

    In elements: S and dP each 8 (32·64 + 32·64); dV and dK each 8 (32·64 + 32·64); dQ 8 (16·128 + 32·128);
    P and dS written, 2·64·128; Q and dO written, 2·64·64; and dQ, 64·64 floats.
    """
    case = Case("flash-attn-2", AttentionShape(1, 1, 1, 256, 256, 64), direction="bwd")
    kernel = mma_backward(case, 64, 128, 64, (2, 4, 4))
    read = 2 * 8 * 4096 + 2 * 8 * 4096 + 8 * 6144
    assert kernel.smem_bytes == 2 * (read + 16384 + 8192) + 4 * 4096
    assert kernel.tensor_flops == 10 * 64 * 128 * 64
    assert kernel.l2_bytes == 2 * 8192 + 2 * 4 * 4096


def test_a_warpgroup_reads_k_and_v_for_its_64_rows() -> None:
    """128 x 128 x 64, two warpgroups: Q once, K and V by each, and K and V written."""
    case = Case("flash-attn-3", AttentionShape(1, 1, 1, 256, 256, 64))
    kernel = wgmma_forward(case, 128, 128, 64)
    assert kernel.operand_bytes == 2 * (128 * 64 + 2 * 2 * 128 * 64)
    assert kernel.smem_bytes - kernel.operand_bytes == 2 * 2 * 128 * 64


@pytest.mark.parametrize(
    ("gpu", "head_dim", "causal"),
    [*itertools.product(["a100-sxm-80", "h100-sxm", "rtx-4090"], [40, 64, 128, 256], [0, 1])],
)
def test_flash_attention_2_does_the_work_that_library_flash_says(gpu: str, head_dim: int, causal: int) -> None:
    case = Case("flash-attn-2", AttentionShape(4, 16, 16, 1000, 1000, head_dim, bool(causal)))
    model = library_model(case, gpus.get(gpu))
    (kernel,) = flash_attn_2(case, gpus.get(gpu))
    assert model is not None and isinstance(kernel, TiledKernel)
    assert kernel.tensor_flops * kernel.grid.tiles == model.work.flops_executed
    assert kernel.grid.ctas == model.program.launches[0].grid[0]


def test_flash_attention_3_does_the_work_that_library_flash_says() -> None:
    case = Case("flash-attn-3", AttentionShape(2, 16, 16, 4096, 4096, 128))
    model = library_model(case, gpus.get("h100-sxm"))
    (kernel,) = flash_attn_3(case, gpus.get("h100-sxm"))
    assert model is not None and isinstance(kernel, TiledKernel)
    assert kernel.tensor_flops * kernel.grid.tiles == model.work.flops_executed


def test_160_columns_have_a_kernel_of_their_own() -> None:
    (kernel,) = flash_attn_2(Case("flash-attn-2", AttentionShape(1, 32, 8, 1024, 1024, 160)), gpus.get("a30"))
    assert isinstance(kernel, TiledKernel)
    assert kernel.tensor_flops == 4 * 128 * 32 * 160


def test_160_columns_have_a_backward_kernel_of_their_own() -> None:
    # flash_bwd_launch_template.h, run_mha_bwd_hdim160: 64 x 64 tiles; five products of 2 · 64 · 64 · 160 FLOPs.
    case = Case("flash-attn-2", AttentionShape(1, 32, 8, 1024, 1024, 160), direction="bwd")
    main = flash_attn_2(case, gpus.get("a100-sxm-80"))[0]
    assert isinstance(main, TiledKernel)
    assert main.tensor_flops == 5 * 2 * 64 * 64 * 160


@pytest.mark.parametrize(
    ("gpu", "head_dim", "seq", "forward", "backward"),
    [
        ("a100-sxm-80", 64, 1024, 256, 256),
        ("a100-sxm-80", 64, 128, 128, 128),
        ("a100-sxm-80", 128, 1024, 128, 128),
        ("a100-sxm-80", 16, 1024, 256, 256),
        ("t4", 64, 1024, 256, 128),
        ("t4", 32, 1024, 256, 256),
    ],
)
def test_keys_of_a_tile_of_flash_attention_1(gpu: str, head_dim: int, seq: int, forward: int, backward: int) -> None:
    # The first argument of FMHA_kernel_traits in fmha_fwd_hdim*.cu and fmha_bwd_hdim*.cu; a row of scores is m = 128.
    case = Case("flash-attn-1", AttentionShape(1, 2, 2, seq, seq, head_dim), direction="fwd+bwd")
    kernels = [kernel for kernel in flash_attn_1(case, gpus.get(gpu)) if isinstance(kernel, TiledKernel)]
    assert [kernel.exps for kernel in kernels] == [128 * forward, 128 * backward]
    # The smallest kernel has 32 columns.
    assert kernels[0].tensor_flops == 4 * 128 * forward * max(32, head_dim)


def test_a_window_is_a_mask_to_flash_attention_3_backward() -> None:
    # hopper/flash_bwd_launch_template.h: 64 queries for causal or local, 80 without a mask, at 128 columns.
    for shape, queries in (
        (AttentionShape(1, 2, 2, 1024, 1024, 128), 80),
        (AttentionShape(1, 2, 2, 1024, 1024, 128, window_left=256), 64),
        (AttentionShape(1, 2, 2, 1024, 1024, 128, causal=True), 64),
    ):
        main = flash_attn_3(Case("flash-attn-3", shape, direction="bwd"), gpus.get("h100-sxm"))[0]
        assert isinstance(main, TiledKernel) and main.exps == queries * 128


def test_passes_of_pytorch() -> None:
    """B·H = 2, N = 64, D = 16 in fp16: S has 2·64·64·2 = 16384 bytes, a tensor like Q 2·64·16·2 = 4096.

    fwd: S written, softmax 2, P read and 8 copies; the mask 2 more. bwd: P, dP, 3 for softmax, dS twice, 12 copies.
    Each product moves two tensors like Q.
    """
    gpu = gpus.get("a100-sxm-80")
    case = Case("pytorch-eager", AttentionShape(1, 2, 2, 64, 64, 16))

    def nbytes(case: Case) -> float:
        return sum(kernel.dram_bytes for kernel in pytorch_eager(case, gpu))

    assert nbytes(case) == 4 * 16384 + (2 * 2 + 8) * 4096
    causal = Case("pytorch-eager", AttentionShape(1, 2, 2, 64, 64, 16, causal=True))
    assert nbytes(causal) - nbytes(case) == 2 * 16384
    backward = Case("pytorch-eager", case.shape, direction="bwd")
    assert nbytes(backward) == 7 * 16384 + (4 * 2 + 12) * 4096


@pytest.mark.parametrize(("queries", "waves"), [(256, 1), (512, 2), (1024, 4)])
def test_ctas_of_cudnn_on_hopper_have_128_queries(queries: int, waves: int) -> None:
    # 64 heads: 64 · queries / 128 CTAs on the 132 SMs of an H200, each alone.
    case = Case("torch-cudnn", AttentionShape(1, 64, 8, queries, 8192, 128, causal=True))
    (kernel,) = cudnn(case, gpus.get("h200-sxm"))
    assert isinstance(kernel, TiledKernel)
    assert (kernel.grid.ctas, kernel.blocks_per_sm) == (64 * queries // 128, 1)
    assert -(-kernel.grid.ctas // 132) == waves


def test_triton_takes_turns_on_hopper_with_128_columns() -> None:
    """128 x 64 x 128: 4·8192·128 FLOPs / 4096, 8192 / 16 exponentials, 1.6 ((2·8192 + 128·128) / 128 + 1.5·8192 / 64)
    of arithmetic; copies are hidden.
    """
    case, h100 = Case("triton-tutorial", AttentionShape(1, 2, 2, 1024, 1024, 128)), gpus.get("h100-sxm")
    (kernel,) = triton(case, h100)
    assert isinstance(kernel, TiledKernel) and not kernel.overlaps
    cycles = tile_cycles(kernel, case, h100)
    assert cycles == pytest.approx({"tensor": 1024, "exp": 512, "fma": 716.8, "shared": 0, "l2": 0}, rel=1e-3)


@pytest.mark.parametrize(("gpu", "head_dim"), [("h100-sxm", 64), ("a100-sxm-80", 128), ("b200-sxm", 128)])
def test_triton_overlaps_where_its_ctas_share_an_sm_or_on_other_gpus(gpu: str, head_dim: int) -> None:
    (kernel,) = triton(Case("triton-tutorial", AttentionShape(1, 2, 2, 1024, 1024, head_dim)), gpus.get(gpu))
    assert isinstance(kernel, TiledKernel) and kernel.overlaps


def test_passes_of_sdpas_math() -> None:
    """B·H = 2, N = 64, D = 16 in fp16: S has 2·64·64·4 = 32768 bytes, Q and K 2048 elements, pairs are 8192.

    fwd: Q, K and V read in 2 and written in 4 bytes; Q and K scaled in fp32; S written, softmax 2, rows without keys: S
    compared and its byte written and read, P read and written; P read; O and P read in 4, written in 2 bytes. bwd: P,
    dP, 2 for rows without keys, 3 for softmax, dS twice; dO cast; dQ and dK scaled; dQ, dK and dV cast. Each product
    moves two tensors like Q in fp32.
    """
    gpu, shape = gpus.get("a100-sxm-80"), AttentionShape(1, 2, 2, 64, 64, 16)

    def nbytes(shape: AttentionShape = shape, **fields: Any) -> float:
        return sum(kernel.dram_bytes for kernel in torch_math(Case("torch-math", shape, **fields), gpu))

    product = 2 * 4 * 2048
    casts, scaling, found, last = 3 * 6 * 2048, 2 * 8 * 2048, 3 * 32768 + 2 * 8192, 6 * (2048 + 8192)
    assert nbytes() == casts + scaling + 4 * 32768 + 2 * product + found + last
    # fp32 needs no casts; positions before heads, three copies; a mask, a pass that reads and writes S.
    assert nbytes() - nbytes(dtype="fp32") == casts + last
    assert nbytes(layout="bshd") - nbytes() == 3 * 8 * 2048
    assert nbytes(replace(shape, causal=True)) - nbytes() == 2 * 32768
    assert nbytes(direction="bwd") == 9 * 32768 + 4 * product + 6 * 2048 + scaling + casts
    # One head of K and V for two of Q: half as much is cast, then repeated.
    grouped = replace(shape, heads_kv=1)
    assert nbytes(grouped) - nbytes() == 2 * 4 * (1024 + 2048) - 6 * 2 * 1024
    products = [kernel for kernel in torch_math(Case("torch-math", shape), gpu) if isinstance(kernel, MemoryPass)]
    assert [(kernel.name, kernel.tensor_flops) for kernel in products if kernel.fp32] == [
        ("QK^T", 2 * 8192 * 16),
        ("PV", 2 * 8192 * 16),
    ]


def test_scores_of_sdpas_math_are_twice_as_large() -> None:
    """Three of 2^36 scores in fp32 are 768 GiB; in fp16 two of them would be 256 GiB."""
    case = Case("torch-math", AttentionShape(1, 1, 1, 2**18, 2**18, 64))
    with pytest.raises(Unsupported, match="would need 768 GiB"):
        torch_math(case, gpus.get("h100-sxm"))


def test_scores_that_do_not_fit_are_refused() -> None:
    """One head at 2^20: S alone has 2 TiB."""
    case = Case("pytorch-eager", AttentionShape(1, 1, 1, 2**20, 2**20, 64))
    with pytest.raises(Unsupported, match="would need 4 TiB"):
        pytorch_eager(case, gpus.get("h100-sxm"))
