"""Opening what ``--device`` asks for, closing it again, and what a run notes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

from fa_bench import backends
from fa_bench.backends.base import Backend, CountersKind
from fa_bench.errors import DeviceUnavailable, UsageError, nearest

#: What ``--counters`` takes.
COUNTERS: Final[dict[str, CountersKind]] = {"global": "global", "full": "full"}


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
    counters : {"global", "full"}
        What the emulator counts.
    interval : bool
        Let it say between which limits DRAM bytes lie.
    checks : bool
        Let it look for races and other faults: then ``auto`` is the emulator.

    Raises
    ------
    UsageError
        If there is no such device.
    DeviceUnavailable
        If it is not here.
    """
    kind = counters_kind(counters)
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
    if kind == "full" and "emulator" not in names:
        raise UsageError("--counters full needs the emulator.", hint="Add --device emulator.")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                closing(
                    backends.open_backend(
                        name,
                        jobs=jobs or 0,
                        all_slices=all_slices,
                        counters=kind,
                        interval=interval,
                        checks=checks,
                    )
                )
            )
            for name in names
        ]


def counters_kind(counters: str) -> CountersKind:
    """What ``--counters`` asks for.

    Raises
    ------
    UsageError
        If there is no such thing.
    """
    if counters not in COUNTERS:
        raise UsageError(f"--counters: there is no {counters!r}.", hint=nearest(counters, COUNTERS))
    return COUNTERS[counters]


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
