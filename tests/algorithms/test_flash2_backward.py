"""FlashAttention-2's backward pass: traffic, work, launches and tiles by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import Scalar
from fa_bench.algorithms.flash2 import Flash2, Flash2Atomic
from fa_bench.cases import AttentionShape, Case, Direction, DType, Features, Layout, Tile
from fa_bench.errors import UsageError
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
FLASH2, ATOMIC = Flash2(), Flash2Atomic()
PREPROCESS, DKDV, DQ = "flash2_bwd_preprocess", "flash2_bwd_dkdv", "flash2_bwd_dq"
ONE, CONVERT = "flash2_bwd_atomic", "flash2_bwd_convert"
KIB = 1024


def case_of(
    shape: AttentionShape,
    tile: Tile,
    dtype: DType = "fp16",
    *,
    algorithm: Flash2 = FLASH2,
    layout: Layout = "bhsd",
    direction: Direction = "bwd",
) -> Case:
    bare = Case(algorithm.name, shape, dtype, layout=layout, direction=direction)
    return replace(bare, tile=algorithm.resolve(bare, tile))


def model(case: Case, algorithm: Flash2 = FLASH2) -> dict[tuple[str, str, str], int]:
    return {(t.kernel, t.tensor, t.op): t.bytes for t in algorithm.traffic(case)}


# --- traffic ---------------------------------------------------------------------------------------------------------


def test_traffic_of_the_textbook_case_by_hand() -> None:
    # N = 1024, D = 64, fp16, 64x64: 16 tiles on either side. Q, K, V, O and their gradients are 128 KiB each. The
    # kernel that owns K/V tiles reads all of Q and dO for each, the one that owns Q tiles all of K and V. LSE and delta
    # are 1024 floats, read once per K/V tile and once.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64), Tile(64, 64))
    tensor, streamed, vector = 128 * KIB, 16 * 128 * KIB, 4 * KIB
    assert model(case) == {
        (PREPROCESS, "O", "read"): tensor,
        (PREPROCESS, "dO", "read"): tensor,
        (PREPROCESS, "delta", "write"): vector,
        (DKDV, "Q", "read"): streamed,
        (DKDV, "K", "read"): tensor,
        (DKDV, "V", "read"): tensor,
        (DKDV, "dO", "read"): streamed,
        (DKDV, "LSE", "read"): 16 * vector,
        (DKDV, "delta", "read"): 16 * vector,
        (DKDV, "dK", "write"): tensor,
        (DKDV, "dV", "write"): tensor,
        (DQ, "Q", "read"): tensor,
        (DQ, "K", "read"): streamed,
        (DQ, "V", "read"): streamed,
        (DQ, "dO", "read"): tensor,
        (DQ, "LSE", "read"): vector,
        (DQ, "delta", "read"): vector,
        (DQ, "dQ", "write"): tensor,
    }


def test_atomics_move_dq_once_per_kv_tile_in_fp32() -> None:
    # dQ_acc is 1024 · 64 floats, 256 KiB: zeroed, added to by each of 16 K/V tiles, read to be rounded.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64), Tile(64, 64), algorithm=ATOMIC)
    moved = model(case, ATOMIC)
    assert moved[PREPROCESS, "dQ_acc", "write"] == 256 * KIB
    assert moved[ONE, "dQ_acc", "read"] == moved[ONE, "dQ_acc", "write"] == 16 * 256 * KIB
    assert moved[CONVERT, "dQ_acc", "read"] == 256 * KIB
    assert moved[CONVERT, "dQ", "write"] == 128 * KIB
    # Causal: tile t skips the first 64 t rows; 64 · (16 + 15 + ... + 1) rows are added to.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64, causal=True), Tile(64, 64), algorithm=ATOMIC)
    assert model(case, ATOMIC)[ONE, "dQ_acc", "write"] == 64 * 136 * 256


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "tile", "rows"),
    [
        (1024, 1024, Tile(64, 64), 64 * 136),
        # Query i sees keys j <= i - 128: the one K/V tile is seen from row 128 on, by the last Q tile.
        (192, 64, Tile(64, 64), 64),
        # Keys j <= i + 128: keys 0-127 are seen by all rows, the tile of keys 128-191 too.
        (64, 192, Tile(64, 64), 3 * 64),
        # Keys j <= i - 90: key 0 is seen from row 90 on, rounded down to 80: rows 80-99.
        (100, 10, Tile(16, 16), 20),
        # Keys from 32 on are seen from row 32 - 5 = 27 on, rounded down to 16; those from 48 on from row 43, so 32.
        (60, 65, Tile(16, 16), 60 + 60 + (60 - 16) + (60 - 32) + (60 - 48)),
    ],
)
def test_queries_in_front_of_a_tile_are_not_read(seq_q: int, seq_kv: int, tile: Tile, rows: int) -> None:
    case = case_of(AttentionShape(1, 1, 1, seq_q, seq_kv, 64, causal=True), tile)
    assert model(case)[DKDV, "Q", "read"] == model(case)[DKDV, "dO", "read"] == rows * 128


def test_a_kv_tile_reads_the_queries_of_all_heads_that_share_it() -> None:
    case = case_of(AttentionShape(2, 6, 2, 64, 64, 64), Tile(64, 64))
    assert model(case)[DKDV, "K", "read"] == model(case)[DKDV, "dV", "write"] == 2 * 2 * 64 * 128
    assert model(case)[DKDV, "Q", "read"] == 2 * 6 * 64 * 128
    assert model(case)[DQ, "K", "read"] == 2 * 6 * 64 * 128


def test_rows_and_vectors_that_straddle_sectors_by_hand() -> None:
    # D = 40 in fp16, two heads of 6 rows: 15 sectors per slice (see test_flash2). LSE and delta: 24 bytes from 0 on
    # are 1 sector, 24 from 24 on are 2.
    moved = model(case_of(AttentionShape(1, 2, 2, 6, 6, 40), Tile(16, 16)))
    assert {nbytes for (_, name, _), nbytes in moved.items() if name not in ("LSE", "delta")} == {30 * 32}
    assert {nbytes for (_, name, _), nbytes in moved.items() if name in ("LSE", "delta")} == {3 * 32}
    # dQ, four elements per lane: 16 lanes to a row of the tile, two rows per instruction. Rows of 80 bytes, two from 0,
    # 160 and 320 on: 5 sectors each, and again from 480. In bshd a row is 3 sectors by itself, head 1's from 16 on too.
    atomic = model(case_of(AttentionShape(1, 2, 2, 6, 6, 40), Tile(32, 16), algorithm=ATOMIC), ATOMIC)
    assert atomic[CONVERT, "dQ", "write"] == 30 * 32
    apart = case_of(AttentionShape(1, 2, 2, 6, 6, 40), Tile(32, 16), algorithm=ATOMIC, layout="bshd")
    assert model(apart, ATOMIC)[CONVERT, "dQ", "write"] == 12 * 3 * 32
    assert atomic[ONE, "dQ_acc", "write"] == atomic[CONVERT, "dQ_acc", "read"] == 12 * 160


def test_vectors_that_tiles_skip_the_front_of() -> None:
    # One head, 40 rows, causal, 16x16: K/V tiles skip 0, 16 and 32 rows of LSE. 40 floats are 5 sectors from 0 on, 24
    # are 3, 8 are 1.
    moved = model(case_of(AttentionShape(1, 1, 1, 40, 40, 64, causal=True), Tile(16, 16)))
    assert moved[DKDV, "LSE", "read"] == moved[DKDV, "delta", "read"] == (5 + 3 + 1) * 32
    # Of two heads the second starts 20 floats in, in the middle of a sector: tiles of 16 of its 20 rows are 3 + 1
    # sectors (80-143, 144-159), and the tile of keys 16-19 takes only the latter. The first: 2 + 1, and 1.
    moved = model(case_of(AttentionShape(1, 2, 2, 20, 20, 64, causal=True), Tile(16, 16)))
    assert moved[DKDV, "LSE", "read"] == (3 + 1 + 1 + 2 + 1 + 1) * 32


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "window", "queries", "keys"),
    [
        # 256 x 256, 64 keys to the left and none to the right: K/V tile t is seen by queries 64 t to 64 t + 127, two Q
        # tiles, the last by one; Q tile t sees K/V tiles t - 1 and t.
        (256, 256, (64, 0), 7 * 64, 7 * 64),
        # One more to the left: key 64 t + 63 is seen by query 64 t + 128 too.
        (256, 256, (65, 0), (3 + 3 + 2 + 1) * 64, (1 + 2 + 3 + 3) * 64),
        # Without a limit to the right: the mirror image.
        (256, 256, (0, None), (1 + 2 + 3 + 4) * 64, (4 + 3 + 2 + 1) * 64),
        # Query i sees keys i + 120 to i + 140: of 200 keys the first 120 are seen by none; tile 64-127 by queries
        # 0-7, tile 128-191 by 0-63 and more, the last of 8 keys, 192-199, by queries 52-79. Q tile 0-63 sees keys
        # 120-199, three tiles, 64-79 keys 184-199.
        (80, 200, (0, 20), 64 + 80 + 80, 136 + 72),
        # Query i sees keys i - 130 to i - 110. Tile 0-63 is seen by queries 110-193, from 64 on and to the end in whole
        # tiles; the 6 keys of the other by 174-199. Queries 0-63 see nothing, 64-127 keys up to 17, all others keys of
        # both tiles: query 192 begins with 62.
        (200, 70, (0, 20), (200 - 64) + (200 - 128), 64 + 70 + 70),
    ],
)
def test_a_window_skips_whole_tiles_on_both_sides(
    seq_q: int, seq_kv: int, window: tuple[int, int | None], queries: int, keys: int
) -> None:
    left, right = window
    shape = AttentionShape(1, 1, 1, seq_q, seq_kv, 64, window_left=left, window_right=right)
    case = case_of(shape, Tile(64, 64))
    moved = model(case)
    assert moved[DKDV, "Q", "read"] == moved[DKDV, "dO", "read"] == queries * 128
    assert moved[DQ, "K", "read"] == moved[DQ, "V", "read"] == keys * 128
    # K, V, dK and dV of all keys, seen or not.
    assert moved[DKDV, "K", "read"] == moved[DKDV, "dV", "write"] == seq_kv * 128
    atomic = case_of(shape, Tile(64, 64), algorithm=ATOMIC)
    assert model(atomic, ATOMIC)[ONE, "dQ_acc", "write"] == queries * 256


def test_work_of_a_window_counts_the_tiles_that_are_visited() -> None:
    # As above: 7 of 16 tiles, by either kernel; dropout multiplies nothing more.
    shape = AttentionShape(1, 2, 1, 256, 256, 64, window_left=64, window_right=0)
    product = 2 * 7 * 2 * 64 * 64 * 64
    case = case_of(shape, Tile(64, 64))
    dropped = replace(case, features=Features(dropout_p=0.1))
    assert FLASH2.work(case).flops_executed == FLASH2.work(dropped).flops_executed == 7 * product
    assert model(case) == model(dropped)


def test_kernels_are_told_of_windows_and_dropout() -> None:
    shape = AttentionShape(1, 2, 1, 100, 200, 64, window_left=30, window_right=None)
    case = replace(case_of(shape, Tile(64, 64)), features=Features(dropout_p=0.25), seed=2**65 + 7)
    for launch in FLASH2.program(case).launches[1:]:
        defines = dict(launch.kernel.defines)
        assert [defines[name] for name in ("WINDOW_LEFT", "WINDOW_RIGHT", "DROPOUT")] == ["1", "0", "1"]
        # No limit to the right is one of all rows together; the seed's lowest 64 bits count; a quarter of 2^32.
        told = [arg.value for arg in launch.args if isinstance(arg, Scalar)][-5:]
        assert told == [30, 300, 7, 2**30, 1 / 0.75]
    assert [launch.kernel.entry for launch in FLASH2.program(case).setup] == ["flash2_fused"]


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
def test_what_the_backward_pass_does_not_know_is_said(algorithm: Flash2) -> None:
    window = AttentionShape(1, 1, 1, 64, 64, 64, window_left=16)
    known = Case(algorithm.name, window, direction="bwd", features=Features(dropout_p=0.1))
    assert algorithms.lacking(known, algorithm) is None
    odd = replace(known, shape=replace(window, head_dim_v=32), features=Features(5.0, True, True, True, 0.1))
    assert algorithms.lacking(replace(odd, direction="fwd+bwd"), algorithm) == (
        f"{algorithm.name} has no head_dim_v 32, softcap 5, bias, alibi, sinks in its fwd+bwd pass."
    )
    assert algorithms.lacking(replace(known, impl="standard"), algorithms.get("standard")) is None
    assert algorithms.lacking(replace(odd, impl="standard"), algorithms.get("standard")) == (
        "standard has no head_dim_v 32, softcap 5, bias, alibi, sinks in its bwd pass."
    )
    fp32 = case_of(window, Tile(64, 64), "fp32", algorithm=algorithm)
    assert algorithm.unsupported(fp32, A100) == (
        f"{algorithm.name} has windows, fused features, packed batches and a head_dim_v of its own for fp16 and bf16 "
        "only."
    )


def test_both_directions_move_what_each_does() -> None:
    shape, tile = AttentionShape(1, 2, 1, 100, 150, 40, causal=True), Tile(64, 64)
    forward = replace(Case("flash2", shape), tile=FLASH2.resolve(Case("flash2", shape), tile))
    both = case_of(shape, tile, direction="fwd+bwd")
    assert FLASH2.traffic(both) == (*FLASH2.traffic(forward), *FLASH2.traffic(case_of(shape, tile)))


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
@pytest.mark.parametrize("direction", ["bwd", "fwd+bwd"])
@pytest.mark.parametrize("left", [None, 100])
def test_explain_ends_with_the_bytes_of_the_model(algorithm: Flash2, direction: Direction, left: int | None) -> None:
    shape = AttentionShape(2, 6, 2, 1000, 1300, 40, causal=True, window_left=left)
    case = case_of(shape, Tile(64, 64), algorithm=algorithm, direction=direction, layout="bshd")
    text = algorithm.explain(case)
    explained = [int(line.rsplit("=", 1)[1].removesuffix("bytes")) for line in text.splitlines() if "sectors =" in line]
    assert explained == [t.bytes for t in algorithm.traffic(case)]


def test_the_longest_sequence_is_predicted_at_once() -> None:
    case = case_of(AttentionShape(1, 1, 1, 2**27, 2**27, 64, causal=True), Tile(64, 64))
    # 2^21 tiles: 64 · (2^21 + ... + 1) rows of 128 bytes.
    assert model(case)[DKDV, "Q", "read"] == 64 * (2**21 * (2**21 + 1) // 2) * 128


# --- work and launches -----------------------------------------------------------------------------------------------


def test_work_counts_four_and_three_products_or_five() -> None:
    # Causal 128 x 128 in 64x64 tiles: 3 of 4 visited, by either kernel. D = 40 in a tile of 64 columns: per tile a
    # product is 2 · 64 · 64 · 64 FLOPs. One exponential per score.
    shape = AttentionShape(1, 2, 1, 128, 128, 40, causal=True)
    product, scores = 2 * 3 * 2 * 64 * 64 * 64, 2 * 3 * 64 * 64
    work = FLASH2.work(case_of(shape, Tile(64, 64)))
    assert work.per_kernel == ((PREPROCESS, 0, 0, 0), (DKDV, 4 * product, 0, scores), (DQ, 3 * product, 0, scores))
    assert (work.flops_executed, work.exp_count) == (7 * product, 2 * scores)
    fma = FLASH2.work(case_of(shape, Tile(64, 64), "fp32"))
    assert fma.per_kernel[1:] == ((DKDV, 0, 4 * product, scores), (DQ, 0, 3 * product, scores))
    atomic = ATOMIC.work(case_of(shape, Tile(64, 64), algorithm=ATOMIC))
    assert atomic.per_kernel == ((PREPROCESS, 0, 0, 0), (ONE, 5 * product, 0, scores), (CONVERT, 0, 0, 0))


def test_warps_that_split_columns_make_s_and_dp_twice() -> None:
    # D = 256: S, dP twice, dV and dK once. With atomics from D = 192 on, and dQ.
    large = AttentionShape(1, 1, 1, 64, 64, 256)
    work = FLASH2.work(case_of(large, Tile(64, 64)))
    assert work.per_kernel[1] == (DKDV, 6 * 2 * 64 * 64 * 256, 0, 2 * 64 * 64)
    atomic = ATOMIC.work(case_of(replace(large, head_dim=192), Tile(64, 64), algorithm=ATOMIC))
    assert atomic.per_kernel[1] == (ONE, 7 * 2 * 64 * 64 * 192, 0, 2 * 64 * 64)
    (_, dkdv, dq) = FLASH2.program(case_of(large, Tile(64, 64))).launches
    assert (dkdv.block, dq.block) == ((256, 1, 1), (128, 1, 1))


def test_the_forward_pass_is_set_up_or_launched() -> None:
    shape = AttentionShape(2, 6, 2, 300, 200, 40)
    backward = FLASH2.program(case_of(shape, Tile(64, 64)))
    assert [launch.kernel.entry for launch in backward.setup] == ["flash2_fwd"]
    assert [launch.kernel.entry for launch in backward.launches] == [PREPROCESS, DKDV, DQ]
    both = FLASH2.program(case_of(shape, Tile(64, 64), direction="fwd+bwd"))
    assert [launch.kernel.entry for launch in both.launches] == ["flash2_fwd", PREPROCESS, DKDV, DQ]
    roles = {buffer.name: buffer.role for buffer in backward.buffers}
    assert [name for name, role in roles.items() if role == "input"] == ["Q", "K", "V", "dO"]
    assert [name for name, role in roles.items() if role == "output"] == ["dQ", "dK", "dV"]
    assert both.buffer("O").role == both.buffer("LSE").role == "output"
    # 300 rows: 3 blocks of 128 of 12 slices; 200 keys: 4 tiles of 4 K/V heads; 5 Q tiles of 12 slices.
    assert [launch.grid[0] for launch in backward.launches] == [3 * 12, 4 * 4, 5 * 12]
    # CTAs of a K/V head work for three slices: none can be run alone.
    assert {launch.ctas_per_slice for launch in backward.launches} == {0}
    alone = FLASH2.program(case_of(replace(shape, heads_kv=6), Tile(64, 64)))
    assert [launch.ctas_per_slice for launch in alone.launches] == [3, 4, 5]


def test_gradients_have_the_strides_of_their_tensors() -> None:
    case = case_of(AttentionShape(2, 6, 2, 100, 200, 40), Tile(64, 64), layout="bshd")
    (_, dkdv, dq) = FLASH2.program(case).launches
    queries, keys = (24000, 40, 240), (16000, 40, 80)
    scalars = [arg.value for arg in dkdv.args if isinstance(arg, Scalar)]
    assert scalars[:18] == [*queries, *keys, *keys, *queries, *keys, *keys]  # Q, K, V, dO, dK, dV
    assert scalars[18:24] == [6, 2, 100, 200, 40, 1 / math.sqrt(40)]
    assert [arg.value for arg in dq.args if isinstance(arg, Scalar)][12:15] == list(queries)


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_shared_memory_holds_what_streams_past_what() -> None:
    # D = 96 in fp16, 192 bytes per row. K, V and two stages of Q, dO: 2 · (64 + 2 · 32) rows, LSE and delta 2 · 2 · 32
    # floats. Q, dO and two stages of K, V: 2 · (32 + 2 · 64) rows. With atomics the first, and 64 · 32 elements of dS.
    shape = AttentionShape(1, 1, 1, 512, 512, 96)
    case = case_of(shape, Tile(32, 64, 2))
    assert [launch.smem_bytes for launch in FLASH2.program(case).launches] == [0, 256 * 192 + 512, 320 * 192]
    assert FLASH2.smem_bytes(case) == 320 * 192
    atomic = case_of(shape, Tile(32, 64, 2), algorithm=ATOMIC)
    assert ATOMIC.smem_bytes(atomic) == 256 * 192 + 512 + 64 * 32 * 2
    # fp32: rows of dS are 8 floats longer.
    fma = case_of(shape, Tile(16, 32, 1), "fp32", algorithm=ATOMIC)
    assert ATOMIC.smem_bytes(fma) == 2 * 48 * 384 + 128 + 32 * 24 * 4


def test_refusals_say_why() -> None:
    shape = AttentionShape(1, 1, 1, 512, 512, 256)
    # 512 bytes per row; 2 · (64 + 2 · 64) rows are 192 KiB, and LSE and delta 1 KiB.
    big = FLASH2.unsupported(case_of(shape, Tile(64, 64, 2)), A100)
    assert big is not None and "Tile 64x64 with 2 stages needs 193 KiB" in big and "the largest that fits is" in big
    narrow = ATOMIC.unsupported(case_of(shape, Tile(48, 64), algorithm=ATOMIC), A100)
    assert narrow == (
        "Tile 48x64: flash2-atomic stages dS with rows of whole 64 bytes, so block_m is a multiple of 32 in fp16."
    )
    assert (
        ATOMIC.unsupported(case_of(replace(shape, head_dim=64), Tile(48, 64), "fp32", algorithm=ATOMIC), A100) is None
    )
    old = FLASH2.unsupported(case_of(replace(shape, head_dim=64), Tile(64, 64)), gpus.get("t4"))
    assert old is not None and "compute capability 8.0" in old
    # 80 rows of K don't divide among warps of 16: one warp holds 2 · 80 · 128 / 32 accumulators of dK and dV, and
    # 2 · 80 · 16 / 32 of S and dP.
    wide = FLASH2.unsupported(case_of(replace(shape, head_dim=128), Tile(16, 80)), A100)
    assert wide is not None and "720 registers" in wide


def test_each_side_has_the_warps_that_its_rows_allow() -> None:
    def blocks(tile: Tile, dtype: DType = "fp16", head_dim: int = 64) -> list[int]:
        program = FLASH2.program(case_of(AttentionShape(1, 1, 1, 64, 64, head_dim), tile, dtype))
        return [launch.block[0] // 32 for launch in program.launches[1:]]

    assert blocks(Tile(64, 64)) == [4, 4]
    assert blocks(Tile(32, 64)) == [4, 2]  # 64 rows of K, 32 of Q
    assert blocks(Tile(128, 128, num_warps=8)) == [8, 8]
    assert blocks(Tile(16, 32), "fp32") == [4, 4]
    # Four warps of 32 rows each: dK and dV take 2 · 32 · 128 / 32 = 256.
    assert blocks(Tile(128, 128), head_dim=128) == [8, 8]
    with pytest.raises(UsageError, match="64x32 doesn't divide among 8 warps"):
        blocks(Tile(64, 32, num_warps=8))


def test_strips_leave_registers_for_the_gradients() -> None:
    def strips(tile: Tile, head_dim: int, algorithm: Flash2 = FLASH2) -> list[str]:
        case = case_of(AttentionShape(1, 1, 1, 64, 64, head_dim), tile, algorithm=algorithm)
        launches = algorithm.program(case).launches[1:]
        return [dict(launch.kernel.defines).get("STRIP", "") for launch in launches]

    # Per warp of 16 rows: dK and dV 2 · 16 · D / 32 registers, S and dP as many as the strip has columns; 160 at most
    # for a strip of 32, with atomics 128.
    assert strips(Tile(64, 64), 128) == ["32", "32"]  # 128 + 32
    assert strips(Tile(64, 64), 192) == ["16", "32"]
    assert strips(Tile(64, 64), 128, ATOMIC) == ["16", ""]
    assert strips(Tile(64, 64), 64, ATOMIC) == ["32", ""]
    assert strips(Tile(48, 80), 64) == ["16", "16"]


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("head_dim", [8, 40, 64, 96, 128, 192, 256])
def test_auto_tile_runs_on_every_gpu_from_ampere_on(algorithm: Flash2, dtype: DType, head_dim: int) -> None:
    for gpu in gpus.all_gpus():
        for seq_q in (1, 30, 1000):
            shape = AttentionShape(1, 1, 1, seq_q, 1000, head_dim)
            case = Case(algorithm.name, shape, dtype, direction="fwd+bwd")
            case = replace(case, tile=algorithm.auto_tile(case, gpu))
            if gpu.compute_capability >= (8, 0):
                assert algorithm.unsupported(case, gpu) is None
                assert algorithm.smem_bytes(case) <= gpu.smem_per_block_bytes


def test_auto_tile_by_hand() -> None:
    def auto(head_dim: int, gpu: str, seq_q: int = 4096, dtype: DType = "fp16", algorithm: Flash2 = FLASH2) -> Tile:
        case = Case(algorithm.name, AttentionShape(1, 1, 1, seq_q, 4096, head_dim), dtype, direction="bwd")
        return algorithm.auto_tile(case, gpus.get(gpu))

    # D = 64, two stages: 2 · (64 + 2 · 64) rows of 128 bytes and 1 KiB: 49 KiB, and 1 KiB of the driver's. Two fit 100.
    assert auto(64, "a100-sxm-80") == auto(64, "rtx-4090") == Tile(64, 64, 2, 4)
    # D = 128, one stage: 64.5 KiB fit an A100 twice, an RTX 4090 once; 32x64 takes 48.25.
    assert auto(128, "a100-sxm-80") == Tile(64, 64, 1, 4)
    assert auto(128, "rtx-4090") == Tile(32, 64, 1, 4)
    # D = 256: 128.5 KiB; none of half the area fits twice. An RTX 4090 takes 2 · (64 + 32) rows, 96 KiB.
    assert auto(256, "a100-sxm-80") == Tile(64, 64, 1, 4)
    assert auto(256, "rtx-4090") == Tile(32, 64, 1, 4)
    # A single query: 16x64. Atomics want 32 rows.
    assert auto(64, "a100-sxm-80", seq_q=1) == Tile(16, 64, 2, 4)
    assert auto(64, "a100-sxm-80", seq_q=1, algorithm=ATOMIC) == Tile(32, 64, 2, 4)
