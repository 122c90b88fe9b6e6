"""FlashAttention-2's backward kernels, executed: right, moving what the model says; and not so if changed."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fa_bench import ptx, reference
from fa_bench.algorithms.base import Scalar
from fa_bench.algorithms.flash2 import Flash2, Flash2Atomic
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.backends.programs import arguments
from fa_bench.cases import AttentionShape, Case, Direction, DType, Layout, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
FLASH2, ATOMIC = Flash2(), Flash2Atomic()
DKDV = "flash2_bwd_dkdv"

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(
    shape: AttentionShape,
    tile: Tile | None,
    dtype: DType = "fp16",
    layout: Layout = "bhsd",
    *,
    algorithm: Flash2 = FLASH2,
    direction: Direction = "bwd",
) -> Case:
    bare = Case(algorithm.name, shape, dtype, layout=layout, direction=direction)
    return replace(bare, tile=algorithm.auto_tile(bare, A100) if tile is None else algorithm.resolve(bare, tile))


def model(case: Case, algorithm: Flash2 = FLASH2) -> dict[tuple[str, str, str], int]:
    return {(t.kernel, t.tensor, t.op): t.bytes for t in algorithm.traffic(case) if t.bytes}


def emulated(result: RunResult) -> dict[tuple[str, str, str], int]:
    assert result.counts is not None
    return {(t.kernel, t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}


def conflicts(result: RunResult) -> dict[str, int]:
    assert result.counts is not None
    return {kernel: extra["shared_conflicts"] for kernel, extra in result.counts.extra.items()}


def run(case: Case, **backend: Any) -> RunResult:
    result = EmulatorBackend(jobs=1, all_slices=True, **backend).run(case, A100)
    assert result.verification is not None and result.verification.passed, result.verification
    return result


# --- right, and counted ----------------------------------------------------------------------------------------------

shapes = st.tuples(
    st.integers(1, 2),  # batch
    st.sampled_from([(1, 1), (3, 1), (4, 2)]),  # heads_q, heads_kv
    st.integers(1, 110),  # seq_q
    st.integers(1, 130),  # seq_kv
)


@pytest.mark.parametrize(
    ("algorithm", "dtype", "tile", "causal", "head_dims"),
    [
        (FLASH2, "fp16", Tile(64, 32, 2), True, [40, 64]),
        (FLASH2, "bf16", Tile(48, 32, 1), False, [72, 96]),  # one warp of 48 rows: two instructions for its LSE
        (FLASH2, "fp32", Tile(16, 32, 1), True, [24, 32]),
        (ATOMIC, "fp16", Tile(32, 64, 2), True, [40, 64]),
        (ATOMIC, "fp32", Tile(32, 32, 1), False, [24, 32]),
    ],
)
def test_any_shape_is_right_and_moves_what_the_model_says(
    algorithm: Flash2, dtype: DType, tile: Tile, causal: bool, head_dims: list[int]
) -> None:
    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(shapes, st.sampled_from(head_dims), st.sampled_from(["bhsd", "bshd"]))
    def check(shape: tuple[int, tuple[int, int], int, int], head_dim: int, layout: Layout) -> None:
        batch, (heads_q, heads_kv), seq_q, seq_kv = shape
        attention = AttentionShape(batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, causal)
        case = case_of(attention, tile, dtype, layout, algorithm=algorithm)
        result = run(case)
        assert emulated(result) == model(case, algorithm)
        assert not any(conflicts(result).values())

    check()


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
def test_large_heads_whose_columns_warps_split(algorithm: Flash2) -> None:
    case = case_of(AttentionShape(1, 2, 1, 40, 70, 200, causal=True), Tile(32, 32, 2), "bf16", algorithm=algorithm)
    result = run(case)
    assert emulated(result) == model(case, algorithm)
    assert not any(conflicts(result).values())


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
def test_checks_find_nothing_in_both_passes(algorithm: Flash2) -> None:
    # Queries 0-25 see nothing: two tiles of 16 of them have no K/V tile, or copies in flight to wait for.
    shape = AttentionShape(1, 2, 1, 70, 44, 40, causal=True)
    case = case_of(shape, Tile(32, 32, 2), "fp16", "bshd", algorithm=algorithm, direction="fwd+bwd")
    assert emulated(run(case, checks=True)) == model(case, algorithm)


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
def test_the_flops_of_the_model_are_the_mma_instructions_executed(algorithm: Flash2) -> None:
    # A warp's mma.m16n8k16 is 2 · 16 · 8 · 16 = 4096 FLOPs.
    case = case_of(AttentionShape(1, 2, 1, 100, 150, 40, causal=True), Tile(64, 64, 2), algorithm=algorithm)
    counts = run(case).counts
    assert counts is not None
    executed = sum(extra.get("instructions_tensor", 0) for extra in counts.extra.values())
    assert executed * 4096 == algorithm.work(case).flops_executed


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_default_tiles_have_no_conflicts(algorithm: Flash2, head_dim: int) -> None:
    assert not any(
        conflicts(run(case_of(AttentionShape(1, 1, 1, 80, 80, head_dim), None, algorithm=algorithm))).values()
    )


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
def test_offsets_are_64_bits_wide(algorithm: Flash2) -> None:
    # Batch 1 of 2, head 1 of 2, 2^34 and 2^33 elements behind the first, whose memory does not exist: the pointers are
    # moved down by as much, so that only exact 64-bit arithmetic arrives in the buffers. LSE, delta and dQ_acc have no
    # strides. Every input is 1: P is 1/16 everywhere, delta and dP are 32, so that dV = 1, and dQ = dK = 0.
    case = case_of(AttentionShape(2, 2, 2, 16, 16, 32), Tile(32, 16), algorithm=algorithm)
    program = algorithm.program(case)
    batch, head = 2**34, 2**33
    memory = ptx.Memory()
    raw, pointers = {}, {}
    for buffer in program.buffers:
        strided = buffer.dtype == "fp16"
        raw[buffer.name] = memory.allocate(buffer.name, 16 * 32 * 2 if strided else buffer.nbytes)
        moved = 2 * (batch + head) if strided else 0
        pointers[buffer.name] = np.uint64((memory.address(buffer.name) - moved) % 2**64)
        if strided:
            raw[buffer.name].view(np.float16)[:] = 1
    raw["LSE"].view(np.float32)[:] = math.sqrt(32) + math.log(16)
    for launch in program.launches:
        strides = itertools.cycle((batch, head, 32))
        args = [
            replace(arg, value=next(strides)) if isinstance(arg, Scalar) and arg.ctype == "i64" else arg
            for arg in launch.args
        ]
        ptx.launch(
            ptx.load(compile_kernel(launch.kernel, A100.sm).ptx).kernel(launch.kernel.entry),
            grid=launch.grid,
            block=launch.block,
            args=arguments(replace(launch, args=tuple(args)), pointers.__getitem__),
            smem_bytes=launch.smem_bytes,
            memory=memory,
            ctas=[3],
        )
    assert np.abs(raw["dV"].view(np.float16) - 1).max() < 1e-3
    assert max(np.abs(raw[name].view(np.float16)).max() for name in ("dQ", "dK")) < 1e-3


# --- masks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_keys_beyond_the_end_never_count_against_very_low_scores(
    algorithm: Flash2, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every score is -20000 / sqrt(8), and so is LSE. A key of zeros beyond the end would have score 0 and P = e^7071,
    # infinity; times the zeros that are its K, dQ would be NaN.
    storage = np.float16 if dtype == "fp16" else np.float32
    q, k, v, do = (np.zeros((1, 1, 20, 8), storage) for _ in range(4))
    q[..., 0], k[..., 0] = -20000, 1
    v[..., 1] = np.arange(20) / 16
    do[..., 1] = 1
    monkeypatch.setattr(reference, "make_inputs", lambda case: {"Q": q, "K": k, "V": v, "dO": do})
    run(case_of(AttentionShape(1, 1, 1, 20, 20, 8), Tile(32, 32), dtype, algorithm=algorithm))


# --- what the compiler makes of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [FLASH2, ATOMIC])
@pytest.mark.parametrize(("dtype", "head_dim"), [("fp16", 64), ("bf16", 96), ("fp16", 128), ("fp32", 64)])
def test_default_tiles_spill_nothing(algorithm: Flash2, dtype: DType, head_dim: int) -> None:
    for causal in (False, True):
        case = case_of(AttentionShape(1, 1, 1, 4096, 4096, head_dim, causal), None, dtype, algorithm=algorithm)
        for launch in algorithm.program(case).launches:
            compiled = compile_kernel(launch.kernel, "sm_80")
            assert (compiled.spill_bytes, compiled.static_smem_bytes) == (0, 0)
            spaces = set(re.findall(r"\b(?:ld|st|red)\.(\w+)", compiled.ptx))
            assert spaces <= {"param", "global", "shared"}


# --- the equality can fail, and so can the result --------------------------------------------------------------------


def test_the_equality_fails_for_a_kernel_that_skips_nothing(mutant: Callable[..., Compile]) -> None:
    # K/V tile 1 of two reads Q tile 0 too: 32 rows of Q and dO, of 128 bytes, and of LSE and delta.
    old = "RIGHT ? max(0, n0 - newest) / BLOCK_M * BLOCK_M : 0"
    compiler = mutant("flash2/flash2_bwd_dkdv.cu", (old, "0"))
    case = case_of(AttentionShape(1, 1, 1, 64, 64, 64, causal=True), Tile(32, 32))
    difference = Counter(emulated(run(case, compiler=compiler)))  # still right
    difference.subtract(model(case))
    expected = {"Q": 32 * 128, "dO": 32 * 128, "LSE": 128, "delta": 128}
    found = {key: nbytes for key, nbytes in difference.items() if nbytes}
    assert found == {(DKDV, tensor, "read"): nbytes for tensor, nbytes in expected.items()}


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        # dO of the step may not have arrived for other warps than the one that copied it.
        ("flash2_bwd_dkdv.cu", "cp_async_wait_group<0>();\n        __syncthreads();", "cp_async_wait_group<0>();"),
        ("flash2_bwd_dq.cu", "dq[m][d][i] *= scale;", "dq[m][d][i] *= scale_log2;"),
        ("flash2_bwd_dq.cu", "= -shfl_sync_idx(row_delta,", "= shfl_sync_idx(row_delta,"),
    ],
    ids=["missing barrier", "scale", "sign of delta"],
)
def test_mistakes_are_seen(source: str, old: str, new: str, mutant: Callable[..., Compile]) -> None:
    compiler = mutant(f"flash2/{source}", (old, new))
    case = case_of(AttentionShape(1, 1, 1, 64, 64, 32), Tile(32, 32))
    result = EmulatorBackend(jobs=1, all_slices=True, compiler=compiler).run(case, A100)
    assert result.verification is not None and not result.verification.passed
