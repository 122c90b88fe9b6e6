"""FlashAttention-2's kernels, executed: right, moving what the model says, free of conflicts; and not so if changed."""

from __future__ import annotations

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
from fa_bench.algorithms.base import KernelSpec
from fa_bench.algorithms.flash2 import Flash2
from fa_bench.backends import why_not
from fa_bench.backends.base import RunResult
from fa_bench.backends.emulator import Compile, EmulatorBackend
from fa_bench.backends.programs import arguments
from fa_bench.cases import AttentionShape, Case, DType, Layout, Tile
from fa_bench.compiler import CompiledKernel, compile_kernel
from fa_bench.model import gpus

A100 = gpus.get("a100-sxm-80")
FLASH2 = Flash2()
KERNEL = "flash2_fwd"

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(shape: AttentionShape, tile: Tile, dtype: DType = "fp16", layout: Layout = "bhsd") -> Case:
    bare = Case("flash2", shape, dtype, layout=layout)
    return replace(bare, tile=FLASH2.resolve(bare, tile))


def model(case: Case) -> dict[tuple[str, str], int]:
    return {(t.tensor, t.op): t.bytes for t in FLASH2.traffic(case)}


def emulated(result: RunResult) -> dict[tuple[str, str], int]:
    assert result.counts is not None
    return {(t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]}


def conflicts(result: RunResult) -> int:
    assert result.counts is not None
    return result.counts.extra[KERNEL]["shared_conflicts"]


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
    ("dtype", "tile", "causal", "head_dims"),
    [
        ("fp16", Tile(64, 32, 2), True, [40, 64]),
        ("bf16", Tile(32, 48, 1), False, [72, 96]),
        ("bf16", Tile(48, 16, 2), True, [8, 24]),  # one warp of 48 rows: two instructions for its LSE
        ("fp32", Tile(32, 32, 2), True, [40, 64]),
    ],
)
def test_any_shape_is_right_and_moves_what_the_model_says(
    dtype: DType, tile: Tile, causal: bool, head_dims: list[int]
) -> None:
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(shapes, st.sampled_from(head_dims), st.sampled_from(["bhsd", "bshd"]))
    def check(shape: tuple[int, tuple[int, int], int, int], head_dim: int, layout: Layout) -> None:
        batch, (heads_q, heads_kv), seq_q, seq_kv = shape
        case = case_of(AttentionShape(batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, causal), tile, dtype, layout)
        result = run(case)
        assert emulated(result) == model(case)
        assert conflicts(result) == 0

    check()


@pytest.mark.parametrize(
    ("dtype", "head_dim", "tile"),
    [("fp16", 128, Tile(64, 32, 1)), ("bf16", 200, Tile(32, 16, 2))],
)
def test_large_heads(dtype: DType, head_dim: int, tile: Tile) -> None:
    case = case_of(AttentionShape(1, 2, 1, 70, 90, head_dim, causal=True), tile, dtype)
    result = run(case)
    assert emulated(result) == model(case)
    assert conflicts(result) == 0


def launch_raw(case: Case, memory: ptx.Memory, args: list[Any], ctas: list[int] | None = None) -> ptx.LaunchCounters:
    """The case's kernel on memory and arguments of the test's own."""
    (launch,) = FLASH2.program(case).launches
    return ptx.launch(
        ptx.load(compile_kernel(launch.kernel, A100.sm).ptx).kernel(KERNEL),
        grid=launch.grid,
        block=launch.block,
        args=args,
        smem_bytes=launch.smem_bytes,
        memory=memory,
        ctas=ctas,
    )


def test_more_slices_than_a_grid_axis_holds() -> None:
    case = case_of(AttentionShape(2, 32769, 32769, 1, 3, 32), Tile(16, 16))
    program = FLASH2.program(case)
    memory = ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    for name in "QKV":
        raw[name].view(np.float16)[:] = 1
    ran = [0, 65535, 65536, 65537]
    launch_raw(case, memory, arguments(program.launches[0], lambda name: np.uint64(memory.address(name))), ran)
    # Every value is 1, so every output is; the other slices still hold the poison of a new buffer, NaN.
    o = raw["O"].view(np.float16).reshape(65538, 32)
    assert np.flatnonzero((o == 1).all(axis=1)).tolist() == ran
    assert np.isnan(np.delete(o, ran, axis=0)).all()


def test_the_flops_of_the_model_are_the_mma_instructions_executed() -> None:
    # A warp's mma.m16n8k16 is 2 · 16 · 8 · 16 = 4096 FLOPs.
    case = case_of(AttentionShape(1, 2, 1, 100, 150, 40, causal=True), Tile(64, 32, 2))
    program = FLASH2.program(case)
    memory = ptx.Memory()
    for buffer in program.buffers:
        memory.allocate(buffer.name, buffer.nbytes)[:] = 0
    counters = launch_raw(case, memory, arguments(program.launches[0], lambda name: np.uint64(memory.address(name))))
    assert counters.instructions["tensor"] * 4096 == FLASH2.work(case).flops_executed


def test_offsets_are_64_bits_wide() -> None:
    # Batch 1 of 2, head 1 of 2, 2^34 and 2^33 elements behind the first, whose memory does not exist: the pointers
    # are moved down by as much, so that only exact 64-bit arithmetic arrives in the buffers.
    case = case_of(AttentionShape(2, 2, 2, 16, 16, 32), Tile(16, 16))
    memory = ptx.Memory()
    raw = {name: memory.allocate(name, 16 * 32 * 2) for name in "QKVO"}
    memory.allocate("LSE", 4 * 16 * 4)
    for name in "QKV":
        raw[name].view(np.float16)[:] = 1
    batch, head = 2**34, 2**33
    pointers = [np.uint64((memory.address(name) - 2 * (batch + head)) % 2**64) for name in "QKVO"]
    strides = [np.int64(stride) for _ in "QKVO" for stride in (batch, head, 32)]
    sizes_and_scale = arguments(FLASH2.program(case).launches[0], lambda name: name)[-6:]
    args = [*pointers, np.uint64(memory.address("LSE")), *strides, *sizes_and_scale]
    launch_raw(case, memory, args, ctas=[3])
    assert (raw["O"].view(np.float16) == 1).all()  # every key has the same score, and every value is 1


# --- masks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_a_masked_key_never_wins_against_very_low_scores(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    # Query 0 sees only key 0, with score -20000 / sqrt(8); the 15 other keys of its tile are masked. A mask of, say,
    # -1e4 instead of -inf would let them win.
    storage = np.float16 if dtype == "fp16" else np.float32
    q, k = (np.zeros((1, 1, 48, 8), storage) for _ in range(2))
    q[..., 0], k[..., 0] = -20000, 1
    v = np.full((1, 1, 48, 8), 100, storage)
    v[0, 0, 0] = 1
    monkeypatch.setattr(reference, "make_inputs", lambda case: {"Q": q, "K": k, "V": v})
    run(case_of(AttentionShape(1, 1, 1, 48, 48, 8, causal=True), Tile(16, 16), dtype))


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_rows_without_keys_beside_rows_with_some(dtype: DType) -> None:
    # Queries 0-16 see nothing (O = 0, LSE = -inf: the verification demands it), 17 sees one key, 39 sees all 23.
    run(case_of(AttentionShape(1, 1, 1, 40, 23, 32, causal=True), Tile(16, 16, 2), dtype))


# --- what the compiler makes of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "head_dim"), [("fp16", 64), ("bf16", 96), ("fp16", 128), ("fp32", 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_default_tiles_spill_nothing(dtype: DType, head_dim: int, causal: bool) -> None:
    case = Case("flash2", AttentionShape(1, 1, 1, 4096, 4096, head_dim, causal), dtype)
    case = replace(case, tile=FLASH2.auto_tile(case, A100))
    compiled = compile_kernel(FLASH2.program(case).launches[0].kernel, "sm_80")
    assert compiled.spill_bytes == 0
    assert compiled.static_smem_bytes == 0
    # Every access names its state space, and none of them is local: no array lives outside the registers.
    spaces = set(re.findall(r"\b(?:ld|st)\.(\w+)", compiled.ptx))
    assert spaces <= {"param", "global", "shared"}


# --- shared memory without the swizzle -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "head_dim", "expected"),
    [
        # One warp, one tile of 16 rows of Q, K and V. ldmatrix.x4 reads four matrices of 8 rows at one chunk column:
        # D/16 for Q, D/16 for K (two n-tiles at a time), D/16 for V. Staging O takes 2 · D/8 stores of 8 rows x 16
        # bytes. Rows of 128 bytes or a multiple put all 8 rows into one bank group: 8 wavefronts, 7 too many.
        # D = 64: 12 ldmatrix · 4 · 7 + 16 stores · 7.
        ("fp16", 64, 12 * 4 * 7 + 16 * 7),
        ("bf16", 128, 24 * 4 * 7 + 32 * 7),
        # Rows of 64 bytes alternate between two bank groups: 4 wavefronts, 3 too many.
        ("fp16", 32, 6 * 4 * 3 + 8 * 3),
        # fp32: per chunk of 4 columns two 128-bit loads of K in four phases, each 8 rows at one chunk. Q is a
        # broadcast, V eight neighbouring chunks, O goes from registers to global memory.
        ("fp32", 64, 16 * 2 * 4 * 7),
    ],
)
def test_without_the_swizzle_conflicts_are_those_worked_out_by_hand(dtype: DType, head_dim: int, expected: int) -> None:
    def unswizzled(spec: KernelSpec, sm: str) -> CompiledKernel:
        return compile_kernel(replace(spec, defines=(*spec.defines, ("SWIZZLE", "0"))), sm)

    case = case_of(AttentionShape(1, 1, 1, 16, 16, head_dim), Tile(16, 16, num_warps=1), dtype)
    assert conflicts(run(case)) == 0
    changed = run(case, compiler=unswizzled)
    assert conflicts(changed) == expected
    assert emulated(changed) == model(case)


# --- the equality can fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "old", "new", "expected"),
    [
        # Q once more: 64 rows of 128 bytes.
        (
            "flash2/flash2_fwd.cu",
            "    load_k(0);",
            "    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tile, Q, q_row_stride, q_rows, head_dim);\n    load_k(0);",
            {("Q", "read"): 64 * 128},
        ),
        # No skipping: Q tiles 0 and 1 (rows 0-31, 32-63) read 32 and 0 more of the 64 rows of K and V.
        (
            "flash2/flash2_fwd.cu",
            "CAUSAL ? max(0, m0 + q_rows + diagonal) : seq_kv",
            "seq_kv",
            {("K", "read"): 32 * 128, ("V", "read"): 32 * 128},
        ),
        # O in halves of sectors: even chunks by one instruction, odd ones by the next. Each asks for every sector.
        (
            "common/tile.cuh",
            "st_global_v4_b32(target + group * CHUNK_ELEMENTS, ld_shared_v4_b32(tile + offset), inside);",
            "for (int odd = 0; odd < 2; odd++) st_global_v4_b32(target + group * CHUNK_ELEMENTS,"
            " ld_shared_v4_b32(tile + offset), inside && chunk % 2 == odd);",
            {("O", "write"): 64 * 128},
        ),
    ],
    ids=["extra load", "missing skip", "half-sector store"],
)
def test_the_equality_fails_for_a_kernel_that_moves_more(
    source: str, old: str, new: str, expected: dict[tuple[str, str], int], mutant: Callable[..., Compile]
) -> None:
    case = case_of(AttentionShape(1, 1, 1, 64, 64, 64, causal=True), Tile(32, 32))
    result = run(case, compiler=mutant(source, (old, new)))  # still right
    difference = Counter(emulated(result))
    difference.subtract(model(case))
    assert {key: nbytes for key, nbytes in difference.items() if nbytes} == expected


def test_a_missing_barrier_is_seen(mutant: Callable[..., Compile]) -> None:
    # K arrives for a thread's own copies only; what the other warps copied is not there without the barrier.
    source = "flash2/flash2_fwd.cu"
    old = "        __syncthreads();\n        if (STAGES == 1) load_v(block);"
    compiler = mutant(source, (old, "        if (STAGES == 1) load_v(block);"))
    case = case_of(AttentionShape(1, 1, 1, 32, 32, 32), Tile(32, 16))
    result = EmulatorBackend(jobs=1, all_slices=True, compiler=compiler).run(case, A100)
    assert result.verification is not None and not result.verification.passed


def test_a_scale_of_the_padded_head_dim_is_seen(mutant: Callable[..., Compile]) -> None:
    case = case_of(AttentionShape(1, 1, 1, 64, 64, 40), Tile(32, 32))
    wrong = f"scale * {math.sqrt(40 / 64)}f"
    compiler = mutant("flash2/flash2_fwd.cu", ("scale_log2 = scale *", f"scale_log2 = {wrong} *"))
    result = EmulatorBackend(jobs=1, all_slices=True, compiler=compiler).run(case, A100)
    assert result.verification is not None and not result.verification.passed
