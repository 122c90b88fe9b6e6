"""Runs a claim's small cases in the emulator: what they move and execute, and their result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fa_bench import algorithms, reference
from fa_bench.algorithms.base import Program, TensorBytes
from fa_bench.backends.programs import fitting_arguments, output, placed, verified
from fa_bench.cases import Case
from fa_bench.claims.cases import a100
from fa_bench.compiler import compile_kernel
from fa_bench.errors import DeviceUnavailable, FaBenchError


@dataclass(frozen=True)
class Run:
    """What the emulator counted of a program, all of its kernels together.

    Parameters
    ----------
    traffic : tuple of TensorBytes
        Global bytes per kernel, tensor and direction.
    instructions : mapping
        Warp instructions by the emulator's classes.
    shared_wavefronts : int
        Clocks of an SM's shared memory.
    output : ndarray
        O, in its storage type.
    compiler : str
        Whose instructions they are.
    """

    traffic: tuple[TensorBytes, ...]
    instructions: Mapping[str, int]
    shared_wavefronts: int
    output: NDArray[Any]
    compiler: str

    def per_mma(self, *classes: str) -> float:
        """Instructions of these classes for each mma that was executed."""
        return sum(self.instructions.get(name, 0) for name in classes) / self.instructions["tensor"]


@lru_cache(maxsize=16)
def run(case: Case) -> Run | None:
    """Run an algorithm's case on its own inputs; None where there is no compiler and the kernel is not shipped."""
    return run_program(case, algorithms.get(case.impl).program(case), reference.make_inputs(case))


def run_program(case: Case, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Run | None:
    """The same for a program and inputs of one's own.

    Raises
    ------
    FaBenchError
        If the result is wrong: then nothing that was counted means anything.
    """
    from fa_bench import ptx  # with its JIT, which claims without a kernel do without

    try:
        compiled = [compile_kernel(launch.kernel, a100().sm) for launch in program.launches]
    except DeviceUnavailable:
        return None
    memory = ptx.Memory()
    raw = placed(program, inputs, memory.allocate)
    traffic: list[TensorBytes] = []
    instructions: dict[str, int] = {}
    wavefronts = 0
    for launch, built in zip(program.launches, compiled, strict=True):
        kernel = ptx.load(built.ptx).kernel(built.entry)
        counters = ptx.launch(
            kernel,
            grid=launch.grid,
            block=launch.block,
            args=fitting_arguments(launch, kernel, lambda name: np.uint64(memory.address(name))),
            smem_bytes=launch.smem_bytes,
            memory=memory,
        )
        traffic += _moved(built.entry, program, counters.tensors)
        wavefronts += counters.shared.wavefronts
        for name, count in counters.instructions.items():
            instructions[name] = instructions.get(name, 0) + count
    verification = verified(case, program, raw.__getitem__, inputs)
    if not verification.passed:
        raise FaBenchError(f"{case.impl} is wrong in the emulator. {verification.detail}")
    o = output(program, "O", raw["O"], case)
    compiler = f"NVRTC {compiled[0].nvrtc_version} for {a100().sm}"
    return Run(tuple(traffic), instructions, wavefronts, o, compiler)


def _moved(kernel: str, program: Program, tensors: Mapping[str, Any]) -> Sequence[TensorBytes]:
    """Tensors in the program's order: the counters have them by address, which may differ from process to process."""
    found = []
    for name, counted in ((buffer.name, tensors[buffer.name]) for buffer in program.buffers):
        if counted.read_bytes:
            found.append(TensorBytes(kernel, name, "read", counted.read_bytes))
        if counted.write_bytes:
            found.append(TensorBytes(kernel, name, "write", counted.write_bytes))
    return found
