"""Few queries: joined heads and split keys of FlashAttention-2, by hand."""

from __future__ import annotations

import pytest

from fa_bench.cases import AttentionShape, Case
from fa_bench.model import gpus
from fa_bench.prediction import predict_time
from fa_bench.prediction.kernels import MemoryPass, TiledKernel
from fa_bench.prediction.libraries import cudnn, flash_attn_2
from fa_bench.prediction.splits import joined, split_count

A100 = gpus.get("a100-sxm-80")


def of(*sizes: int, impl: str = "flash-attn-2", **mask: bool) -> Case:
    return Case(impl, AttentionShape(*sizes, **mask))


@pytest.mark.parametrize(
    ("case", "rows", "heads"),
    [
        (of(2, 8, 2, 1, 512, 64), 4, 2),
        (of(2, 8, 2, 1, 512, 64, causal=True), 4, 2),
        (of(2, 8, 8, 1, 512, 64), 1, 8),
        (of(2, 8, 2, 2, 512, 64), 2, 8),
    ],
)
def test_a_single_query_of_grouped_heads_becomes_rows(case: Case, rows: int, heads: int) -> None:
    run = joined(case).shape
    assert (run.seq_q, run.heads_q, run.heads_kv) == (rows, heads, 2 if case.shape.group > 1 else 8)
    assert run.total_visible_pairs == case.shape.total_visible_pairs


def test_a_window_is_run_as_it_is() -> None:
    case = Case("flash-attn-2", AttentionShape(2, 8, 2, 1, 512, 64, window_left=128))
    assert joined(case) == case


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        # 216 places. 2 CTAs, 1024 blocks of 128 keys: 86 parts are of 12 blocks (85 of 13) and fill 172 places, 80 %;
        # 94 parts of 11 fill 188, 87 %; 103 of 10 fill 206, 95 %; 114 of 9 fill 228 of 432. 85 % of 95 % is 81 %.
        (of(1, 16, 2, 1, 128 * 1024, 128), 94),
        # 64 blocks of 128 keys, 64 CTAs: three parts fill 192 of 216, see the docstring.
        (of(8, 32, 8, 1, 8192, 128), 3),
        # 176 CTAs are more than 80 % of 216. 172 are less: up to four parts fill 80 % of their waves, five 860 of 864.
        (of(11, 16, 16, 1, 8192, 128), 1),
        (of(43, 4, 4, 1, 8192, 128), 5),
        # One block of 256 keys can't be split.
        (of(1, 4, 4, 1, 256, 64), 1),
        # Prefill of one sequence with 8 heads: 128 CTAs of 64 rows, 8 blocks of keys. One part fills 59 %, three 89 %,
        # eight 95 %, 85 % of which three exceed; with five to seven some parts would have no block.
        (of(1, 8, 8, 1024, 1024, 128), 3),
    ],
)
def test_the_number_of_parts(case: Case, parts: int) -> None:
    assert split_count(joined(case), A100) == parts


def test_the_parts_are_written_read_and_combined() -> None:
    case = of(8, 32, 8, 1, 8192, 128)
    main, combine = flash_attn_2(case, A100)
    assert isinstance(main, TiledKernel) and isinstance(combine, MemoryPass)
    # 64 blocks of 128 keys in three parts of 22, for each of 8 sequences and 8 K/V heads.
    assert (main.grid.lengths, main.grid.slices) == ((22, 22, 22), 64)
    partial, output = 4 * 3 * 8 * 32 * (128 + 1), 2 * 8 * 32 * 128
    keys = 2 * 8 * 8 * 8192 * 128
    assert main.dram_bytes == output + 2 * keys + partial  # Q is as large as O
    assert combine.dram_bytes == partial + output


def test_decoding_takes_what_reading_k_and_v_takes() -> None:
    case = of(8, 32, 8, 1, 65536, 128)
    time = predict_time(case, A100)
    floor_ms = 2 * 2 * 8 * 8 * 65536 * 128 / (A100.mem_bandwidth_gbs * 1e6)
    assert time.limiter == "dram"
    assert floor_ms < time.ms < 1.7 * floor_ms


def test_a_full_grid_and_other_kernels_are_not_split() -> None:
    (full,) = flash_attn_2(of(8, 32, 32, 2048, 2048, 64), A100)
    assert full.name == "forward"
    (unsplit,) = cudnn(of(1, 4, 4, 128, 8192, 64, impl="torch-cudnn"), A100)
    assert isinstance(unsplit, TiledKernel) and unsplit.grid.ctas == 4
