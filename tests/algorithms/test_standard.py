"""Standard attention: its model by hand, and its kernels executed: right, and moving what the model says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fa_bench import algorithms, ptx, reference
from fa_bench.algorithms.standard import Standard
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.cases import AttentionShape, Case, DType, Layout, Tile
from fa_bench.errors import UsageError
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
STANDARD = Standard()
KIB = 1024

executed = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(shape: AttentionShape, tile: Tile, dtype: DType = "fp16", layout: Layout = "bhsd") -> Case:
    bare = Case("standard", shape, dtype, layout=layout)
    return replace(bare, tile=STANDARD.resolve(bare, tile))


def model(case: Case) -> dict[tuple[str, str, str], int]:
    return {(t.kernel, t.tensor, t.op): t.bytes for t in STANDARD.traffic(case)}


def emulated(result: RunResult) -> dict[tuple[str, str, str], int]:
    assert result.counts is not None
    return {(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}


def run(case: Case, **backend: Any) -> RunResult:
    return EmulatorBackend(jobs=1, all_slices=True, **backend).run(case, A100)


def assert_right_and_counted(case: Case) -> None:
    result = run(case)
    assert result.verification is not None and result.verification.passed, result.verification
    assert emulated(result) == model(case)


# --- the model -------------------------------------------------------------------------------------------------------


def test_traffic_of_the_textbook_case_by_hand() -> None:
    # N = 1024, D = 64, fp16, 64x64 tiles: 16 x 16 tiles of S. Q, K, V are 1024 · 128 B = 128 KiB each; every tile of S
    # reads its rows of Q and K, so each 16 times; V once per 64 rows of O, 16 times. S and P are 1024 · 2048 B = 2 MiB.
    # LSE: one 32-byte sector per row.
    case = case_of(AttentionShape(1, 1, 1, 1024, 1024, 64), Tile(64, 64))
    assert model(case) == {
        ("standard_scores", "Q", "read"): 2048 * KIB,
        ("standard_scores", "K", "read"): 2048 * KIB,
        ("standard_scores", "S", "write"): 2048 * KIB,
        ("standard_softmax", "S", "read"): 2048 * KIB,
        ("standard_softmax", "P", "write"): 2048 * KIB,
        ("standard_softmax", "LSE", "write"): 32 * KIB,
        ("standard_pv", "P", "read"): 2048 * KIB,
        ("standard_pv", "V", "read"): 2048 * KIB,
        ("standard_pv", "O", "write"): 128 * KIB,
    }


def test_a_causal_mask_saves_nothing_and_a_shared_head_is_read_by_each_query_head() -> None:
    shape = AttentionShape(1, 6, 2, 256, 256, 64)
    assert model(case_of(shape, Tile(64, 64))) == model(case_of(replace(shape, causal=True), Tile(64, 64)))
    # 6 query heads read K of 256 · 128 B = 32 KiB four times (256 / 64 tiles of rows) each.
    assert model(case_of(shape, Tile(64, 64)))["standard_scores", "K", "read"] == 6 * 4 * 32 * KIB


def test_a_row_longer_than_the_registers_is_read_again_but_for_its_last_segment() -> None:
    # 16,384 fp16 elements are 1024 sectors; one more element makes 1025, and the first segment of 16,384 is read again.
    reads = [
        model(case_of(AttentionShape(1, 1, 1, 1, seq_kv, 8), Tile(16, 64)))["standard_softmax", "S", "read"]
        for seq_kv in (16384, 16385)
    ]
    assert reads == [1024 * 32, (1025 + 1024) * 32]


def test_the_pitch_is_counted_in_memory_but_not_in_traffic() -> None:
    case = case_of(AttentionShape(1, 2, 1, 10, 100, 64), Tile(16, 64))
    s = STANDARD.program(case).buffer("S")
    assert s.shape == (1, 2, 10, 128)
    assert s.nbytes == 2 * 10 * 128 * 2
    # 100 fp16 elements are 200 bytes, 7 sectors of the row's 8.
    assert model(case)["standard_scores", "S", "write"] == 2 * 10 * 7 * 32


def test_work_by_hand() -> None:
    # 64 x 96 padded to 64 x 128 in tiles of 64 x 64, D = 40 padded to 64: 2 · 64 · 128 · 64 FLOPs per product.
    work = STANDARD.work(case_of(AttentionShape(1, 1, 1, 64, 96, 40), Tile(64, 64)))
    product = 2 * 64 * 128 * 64
    # A warp per row holds 256 fp16 elements, 8 per lane: 8 exponentials, 1 to raise the lane's maximum, 1 from lane to
    # warp, 1 for the factor; 64 rows of 32 lanes.
    exps = 64 * 32 * 11
    assert work.flops_executed == 2 * product
    assert work.exp_count == exps
    assert work.per_kernel == (
        ("standard_scores", product, 0, 0),
        ("standard_softmax", 0, 0, exps),
        ("standard_pv", product, 0, 0),
    )


def test_fp32_products_run_on_the_fma_pipe() -> None:
    work = STANDARD.work(case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(64, 64), "fp32"))
    assert work.per_kernel[0] == ("standard_scores", 0, 2 * 64**3, 0)


def test_explain_ends_each_line_with_the_bytes_of_the_model() -> None:
    case = case_of(AttentionShape(2, 3, 1, 100, 20000, 40), Tile(64, 64))
    lines = STANDARD.explain(case).splitlines()
    bytes_explained = [int(line.rsplit("=", 1)[1].removesuffix("bytes")) for line in lines if line.endswith("bytes")]
    assert bytes_explained == [t.bytes for t in STANDARD.traffic(case)]
    assert "16384 elements of each row again" in STANDARD.explain(case)


def test_ctas_are_ordered_by_slice_on_one_axis() -> None:
    shape = AttentionShape(700, 100, 100, 100, 200, 8)  # 70,000 slices: more than a grid's y axis holds
    for launch in STANDARD.program(case_of(shape, Tile(64, 64))).launches:
        assert launch.grid == (shape.slices * launch.ctas_per_slice, 1, 1)


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_refusals_say_why_and_what_would_fit() -> None:
    big = case_of(AttentionShape(1, 1, 1, 512, 512, 256), Tile(64, 64, 2), "fp32")
    # scores: (64 + 64) · 256 · 4 B = 128 KiB; P·V: 2 · (64 · 64 + 64 · 256) · 4 B = 160 KiB.
    assert STANDARD.smem_bytes(big) == 160 * KIB
    assert STANDARD.unsupported(big, A100) is None
    reason = STANDARD.unsupported(big, gpus.get("rtx-4090"))
    # Of 99 KiB: with 48x48 scores needs 96 KiB, and P·V 2 · (48 · 48 + 48 · 256) · 4 B = 114 KiB; with 64x32 they
    # need 96 KiB and 2 · (64 · 32 + 32 · 256) · 4 B = 80 KiB.
    assert reason == (
        "Tile 64x64 with 2 stages needs 160 KiB of shared memory per block, NVIDIA GeForce RTX 4090 has 99 KiB; "
        "the largest that fits is 64x32 with 2 stages (96 KiB)."
    )
    old = STANDARD.unsupported(case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(64, 64)), gpus.get("v100-sxm2-32"))
    assert old is not None and "compute capability 8.0" in old
    wide = STANDARD.unsupported(case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(256, 256)), A100)
    assert wide is not None and "256 registers" in wide  # 32 rows · 256 columns / 32 lanes
    many = STANDARD.unsupported(case_of(AttentionShape(64, 64, 64, 2**14, 2**14, 64), Tile(16, 16)), A100)
    assert many is not None and "a grid holds 2147483647" in many  # 2^12 slices · 2^20 tiles


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("head_dim", [8, 40, 64, 96, 128, 256])
def test_auto_tile_runs_on_every_gpu_from_ampere_on(dtype: DType, head_dim: int) -> None:
    for gpu in gpus.all_gpus():
        if gpu.compute_capability >= (8, 0):
            case = Case("standard", AttentionShape(1, 1, 1, 1000, 1000, head_dim), dtype)
            assert STANDARD.unsupported(replace(case, tile=STANDARD.auto_tile(case, gpu)), gpu) is None


def test_warps_must_share_the_rows() -> None:
    case = Case("standard", AttentionShape(1, 1, 1, 64, 64, 64))
    assert STANDARD.resolve(case, Tile(64, 64)).num_warps == 4
    assert STANDARD.resolve(case, Tile(48, 64)).num_warps == 1
    with pytest.raises(UsageError, match="64 rows don't divide among 8 warps"):
        STANDARD.resolve(case, Tile(64, 64, num_warps=8))


def test_the_registry_knows_the_room() -> None:
    assert algorithms.get("standard").name == "standard"


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
        ("bf16", Tile(64, 32, 1), True, [24, 32]),
        ("fp32", Tile(16, 64, 2), True, [40, 64]),
    ],
)
def test_any_shape_is_right_and_moves_what_the_model_says(
    dtype: DType, tile: Tile, causal: bool, head_dims: list[int]
) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(shapes, st.sampled_from(head_dims), st.sampled_from(["bhsd", "bshd"]))
    def check(shape: tuple[int, tuple[int, int], int, int], head_dim: int, layout: Layout) -> None:
        batch, (heads_q, heads_kv), seq_q, seq_kv = shape
        assert_right_and_counted(
            case_of(AttentionShape(batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, causal), tile, dtype, layout)
        )

    check()


@executed
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_a_row_of_two_segments_is_right_and_counted(dtype: DType) -> None:
    assert_right_and_counted(case_of(AttentionShape(1, 1, 1, 2, 16400, 8), Tile(16, 128), dtype))


@executed
def test_shared_memory_has_no_conflicts() -> None:
    result = run(case_of(AttentionShape(1, 1, 1, 64, 64, 64), Tile(64, 64)))
    assert result.counts is not None
    assert {name: extra["shared_conflicts"] for name, extra in result.counts.extra.items()} == {
        "standard_scores": 0,
        "standard_softmax": 0,
        "standard_pv": 0,
    }


@executed
def test_a_masked_key_never_wins_against_very_low_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    # Query 0 sees only key 0, with score -60000 / sqrt(8) = -21,213; a mask of, say, -1e4 instead of -inf would let
    # key 1 win.
    q = np.zeros((1, 1, 2, 8), np.float16)
    k = np.zeros((1, 1, 2, 8), np.float16)
    v = np.zeros((1, 1, 2, 8), np.float16)
    q[..., 0], k[..., 0] = -60000, 1
    v[0, 0, 0], v[0, 0, 1] = 1, 100
    monkeypatch.setattr(reference, "make_inputs", lambda case: {"Q": q, "K": k, "V": v})
    result = run(case_of(AttentionShape(1, 1, 1, 2, 2, 8, causal=True), Tile(16, 16)))
    assert result.verification is not None and result.verification.passed, result.verification


@executed
def test_padding_is_masked_to_the_end_of_a_chunk_and_untouched_beyond() -> None:
    memories: list[Any] = []

    class Kept(ptx.Memory):
        def __init__(self) -> None:
            super().__init__()
            self.raw: dict[str, Any] = {}
            memories.append(self)

        def allocate(self, name: str, nbytes: int) -> Any:
            self.raw[name] = super().allocate(name, nbytes)
            return self.raw[name]

    # 21 keys of a pitch of 64: the third chunk of 8 ends at 24.
    run(
        case_of(AttentionShape(1, 1, 1, 3, 21, 32), Tile(16, 64)),
        ptx=SimpleNamespace(Memory=Kept, load=ptx.load, launch=ptx.launch),
    )
    s, p = (memories[0].raw[name].view(np.uint16).reshape(3, 64) for name in ("S", "P"))
    assert np.all(s[:, 21:24] == 0xFC00) and np.all(p[:, 21:24] == 0)  # -inf and 0 in fp16
    assert np.all(s[:, 24:] == 0xFFFF) and np.all(p[:, 24:] == 0xFFFF)  # as allocated


@executed
def test_the_equality_fails_for_a_kernel_that_reads_twice(mutant: Callable[..., Compile]) -> None:
    twice = "load(segment);\n        float max", "load(segment);\n        load(segment);\n        float max"
    case = case_of(AttentionShape(1, 1, 1, 16, 64, 64), Tile(16, 64))
    result = run(case, compiler=mutant("standard/softmax.cu", twice))
    assert result.verification is not None and result.verification.passed
    difference = Counter(emulated(result))
    difference.subtract(model(case))
    # 16 rows of 128 bytes, once more.
    assert +difference == {("standard_softmax", "S", "read"): 16 * 128}
