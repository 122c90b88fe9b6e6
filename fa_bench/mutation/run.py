"""Every mutant of every kernel of some cases, one after the other or in several processes, in a fixed order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from fa_bench import algorithms
from fa_bench.algorithms.base import KernelSpec
from fa_bench.algorithms.user import UserAlgorithm, load
from fa_bench.cases import Case
from fa_bench.compiler import compile_kernel
from fa_bench.errors import UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.mutation import operators
from fa_bench.mutation.bench import Bench, Compile, trial_name
from fa_bench.mutation.result import KINDS, Kind, Mutant, MutationTest, Outcome
from fa_bench.mutation.trial import STEEP, Trial

#: What is being done, in words, and the mutant that was just done with.
Announce = Callable[[str, Outcome | None], None]
Task = tuple[KernelSpec, Mutant, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What to mutate, and on what to try it.

    Parameters
    ----------
    cases : tuple of Case
        With their tiles. Mutants meet them in this order, and then again with scores so steep that a softmax overflows
        unless it subtracts the maximum.
    gpu : Gpu
    kinds : tuple of Kind
    every : bool
        Each instruction, not just one of those that the compiler made of a statement.
    limit : int, optional
        At most so many mutants, evenly spread.
    checks : bool
        Whether the emulator's checks look at the mutants.
    files : tuple of Path
        TOML files of the implementations that are the user's own.
    """

    cases: tuple[Case, ...]
    gpu: Gpu
    kinds: tuple[Kind, ...] = KINDS
    every: bool = False
    limit: int | None = None
    checks: bool = True
    files: tuple[Path, ...] = ()


def own_files(impls: Sequence[str]) -> tuple[Path, ...]:
    """TOML files of those implementations that are the user's own."""
    found = (algorithms.get(impl) for impl in impls if impl in algorithms.added())
    return tuple(algorithm.file.path.resolve() for algorithm in found if isinstance(algorithm, UserAlgorithm))


def run(
    request: Request,
    jobs: int = 1,
    announce: Announce = lambda text, outcome: None,
    compiler: Compile = compile_kernel,
) -> MutationTest:
    """Mutate every kernel of the cases; an interrupt ends it with what was judged so far.

    Parameters
    ----------
    request : Request
    jobs : int
        Processes; with 1 everything happens in this one.
    announce : callable
    compiler : callable
        Stands in for `fa_bench.compiler.compile_kernel` in tests; in this process only.

    Raises
    ------
    FaBenchError
        If a kernel fails a case as it is, or nothing of it can be dropped.
    """
    benches = _Benches(request, compiler)
    tasks = list(_tasks(request, benches, announce))
    total = len(tasks)
    if request.limit is not None and request.limit < len(tasks):
        tasks = [tasks[k * len(tasks) // request.limit] for k in range(request.limit)]
    if not tasks:
        raise UsageError(f"These kernels have no {' and no '.join(request.kinds)} that could be dropped.")
    done: list[Outcome] = []
    interrupted = False
    try:
        for outcome in _outcomes(request, benches, tasks, jobs):
            done.append(outcome)
            announce(f"{len(done)}/{len(tasks)} mutants", outcome)
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted = True
    return MutationTest(tuple(map(trial_name, benches.trials)), tuple(done), request.checks, total, interrupted)


class _Benches:
    """The benches of a request, each built when it is asked for: a process builds those of its own tasks."""

    def __init__(self, request: Request, compiler: Compile = compile_kernel) -> None:
        for path in request.files:
            algorithms.add(load(path))
        self.trials: Final = [Trial(case, gain) for gain in (1, STEEP) for case in request.cases]
        self._request = request
        self._compiler = compiler
        self._built: dict[KernelSpec, Bench] = {}

    def specs(self) -> list[KernelSpec]:
        """Every kernel that the cases launch, once."""
        return list(dict.fromkeys(launch.kernel for trial in self.trials for launch in trial.program.launches))

    def get(self, spec: KernelSpec) -> Bench:
        """The bench of a kernel."""
        if spec not in self._built:
            trials = [t for t in self.trials if any(launch.kernel == spec for launch in t.program.launches)]
            self._built[spec] = Bench(spec, trials, self._request.gpu, self._request.checks, self._compiler)
        return self._built[spec]

    def outcome(self, task: Task) -> Outcome:
        """Run one mutant."""
        spec, mutant, build = task
        return self.get(spec).outcome(mutant, build)


def _tasks(request: Request, benches: _Benches, announce: Announce) -> Iterator[Task]:
    specs = benches.specs()
    builds = build_names(specs)
    for number, spec in enumerate(specs):
        announce(f"{spec.entry} as it is ({number + 1}/{len(specs)})", None)
        every = benches.get(spec).mutants()
        chosen = every if request.every else operators.one_of_each(every)
        yield from ((spec, mutant, builds[spec]) for mutant in operators.of_kinds(chosen, request.kinds))


def build_names(specs: Sequence[KernelSpec]) -> Mapping[KernelSpec, str]:
    """What tells each kernel from the others of its entry: the definitions that differ.

    Examples
    --------
    >>> one, two = (KernelSpec("a.cu", "a", (("DIM", "64"), ("CAUSAL", c))) for c in "01")
    >>> build_names([one, two])[two]
    'CAUSAL=1'
    """
    names = {}
    for spec in specs:
        same = [dict(other.defines) for other in specs if other.entry == spec.entry]
        differ = [name for name, _ in spec.defines if len({defines.get(name) for defines in same}) > 1]
        names[spec] = " ".join(f"{name}={value}" for name, value in spec.defines if name in differ)
    return names


def _outcomes(request: Request, benches: _Benches, tasks: Sequence[Task], jobs: int) -> Iterator[Outcome]:
    if jobs == 1 or len(tasks) == 1:
        yield from map(benches.outcome, tasks)
        return
    # The JIT lets one thread of a process compile at a time. Forking a process with threads is not safe.
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn"), _start, (request,))
    try:
        yield from pool.map(_outcome_in_process, tasks)
    finally:
        pool.shutdown(cancel_futures=True)


_own: _Benches | None = None


def _start(request: Request) -> None:
    """Prepare a process; an interrupt is the main process' affair."""
    global _own
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _own = _Benches(request)


def _outcome_in_process(task: Task) -> Outcome:
    assert _own is not None
    return _own.outcome(task)
