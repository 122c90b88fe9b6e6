"""The libraries' kernels as tiles: what is public of them, and where it is not, what their design implies.

FlashAttention-2 and -3 forward: the tiles of `fa_bench.algorithms.library_flash`. FlashAttention-2 backward:
``csrc/flash_attn/src/flash_bwd_launch_template.h`` at commit 073afd5 (2024 and later). FlashAttention-3 backward:
``hopper/flash_bwd_launch_template.h`` at commit 000786d. Releases of FlashAttention-2 that have a kernel for 160
columns (``run_mha_fwd_hdim160``, ``run_mha_bwd_hdim160``) run 128 x 32 tiles there on an A100 or an H100, 128 x 64 in
eight warps or, causal, 64 x 64 on 8.6 and 8.9, and 64 x 64 backward; points that were published for such head
dimensions are theirs.

For the others the kernel is a sketch: where no file is named, the tile is an assumption that measured times don't
contradict, and two constants stand for what is not known:

* ``flash-attn-4``: two Q tiles of 128 rows take turns on one SM, keys in tiles of 128; backward 128 x 128 (the defaults
  of ``flash_attn/cute/flash_fwd_sm100.py``, ``q_stage`` 2, and of ``flash_bwd_sm100.py`` at commit 021070c, there
  without pairs of CTAs).
* ``torch-cudnn``: on Hopper 128 queries a CTA up to 128 columns: on an H200 256 queries of 64 heads take half as long
  as 512, 0.120 and 0.231 ms (cudnn-frontend's prefill table), which are 128 and 256 such CTAs, one and two waves of
  its 132 SMs. 128 keys a tile, and 64 x 128 above 128 columns, are of those tried the ones by which curves that were
  left out are predicted best. On Blackwell the design of FlashAttention-4, on anything older that of
  FlashAttention-2, with their constants.
* ``triton-tutorial``: 128 x 128 up to 64 columns, 128 x 64 above, and on Hopper ``wgmma``. There a CTA of more than 64
  columns is alone on its SM, and times of the Triton of spring 2024 are those of a loop that waits for each product:
  products, exponentials and arithmetic take turns, and loads alone are hidden. On an A100 that doesn't hold: a forward
  pass with 128 columns would come out half too slow. The backward pass is that of Triton 2, whose loads,
  products and softmax come one after the other.
* ``xformers``: CUTLASS' memory-efficient attention. Four warps share a tile of 64 queries, P goes through shared
  memory, Q is read again for each tile of keys.
* ``flash-attn-1``: 256 keys a tile, of which each warp has a part; 128 for 128 columns, for up to 128 keys, and
  backward for 64 columns on Turing (``csrc/flash_attn/src/fmha_fwd_hdim*.cu`` and ``fmha_bwd_hdim*.cu`` at commit
  8a2ece8), with four warps forward, eight backward and 16 queries at a time. Each 16 rows of O are summed over the
  warps in shared memory, and O stays in fp32 in global memory between tiles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fa_bench.algorithms.library_flash import flash_attn_2_tile, flash_attn_3_tile, is_causal
from fa_bench.algorithms.tensors import padded_head_dim
from fa_bench.algorithms.tiles import covering_power
from fa_bench.cases import Case
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import WARP_SIZE, Gpu
from fa_bench.prediction.kernels import (
    Kernel,
    TiledKernel,
    backward_dram_bytes,
    backward_lengths,
    backward_passes,
    forward_dram_bytes,
    forward_lengths,
    mma_backward,
    mma_forward,
    wgmma_backward,
    wgmma_forward,
)
from fa_bench.prediction.schedule import Grid
from fa_bench.prediction.splits import joined, split_count, split_forward

_KIB: Final = 1024
_HOPPER: Final = 9
_BLACKWELL: Final = 10
#: The first with tensor cores for bf16.
_BF16_CAPABILITY: Final = (8, 0)
#: Warps that an SM of these kernels runs: each takes all registers that a thread may have.
_WARPS_PER_SM: Final = 8
#: Rows of Q that FlashAttention-1 works on at a time.
_FA1_STEP: Final = 16
_FA1_MOST_COLUMNS: Final = 128


def flash_attn_2(case: Case, gpu: Gpu) -> list[Kernel]:
    """FlashAttention-2."""
    _needs(case, gpu, (8, 0))
    run = joined(case)
    parts = split_count(run, gpu)
    dim = padded_head_dim(case.shape.head_dim)
    forward = split_forward(run, dim, parts) if parts > 1 else [_flash_attn_2_forward(run, gpu)]
    return [*(forward if case.forward else ()), *_flash_attn_2_gradients(case, gpu)]


def flash_attn_3(case: Case, gpu: Gpu) -> list[Kernel]:
    """FlashAttention-3, for Hopper alone; ``flash_attn_func`` splits no keys unless it is asked to."""
    if gpu.compute_capability[0] != _HOPPER:
        raise Unsupported(f"{case.impl} runs on compute capability 9.0 alone, not on {gpu.slug}.")
    _needs(case, gpu, (9, 0))
    dim, masked = max(64, padded_head_dim(case.shape.head_dim)), case.shape.causal or case.shape.windowed
    kernels: list[Kernel] = []
    if case.forward:
        run = joined(case)
        tile = flash_attn_3_tile(run)
        kernels.append(wgmma_forward(run, tile.block_m, tile.block_n, tile.dim))
    if case.backward:
        rows = {64: (128, 128), 96: (64, 128), 128: (64 if masked else 80, 128), 192: (64, 96), 256: (64, 80)}[dim]
        kernels += [wgmma_backward(case, *rows, dim), *backward_passes(case)]
    return kernels


def flash_attn_4(case: Case, gpu: Gpu) -> list[Kernel]:
    """FlashAttention-4, for Blackwell's data-centre parts; one CTA per tile backward."""
    if gpu.compute_capability[0] != _BLACKWELL:
        raise Unsupported(f"{case.impl} has a model for compute capability 10.0 alone, not for {gpu.slug}.")
    _needs(case, gpu, (10, 0))
    return _tensor_memory(case)


def cudnn(case: Case, gpu: Gpu) -> list[Kernel]:
    """cuDNN's fused attention."""
    _needs(case, gpu, (8, 0))
    major = gpu.compute_capability[0]
    if major == _BLACKWELL:
        return _tensor_memory(case)
    if major != _HOPPER:
        forward = [_flash_attn_2_forward(case, gpu)] if case.forward else []
        return [*forward, *_flash_attn_2_gradients(case, gpu)]
    dim = max(64, padded_head_dim(case.shape.head_dim))
    kernels: list[Kernel] = []
    if case.forward:
        kernels.append(wgmma_forward(case, 128 if dim <= 128 else 64, 128, dim))
    if case.backward:
        kernels += [wgmma_backward(case, 128 if dim <= 64 else 64, 128, dim), *backward_passes(case)]
    return kernels


def triton(case: Case, gpu: Gpu) -> list[Kernel]:
    """The fused attention of Triton's tutorial."""
    _needs(case, gpu, (8, 0))
    dim = max(32, covering_power(case.shape.head_dim))
    wide = dim > 64
    kernels: list[Kernel] = []
    if case.forward and gpu.compute_capability[0] >= _HOPPER:
        blocks = 1 if wide else 2
        forward = wgmma_forward(case, 128, 64 if wide else 128, dim, blocks, "as numbered")
        if wide and gpu.compute_capability[0] == _HOPPER:
            # What is copied comes from L2 and goes to shared memory while the warps do the rest in turn.
            forward = replace(forward, overlaps=False, smem_bytes=forward.operand_bytes, l2_bytes=0.0)
        kernels.append(forward)
    elif case.forward:
        warps = 8 if wide else 4
        forward = mma_forward(case, 128, 64, dim, warps, _WARPS_PER_SM // warps)
        if case.backward:
            through_memory = 2 * case.itemsize * 128 * 64
            forward = replace(forward, overlaps=False, smem_bytes=forward.smem_bytes + through_memory)
        kernels.append(forward)
    if case.backward:
        block_m = 64 if wide else 128
        main = mma_backward(case, block_m, 128, dim, (4, 4, 4))
        more = 4 * block_m * dim
        kernels += [replace(main, overlaps=False, l2_bytes=main.l2_bytes + more), *backward_passes(case)]
    return kernels


def xformers(case: Case, gpu: Gpu) -> list[Kernel]:
    """xFormers' CUTLASS kernels."""
    _needs(case, gpu, (8, 0))
    dim, size, shape = covering_power(case.shape.head_dim), case.itemsize, case.shape
    kernels: list[Kernel] = []
    if case.forward:
        m, n = 64, 64 if dim <= 64 else 128
        # Four warps, two by two, in both products; P is written, then read as an operand.
        read = 4 * (m // 2 * dim + n // 2 * dim) + 4 * (m // 2 * n + n * dim // 2)
        kernels.append(
            TiledKernel(
                name="forward",
                grid=Grid(forward_lengths(shape, m, n), shape.slices),
                blocks_per_sm=2,
                products="mma",
                tensor_flops=4 * m * n * dim,
                exps=m * n,
                fma_ops=2 * m * n + m * dim,
                alu_ops=1.5 * m * n,
                smem_bytes=size * (read + m * n + m * dim + 2 * n * dim),
                l2_bytes=size * (m * dim + 2 * n * dim),
                dram_bytes=forward_dram_bytes(case),
                overlaps=False,
            )
        )
    if case.backward:
        m = n = 64
        read = 2 * 4 * (m // 2 * dim + n // 2 * dim) + 3 * 4 * (m // 2 * n + n * dim // 2)
        kernels.append(
            TiledKernel(
                name="backward",
                grid=Grid(backward_lengths(shape, m, n), shape.slices),
                blocks_per_sm=2 if dim <= 64 else 1,
                products="mma",
                tensor_flops=10 * m * n * dim,
                exps=m * n,
                fma_ops=3 * m * n,
                alu_ops=m * n,
                smem_bytes=size * (read + 2 * m * n + 4 * m * dim),
                l2_bytes=size * 2 * m * dim + 2 * 4 * m * dim,
                dram_bytes=backward_dram_bytes(case),
                overlaps=False,
            )
        )
        kernels += backward_passes(case)
    return kernels


def flash_attn_1(case: Case, gpu: Gpu) -> list[Kernel]:
    """FlashAttention 1.x, which has up to 128 columns."""
    _needs(case, gpu, (7, 5))
    if case.shape.head_dim > _FA1_MOST_COLUMNS:
        raise Unsupported(f"{case.impl} has no kernels for more than {_FA1_MOST_COLUMNS} columns.")
    dim, size, shape = max(32, covering_power(case.shape.head_dim)), case.itemsize, case.shape
    kernels: list[Kernel] = []
    m = 128
    steps = m // _FA1_STEP
    n = 256 if dim <= 64 and shape.seq_kv > 128 else 128
    if case.forward:
        # Each of four warps reads all rows of Q, writes its part of O in fp32, and a quarter of the sum is read back.
        shared = steps * (size * _FA1_STEP * dim * 4 + 2 * 4 * 4 * _FA1_STEP * dim) + size * 2 * n * dim / 8
        kernels.append(
            TiledKernel(
                name="forward",
                grid=Grid(forward_lengths(shape, m, n), shape.slices),
                blocks_per_sm=2,
                products="mma",
                tensor_flops=4 * m * n * dim,
                exps=m * n,
                fma_ops=2 * m * n + 3 * m * dim,
                alu_ops=1.5 * m * n,
                smem_bytes=shared,
                l2_bytes=size * m * dim + 2 * 4 * m * dim,
                dram_bytes=forward_dram_bytes(case),
                overlaps=False,
            )
        )
    if case.backward:
        if dim == 64 and gpu.compute_capability == (7, 5):
            n = 128
        # Q, dO and their transposes by eight warps each, dQ in fp32 over the warps, P and dS to and fro.
        shared = steps * (4 * size * _FA1_STEP * dim * 8 + 2 * 8 * 4 * _FA1_STEP * dim + 2 * 2 * size * _FA1_STEP * n)
        kernels.append(
            TiledKernel(
                name="backward",
                grid=Grid(backward_lengths(shape, m, n), shape.slices),
                blocks_per_sm=1,
                products="mma",
                tensor_flops=10 * m * n * dim,
                exps=m * n,
                fma_ops=3 * m * n,
                alu_ops=m * n,
                smem_bytes=shared,
                l2_bytes=size * m * dim + 2 * 4 * m * dim,
                dram_bytes=backward_dram_bytes(case),
                overlaps=False,
            )
        )
        kernels += backward_passes(case)
    return kernels


def _needs(case: Case, gpu: Gpu, capability: tuple[int, int]) -> None:
    if case.dtype == "fp32":
        raise Unsupported(f"{case.impl} has no kernels for fp32.")
    needed = max(capability, _BF16_CAPABILITY) if case.dtype == "bf16" else capability
    if gpu.compute_capability < needed:
        least = ".".join(map(str, needed))
        raise Unsupported(f"{case.impl} in {case.dtype} needs compute capability {least}: not on {gpu.slug}.")


def _flash_attn_2_forward(case: Case, gpu: Gpu) -> TiledKernel:
    tile = flash_attn_2_tile(case, gpu)
    m, n, dim, warps = tile.block_m, tile.block_n, tile.dim, tile.threads // WARP_SIZE
    if 128 < case.shape.head_dim <= 160:
        dim, (m, n, warps) = 160, (128, 32, 4)
        if gpu.compute_capability in ((8, 6), (8, 9)):
            m, n, warps = (64, 64, 4) if is_causal(case) else (128, 64, 8)
    given = case.itemsize * dim * (m + 2 * n) + _KIB
    blocks = max(1, min(gpu.smem_per_sm_bytes // given, _WARPS_PER_SM // warps))
    return mma_forward(case, m, n, dim, warps, blocks)


def _flash_attn_2_gradients(case: Case, gpu: Gpu) -> list[Kernel]:
    return [_flash_attn_2_backward(case, gpu), *backward_passes(case)] if case.backward else []


def _flash_attn_2_backward(case: Case, gpu: Gpu) -> TiledKernel:
    dim = 160 if 128 < case.shape.head_dim <= 160 else padded_head_dim(case.shape.head_dim)
    large = gpu.smem_per_block_bytes >= 144 * _KIB
    m, n, atoms = {
        32: (128, 128, (4, 4, 4)),
        64: (128, 128, (4, 4, 4)) if large else (64, 128, (2, 4, 4)),
        96: (64, 128, (2, 4, 4)),
        128: (64, 128, (2, 4, 2)) if large else (64, 64, (4, 2, 2)),
        160: (64, 64, (4, 4, 4)),
        192: (64, 64, (4, 2, 2)),
        256: (64, 64, (4, 2, 2)) if large else (64, 32, (4, 1, 2)),
    }[dim]
    return mma_backward(case, m, n, dim, atoms)


def _tensor_memory(case: Case) -> list[Kernel]:
    """The design of FlashAttention-4: operands in shared memory, scores and accumulators in tensor memory."""
    dim, size = max(64, padded_head_dim(case.shape.head_dim)), case.itemsize
    kernels: list[Kernel] = []
    if case.forward:
        forward = wgmma_forward(case, 256, 128, dim)
        # A 128-row instruction reads K and V once for its rows, half as often as a warpgroup of Hopper.
        operands = size * (256 * dim + 2 * 2 * 128 * dim)
        copied = size * 2 * 128 * dim
        kernels.append(replace(forward, operand_bytes=operands, smem_bytes=operands + copied))
    if case.backward:
        kernels += [wgmma_backward(case, 128, 128, dim), *backward_passes(case)]
    return kernels
