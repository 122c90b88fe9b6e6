"""One kernel on the test bench: what it does in its cases, and what a mutant of it does there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench import algorithms, ptx
from fa_bench.algorithms.base import KernelSpec, Op
from fa_bench.backends.checking import source_lines
from fa_bench.cases import Case
from fa_bench.compiler import CompiledKernel, compile_kernel
from fa_bench.errors import DeviceUnavailable, FaBenchError, KernelFault
from fa_bench.model.gpu import Gpu
from fa_bench.mutation import operators
from fa_bench.mutation.result import Edit, Mutant, Outcome, Verdict
from fa_bench.mutation.trial import Ran, Trial
from fa_bench.ptx.program import Kernel
from fa_bench.units import format_count

Compile = Callable[..., CompiledKernel]

#: Backward jumps of a CTA that only an endless loop takes: so many times those of the kernel itself, and some.
_BUDGET_TIMES: Final = 4
_BUDGET_LEAST: Final = 1000

#: What a fault's sentence says, what that is called, and whether only checks find it. The first that is there counts.
_FINDINGS: Final[tuple[tuple[str, str, bool], ...]] = (
    (": trap at", "trap", False),
    ("never written", "never written", True),
    ("(a race)", "race", True),
    ("is in flight", "in flight", True),
    ("different values", "different values", True),
    ("is an input", "input written", True),
    ("different thread counts", "thread counts", True),
    ("deadlock", "deadlock", False),
    ("ran out of its instruction budget", "endless loop", False),
    ("outside every buffer", "out of bounds", False),
    ("outside shared memory", "out of bounds", False),
    ("outside that space", "out of bounds", False),
    ("not aligned", "misaligned", False),
    ("part of a warp", "divergent barrier", False),
    ("needs all live lanes", "divergent warp", False),
)


@dataclass(frozen=True, slots=True)
class _Caught:
    """What noticed a run."""

    verdict: Verdict
    finding: str
    sentence: str


class Bench:
    """A kernel and the trials whose programs launch it.

    Parameters
    ----------
    spec : KernelSpec
    trials : sequence of Trial
        In the order in which mutants meet them.
    gpu : Gpu
        Whose architecture is compiled for.
    checks : bool
        Whether the emulator's checks look.
    compiler : callable
        Stands in for `fa_bench.compiler.compile_kernel` in tests.

    Raises
    ------
    FaBenchError
        If the kernel itself fails a trial: then its mutants say nothing.
    """

    def __init__(
        self, spec: KernelSpec, trials: Sequence[Trial], gpu: Gpu, checks: bool, compiler: Compile = compile_kernel
    ) -> None:
        self.spec: Final = spec
        self._trials = tuple(trials)
        self._gpu = gpu
        self._checks = checks
        self._compiler = compiler
        specs = dict.fromkeys(launch.kernel for trial in self._trials for launch in trial.program.launches)
        self._compiled = {other: self._compile(other) for other in specs}
        self._loaded = {other: ptx.load(kernel.ptx).kernel(other.entry) for other, kernel in self._compiled.items()}
        #: What edits are made to.
        self.ptx: Final = operators.without_comments(self._compiled[spec].ptx)
        self._before = [self._unharmed(trial) for trial in self._trials]
        self._executed = frozenset().union(*(ran.executed[spec] for ran in self._before))

    def mutants(self) -> list[Mutant]:
        """All that can be dropped of the kernel."""
        return operators.mutants(self.ptx, self.spec.entry, source_lines(self._compiled[self.spec].ptx))

    def outcome(self, mutant: Mutant, build: str = "") -> Outcome:
        """Run a mutant through the trials until one catches it; say why if none does."""
        kernel = self._edited(mutant.edit)
        differing = extra = ""
        for trial, before in zip(self._trials, self._before, strict=True):
            found = self._observe(trial, before, kernel)
            if isinstance(found, _Caught):
                name = trial_name(trial)
                return Outcome(self.spec.entry, build, mutant, found.verdict, found.finding, found.sentence, name)
            differing = differing or _difference(trial, before, found)
            extra = extra or _extra_work(before, found)
        verdict: Verdict = "missed" if differing else "work" if extra else "none"
        why = differing or extra or self._why(mutant)
        return Outcome(self.spec.entry, build, mutant, verdict, "", why)

    def _why(self, mutant: Mutant) -> str:
        """Why dropping it changes nothing."""
        if mutant.line not in self._executed:
            return "never runs in these cases"
        if mutant.probe is None:
            return "orders nothing that collides in these cases"
        if self._traps(mutant.probe):
            return "differs, but nothing that is written depends on it"
        return "its condition never varies in these cases"

    def _traps(self, probe: Edit) -> bool:
        kernel = self._edited(probe)
        for trial, before in zip(self._trials, self._before, strict=True):
            found = self._observe(trial, before, kernel)
            if isinstance(found, _Caught) and found.finding == "trap":
                return True
        return False

    def _edited(self, edit: Edit) -> Kernel:
        return ptx.load(edit.applied(self.ptx)).kernel(self.spec.entry)

    def _compile(self, spec: KernelSpec) -> CompiledKernel:
        try:
            return self._compiler(spec, self._gpu.sm, lineinfo=True)
        except DeviceUnavailable:
            return self._compiler(spec, self._gpu.sm)

    def _unharmed(self, trial: Trial) -> Ran:
        try:
            ran = trial.run(self._compiled, self._loaded, self._checks, {})
        except KernelFault as fault:
            problem = fault.message
        else:
            problem = "" if ran.verification.passed else ran.verification.detail
            problem = problem or wrong_bytes(trial.case, ran)
        if problem:
            raise FaBenchError(f"{trial_name(trial)} fails as it is, so mutants say nothing. {problem}")
        return ran

    def _observe(self, trial: Trial, before: Ran, kernel: Kernel) -> Ran | _Caught:
        """Run a trial with ``kernel`` in place of the bench's own."""
        loaded = {**self._loaded, self.spec: kernel}
        # The other kernels have budgets too: what a mutant leaves may be how often the next one loops.
        budgets = {spec: _BUDGET_LEAST + _BUDGET_TIMES * jumps for spec, jumps in before.jumps.items()}
        try:
            ran = trial.run(self._compiled, loaded, self._checks, budgets)
        except KernelFault as fault:
            name, checks = _finding(fault.message)
            return _Caught("checks" if checks else "fault", name, fault.message)
        if not ran.verification.passed:
            return _Caught("result", "wrong result", ran.verification.detail)
        if wrong := wrong_bytes(trial.case, ran):
            return _Caught("bytes", "other bytes", wrong)
        return ran


def trial_name(trial: Trial) -> str:
    """Such as ``flash2 32x16/2, 35x67 fp16 D=40 causal, steep``."""
    s, tile = trial.case.shape, trial.case.tile
    heads = f"{s.heads_q}" if s.heads_q == s.heads_kv else f"{s.heads_q}:{s.heads_kv}"
    return (
        f"{trial.case.impl}{'' if tile is None else f' {tile}/{tile.stages}'}, {s.seq_q}x{s.seq_kv} "
        f"{trial.case.dtype} D={s.head_dim} {'causal' if s.causal else 'full'} H={heads}"
        f"{', steep' if trial.gain > 1 else ''}"
    )


def wrong_bytes(case: Case, ran: Ran) -> str:
    """A sentence on the first tensor whose bytes are not the model's; empty if all are, or if there is no model."""
    predicted = algorithms.get(case.impl).traffic(case)
    if predicted is None:
        return ""
    model: dict[tuple[str, str, Op], int] = {}
    for part in predicted:
        key = (part.kernel, part.tensor, part.op)
        model[key] = model.get(key, 0) + part.bytes
    counted: Mapping[tuple[str, str, Op], int] = {key: nbytes for key, (nbytes, _) in ran.traffic.items()}
    for key in dict.fromkeys((*model, *counted)):
        kernel, tensor, op = key
        if model.get(key, 0) != counted.get(key, 0):
            return f"{kernel} {op}s {counted.get(key, 0):,} bytes of {tensor}; the model says {model.get(key, 0):,}."
    return ""


def _finding(sentence: str) -> tuple[str, bool]:
    """What a fault is called, and whether it is one that only checks find."""
    return next(((name, checks) for words, name, checks in _FINDINGS if words in sentence), ("fault", False))


def _difference(trial: Trial, before: Ran, after: Ran) -> str:
    """What differs that somebody could have noticed."""
    if before.output != after.output:
        changed = sum(a != b for a, b in zip(before.output, after.output, strict=True))
        return f"{format_count(changed)} bytes of the output differ ({trial_name(trial)})"
    if before.traffic != after.traffic:
        return f"requests to memory differ ({trial_name(trial)})"
    return ""


def _extra_work(before: Ran, after: Ran) -> str:
    """What only time would tell."""
    names = {"instructions": "warp instructions", "wavefronts": "shared-memory wavefronts"}
    more = {name: after.work[name] - before.work[name] for name in names}
    parts = [f"{format_count(more[name])} of {format_count(before.work[name])} {names[name]}" for name in names
             if more[name] > 0]  # fmt: skip
    return f"saves {' and '.join(parts)}" if parts else ""
