"""Kernels in the shapes that public tutorials teach, written without this project's sources in mind: their results
against float64, and their counts against a calculation by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fa_bench
from fa_bench.profiling.result import KernelProfile

pytestmark = pytest.mark.usefixtures("nvrtc")

Float64 = NDArray[np.float64]


def attention(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], scale: float) -> Float64:
    """softmax(scale · q · kᵀ) · v in float64."""
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)


def drawn(rows: int, dim: int, dtype: type, seed: int) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(dtype)


def counted(report: KernelProfile) -> dict[tuple[str, str], tuple[int, int]]:
    """(tensor, op) -> requests and sectors."""
    return {(moved.tensor, moved.op): (moved.requests, moved.sectors) for moved in report.traffic}


def line(report: KernelProfile, text: str) -> Any:
    """The line of source that begins with ``text``."""
    (found,) = (line for line in report.lines if line.text.startswith(text))
    return found


def test_one_row_per_thread(kernels: Path) -> None:
    seq, dim = 64, 32
    q, k, v = (drawn(seq, dim, np.float32, seed) for seed in range(3))
    arguments = {"Q": q, "K": k, "V": v, "O": "out:f32[64,32]", "seq": seq, "dim": dim, "scale": 0.2}
    report = fa_bench.profile(kernels / "row_per_thread.cu", "attention_naive", 2, 32, arguments)
    assert np.abs(report.outputs["O"] - attention(q, k, v, 0.2)).max() < 1e-5
    # Two warps. A warp reads an element of Q for each key and d, in two passes: 2 · 64 · 32 requests. Its lanes' rows
    # are 128 bytes apart, so each request is 32 sectors. K and V are the same for all lanes: one sector a request.
    # O is set to zero (32 requests), read and written for each key and d, and divided (32 reads and writes).
    passes = 2 * seq * dim
    assert counted(report) == {
        ("Q", "read"): (2 * passes, 2 * passes * 32),
        ("K", "read"): (2 * passes, 2 * passes),
        ("V", "read"): (passes, passes),
        ("O", "read"): (passes + 2 * dim, (passes + 2 * dim) * 32),
        ("O", "write"): (passes + 4 * dim, (passes + 4 * dim) * 32),
    }
    # Side by side 32 floats are four sectors; what is broadcast can't be less than it is.
    assert {moved.tensor: moved.least_sectors / moved.requests for moved in report.traffic if moved.op == "read"} == {
        "Q": 4,
        "K": 1,
        "V": 1,
        "O": 4,
    }
    assert report.lane_share == 1.0
    assert report.wavefronts == 0
    update = line(report, "O[row * dim + d] += weight")
    assert update.read_sectors == passes * 33  # of O a sector per lane, of V one
    assert update.tensors == ("O", "V")


def test_rows_that_do_not_fill_a_warp_diverge(kernels: Path) -> None:
    seq, dim = 40, 8
    q, k, v = (drawn(seq, dim, np.float32, seed) for seed in range(3))
    arguments = {"Q": q, "K": k, "V": v, "O": "out:f32[40,8]", "seq": seq, "dim": dim, "scale": 0.3}
    report = fa_bench.profile(kernels / "row_per_thread.cu", None, 2, 32, arguments)
    assert np.abs(report.outputs["O"] - attention(q, k, v, 0.3)).max() < 1e-5
    assert not report.unwritten
    # After the first lines the second warp has 8 of its 32 lanes: the average is a little above (32 + 8) / 2 / 32.
    assert 0.625 < report.lane_share < 0.64
    # Rows are 32 bytes here: 32 and 8 sectors for each of 2 · 40 · 8 requests of either warp.
    assert counted(report)["Q", "read"] == (2 * 640, 640 * (32 + 8))


def test_tiles_in_shared_memory(kernels: Path) -> None:
    seq, tile = 128, 32
    q, k, v = (drawn(seq, 64, np.float32, seed) for seed in range(3))
    arguments = {"Q": q, "K": k, "V": v, "O": "out:f32[128,64]", "seq": seq, "scale": 0.125}
    smem_bytes = (2 * tile * 64 + tile * tile) * 4
    report = fa_bench.profile(kernels / "shared_tiles.cu", "flash_tiles", 4, tile, arguments, smem_bytes=smem_bytes)
    assert np.abs(report.outputs["O"] - attention(q, k, v, 0.125)).max() < 1e-5
    # Four CTAs of one warp. Q and O: 64 elements of each row, the rows 256 bytes apart: 32 sectors a request.
    # K and V: four tiles of 32 · 64 floats, 32 neighbours a request.
    loads = 4 * 4 * tile * 64 // 32
    assert counted(report) == {
        ("Q", "read"): (4 * 64, 4 * 64 * 32),
        ("K", "read"): (loads, loads * 4),
        ("V", "read"): (loads, loads * 4),
        ("O", "write"): (4 * 64, 4 * 64 * 32),
    }
    # The lanes' rows of scores are 32 words apart, so all lanes meet one bank: 32 wavefronts instead of one, for each
    # of 4 CTAs · 4 tiles · 32 keys, once written and once read. Everything else is free of conflicts.
    accesses = 4 * 4 * 32
    assert line(report, "scores[tx * TILE + j] = dot").conflicts == accesses * 31
    assert line(report, "const float p = __expf(").conflicts == accesses * 31
    assert report.conflicts == 2 * accesses * 31
    assert report.resources.smem_bytes == smem_bytes
    # 164 KiB of an SM hold seven times 20 KiB and the 1 KiB that the driver keeps.
    assert (report.occupancy.blocks_per_sm, report.occupancy.limits) == (7, ("shared memory",))


@pytest.mark.parametrize("dim", [64, 128])
def test_a_warp_per_row(kernels: Path, dim: int) -> None:
    queries, keys = 64, 48
    q, k, v = (drawn(rows, dim, np.float16, seed) for seed, rows in enumerate((queries, keys, keys)))
    arguments = {"q": q, "k": k, "v": v, "out": f"out:f16[64,{dim}]", "queries": 64, "keys": keys, "scale": 0.125}
    report = fa_bench.profile(kernels / "warp_per_row.cu", f"tutorial::warp_attention<{dim}>", grid=16, args=arguments)
    # The block is what __launch_bounds__ says.
    assert report.block == (128, 1, 1)
    o = report.outputs["out"]
    # A half has 11 bits: an output below 4 is rounded by 2^-10 at most.
    assert np.abs(o - attention(q, k, v, 0.125)).max() < 2**-9
    # A lane reads pairs of halves: 128 bytes and four sectors a request, one or two requests a row.
    row = dim // 64
    assert counted(report) == {
        ("q", "read"): (queries * row, queries * row * 4),
        ("k", "read"): (queries * keys * row, queries * keys * row * 4),
        ("v", "read"): (queries * keys * row, queries * keys * row * 4),
        ("out", "write"): (queries * row, queries * row * 4),
    }
    assert report.wavefronts == 0
    # Five shuffles and five additions a key, at least: __shfl_xor_sync with its mask and limits takes more.
    assert line(report, "value += __shfl_xor_sync").instructions >= 10 * queries * keys


@pytest.mark.parametrize(("pad", "conflicts"), [(0, 31), (1, 0)])
def test_a_transposition_with_and_without_padding(kernels: Path, pad: int, conflicts: int) -> None:
    x = drawn(128, 128, np.float32, 0)
    arguments = {"in": x, "out": "out:f32[128,128]", "width": 128}
    report = fa_bench.profile(kernels / "transpose.cu", "transpose", (4, 4), (32, 8), arguments, defines={"PAD": pad})
    assert np.array_equal(report.outputs["out"], x.T)
    # 128 · 128 floats, 32 a request, four sectors each, read once and written once.
    assert counted(report) == {("in", "read"): (512, 2048), ("out", "write"): (512, 2048)}
    # A column of the tile: 32 rows of 32 words are one bank, rows of 33 words are all banks.
    assert report.conflicts == 512 * conflicts
    assert line(report, "out[(y + j) * width + x]").conflicts == 512 * conflicts
    assert "The file's host code was left out." in report.notes


def test_mma_with_double_buffering(kernels: Path) -> None:
    size = 128
    a, b = (drawn(size, size, np.float16, seed) for seed in range(2))
    arguments = {"A": a, "B": b, "C": "out:f32[128,128]", "M": size, "N": size, "K": size}
    report = fa_bench.profile(kernels / "mma_double_buffer.cu", "gemm", grid=(2, 2), args=arguments)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    # 128 products of halves are exact in fp32; their sum is off by at most 128 roundings of what it passes through.
    bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T * 128 * 2.0**-24
    assert (np.abs(report.outputs["C"] - exact) <= bound).all()
    # Four CTAs of four warps, four steps of 32 along K. Per step a warp copies two pieces of A and of B: 32 lanes of 16
    # bytes, eight rows of 64 bytes, two sectors each. C: 16 stores a warp, eight rows of 32 bytes.
    copies = 4 * 4 * 4 * 2
    assert counted(report) == {
        ("A", "read"): (copies, copies * 16),
        ("B", "read"): (copies, copies * 16),
        ("C", "write"): (4 * 4 * 16, 4 * 4 * 16 * 8),
    }
    # Eight mma for each of eight steps of 16, in 16 warps.
    assert report.instructions["tensor"] == 8 * 8 * 16
    # ldmatrix: eight rows 80 bytes apart begin at banks 0, 20, 8, 28, 16, 4, 24 and 12, which take four each: none.
    assert line(report, 'asm volatile("ldmatrix').conflicts == 0
    # A phase of a copy is eight lanes, two rows of 16 banks: 0 to 15, and 20 to 31 with 0 to 3, which is one conflict
    # for each of four phases.
    assert line(report, 'asm volatile("cp.async.cg').conflicts == report.conflicts == 2 * copies * 4
    # Wavefronts: two for each phase of a copy; four for each of five ldmatrix in eight steps of 16 warps.
    assert report.wavefronts == 2 * copies * 4 * 2 + 5 * 8 * 16 * 4
