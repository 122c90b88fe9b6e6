"""Programs in front of the target GPU's caches: whole, and to a steady state; on the real emulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import KernelSpec, Launch, Program
from fa_bench.algorithms.tensors import qkvo
from fa_bench.backends import hierarchy, why_not
from fa_bench.backends.base import Counts, RunResult
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import CompiledKernel
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu

emulated = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def case_of(impl: str, shape: AttentionShape, tile: Tile | None = None) -> Case:
    case = Case(impl, shape)
    return replace(case, tile=algorithms.get(impl).resolve(case, tile or Tile(64, 64)))


def small(gpu: Gpu, sms: int, l2_bytes: int) -> Gpu:
    """A GPU with few SMs and little L2, so that small cases fill it."""
    return replace(gpu, sm_count=sms, l2_bytes=l2_bytes)


def counts_of(result: RunResult) -> Counts:
    assert result.verification is not None and result.verification.passed, result.verification
    assert result.counts is not None
    return result.counts


def by_op(counts: Counts, level: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in counts.traffic[level]:  # type: ignore[index]
        total[part.op] += part.bytes
    return total


def _program(case: Case, per_slice: int) -> Program:
    launch = Launch(KernelSpec("x.cu", "x"), (per_slice * case.shape.slices, 1, 1), (128, 1, 1), 0, (), per_slice)
    return Program(tuple(qkvo(case)), (launch,))


def test_a_steady_state_takes_four_waves_and_four_times_the_l2(any_gpu: Gpu) -> None:
    """4096 slices of 8192 rows with D = 64: 2·4096·8192²·64 = 3.5e13 multiply-adds, more than 2^38.

    64 CTAs a slice, 216 at a time: 4 waves are 864 CTAs, 13.5 slices. A slice has 4 tensors of 1 MiB; 4 times 40 MiB of
    L2 are 40 slices. Both halves must be whole: 40 it is, of 4096.
    """
    case = case_of("flash2", AttentionShape(64, 64, 64, 8192, 8192, 64))
    assert hierarchy.steady_prefix(case, _program(case, 64), any_gpu, [216]) == 40
    # With 8 CTAs a slice, 864 CTAs are 108 slices.
    assert hierarchy.steady_prefix(case, _program(case, 8), any_gpu, [216]) == 108
    # Groups of 16 query heads: 40 is no multiple of 2·16. K and V are 1/16 each, so that a slice has 2.125 MiB: 75.3.
    grouped = case_of("flash2", AttentionShape(64, 64, 4, 8192, 8192, 64))
    assert hierarchy.steady_prefix(grouped, _program(grouped, 64), any_gpu, [216]) == 96


def test_small_cases_and_short_grids_are_run_whole(any_gpu: Gpu) -> None:
    few = case_of("flash2", AttentionShape(1, 8, 8, 2048, 2048, 64))
    assert hierarchy.steady_prefix(few, _program(few, 16), any_gpu, [216]) is None
    # 44 slices: a prefix of 40 would be 91 % of them.
    near = case_of("flash2", AttentionShape(1, 44, 44, 8192, 8192, 64))
    assert hierarchy.steady_prefix(near, _program(near, 64), any_gpu, [216]) is None


def test_occupancy_counts_registers_and_shared_memory(any_gpu: Gpu) -> None:
    """128 threads with 128 registers: 4 of 65536 / (128·128). With 100 KiB of shared memory: 1 of 164 KiB."""
    kernel = CompiledKernel("x", "", b"", 128, 0, 0, "", None)
    launch = Launch(KernelSpec("x.cu", "x"), (1, 1, 1), (128, 1, 1), 0, ())
    assert hierarchy.blocks_per_sm(launch, kernel, any_gpu) == 4
    assert hierarchy.blocks_per_sm(replace(launch, smem_bytes=100 << 10), kernel, any_gpu) == 1


@emulated
@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_levels_are_consistent(impl: str, any_gpu: Gpu) -> None:
    """L2 sees the model's global bytes less what L1 answers; DRAM gives each input once, for all fits in L2."""
    case = case_of(impl, AttentionShape(1, 4, 2, 130, 150, 64, causal=True))
    counts = counts_of(EmulatorBackend(jobs=1, counters="full").run(case, any_gpu))
    model: Counter[str] = Counter()
    for part in algorithms.get(impl).traffic(case):
        model[part.op] += part.bytes
    assert by_op(counts, "global") == model
    hits = sum(part.hit_bytes or 0 for part in counts.traffic["global"])
    assert by_op(counts, "l2")["read"] == model["read"] - hits
    assert by_op(counts, "l2")["write"] == model["write"]
    # Everything fits in L2: inputs come once, nothing is written back. 4·130·64·2 bytes of Q, 2·150·64·2 of K and V.
    assert by_op(counts, "dram") == {"read": 4 * 130 * 64 * 2 + 2 * 2 * 150 * 64 * 2}
    assert counts.fraction == 1.0
    for part in (*counts.traffic["global"], *counts.traffic["l2"]):
        assert part.requests is not None and 0 < part.requests <= part.bytes // 32


@emulated
def test_counts_do_not_depend_on_threads(any_gpu: Gpu) -> None:
    case = case_of("flash2", AttentionShape(1, 8, 2, 256, 256, 64))
    gpu = small(any_gpu, 4, 256 << 10)
    one, two = (EmulatorBackend(jobs=jobs, counters="full").run(case, gpu).counts for jobs in (1, 2))
    assert one == two


@emulated
@pytest.mark.parametrize("impl", ["flash2", "standard"])
def test_a_steady_state_stands_for_the_whole_grid(impl: str, any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """96 slices on a GPU of 4 SMs and 256 KiB of L2, 1/4 to 1/2 of them run, against all of them run: within 2 %."""
    case = case_of(impl, AttentionShape(4, 24, 12, 128, 128, 64))
    gpu = small(any_gpu, 4, 256 << 10)
    whole = counts_of(EmulatorBackend(counters="full").run(case, gpu))
    monkeypatch.setattr(hierarchy, "WHOLE_FMA", 0)
    part = counts_of(EmulatorBackend(counters="full").run(case, gpu))
    assert whole.fraction == 1.0
    assert 0.05 < part.fraction <= 0.75
    assert by_op(part, "global") == by_op(whole, "global")
    for level in ("l2", "dram"):
        for op, nbytes in by_op(whole, level).items():
            assert by_op(part, level)[op] == pytest.approx(nbytes, rel=0.02), (level, op)


@emulated
def test_an_interval_holds_the_best_estimate(any_gpu: Gpu) -> None:
    """On 4 SMs with an L2 that holds less than half of K and V of the slices in flight."""
    case = case_of("flash2", AttentionShape(1, 16, 16, 256, 256, 64))
    gpu = small(any_gpu, 4, 192 << 10)
    counts = counts_of(EmulatorBackend(counters="full", interval=True).run(case, gpu))
    dram = by_op(counts, "dram")
    for op, (low, high) in counts.dram_interval.items():
        assert low <= dram[op] <= high
    assert counts.dram_interval["read"][0] >= 3 * 16 * 256 * 64 * 2  # compulsory
    assert counts.dram_interval["read"][0] < counts.dram_interval["read"][1]
    assert not EmulatorBackend(counters="full").run(case, gpu).counts.dram_interval  # type: ignore[union-attr]


@emulated
def test_what_a_kernel_left_in_l2_the_next_one_finds() -> None:
    """Standard attention with S and P of 64·64 elements: the kernels behind the first read none of them from DRAM."""
    case = case_of("standard", AttentionShape(1, 1, 1, 64, 64, 64))
    counts = counts_of(EmulatorBackend(counters="full").run(case, gpus.get("a30")))
    dram = {(part.tensor, part.op) for part in counts.traffic["dram"]}
    assert dram == {("Q", "read"), ("K", "read"), ("V", "read")}
    assert counts.extra["standard_pv"]["l2_dirty_bytes"] > 0


@emulated
def test_a_kernel_that_is_launched_twice_counts_twice(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second launch asks L2 for the same again and finds all of it there."""
    case = case_of("flash2", AttentionShape(1, 1, 1, 128, 128, 64))
    once = counts_of(EmulatorBackend(counters="full").run(case, any_gpu))
    program = algorithms.get("flash2").program(case)
    monkeypatch.setattr(
        type(algorithms.get("flash2")), "program", lambda self, case: replace(program, launches=program.launches * 2)
    )
    twice = counts_of(EmulatorBackend(counters="full").run(case, any_gpu))
    for level in ("global", "l2"):
        assert by_op(twice, level) == Counter({op: 2 * nbytes for op, nbytes in by_op(once, level).items()})
    assert by_op(twice, "dram")["read"] == by_op(once, "dram")["read"] == 3 * 128 * 64 * 2
