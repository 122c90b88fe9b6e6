"""FlashAttention-1: its model by hand, and its kernels executed: right, and moving what the model says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fa_bench import algorithms, reference
from fa_bench.algorithms.flash1 import Flash1
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.cases import AttentionShape, Case, DType, Layout, Tile
from fa_bench.errors import UsageError
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
FLASH1 = Flash1()
KIB = 1024

executed = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(shape: AttentionShape, tile: Tile, dtype: DType = "fp16", layout: Layout = "bhsd") -> Case:
    bare = Case("flash1", shape, dtype, layout=layout)
    return replace(bare, tile=FLASH1.resolve(bare, tile))


def model(case: Case) -> dict[tuple[str, str, str], int]:
    return {(t.kernel, t.tensor, t.op): t.bytes for t in FLASH1.traffic(case)}


def emulated(result: RunResult) -> dict[tuple[str, str, str], int]:
    assert result.counts is not None
    return {(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}


def run(case: Case, **backend: Any) -> RunResult:
    return EmulatorBackend(jobs=1, all_slices=True, **backend).run(case, A100)


# --- the model -------------------------------------------------------------------------------------------------------


def test_traffic_of_the_textbook_case_by_hand() -> None:
    # N = 1024, D = 64, fp16, 64x64: T = 16 K/V blocks. Q, K, V, O are 128 KiB each, O_acc (fp32) 256 KiB, l, m and LSE
    # 4 KiB. O_acc, l and m are read 16 times and written 15 times; the 16th visit writes O and LSE instead.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64), Tile(64, 64))
    assert model(case) == {
        ("flash1_init", "O_acc", "write"): 256 * KIB,
        ("flash1_init", "l", "write"): 4 * KIB,
        ("flash1_init", "m", "write"): 4 * KIB,
        ("flash1_fwd", "Q", "read"): 16 * 128 * KIB,
        ("flash1_fwd", "K", "read"): 128 * KIB,
        ("flash1_fwd", "V", "read"): 128 * KIB,
        ("flash1_fwd", "O_acc", "read"): 16 * 256 * KIB,
        ("flash1_fwd", "O_acc", "write"): 15 * 256 * KIB,
        ("flash1_fwd", "l", "read"): 16 * 4 * KIB,
        ("flash1_fwd", "l", "write"): 15 * 4 * KIB,
        ("flash1_fwd", "m", "read"): 16 * 4 * KIB,
        ("flash1_fwd", "m", "write"): 15 * 4 * KIB,
        ("flash1_fwd", "O", "write"): 128 * KIB,
        ("flash1_fwd", "LSE", "write"): 4 * KIB,
    }


def test_elements_are_the_papers_count_per_pass() -> None:
    # 2Nd for K and V, and per pass Nd (Q) + 2Nd (O) + 4N (l, m); the last pass writes O and N of LSE for 2N of l, m.
    n, d, passes = 1024, 64, 16
    case = case_of(AttentionShape(1, 1, 1, n, n, d), Tile(64, 64), "fp32")
    forward = sum(nbytes for (kernel, _, _), nbytes in model(case).items() if kernel == "flash1_fwd")
    assert forward // 4 == 2 * n * d + passes * (3 * n * d + 4 * n) - n


def test_one_block_writes_no_workspace_in_the_forward_kernel() -> None:
    case = case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(64, 64))
    writes = {tensor for kernel, tensor, op in model(case) if kernel == "flash1_fwd" and op == "write"}
    assert writes == {"O", "LSE"}


def test_a_causal_mask_saves_nothing_and_a_shared_head_is_read_by_each_query_head() -> None:
    shape = AttentionShape(1, 6, 2, 256, 256, 64)
    assert model(case_of(shape, Tile(64, 64))) == model(case_of(replace(shape, causal=True), Tile(64, 64)))
    assert model(case_of(shape, Tile(64, 64)))["flash1_fwd", "K", "read"] == 6 * 32 * KIB


def test_work_by_hand() -> None:
    # 64 x 96 in tiles of 64 x 64 is 64 x 128, D = 40 padded to 64: two products of 2 · 64 · 128 · 64 FLOPs. One
    # exponential per score, and per row and tile one in each of the 4 lanes that share the row: 2 · 64 · (64 + 4).
    work = FLASH1.work(case_of(AttentionShape(1, 1, 1, 64, 96, 40), Tile(64, 64)))
    flops, exps = 4 * 64 * 128 * 64, 2 * 64 * 68
    assert (work.flops_executed, work.exp_count) == (flops, exps)
    assert work.per_kernel == (("flash1_init", 0, 0, 0), ("flash1_fwd", flops, 0, exps))


def test_explain_ends_each_line_with_the_bytes_of_the_model() -> None:
    case = case_of(AttentionShape(2, 3, 1, 101, 200, 40), Tile(64, 64))
    lines = FLASH1.explain(case).splitlines()
    bytes_explained = [int(line.rsplit("=", 1)[1].removesuffix("bytes")) for line in lines if line.endswith("bytes")]
    assert bytes_explained == [t.bytes for t in FLASH1.traffic(case)]


def test_one_cta_per_slice_on_one_axis() -> None:
    shape = AttentionShape(700, 100, 100, 100, 200, 8)  # 70,000 slices: more than a grid's y axis holds
    init, forward = FLASH1.program(case_of(shape, Tile(64, 64))).launches
    assert forward.grid == (70_000, 1, 1) and forward.ctas_per_slice == 1
    assert init.grid == (70_000 * init.ctas_per_slice, 1, 1)


# --- tiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "head_dim", "tile"),
    [
        # M = 163 KiB of elements. fp16: Bc = ceil(83456 / 256) = 326, cut at 256; Br = min(326, 64).
        ("fp16", 64, "64x256"),
        # Bc = ceil(83456 / 512) = 163, in multiples of 16: 160; Br = 128.
        ("fp16", 128, "128x160"),
        # fp32: Bc = ceil(41728 / 256) = 163.
        ("fp32", 64, "64x160"),
        # Bc = ceil(41728 / 512) = 82; Br = min(82, 128): both 80.
        ("fp32", 128, "80x80"),
        # Br = 40 becomes 32.
        ("fp16", 40, "32x256"),
    ],
)
def test_auto_takes_the_papers_block_sizes(dtype: DType, head_dim: int, tile: str) -> None:
    case = Case("flash1", AttentionShape(1, 1, 1, 4096, 4096, head_dim), dtype)
    assert str(FLASH1.auto_tile(case, A100)) == tile


def test_auto_leaves_more_registers_where_the_compiler_needs_more() -> None:
    # Per thread 16 · (Bc + d) / 32 for a warp's 16 rows of S and O: up to 176, on sm_100 up to 168. An H100 and a B200
    # have the same shared memory, and so the same block sizes by the paper.
    for head_dim, h100, b200 in ((64, "64x256", "64x256"), (96, "64x256", "64x240"), (128, "128x224", "128x208")):
        case = Case("flash1", AttentionShape(1, 1, 1, 4096, 4096, head_dim))
        tiles = [str(FLASH1.auto_tile(case, gpus.get(slug))) for slug in ("h100-sxm", "b200-sxm")]
        assert tiles == [h100, b200]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("head_dim", [8, 40, 64, 96, 128, 192, 256])
def test_auto_tile_runs_on_every_gpu_from_ampere_on(dtype: DType, head_dim: int) -> None:
    for gpu in gpus.all_gpus():
        if gpu.compute_capability >= (8, 0):
            case = Case("flash1", AttentionShape(1, 1, 1, 1000, 1000, head_dim), dtype)
            assert FLASH1.unsupported(replace(case, tile=FLASH1.auto_tile(case, gpu)), gpu) is None


def test_refusals_say_why_and_what_would_fit() -> None:
    # fp32, D = 256: 1 KiB per row; 64 + 2 · 64 rows. Of 163 KiB: 64 + 2 · 48 = 160 rows.
    big = case_of(AttentionShape(1, 1, 1, 512, 512, 256), Tile(64, 64), "fp32")
    assert FLASH1.unsupported(big, A100) == (
        "Tile 64x64 needs 192 KiB of shared memory per block, NVIDIA A100-SXM4-80GB has 163 KiB; "
        "the largest that fits is 64x48 (160 KiB)."
    )
    small = case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(64, 64))
    old = FLASH1.unsupported(small, gpus.get("t4"))
    assert old is not None and "compute capability 8.0" in old
    wide = FLASH1.unsupported(case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(256, 256)), A100)
    assert wide is not None and "320 registers" in wide  # 32 rows · (256 + 64) columns / 32 lanes


def test_resolve_fills_in_warps_and_knows_one_stage() -> None:
    case = Case("flash1", AttentionShape(1, 1, 1, 64, 64, 64))
    assert FLASH1.resolve(case, Tile(64, 64, 2)) == Tile(64, 64, 1, 4)
    with pytest.raises(UsageError, match="64 rows don't divide among 8 warps"):
        FLASH1.resolve(case, Tile(64, 64, num_warps=8))


def test_the_registry_knows_the_room() -> None:
    assert algorithms.get("flash1").name == "flash1"


# --- the kernels, executed -------------------------------------------------------------------------------------------

shapes = st.tuples(
    st.integers(1, 2),  # batch
    st.sampled_from([(1, 1), (3, 1), (4, 2)]),  # heads_q, heads_kv
    st.integers(1, 110),  # seq_q
    st.integers(1, 130),  # seq_kv
)


@executed
@pytest.mark.parametrize(
    ("dtype", "tile", "causal", "head_dims"),
    [
        ("fp16", Tile(32, 48), True, [40, 64]),
        ("bf16", Tile(48, 64), False, [24, 32]),  # one warp of 48 rows: two instructions for its l and m
        ("fp32", Tile(64, 32), True, [40, 64]),
    ],
)
def test_any_shape_is_right_and_moves_what_the_model_says(
    dtype: DType, tile: Tile, causal: bool, head_dims: list[int]
) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(shapes, st.sampled_from(head_dims), st.sampled_from(["bhsd", "bshd"]))
    def check(shape: tuple[int, tuple[int, int], int, int], head_dim: int, layout: Layout) -> None:
        batch, (heads_q, heads_kv), seq_q, seq_kv = shape
        case = case_of(AttentionShape(batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, causal), tile, dtype, layout)
        result = run(case)
        assert result.verification is not None and result.verification.passed, result.verification
        assert emulated(result) == model(case)

    check()


@executed
def test_shared_memory_has_no_conflicts() -> None:
    result = run(case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(64, 64)))
    assert result.counts is not None
    assert result.counts.extra["flash1_fwd"]["shared_conflicts"] == 0


@executed
def test_a_masked_key_never_wins_against_very_low_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    # Query 0 sees only key 0, with score -60000 / sqrt(8) = -21,213; the 31 other keys of its first block, and all of
    # the second, are masked. A mask of, say, -1e4 instead of -inf would let them win.
    q, k = (np.zeros((1, 1, 48, 8), np.float16) for _ in range(2))
    q[..., 0], k[..., 0] = -60000, 1
    v = np.full((1, 1, 48, 8), 100, np.float16)
    v[0, 0, 0] = 1
    monkeypatch.setattr(reference, "make_inputs", lambda case: {"Q": q, "K": k, "V": v})
    result = run(case_of(AttentionShape(1, 1, 1, 48, 48, 8, causal=True), Tile(16, 32)))
    assert result.verification is not None and result.verification.passed, result.verification


@executed
def test_the_equality_fails_for_a_kernel_that_writes_once_more(mutant: Callable[..., Compile]) -> None:
    both = ("if (!last) {", "{"), ("} else {  // 16", "} if (last) {  // 16")
    case = case_of(AttentionShape(1, 1, 1, 32, 64, 32), Tile(32, 32))
    result = run(case, compiler=mutant("flash1/flash1_fwd.cu", *both))
    assert result.verification is not None and result.verification.passed
    difference = Counter(emulated(result))
    difference.subtract(model(case))
    # 32 rows of 128 bytes of O_acc and of 4 bytes of l and m, once more.
    forward = "flash1_fwd"
    assert +difference == {
        (forward, "O_acc", "write"): 4096,
        (forward, "l", "write"): 128,
        (forward, "m", "write"): 128,
    }
