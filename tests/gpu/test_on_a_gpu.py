"""On a real GPU: kernels against fp64, times that behave like times, memory, failures."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fa_bench import algorithms
from fa_bench.backends import baselines
from fa_bench.backends.base import RunResult
from fa_bench.cases import AttentionShape, Case, Layout
from fa_bench.errors import KernelFault, OutOfMemory, Unsupported
from fa_bench.model.gpu import Gpu

pytestmark = pytest.mark.gpu

Run = Callable[..., RunResult]


def median_ms(result: RunResult) -> float:
    assert result.samples is not None
    return statistics.median(result.samples.times_ms)


def assert_verified(result: RunResult) -> None:
    assert result.verification is not None
    assert result.verification.passed, result.verification.detail


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(1, 1), (127, 300), (300, 127), (1000, 1000)])
@pytest.mark.parametrize("head_dim", [40, 64, 128, 256])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_kernels_match_fp64(
    run: Run, impl: str, dtype: str, head_dim: int, seq_q: int, seq_kv: int, causal: bool
) -> None:
    shape = AttentionShape(1, 8, 2, seq_q, seq_kv, head_dim, causal)
    assert_verified(run(Case(impl, shape, dtype)))  # type: ignore[arg-type]


@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_layout_bshd(run: Run, impl: str) -> None:
    assert_verified(run(Case(impl, AttentionShape(2, 6, 3, 200, 333, 72), "fp16", layout="bshd")))


@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_more_slices_than_a_grid_axis_holds(run: Run, impl: str) -> None:
    # y and z of a grid end at 65,535.
    assert_verified(run(Case(impl, AttentionShape(1, 65_538, 65_538, 32, 32, 16), "fp16")))


@pytest.mark.parametrize("impl", baselines.names())
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(
    ("heads_kv", "seq_q", "seq_kv", "causal"),
    [(4, 512, 512, True), (4, 100, 333, True), (4, 100, 333, False), (1, 256, 256, True), (4, 300, 200, True)],
)
def test_a_baseline_matches_fp64(
    run: Run, impl: str, layout: Layout, heads_kv: int, seq_q: int, seq_kv: int, causal: bool
) -> None:
    if impl not in baselines.usable("cuda"):
        pytest.skip("Its library is not installed.")
    if not baselines.TORCH.load().cuda.is_available():
        pytest.skip("The installed PyTorch has no CUDA support.")
    case = Case(impl, AttentionShape(1, 4, heads_kv, seq_q, seq_kv, 64, causal), "fp16", layout=layout)
    try:
        result = run(case)
    except Unsupported as error:
        pytest.skip(error.message)
    assert_verified(result)
    assert result.mem_source == "torch" and result.mem_peak_bytes is not None


@pytest.mark.parametrize("suffix", [".cu", ".ptx"])
def test_a_users_kernel_is_timed_and_verified(run: Run, target: Gpu, suffix: str, tmp_path: Path) -> None:
    from fa_bench.algorithms.user import load
    from fa_bench.compiler import compile_kernel

    example = Path(__file__).resolve().parents[2] / "examples" / "row_attention.toml"
    algorithm = load(example)
    case = Case("row_attention", AttentionShape(2, 4, 2, 300, 333, 64, True), "fp16", layout="bshd")
    case = replace(case, tile=algorithm.auto_tile(case, target))
    if suffix == ".ptx":
        ptx = compile_kernel(algorithm.program(case).launches[0].kernel, target.sm).ptx
        (tmp_path / "row_attention.ptx").write_text(ptx)
        lines = [line for line in example.read_text().splitlines() if not line.startswith("defines")]
        (tmp_path / example.name).write_text("\n".join(lines).replace("row_attention.cu", "row_attention.ptx"))
        algorithm = load(tmp_path / example.name)
    algorithms.add(algorithm)
    try:
        result = run(case)
    except KernelFault as fault:
        if "UNSUPPORTED_PTX_VERSION" in str(fault):
            pytest.skip("The driver is older than the compiler, and refuses its PTX.")
        raise
    assert_verified(result)
    assert median_ms(result) > 0


def test_time_grows_with_length(run: Run) -> None:
    times = [median_ms(run(Case("flash2", AttentionShape(1, 16, 16, n, n, 64)))) for n in (1024, 4096, 16384)]
    # 16 times the work per step; half of that at least, since the shortest does not fill the GPU.
    assert times[1] > 4 * times[0] and times[2] > 8 * times[1]


def test_a_warm_cache_is_not_slower(run: Run) -> None:
    # 16 heads · 1024 · 64 · 2 bytes · 4 tensors = 8 MiB: it fits into the L2 of any data-centre GPU.
    case = Case("flash2", AttentionShape(1, 16, 16, 1024, 1024, 64))
    cold, warm = run(case, l2="cold"), run(case, l2="warm")
    assert cold.samples is not None and warm.samples is not None
    assert (cold.samples.l2_state, warm.samples.l2_state) == ("cold", "warm")
    assert median_ms(warm) < 1.2 * median_ms(cold)


def test_a_tiny_case_is_launch_bound_and_a_large_one_is_not(run: Run) -> None:
    tiny = run(Case("flash2", AttentionShape(1, 1, 1, 16, 16, 32)))
    large = run(Case("flash2", AttentionShape(1, 16, 16, 8192, 8192, 64)))
    assert tiny.samples is not None and tiny.samples.launch_bound
    assert large.samples is not None and not large.samples.launch_bound


def test_memory_is_the_programs(run: Run) -> None:
    result = run(Case("standard", AttentionShape(1, 2, 2, 2048, 2048, 64)))
    # S and P: 2 heads · 2048 · 2048 in at least 2 bytes each.
    assert result.mem_peak_bytes is not None and result.mem_peak_bytes > 2 * 2 * 2048 * 2048 * 2
    assert result.mem_source == "cupy-pool"
    assert result.resources is not None and result.resources.registers > 0


def test_out_of_memory_is_a_row_and_the_next_case_runs(run: Run) -> None:
    # S and P of 64 heads at 128k: 64 · 2^34 · 2 bytes · 2 = 4 TiB.
    with pytest.raises(OutOfMemory):
        run(Case("standard", AttentionShape(1, 64, 1, 131_072, 131_072, 8)))
    assert_verified(run(Case("standard", AttentionShape(1, 1, 1, 64, 64, 64))))


def test_a_tile_that_does_not_fit_is_refused_before_launch(run: Run) -> None:
    from fa_bench.cases import Tile

    with pytest.raises(Unsupported):
        run(Case("flash2", AttentionShape(1, 1, 1, 512, 512, 256), "fp32", Tile(256, 256, 2, 8)))


def test_measured_peaks_are_near_the_data_sheet_and_never_above(target: Gpu) -> None:
    from datetime import UTC, datetime

    from fa_bench.backends.cuda import CudaBackend
    from fa_bench.model.peaks import inconsistencies

    backend = CudaBackend()
    peaks = backend.measure_peaks(datetime.now(UTC))
    backend.close()
    assert inconsistencies(peaks, target) == ()
    # Loose ends: mma.sync does not reach the tensor peak of every architecture, and power may hold clocks down.
    assert peaks.fp32_tflops > 0.6 * target.fp32_tflops
    assert peaks.read_gbs > 0.75 * target.mem_bandwidth_gbs
    if peaks.fp16_tensor_tflops is not None and target.fp16_tensor_tflops is not None:
        assert peaks.fp16_tensor_tflops > 0.4 * target.fp16_tensor_tflops


def test_energy_per_launch_is_power_times_time_where_the_board_counts_it(run: Run) -> None:
    # Long enough to fill the GPU, so that power while timing and power in the batch are the same.
    result = run(Case("flash2", AttentionShape(1, 16, 16, 8192, 8192, 64)), l2="warm")
    if result.energy_mj is None or result.power_w is None:
        assert "energy" in result.device_reason or "power" in result.device_reason or "NVML" in result.device_reason
        pytest.skip(result.device_reason)
    assert result.energy_launches is not None and result.energy_launches * median_ms(result) >= 900
    assert result.energy_mj == pytest.approx(result.power_w * median_ms(result), rel=0.5)


def test_what_nvml_does_not_say_has_a_reason(run: Run) -> None:
    result = run(Case("flash2", AttentionShape(1, 16, 16, 2048, 2048, 64)))
    for value in (result.sm_clock_mhz, result.power_w, result.nvml_mem_peak_bytes):
        assert value is not None or result.device_reason
    if result.nvml_mem_peak_bytes is not None:
        assert result.nvml_mem_source.startswith("nvmlDeviceGet") and result.nvml_interval_ms
