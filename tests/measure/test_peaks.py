"""The programs behind measured peaks do the work that they claim: counted while the emulator executes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.algorithms.base import Program
from fa_bench.backends.programs import arguments
from fa_bench.compiler import compile_kernel, nvrtc_available
from fa_bench.measure.peaks import (
    CTAS_PER_SM,
    L2_FACTOR,
    MMA_FLOPS,
    THREADS,
    PeakTest,
    bytes_test,
    fma_test,
    measure_peak,
    mma_test,
    peak_tests,
)
from fa_bench.measure.stopping import StoppingRule
from fa_bench.ptx.counters import LaunchCounters

needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=f"no compiler: {nvrtc_available()}")


def executed(test: PeakTest) -> tuple[LaunchCounters, dict[str, int], dict[str, np.ndarray]]:
    """Run a test's one launch; its counters, executions of each opcode times lanes, and the buffers."""
    (step,) = test.program.launches
    compiled = compile_kernel(step.kernel, "sm_80")
    assert compiled.spill_bytes == 0
    assert compiled.registers is not None and compiled.registers * THREADS * CTAS_PER_SM <= 65_536
    memory = ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in test.program.buffers}
    for buffer in test.program.buffers:
        raw[buffer.name][:] = np.arange(buffer.nbytes) % 251
    kernel = ptx.load(compiled.ptx).kernel(compiled.entry)
    counters = ptx.launch(
        kernel,
        grid=step.grid,
        block=step.block,
        args=arguments(step, lambda name: np.uint64(memory.address(name))),
        memory=memory,
        per_instruction=True,
    )
    lanes: dict[str, int] = {}
    for instruction, counted in zip(kernel.instructions, counters.by_instruction, strict=True):
        opcode = instruction.text.split()[0]
        lanes[opcode] = lanes.get(opcode, 0) + counted.lanes
    return counters, lanes, raw


@needs_nvrtc
@pytest.mark.parametrize(("dtype", "type_name"), [("fp16", "f16"), ("bf16", "bf16")])
@pytest.mark.parametrize("steps", [1, 7])
def test_the_tensor_peak_executes_the_flops_it_claims(dtype: str, type_name: str, steps: int) -> None:
    test = mma_test(dtype, 2, steps)  # type: ignore[arg-type]
    counters, lanes, raw = executed(test)
    mma = f"mma.sync.aligned.m16n8k16.row.col.f32.{type_name}.{type_name}.f32"
    # All 32 lanes of a warp together do one 16 x 8 x 16 product.
    assert test.work == lanes[mma] // 32 * MMA_FLOPS
    # 2 SMs of 4 CTAs of 8 warps, 4 chains each; 4096 FLOPs per instruction.
    assert test.work == 2 * 4 * 8 * 4 * steps * 4096
    sums = raw["sums"].view(np.float32)
    assert np.isfinite(sums).all() and len(np.unique(sums)) > 0.9 * len(sums)  # no operand is the same everywhere
    assert counters.tensors["sums"].write_bytes == raw["sums"].nbytes


@needs_nvrtc
@pytest.mark.parametrize("steps", [1, 6])
def test_the_fma_peak_executes_the_flops_it_claims(steps: int) -> None:
    test = fma_test(1, steps)
    _, lanes, raw = executed(test)
    # Two FLOPs per lane; 1024 threads, 8 chains, 2 FMAs per step of a chain.
    assert test.work == 2 * lanes["fma.rn.f32"] == 1024 * 8 * 2 * 2 * steps
    assert np.isfinite(raw["sums"].view(np.float32)).all()


@needs_nvrtc
def test_the_loop_takes_next_to_no_issue_slots_from_the_fmas() -> None:
    # What 64 steps more execute: 64 * 16 FMAs, and what the loop needs for itself. Moves and signs are of PTX only: a
    # machine's registers have one name, and the sign belongs to the operand.
    few, many = (executed(fma_test(1, steps))[1] for steps in (64, 128))
    more = {opcode: lanes - few[opcode] for opcode, lanes in many.items()}
    assert more["fma.rn.f32"] == 1024 * 64 * 16
    issued = sum(lanes for opcode, lanes in more.items() if opcode not in ("mov.b32", "neg.f32"))
    assert issued < 1.015 * more["fma.rn.f32"]


@needs_nvrtc
def test_the_fma_chains_neither_grow_nor_die() -> None:
    # A point on an ellipse stays between the same bounds: a chain that ran into 0 or infinity would draw no power.
    sums = np.abs(executed(fma_test(1, 500))[2]["sums"].view(np.float32))
    assert 0.1 < sums.mean() < 8 * 8  # eight chains, each x + y of at most a few times its start, below 2


@needs_nvrtc
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("move", ["read", "write", "copy"])
def test_the_bandwidth_peaks_move_the_bytes_they_claim(move: str, passes: int) -> None:
    test = bytes_test(move, 1, steps=3, passes=passes)  # type: ignore[arg-type]
    counters, _, raw = executed(test)
    moved = counters.tensors.values()
    assert test.work == sum(tensor.read_bytes + tensor.write_bytes for tensor in moved)
    nbytes = passes * 3 * 1024 * 4 * 16  # 3 steps of 1024 threads with 4 chunks of 16 bytes
    expected = {
        "read": {"source": (nbytes, 0), "sums": (0, 1024 * 4)},
        "write": {"target": (0, nbytes)},
        "copy": {"source": (nbytes, 0), "target": (0, nbytes)},
    }[move]
    assert {name: (t.read_bytes, t.write_bytes) for name, t in counters.tensors.items()} == expected
    assert len(raw["source" if move == "read" else "target"]) == nbytes // passes


@needs_nvrtc
def test_the_copy_copies_and_the_write_writes_all() -> None:
    raw = executed(bytes_test("copy", 1, 2, 1))[2]
    np.testing.assert_array_equal(raw["source"], raw["target"])
    written = executed(bytes_test("write", 1, 2, 1))[2]["target"].view(np.uint32).reshape(-1, 4)
    np.testing.assert_array_equal(written[:, 3], np.arange(len(written)))  # each chunk is its own number's


def test_the_buffers_are_far_beyond_l2_and_a_launch_moves_gigabytes() -> None:
    for l2_bytes in (0, 6 << 20, 50 << 20, 126 << 20):  # a virtual GPU may name none
        tests = {test.quantity: test for test in peak_tests(132, l2_bytes, (9, 0))}
        for name in ("read_gbs", "write_gbs", "copy_gbs"):
            buffer = tests[name].program.buffers[0]
            assert buffer.nbytes >= L2_FACTOR * l2_bytes and buffer.nbytes >= 512 << 20
            assert tests[name].work >= 4 << 30
            assert buffer.nbytes < 4 << 30


@pytest.mark.parametrize(("capability", "tensor"), [((7, 5), 0), ((8, 0), 2), ((12, 1), 2)])
def test_tensor_peaks_only_where_the_instruction_exists(capability: tuple[int, int], tensor: int) -> None:
    quantities = [test.quantity for test in peak_tests(40, 4 << 20, capability)]
    assert sum("tensor" in quantity for quantity in quantities) == tensor
    assert quantities[-4:] == ["fp32_tflops", "read_gbs", "write_gbs", "copy_gbs"]


def test_rates_are_in_the_units_of_data_sheets() -> None:
    # 5 · 10^12 FLOPs in 2 ms; 4 · 10^9 bytes in 2 ms.
    assert PeakTest("fp32_tflops", Program((), ()), 5 * 10**12).rate(2.0) == pytest.approx(2500)
    assert PeakTest("read_gbs", Program((), ()), 4 * 10**9).rate(2.0) == pytest.approx(2000)


class Bench:
    """A device whose launches take the given times."""

    def __init__(self, *times_ms: float) -> None:
        self.times_ms, self.log = iter(times_ms), list[str]()

    @contextmanager
    def prepared(self, program: Program) -> Iterator[Callable[[], None]]:
        self.log.append("allocate")
        yield lambda: self.log.append("launch")
        self.log.append("free")

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> float:
        self.log.append("stop")
        return next(self.times_ms)


def test_the_fastest_launch_counts_after_a_warm_up_that_is_not_timed() -> None:
    bench, ticks = Bench(3.0, 2.0, 4.0), iter(float(n) for n in range(20))
    rule = StoppingRule(max_elapsed_ms=2500.0, min_samples=10**6)
    test = PeakTest("read_gbs", Program((), ()), 4 * 10**9)
    assert measure_peak(test, bench, rule, lambda: next(ticks)) == pytest.approx(2000)
    timed = ["start", "launch", "stop"]
    assert bench.log == ["allocate", *["launch"] * 3, *timed * 3, "free"]
