"""FlashAttention on a GB10, by Nsight Compute: sectors at L2, and the length at which K and V no longer stay there.

Zhu, Pan and Ding (arXiv 2601.16032) give a formula for the sectors, D = 64 in fp16, one head, S rows, tiles of T query
rows: 8·S·(1 + S/T), and with a causal mask 8·S·(S/2T + 1/2). Q and O are 4·S sectors each; each of the S/T tiles reads
K and V, 8·S sectors. In the causal one a tile reads the keys before its own block, on average (S/T - 1)/2 of the S/T
blocks. LSE is not in it, and neither is the block on the diagonal. Their counters see more misses than compulsory ones
from K and V of about 20 MiB on, of 24 MiB of L2; the hit rate then approaches 1 - 1/48: each of 48 CTAs that run in
step asks for a line, and one of them misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fa_bench.algorithms.base import SECTOR_BYTES
from fa_bench.cases import AttentionShape, Tile
from fa_bench.model import gpus
from fa_bench.units import format_bytes
from fa_bench.validation.result import Column, Comparison, Validation, Value, deviation, known_deviations, score
from fa_bench.validation.run import Runner, flash2_case

NAME: Final = "gb10"
GPU: Final = "gb10"
HEAD_DIM: Final = 64

#: Tiles of 64 and 80 query rows, as in the paper, and lengths that they divide, the shortest first. Sectors don't
#: depend on the keys per tile; 80 rows and more than 16 keys need more registers than a thread has.
LENGTHS: Final[Mapping[Tile, tuple[int, ...]]] = {
    Tile(64, 64): (1024, 4096, 8192),
    Tile(80, 16): (1600, 4000, 8000),
}

#: One CTA per SM, by its shared memory; two waves of CTAs on the GPU's 48 SMs: the second finds what the first left.
RESIDENT_TILE: Final = Tile(16, 256)
WAVES: Final = 2
RESIDENT_LENGTHS: Final = tuple(1024 * k for k in (80, 88, 92, 96, 104, 128))
#: Reads of K and V beyond the compulsory ones count as begun from this share of them on.
BEGUN: Final = 0.01
PUBLISHED_ONSET_BYTES: Final = 20 * 1024**2


def validate(runner: Runner, quick: bool) -> Validation:
    """Count sectors at L2 and, unless ``quick``, find the length from which K and V miss."""
    rows = tuple(_sector_rows(runner, 1 if quick else None))
    comparisons = [_sectors(rows)]
    if not quick:
        comparisons.append(_residence(tuple(_residence_rows(runner))))
    return Validation(
        NAME,
        "Nsight Compute on a GB10 (Zhu, Pan, Ding, arXiv 2601.16032): FlashAttention, fp16, D = 64, one head",
        tuple(comparisons),
        failures=tuple(
            f"{NAME}, S = {row['seq']}, T = {row['tile_rows']}: {row['sectors_unexplained']} sectors at L2 are not "
            "accounted for."
            for row in rows
            if row["sectors_unexplained"]
        ),
        scores=(score("sectors at L2", GPU, known_deviations(rows, "deviation")),),
    )


def published_sectors(seq: int, tile_rows: int, causal: bool) -> int:
    """The paper's formula for the sectors that L2 sees, reads and writes; D = 64, fp16, one head.

    Parameters
    ----------
    seq : int
        S, a multiple of ``tile_rows``.
    tile_rows : int
        T.
    causal : bool

    Examples
    --------
    >>> published_sectors(1024, 64, False), published_sectors(1024, 64, True)
    (139264, 69632)
    """
    if seq % tile_rows:
        raise ValueError(f"{seq} is not a multiple of {tile_rows}")
    tiles = seq // tile_rows
    return 4 * seq * (tiles + 1) if causal else 8 * seq * (tiles + 1)


def _sector_rows(runner: Runner, lengths: int | None) -> Iterable[dict[str, Value]]:
    """The first ``lengths`` of each tile; all if None."""
    gpu = gpus.get(GPU)
    for tile, seqs in LENGTHS.items():
        for seq in seqs[:lengths]:
            for causal in (False, True):
                ours = runner.run(flash2_case(AttentionShape(1, 1, 1, seq, seq, HEAD_DIM, causal), tile), gpu)
                counted = (ours.l2_read_bytes + ours.l2_write_bytes) // SECTOR_BYTES
                formula = published_sectors(seq, tile.block_m, causal)
                lse = seq * 4 // SECTOR_BYTES
                # Each tile reads K and V of its own rows: S/T tiles of 2·T rows, 4 sectors each.
                diagonal = 8 * seq if causal else 0
                yield {
                    "tile_rows": tile.block_m,
                    "seq": seq,
                    "causal": causal,
                    "sectors_published": formula,
                    "sectors_emulated": counted,
                    "deviation": deviation(counted, formula),
                    "sectors_lse": lse,
                    "sectors_diagonal": diagonal,
                    "sectors_unexplained": counted - formula - lse - diagonal,
                }


def _sectors(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        Column("tile_rows", "T", "count"),
        Column("seq", "S", "size"),
        Column("causal", "causal"),
        Column("sectors_published", "formula", "count"),
        Column("sectors_emulated", "emulated", "count"),
        Column("deviation", "error", "deviation"),
        Column("sectors_lse", "LSE", "count"),
        Column("sectors_diagonal", "diagonal", "count"),
        Column("sectors_unexplained", "rest", "count"),
    )
    note = (
        "formula: 8·S·(1 + S/T), causal 8·S·(S/2T + 1/2). It leaves out LSE and, with a causal mask, the K/V block on "
        "the diagonal of each tile; rest: what the two don't explain."
    )
    return Comparison("sectors", "32-byte sectors at L2, read and written", columns, rows, note)


def _residence_rows(runner: Runner) -> Iterable[dict[str, Value]]:
    gpu = gpus.get(GPU)
    queries = WAVES * gpu.sm_count * RESIDENT_TILE.block_m
    row_bytes = HEAD_DIM * 2
    for seq in RESIDENT_LENGTHS:
        ours = runner.run(flash2_case(AttentionShape(1, 1, 1, queries, seq, HEAD_DIM), RESIDENT_TILE), gpu)
        kv_bytes = 2 * seq * row_bytes
        again = ours.dram_read_bytes - kv_bytes - queries * row_bytes
        yield {
            "seq": seq,
            "kv_bytes": kv_bytes,
            "kv_share_of_l2": kv_bytes / gpu.l2_bytes,
            "dram_read_bytes_emulated": ours.dram_read_bytes,
            "reread_bytes_emulated": again,
            "reread_share": again / ((WAVES - 1) * kv_bytes),
            "l2_hit_share": 1 - ours.dram_read_bytes / ours.l2_read_bytes,
        }


def _residence(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        Column("seq", "S", "size"),
        Column("kv_bytes", "K and V", "bytes"),
        Column("kv_share_of_l2", "of L2", "percent"),
        Column("dram_read_bytes_emulated", "DRAM read", "megabytes"),
        Column("reread_bytes_emulated", "again", "megabytes"),
        Column("reread_share", "of K and V", "percent"),
        Column("l2_hit_share", "L2 hits", "percent"),
    )
    note = (
        f"{WAVES} waves of one CTA per SM read all of K and V. again, in 10^6 bytes as DRAM read: what the second wave "
        f"has to read from DRAM a second time. {_onset(rows)} Published: {format_bytes(PUBLISHED_ONSET_BYTES)} of "
        f"{format_bytes(gpus.get(GPU).l2_bytes)}, and L2 hits that approach 1 - 1/48 = 97.9 %."
    )
    return Comparison("residence", "K and V that no longer stay in L2, full mask", columns, rows, note)


def _onset(rows: Iterable[Mapping[str, Value]]) -> str:
    """Where rereads begin, as a sentence: between two lengths of the table."""
    last: Value = None
    for row in rows:
        share, kv_bytes = row["reread_share"], row["kv_bytes"]
        assert isinstance(share, float) and isinstance(kv_bytes, int)
        if share > BEGUN:
            below = "" if not isinstance(last, int) else f"between {format_bytes(last)} and "
            return f"It begins {below or 'at or below '}{format_bytes(kv_bytes)}."
        last = kv_bytes
    return "It doesn't begin at these lengths."
