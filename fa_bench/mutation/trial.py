"""One run of a case on the test bench: its kernels within a budget, checked, counted and held against fp64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fa_bench import algorithms, ptx, reference, storage
from fa_bench.algorithms.base import SECTOR_BYTES, KernelSpec, Op, Program
from fa_bench.backends.base import Verification
from fa_bench.backends.checking import sanitizer, source_lines
from fa_bench.backends.programs import fitting_arguments, has_buffer, output, put_inputs
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel
from fa_bench.ptx.counters import LaunchCounters
from fa_bench.ptx.machine import DEFAULT_BUDGET
from fa_bench.ptx.program import Kernel, Label

#: What Q is multiplied with for scores whose exponentials overflow unless a maximum is subtracted: standard normal
#: scores reach about 3.5, and exp(x) overflows at 88.7 in fp32.
STEEP: Final = 32

#: Kernel, tensor and direction -> bytes and requests.
Traffic = Mapping[tuple[str, str, Op], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left.

    Parameters
    ----------
    output : bytes
        All output buffers.
    traffic : mapping
        Global memory, per kernel, tensor and direction.
    work : Counter
        Warp instructions and wavefronts of shared memory.
    verification : Verification
    executed : mapping of KernelSpec to set of int
        PTX lines of the instructions that ran.
    jumps : mapping of KernelSpec to int
        Backward jumps of all CTAs of a launch.
    """

    output: bytes
    traffic: Traffic
    work: Mapping[str, int]
    verification: Verification
    executed: Mapping[KernelSpec, frozenset[int]]
    jumps: Mapping[KernelSpec, int]


@dataclass(frozen=True)
class Trial:
    """A case with its inputs, ready to run again and again.

    Parameters
    ----------
    case : Case
    gain : int
        A power of two that Q is multiplied with.
    """

    case: Case
    gain: int = 1
    program: Program = field(init=False, repr=False)
    _inputs: Mapping[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        inputs = reference.make_inputs(self.case)
        if self.gain != 1:
            steep = storage.decode(inputs["Q"], np.float32) * self.gain
            inputs["Q"] = storage.encode(steep, self.case.dtype)
        object.__setattr__(self, "program", algorithms.get(self.case.impl).program(self.case))
        object.__setattr__(self, "_inputs", inputs)

    def run(
        self,
        kernels: Mapping[KernelSpec, CompiledKernel],
        loaded: Mapping[KernelSpec, Kernel],
        checks: bool,
        budgets: Mapping[KernelSpec, int],
    ) -> Ran:
        """Run the program.

        Parameters
        ----------
        kernels : mapping
            What the program launches, as compiled: their line information is used.
        loaded : mapping
            What is really executed.
        checks : bool
        budgets : mapping
            Backward jumps that one CTA of a kernel may take; the emulator's own limit for others.

        Raises
        ------
        KernelFault
            If a kernel does something illegal, or the checks find something.
        UsageError
            If a launch's arguments are not those of its kernel.
        """
        memory = ptx.Memory()
        raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in self.program.buffers}
        put_inputs(self.program, raw, self._inputs)
        shadow = sanitizer(ptx, self.program) if checks else None
        counted = _Counted()
        for launch in self.program.launches:
            spec = launch.kernel
            counters = ptx.launch(
                loaded[spec],
                grid=launch.grid,
                block=launch.block,
                args=fitting_arguments(launch, loaded[spec], lambda name: np.uint64(memory.address(name))),
                smem_bytes=launch.smem_bytes,
                memory=memory,
                per_instruction=True,
                checks=shadow,
                where=source_lines(kernels[spec].ptx),
                budget=budgets.get(spec, DEFAULT_BUDGET),
            )
            counted.add(spec, loaded[spec], counters)
        if shadow is not None:
            shadow.require_outputs()
        lse = output(self.program, "LSE", raw["LSE"], self.case) if has_buffer(self.program, "LSE") else None
        return Ran(
            output=b"".join(raw[b.name].tobytes() for b in self.program.buffers if b.role == "output"),
            traffic=counted.traffic,
            work=counted.work,
            verification=reference.verify(self.case, output(self.program, "O", raw["O"], self.case), lse, self._inputs),
            executed={spec: frozenset(lines) for spec, lines in counted.executed.items()},
            jumps=counted.jumps,
        )


class _Counted:
    """Sums over the launches of a program."""

    def __init__(self) -> None:
        self.traffic: dict[tuple[str, str, Op], tuple[int, int]] = {}
        self.work: Counter[str] = Counter()
        self.executed: dict[KernelSpec, set[int]] = {}
        self.jumps: Counter[KernelSpec] = Counter()

    def add(self, spec: KernelSpec, kernel: Kernel, counters: LaunchCounters) -> None:
        for tensor, counts in counters.tensors.items():
            for op, sectors, requests in (
                ("read", counts.read_sectors, counts.read_requests),
                ("write", counts.write_sectors, counts.write_requests),
            ):
                if requests:
                    key: tuple[str, str, Any] = (spec.entry, tensor, op)
                    nbytes, before = self.traffic.get(key, (0, 0))
                    self.traffic[key] = (nbytes + sectors * SECTOR_BYTES, before + requests)
        self.work["instructions"] += counters.warp_instructions
        self.work["wavefronts"] += counters.shared.wavefronts
        lines, jumps = self.executed.setdefault(spec, set()), 0
        for index, (instruction, count) in enumerate(zip(kernel.instructions, counters.by_instruction, strict=True)):
            if count.executions:
                lines.add(instruction.line)
                if any(isinstance(o, Label) and kernel.labels[o.name] <= index for o in instruction.operands):
                    jumps += count.executions
        self.jumps[spec] = max(self.jumps[spec], jumps)
