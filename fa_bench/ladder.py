"""Runs the ladder in the emulator: what each rung moves, executes and occupies, for one case."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fa_bench import algorithms, ptx, reference
from fa_bench.algorithms.base import Program, TensorBytes
from fa_bench.algorithms.ladder import RUNGS, Figure
from fa_bench.backends.base import Verification
from fa_bench.backends.checking import sanitizer
from fa_bench.backends.programs import fitting_arguments, placed, verified
from fa_bench.cases import Case
from fa_bench.compiler import compile_kernel, kernels_dir
from fa_bench.model.gpu import Gpu

#: Multiply-adds of one mma.m16n8k16: the work that instructions are counted by, on tensor cores or not.
MMA_FMA: Final = 16 * 8 * 16


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel of the ladder, ready to run.

    Parameters
    ----------
    name, idea, figure, gain
        As of :class:`fa_bench.algorithms.ladder.Rung`.
    program : Program
    traffic : tuple of TensorBytes
        What its formula says.
    """

    name: str
    idea: str
    figure: Figure | None
    gain: str
    program: Program
    traffic: tuple[TensorBytes, ...]

    @property
    def source(self) -> str:
        """Path of the kernel below ``kernels/``."""
        return self.program.launches[0].kernel.source


@dataclass(frozen=True, slots=True)
class Counted:
    """What one rung did.

    Parameters
    ----------
    step : Step
    work : float
        Multiply-adds of the case over those of an mma.
    traffic : mapping
        Global bytes per tensor and direction.
    instructions : mapping
        Warp instructions by the emulator's classes.
    shared_requests, shared_wavefronts, shared_conflicts : int
    registers, smem_bytes, spill_bytes : int or None
        Per thread, per CTA, per thread; None if the compiler did not say.
    nvrtc_version : str
    verification : Verification
    """

    step: Step
    work: float
    traffic: Mapping[tuple[str, str], int]
    instructions: Mapping[str, int]
    shared_requests: int
    shared_wavefronts: int
    shared_conflicts: int
    registers: int | None
    smem_bytes: int | None
    spill_bytes: int | None
    nvrtc_version: str
    verification: Verification

    @property
    def equal(self) -> bool:
        """Whether the bytes are those of the formula."""
        return self.traffic == {(moved.tensor, moved.op): moved.bytes for moved in self.step.traffic}

    def nbytes(self, op: str) -> int:
        """Global bytes read or written."""
        return sum(nbytes for (_, direction), nbytes in self.traffic.items() if direction == op)

    def per_mma(self, *classes: str) -> float:
        """Instructions of these classes, all if none is named, for the work of an mma."""
        return sum(self.instructions.get(name, 0) for name in classes or self.instructions) / self.work

    def figure(self, name: Figure) -> float:
        """A figure by name: global bytes, all others for the work of an mma."""
        match name:
            case "read":
                return self.nbytes("read")
            case "written":
                return self.nbytes("write")
            case "shared requests":
                return self.shared_requests / self.work
            case "wavefronts":
                return self.shared_wavefronts / self.work
            case "conflicts":
                return self.shared_conflicts / self.work
            case "instructions":
                return self.per_mma()
            case "fp32":
                return self.per_mma("fma")
            case "load-store" | "integer":
                return self.per_mma(name)


def steps(case: Case, gpu: Gpu) -> Iterator[Step]:
    """The ladder for a case that :func:`fa_bench.algorithms.ladder.ladder_case` made, from the bottom up to flash2."""
    for rung in RUNGS:
        yield Step(rung.name, rung.idea, rung.figure, rung.gain, rung.program(case), rung.traffic(case))
    flash2 = algorithms.get("flash2")
    default = replace(case, tile=flash2.resolve(case, flash2.auto_tile(case, gpu)))
    general = "every mask, layout, head dimension; shared K/V heads"
    yield _top(case, general, None, "generality, for integer instructions")
    yield _top(default, "flash2's default tile: a fragment of K or V serves twice as many queries", "read", "")


def _top(case: Case, idea: str, figure: Figure | None, gain: str) -> Step:
    """flash2 itself, in the tile of ``case``."""
    flash2, tile = algorithms.get("flash2"), case.tile
    assert tile is not None
    return Step(f"flash2 {tile}", idea, figure, gain, flash2.program(case), tuple(flash2.traffic(case) or ()))


def changed_lines(before: Step, after: Step) -> tuple[int, int]:
    """Lines that the diff of two kernels adds and takes away, but for their head comments."""
    old, new = (_without_head((kernels_dir() / step.source).read_text(encoding="utf-8")) for step in (before, after))
    diff = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    added, removed = (sum(line.startswith(sign) for line in diff) for sign in "+-")
    return added, removed


def _without_head(text: str) -> list[str]:
    lines = text.splitlines()
    return lines[next(number for number, line in enumerate(lines) if not line.startswith("//")) :]


def run(step: Step, case: Case, gpu: Gpu, *, checks: bool = False, jobs: int = 1) -> Counted:
    """Compile a rung for ``gpu``, run it, count, and hold its output against fp64.

    Parameters
    ----------
    step : Step
    case : Case
        The one that ``step`` was made for.
    gpu : Gpu
    checks : bool
        Whether to look for races, missing waits, and reads of what was never written.
    jobs : int
        Threads; one with ``checks``.

    Raises
    ------
    DeviceUnavailable
        If there is no compiler here.
    KernelFault
        If the kernel does something illegal, or with ``checks`` the first finding.
    """
    program = step.program
    (launch,) = program.launches
    compiled = compile_kernel(launch.kernel, gpu.sm)
    kernel = ptx.load(compiled.ptx).kernel(compiled.entry)
    inputs = reference.make_inputs(case)
    memory = ptx.Memory()
    raw = placed(program, inputs, memory.allocate)
    shadow = sanitizer(ptx, program) if checks else None
    counters = ptx.launch(
        kernel,
        grid=launch.grid,
        block=launch.block,
        args=fitting_arguments(launch, kernel, lambda name: np.uint64(memory.address(name))),
        smem_bytes=launch.smem_bytes,
        memory=memory,
        jobs=jobs,
        checks=shadow,
    )
    if shadow is not None:
        shadow.require_outputs()
    shape, static_bytes = case.shape, compiled.static_smem_bytes
    moved = {
        (name, op): nbytes
        for name, tensor in counters.tensors.items()
        for op, nbytes in (("read", tensor.read_bytes), ("write", tensor.write_bytes))
        if nbytes
    }
    return Counted(
        step=step,
        work=2 * shape.slices * shape.seq_q * shape.seq_kv * shape.head_dim / MMA_FMA,
        traffic=moved,
        instructions=counters.instructions,
        shared_requests=counters.shared.requests,
        shared_wavefronts=counters.shared.wavefronts,
        shared_conflicts=counters.shared.conflicts,
        registers=compiled.registers,
        smem_bytes=None if static_bytes is None else launch.smem_bytes + static_bytes,
        spill_bytes=compiled.spill_bytes,
        nvrtc_version=compiled.nvrtc_version,
        verification=verified(case, program, raw.__getitem__, inputs),
    )
