"""Traces of small cases: values worked out by hand, bytes against the model, each mistake against float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fa_bench import reference
from fa_bench.cases import AttentionShape, Case, DType, Tile
from fa_bench.compiler import nvrtc_available
from fa_bench.errors import UsageError
from fa_bench.model import gpus
from fa_bench.tracing import patches, run
from fa_bench.tracing.result import Comparison, Trace

pytestmark = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))

GPU = gpus.get("a100-sxm-80")
IMPLS = ("standard", "flash1", "flash2")
#: One row of tiles of 16 queries, two tiles of 16 keys.
TINY = AttentionShape(1, 1, 1, 16, 32, 16)
#: The same kernels, 32 tiles of keys.
LONG = AttentionShape(1, 1, 1, 16, 512, 16)


def compared(
    shape: AttentionShape, tile: Tile, bug: str = "", impls: Sequence[str] = IMPLS, dtype: DType = "fp16"
) -> Comparison:
    found = patches.bug(bug) if bug else None
    return run.compare([run.make_case(impl, shape, dtype, tile, found, GPU) for impl in impls], found, GPU)


# --- worked out by hand ----------------------------------------------------------------------------------------------
#
# D = 16, so that the scale is 1/4. Only the first element of Q and K isn't 0. Keys of the first tile have 0 there, keys
# of the second 1. Row 0 of Q has 4: its scores are 0 in the first tile and 4 · 1 / 4 = 1 in the second. Row 1 has -4:
# 0, then -1. All other rows have 0. V is 1 in the first tile and 3 in the second.
#
#          tile  m  l                            factor        O (divided by l)
#   row 0  0     0  16                           0 (no past)   16·1 / 16 = 1
#          1     1  16 e^-1 + 16     = 21.886    e^-1          (16 e^-1 · 1 + 16 · 3) / 21.886 = 2.4621
#   row 1  0     0  16                           0             1
#          1     0  16 + 16 e^-1     = 21.886    1             (16 · 1 + 16 e^-1 · 3) / 21.886 = 1.5379
#
# With missing-rescale row 0 has in tile 1 the factor 1, l = 16 + 16 = 32 and O = (16 · 1 + 16 · 3) / 32 = 2; row 1,
# whose maximum doesn't rise, is right.

E = math.exp(-1)
L = 16 + 16 * E


def by_hand(case: Case) -> dict[str, np.ndarray]:
    q, k, v = (np.zeros((1, 1, n, 16), np.float16) for n in (16, 32, 32))
    q[0, 0, :2, 0] = 4, -4
    k[0, 0, 16:, 0] = 1
    v[0, 0, :16], v[0, 0, 16:] = 1, 3
    return {"Q": q, "K": k, "V": v}


@pytest.fixture(scope="module")
def tiny() -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "make_inputs", by_hand)
        return compared(TINY, Tile(16, 16), "missing-rescale")


def test_every_run_is_there(tiny: Comparison) -> None:
    assert [trace.case.impl for trace in tiny.right] == list(IMPLS)
    assert set(tiny.wrong) == {"flash1", "flash2"}  # standard attention has nothing to rescale
    assert tiny.passed
    assert tiny.row == 0  # the only one whose maximum rises


@pytest.mark.parametrize("impl", ["flash1", "flash2"])
def test_m_l_rescale_and_o_are_those_on_paper(tiny: Comparison, impl: str) -> None:
    trace = tiny.right[IMPLS.index(impl)]
    values = trace.values
    assert values.m[:2].tolist() == [[0, 1], [0, 0]]
    assert values.l[:2] == pytest.approx(np.array([[16, L], [16, L]]), rel=1e-6)
    assert values.factor[:2] == pytest.approx(np.array([[0, E], [0, 1]]), rel=1e-6)
    o = np.array([[1, (16 * E + 48) / L], [1, (16 + 48 * E) / L]])
    assert trace.running[:2, :, 5] == pytest.approx(o, rel=1e-3)  # P is rounded to fp16
    # flash2 divides by l at the end only, flash1 at each tile.
    kept = o * [[16, L], [16, L]] if impl == "flash2" else o
    assert values.O[:2, :, 5] == pytest.approx(kept, rel=1e-3)


def test_standard_attention_has_the_whole_row_at_once(tiny: Comparison) -> None:
    values = tiny.right[0].values
    assert np.isnan(values.m[:, 0]).all() and np.isnan(values.factor).all()
    assert values.m[:2, 1].tolist() == [1, 0]
    assert values.l[:2, 1] == pytest.approx([L, L], rel=1e-6)
    assert values.P[0, [0, 16]] == pytest.approx([E / L, 1 / L], rel=1e-5)
    # Its O is divided already: after the first tile 16 · (e^-1 / l) · 1.
    assert tiny.right[0].running[0, 0, 5] == pytest.approx(16 * E / L, rel=1e-3)


def test_scores_and_weights_are_those_on_paper(tiny: Comparison) -> None:
    for trace in tiny.right:
        assert trace.values.S[:2, [0, 15, 16, 31]].tolist() == [[0, 0, 1, 1], [0, 0, -1, -1]]
    for trace in tiny.right[1:]:  # relative to the maximum at the time
        assert trace.values.P[:2, [0, 16]] == pytest.approx(np.array([[1, 1], [1, E]]), rel=1e-6)


@pytest.mark.parametrize("impl", ["flash1", "flash2"])
def test_without_the_rescale_the_row_is_wrong_as_on_paper(tiny: Comparison, impl: str) -> None:
    wrong = tiny.wrong[impl]
    assert wrong.values.factor[0, 1] == 1
    assert wrong.values.l[0, 1] == pytest.approx(32)
    assert wrong.output[0, 5] == pytest.approx(2)
    assert wrong.output[1, 5] == pytest.approx((16 + 48 * E) / L, rel=1e-3)
    assert not wrong.verification.passed


def test_steps_say_what_moved_and_what_was_computed(tiny: Comparison) -> None:
    """flash2, one CTA: Q is 16 rows of 32 bytes, a tile of K or V as much; O likewise, LSE 16 floats."""
    flash2 = tiny.right[2]
    assert [(step.computed, step.rows, step.keys) for step in flash2.steps] == [
        ((), None, None),
        (("S",), (0, 16), (0, 16)),
        (("state", "P", "O"), (0, 16), (0, 16)),
        (("S",), (0, 16), (16, 32)),
        (("state", "P", "O"), (0, 16), (16, 32)),
        ((), None, None),
    ]
    moved = [[(t.tensor, t.op, t.nbytes, t.rows) for t in step.touches] for step in flash2.steps]
    assert moved == [
        [("Q", "read", 512, (0, 16)), ("K", "read", 512, (0, 16))],
        [("V", "read", 512, (0, 16))],
        [("K", "read", 512, (16, 32))],
        [("V", "read", 512, (16, 32))],
        [],
        [("O", "write", 512, (0, 16)), ("LSE", "write", 64, (0, 16))],
    ]
    assert flash2.values.state_step[0].tolist() == [2, 4]


def test_standard_writes_s_and_p_in_rectangles(tiny: Comparison) -> None:
    matrices = {
        (step.kernel, t.tensor, t.op, t.rows, t.columns)
        for step in tiny.right[0].steps
        for t in step.touches
        if t.tensor in ("S", "P")
    }
    assert matrices == {
        ("standard_scores", "S", "write", (0, 16), (0, 16)),
        ("standard_scores", "S", "write", (0, 16), (16, 32)),
        *(("standard_softmax", "S", "read", (k, k + 8), (0, 32)) for k in (0, 8)),
        *(("standard_softmax", "P", "write", (k, k + 8), (0, 32)) for k in (0, 8)),
        ("standard_pv", "P", "read", (0, 16), (0, 16)),
        ("standard_pv", "P", "read", (0, 16), (16, 32)),
    }


# --- against the model and float64 -----------------------------------------------------------------------------------


#: No size is a multiple of its tile of 32x16, nor of a sector: rows of 24 elements are 48 bytes.
RAGGED = AttentionShape(1, 1, 1, 50, 50, 24, True)


@pytest.fixture(scope="module")
def ragged() -> Comparison:
    return compared(RAGGED, Tile(32, 16))


def test_ragged_bytes_are_those_of_the_model_and_results_right(ragged: Comparison) -> None:
    for trace in ragged.right:
        assert trace.equal
        assert trace.total_bytes == sum(part.predicted_bytes for part in trace.traffic) > 0
        assert trace.verification.passed
        assert trace.row_errors.max() == pytest.approx(trace.verification.max_abs_err)
        # Where a row has seen all of its keys it has its result, but for the final rounding to fp16.
        last = trace.running_errors[np.arange(50), (trace.values.output_step >= 0).sum(axis=1) - 1]
        assert last.max() < 2e-3 < trace.running_errors[49, 0]


def test_flash2_visits_no_tile_that_the_mask_hides(ragged: Comparison) -> None:
    standard, flash1, flash2 = ragged.right
    # Queries 0-31 see keys 0-31, two of four tiles.
    assert (flash2.values.state_step[:32] >= 0).sum(axis=1).tolist() == [2] * 32
    assert (flash1.values.state_step >= 0).all()
    assert np.isneginf(standard.values.S[0, 1:50]).all()


@pytest.mark.parametrize(
    "impls", [("flash2",), pytest.param(("standard", "flash1"), marks=pytest.mark.slow)], ids=lambda impls: impls[-1]
)
@pytest.mark.parametrize(
    ("bug", "times"), [("missing-rescale", 100), ("missing-scale", 100), ("block-mask", 100), ("fp16-o", 1.5)]
)
def test_a_mistake_shows_and_moves_the_same_bytes(bug: str, times: float, impls: tuple[str, ...]) -> None:
    """fp16-o rounds 32 times per element of O here: worse, but inside what the format explains."""
    shape, tile = (RAGGED, Tile(32, 16)) if bug == "block-mask" else (LONG, Tile(16, 16))
    comparison = compared(shape, tile, bug, impls)
    assert comparison.passed
    assert comparison.mistake is not None
    assert set(comparison.wrong) == set(impls) - set(comparison.mistake.absent)
    for right in comparison.right:
        if (wrong := comparison.wrong.get(right.case.impl)) is not None:
            assert wrong.row_errors.mean() > times * right.row_errors.mean()
            assert wrong.verification.passed == (bug == "fp16-o")
            assert wrong.traffic == right.traffic


def test_bf16() -> None:
    fp16, bf16 = (compared(LONG, Tile(16, 16), impls=("flash2",), dtype=dtype) for dtype in ("fp16", "bf16"))
    assert fp16.passed and bf16.passed
    # Eight bits of mantissa instead of eleven.
    assert bf16.right[0].row_errors.mean() > 4 * fp16.right[0].row_errors.mean()


# --- refusals --------------------------------------------------------------------------------------------------------


def make(shape: AttentionShape, dtype: DType = "fp16", tile: Tile | None = None, bug: str = "") -> Case:
    return run.make_case("flash2", shape, dtype, tile, patches.bug(bug) if bug else None, GPU)


def test_what_cannot_be_traced_is_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match="at most 1024 queries and keys, not 1025"):
        make(AttentionShape(1, 1, 1, 1025, 1025, 64))
    with pytest.raises(UsageError, match="fp16 and bf16, not fp32"):
        make(TINY, "fp32")
    with pytest.raises(UsageError, match="block-mask is a mistake in the causal mask, so it needs --causal"):
        make(TINY, bug="block-mask")
    with pytest.raises(UsageError, match="of shared memory per block"):
        make(AttentionShape(1, 1, 1, 256, 256, 256), tile=Tile(128, 256))


def test_the_tile_is_the_bugs_where_only_some_show_it() -> None:
    causal = AttentionShape(1, 1, 1, 64, 64, 64, True)
    assert str(make(causal).tile) == "64x64"
    assert str(make(causal, bug="block-mask").tile) == "64x32"
    assert str(make(causal, bug="block-mask", tile=Tile(32, 32)).tile) == "32x32"


def test_comparison_shows_the_mistake_where_there_is_one(tiny: Comparison) -> None:
    shown: list[Trace] = list(tiny.shown)
    assert [trace.bug for trace in shown] == ["", "missing-rescale", "missing-rescale"]
