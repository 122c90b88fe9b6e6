"""What a kernel asks of a GPU, in the terms of the time model: tiles with their work per pipe, and passes over memory.

Counted per tile, for a tile of ``block_m`` queries by ``block_n`` keys with D columns:

* tensor cores: 4·block_m·block_n·D FLOPs forward, 10 backward (five products), padded columns among them;
* special functions: an exponential per score;
* arithmetic, per score: forward one multiply-add (scale, and subtract the maximum), one add (sum), one maximum and half
  a conversion (two scores at a time), and a multiplication per element of O that is rescaled; backward a multiply-add,
  a subtraction, a multiplication and two halves of a conversion;
* shared memory: what warps read of the operands of their products, and what is copied into it;
* L2: the tile's K and V (forward) or Q and dO (backward), and the fp32 dQ that is added to.

A warp of ``mma.sync`` reads its operands with ldmatrix: in a product of M x N x K that w = wm·wn warps divide, each
reads M/wm rows of the one and N/wn of the other operand. ``wgmma`` reads them itself, in 64 rows at a time, while it
multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fa_bench.cases import AttentionShape, Case
from fa_bench.prediction.schedule import Grid, Order
from fa_bench.sizes import ceil_div

#: How a kernel multiplies: warps with operands in registers, or warpgroups with operands in shared or tensor memory.
Products = Literal["mma", "wgmma"]


@dataclass(frozen=True, slots=True)
class TiledKernel:
    """A kernel whose CTAs each work through some tiles.

    Parameters
    ----------
    name : str
    grid : Grid
    blocks_per_sm : int
        CTAs that share an SM.
    products : {"mma", "wgmma"}
    tensor_flops, exps, fma_ops, alu_ops, smem_bytes, l2_bytes : float
        Per tile. ``fma_ops`` run on all fp32 lanes; ``alu_ops`` (maxima, conversions) on 64 per clock and SM.
    operand_bytes : float
        Of ``smem_bytes``, what ``wgmma`` reads by itself.
    dram_bytes : float
        Of the launch.
    overlaps : bool
        Whether loads, products and softmax are pipelined; else they come one after the other.
    instructions, float_instructions : float
        Per tile, of warps, where they were counted; then they stand for ``fma_ops`` and ``alu_ops``.
    """

    name: str
    grid: Grid
    blocks_per_sm: int
    products: Products
    tensor_flops: float
    exps: float
    fma_ops: float
    alu_ops: float
    smem_bytes: float
    l2_bytes: float
    dram_bytes: float
    operand_bytes: float = 0.0
    overlaps: bool = True
    instructions: float = 0.0
    float_instructions: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryPass:
    """A kernel that reads and writes tensors once.

    Parameters
    ----------
    name : str
    dram_bytes : float
    tensor_flops : float
        Of a matrix product; 0 for an elementwise kernel.
    broadcasts : bool
        Whether it reads one operand at the indices of another shape, element by element.
    fp32 : bool
        Whether its product is of fp32 whatever the case's type.
    """

    name: str
    dram_bytes: float
    tensor_flops: float = 0.0
    broadcasts: bool = False
    fp32: bool = False


Kernel = TiledKernel | MemoryPass


def forward_lengths(shape: AttentionShape, block_m: int, block_n: int) -> tuple[int, ...]:
    """Tiles that the CTA of each block of queries visits; masked ones are skipped.

    Examples
    --------
    >>> forward_lengths(AttentionShape(1, 1, 1, 512, 512, 64, causal=True), 128, 64)
    (2, 4, 6, 8)
    """
    lengths = []
    if shape.right is None and shape.window_left is None:
        return (ceil_div(shape.seq_kv, block_n),) * ceil_div(shape.seq_q, block_m)
    for start in range(0, shape.seq_q, block_m):
        last = min(start + block_m, shape.seq_q) - 1
        first_key, end = shape.visible_range(start)[0], shape.visible_range(last)[1]
        lengths.append(max(0, ceil_div(end, block_n) - first_key // block_n))
    return tuple(lengths)


def backward_lengths(shape: AttentionShape, block_m: int, block_n: int) -> tuple[int, ...]:
    """Tiles that the CTA of each block of keys visits.

    Examples
    --------
    >>> backward_lengths(AttentionShape(1, 1, 1, 512, 512, 64, causal=True), 64, 128)
    (8, 6, 4, 2)
    """
    if shape.right is None and shape.window_left is None:
        return (ceil_div(shape.seq_q, block_m),) * ceil_div(shape.seq_kv, block_n)
    lengths = []
    for start in range(0, shape.seq_kv, block_n):
        last = min(start + block_n, shape.seq_kv) - 1
        first = 0 if shape.right is None else max(0, start - shape.diagonal - shape.right)
        end = shape.seq_q
        if shape.window_left is not None:
            end = min(end, last - shape.diagonal + shape.window_left + 1)
        lengths.append(max(0, ceil_div(end, block_m) - first // block_m))
    return tuple(lengths)


def tensor_bytes(case: Case) -> tuple[float, float]:
    """Bytes of a tensor like Q and of one like K."""
    shape = case.shape
    row = case.itemsize * shape.batch * shape.head_dim
    return float(row * shape.seq_q * shape.heads_q), float(row * shape.seq_kv * shape.heads_kv)


def forward_dram_bytes(case: Case) -> float:
    """Q, K, V read and O written once."""
    queries, keys = tensor_bytes(case)
    return 2 * queries + 2 * keys


def backward_dram_bytes(case: Case) -> float:
    """Q, dO, K, V read, dK, dV written, and an fp32 dQ."""
    queries, keys = tensor_bytes(case)
    return (2 + 4 / case.itemsize) * queries + 4 * keys


def backward_passes(case: Case) -> tuple[MemoryPass, ...]:
    """What runs beside the main backward kernel: the row sums of O·dO, which clears dQ too, and dQ to its type."""
    queries, _ = tensor_bytes(case)
    fp32 = 4 / case.itemsize * queries
    return MemoryPass("dot of O and dO", 2 * queries + fp32), MemoryPass("dQ from fp32", queries + fp32)


def mma_forward(
    case: Case, block_m: int, block_n: int, dim: int, warps: int, blocks_per_sm: int, order: Order = "as numbered"
) -> TiledKernel:
    """A forward kernel of the kind of FlashAttention-2: each warp has rows of Q of its own and reads all of K and V."""
    scores, size = block_m * block_n, case.itemsize
    copied = 2 * block_n * dim
    return TiledKernel(
        name="forward",
        grid=Grid(forward_lengths(case.shape, block_m, block_n), case.shape.slices, order),
        blocks_per_sm=blocks_per_sm,
        products="mma",
        tensor_flops=4 * scores * dim,
        exps=scores,
        fma_ops=2 * scores + block_m * dim,
        alu_ops=1.5 * scores,
        smem_bytes=size * (block_m * dim + 2 * warps * block_n * dim + copied),
        l2_bytes=size * copied,
        dram_bytes=forward_dram_bytes(case),
    )


def mma_backward(
    case: Case, block_m: int, block_n: int, dim: int, atoms: tuple[int, int, int], warps: int = 8
) -> TiledKernel:
    """A backward kernel of the kind of FlashAttention-2.

    Parameters
    ----------
    case : Case
    block_m, block_n, dim : int
    atoms : tuple of int
        Warps along the first axis of S and dP, of dV and dK, and of dQ.
    warps : int
    """
    scores, size = block_m * block_n, case.itemsize
    score, key, query = atoms
    read = (
        2 * warps * (block_m // score * dim + block_n // (warps // score) * dim)
        + 2 * warps * (block_n // key * block_m + dim // (warps // key) * block_m)
        + warps * (block_m // query * block_n + dim // (warps // query) * block_n)
    )
    copied = 2 * block_m * dim
    return TiledKernel(
        name="backward",
        grid=Grid(backward_lengths(case.shape, block_m, block_n), case.shape.slices),
        blocks_per_sm=1,
        products="mma",
        tensor_flops=10 * scores * dim,
        exps=scores,
        fma_ops=3 * scores,
        alu_ops=scores,
        smem_bytes=size * (read + 2 * scores + copied) + 4 * block_m * dim,
        l2_bytes=size * copied + 2 * 4 * block_m * dim,
        dram_bytes=backward_dram_bytes(case),
    )


def wgmma_forward(
    case: Case, block_m: int, block_n: int, dim: int, blocks_per_sm: int = 1, order: Order = "longest first"
) -> TiledKernel:
    """A forward kernel of the kind of FlashAttention-3: a warpgroup per 64 rows of Q, P in registers."""
    scores, size = block_m * block_n, case.itemsize
    groups, copied = max(1, block_m // 64), 2 * block_n * dim
    operands = size * (block_m * dim + 2 * groups * block_n * dim)
    return TiledKernel(
        name="forward",
        grid=Grid(forward_lengths(case.shape, block_m, block_n), case.shape.slices, order),
        blocks_per_sm=blocks_per_sm,
        products="wgmma",
        tensor_flops=4 * scores * dim,
        exps=scores,
        fma_ops=2 * scores + block_m * dim,
        alu_ops=1.5 * scores,
        smem_bytes=operands + size * copied,
        l2_bytes=size * copied,
        dram_bytes=forward_dram_bytes(case),
        operand_bytes=operands,
    )


def wgmma_backward(case: Case, block_m: int, block_n: int, dim: int) -> TiledKernel:
    """A backward kernel of the kind of FlashAttention-3, of two warpgroups; P and dS go through shared memory."""
    scores, size = block_m * block_n, case.itemsize
    first = 2 * (block_n * dim + 2 * block_m * dim)
    others = 2 * (scores + 2 * block_m * dim) + scores + 2 * block_n * dim
    copied = 2 * block_m * dim
    return TiledKernel(
        name="backward",
        grid=Grid(backward_lengths(case.shape, block_m, block_n), case.shape.slices, "longest first"),
        blocks_per_sm=1,
        products="wgmma",
        tensor_flops=10 * scores * dim,
        exps=scores,
        fma_ops=3 * scores,
        alu_ops=scores,
        smem_bytes=size * (first + others + 2 * scores + copied) + 4 * block_m * dim,
        l2_bytes=size * copied + 2 * 4 * block_m * dim,
        dram_bytes=backward_dram_bytes(case),
        operand_bytes=size * first,
    )
