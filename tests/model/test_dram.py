"""The L2 model, by hand, against counters, and its order relations."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_bench.algorithms.base import Buffer, KernelSpec, Launch, Program, TensorBytes
from fa_bench.model import gpus
from fa_bench.model.dram import bytes_per_kernel, dram_traffic, live_bytes
from fa_bench.model.gpu import Gpu

A30 = gpus.get("a30")
A100 = gpus.get("a100-sxm-80")
MIB = 1024**2


def buffer(name: str, heads: int, rows: int, columns: int, role: str) -> Buffer:
    """An fp16 buffer of one batch entry in bhsd order."""
    strides = (heads * rows * columns, rows * columns, columns, 1)
    return Buffer(name, "fp16", (1, heads, rows, columns), strides, role)  # type: ignore[arg-type]


def launch(entry: str, grid: tuple[int, int, int], *, smem_bytes: int, ctas_per_slice: int) -> Launch:
    return Launch(KernelSpec("", entry), grid, (128, 1, 1), smem_bytes, (), ctas_per_slice)


def flash2(heads: int, heads_kv: int, seq: int, head_dim: int, block_m: int, smem_bytes: int) -> Program:
    blocks = seq // block_m
    return Program(
        buffers=(
            buffer("Q", heads, seq, head_dim, "input"),
            buffer("K", heads_kv, seq, head_dim, "input"),
            buffer("V", heads_kv, seq, head_dim, "input"),
            buffer("O", heads, seq, head_dim, "output"),
        ),
        launches=(launch("flash2", (blocks, heads, 1), smem_bytes=smem_bytes, ctas_per_slice=blocks),),
    )


def flash2_traffic(heads: int, seq: int, head_dim: int, block_m: int) -> tuple[TensorBytes, ...]:
    rows = heads * seq * head_dim * 2
    return (
        TensorBytes("flash2", "Q", "read", rows),
        TensorBytes("flash2", "K", "read", rows * (seq // block_m)),
        TensorBytes("flash2", "V", "read", rows * (seq // block_m)),
        TensorBytes("flash2", "O", "write", rows),
    )


def standard(seq: int, head_dim: int) -> tuple[Program, tuple[TensorBytes, ...]]:
    """Standard attention of one slice; the products read Q, K and V four times."""
    rows, scores = seq * head_dim * 2, seq * seq * 2
    program = Program(
        buffers=(
            buffer("Q", 1, seq, head_dim, "input"),
            buffer("K", 1, seq, head_dim, "input"),
            buffer("V", 1, seq, head_dim, "input"),
            buffer("O", 1, seq, head_dim, "output"),
            buffer("S", 1, seq, seq, "workspace"),
            buffer("P", 1, seq, seq, "workspace"),
        ),
        launches=tuple(
            launch(entry, (4, 1, 1), smem_bytes=0, ctas_per_slice=4) for entry in ("scores", "softmax", "pv")
        ),
    )
    return program, (
        TensorBytes("scores", "Q", "read", 4 * rows),
        TensorBytes("scores", "K", "read", 4 * rows),
        TensorBytes("scores", "S", "write", scores),
        TensorBytes("softmax", "S", "read", scores),
        TensorBytes("softmax", "P", "write", scores),
        TensorBytes("pv", "P", "read", scores),
        TensorBytes("pv", "V", "read", 4 * rows),
        TensorBytes("pv", "O", "write", rows),
    )


def by_tensor(traffic: tuple[TensorBytes, ...]) -> dict[tuple[str, str, str], int]:
    return {(part.kernel, part.tensor, part.op): part.bytes for part in traffic}


@pytest.mark.parametrize("counted_mb", [83.83, 83.57, 84.33, 84.16, 84.55, 84.39])
def test_flash2_on_an_a30_agrees_with_its_counters(counted_mb: float) -> None:
    # Nsight Compute, dram bytes of FlashAttention-2 with 128 x 64 tiles, S = 4096, 32 heads on 8, D = 128, six
    # masks. By the model: 64 KiB of tiles let 2 CTAs run on an SM, 112 in all. With 32 CTAs a slice they touch at
    # most ceil(111 / 32) + 1 = 5 slices, so ceil(4 / 4) + 1 = 2 K/V heads of 2 MiB (K and V): they fit in 24 MiB,
    # and everything moves once: Q and O 32 MiB each, K and V 8 MiB each, 80 MiB = 83.89 MB.
    program = flash2(32, 8, 4096, 128, block_m=128, smem_bytes=65536)
    traffic = dram_traffic(program, flash2_traffic(32, 4096, 128, 128), A30)
    total = sum(part.bytes for part in traffic)
    assert total == 80 * MIB
    assert total / 1e6 == pytest.approx(counted_mb, rel=0.01)


def test_repeats_that_do_not_fit_all_miss() -> None:
    # One slice of S = 64k, D = 128: K and V are 32 MiB together, more than an A30's 24 MiB. Q and O are asked for
    # once and move once.
    program = flash2(1, 1, 65536, 128, block_m=128, smem_bytes=65536)
    traffic = flash2_traffic(1, 65536, 128, 128)
    assert dram_traffic(program, traffic, A30) == traffic
    # An A100 has 40 MiB.
    dram = dram_traffic(program, traffic, A100)
    assert [(part.tensor, part.bytes) for part in dram] == [(name, 16 * MIB) for name in "QKVO"]


def test_ctas_that_are_not_ordered_by_slice_touch_everything() -> None:
    # K and V of 8 heads are 16 MiB; of one head 2 MiB. An L2 of 8 MiB holds the second, not the first.
    program = flash2(8, 8, 4096, 128, block_m=128, smem_bytes=163 * 1024)
    unordered = dataclasses.replace(
        program, launches=tuple(dataclasses.replace(part, ctas_per_slice=0) for part in program.launches)
    )
    small = dataclasses.replace(A100, l2_bytes=8 * MIB, sm_count=32)  # 32 CTAs in flight touch at most 2 slices
    traffic = flash2_traffic(8, 4096, 128, 128)
    assert by_tensor(dram_traffic(program, traffic, small))["flash2", "K", "read"] == 8 * MIB
    assert dram_traffic(unordered, traffic, small) == traffic


def test_standard_attention_that_fits_moves_inputs_and_output_once() -> None:
    # S = 1024, D = 64: 4 * 128 KiB + 2 * 2 MiB = 4.5 MiB of 40
    program, traffic = standard(1024, 64)
    dram = by_tensor(dram_traffic(program, traffic, A100))
    assert {key: nbytes for key, nbytes in dram.items() if nbytes} == {
        ("scores", "Q", "read"): 131072,
        ("scores", "K", "read"): 131072,
        ("pv", "V", "read"): 131072,
        ("pv", "O", "write"): 131072,
    }


def test_standard_attention_that_does_not_fit_moves_scores_four_times() -> None:
    # S = 4096, D = 64: S and P are 32 MiB each. Q, K, V, O are 512 KiB each and are read from L2 when repeated.
    program, traffic = standard(4096, 64)
    dram = by_tensor(dram_traffic(program, traffic, A100))
    scores, rows = 32 * MIB, MIB // 2
    assert dram == {
        ("scores", "Q", "read"): rows,
        ("scores", "K", "read"): rows,
        ("scores", "S", "write"): scores,
        ("softmax", "S", "read"): scores,
        ("softmax", "P", "write"): scores,
        ("pv", "P", "read"): scores,
        ("pv", "V", "read"): rows,
        ("pv", "O", "write"): rows,
    }
    assert bytes_per_kernel(dram_traffic(program, traffic, A100)) == {
        "scores": scores + 2 * rows,
        "softmax": 2 * scores,
        "pv": scores + 2 * rows,
    }


def test_an_input_that_two_kernels_read_is_read_once_if_all_fits() -> None:
    program, traffic = standard(1024, 64)
    again = (*traffic, TensorBytes("pv", "Q", "read", 131072))
    assert by_tensor(dram_traffic(program, again, A100))["pv", "Q", "read"] == 0


def test_a_part_of_a_tensor_is_not_rounded_up_to_all_of_it() -> None:
    # A causal kernel that never reads the last keys asks for less than K.
    program = flash2(32, 8, 4096, 128, block_m=128, smem_bytes=65536)
    some = (TensorBytes("flash2", "K", "read", 1000),)
    assert dram_traffic(program, some, A30) == some


@pytest.mark.parametrize(
    ("heads", "slices", "live", "expected_heads"),
    [
        (32, 32, 5, 5),  # one slice a head
        (8, 32, 1, 1),  # a slice belongs to one group of 4
        (8, 32, 2, 2),  # two may straddle a boundary
        (8, 32, 5, 2),
        (8, 32, 6, 3),
        (1, 32, 32, 1),
        (8, 32, 32, 8),
    ],
)
def test_live_bytes(heads: int, slices: int, live: int, expected_heads: int) -> None:
    kv = buffer("K", heads, 16, 8, "input")
    assert live_bytes(kv, slices, live) == expected_heads * 16 * 8 * 2


@given(
    st.sampled_from([(8, 8), (8, 2), (8, 1)]),
    st.sampled_from([256, 1024, 4096, 16384]),
    st.sampled_from(gpus.all_gpus()),
    st.integers(1, 64),
)
def test_more_cache_never_moves_more_and_dram_never_exceeds_global(
    heads: tuple[int, int], seq: int, gpu: Gpu, l2_mib: int
) -> None:
    program = flash2(*heads, seq, 64, block_m=64, smem_bytes=24576)
    traffic = flash2_traffic(heads[0], seq, 64, 64)
    small = dram_traffic(program, traffic, dataclasses.replace(gpu, l2_bytes=l2_mib * MIB))
    large = dram_traffic(program, traffic, dataclasses.replace(gpu, l2_bytes=2 * l2_mib * MIB))
    for asked, more, less in zip(traffic, small, large, strict=True):
        size = program.buffer(asked.tensor).nbytes
        assert min(asked.bytes, size) <= less.bytes <= more.bytes <= asked.bytes
