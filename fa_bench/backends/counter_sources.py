"""The sources of counts beside a timed run: Nsight Compute on a process of its own, and the emulator.

They know a case's program and how its kernels are called; what a row makes of their counts is not known here.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from fa_bench import algorithms
from fa_bench.algorithms.base import ALL_TENSORS, Algorithm, Op, TensorBytes
from fa_bench.backends.base import Backend, Counts, HardwareCounts, Level
from fa_bench.backends.remote import child_environment
from fa_bench.backends.wire import Request, send
from fa_bench.cases import Case
from fa_bench.errors import described
from fa_bench.measure.ncu import ADVICE, KernelBytes, Ncu
from fa_bench.measure.ncu_metrics import Quantity
from fa_bench.model.gpu import Gpu

#: Quantity -> where it goes, and the quantity that its level's cache answered of it.
_TRAFFIC: Final[Mapping[Quantity, tuple[Level, Op, Quantity | None]]] = {
    "global_read": ("global", "read", "global_read_hit"),
    "global_write": ("global", "write", None),
    "l2_read": ("l2", "read", "l2_read_hit"),
    "l2_write": ("l2", "write", None),
    "dram_read": ("dram", "read", None),
    "dram_write": ("dram", "write", None),
}
#: What else is kept, by kernel.
_EXTRA: Final[tuple[Quantity, ...]] = ("local_read", "local_write", "l2_total")

#: Words in the names of kernels that are no part of an implementation: clearing memory, drawing random numbers.
_AUXILIARY: Final = ("memset", "fillfunctor", "fill_kernel", "distribution_elementwise", "empty_kernel")


class NcuCounters:
    """Profiles a case in a process of its own, on the GPU with CUDA's number ``ordinal``.

    Parameters
    ----------
    ordinal : int
    ncu : Ncu, optional
        Stands in for this machine's in tests.
    lookup : callable
        `fa_bench.algorithms.find`.
    """

    def __init__(
        self,
        ordinal: int = 0,
        *,
        ncu: Ncu | None = None,
        lookup: Callable[[str], Algorithm | None] = algorithms.find,
    ) -> None:
        self._ordinal = ordinal
        self._ncu = ncu or Ncu(environment=child_environment())
        self._lookup = lookup
        self._advice = ""
        self._took_too_long: dict[str, int] = {}

    @property
    def advice(self) -> str:
        """For the first thing that went wrong."""
        return self._advice

    def count(self, case: Case, gpu: Gpu) -> HardwareCounts:
        """Bytes per kernel and level, or a status that says why there are none.

        A case is not tried where one of the same implementation and no more work took too long: each costs minutes.
        """
        work = case.shape.total_visible_pairs
        if work >= self._took_too_long.get(case.impl, work + 1):
            reason = f"ncu was ended for a case of {case.impl} with no more work, so this one was not tried."
            return HardwareCounts("timeout", reason, self._ncu.mode)
        try:
            found = self._counted(case, gpu)
        except Exception as error:  # the case was timed: whatever it is, it must not cost the row
            found = HardwareCounts("failed", f"The case could not be counted. {described(error)}", self._ncu.mode)
        if found.status == "timeout":
            self._took_too_long[case.impl] = work
        self._advice = self._advice or (f"--counters ncu: {ADVICE[found.status]}" if found.status in ADVICE else "")
        return found

    def _counted(self, case: Case, gpu: Gpu) -> HardwareCounts:
        algorithm = self._lookup(case.impl)
        added = (algorithms.get(case.impl),) if case.impl in algorithms.added() else ()
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder) / "case"
            with job.open("wb") as pipe:
                send(pipe, Request("profile", (case, gpu, self._ordinal), added))
            program = [sys.executable, "-m", "fa_bench.backends.ncu_target", str(job)]
            profile = self._ncu.profile(program, compute_capability(gpu))
        if profile.status != "ok":
            return HardwareCounts(profile.status, profile.reason, self._ncu.mode)
        entries = () if algorithm is None else [launch.kernel.entry for launch in algorithm.program(case).launches]
        return _hardware_counts(profile.kernels, entries, profile.reason, self._ncu.mode)

    def close(self) -> None:
        """End a profile that runs."""
        self._ncu.close()


def compute_capability(gpu: Gpu) -> int:
    """Compute capability of ``gpu`` as one number: 80 for 8.0."""
    major, minor = gpu.compute_capability
    return 10 * major + minor


def _hardware_counts(
    kernels: Iterable[KernelBytes], entries: Collection[str], reason: str, mode: str
) -> HardwareCounts:
    """Counts of the implementation's own kernels.

    Parameters
    ----------
    kernels : iterable of KernelBytes
    entries : collection of str
        Names of its kernels; empty for a library, whose kernels are all but those that clear memory and the like. A
        C++ symbol is shown demangled, so with one among the names the same holds.
    """
    by_name = bool(entries) and not any(entry.startswith("_Z") for entry in entries)
    own: list[tuple[str, KernelBytes]] = []
    others: list[str] = []
    for kernel in kernels:
        name = kernel_name(kernel.name)
        if (name in entries) if by_name else not _auxiliary(kernel.name):
            own.append((name, kernel))
        else:
            others.append(name)
    if not own:
        seen = ", ".join(dict.fromkeys(others))
        return HardwareCounts("no_kernels", f"None of the kernels that ncu saw is the implementation's: {seen}.", mode)
    sums: defaultdict[tuple[str, Quantity], list[int | None]] = defaultdict(list)
    for name, kernel in own:
        for quantity, nbytes in kernel.bytes.items():
            sums[name, quantity].append(nbytes)
    names = list(dict.fromkeys(name for name, _ in own))
    missing = {quantity for (_, quantity), parts in sums.items() if None in parts}

    def total(name: str, quantity: Quantity | None) -> int | None:
        """Of all launches of a kernel; a quantity that one kernel lacks is not known of the case."""
        if quantity is None or quantity in missing or (name, quantity) not in sums:
            return None
        return sum(part for part in sums[name, quantity] if part is not None)

    traffic: defaultdict[Level, list[TensorBytes]] = defaultdict(list)
    extra: dict[str, dict[str, int]] = {}
    for name in names:
        for quantity, (level, op, hit) in _TRAFFIC.items():
            if (nbytes := total(name, quantity)) is not None:
                traffic[level].append(TensorBytes(name, ALL_TENSORS, op, nbytes, hit_bytes=total(name, hit)))
        known = {quantity: nbytes for quantity in _EXTRA if (nbytes := total(name, quantity)) is not None}
        extra[name] = {f"{quantity}_bytes": nbytes for quantity, nbytes in known.items()}
    return HardwareCounts("ok", reason, mode, len(own), Counts(dict(traffic), extra=extra))


def kernel_name(text: str) -> str:
    """A kernel's bare name out of the signature that ncu prints: no result, namespace, template or parameters.

    Examples
    --------
    >>> kernel_name("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>, 0>(Flash_fwd_params)")
    'flash_fwd_kernel'
    """
    depth = 0
    bare = ""
    for character in text.replace("(anonymous namespace)", ""):
        depth += (character in "<([") - (character in ">)]")
        if character == "(" and depth == 1:
            break
        if depth == 0 and character not in ">)]":
            bare += character
    return bare.strip().rpartition(" ")[2].rpartition("::")[2] or text


def _auxiliary(name: str) -> bool:
    folded = name.lower()
    return any(word in folded for word in _AUXILIARY)


class EmulatedCounts:
    """Has the emulator count our kernels, for the target that the GPU is.

    Parameters
    ----------
    opened : callable
        Opens the emulator.
    """

    def __init__(self, opened: Callable[[], Backend]) -> None:
        self._opened = opened
        self._advice = ""

    @property
    def advice(self) -> str:
        """Why the first case was not counted."""
        return self._advice

    def count(self, case: Case, gpu: Gpu) -> Counts | None:
        """What the emulator counts of ``case``; None for what it does not run, or can't."""
        try:
            with closing(self._opened()) as emulator:
                if case.impl not in emulator.implementations():
                    return None
                result: Any = emulator.run(case, gpu)
        except Exception as error:  # the case was timed: whatever it is, it must not cost the row
            self._advice = self._advice or f"The emulator did not count {case.impl}: {described(error)}"
            return None
        counts: Counts | None = result.counts
        return counts

    def close(self) -> None:
        """Nothing: the emulator is closed with each case, and ends with this process."""
