"""Opening what ``--device`` asks for, closing it again, and what a run notes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

from fa_bench import backends
from fa_bench.backends.base import Backend, BackendName
from fa_bench.backends.counting import counting
from fa_bench.cli.counters import check_device, parsed, sources
from fa_bench.errors import DeviceUnavailable, UsageError, nearest

#: What ``--l2`` and ``--timer`` take; the first of each is what everything else than a GPU is content with.
L2_STATES: Final = ("cold", "warm")
TIMERS: Final = ("events", "graph")


@contextmanager
def opened(
    device: str,
    *,
    jobs: int | None = None,
    kernels_only: bool = False,
    all_slices: bool = False,
    counters: str = "global",
    interval: bool = False,
    checks: bool = False,
    apart: Collection[BackendName] = (),
    l2: str = "cold",
    timer: str = "events",
    strict_timer: bool = False,
    ordinal: int = 0,
) -> Iterator[list[Backend]]:
    """The backends of ``device``, in order of preference, closed at the end.

    Parameters
    ----------
    device : {"auto", "cuda", "emulator", "host"}
    jobs : int, optional
        Threads of the emulator; all cores by default.
    kernels_only : bool
        Leave out the host: only backends that run our kernels.
    all_slices : bool
        Let the emulator run every slice of every case.
    counters : str
        What is counted, see `fa_bench.cli.counters.parsed`.
    interval : bool
        Let it say between which limits DRAM bytes lie.
    checks : bool
        Let it look for races and other faults: then ``auto`` is the emulator.
    apart : collection of str
        Backends that run in a process of their own.
    l2 : {"cold", "warm"}
        What a timed launch finds in a GPU's L2 cache.
    timer : {"events", "graph"}
        How launches on a GPU are timed.
    strict_timer : bool
        Whether a case fails that can't be timed so.
    ordinal : int
        CUDA's number of the GPU.

    Raises
    ------
    UsageError
        If there is no such device.
    DeviceUnavailable
        If it is not here.
    """
    asked = parsed(counters)
    if device not in backends.DEVICES:
        raise UsageError(f"--device: there is no device {device!r}.", hint=nearest(device, backends.DEVICES))
    if kernels_only and device == "host":
        raise UsageError("--device: the host runs none of our kernels.", hint="Choose cuda or emulator.")
    if checks:
        if device not in ("auto", "emulator"):
            raise UsageError(f"--check: the checks are the emulator's; --device {device} has none.")
        device = "emulator"
    names = [name for name in backends.resolve_device(device) if name != "host" or not kernels_only]
    if not names:
        raise DeviceUnavailable(missing_emulator() or "Nothing here runs our kernels.", hint="See fa-bench doctor.")
    check_device(asked, device, names)
    if strict_timer and timer == TIMERS[0]:
        raise UsageError("--strict-timer has nothing to be strict about.", hint="Add --timer graph.")
    timing = _timing(l2, timer, device, names)
    with ExitStack() as stack:
        made = []
        for name in names:
            backend = (backends.open_apart if name in apart else backends.open_backend)(
                name,
                jobs=jobs or 0,
                all_slices=all_slices,
                counters=asked.emulator,
                interval=interval,
                checks=checks,
                strict_timer=strict_timer,
                ordinal=ordinal,
                **timing,
            )
            if name == "cuda":
                backend = counting(backend, sources(asked, jobs=jobs or 0, interval=interval, ordinal=ordinal))
            made.append(stack.enter_context(closing(backend)))
        yield made


def _timing(l2: str, timer: str, device: str, names: Collection[BackendName]) -> dict[str, Any]:
    """Options of the cuda backend that ``--l2`` and ``--timer`` ask for.

    Raises
    ------
    UsageError
        If there is no such choice, or the device is none on which there is one.
    DeviceUnavailable
        If what makes a difference on a GPU only was asked for, and there is none.
    """
    for option, value, known in (("--l2", l2, L2_STATES), ("--timer", timer, TIMERS)):
        if value not in known:
            raise UsageError(f"{option}: there is no {value!r}.", hint=nearest(value, known))
        if value == known[0] or "cuda" in names:
            continue
        if device == "auto":
            raise DeviceUnavailable(f"{option} {value} needs a GPU. {backends.why_not('cuda')}", "See fa-bench doctor.")
        raise UsageError(f"{option} {value} needs a GPU: --device {device} is none.")
    return {"l2": l2, "timer": timer}


def missing_emulator() -> str | None:
    """Why kernels can't run on the CPU here, None if they can."""
    return backends.why_not("emulator")


def shipped_only() -> str | None:
    """One sentence where kernels run on the CPU only as far as they come compiled; None where a compiler is here."""
    from fa_bench import nvrtc, shipped

    reason, index = nvrtc.unavailable(), shipped.index()
    if reason is None or index is None:
        return None
    return f"Kernels run from the PTX that comes with fa-bench, for {', '.join(index.architectures)}. {reason}"


def driver_version() -> str | None:
    """Version of the NVIDIA driver, None without one."""
    from fa_bench.measure.nvml import Nvml

    with closing(Nvml()) as nvml:
        return nvml.driver_version()


def nvrtc_version() -> str | None:
    """Version of the NVRTC that compiles here, None without one."""
    from fa_bench import nvrtc

    return nvrtc.load().version if nvrtc.unavailable() is None else None
