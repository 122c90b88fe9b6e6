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
from fa_bench.backends.base import BackendName, CountersKind, Counts, Level, RunResult
from fa_bench.backends.checking import sanitizer, shadow_bytes, slices_that_ran, source_lines, with_lines
from fa_bench.backends.hierarchy import CacheRun, best_l2, blocks_per_sm, interval, interval_l2s, steady_prefix
from fa_bench.backends.programs import (
    POISON,
    alignment_classes,
    fitting_arguments,
    put_inputs,
    resources,
    verification_bytes,
    verified,
)
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel, compile_kernel
from fa_bench.errors import DeviceUnavailable, OutOfMemory, Unsupported
from fa_bench.measure.environment import cpu_name, usable_cpus
from fa_bench.measure.memory import available_bytes
from fa_bench.model.flops import multiply_adds
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
    counters : {"global", "full"}
        Whether to count what L2 and DRAM see as well. Then CTAs run side by side, as many as the target GPU holds; a
        large grid is run until its caches are in a steady state, see `fa_bench.backends.hierarchy`.
    interval : bool
        With ``full``: also the least and most DRAM bytes over what is not known of the caches.
    checks : bool
        Whether to look for races, reads of what was never written, and more (docs/emulator.md): a finding is a
        `KernelFault`. The CTAs run on one thread then.
    ptx, compiler, lookup
        Stand in for `fa_bench.ptx`, `fa_bench.compiler.compile_kernel` and `fa_bench.algorithms.get` in tests.
    """

    name: BackendName = "emulator"

    def __init__(
        self,
        *,
        jobs: int = 0,
        all_slices: bool = False,
        counters: CountersKind = "global",
        interval: bool = False,
        checks: bool = False,
        ptx: Any = None,
        compiler: Compile = compile_kernel,
        lookup: Callable[[str], Algorithm] = algorithms.get,
    ) -> None:
        self.device = cpu_name() or "CPU"
        self._jobs = jobs or usable_cpus()
        self._all_slices = all_slices
        self._counters = counters
        self._interval = interval
        self._given_ptx = ptx
        self._lookup = lookup
        # A sweep runs the same kernels at many lengths.
        self._checks = checks
        self._compile = lru_cache(maxsize=KERNELS_KEPT)(with_lines(compiler) if checks else compiler)
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
        """The program's buffers, with checks their shadow, and the verification, in bytes."""
        program = self._lookup(case.impl).program(case)
        shadow = shadow_bytes(program) if self._checks else 0
        return program.nbytes + shadow + verification_bytes(case)

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Compile ``case`` for ``gpu``, execute it, count, and verify the slices that were run."""
        algorithm = self._lookup(case.impl)
        if reason := algorithms.lacking(case, algorithm):
            raise Unsupported(reason)
        if reason := algorithm.unsupported(case, gpu):
            raise Unsupported(reason)
        try:
            return self._run(case, gpu, algorithm.program(case))
        except MemoryError as error:
            raise OutOfMemory(f"{case.impl} ran out of host memory in the emulator.") from error

    def _run(self, case: Case, gpu: Gpu, program: Program) -> RunResult:
        try:
            compiled = [self._compile(launch.kernel, gpu.sm) for launch in program.launches]
            prepared = [self._compile(launch.kernel, gpu.sm) for launch in program.setup]
        except DeviceUnavailable as error:
            raise Unsupported(error.message) from error
        inputs = reference.make_inputs(case)
        memory = self._ptx.Memory()
        raw = {b.name: memory.allocate(b.name, b.nbytes) for b in program.buffers}
        tally = _Tally([buffer.name for buffer in program.buffers])
        classes: list[list[int]] | None = None

        def prepare(checks: Any = None) -> None:
            """Put in what the program is given: inputs, and what the setup leaves. Memory arrives poisoned."""
            put_inputs(program, raw, inputs)
            for launch, kernel in zip(program.setup, prepared, strict=True):
                self._launch(launch, kernel, memory, classes, _Tally([]), checks)

        def anew(checks: Any = None) -> None:
            """Memory as it was before the first pass."""
            for content in raw.values():
                content.fill(POISON)
            prepare(checks)

        runs: list[CacheRun] = []
        if self._counters == "full":
            prepare()
            runs = self._cache_runs(case, gpu, program, compiled, memory, anew, tally)
        counted = bool(runs) and runs[-1].prefix is None
        if not counted or self._checks:
            classes = self._slices(case, program)
            checks: Any = sanitizer(self._ptx, program) if self._checks else None
            (anew if runs else prepare)(checks)
            into = _Tally([]) if counted else tally
            for launch, kernel in zip(program.launches, compiled, strict=True):
                self._launch(launch, kernel, memory, classes, into, checks)
        slices = None if classes is None else sorted(members[0] for members in classes)
        if self._checks:
            checks.require_outputs(slices_that_ran(program, slices))
        return RunResult(
            counts=tally.counts(1.0 if counted or slices is None else len(slices) / case.shape.slices, runs),
            verification=verified(case, program, raw.__getitem__, inputs, slices),
            resources=resources(program.launches, compiled),
            mem_peak_bytes=program.nbytes,
            mem_source="allocator",
        )

    def _cache_runs(
        self,
        case: Case,
        gpu: Gpu,
        program: Program,
        compiled: Sequence[CompiledKernel],
        memory: Any,
        anew: Callable[[], None],
        tally: _Tally,
    ) -> list[CacheRun]:
        """The program in front of the caches: for an interval CTA after CTA first, then, to stay, side by side.

        Where every CTA ran, ``tally`` has the global counts.
        """
        waves = [
            blocks_per_sm(launch, kernel, gpu) * gpu.sm_count
            for launch, kernel in zip(program.launches, compiled, strict=True)
        ]
        prefix = steady_prefix(case, program, gpu, waves)
        extremes = interval_l2s(self._ptx, gpu) if self._interval else []
        plans = [(True, extremes)] if extremes else []
        plans.append((False, [best_l2(self._ptx, gpu), *extremes]))
        runs: list[CacheRun] = []
        for serial, variants in plans:
            run = CacheRun(self._ptx, gpu, case.shape.slices, prefix, variants, serial, self._jobs)
            if runs:
                anew()
            for launch, kernel in zip(program.launches, compiled, strict=True):
                ptx_kernel = self._load(kernel.ptx).kernel(kernel.entry)
                args = fitting_arguments(launch, ptx_kernel, lambda name: np.uint64(memory.address(name)))
                counters = run.launch(launch, kernel, ptx_kernel, args, memory)
                if prefix is None and not serial:
                    tally.add(kernel.entry, counters, 1)
            runs.append(run)
        return runs

    def _slices(self, case: Case, program: Program) -> list[list[int]] | None:
        """Alignment classes, of which the first member of each is run; None to run everything."""
        s = case.shape
        # dK and dV of a K/V head are sums over all query heads that share it.
        by_slice = any(launch.ctas_per_slice for launch in program.launches) and not (case.backward and s.group > 1)
        # Slices of a packed batch differ in length.
        if self._all_slices or not by_slice or s.seqlens is not None or multiply_adds(case) <= ALL_SLICES_FMA:
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
        self,
        launch: Launch,
        kernel: CompiledKernel,
        memory: Any,
        classes: list[list[int]] | None,
        tally: _Tally,
        checks: Any = None,
    ) -> None:
        """Run one launch: whole, or the CTAs of one slice per class, counted once for each member."""
        ptx_kernel = self._load(kernel.ptx).kernel(kernel.entry)
        args = fitting_arguments(launch, ptx_kernel, lambda name: np.uint64(memory.address(name)))
        parts: list[tuple[range | None, int]] = [(None, 1)]
        if classes is not None and launch.ctas_per_slice:
            per = launch.ctas_per_slice
            parts = [(range(c[0] * per, (c[0] + 1) * per), len(c)) for c in classes]
        watched = {"checks": checks, "where": source_lines(kernel.ptx)} if checks is not None else {}
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
                **watched,
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
        self._requests: Counter[tuple[str, str, Op]] = Counter()
        self._extra: dict[str, Counter[str]] = {}

    def add(self, kernel: str, counters: Any, times: int) -> None:
        """Count one launch ``times`` times."""
        for tensor in sorted(counters.tensors, key=lambda name: (self._place.get(name, len(self._place)), name)):
            count = counters.tensors[tensor]
            # An atomic operation reads and writes its sectors, here as behind the L1.
            self._sectors[kernel, tensor, "read"] += times * (count.read_sectors + count.atomic_sectors)
            self._sectors[kernel, tensor, "write"] += times * (count.write_sectors + count.atomic_sectors)
            self._requests[kernel, tensor, "read"] += times * (count.read_requests + count.atomic_requests)
            self._requests[kernel, tensor, "write"] += times * (count.write_requests + count.atomic_requests)
        extra = self._extra.setdefault(kernel, Counter())
        for name in ("requests", "wavefronts", "conflicts"):
            extra[f"shared_{name}"] += times * getattr(counters.shared, name)
        for name, count in counters.instructions.items():
            extra[f"instructions_{name}".replace("-", "_")] += times * count

    def counts(self, fraction: float, runs: Sequence[CacheRun] = ()) -> Counts:
        """All of it, with what the caches saw in the last of ``runs``, less tensors that a kernel does not touch.

        ``fraction`` is the share of the slices that global traffic was counted of.
        """
        hits = runs[-1].l1_hits() if runs else {}
        traffic: dict[Level, Sequence[TensorBytes]] = {
            "global": [
                TensorBytes(
                    kernel, tensor, op, sectors * SECTOR_BYTES, self._requests[kernel, tensor, op],
                    hits.get((kernel, tensor)) if op == "read" else None,
                )
                for (kernel, tensor, op), sectors in self._sectors.items()
                if sectors
            ]
        }  # fmt: skip
        extra = {kernel: dict(counters) for kernel, counters in self._extra.items()}
        if not runs:
            return Counts(traffic, fraction, extra)
        run = runs[-1]
        for kernel, nbytes in run.dirty_bytes.items():
            extra[kernel]["l2_dirty_bytes"] = nbytes
        if run.prefix is not None:
            fraction = run.prefix / run.slices
        traffic.update(run.traffic())
        return Counts(traffic, fraction, extra, interval(runs) if len(runs) > 1 else {})
