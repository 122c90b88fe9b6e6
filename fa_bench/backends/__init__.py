"""Where cases run: ``cuda``, ``emulator``, ``host``. What is usable here, and how to open it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

from fa_bench.backends.base import Backend, BackendName, CountersKind
from fa_bench.errors import DeviceUnavailable, UsageError

#: What ``--device`` takes.
DEVICES: Final[tuple[str, ...]] = ("auto", "cuda", "emulator", "host")

#: Seconds that a case on a GPU may take, compiling and verifying included: a kernel that hangs never ends.
CASE_LIMIT_S: Final = 900.0

_CUDA_HINT: Final = "Use --device emulator: it runs the same kernels on the CPU and counts their memory traffic."


def why_not(name: BackendName, load: Callable[[str], Any] = importlib.import_module) -> str | None:
    """Why a backend cannot be used on this machine, as one sentence; None if it can.

    Parameters
    ----------
    name : {"cuda", "emulator", "host"}
    load : callable
        Imports a module by name.
    """
    if name == "cuda":
        return _why_no_cuda(load)
    if name == "emulator":
        return _why_no_emulator()
    return None


def _why_no_cuda(load: Callable[[str], Any]) -> str | None:
    try:
        cupy = load("cupy")
    except ModuleNotFoundError:
        return "CuPy is not installed (extra cuda13 or cuda12)."
    except ImportError as error:
        cause = str(error.__cause__ or error).strip().splitlines() or [repr(error)]
        return f"CuPy is installed but cannot be imported ({cause[0]})."
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            return None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        # CuPy puts CUDA's own name of the error first: cudaErrorNoDevice, cudaErrorInsufficientDriver ...
        if "NoDevice" not in str(error):
            return f"No usable NVIDIA driver is on this machine ({str(error).partition(':')[0]})."
    return "The NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)."


def _why_no_emulator() -> str | None:
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite, which the emulator compiles with, is not installed."
    from fa_bench.compiler import ptx_available

    return ptx_available()


def resolve_device(device: str, why: Callable[[BackendName], str | None] = why_not) -> tuple[BackendName, ...]:
    """Backends that ``--device`` stands for.

    ``auto`` is the GPU if one is usable, else the emulator and the host; without PTX for the emulator only the host.

    Raises
    ------
    UsageError
        If there is no such device.
    DeviceUnavailable
        If the device asked for by name cannot be used here; the message says what is missing.
    """
    if device == "auto":
        if why("cuda") is None:
            return ("cuda",)
        return ("emulator", "host") if why("emulator") is None else ("host",)
    if device not in DEVICES:
        raise UsageError(f"device must be one of {', '.join(DEVICES)}, not {device!r}.")
    name: BackendName = _NAMES[device]
    if reason := why(name):
        raise DeviceUnavailable(reason, hint=_CUDA_HINT if name == "cuda" else "")
    return (name,)


def device_count(name: BackendName) -> int:
    """GPUs that CUDA finds; for the others the CPUs that this process may use, each enough for one of theirs."""
    if name == "cuda":
        return int(importlib.import_module("cupy").cuda.runtime.getDeviceCount())
    from fa_bench.measure.environment import usable_cpus

    return usable_cpus()


_NAMES: Final[dict[str, BackendName]] = {"cuda": "cuda", "emulator": "emulator", "host": "host"}


def open_backend(
    name: BackendName,
    *,
    jobs: int = 0,
    all_slices: bool = False,
    counters: CountersKind = "global",
    interval: bool = False,
    checks: bool = False,
    l2: Literal["cold", "warm"] = "cold",
    timer: Literal["events", "graph"] = "events",
    strict_timer: bool = False,
    ordinal: int = 0,
) -> Backend:
    """Open a backend; close it after use.

    Parameters
    ----------
    name : {"cuda", "emulator", "host"}
    jobs : int
        Threads of the emulator; 0 for all CPUs.
    all_slices : bool
        Whether the emulator runs every slice, instead of one per alignment class of a large case.
    counters : {"global", "full"}
        Whether the emulator counts what L2 and DRAM see as well.
    interval : bool
        With ``full``: the least and most DRAM bytes too.
    checks : bool
        Whether the emulator looks for races and other faults.
    l2 : {"cold", "warm"}
        State of the GPU's L2 cache before each timed launch.
    timer : {"events", "graph"}
        How launches on a GPU are timed: one by one, or replayed as a CUDA graph.
    strict_timer : bool
        Whether a case fails that can't be timed so.
    ordinal : int
        CUDA's number of the GPU.

    Raises
    ------
    DeviceUnavailable
        If it cannot be used here.
    """
    if reason := why_not(name):
        raise DeviceUnavailable(reason, hint=_CUDA_HINT if name == "cuda" else "")
    if name == "cuda":
        from fa_bench.backends.cuda import CudaBackend

        return CudaBackend(ordinal, l2=l2, timer=timer, strict_timer=strict_timer)
    if name == "emulator":
        from fa_bench.backends.emulator import EmulatorBackend

        return EmulatorBackend(jobs=jobs, all_slices=all_slices, counters=counters, interval=interval, checks=checks)
    from fa_bench.backends.host import HostBackend

    return HostBackend()


def open_apart(name: BackendName, **options: Any) -> Backend:
    """Open a backend in a process of its own; options and errors are those of `open_backend`."""
    from fa_bench.backends.remote import open_remote

    # The emulator ends by itself what does not: it counts steps.
    return open_remote(partial(open_backend, name, **options), case_limit_s=CASE_LIMIT_S if name == "cuda" else None)
