"""What small runs of a tile say: right or wrong, and the counters of a large case."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made_tiles import CountingBackend, with_a_byte_more, wrong

from fa_bench import algorithms
from fa_bench.backends.base import RunResult
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import nvrtc_available
from fa_bench.errors import FaBenchError, KernelFault, Unsupported
from fa_bench.model import gpus
from fa_bench.tuning.counts import Trial, small_cases, trial

GPU = gpus.get("a100")
CASE = Case("flash2", AttentionShape(2, 3, 3, 1000, 1000, 64), tile=Tile(64, 32, 1, 4))


def attempt(backend: object, case: Case = CASE) -> Trial:
    return trial(case, algorithms.get(case.impl), backend, GPU)  # type: ignore[arg-type]


def test_the_small_cases_are_a_ragged_one_and_three_squares() -> None:
    shapes = [(c.shape.batch, c.shape.heads_q, c.shape.heads_kv, c.shape.seq_q, c.shape.seq_kv)
              for c in small_cases(CASE)]  # fmt: skip
    # 64 + 32 + 3 rows of Q, 32 + 16 + 5 of K/V; then 64, 128, 192.
    assert shapes == [(1, 2, 1, 99, 53), (1, 1, 1, 64, 64), (1, 1, 1, 128, 128), (1, 1, 1, 192, 192)]
    assert {c.tile for c in small_cases(CASE)} == {CASE.tile}


def test_counters_of_a_large_case_follow_from_three_small_ones() -> None:
    """Six slices, each of ⌈1000/64⌉ = 16 tiles of Q by ⌈1000/32⌉ = 32 tiles of K/V, 512 tiles of scores.

    Wavefronts: 6 · (3 + 5 · 16 + 7 · 512) = 6 · 3667 = 22002. Instructions without moves: 6 · 30 · 512 = 92160.
    """
    made = attempt(CountingBackend())
    assert made.status == "ok"
    assert made.total("wavefronts") == pytest.approx(22002, rel=1e-12)
    assert made.total("conflicts") == pytest.approx(96, rel=1e-9)
    assert made.total("instructions") == pytest.approx(92160, rel=1e-12)
    assert made.counters["flash2_fwd"]["float_instructions"] == pytest.approx(61440, rel=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("impl", ["flash1", "flash2"])
def test_scaled_counters_equal_a_count_of_that_length(impl: str, causal: bool) -> None:
    """The oracle is the emulator itself, at five tiles instead of one to three.

    flash2 shrinks O only in tiles that raise a maximum, which is nearly all of so few, but not quite.
    """
    from fa_bench.backends import open_backend

    if (missing := nvrtc_available()) is not None:
        pytest.skip(missing)
    case = Case(impl, AttentionShape(1, 2, 2, 160, 160, 64, causal), tile=Tile(32, 16, 1, 1))
    backend = open_backend("emulator", jobs=1)
    scaled = attempt(backend, case)
    counts = backend.run(case, GPU).counts
    assert counts is not None
    assert scaled.status == "ok"
    assert scaled.total("wavefronts") == pytest.approx(sum(k["shared_wavefronts"] for k in counts.extra.values()))
    moved = sum(n for k in counts.extra.values() for name, n in k.items()
                if name.startswith("instructions_") and name != "instructions_move")  # fmt: skip
    assert scaled.total("instructions") == pytest.approx(moved, rel=0.01 if impl == "flash2" else 1e-6)


def test_a_wrong_result_puts_a_tile_out() -> None:
    backend = CountingBackend(change=lambda case, result: wrong(result) if case.shape.seq_q == 128 else result)
    made = attempt(backend)
    assert (made.status, made.reason) == ("wrong_result", "At 128 x 128 the result is wrong. Row 3 is off.")
    assert made.counters == {}


def test_a_byte_that_the_model_does_not_have_puts_a_tile_out() -> None:
    made = attempt(CountingBackend(change=lambda case, result: with_a_byte_more(result)))
    assert made.status == "wrong_bytes"
    # Two heads of 99 rows of 128 B.
    assert made.reason == "At 99 x 53 flash2_fwd moves 25376 bytes of Q (read), not 25344."


@pytest.mark.parametrize(
    ("error", "status"),
    [(KernelFault("It hangs."), "failed"), (Unsupported("No compiler."), "unknown")],
)
def test_what_a_run_raises_is_a_status(error: FaBenchError, status: str) -> None:
    def fail(case: Case, result: RunResult) -> RunResult:
        raise error

    made = attempt(CountingBackend(change=fail))
    assert (made.status, made.reason) == (status, error.message)
