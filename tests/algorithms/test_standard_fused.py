"""Standard attention with windows and features: by hand; executed, right and counted; and not so if changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fa_bench import algorithms, ptx
from fa_bench.algorithms.standard import Standard
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.backends.programs import fitting_arguments, put_inputs, tensor_view
from fa_bench.cases import AttentionShape, Case, Direction, DType, Features, Layout, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.scoring import Scoring

A100 = gpus.get("a100-sxm-80")
STANDARD = Standard()
ALL = Features(softcap=5.0, bias=True, alibi=True, sinks=True, dropout_p=0.2)
DROPOUT = Features(dropout_p=0.3)

executed = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(
    shape: AttentionShape,
    features: Features,
    dtype: DType = "fp16",
    tile: Tile | None = None,
    layout: Layout = "bhsd",
    direction: Direction = "fwd",
) -> Case:
    bare = Case("standard", shape, dtype, layout=layout, direction=direction, seed=3, features=features)
    return replace(bare, tile=STANDARD.auto_tile(bare, A100) if tile is None else STANDARD.resolve(bare, tile))


def model(case: Case) -> dict[tuple[str, str, str], int]:
    return {(t.kernel, t.tensor, t.op): t.bytes for t in STANDARD.traffic(case)}


def run(case: Case, **backend: Any) -> RunResult:
    return EmulatorBackend(jobs=1, all_slices=True, **backend).run(case, A100)


def emulated(result: RunResult) -> dict[tuple[str, str, str], int]:
    assert result.counts is not None
    return {(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}


def check(case: Case, **backend: Any) -> RunResult:
    result = run(case, **backend)
    assert result.verification is not None and result.verification.passed, result.verification
    assert emulated(result) == model(case)
    return result


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_the_bias_is_read_once_by_each_batch() -> None:
    # 2 batches x 3 heads, 100 queries x 70 keys: a row of bias is 72 fp16, 144 bytes, read by one instruction, from 0
    # or 16 bytes into a sector on: 5 sectors either way. 13 CTAs of eight rows, a warp each, read the head's slope.
    plain = case_of(AttentionShape(2, 3, 3, 100, 70, 64), Features())
    asked = model(replace(plain, features=Features(bias=True, alibi=True, sinks=True)))
    added = {key: nbytes for key, nbytes in asked.items() if key not in model(plain)}
    assert added == {
        ("standard_softmax", "bias", "read"): 2 * 3 * 100 * 5 * 32,
        ("standard_softmax", "slopes", "read"): 2 * 3 * 13 * 8 * 32,
        ("standard_softmax", "sinks", "read"): 2 * 3 * 13 * 8 * 32,
    }


def test_the_bias_of_a_row_that_is_read_again_is_read_again() -> None:
    # 16,385 keys are 2049 chunks of 16 bytes, 1025 sectors; the first segment of 16,384, 1024 sectors, comes again.
    case = case_of(AttentionShape(1, 1, 1, 1, 16385, 8), Features(bias=True))
    assert model(case)["standard_softmax", "bias", "read"] == (1025 + 1024) * 32


def test_a_window_moves_as_much_as_none_and_dropout_one_matrix_more() -> None:
    shape = AttentionShape(1, 1, 1, 256, 256, 64)
    plain = model(case_of(shape, Features()))
    assert model(case_of(replace(shape, window_left=16, window_right=0), Features(softcap=5.0))) == plain
    # 256 rows of 512 bytes. P·V reads what was dropped from, the softmax writes both.
    dropped = model(case_of(shape, DROPOUT))
    assert dropped.pop(("standard_softmax", "P_drop", "write")) == 256 * 512
    assert dropped.pop(("standard_pv", "P_drop", "read")) == plain.pop(("standard_pv", "P", "read")) == 256 * 512
    assert dropped == plain


def test_dropout_costs_the_backward_pass_no_byte() -> None:
    shape = AttentionShape(1, 1, 1, 256, 256, 64)
    plain, dropped = (model(case_of(shape, features, direction="bwd")) for features in (Features(), DROPOUT))
    assert dropped.pop(("standard_bwd_dv", "P_drop", "read")) == plain.pop(("standard_bwd_dv", "P", "read"))
    assert dropped == plain
    assert "Rows of P, P_drop, dP and dS" in STANDARD.explain(case_of(shape, DROPOUT, direction="bwd"))


def test_a_head_dim_of_v_is_that_of_p_v_alone() -> None:
    # 64x64 tiles: V is 256 rows of 96 fp16, 48 KiB, read by each of 4 tiles of rows. Its tile is 96 columns wide.
    case = case_of(AttentionShape(1, 1, 1, 256, 256, 64, head_dim_v=96), Features(), tile=Tile(64, 64))
    assert model(case)["standard_pv", "V", "read"] == 4 * 256 * 192
    assert model(case)["standard_pv", "O", "write"] == 256 * 192
    assert model(case)["standard_scores", "K", "read"] == 4 * 256 * 128
    pairs = 256 * 256
    assert [tensor for _, tensor, _, _ in STANDARD.work(case).per_kernel] == [2 * pairs * 64, 0, 2 * pairs * 96]
    # One stage of P and V: 64 · 64 · 2 B + 64 · 96 · 2 B = 20 KiB; Q and K take 16 KiB.
    assert STANDARD.smem_bytes(case) == 20 * 1024


def test_a_softcap_takes_an_exponential_more_per_score() -> None:
    # As in test_standard.py: 64 rows of 32 lanes; 8 per lane, and with a softcap 8 more, and 3 beside.
    shape = AttentionShape(1, 1, 1, 64, 96, 40)
    exps = [STANDARD.work(case_of(shape, features)).exp_count for features in (Features(), Features(softcap=2.0))]
    assert exps == [64 * 32 * 11, 64 * 32 * 19]


def test_explain_ends_each_line_with_the_bytes_of_the_model() -> None:
    case = case_of(AttentionShape(2, 2, 1, 100, 20000, 40, window_left=7), ALL)
    text = STANDARD.explain(case)
    explained = [
        int(line.rsplit("=", 1)[1].removesuffix("bytes")) for line in text.splitlines() if line.endswith("bytes")
    ]
    assert explained == [t.bytes for t in STANDARD.traffic(case)]
    assert text.startswith("standard with window 7,-, softcap 5, bias, alibi, sinks, dropout 0.2, tile")
    assert "S written 1x, read 1x; P written 1x; P_drop written 1x, read 1x: 5 in all" in text


def test_a_packed_batch_is_refused() -> None:
    packed = Case("standard", AttentionShape.packed([(5, 7), (3, 3)], 2, 2, 64), features=DROPOUT)
    assert algorithms.lacking(packed, STANDARD) == "standard has no packed batch in its fwd pass."
    with pytest.raises(Unsupported, match="standard has no packed batch"):
        EmulatorBackend().run(packed, A100)


# --- right, and counted ----------------------------------------------------------------------------------------------

FEATURES = [
    Features(softcap=3.0),
    Features(bias=True),
    Features(alibi=True),
    Features(sinks=True),
    Features(dropout_p=0.3),
    ALL,
]


@executed
@pytest.mark.parametrize("features", FEATURES, ids=lambda features: "+".join(features.named))
def test_each_feature_is_right_and_counted(features: Features) -> None:
    result = check(case_of(AttentionShape(2, 4, 2, 67, 103, 64, causal=True), features), checks=True)
    assert result.resources is not None and result.resources.spill_bytes == 0


@executed
@pytest.mark.parametrize(
    ("dtype", "tile", "dims"),
    [
        ("fp16", Tile(32, 48, 2), (40, None)),
        ("bf16", Tile(64, 32, 1), (64, 96)),
        ("fp32", Tile(16, 64, 2), (24, 8)),
    ],
)
def test_shapes_windows_and_features_in_any_mixture(dtype: DType, tile: Tile, dims: tuple[int, int | None]) -> None:
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        heads=st.sampled_from([(1, 1), (3, 1), (4, 2)]),
        seqs=st.tuples(st.integers(1, 90), st.integers(1, 130)),
        window=st.tuples(st.none() | st.integers(0, 90), st.none() | st.integers(0, 90)),
        causal=st.booleans(),
        features=st.sampled_from([Features(), ALL]),
        layout=st.sampled_from(["bhsd", "bshd"]),
    )
    def any_mixture(
        heads: tuple[int, int],
        seqs: tuple[int, int],
        window: tuple[int | None, int | None],
        causal: bool,
        features: Features,
        layout: Layout,
    ) -> None:
        left, right = window
        shape = AttentionShape(2, *heads, *seqs, dims[0], causal, left, None if causal else right, dims[1])
        check(case_of(shape, features, dtype, tile, layout))

    any_mixture()


@executed
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_a_row_of_two_segments_is_right_and_counted(dtype: DType) -> None:
    result = check(case_of(AttentionShape(1, 1, 1, 2, 16400, 8, window_left=16390), ALL, dtype))
    assert result.resources is not None and result.resources.spill_bytes == 0


@executed
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("features", [Features(), DROPOUT], ids=["window", "window+dropout"])
def test_gradients_are_right_and_counted(dtype: DType, features: Features) -> None:
    # Query i sees keys i + 16 to i + 39 of 103: the first 16 keys have no query, the last queries' windows are cut.
    shape = AttentionShape(2, 4, 2, 67, 103, 40, window_left=20, window_right=3)
    check(case_of(shape, features, dtype, Tile(32, 64, 2), "bshd", "fwd+bwd"), checks=True)


@executed
def test_gradients_of_rows_of_two_segments() -> None:
    check(case_of(AttentionShape(1, 1, 1, 2, 16400, 8), DROPOUT, tile=Tile(16, 16), direction="bwd"))


@executed
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_p_drop_and_every_gradient_show_the_mask_of_numpy(dtype: DType) -> None:
    # Q = 1/8 and K = identity: scores are all but equal, and P about 1 / 64. V = 1 and dO = identity: dO · V = 1, so
    # that dS = P (D - delta), above 0 where a pair is kept (D = 4 / 3 against delta, the row's mean of D), below where
    # it is dropped. dQ = dS · K is then dS itself, dK = dSᵀ · Q an eighth of it, and dV = (P ∘ D)ᵀ.
    shape = AttentionShape(2, 2, 2, 64, 64, 64)
    case = case_of(shape, Features(dropout_p=0.25), dtype, direction="bwd")
    element = np.float16 if dtype == "fp16" else np.float32
    eye = np.broadcast_to(np.eye(64, dtype=element), (2, 2, 64, 64))
    found = matrices(case, {"Q": eye / element(8), "K": eye, "V": np.ones_like(eye), "dO": eye})
    scoring = Scoring.of(case, {})
    for b, h in np.ndindex(2, 2):
        kept = np.asarray(scoring.kept(b, h, np.arange(64), 64)) > 0
        assert 0.7 < kept.mean() < 0.8
        assert np.array_equal(found["P_drop"][b, h] > 0, kept)
        assert np.array_equal(found["dQ"][b, h] > 0, kept)
        assert np.array_equal(found["dK"][b, h].T > 0, kept)
        assert np.array_equal(found["dV"][b, h].T > 0, kept)
    # Another seed, another mask.
    other = matrices(replace(case, seed=4), {"Q": eye / element(8), "K": eye, "V": np.ones_like(eye), "dO": eye})
    assert not np.array_equal(found["P_drop"] > 0, other["P_drop"] > 0)


def matrices(case: Case, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """P_drop and the gradients as the kernels leave them."""
    program, memory = STANDARD.program(case), ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    put_inputs(program, raw, inputs)
    for launch in (*program.setup, *program.launches):
        kernel = ptx.load(compile_kernel(launch.kernel, A100.sm).ptx).kernel(launch.kernel.entry)
        args = fitting_arguments(launch, kernel, lambda name: np.uint64(memory.address(name)))
        ptx.launch(
            kernel, grid=launch.grid, block=launch.block, args=args, smem_bytes=launch.smem_bytes, memory=memory, jobs=1
        )
    return {name: tensor_view(program.buffer(name), raw[name]) for name in ("P_drop", "dQ", "dK", "dV")}


# --- mutants ---------------------------------------------------------------------------------------------------------

SOFTMAX, DS = "standard/softmax_fused.cu", "standard/standard_bwd_ds.cu"
SHARED = "common/chunk_dropout.cuh"
WINDOW = AttentionShape(1, 2, 1, 64, 64, 64, window_left=20, window_right=0)


@executed
@pytest.mark.parametrize(
    ("direction", "source", "old", "new"),
    [
        ("fwd", SOFTMAX, "key >= begin", "key >= begin - 1"),  # one key more to the left
        ("fwd", SOFTMAX, "diagonal + right + 1)", "diagonal + right + 2)"),  # and to the right
        ("fwd", SOFTMAX, "2.f * LOG2_E / softcap", "LOG2_E / softcap"),
        ("fwd", SOFTMAX, "score += added[i];", "score -= added[i];"),
        ("fwd", SOFTMAX, "fmaf(-slope,", "fmaf(slope,"),
        ("fwd", SOFTMAX, "column == 0 ? 1.f : 0.f", "1.f"),  # a sink for each lane
        ("fwd", SOFTMAX, "factor * keep_scale", "factor"),
        ("fwd", SHARED, "(half ? words[2 + i] : words[i])", "(half ? words[i] : words[2 + i])"),
        ("bwd", SHARED, "half ? other : own", "own"),
        ("bwd", DS, "dp[i] *= keep_scale", "dp[i] *= 1.f"),
        ("bwd", DS, "slice % heads_q, slice / heads_q", "0, slice / heads_q"),  # one mask for all heads
    ],
)
def test_mistakes_are_seen(
    direction: Direction, source: str, old: str, new: str, mutant: Callable[..., Compile]
) -> None:
    features = ALL if direction == "fwd" else DROPOUT
    case = case_of(WINDOW, features, tile=Tile(32, 32), direction=direction)
    result = run(case, compiler=mutant(source, (old, new)))
    assert result.verification is not None and not result.verification.passed
    assert emulated(result) == model(case)
