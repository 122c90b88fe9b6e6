"""How fast the emulator is, as a ratio to the machine's own sgemm: ``python benchmarks/emulator.py [--quick]``.

Every figure is a median of interleaved runs in one process with one thread (except the last): shared machines
drift, ratios from one run hold. An FMA of attention is one of the 2·N²·D multiply-adds of Q·Kᵀ and P·V. "full" has
the caches of an A100 behind the SMs.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy loads its BLAS

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fa_bench import algorithms, ptx
from fa_bench.algorithms.base import Launch
from fa_bench.backends.hierarchy import CacheRun, best_l2
from fa_bench.backends.programs import arguments, tensor_view
from fa_bench.cases import AttentionShape, Case
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus
from fa_bench.reference import make_inputs


class Runner:
    """One case of one algorithm, ready to be launched again and again."""

    def __init__(self, impl: str, seq: int, head_dim: int, dtype: str) -> None:
        self.gpu = gpu = gpus.get("a100-sxm-80")
        algorithm = algorithms.get(impl)
        case = Case(impl, AttentionShape(1, 1, 1, seq, seq, head_dim), dtype)  # type: ignore[arg-type]  # one of DTYPES
        self.case = dataclasses.replace(case, tile=algorithm.resolve(case, algorithm.auto_tile(case, gpu)))
        self.program = algorithm.program(self.case)
        self.fma = 2 * seq * seq * head_dim
        self.memory = ptx.Memory()
        inputs = make_inputs(self.case)
        for buffer in self.program.buffers:
            content = self.memory.allocate(buffer.name, buffer.nbytes)
            if buffer.role == "input":
                tensor_view(buffer, content)[...] = inputs[buffer.name].reshape(buffer.shape)
        self.compiled = [compile_kernel(launch.kernel, gpu.sm) for launch in self.program.launches]
        self.texts = [kernel.ptx for kernel in self.compiled]
        self.kernels = [
            ptx.load(text).kernel(launch.kernel.entry)
            for text, launch in zip(self.texts, self.program.launches, strict=True)
        ]

    def full(self) -> float:
        """Seconds of one run in front of the caches of the target GPU, all that `--counters full` does beside it."""
        run = CacheRun(ptx, self.gpu, 1, None, [best_l2(ptx, self.gpu)], serial=False, jobs=1)
        started = time.perf_counter()
        for kernel, compiled, launch in zip(self.kernels, self.compiled, self.program.launches, strict=True):
            run.launch(launch, compiled, kernel, self._arguments(launch), self.memory)
        return time.perf_counter() - started

    def _arguments(self, launch: Launch) -> list[Any]:
        return arguments(launch, lambda name: np.uint64(self.memory.address(name)))

    def __call__(self, jobs: int = 1, counting: bool = True) -> float:
        """Seconds of one run."""
        started = time.perf_counter()
        for kernel, launch in zip(self.kernels, self.program.launches, strict=True):
            ptx.launch(
                kernel, grid=launch.grid, block=launch.block, args=self._arguments(launch),
                smem_bytes=launch.smem_bytes, memory=self.memory, jobs=jobs, counting=counting,
            )  # fmt: skip
        return time.perf_counter() - started


def interleaved(runs: int, *tasks: Callable[[], float]) -> list[list[float]]:
    """Times of each task, in turn A B A B ..., after one run of each that is not counted."""
    for task in tasks:
        task()
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(runs):
        for task, mine in zip(tasks, times, strict=True):
            mine.append(task())
    return times


def ratio(a: list[float], b: list[float]) -> float:
    """Median of a/b, pair by pair."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def sgemm() -> Callable[[], float]:
    """Product of two 2048 x 2048 f32 matrices: 2048³ FMA."""
    a, b = np.random.default_rng(0).standard_normal((2, 2048, 2048), dtype=np.float32)

    def run() -> float:
        started = time.perf_counter()
        a @ b
        return time.perf_counter() - started

    return run


def compile_times(runner: Runner) -> tuple[float, float]:
    """Seconds to compile a kernel's PTX with an empty cache, and again from the cache, loading included."""
    from fa_bench.ptx import jit as jit_module

    before = os.environ.get("FA_BENCH_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FA_BENCH_CACHE"] = folder
        times = []
        for _ in range(2):
            started = time.perf_counter()
            jit_module._LOADED.clear()
            jit_module.compile_kernel(ptx.load(runner.texts[0]).kernel(runner.kernels[0].name), True)
            times.append(time.perf_counter() - started)
    if before is None:
        del os.environ["FA_BENCH_CACHE"]
    else:
        os.environ["FA_BENCH_CACHE"] = before
    return times[0], times[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs and shorter sequences")
    options = parser.parse_args()
    runs = 3 if options.quick else 7
    gemm, gemm_fma = sgemm(), 2048**3
    print(f"{'case':34} {'G FMA/s':>8} {'of sgemm':>9} {'counted/not':>12} {'full/counted':>13} {'2 threads':>10}")
    final = 0.0
    cases = [("flash2", 4096, 64, "fp16"), ("flash2", 4096, 128, "fp16"), ("flash2", 2048, 64, "fp32")]
    cases += [("standard", 2048, 64, "fp16"), ("flash1", 2048, 64, "fp16")]
    for impl, seq, dim, dtype in cases:
        runner = Runner(impl, seq, dim, dtype)
        counted, plain, full, double, reference = interleaved(
            runs, runner, lambda r=runner: r(counting=False), runner.full, lambda r=runner: r(jobs=2), gemm
        )
        share = ratio([t / gemm_fma for t in reference], [t / runner.fma for t in counted])
        name = f"{impl} {dtype} N={seq} D={dim} {runner.case.tile}"
        print(
            f"{name:34} {runner.fma / statistics.median(counted) / 1e9:8.2f} {share:9.3f} "
            f"{ratio(counted, plain):11.2f}x {ratio(full, counted):12.2f}x {ratio(counted, double):9.2f}x",
            flush=True,
        )
        if (impl, dim, dtype) == ("flash2", 64, "fp16"):
            final = share
            cold, warm = compile_times(runner)
            print(f"  machine code in {cold:.2f} s, from the cache in {warm:.3f} s")
    print(f"sgemm ratio: {final:.3f}")


if __name__ == "__main__":
    main()
