"""Standard attention's backward pass: its model by hand; its kernels executed: right, and moving what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fa_bench.algorithms.standard import Standard
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Direction, DType, Layout, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
STANDARD = Standard()
KIB = 1024

executed = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(
    shape: AttentionShape, tile: Tile, dtype: DType = "fp16", layout: Layout = "bhsd", direction: Direction = "bwd"
) -> Case:
    bare = Case("standard", shape, dtype, layout=layout, direction=direction)
    return replace(bare, tile=STANDARD.resolve(bare, tile))


def model(case: Case) -> dict[tuple[str, str, str], int]:
    return {(t.kernel, t.tensor, t.op): t.bytes for t in STANDARD.traffic(case)}


def emulated(result: RunResult) -> dict[tuple[str, str, str], int]:
    assert result.counts is not None
    return {(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}


def run(case: Case, **backend: Any) -> RunResult:
    return EmulatorBackend(jobs=1, all_slices=True, **backend).run(case, A100)


def assert_right_and_counted(case: Case, **backend: Any) -> None:
    result = run(case, **backend)
    assert result.verification is not None and result.verification.passed, result.verification
    assert emulated(result) == model(case)


# --- the model -------------------------------------------------------------------------------------------------------


def test_traffic_of_the_textbook_case_by_hand() -> None:
    # N = 1024, D = 64, fp16, 64x64 tiles: 16 x 16 tiles of P. A tensor of 1024 rows of 128 B is 128 KiB, read 16 times
    # 2048 KiB: dO and Q by the 16 CTAs of dV and dK, dO and V by the rows and columns of tiles of dP, K by the 16 CTAs
    # of dQ. P, dP and dS are 1024 · 2048 B = 2 MiB.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64), Tile(64, 64))
    assert model(case) == {
        ("standard_bwd_dv", "P", "read"): 2048 * KIB,
        ("standard_bwd_dv", "dO", "read"): 2048 * KIB,
        ("standard_bwd_dv", "dV", "write"): 128 * KIB,
        ("standard_bwd_dp", "dO", "read"): 2048 * KIB,
        ("standard_bwd_dp", "V", "read"): 2048 * KIB,
        ("standard_bwd_dp", "dP", "write"): 2048 * KIB,
        ("standard_bwd_ds", "P", "read"): 2048 * KIB,
        ("standard_bwd_ds", "dP", "read"): 2048 * KIB,
        ("standard_bwd_ds", "dS", "write"): 2048 * KIB,
        ("standard_bwd_dq", "dS", "read"): 2048 * KIB,
        ("standard_bwd_dq", "K", "read"): 2048 * KIB,
        ("standard_bwd_dq", "dQ", "write"): 128 * KIB,
        ("standard_bwd_dk", "dS", "read"): 2048 * KIB,
        ("standard_bwd_dk", "Q", "read"): 2048 * KIB,
        ("standard_bwd_dk", "dK", "write"): 128 * KIB,
    }


def test_forward_and_backward_go_over_the_square_matrices_eleven_times() -> None:
    # FlashAttention's Figure 2: 64 · 16 slices of 1024² in fp16 are 2^31 bytes. S, P, P of Algorithm 0, twice each but
    # P's third time is the backward's: S 2, P 1 + 3, dP 2, dS 3.
    shape = AttentionShape(64, 16, 16, 1024, 1024, 64)
    case = case_of(shape, Tile(128, 128), direction="fwd+bwd")
    passes = Counter[str]()
    for traffic in STANDARD.traffic(case):
        if traffic.tensor in ("S", "P", "dP", "dS"):
            assert traffic.bytes == 2**31
            passes[traffic.tensor] += 1
    assert passes == {"S": 2, "P": 4, "dP": 2, "dS": 3}
    assert "11 in all, 23622320128 bytes" in STANDARD.explain(case)
    assert "7 in all, 15032385536 bytes" in STANDARD.explain(replace(case, direction="bwd"))
    assert "4 in all, 8589934592 bytes" in STANDARD.explain(replace(case, direction="fwd"))


def test_query_heads_that_share_a_head_write_its_gradients_once() -> None:
    # 6 query heads on 2: dV is 2 · 256 rows of 128 B. Each query head's P, dO are read as ever.
    alone, shared = (model(case_of(AttentionShape(1, 6, heads_kv, 256, 256, 64), Tile(64, 64))) for heads_kv in (6, 2))
    written = {key for key, nbytes in alone.items() if nbytes != shared[key]}
    assert written == {("standard_bwd_dv", "dV", "write"), ("standard_bwd_dk", "dK", "write")}
    assert shared["standard_bwd_dv", "dV", "write"] == 2 * 256 * 128


def test_a_causal_mask_saves_nothing() -> None:
    shape = AttentionShape(1, 1, 1, 256, 300, 64)
    assert model(case_of(shape, Tile(64, 64))) == model(case_of(replace(shape, causal=True), Tile(64, 64)))


def test_a_row_longer_than_the_registers_is_read_again_but_for_its_last_segment() -> None:
    # 16,385 fp16 elements are 1025 sectors; the first segment of 16,384, 1024 sectors, of P and dP is read again.
    bytes_of = model(case_of(AttentionShape(1, 1, 1, 1, 16385, 8), Tile(16, 64)))
    reads = [bytes_of["standard_bwd_ds", tensor, "read"] for tensor in ("P", "dP")]
    assert reads == [(1025 + 1024) * 32] * 2


def test_work_by_hand() -> None:
    # 64 x 96 padded to 64 x 128 in tiles of 64 x 64, D = 40 padded to 64: 2 · 64 · 128 · 64 FLOPs per product; four
    # products backward, against five where P is computed anew, and no exponential.
    case = case_of(AttentionShape(1, 1, 1, 64, 96, 40), Tile(64, 64))
    product, work = 2 * 64 * 128 * 64, STANDARD.work(case)
    assert (work.flops_executed, work.exp_count) == (4 * product, 0)
    assert [flops for _, flops, _, _ in work.per_kernel] == [product, product, 0, product, product]
    both, forward = (STANDARD.work(replace(case, direction=direction)) for direction in ("fwd+bwd", "fwd"))
    assert both.flops_executed == 6 * product
    assert both.exp_count == forward.exp_count > 0


def test_the_forward_pass_is_the_setup_of_a_backward_case_and_the_start_of_one_of_both() -> None:
    shape = AttentionShape(1, 2, 1, 10, 100, 64)
    alone = STANDARD.program(case_of(shape, Tile(16, 64)))
    both = STANDARD.program(case_of(shape, Tile(16, 64), direction="fwd+bwd"))
    assert (alone.setup + alone.launches, ()) == (both.launches, both.setup)
    assert [launch.kernel.entry for launch in alone.setup] == ["standard_scores", "standard_softmax", "standard_pv"]
    roles = {name: [program.buffer(name).role for program in (alone, both)] for name in ("O", "LSE", "P", "dQ")}
    assert roles == {
        "O": ["workspace", "output"],
        "LSE": ["workspace", "output"],
        "P": ["workspace", "workspace"],
        "dQ": ["output", "output"],
    }
    # 2 heads · 10 rows · pitch 128 · 2 B = 5120 B, a multiple of 256, each for S, P, dP and dS.
    matrices = [b.nbytes for b in both.buffers if b.name in ("S", "P", "dP", "dS")]
    assert matrices == [5120] * 4


def test_explain_ends_each_line_with_the_bytes_of_the_model() -> None:
    case = case_of(AttentionShape(2, 3, 1, 100, 20000, 40), Tile(64, 64), direction="fwd+bwd")
    lines = STANDARD.explain(case).splitlines()
    explained = [int(line.rsplit("=", 1)[1].removesuffix("bytes")) for line in lines if line.endswith("bytes")]
    assert explained == [t.bytes for t in STANDARD.traffic(case)]


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_shared_memory_is_what_the_largest_product_needs() -> None:
    # dV and dK: 2 · (64 · 32 + 64 · 128) · 2 B = 40 KiB; the forward's P·V, and dQ, 2 · (64 · 32 + 32 · 128) · 2 B.
    case = case_of(AttentionShape(1, 1, 1, 512, 512, 128), Tile(64, 32, 2))
    assert STANDARD.smem_bytes(case) == 40 * KIB
    assert STANDARD.smem_bytes(replace(case, direction="fwd")) == 24 * KIB


def test_a_wide_tile_has_warps_for_its_keys() -> None:
    # 16 rows are one warp's. Of 128 keys at D = 256, four warps would take 32 rows · 256 / 32 = 256 registers each.
    case = case_of(AttentionShape(1, 1, 1, 512, 512, 256), Tile(16, 128))
    threads = {launch.kernel.entry: launch.block[0] for launch in STANDARD.program(case).launches}
    assert threads["standard_bwd_dq"] == 32
    assert threads["standard_bwd_dv"] == threads["standard_bwd_dk"] == 256
    refused = STANDARD.unsupported(case_of(AttentionShape(1, 1, 1, 512, 512, 256), Tile(16, 256)), A100)
    assert refused is not None and "256 registers" in refused


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("head_dim", [8, 40, 64, 96, 128, 256])
def test_auto_tile_runs_on_every_gpu_from_ampere_on(dtype: DType, head_dim: int) -> None:
    for gpu in gpus.all_gpus():
        if gpu.compute_capability >= (8, 0):
            case = Case("standard", AttentionShape(1, 1, 1, 1000, 1000, head_dim), dtype, direction="fwd+bwd")
            assert STANDARD.unsupported(replace(case, tile=STANDARD.auto_tile(case, gpu)), gpu) is None


# --- the kernels, executed -------------------------------------------------------------------------------------------

shapes = st.tuples(
    st.integers(1, 2),  # batch
    st.sampled_from([(1, 1), (3, 1), (4, 2)]),  # heads_q, heads_kv
    st.integers(1, 90),  # seq_q
    st.integers(1, 130),  # seq_kv
)


@executed
@pytest.mark.parametrize(
    ("dtype", "tile", "causal", "head_dims"),
    [
        ("fp16", Tile(32, 48, 2), False, [40, 64]),
        ("bf16", Tile(64, 96, 1), True, [24, 32]),
        ("fp32", Tile(16, 64, 2), True, [40, 64]),
    ],
)
def test_any_shape_is_right_and_moves_what_the_model_says(
    dtype: DType, tile: Tile, causal: bool, head_dims: list[int]
) -> None:
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(shapes, st.sampled_from(head_dims), st.sampled_from(["bhsd", "bshd"]))
    def check(shape: tuple[int, tuple[int, int], int, int], head_dim: int, layout: Layout) -> None:
        batch, (heads_q, heads_kv), seq_q, seq_kv = shape
        assert_right_and_counted(
            case_of(AttentionShape(batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, causal), tile, dtype, layout)
        )

    check()


@executed
@pytest.mark.parametrize(
    ("shape", "tile", "dtype", "layout"),
    [
        (AttentionShape(1, 4, 2, 40, 70, 40, causal=True), Tile(32, 48, 2), "fp16", "bhsd"),
        (AttentionShape(2, 2, 1, 70, 40, 24, causal=True), Tile(16, 32, 1), "fp32", "bshd"),
    ],
)
def test_the_checks_find_nothing(shape: AttentionShape, tile: Tile, dtype: DType, layout: Layout) -> None:
    assert_right_and_counted(case_of(shape, tile, dtype, layout, "fwd+bwd"), checks=True)


@executed
def test_a_row_of_two_segments_is_right_and_counted() -> None:
    assert_right_and_counted(case_of(AttentionShape(1, 1, 1, 2, 16400, 8), Tile(16, 16)))


@executed
@pytest.mark.parametrize("head_dim", [64, 128])
def test_shared_memory_has_no_conflicts(head_dim: int) -> None:
    result = run(case_of(AttentionShape(1, 1, 1, 64, 64, head_dim), Tile(64, 64)))
    assert result.counts is not None
    assert {name: extra["shared_conflicts"] for name, extra in result.counts.extra.items()} == dict.fromkeys(
        (f"standard_bwd_{step}" for step in ("dv", "dp", "ds", "dq", "dk")), 0
    )


@executed
@pytest.mark.parametrize(
    ("dtype", "slug"),
    [("fp16", "a100-sxm-80")]
    + [
        pytest.param(dtype, slug, marks=pytest.mark.slow)
        for dtype in ("fp16", "bf16", "fp32")
        for slug in ("a100-sxm-80", "rtx-3090", "l4", "h100-sxm")
    ],
)
def test_default_tiles_have_no_spills(dtype: DType, slug: str) -> None:
    gpu = gpus.get(slug)
    for head_dim in (64, 128):
        bare = Case("standard", AttentionShape(1, 1, 1, 1024, 1024, head_dim), dtype, direction="bwd")
        for launch in STANDARD.program(replace(bare, tile=STANDARD.auto_tile(bare, gpu))).launches:
            assert compile_kernel(launch.kernel, gpu.sm).spill_bytes == 0, launch.kernel


# --- what would be noticed -------------------------------------------------------------------------------------------


@executed
@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("standard_bwd_dkdv.cu", "(m0 >= seq_q)", "(m0 >= seq_q + BLOCK_M)", "dK"),  # heads begin a block late
        ("standard_bwd_dkdv.cu", "c[n][d][i] *= factor", "c[n][d][i] *= 1.f", "dK"),
        ("standard_bwd_ds.cu", "(ds[i] - row_sum)", "ds[i]", "dQ"),
        ("pv.cu", "keys -= BLOCK_N;", "keys -= BLOCK_N + 1;", "dQ"),  # the last key of the second tile
    ],
)
def test_a_wrong_kernel_gives_a_wrong_result(
    mutant: Callable[..., Compile], file: str, old: str, new: str, complaint: str
) -> None:
    case = case_of(AttentionShape(1, 2, 1, 24, 40, 32), Tile(16, 16))
    verification = run(case, compiler=mutant(f"standard/{file}", (old, new))).verification
    assert verification is not None and not verification.passed
    assert verification.detail.startswith(complaint)


@executed
def test_the_equality_fails_for_a_kernel_that_reads_twice(mutant: Callable[..., Compile]) -> None:
    case = case_of(AttentionShape(1, 1, 1, 16, 64, 32), Tile(16, 16))
    twice = "load(segment);\n#pragma", "load(segment);\n        load(segment);\n#pragma"
    result = run(case, compiler=mutant("standard/standard_bwd_ds.cu", twice))
    assert result.verification is not None and result.verification.passed
    difference = Counter(emulated(result))
    difference.subtract(model(case))
    # 16 rows of 128 bytes, once more, of each of the two.
    assert +difference == {("standard_bwd_ds", tensor, "read"): 16 * 128 for tensor in ("P", "dP")}
