"""flash2 with windows and fused features, executed: right, moving what the model says; and not so if changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fa_bench import algorithms
from fa_bench.algorithms.flash2 import Flash2
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.cases import AttentionShape, Case, DType, Features, Layout, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.model.flops import nominal
from fa_bench.reference import make_inputs
from fa_bench.scoring import Scoring
from fa_bench.sweep.predict import predict

A100 = gpus.get("a100-sxm-80")
FLASH2 = Flash2()
ALL = Features(softcap=5.0, bias=True, alibi=True, sinks=True, dropout_p=0.2)

emulated_only = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(
    shape: AttentionShape,
    features: Features,
    tile: Tile | None = None,
    dtype: DType = "fp16",
    layout: Layout = "bhsd",
    seed: int = 3,
) -> Case:
    bare = Case("flash2", shape, dtype, layout=layout, seed=seed, features=features)
    return replace(bare, tile=FLASH2.auto_tile(bare, A100) if tile is None else FLASH2.resolve(bare, tile))


def run(case: Case, **backend: Any) -> RunResult:
    return EmulatorBackend(jobs=1, all_slices=True, **backend).run(case, A100)


def check(case: Case, **backend: Any) -> RunResult:
    result = run(case, **backend)
    assert result.verification is not None and result.verification.passed, result.verification
    assert result.counts is not None
    counted = {(t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}
    assert counted == {(t.tensor, t.op): t.bytes for t in FLASH2.traffic(case)}
    return result


# --- right, and counted ----------------------------------------------------------------------------------------------

FEATURES = [
    Features(softcap=3.0),
    Features(bias=True),
    Features(alibi=True),
    Features(sinks=True),
    Features(dropout_p=0.3),
    ALL,
]


@emulated_only
@pytest.mark.parametrize("features", FEATURES, ids=lambda features: "+".join(features.named))
def test_each_feature_is_right_and_counted_without_conflicts(features: Features) -> None:
    case = case_of(AttentionShape(2, 4, 2, 127, 203, 64), features)
    result = check(case, checks=True)
    assert result.counts is not None and result.resources is not None
    assert result.counts.extra["flash2_fused"]["shared_conflicts"] == 0
    assert result.resources.spill_bytes == 0


@emulated_only
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    heads=st.sampled_from([(1, 1), (3, 1), (4, 2)]),
    seqs=st.tuples(st.integers(1, 100), st.integers(1, 130)),
    window=st.tuples(st.none() | st.integers(0, 90), st.none() | st.integers(0, 90)),
    causal=st.booleans(),
    features=st.sampled_from([Features(), ALL]),
    layout=st.sampled_from(["bhsd", "bshd"]),
)
@pytest.mark.parametrize(
    ("dtype", "tile", "dims"),
    [
        ("fp16", Tile(64, 32, 2), (40, None)),
        ("bf16", Tile(32, 48, 1), (64, 96)),
        ("fp16", Tile(48, 16, 2), (24, 8)),
    ],
)
def test_shapes_windows_and_features_in_any_mixture(
    dtype: DType,
    tile: Tile,
    dims: tuple[int, int | None],
    heads: tuple[int, int],
    seqs: tuple[int, int],
    window: tuple[int | None, int | None],
    causal: bool,
    features: Features,
    layout: Layout,
) -> None:
    left, right = window
    shape = AttentionShape(2, *heads, *seqs, dims[0], causal, left, None if causal else right, dims[1])
    check(case_of(shape, features, tile, dtype, layout))


@emulated_only
@pytest.mark.parametrize("mask", [{}, {"causal": True}], ids=["full", "causal"])
def test_without_features_it_is_the_plain_kernel(mask: dict[str, bool]) -> None:
    # A window that hides nothing asks for what the plain kernel asks for, and multiplies as often.
    shape = AttentionShape(1, 2, 1, 150, 200, 64, **mask)
    plain, wide = (check(case_of(s, Features(), Tile(64, 64))).counts for s in (shape, replace(shape, window_left=400)))
    assert plain is not None and wide is not None
    assert [(t.tensor, t.bytes) for t in plain.traffic["global"]] == [
        (t.tensor, t.bytes) for t in wide.traffic["global"]
    ]
    assert plain.extra["flash2_fwd"]["instructions_tensor"] == wide.extra["flash2_fused"]["instructions_tensor"]


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_a_window_skips_whole_tiles_on_both_sides() -> None:
    # 256 keys in tiles of 64; Q tiles of 64. Window of 64 to the left, none to the right: tile t sees keys
    # 64 t - 64 ... 64 t + 63, so K/V tiles t - 1 and t: 1 + 2 + 2 + 2 = 7 of 16. Rows of 64 fp16 are 128 bytes.
    shape = AttentionShape(1, 1, 1, 256, 256, 64, window_left=64, window_right=0)
    case = case_of(shape, Features(), Tile(64, 64))
    moved = {(t.tensor, t.op): t.bytes for t in FLASH2.traffic(case)}
    assert moved["K", "read"] == moved["V", "read"] == 7 * 64 * 128
    assert FLASH2.work(case).flops_executed == 4 * 7 * 64 * 64 * 64
    # Key j is seen by query i if i - 64 <= j <= i: 65 keys for i >= 64, i + 1 before.
    assert nominal(shape) == 4 * 64 * (64 * 65 // 2 + 192 * 65)


def test_the_bias_is_read_once_by_each_batch_and_only_where_a_tile_is_visited() -> None:
    # 2 batches x 3 heads, 100 queries x 70 keys: a row of bias is 72 fp16, 144 bytes, so heads start 14,400 bytes
    # apart, on a sector each. Tile columns 0-63 are 128 bytes per row, in 4 or 5 sectors as rows start 0 or 16
    # bytes into a sector; the other 8 columns (64 to 71) are 16 bytes, one sector a row.
    shape = AttentionShape(2, 3, 3, 100, 70, 64)
    case = case_of(shape, Features(bias=True), Tile(64, 64))
    moved = {(t.tensor, t.op): t.bytes for t in FLASH2.traffic(case)}
    assert moved["bias", "read"] == 2 * 3 * (50 * 4 + 50 * 5 + 100) * 32
    # Two Q tiles of four warps per slice; each warp reads its head's slope, one sector.
    sloped = case_of(shape, Features(alibi=True), Tile(64, 64))
    assert {t.tensor: t.bytes for t in FLASH2.traffic(sloped)}["slopes"] == 2 * 3 * 2 * 4 * 32


def test_what_is_not_there_is_said() -> None:
    window = AttentionShape(1, 1, 1, 64, 64, 64, window_left=16)
    fp32 = case_of(window, Features(), dtype="fp32")
    assert FLASH2.unsupported(fp32, A100) == (
        "flash2 has windows, fused features, packed batches and a head_dim_v of its own for fp16 and bf16 only."
    )
    backward = Case("flash2", window, direction="bwd", features=Features(softcap=2.0))
    assert algorithms.lacking(backward, FLASH2) == "flash2 has no softcap 2 in its bwd pass."
    flash1 = Case("flash1", AttentionShape(1, 1, 1, 64, 64, 64, head_dim_v=32), features=ALL)
    assert algorithms.lacking(flash1, algorithms.get("flash1")) == (
        "flash1 has no head_dim_v 32, softcap 5, bias, alibi, sinks, dropout 0.2 in its fwd pass."
    )
    with pytest.raises(Unsupported, match="flash1 has no head_dim_v 32"):
        EmulatorBackend().run(flash1, A100)


def test_the_dram_model_takes_what_is_fused() -> None:
    case = case_of(AttentionShape(2, 4, 2, 512, 512, 64, window_left=100), ALL)
    made = predict(case, A100)
    dram = {(t.tensor, t.op): t.bytes for t in made.traffic["dram"]}
    # Everything fits in L2, so that inputs are read once: the bias of 4 heads, which both batches share.
    assert dram["bias", "read"] <= {(t.tensor, t.op): t.bytes for t in made.traffic["global"]}["bias", "read"]
    assert dram["Q", "read"] == 2 * 4 * 512 * 64 * 2


# --- dropout ---------------------------------------------------------------------------------------------------------


@emulated_only
def test_the_kernel_drops_what_numpy_drops_in_any_tile() -> None:
    # Scores of zero queries are 0, so every probability is 1 / 96, and V = identity makes O the mask itself.
    shape = AttentionShape(2, 2, 2, 70, 96, 96)
    outputs = []
    for tile in (Tile(64, 64), Tile(32, 16, 2), Tile(16, 96)):
        case = case_of(shape, Features(dropout_p=0.25), tile, seed=11)
        outputs.append(_mask(case))
    scoring = Scoring.of(case, {})
    for b, h in np.ndindex(2, 2):
        expected = np.asarray(scoring.kept(b, h, np.arange(70), 96)) > 0
        assert all(np.array_equal(mask[b, h], expected) for mask in outputs)
    assert not np.array_equal(outputs[0], _mask(replace(case, seed=12)))


def _mask(case: Case) -> np.ndarray:
    """Which pairs the kernel kept."""
    from fa_bench import ptx
    from fa_bench.backends.programs import fitting_arguments, output, put_inputs

    program = FLASH2.program(case)
    compiled = compile_kernel(program.launches[0].kernel, A100.sm)
    memory = ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    s = case.shape
    eye = np.broadcast_to(np.eye(96, dtype=np.float16), (s.batch, s.heads_kv, 96, 96))
    put_inputs(program, raw, {**make_inputs(case), "Q": np.zeros((2, 2, 70, 96), np.float16), "V": eye})
    kernel = ptx.load(compiled.ptx).kernel(compiled.entry)
    launch = program.launches[0]
    args = fitting_arguments(launch, kernel, lambda name: np.uint64(memory.address(name)))
    ptx.launch(
        kernel, grid=launch.grid, block=launch.block, args=args, smem_bytes=launch.smem_bytes, memory=memory, jobs=1
    )
    return np.asarray(output(program, "O", raw["O"], case) > 0)


# --- mutants ---------------------------------------------------------------------------------------------------------


@emulated_only
@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        # The first tile of the window not skipped: 64 rows of 128 bytes of K and of V more, for Q tiles 2 and 3.
        ("max(0, m0 + diagonal - window_left) / BLOCK_N", "0", "bytes"),
        ("begin - first", "begin - first - 1", "result"),  # one key more to the left
        ("end - first ||", "end - first + 1 ||", "result"),  # and to the right
        ("* (DROPOUT ? keep_scale : 1.f)", "", "result"),
        ("fmaf(-slope,", "fmaf(slope,", "result"),
        ("i == 0 ? added.x : added.y", "added.x", "result"),
        ("scale / softcap * 2.f", "scale / softcap", "result"),
        ("lane % 4 == 0 ? 1.f : 0.f", "1.f", "result"),  # the sink four times
    ],
)
def test_mutants_are_caught(mutant: Callable[..., Compile], old: str, new: str, what: str) -> None:
    shape = AttentionShape(1, 2, 1, 256, 256, 64, window_left=64, window_right=0)
    case = case_of(shape, ALL, Tile(64, 64))
    result = run(case, compiler=mutant("flash2/flash2_fused.cu", (old, new)))
    assert result.verification is not None and result.counts is not None
    extra = sum(t.bytes for t in result.counts.traffic["global"]) - sum(t.bytes for t in FLASH2.traffic(case))
    if what == "bytes":
        # Tiles 2 and 3 read 1 and 2 tiles of K, V and bias (64 x 64 fp16 each, 8 KiB) more, in 2 slices.
        assert result.verification.passed
        assert extra == 2 * 3 * 3 * 64 * 128
    else:
        assert not result.verification.passed
        assert extra == 0
