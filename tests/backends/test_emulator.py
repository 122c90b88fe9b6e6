"""The emulator backend against a fake emulator: what is launched, counted, multiplied and verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fa_bench.algorithms.base import PLAIN, KernelSpec, Launch, Program, Scalar, TensorBytes
from fa_bench.algorithms.tensors import qkvo, row_vector
from fa_bench.backends import emulator
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.backends.programs import tensor_view
from fa_bench.cases import AttentionShape, Case
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import DeviceUnavailable, OutOfMemory, Unsupported
from fa_bench.model.gpu import Gpu
from fa_bench.reference import attention_fp64, make_inputs, verification_bytes
from fa_bench.storage import encode

ZERO = KernelSpec("fake.cu", "zero")
ATTEND = KernelSpec("fake.cu", "attend", (("BLOCK", "1"),))


@dataclass
class FakeAlgorithm:
    """Two launches: one clears a workspace (not ordered by slice), one attends with two CTAs per slice."""

    reason: str | None = None
    directions = ("fwd",)
    fused = PLAIN

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        return self.reason

    def program(self, case: Case) -> Program:
        workspace = replace(row_vector("l", case, "workspace"))
        args = ("Q", "K", "V", "O", "LSE", Scalar("f32", 0.5), Scalar("i32", case.shape.seq_kv))
        return Program(
            (*qkvo(case), row_vector("LSE", case, "output"), workspace),
            (
                Launch(ZERO, (4, 1, 1), (32, 1, 1), 0, ("l", Scalar("i64", 9))),
                Launch(ATTEND, (2 * case.shape.slices, 1, 1), (128, 1, 1), 4096, args, ctas_per_slice=2),
            ),
        )


@dataclass
class FakeMemory:
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def allocate(self, name: str, nbytes: int) -> np.ndarray:
        self.arrays[name] = np.full(nbytes, 0xFF, np.uint8)
        return self.arrays[name]

    def address(self, name: str) -> int:
        return 1000 + list(self.arrays).index(name)


def _counted(read: int, written: int) -> SimpleNamespace:
    """A tensor's counters; each request asks for one sector."""
    return SimpleNamespace(
        read_sectors=read,
        read_requests=read,
        write_sectors=written,
        write_requests=written,
        atomic_sectors=0,
        atomic_requests=0,
    )


class FakeKernel(tuple[str, str]):
    """PTX and entry."""

    @property
    def params(self) -> list[SimpleNamespace]:
        sizes = {"zero": (8, 8), "attend": (8, 8, 8, 8, 8, 4, 4)}[self[1]]
        return [SimpleNamespace(size=size) for size in sizes]


@dataclass
class FakePtx:
    """ "Executes" attend by writing the reference's answer for the slices whose CTAs are asked for."""

    case: Case
    spoil: bool = False
    launches: list[SimpleNamespace] = field(default_factory=list)
    Memory: type = FakeMemory

    def load(self, text: str) -> Any:
        return SimpleNamespace(kernel=lambda name: FakeKernel((text, name)))

    def launch(self, kernel: Any, *, memory: FakeMemory, ctas: Sequence[int] | None, **options: Any) -> Any:
        self.launches.append(SimpleNamespace(kernel=kernel, ctas=ctas, **options))
        tensors = {name: _counted(0, 0) for name in memory.arrays}
        if kernel[1] == "attend":
            slices = sorted({cta // 2 for cta in (ctas or range(options["grid"][0]))})
            self._attend(memory, slices)
            tensors["Q"] = _counted(3 * len(slices), 0)
            tensors["O"] = _counted(0, 1 * len(slices))
        else:
            tensors["l"] = _counted(0, 7)
        shared = SimpleNamespace(requests=10, wavefronts=11, conflicts=1)
        return SimpleNamespace(tensors=tensors, shared=shared, instructions={"load-store": 5})

    def _attend(self, memory: FakeMemory, slices: list[int]) -> None:
        inputs, s = make_inputs(self.case), self.case.shape
        o, lse = attention_fp64(inputs["Q"], inputs["K"], inputs["V"], s)
        program = FakeAlgorithm().program(self.case)
        for name in "QKV":  # the inputs are there, in the case's layout
            np.testing.assert_array_equal(tensor_view(program.buffer(name), memory.arrays[name]), inputs[name])
        for index in slices:
            at = divmod(index, s.heads_q)
            tensor_view(program.buffer("O"), memory.arrays["O"])[at] = encode(o[at], self.case.dtype) * (not self.spoil)
            tensor_view(program.buffer("LSE"), memory.arrays["LSE"])[at] = lse[at]


def compiler(spec: KernelSpec, sm: str) -> CompiledKernel:
    return CompiledKernel(spec.entry, f"ptx of {spec.entry} for {sm}", b"", 64, 16, 0, "13.0", 2.0)


def make(case: Case, all_slices: bool = False, spoil: bool = False) -> tuple[EmulatorBackend, FakePtx]:
    ptx = FakePtx(case, spoil)
    backend = EmulatorBackend(
        jobs=3,
        all_slices=all_slices,
        ptx=ptx,
        compiler=compiler,
        lookup=lambda name: FakeAlgorithm(),  # type: ignore[arg-type, return-value]
    )
    return backend, ptx


CASE = Case("flash2", AttentionShape(2, 4, 2, 8, 8, 40, causal=True), "fp16", layout="bshd")


def test_launches_in_order_with_typed_arguments(any_gpu: Gpu) -> None:
    backend, ptx = make(CASE)
    result = backend.run(CASE, any_gpu)
    zero, attend = ptx.launches
    assert zero.kernel == ("ptx of zero for sm_80", "zero") and attend.kernel[1] == "attend"
    assert (attend.grid, attend.block, attend.smem_bytes, attend.jobs) == ((16, 1, 1), (128, 1, 1), 4096, 3)
    assert attend.ctas is None
    # Buffers are allocated in program order: Q, K, V, O, LSE, l at 1000, 1001 ...
    assert attend.args == [1000, 1001, 1002, 1003, 1004, 0.5, 8]
    assert [type(x) for x in attend.args] == [np.uint64] * 5 + [np.float32, np.int32]
    assert [type(x) for x in zero.args] == [np.uint64, np.int64]
    assert result.verification is not None and result.verification.passed
    assert result.samples is None  # the emulator's own run time is no GPU time


def test_counts_are_bytes_per_kernel_tensor_and_direction(any_gpu: Gpu) -> None:
    backend, _ = make(CASE)
    counts = backend.run(CASE, any_gpu).counts
    assert counts is not None and counts.fraction == 1.0
    # 8 slices x 3 sectors x 32 bytes, 8 x 1 x 32, and 7 x 32 by the other kernel; untouched tensors are left out.
    assert sorted(counts.traffic["global"], key=repr) == [
        TensorBytes("attend", "O", "write", 256, 8),
        TensorBytes("attend", "Q", "read", 768, 24),
        TensorBytes("zero", "l", "write", 224, 7),
    ]
    assert counts.extra["attend"] == {
        "shared_requests": 10, "shared_wavefronts": 11, "shared_conflicts": 1, "instructions_load_store": 5,
    }  # fmt: skip


def test_large_cases_run_one_slice_per_class_and_multiply(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "ALL_SLICES_FMA", 0)
    # bshd, fp16, D = 40: Q head h starts at 80 h bytes = 0, 80, 32, 112 mod 128; LSE rows (8 fp32) at 32 s mod 128.
    # A batch is 8 · 4 · 80 = 2560 bytes = 20 lines: the second batch repeats the first. Four classes of two.
    backend, ptx = make(CASE)
    result = backend.run(CASE, any_gpu)
    zero, *attends = [launch.ctas for launch in ptx.launches]
    assert zero is None  # CTAs that are not ordered by slice all run
    ran = [ctas.start // 2 for ctas in attends]
    assert attends == [range(2 * index, 2 * index + 2) for index in ran]
    assert [index % 4 for index in ran] == [0, 1, 2, 3]  # slices s and s + 4 are alike
    assert ran[0] == 4  # slice 0, whose offsets are all 0, would show no wrong stride
    counts = result.counts
    assert counts is not None and counts.fraction == 0.5
    assert TensorBytes("attend", "Q", "read", 768, 24) in counts.traffic["global"]  # the same as all slices
    assert TensorBytes("zero", "l", "write", 224, 7) in counts.traffic["global"]  # not multiplied
    assert counts.extra["attend"]["instructions_load_store"] == 4 * 5 * 2
    # The other four slices still hold poison and are not compared.
    assert result.verification is not None and result.verification.passed


def test_tensors_are_in_the_programs_order(any_gpu: Gpu) -> None:
    backend, ptx = make(CASE)
    launch = ptx.launch

    def backwards(*args: Any, **options: Any) -> Any:
        counters = launch(*args, **options)
        more = {"zeta": _counted(1, 0), "alpha": counters.tensors["Q"]}
        counters.tensors = more | dict(reversed(counters.tensors.items()))
        return counters

    ptx.launch = backwards  # type: ignore[method-assign]
    counts = backend.run(CASE, any_gpu).counts
    assert counts is not None
    # Q and O are the program's; what a module brings itself follows by name.
    assert [part.tensor for part in counts.traffic["global"] if part.kernel == "attend"] == ["Q", "O", "alpha", "zeta"]


def test_launches_that_are_not_ordered_by_slice_run_whole(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "ALL_SLICES_FMA", 0)
    backend, ptx = make(CASE)
    program = FakeAlgorithm().program(CASE)
    # A buffer without heads, as a kernel of the user's may have.
    flat = replace(program.buffers[-1], shape=(256,), strides=(1,))
    launches = tuple(replace(launch, ctas_per_slice=0) for launch in program.launches)
    monkeypatch.setattr(FakeAlgorithm, "program", lambda self, case: Program((*program.buffers[:-1], flat), launches))
    result = backend.run(CASE, any_gpu)
    assert [launch.ctas for launch in ptx.launches] == [None, None]
    assert result.counts is not None and result.counts.fraction == 1.0
    assert result.verification is not None and result.verification.passed


def test_a_kernel_that_cannot_be_compiled_here_is_unsupported(any_gpu: Gpu) -> None:
    def absent(spec: KernelSpec, sm: str) -> CompiledKernel:
        raise DeviceUnavailable("There is no compiler here.")

    backend = EmulatorBackend(compiler=absent, lookup=lambda name: FakeAlgorithm())  # type: ignore[arg-type, return-value]
    with pytest.raises(Unsupported, match="There is no compiler here"):
        backend.run(CASE, any_gpu)


def test_slices_that_run_are_drawn_by_the_seed(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "ALL_SLICES_FMA", 0)

    def ran(seed: int) -> tuple[int, ...]:
        case = replace(CASE, seed=seed)
        backend, ptx = make(case)
        backend.run(case, any_gpu)
        return tuple(launch.ctas.start // 2 for launch in ptx.launches[1:])

    assert ran(3) == ran(3)
    assert len({ran(seed) for seed in range(10)}) > 1


def test_check_can_run_all_slices(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "ALL_SLICES_FMA", 0)
    backend, ptx = make(CASE, all_slices=True)
    result = backend.run(CASE, any_gpu)
    assert [launch.ctas for launch in ptx.launches] == [None, None]
    assert result.counts is not None and result.counts.fraction == 1.0


def test_a_wrong_output_is_not_passed(any_gpu: Gpu) -> None:
    result = make(CASE, spoil=True)[0].run(CASE, any_gpu)
    assert result.verification is not None and not result.verification.passed


def test_memory_and_resources(any_gpu: Gpu) -> None:
    backend, _ = make(CASE)
    result = backend.run(CASE, any_gpu)
    # Q, O: 2 · 4 · 8 · 40 · 2 = 5120 bytes each, K and V 2560 each, LSE and l 2 · 4 · 8 · 4 = 256 each.
    assert result.mem_peak_bytes == 2 * 5120 + 2 * 2560 + 2 * 256 == 15872
    assert result.mem_source == "allocator"
    assert backend.required_bytes(CASE) == 15872 + verification_bytes(CASE)
    assert result.resources is not None and result.resources.smem_bytes == 4096 + 16
    assert result.resources.compile_ms == 4.0


def test_refusals_are_ours(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, ptx = make(CASE)
    backend._lookup = lambda name: FakeAlgorithm("It does not fit.")  # type: ignore[assignment, return-value]
    with pytest.raises(Unsupported, match="It does not fit"):
        backend.run(CASE, any_gpu)
    assert ptx.launches == []
    backend, ptx = make(CASE)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ptx, "launch", fail)
    with pytest.raises(OutOfMemory, match="host memory"):
        backend.run(CASE, any_gpu)


def test_a_direction_without_kernels_is_refused(any_gpu: Gpu) -> None:
    case = replace(CASE, direction="bwd")
    backend, ptx = make(case)
    with pytest.raises(Unsupported, match="flash2 has no kernels for bwd, only for fwd"):
        backend.run(case, any_gpu)
    assert not ptx.launches
