"""FlashAttention-2: traffic, work and tiles by hand, and against FlashAttention-2's own hardware counters."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fa_bench.algorithms.base import Scalar
from fa_bench.algorithms.flash2 import Flash2
from fa_bench.cases import AttentionShape, Case, DType, Layout, Tile
from fa_bench.errors import UsageError
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
FLASH2 = Flash2()
KIB = 1024


def case_of(shape: AttentionShape, tile: Tile, dtype: DType = "fp16", layout: Layout = "bhsd") -> Case:
    bare = Case("flash2", shape, dtype, layout=layout)
    return replace(bare, tile=FLASH2.resolve(bare, tile))


def model(case: Case) -> dict[tuple[str, str], int]:
    return {(t.tensor, t.op): t.bytes for t in FLASH2.traffic(case)}


# --- traffic ---------------------------------------------------------------------------------------------------------


def test_traffic_of_the_textbook_case_by_hand() -> None:
    # N = 1024, D = 64, fp16, 64x64: 16 Q tiles. Q, K, V, O are 128 KiB each; each Q tile reads all of K and V.
    # LSE: 1024 floats.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64), Tile(64, 64))
    assert model(case) == {
        ("Q", "read"): 128 * KIB,
        ("K", "read"): 16 * 128 * KIB,
        ("V", "read"): 16 * 128 * KIB,
        ("O", "write"): 128 * KIB,
        ("LSE", "write"): 4 * KIB,
    }


def test_tiles_behind_the_diagonal_are_not_read() -> None:
    # Causal and square: Q tile t sees t + 1 tiles of 64 rows, 136 in all of 16; a row has 128 bytes.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64, causal=True), Tile(64, 64))
    assert model(case)["K", "read"] == model(case)["V", "read"] == 136 * 64 * 128
    # 192 queries, 64 keys: query i sees keys j <= i - 128. Tiles 0 and 1 (last rows 63 and 127) see none, tile 2 all.
    case = case_of(AttentionShape(1, 1, 1, 192, 64, 64, causal=True), Tile(64, 64))
    assert model(case)["K", "read"] == 64 * 128
    assert model(case)["Q", "read"] == 192 * 128
    # 100 queries, 10 keys, block_m = 16: rows from 90 on see keys. Tiles 5 (rows 80-95) and 6 (96-99).
    case = case_of(AttentionShape(1, 1, 1, 100, 10, 64, causal=True), Tile(16, 16))
    assert model(case)["K", "read"] == 2 * 10 * 128


def test_query_heads_that_share_a_kv_head_each_read_it() -> None:
    case = case_of(AttentionShape(2, 6, 2, 64, 64, 64), Tile(64, 64))
    assert model(case)["K", "read"] == 2 * 6 * 64 * 128


def test_rows_that_straddle_sectors_by_hand() -> None:
    # D = 40 in fp16: rows of 80 bytes, copied four at a time. Two heads of 6 rows.
    # bhsd: rows 0-3 are 320 bytes, 10 sectors; rows 4-5 are 160 bytes from 320 on, 5. The second slice starts at byte
    # 480 = 15 sectors: the same. LSE: 24 bytes from 0 on are 1 sector, 24 bytes from 24 on are 2.
    shape = AttentionShape(1, 2, 2, 6, 6, 40)
    assert model(case_of(shape, Tile(16, 16))) == {
        ("Q", "read"): 2 * 15 * 32,
        ("K", "read"): 2 * 15 * 32,
        ("V", "read"): 2 * 15 * 32,
        ("O", "write"): 2 * 15 * 32,
        ("LSE", "write"): 3 * 32,
    }
    # bshd: a head's rows are 160 bytes apart and share nothing. Head 0's, from 0 in a sector, are 80 bytes in 3
    # sectors; head 1's, from 16 on, too. 12 rows.
    bshd = model(case_of(shape, Tile(16, 16), layout="bshd"))
    assert bshd["Q", "read"] == bshd["O", "write"] == 12 * 3 * 32


@pytest.mark.parametrize(
    ("seq", "causal", "megabytes"),
    [(512, False, "37.749"), (1024, False, "142.606"), (512, True, "25.166"), (1024, True, "83.886")],
)
def test_flash_attention_2_on_a_gpu_reads_the_same(seq: int, causal: bool, megabytes: str) -> None:
    # Nsight Compute's global load bytes of FlashAttention-2's forward kernel, tile 128x64, on an A30: batch 1, 32
    # query heads on 8 K/V heads, D = 128, fp16. github.com/JakeFlasher/benchmark_flash_attention, ncu_metrics.csv.
    case = case_of(AttentionShape(1, 32, 8, seq, seq, 128, causal), Tile(128, 64))
    reads = sum(nbytes for (_, op), nbytes in model(case).items() if op == "read")
    assert f"{reads / 1e6:.3f}" == megabytes


def test_the_papers_formula_where_everything_is_aligned() -> None:
    # K and V: N²d/block_m elements each, for any tile: N²d²/M with M = block_m · d.
    n, d = 2048, 128
    for block_m in (16, 64, 128):
        moved = model(case_of(AttentionShape(1, 1, 1, n, n, d), Tile(block_m, 64)))
        assert moved["K", "read"] == n * n * d // block_m * 2


def test_explain_ends_with_the_bytes_of_the_model() -> None:
    case = case_of(AttentionShape(2, 6, 2, 1000, 1300, 40, causal=True), Tile(128, 64), layout="bshd")
    text = FLASH2.explain(case)
    explained = [int(line.rsplit("=", 1)[1].removesuffix("bytes")) for line in text.splitlines() if "sectors =" in line]
    assert explained == [t.bytes for t in FLASH2.traffic(case)]
    # Rows of 80 bytes, 6 · 80 and 2 · 80 bytes apart; 12 slices of Q, every second one from 16 in a sector.
    assert "80 bytes, 480 (Q, O) and 160 (K, V) bytes apart" in text
    assert "6 at 0, 6 at 16 (Q, O); 2 at 0, 2 at 16 (K, V)" in text


# --- work and launch -------------------------------------------------------------------------------------------------


def test_work_counts_whole_visited_tiles() -> None:
    # Causal 128 x 128 in 64x64 tiles: 3 of 4 visited. D = 40 in a tile of 64 columns: per tile two products of
    # 2 · 64 · 64 · 64 FLOPs. An exponential per score; for the factor one in each of the 4 lanes that share a row, at
    # the first tile (2 tiles of 64 rows); in fp32 one in each of 8 at each of the 3 tiles.
    shape = AttentionShape(1, 2, 1, 128, 128, 40, causal=True)
    flops = 2 * 3 * 4 * 64 * 64 * 64
    tensor = FLASH2.work(case_of(shape, Tile(64, 64)))
    assert tensor.per_kernel == (("flash2_fwd", flops, 0, 2 * 64 * (3 * 64 + 2 * 4)),)
    fma = FLASH2.work(case_of(shape, Tile(64, 64), "fp32"))
    assert fma.per_kernel == (("flash2_fwd", 0, flops, 2 * 3 * 64 * (64 + 8)),)
    assert (fma.flops_executed, fma.exp_count) == (flops, 2 * 3 * 64 * 72)


def test_all_ctas_on_one_axis_slice_by_slice() -> None:
    # 70,000 slices, more than a grid's y axis holds; 100 rows are 2 tiles.
    (launch,) = FLASH2.program(case_of(AttentionShape(700, 100, 100, 100, 200, 8), Tile(64, 64))).launches
    assert launch.grid == (140_000, 1, 1)
    assert launch.ctas_per_slice == 2
    assert launch.block == (128, 1, 1)


def test_strides_are_the_layout_and_the_scale_is_of_the_real_head_dim() -> None:
    case = case_of(AttentionShape(2, 6, 2, 100, 200, 40), Tile(64, 64), layout="bshd")
    (launch,) = FLASH2.program(case).launches
    scalars = [arg for arg in launch.args if isinstance(arg, Scalar)]
    # Q, K, V, O: batch, head, row.
    assert [s.value for s in scalars[:12]] == [
        *(24000, 40, 240),
        *(16000, 40, 80),
        *(16000, 40, 80),
        *(24000, 40, 240),
    ]
    assert scalars[-1] == Scalar("f32", 1 / math.sqrt(40))
    assert dict(launch.kernel.defines)["DIM"] == "64"


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_shared_memory_holds_q_and_the_stages_of_k_and_v() -> None:
    # D = 96 in fp16: 192 bytes per row; 128 + 2 · 2 · 64 rows. D = 40 takes a tile of 64 columns.
    case = case_of(AttentionShape(1, 1, 1, 512, 512, 96), Tile(128, 64, 2))
    assert FLASH2.smem_bytes(case) == 384 * 192
    case = case_of(AttentionShape(1, 1, 1, 512, 512, 40), Tile(128, 64, 1))
    assert FLASH2.smem_bytes(case) == 256 * 128


def test_refusals_say_why_and_what_would_fit() -> None:
    # fp32, D = 256: 1 KiB per row; 64 + 2 · 2 · 64 rows. Of 163 KiB: block_m + 4 · block_n <= 163 has 64x16 (128) as
    # its largest area, 1024, with the taller Q tile.
    big = case_of(AttentionShape(1, 1, 1, 512, 512, 256), Tile(64, 64, 2), "fp32")
    assert FLASH2.unsupported(big, A100) == (
        "Tile 64x64 with 2 stages needs 320 KiB of shared memory per block, NVIDIA A100-SXM4-80GB has 163 KiB; "
        "the largest that fits is 64x16 with 2 stages (128 KiB)."
    )
    small = case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(64, 64))
    old = FLASH2.unsupported(small, gpus.get("t4"))
    assert old is not None and "compute capability 8.0" in old
    # 240 rows don't divide among more than one warp of 16-row tiles: 240 · (64 + 64) / 32 accumulators per lane.
    wide = FLASH2.unsupported(case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(240, 64)), A100)
    assert wide is not None and "960 registers" in wide


def test_four_warps_unless_their_accumulators_do_not_fit() -> None:
    def warps(dtype: DType, head_dim: int, tile: Tile) -> int:
        return FLASH2.resolve(Case("flash2", AttentionShape(1, 1, 1, 64, 64, head_dim), dtype), tile).num_warps

    # Rows per warp · (block_n + D) / 32 accumulators: at most 176.
    assert warps("fp16", 96, Tile(128, 64)) == 4  # 32 · 160 / 32 = 160
    assert warps("fp16", 128, Tile(128, 64)) == 8  # 192 with four
    assert warps("fp16", 64, Tile(32, 64)) == 2  # a warp has at least 16 rows
    assert warps("fp32", 128, Tile(128, 64)) == 8  # 192, and 32 for the Q micro-tile
    assert warps("fp32", 64, Tile(16, 16)) == 4
    assert warps("fp16", 64, Tile(128, 64, num_warps=8)) == 8
    with pytest.raises(UsageError, match="64 rows don't divide among 8 warps"):
        warps("fp16", 64, Tile(64, 64, num_warps=8))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("head_dim", [8, 40, 64, 96, 128, 192, 256])
def test_auto_tile_runs_on_every_gpu_from_ampere_on(dtype: DType, head_dim: int) -> None:
    for gpu in gpus.all_gpus():
        for seq_q in (1, 30, 1000):
            case = Case("flash2", AttentionShape(1, 1, 1, seq_q, 1000, head_dim), dtype)
            case = replace(case, tile=FLASH2.auto_tile(case, gpu))
            assert FLASH2.smem_bytes(case) <= gpu.smem_per_block_bytes
            if gpu.compute_capability >= (8, 0):
                assert FLASH2.unsupported(case, gpu) is None


def test_auto_tile_by_hand() -> None:
    def auto(head_dim: int, gpu: str, seq_q: int = 4096, dtype: DType = "fp16") -> Tile:
        case = Case("flash2", AttentionShape(1, 1, 1, seq_q, 4096, head_dim), dtype)
        return FLASH2.auto_tile(case, gpus.get(gpu))

    # 128x64 with two stages at D = 64: 48 KiB, so two CTAs of four warps fit everywhere.
    assert auto(64, "a100-sxm-80") == auto(64, "rtx-4090") == Tile(128, 64, 2, 4)
    # D = 96, one stage: 256 rows of 192 bytes, 48 KiB.
    assert auto(96, "a100-sxm-80") == auto(96, "rtx-4090") == Tile(128, 64, 1, 4)
    # D = 128: four warps do not hold 128x64, but 128x32, which takes 48 KiB.
    assert auto(128, "a100-sxm-80") == auto(128, "rtx-4090") == Tile(128, 32, 1, 4)
    # D = 192: neither is held by four; eight hold 128x128, 16 · (128 + 192) / 32 = 160 registers, in 144 KiB.
    assert auto(192, "a100-sxm-80") == Tile(128, 128, 1, 8)
    assert auto(192, "rtx-4090") == Tile(128, 64, 1, 8)
    # D = 256: neither is held by four, and 128x64 has eight in 128 KiB.
    assert auto(256, "a100-sxm-80") == Tile(128, 64, 1, 8)
    # A single query does not fill more than 16 rows, one warp: 16x64 takes 34 KiB, four CTAs; 16x32 18 KiB, eight.
    assert auto(64, "a100-sxm-80", seq_q=1) == Tile(16, 32, 2, 1)
    # fp32, D = 256 (1 KiB per row): 64x32 is the first that fits 163 KiB (128); none of half its area keeps 8 warps.
    assert auto(256, "a100-sxm-80", dtype="fp32") == Tile(64, 32, 1, 4)
    # fp32, D = 96: 128x64 needs eight warps, which are enough for an SM; 96 KiB.
    assert auto(96, "a100-sxm-80", dtype="fp32") == auto(96, "rtx-4090", dtype="fp32") == Tile(128, 64, 1, 8)
