"""The ladder: FlashAttention-2's loop in steps, each a kernel of its own in ``kernels/ladder`` that adds one idea.

The rungs are for reading and counting: fp16, head_dim 64, tiles of 64 queries by 64 keys, no mask, as many K/V heads as
query heads, contiguous tensors; any number of slices, any lengths. They are no implementations (``--impl``): the kernel
that the last of them becomes is ``kernels/flash2/flash2_fwd.cu``, which takes every shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.algorithms.base import SECTOR_BYTES, KernelSpec, Launch, Op, Program, Scalar, TensorBytes
from fa_bench.algorithms.slices import row_vector_sectors
from fa_bench.algorithms.tensors import ELEMENT_DEFINES, qkvo, row_vector
from fa_bench.algorithms.tiles import WARP_SIZE
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import UsageError

#: What is counted of a rung: global bytes; and wavefronts, conflicts, requests and instructions by class per mma.
Figure = Literal[
    "read",
    "written",
    "shared requests",
    "wavefronts",
    "conflicts",
    "instructions",
    "fp32",
    "load-store",
    "integer",
]

#: Entry of every rung, so that the diff of two rungs is their idea.
KERNEL: Final = "ladder_fwd"
HEAD_DIM: Final = 64
TILE: Final = Tile(64, 64, stages=1, num_warps=4)
#: Sectors of a row of Q, K, V or O: 128 bytes, and every row starts on a sector.
ROW_SECTORS: Final = 4
#: The same row read or written element by element, each time the whole sector.
ELEMENT_SECTORS: Final = HEAD_DIM
#: In chunks of 16 bytes, likewise.
CHUNK_SECTORS: Final = 8


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of the ladder: its kernel, and what that asks of global memory.

    Parameters
    ----------
    name : str
        Of the source in ``kernels/ladder``, without its suffix: ``01_naive``.
    idea : str
        What it adds to the rung before.
    figure : str, optional
        The counted figure that shows what it bought.
    gain : str
        What it is good for, where no figure shows that.
    threads : int
        Of a CTA, which has 64 queries.
    shared_by : int
        Queries that share one read of K and V: those of a warp, or of the CTA.
    k_passes : int
        How often they read K.
    q_sectors, kv_sectors, o_sectors : int
        Sectors that the instructions ask for per row of Q, of K and of V, and of O.
    lse_rows : int
        Consecutive rows whose LSE one instruction writes.
    """

    name: str
    idea: str
    figure: Figure | None = None
    gain: str = ""
    threads: int = TILE.num_warps * WARP_SIZE
    shared_by: int = TILE.block_m
    k_passes: int = 1
    q_sectors: int = ROW_SECTORS
    kv_sectors: int = ROW_SECTORS
    o_sectors: int = ROW_SECTORS
    lse_rows: int = 8

    @property
    def source(self) -> str:
        """Path below ``kernels/``."""
        return f"ladder/{self.name}.cu"

    def program(self, case: Case) -> Program:
        """Buffers and the launch of ``case``, which :func:`ladder_case` made."""
        shape = case.shape
        buffers = (*qkvo(case), row_vector("LSE", case, "output"))
        launch = Launch(
            kernel=KernelSpec(self.source, KERNEL, ((ELEMENT_DEFINES["fp16"], "1"),)),
            grid=(shape.slices * math.ceil(shape.seq_q / TILE.block_m), 1, 1),
            block=(self.threads, 1, 1),
            smem_bytes=0,
            args=(
                *(buffer.name for buffer in buffers),
                Scalar("i32", shape.seq_q),
                Scalar("i32", shape.seq_kv),
                Scalar("f32", 1 / math.sqrt(HEAD_DIM)),
            ),
        )
        return Program(buffers, (launch,))

    def traffic(self, case: Case) -> tuple[TensorBytes, ...]:
        """Exact global traffic of ``case`` in bytes.

        Rows have 128 bytes and start on a sector, whatever the lengths, so that an instruction's sectors add up over
        rows, and nothing beyond a tensor's end is asked for. Per slice of seq_q queries and seq_kv keys:

        * Q: each row once. Where a thread has a row of its own, each of its instructions asks for another sector in
          every lane: 64 per row element by element, 8 in chunks of 16 bytes. Copied by neighbouring lanes, 4.
        * K, V: all seq_kv rows for every ``shared_by`` queries, T = ceil(seq_q / shared_by) times, and K in each pass.
          A thread that walks along a row does so with all others of its warp: one sector per instruction, 64 or 8.
        * O: each row once. mma accumulators are stored 8 rows by 16 bytes at a time, half of a sector: 8 per row.
        * LSE: a float per row, ``lse_rows`` rows per instruction, in vectors that start anywhere in a sector.
        """
        shape = case.shape
        queries, keys = shape.slices * shape.seq_q, shape.slices * shape.seq_kv
        reads = keys * math.ceil(shape.seq_q / self.shared_by) * self.kv_sectors
        lse = row_vector("LSE", case, "output")
        sectors: dict[tuple[str, Op], int] = {
            ("Q", "read"): queries * self.q_sectors,
            ("K", "read"): reads * self.k_passes,
            ("V", "read"): reads,
            ("O", "write"): queries * self.o_sectors,
            ("LSE", "write"): row_vector_sectors(lse, self.lse_rows),
        }
        return tuple(TensorBytes(KERNEL, *key, n * SECTOR_BYTES) for key, n in sectors.items())


def ladder_case(seq_q: int, seq_kv: int, batch: int = 1, heads: int = 1) -> Case:
    """The case of these lengths that every rung can run.

    Raises
    ------
    UsageError
        If a length is not positive.
    """
    if min(seq_q, seq_kv) < 1:
        raise UsageError(f"Lengths are at least 1, not {min(seq_q, seq_kv)}.")
    return Case("flash2", AttentionShape(batch, heads, heads, seq_q, seq_kv, HEAD_DIM), "fp16", tile=TILE)


RUNGS: Final[tuple[Rung, ...]] = (
    Rung(
        "01_naive",
        "a thread per query; maximum, sum and average in three passes",
        gain="the yardstick",
        threads=TILE.block_m,
        shared_by=WARP_SIZE,
        k_passes=3,
        q_sectors=ELEMENT_SECTORS,
        kv_sectors=ELEMENT_SECTORS,
        o_sectors=ELEMENT_SECTORS,
        lse_rows=WARP_SIZE,
    ),
    Rung(
        "02_online",
        "online softmax: one pass, and sums that shrink where the maximum rises",
        figure="read",
        threads=TILE.block_m,
        shared_by=WARP_SIZE,
        q_sectors=ELEMENT_SECTORS,
        kv_sectors=ELEMENT_SECTORS,
        o_sectors=ELEMENT_SECTORS,
        lse_rows=WARP_SIZE,
    ),
    Rung(
        "03_vectors",
        "16 bytes per load and store, half a sector; an element asks for a whole one",
        figure="read",
        threads=TILE.block_m,
        shared_by=WARP_SIZE,
        q_sectors=CHUNK_SECTORS,
        kv_sectors=CHUNK_SECTORS,
        o_sectors=CHUNK_SECTORS,
        lse_rows=WARP_SIZE,
    ),
    Rung(
        "04_tiles",
        "tiles of K and V in shared memory: whole sectors, once for all 64 queries of a CTA",
        figure="read",
        threads=TILE.block_m,
        q_sectors=CHUNK_SECTORS,
        o_sectors=CHUNK_SECTORS,
        lse_rows=WARP_SIZE,
    ),
    Rung(
        "05_mma",
        "tensor cores: both products as mma, fragments gathered with plain loads",
        figure="instructions",
        o_sectors=CHUNK_SECTORS,
    ),
    Rung(
        "06_ldmatrix",
        "ldmatrix: four 8x8 matrices of fragments per load, V transposed on the way",
        figure="shared requests",
        o_sectors=CHUNK_SECTORS,
    ),
    Rung(
        "07_async_copy",
        "cp.async: from global to shared memory, no registers in between",
        figure="load-store",
        o_sectors=CHUNK_SECTORS,
    ),
    Rung(
        "08_swizzle",
        "rows permuted by XOR, so that the eight rows of a matrix lie in different banks",
        figure="conflicts",
        o_sectors=CHUNK_SECTORS,
    ),
    Rung(
        "09_addresses",
        "addresses as a lane's part, computed once, and constants",
        figure="integer",
        o_sectors=CHUNK_SECTORS,
    ),
    Rung(
        "10_exp2",
        "ex2 in the place of exp, the scale folded into its argument",
        figure="fp32",
        o_sectors=CHUNK_SECTORS,
    ),
    Rung(
        "11_q_registers",
        "fragments of Q loaded once, before the loop",
        figure="wavefronts",
        o_sectors=CHUNK_SECTORS,
    ),
    Rung(
        "12_staged_o",
        "O by way of shared memory, to be written in whole rows",
        figure="written",
    ),
    Rung(
        "13_overlap",
        "V copied during Q·Kᵀ, the next K during softmax and P·V",
        gain="time, not counts: 32 mma from copy to wait",
    ),
)
