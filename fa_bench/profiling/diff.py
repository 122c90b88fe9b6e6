"""Two profiles side by side: what changed, on which line of source, and whether a limit was overstepped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from fa_bench.errors import UsageError
from fa_bench.limits import Limit
from fa_bench.profiling.result import KernelProfile, Line, Profile

#: What is compared, and limited by ``--fail-on``: the whole launch's figure, and a line's share of it if it has one.
METRICS: Final[Mapping[str, tuple[Callable[[KernelProfile], int | None], Callable[[Line], int] | None]]] = {
    "bytes": (lambda launch: launch.global_bytes, lambda line: line.bytes),
    "instructions": (lambda launch: launch.warp_instructions, lambda line: line.instructions),
    "conflicts": (lambda launch: launch.conflicts, lambda line: line.conflicts),
    "wavefronts": (lambda launch: launch.wavefronts, lambda line: line.wavefronts),
    "registers": (lambda launch: launch.resources.registers, lambda line: line.live_registers),
    "spills": (lambda launch: launch.resources.spill_bytes, None),
    "smem": (lambda launch: launch.resources.smem_bytes, None),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One figure before and after; None where it is not known."""

    name: str
    before: int | None
    after: int | None

    @property
    def delta(self) -> int | None:
        """After less before."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class LineChange:
    """A source line before and after; None where it was not there or nothing of it was executed."""

    before: Line | None
    after: Line | None

    def delta(self, metric: str) -> int:
        """How a metric of `METRICS` changed on this line; live registers do not add up, so only where it stayed."""
        of = METRICS[metric][1]
        if of is None or (metric == "registers" and (self.before is None or self.after is None)):
            return 0
        return (of(self.after) if self.after else 0) - (of(self.before) if self.before else 0)


@dataclass(frozen=True, slots=True)
class LaunchDiff:
    """What changed in one launch.

    Parameters
    ----------
    kernel : str
    metrics : tuple of Change
        Every metric of `METRICS`, changed or not.
    traffic, classes : tuple of Change
        Bytes per tensor and direction, and instructions per class; only those that changed.
    lines : tuple of LineChange
        Lines that changed in anything, the largest changes first.
    peak : Line, optional
        The line with the most live registers now.
    other : tuple of str
        What else is not the same, so that the figures may not be comparable: grid, block, arguments, compiler.
    """

    kernel: str
    metrics: tuple[Change, ...]
    traffic: tuple[Change, ...]
    classes: tuple[Change, ...]
    lines: tuple[LineChange, ...]
    peak: Line | None
    other: tuple[str, ...]

    @property
    def line_metrics(self) -> tuple[str, ...]:
        """Metrics that say something per line: how many registers are live does where the kernel's number changed."""
        registers = next(change for change in self.metrics if change.name == "registers")
        exact = ("bytes", "conflicts", "instructions")
        return (*exact, "registers") if registers.before != registers.after else exact

    @property
    def changed(self) -> bool:
        """Whether any figure changed."""
        return bool(self.traffic or self.classes or self.lines or any(m.before != m.after for m in self.metrics))


class Rule(Limit):
    """The most that one of `METRICS` may grow in a launch."""

    __slots__ = ()

    def broken(self, diff: LaunchDiff) -> str | None:
        """What is wrong with a launch, as one sentence; None if the rule holds."""
        change = next(change for change in diff.metrics if change.name == self.metric)
        if change.before is None or change.after is None:
            return f"{diff.kernel}: {self.metric} can't be compared, because a profile does not know them."
        if self.allows(change.before, change.after):
            return None
        sentence = f"{diff.kernel}: {self.metric} grew from {change.before:,} to {change.after:,}"
        if self.metric == "registers" and diff.peak is not None:
            return f"{sentence}, the most are live at {diff.peak.place}: {diff.peak.text}"
        worst = max(diff.lines, key=lambda line: line.delta(self.metric), default=None)
        if worst is not None and worst.after is not None and worst.delta(self.metric) > 0:
            return f"{sentence}, most at {worst.after.place}: {worst.after.text}"
        return f"{sentence}."


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read ``--fail-on``: ``bytes:0,instructions:1%``.

    Raises
    ------
    UsageError
        If a metric does not exist or a limit is no number.

    Examples
    --------
    >>> parse_rules("bytes:0,instructions:1%")[1]
    Rule(metric='instructions', allowed=Fraction(1, 100), relative=True)
    """
    return Rule.parse(text, METRICS)


def compare(before: Profile, after: Profile) -> tuple[LaunchDiff, ...]:
    """Launch by launch, in order.

    Raises
    ------
    UsageError
        If they do not have the same number of launches.
    """
    if len(before.launches) != len(after.launches):
        raise UsageError(f"The profiles have {len(before.launches)} and {len(after.launches)} launches.")
    context = []
    if before.gpu != after.gpu:
        context.append(f"GPU {before.gpu}, now {after.gpu}")
    if before.seed != after.seed:
        context.append(f"seed {before.seed}, now {after.seed}")
    return tuple(_launch(a, b, context) for a, b in zip(before.launches, after.launches, strict=True))


def _launch(before: KernelProfile, after: KernelProfile, context: Sequence[str]) -> LaunchDiff:
    other = list(context)
    for name in ("kernel", "grid", "block", "compiler"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            other.append(f"{name} {_text(old)}, now {_text(new)}")
    if list(before.arguments.values()) != list(after.arguments.values()):
        other.append(f"arguments {_text(before.arguments.values())}, now {_text(after.arguments.values())}")
    metrics = tuple(Change(name, of(before), of(after)) for name, (of, _) in METRICS.items())
    return LaunchDiff(
        after.kernel,
        metrics,
        _changes(
            {f"{moved.tensor} {moved.op}": moved.bytes for moved in before.traffic},
            {f"{moved.tensor} {moved.op}": moved.bytes for moved in after.traffic},
        ),
        _changes(before.instructions, after.instructions),
        _lines(before, after),
        max(after.lines, key=lambda line: line.live_registers, default=None),
        tuple(other),
    )


def _text(value: object) -> str:
    return str(value) if isinstance(value, str) else ",".join(map(str, value))  # type: ignore[call-overload]  # a tuple then


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Change, ...]:
    names = list(dict.fromkeys([*before, *after]))
    changes = (Change(name, before.get(name, 0), after.get(name, 0)) for name in names)
    return tuple(change for change in changes if change.before != change.after)


def _lines(before: KernelProfile, after: KernelProfile) -> tuple[LineChange, ...]:
    """Lines that changed. Which line was which is told by what stands on them, in order, not by their numbers."""
    pairs: list[LineChange] = []
    matcher = SequenceMatcher(None, [_key(line) for line in before.lines], [_key(line) for line in after.lines], False)
    for _, a, a_end, b, b_end in matcher.get_opcodes():
        old, new = before.lines[a:a_end], after.lines[b:b_end]
        # Where a stretch was rewritten, the first line stands against the first, and so on.
        for k in range(max(len(old), len(new))):
            pairs.append(LineChange(old[k] if k < len(old) else None, new[k] if k < len(new) else None))
    exact = ("bytes", "conflicts", "instructions", "wavefronts")
    pressure = before.resources.registers != after.resources.registers
    metrics = (*exact, "registers") if pressure else exact
    changed = [pair for pair in pairs if any(pair.delta(metric) for metric in metrics)]
    return tuple(sorted(changed, key=lambda pair: tuple(-abs(pair.delta(metric)) for metric in metrics)))


def _key(line: Line) -> str:
    return " ".join(line.text.split()) or line.place
