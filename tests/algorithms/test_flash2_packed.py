"""flash2 on packed batches, executed: right, moving what the model says, each sequence as if it were alone."""

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
from fa_bench.backends.programs import fitting_arguments, output, put_inputs
from fa_bench.cases import AttentionShape, Case, DType, Features, Layout, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.reference import make_inputs
from fa_bench.sweep.predict import predict

A100 = gpus.get("a100-sxm-80")
FLASH2 = Flash2()
NONE = Features()
ALL = Features(softcap=5.0, bias=True, alibi=True, sinks=True, dropout_p=0.2)
#: One query, no query, no key, more queries than keys, and a tile and a bit.
MIXED = ((1, 70), (0, 9), (5, 0), (90, 33), (130, 128))

emulated_only = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(
    shape: AttentionShape,
    features: Features = NONE,
    tile: Tile | None = None,
    dtype: DType = "fp16",
    layout: Layout = "bshd",
) -> Case:
    bare = Case("flash2", shape, dtype, layout=layout, seed=3, features=features)
    return replace(bare, tile=FLASH2.auto_tile(bare, A100) if tile is None else FLASH2.resolve(bare, tile))


def run(case: Case, **backend: Any) -> RunResult:
    return EmulatorBackend(jobs=1, **backend).run(case, A100)


def moved(case: Case) -> dict[tuple[str, str], int]:
    return {(t.tensor, t.op): t.bytes for t in FLASH2.traffic(case)}


def check(case: Case, **backend: Any) -> RunResult:
    result = run(case, **backend)
    assert result.verification is not None and result.verification.passed, result.verification
    assert result.counts is not None
    assert {(t.tensor, t.op): t.bytes for t in result.counts.traffic["global"]} == moved(case)
    return result


# --- right, and counted ----------------------------------------------------------------------------------------------


@emulated_only
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("features", [NONE, ALL], ids=["plain", "all"])
@pytest.mark.parametrize("mask", [(False,), (True,), (False, 40, 20)], ids=["full", "causal", "window"])
def test_sequences_of_all_kinds_under_the_emulators_checks(
    head_dim: int, features: Features, mask: tuple[Any, ...]
) -> None:
    case = case_of(AttentionShape.packed(MIXED, 2, 1, head_dim, *mask), features)
    result = check(case, checks=True)
    assert result.counts is not None and result.resources is not None
    assert result.counts.fraction == 1.0
    assert result.counts.extra["flash2_fused"]["shared_conflicts"] == 0
    assert result.resources.spill_bytes == 0


@emulated_only
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    heads=st.sampled_from([(1, 1), (3, 1), (4, 2)]),
    seqlens=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 100)), max_size=4),
    window=st.tuples(st.none() | st.integers(0, 90), st.none() | st.integers(0, 90)),
    causal=st.booleans(),
    features=st.sampled_from([NONE, ALL]),
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
def test_lengths_windows_and_features_in_any_mixture(
    dtype: DType,
    tile: Tile,
    dims: tuple[int, int | None],
    heads: tuple[int, int],
    seqlens: list[tuple[int, int]],
    window: tuple[int | None, int | None],
    causal: bool,
    features: Features,
    layout: Layout,
) -> None:
    left, right = window
    mask = (causal, left, None if causal else right)
    shape = AttentionShape.packed([*seqlens, (3, 5)], *heads, dims[0], *mask, dims[1])
    check(case_of(shape, features, tile, dtype, layout))


@emulated_only
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_sequences_of_one_length_are_the_padded_batch_to_the_bit(layout: Layout) -> None:
    # Dropout is keyed on the sequence, the bias on rows within it: both kernels do the same to the same numbers.
    padded = case_of(AttentionShape(3, 2, 1, 40, 56, 64, True, 30), ALL, Tile(32, 32), layout=layout)
    packed = replace(padded, shape=AttentionShape.packed([(40, 56)] * 3, 2, 1, 64, True, 30))
    inputs = make_inputs(padded)
    o, lse = _outputs(padded, inputs)
    packed_o, packed_lse = _outputs(packed, {**make_inputs(packed), **_packed(inputs)})
    assert np.array_equal(packed_o, _packed({"O": o})["O"])
    assert np.array_equal(packed_lse, _packed({"LSE": lse})["LSE"])


@emulated_only
def test_a_sequence_without_keys_sees_nothing_or_its_sink() -> None:
    shape = AttentionShape.packed([(3, 0), (2, 2)], 2, 2, 32)
    o, lse = _outputs(case_of(shape), make_inputs(case_of(shape)))
    assert not o[0, :, :3].any() and np.isneginf(lse[0, :, :3]).all() and np.isfinite(lse[0, :, 3:]).all()
    sunk = case_of(shape, Features(sinks=True))
    inputs = make_inputs(sunk)
    o, lse = _outputs(sunk, inputs)
    assert not o[0, :, :3].any()
    np.testing.assert_allclose(lse[0, :, :3], np.broadcast_to(inputs["sinks"][0], (2, 3)), rtol=1e-5)


def _packed(inputs: dict[str, Any]) -> dict[str, Any]:
    """``[B, H, S, D]`` as ``[1, H, B·S, D]``; what all sequences share stays."""
    return {
        name: values if name in ("bias", "slopes", "sinks") else np.concatenate(list(values), axis=1)[None]
        for name, values in inputs.items()
    }


def _outputs(case: Case, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """O and LSE of the kernel on given inputs."""
    from fa_bench import ptx

    program = FLASH2.program(case)
    launch = program.launches[0]
    compiled = compile_kernel(launch.kernel, A100.sm)
    memory = ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    put_inputs(program, raw, inputs)
    kernel = ptx.load(compiled.ptx).kernel(compiled.entry)
    args = fitting_arguments(launch, kernel, lambda name: np.uint64(memory.address(name)))
    ptx.launch(
        kernel, grid=launch.grid, block=launch.block, args=args, smem_bytes=launch.smem_bytes, memory=memory, jobs=1
    )
    return tuple(output(program, name, raw[name], case) for name in ("O", "LSE"))


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_each_sequence_starts_where_the_one_before_ended() -> None:
    # Rows of 8 fp16 are 16 bytes, half a sector. Sequence 0 has row 0: one sector. Sequence 1 has rows 1 and 2, bytes
    # 16 to 47: two sectors, where it would have one at byte 0. LSE: 4 and 8 bytes, one sector each.
    shape = AttentionShape.packed([(1, 1), (2, 2)], 1, 1, 8)
    case = case_of(shape, tile=Tile(16, 16))
    assert case.tile is not None and case.tile.num_warps == 1
    expected = {
        ("Q", "read"): 3,
        ("K", "read"): 3,
        ("V", "read"): 3,
        ("O", "write"): 3,
        ("LSE", "write"): 2,
        # Two CTAs of one warp; each reads where its sequence begins and ends.
        ("cu_seqlens_q", "read"): 4,
        ("cu_seqlens_kv", "read"): 4,
    }
    assert moved(case) == {key: sectors * 32 for key, sectors in expected.items()}
    # A CTA without queries reads that it has none, and leaves; one without keys reads its queries all the same.
    longer = replace(case, shape=AttentionShape.packed([(1, 1), (2, 2), (0, 9), (1, 0)], 1, 1, 8))
    expected |= {("Q", "read"): 4, ("O", "write"): 4, ("LSE", "write"): 3}
    expected |= {("cu_seqlens_q", "read"): 8, ("cu_seqlens_kv", "read"): 6}
    assert moved(longer) == {key: sectors * 32 for key, sectors in expected.items()}


def test_work_and_the_grid_by_hand() -> None:
    # Tiles of 64 x 64, two heads. 100 x 130: 2 Q tiles x 3 K/V tiles; 20 x 64: 1; 0 x 64: none. The grid has two CTAs
    # for each of three sequences and two heads.
    case = case_of(AttentionShape.packed([(100, 130), (20, 64), (0, 64)], 2, 1, 64), tile=Tile(64, 64))
    assert FLASH2.work(case).flops_executed == 2 * 7 * 4 * 64 * 64 * 64
    program = FLASH2.program(case)
    assert program.launches[0].grid == (12, 1, 1)
    assert program.buffer("Q").shape == (1, 2, 120, 64)
    assert program.buffer("K").shape == (1, 1, 258, 64)
    assert program.buffer("LSE").shape == (1, 2, 120)
    assert "14 of 14 pairs of a Q and a K/V tile are visited" in FLASH2.explain(case)


def test_the_dram_model_takes_it() -> None:
    case = case_of(AttentionShape.packed([(512, 512), (0, 64), (300, 200)], 4, 2, 64, window_left=100), ALL)
    made = predict(case, A100)
    dram = {(t.tensor, t.op): t.bytes for t in made.traffic["dram"]}
    # Everything fits in L2: inputs are read once. 812 rows of 4 heads, 776 of 2.
    assert dram["Q", "read"] == 4 * 812 * 128
    assert dram["K", "read"] == 2 * 776 * 128


def test_what_has_no_packed_batch_says_so() -> None:
    shape = AttentionShape.packed([(5, 7), (0, 3)], 1, 1, 64)
    standard = Case("standard", shape)
    assert algorithms.lacking(standard, algorithms.get("standard")) == "standard has no packed batch in its fwd pass."
    backward = Case("flash2", shape, direction="bwd")
    assert algorithms.lacking(backward, FLASH2) == "flash2 has no packed batch in its bwd pass."
    with pytest.raises(Unsupported, match="standard has no packed batch"):
        EmulatorBackend().run(standard, A100)
    fp32 = FLASH2.unsupported(case_of(shape, dtype="fp32"), A100)
    assert fp32 is not None and "packed batches" in fp32


# --- mutants ---------------------------------------------------------------------------------------------------------


@emulated_only
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cu_seqlens_q[batch + 1] - q_start", "max_seq_q"),
        ("cu_seqlens_kv[batch + 1] - kv_start", "max_seq_kv"),
        ("VARLEN ? cu_seqlens_kv[batch] : 0", "0"),
        ("lse_head_stride + q_start + m0", "lse_head_stride + m0"),
        ("+ kv_start * v_row_stride", ""),
    ],
)
def test_mutants_are_caught(mutant: Callable[..., Compile], old: str, new: str) -> None:
    # The longest sequence comes last, so that a row too many of another is inside the tensors.
    shape = AttentionShape.packed([(20, 40), (0, 8), (30, 24), (64, 64)], 1, 1, 64, causal=True)
    case = case_of(shape, tile=Tile(64, 64))
    result = run(case, compiler=mutant("flash2/flash2_fused.cu", (old, new)))
    assert result.verification is not None
    assert not result.verification.passed
