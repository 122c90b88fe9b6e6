"""flash2's backward kernels with windows and dropout, executed: right, and counted; and not so if changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fa_bench import ptx
from fa_bench.algorithms.flash2 import Flash2, Flash2Atomic
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.backends.programs import fitting_arguments, put_inputs, tensor_view
from fa_bench.cases import AttentionShape, Case, Direction, DType, Features, Layout, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus
from fa_bench.reference_backward import GRADIENTS
from fa_bench.scoring import Scoring

A100 = gpus.get("a100-sxm-80")
FLASH2, ATOMIC = Flash2(), Flash2Atomic()
DROPOUT = Features(dropout_p=0.3)
BOTH = pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC], ids=lambda algorithm: algorithm.name)

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(
    algorithm: Flash2,
    shape: AttentionShape,
    features: Features = DROPOUT,
    tile: Tile | None = None,
    dtype: DType = "fp16",
    layout: Layout = "bhsd",
    direction: Direction = "bwd",
) -> Case:
    bare = Case(algorithm.name, shape, dtype, layout=layout, direction=direction, seed=3, features=features)
    return replace(bare, tile=algorithm.auto_tile(bare, A100) if tile is None else algorithm.resolve(bare, tile))


def run(case: Case, **backend: Any) -> RunResult:
    return EmulatorBackend(jobs=1, all_slices=True, **backend).run(case, A100)


def emulated(result: RunResult) -> dict[tuple[str, str, str], int]:
    assert result.counts is not None
    return {(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}


def model(algorithm: Flash2, case: Case) -> dict[tuple[str, str, str], int]:
    return {(t.kernel, t.tensor, t.op): t.bytes for t in algorithm.traffic(case) if t.bytes}


def check(algorithm: Flash2, case: Case, **backend: Any) -> RunResult:
    result = run(case, **backend)
    assert result.verification is not None and result.verification.passed, result.verification
    assert result.counts is not None and result.resources is not None
    assert emulated(result) == model(algorithm, case)
    assert not any(extra["shared_conflicts"] for extra in result.counts.extra.values())
    return result


# --- right, and counted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "dtype", "tile", "head_dim"),
    [
        (FLASH2, "fp16", Tile(64, 32, 2), 40),
        (FLASH2, "bf16", Tile(48, 32, 1), 64),
        (ATOMIC, "bf16", Tile(32, 64, 2), 64),
        (ATOMIC, "fp16", Tile(64, 48, 1), 24),
    ],
)
def test_shapes_windows_and_dropout_in_any_mixture(algorithm: Flash2, dtype: DType, tile: Tile, head_dim: int) -> None:
    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        heads=st.sampled_from([(1, 1), (3, 1), (4, 2)]),
        seqs=st.tuples(st.integers(1, 70), st.integers(1, 90)),
        window=st.tuples(st.none() | st.integers(0, 90), st.none() | st.integers(0, 90)),
        causal=st.booleans(),
        features=st.sampled_from([Features(), DROPOUT]),
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
        shape = AttentionShape(1, *heads, *seqs, head_dim, causal, left, None if causal else right)
        check(algorithm, case_of(algorithm, shape, features, tile, dtype, layout))

    any_mixture()


@BOTH
def test_checks_find_nothing_in_both_passes(algorithm: Flash2) -> None:
    # Query i sees keys i + 71 to i + 85: K/V tiles 0 and 1 have no queries, so that only their copies are in flight.
    wide = AttentionShape(1, 2, 1, 50, 128, 40, window_left=7, window_right=7)
    check(algorithm, case_of(algorithm, wide, tile=Tile(32, 32, 2), direction="fwd+bwd"), checks=True)
    # And i - 85 to i - 71: two Q tiles see nothing.
    tall = AttentionShape(1, 2, 1, 128, 50, 40, window_left=7, window_right=7)
    check(algorithm, case_of(algorithm, tall, tile=Tile(32, 32, 1), layout="bshd"), checks=True)


@BOTH
def test_large_heads_whose_columns_warps_split(algorithm: Flash2) -> None:
    shape = AttentionShape(1, 2, 1, 40, 90, 200, window_left=20, window_right=30)
    check(algorithm, case_of(algorithm, shape, tile=Tile(32, 32, 2), dtype="bf16"))


@BOTH
@pytest.mark.parametrize("head_dim", [64, 128])
def test_default_tiles_have_no_conflicts_and_spill_nothing(algorithm: Flash2, head_dim: int) -> None:
    shape = AttentionShape(1, 1, 1, 70, 70, head_dim, window_left=40, window_right=20)
    result = check(algorithm, case_of(algorithm, shape))
    assert result.resources is not None and result.resources.spill_bytes == 0


@BOTH
def test_a_window_that_hides_nothing_costs_no_product_and_no_byte(algorithm: Flash2) -> None:
    shape = AttentionShape(1, 1, 1, 70, 100, 64)
    shapes = shape, replace(shape, window_left=300)
    plain, wide = (check(algorithm, case_of(algorithm, s, Features(), Tile(64, 64))) for s in shapes)
    assert emulated(plain) == emulated(wide)
    assert plain.counts is not None and wide.counts is not None
    for kernel, extra in plain.counts.extra.items():
        assert extra.get("instructions_tensor") == wide.counts.extra[kernel].get("instructions_tensor")


# --- dropout ---------------------------------------------------------------------------------------------------------


@BOTH
def test_every_gradient_shows_the_mask_of_numpy_in_any_tile(algorithm: Flash2) -> None:
    # Q = 1/8 and K = identity: scores are all but equal, and P about 1 / 64. V = 1 and dO = identity: dO · V = 1, so
    # that dS = P (D - delta), above 0 where a pair is kept (D = 4 / 3 against delta, the row's mean of D), below where
    # it is dropped. dQ = dS · K is then dS itself, dK = dSᵀ · Q an eighth of it, and dV = (P ∘ D)ᵀ.
    shape = AttentionShape(2, 2, 2, 64, 64, 64)
    eye = np.broadcast_to(np.eye(64, dtype=np.float16), (2, 2, 64, 64))
    inputs = {"Q": eye / np.float16(8), "K": eye, "V": np.ones_like(eye), "dO": eye}
    for tile in (Tile(64, 64), Tile(32, 48, 2)):
        case = case_of(algorithm, shape, Features(dropout_p=0.25), tile)
        scoring = Scoring.of(case, {})
        found = gradients(algorithm, case, inputs)
        for b, h in np.ndindex(2, 2):
            kept = np.asarray(scoring.kept(b, h, np.arange(64), 64)) > 0
            assert 0.7 < kept.mean() < 0.8
            assert np.array_equal(found["dQ"][b, h] > 0, kept)
            assert np.array_equal(found["dK"][b, h].T > 0, kept)
            assert np.array_equal(found["dV"][b, h].T > 0, kept)


def gradients(algorithm: Flash2, case: Case, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """dQ, dK and dV as the kernels leave them."""
    program = algorithm.program(case)
    memory = ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    put_inputs(program, raw, inputs)
    for launch in (*program.setup, *program.launches):
        kernel = ptx.load(compile_kernel(launch.kernel, A100.sm).ptx).kernel(launch.kernel.entry)
        ptx.launch(
            kernel,
            grid=launch.grid,
            block=launch.block,
            args=fitting_arguments(launch, kernel, lambda name: np.uint64(memory.address(name))),
            smem_bytes=launch.smem_bytes,
            memory=memory,
            jobs=1,
        )
    return {name: tensor_view(program.buffer(name), raw[name]) for name in GRADIENTS}


# --- mutants ---------------------------------------------------------------------------------------------------------

WINDOW = AttentionShape(1, 2, 1, 128, 128, 64, window_left=32, window_right=0)
DKDV, ONE, DQ = "flash2/flash2_bwd_dkdv.cu", "flash2/flash2_bwd_atomic.cu", "flash2/flash2_bwd_dq.cu"
SHARED = "common/transposed.cuh"


@pytest.mark.parametrize(
    ("algorithm", "source", "old", "new"),
    [
        (FLASH2, DKDV, "min(seq_q, n0 + kv_rows - oldest)", "seq_q"),
        (FLASH2, DQ, "max(0, m0 + oldest) / BLOCK_N", "0"),
        (ATOMIC, ONE, "min(seq_q, n0 + kv_rows - oldest)", "seq_q"),
    ],
    ids=["dkdv", "dq", "atomic"],
)
def test_tiles_that_are_not_skipped_are_counted(
    algorithm: Flash2, source: str, old: str, new: str, mutant: Callable[..., Compile]
) -> None:
    # Tiles of 32, 4 by 4: of 10 that a right window of 0 leaves 7 are visited, so 3 x 32 rows of 128 bytes too many in
    # each of two slices; with atomics as many of 256 of dQ_acc.
    case = case_of(algorithm, WINDOW, DROPOUT, Tile(32, 32))
    result = run(case, compiler=mutant(source, (old, new)))
    assert result.verification is not None and result.verification.passed
    difference = Counter(emulated(result))
    difference.subtract(model(algorithm, case))
    streamed = ("K", "V") if source == DQ else ("Q", "dO")
    rows = 2 * 3 * 32
    assert {tensor: n for (_, tensor, op), n in difference.items() if n and op == "read"} == {
        **dict.fromkeys(streamed, rows * 128),
        **({} if source == DQ else {"LSE": rows * 4, "delta": rows * 4}),
        **({"dQ_acc": rows * 256} if source == ONE else {}),
    }


@pytest.mark.parametrize(
    ("algorithm", "source", "old", "new"),
    [
        (FLASH2, SHARED, "m * 8 + i > last", "m * 8 + i > last + 1"),  # one query more to the left,
        (FLASH2, SHARED, "m * 8 + i < first ||", "m * 8 + i < first - 1 ||"),  # and to the right
        (FLASH2, DQ, "n * 8 + i < row + oldest - first", "n * 8 + i < row + oldest - first - 1"),
        (FLASH2, SHARED, "+ lane / 8)", "+ lane / 4)"),  # another group of columns
        (FLASH2, SHARED, "(odd ? own : other) < threshold", "(odd ? other : own) < threshold"),
        (ATOMIC, SHARED, "? 0.f : dp[n][m][i]", "? dp[n][m][i] : dp[n][m][i]"),  # dP of what is dropped
        (ATOMIC, SHARED, "fmaxf(left[i], 0.f)", "left[i]"),  # P of what is dropped, less than nothing
        (ATOMIC, ONE, "head_kv * group + head, batch, seed", "head_kv, batch, seed"),  # one mask for a group of heads
        (FLASH2, DKDV, "if (DROPOUT) dv[n][d][i] *= keep_scale;", ""),
        (FLASH2, DQ, "fmaf(dp[m][n][i], keep_scale, minus_delta[m][i / 2])", "dp[m][n][i] + minus_delta[m][i / 2]"),
    ],
)
def test_mistakes_are_seen(algorithm: Flash2, source: str, old: str, new: str, mutant: Callable[..., Compile]) -> None:
    case = case_of(algorithm, WINDOW, DROPOUT, Tile(32, 32))
    result = run(case, compiler=mutant(source, (old, new)))
    assert result.verification is not None and not result.verification.passed
    assert emulated(result) == model(algorithm, case)
