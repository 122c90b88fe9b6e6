"""What ``--counters`` asks for, and the sources of counts that it makes of that beside a GPU's own run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from fa_bench import backends
from fa_bench.errors import DeviceUnavailable, UsageError, nearest

if TYPE_CHECKING:
    from fa_bench.backends.base import Backend, BackendName, CountersKind, CounterSource
    from fa_bench.records import Record

#: Words of ``--counters`` -> what the emulator counts then; ``emulator`` alone says that it does, beside a GPU too.
_EMULATOR: Final[dict[str, CountersKind]] = {"global": "global", "full": "full", "emulator": "global"}
WORDS: Final = (*_EMULATOR, "ncu")


@dataclass(frozen=True, slots=True)
class Counters:
    """What is counted: ``emulator`` is the kind where it runs the case, ``beside`` whether it does after a GPU."""

    emulator: CountersKind
    ncu: bool
    beside: bool


def parsed(text: str) -> Counters:
    """Read ``--counters``: words with commas between them.

    Raises
    ------
    UsageError
        If there is no such word, one is there twice, or two contradict each other.
    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in WORDS:
            raise UsageError(f"--counters: there is no {word!r}.", hint=nearest(word, WORDS))
    if twice := next((word for word in words if words.count(word) > 1), None):
        raise UsageError(f"--counters: {twice} is there twice.")
    if {"global", "full"} <= set(words):
        raise UsageError("--counters: full counts what global does, so one of the two is enough.")
    ncu = "ncu" in words
    beside = "emulator" in words or (ncu and len(words) > 1)
    return Counters("full" if "full" in words else "global", ncu, beside)


def emulators(text: str) -> CountersKind:
    """The same where only the emulator counts.

    Raises
    ------
    UsageError
        If hardware counters are asked for as well.
    """
    asked = parsed(text)
    if asked.ncu:
        raise UsageError("--counters ncu is for a GPU; here the emulator counts.", hint="Choose global or full.")
    return asked.emulator


def demand_ncu(text: str) -> None:
    """Refuse ``--require-counters`` where no hardware counters are asked for.

    Raises
    ------
    UsageError
    """
    if not parsed(text).ncu:
        raise UsageError("--require-counters is for hardware counters.", hint="Add --counters ncu.")


def check_device(asked: Counters, device: str, names: Sequence[BackendName]) -> None:
    """Refuse what the backends of ``--device`` cannot count.

    Raises
    ------
    DeviceUnavailable
        If hardware counters were asked for and there is no GPU among them, or the emulator was and is not here.
    UsageError
        If the emulator's counts were asked for on another device alone.
    """
    if asked.ncu and "cuda" not in names:
        reason = backends.why_not("cuda") if device == "auto" else f"--device {device} has none."
        raise DeviceUnavailable(
            f"--counters ncu reads a GPU's hardware counters: {reason}",
            hint="--counters full, on the emulator, counts what L2 and DRAM see too.",
        )
    if "emulator" in names:
        return
    if asked.emulator == "full" and not asked.beside:
        raise UsageError("--counters full needs the emulator.", hint="Add --device emulator.")
    if asked.beside and (missing := backends.why_not("emulator")):
        raise DeviceUnavailable(missing, hint="--counters ncu does without the emulator.")


def sources(asked: Counters, *, jobs: int = 0, interval: bool = False, ordinal: int = 0) -> list[CounterSource]:
    """What counts the cases that a GPU has run.

    Parameters
    ----------
    asked : Counters
    jobs : int
        Threads of the emulator; 0 for all CPUs.
    interval : bool
        Whether the emulator says between which limits DRAM bytes lie.
    ordinal : int
        CUDA's number of the GPU.
    """
    from fa_bench.backends.counter_sources import EmulatedCounts, NcuCounters

    made: list[CounterSource] = [NcuCounters(ordinal)] if asked.ncu else []
    if asked.beside:
        kind = asked.emulator
        made.append(
            EmulatedCounts(partial(backends.open_backend, "emulator", jobs=jobs, counters=kind, interval=interval))
        )
    return made


def advice(opened: Iterable[Backend]) -> tuple[str, ...]:
    """What would help where counters said nothing, each sentence once."""
    from fa_bench.backends.counting import advice as of_sources

    return of_sources(opened)


def uncounted(records: Iterable[Record]) -> int:
    """How many of the rows that ran lack hardware counts, by their status."""
    return sum(record.status == "ok" and record.counter_status != "ok" for record in records)
