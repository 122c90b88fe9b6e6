"""Under which conditions two rows were made, and whether their times may be compared at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fa_bench.comparison.runs import Run
from fa_bench.records import Record
from fa_bench.units import format_si

#: SM clocks farther apart than this are said: time goes with the clock.
CLOCK_TOLERANCE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Difference:
    """One condition that was not the same.

    Parameters
    ----------
    what : str
        ``device``, ``timer``, ``L2 state``, ``NVRTC`` ...
    before, after : str
        As they were; ``not known`` where a side does not say.
    bars_time : bool
        Whether times under such conditions are no comparison at all.
    """

    what: str
    before: str
    after: str
    bars_time: bool = False

    def __str__(self) -> str:
        if self.before == self.after:
            return f"Mind: {self.what} in both"
        return f"Not the same: {self.what} {self.before}, now {self.after}"


def differences(before: Run, after: Run, old: Record, new: Record) -> tuple[Difference, ...]:
    """What was not the same when two rows were made.

    The versions that decide what code runs always count, and what an error was held against where both rows have one.
    Device, timer, L2 state, clocks, throttling and driver matter to times only, so they count where both rows have one.
    Without the same device, timer and L2 state times are not compared.
    """
    found = [
        _difference("target GPU", old.gpu, new.gpu),
        _difference("NVRTC", old.nvrtc_version, new.nvrtc_version),
        _difference(f"version of {new.impl}", old.impl_version, new.impl_version),
        _difference("fa-bench", before.facts.get("fa-bench"), after.facts.get("fa-bench")),
    ]
    if old.err_reference is not None and new.err_reference is not None:
        found.append(_difference("reference of the error", old.err_reference, new.err_reference))
    if old.time_ms is not None and new.time_ms is not None:
        found += [
            _difference("device", old.device, new.device, bars_time=True),
            _difference("timer", old.time_source, new.time_source, bars_time=True),
            _difference("L2 state", old.l2_state, new.l2_state, bars_time=True),
            _difference("driver", before.facts.get("driver"), after.facts.get("driver")),
            _clocks(old.sm_clock_mhz, new.sm_clock_mhz),
            _flag("throttled", old.throttled, new.throttled),
            _flag("launch-bound", old.launch_bound, new.launch_bound),
            _flag("noisy", old.noisy, new.noisy),
        ]
    return tuple(difference for difference in found if difference is not None)


def warnings(pairs: Iterable[Iterable[Difference]]) -> tuple[str, ...]:
    """One sentence per difference and in how many pairs it is, those that bar times first.

    Clocks differ a little in every pair: of them there is one sentence, with those of the first such pair.
    """
    counts: Counter[Difference] = Counter()
    first: dict[str, Difference] = {}
    for differing in pairs:
        for difference in differing:
            key = first.setdefault(difference.what, difference) if difference.what == "SM clock" else difference
            counts[key] += 1
    return tuple(
        f"{difference} ({count} {'pair' if count == 1 else 'pairs'})."
        + (" Times are not compared." if difference.bars_time else "")
        for difference, count in sorted(counts.items(), key=lambda item: not item[0].bars_time)
    )


def _difference(what: str, before: str | None, after: str | None, *, bars_time: bool = False) -> Difference | None:
    if before == after:
        return None
    return Difference(what, before or "not known", after or "not known", bars_time)


def _clocks(before: float | None, after: float | None) -> Difference | None:
    if before is None or after is None:
        return _difference("SM clock", _clock(before), _clock(after))
    if abs(after - before) <= CLOCK_TOLERANCE * max(before, after):
        return None
    return Difference("SM clock", _clock(before) or "", _clock(after) or "")


def _clock(mhz: float | None) -> str | None:
    return None if mhz is None else format_si(mhz * 1e6, "Hz")


def _flag(what: str, before: bool | None, after: bool | None) -> Difference | None:
    """A row that is throttled, launch-bound or noisy says so, also where both are."""
    if not before and not after:
        return None
    return Difference(what, "yes" if before else "no", "yes" if after else "no")
