"""The emulator backend: the kernels' own PTX, executed on the CPU, with every global access counted.

It gives counts, not times: how long a CPU takes to imitate a GPU says nothing about the GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from fa_bench import algorithms, reference
from fa_bench.algorithms.base import (
    SECTOR_BYTES,
    Algorithm,
    KernelSpec,
    Launch,
    Op,
    Program,
    TensorBytes,
)
from fa_bench.backends.base import BackendName, Counts, RunResult
from fa_bench.backends.programs import (
    alignment_classes,
    arguments,
    has_buffer,
    output,
    resources,
    tensor_view,
)
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel, compile_kernel
from fa_bench.errors import DeviceUnavailable, OutOfMemory, Unsupported
from fa_bench.measure.environment import cpu_name, usable_cpus
from fa_bench.measure.memory import available_bytes
from fa_bench.model.gpu import Gpu

#: Cases with at most this many multiply-adds run every slice: a second or so on one core.
ALL_SLICES_FMA: Final = 2**30
#: Compiled kernels that an open backend keeps.
KERNELS_KEPT: Final = 64

Compile = Callable[[KernelSpec, str], CompiledKernel]


class EmulatorBackend:
    """Compiles a case's kernels to PTX for the target GPU and executes them on this machine's CPU.

    Parameters
    ----------
    jobs : int
        Threads; 0 for all CPUs that this process may use.
    all_slices : bool
        Run every (batch, query head). Otherwise a large case runs one slice of each alignment class, drawn by the
        case's seed, and multiplies: the others would ask for the same sectors. Then only the slices that were run are
        verified.
    ptx, compiler, lookup
        Stand in for `fa_bench.ptx`, `fa_bench.compiler.compile_kernel` and `fa_bench.algorithms.get` in tests.
    """

    name: BackendName = "emulator"

    def __init__(
        self,
        *,
        jobs: int = 0,
        all_slices: bool = False,
        ptx: Any = None,
        compiler: Compile = compile_kernel,
        lookup: Callable[[str], Algorithm] = algorithms.get,
    ) -> None:
        self.device = cpu_name() or "CPU"
        self._jobs = jobs or usable_cpus()
        self._all_slices = all_slices
        self._given_ptx = ptx
        self._lookup = lookup
        # A sweep runs the same kernels at many lengths.
        self._compile = lru_cache(maxsize=KERNELS_KEPT)(compiler)
        self._load = lru_cache(maxsize=KERNELS_KEPT)(lambda text: self._ptx.load(text))

    @property
    def _ptx(self) -> Any:
        """The emulator, imported when the first case runs: planning needs neither it nor its JIT."""
        if self._given_ptx is None:
            from fa_bench import ptx

            self._given_ptx = ptx
        return self._given_ptx

    def implementations(self) -> Sequence[str]:
        """The kernels of this repository, and those of the user."""
        return (*algorithms.names(), *algorithms.added())

    def free_memory_bytes(self) -> int | None:
        """The system's available memory, or the container's."""
        return available_bytes()

    def required_bytes(self, case: Case) -> int:
        """The program's buffers and the verification, in bytes."""
        return self._lookup(case.impl).program(case).nbytes + reference.verification_bytes(case)

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Compile ``case`` for ``gpu``, execute it, count, and verify the slices that were run."""
        algorithm = self._lookup(case.impl)
        if reason := algorithm.unsupported(case, gpu):
            raise Unsupported(reason)
        try:
            return self._run(case, gpu, algorithm.program(case))
        except MemoryError as error:
            raise OutOfMemory(f"{case.impl} ran out of host memory in the emulator.") from error

    def _run(self, case: Case, gpu: Gpu, program: Program) -> RunResult:
        try:
            compiled = [self._compile(launch.kernel, gpu.sm) for launch in program.launches]
        except DeviceUnavailable as error:
            raise Unsupported(error.message) from error
        inputs = reference.make_inputs(case)
        memory = self._ptx.Memory()
        raw = {b.name: memory.allocate(b.name, b.nbytes) for b in program.buffers}  # arrives poisoned
        for name, values in inputs.items():
            buffer = program.buffer(name)
            tensor_view(buffer, raw[name])[...] = values.reshape(buffer.shape)
        classes = self._slices(case, program)
        tally = _Tally([buffer.name for buffer in program.buffers])
        for launch, kernel in zip(program.launches, compiled, strict=True):
            self._launch(launch, kernel, memory, classes, tally)
        slices = None if classes is None else sorted(members[0] for members in classes)
        o = output(program, "O", raw["O"], case)
        lse = output(program, "LSE", raw["LSE"], case) if has_buffer(program, "LSE") else None
        return RunResult(
            counts=tally.counts(len(slices) / case.shape.slices if slices else 1.0),
            verification=reference.verify(case, o, lse, inputs, slices),
            resources=resources(program.launches, compiled),
            mem_peak_bytes=program.nbytes,
            mem_source="allocator",
        )

    def _slices(self, case: Case, program: Program) -> list[list[int]] | None:
        """Alignment classes, of which the first member of each is run; None to run everything."""
        s = case.shape
        fma = 2 * s.slices * s.visible_pairs * s.head_dim
        by_slice = any(launch.ctas_per_slice for launch in program.launches)
        if self._all_slices or not by_slice or fma <= ALL_SLICES_FMA:
            return None
        classes = alignment_classes(program, s)
        if len(classes) == s.slices:
            return None
        # Never slice 0 where there is another: at its offsets of 0 a wrong stride or K/V head would not show.
        rng = np.random.default_rng([case.seed, s.batch, s.heads_q])
        drawn = [int(rng.choice([index for index in members if index] or members)) for members in classes]
        return [
            [index, *(other for other in members if other != index)]
            for index, members in zip(drawn, classes, strict=True)
        ]

    def _launch(
        self, launch: Launch, kernel: CompiledKernel, memory: Any, classes: list[list[int]] | None, tally: _Tally
    ) -> None:
        """Run one launch: whole, or the CTAs of one slice per class, counted once for each member."""
        ptx_kernel = self._load(kernel.ptx).kernel(kernel.entry)
        args = arguments(launch, lambda name: np.uint64(memory.address(name)))
        parts: list[tuple[range | None, int]] = [(None, 1)]
        if classes is not None and launch.ctas_per_slice:
            per = launch.ctas_per_slice
            parts = [(range(c[0] * per, (c[0] + 1) * per), len(c)) for c in classes]
        for ctas, times in parts:
            counters = self._ptx.launch(
                ptx_kernel,
                grid=launch.grid,
                block=launch.block,
                args=args,
                smem_bytes=launch.smem_bytes,
                memory=memory,
                ctas=ctas,
                jobs=self._jobs,
            )
            tally.add(kernel.entry, counters, times)

    def close(self) -> None:
        """Drop the loaded kernels."""
        self._compile.cache_clear()
        self._load.cache_clear()


class _Tally:
    """Counts of a case's launches, summed per kernel, tensor and direction.

    Parameters
    ----------
    order : sequence of str
        Tensors in the order in which they are shown; others follow by name.
    """

    def __init__(self, order: Sequence[str]) -> None:
        self._place = {name: place for place, name in enumerate(order)}
        self._sectors: Counter[tuple[str, str, Op]] = Counter()
        self._extra: dict[str, Counter[str]] = {}

    def add(self, kernel: str, counters: Any, times: int) -> None:
        """Count one launch ``times`` times."""
        for tensor in sorted(counters.tensors, key=lambda name: (self._place.get(name, len(self._place)), name)):
            count = counters.tensors[tensor]
            self._sectors[kernel, tensor, "read"] += times * count.read_sectors
            self._sectors[kernel, tensor, "write"] += times * count.write_sectors
        extra = self._extra.setdefault(kernel, Counter())
        for name in ("requests", "wavefronts", "conflicts"):
            extra[f"shared_{name}"] += times * getattr(counters.shared, name)
        for name, count in counters.instructions.items():
            extra[f"instructions_{name}".replace("-", "_")] += times * count

    def counts(self, fraction: float) -> Counts:
        """All of it; tensors that a kernel does not touch are left out."""
        traffic = [
            TensorBytes(kernel, tensor, op, sectors * SECTOR_BYTES)
            for (kernel, tensor, op), sectors in self._sectors.items()
            if sectors
        ]
        return Counts({"global": traffic}, fraction, {k: dict(v) for k, v in self._extra.items()})
