"""Host memory: what is free now, and how much a call really took."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

_PROC: Final = Path("/proc/self")
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Memory that this process may still take: the system's, or the container's where that is less.

    None where the system does not say (macOS has no such figure without a helper).
    """
    found = [n for n in (_kilobytes(meminfo, "MemAvailable"), _cgroup_available(cgroup)) if n is not None]
    if found:
        return min(found)
    return _windows_available() if sys.platform == "win32" else None


def _kilobytes(path: Path, key: str) -> int | None:
    """The line ``key: n kB`` of a /proc file, in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


def _cgroup_available(cgroup: Path) -> int | None:
    """What the memory limit of a control group (version 2) leaves; "max" means no limit."""
    with contextlib.suppress(OSError, ValueError):
        limit = (cgroup / "memory.max").read_text().strip()
        if limit != "max":
            return max(0, int(limit) - int((cgroup / "memory.current").read_text()))
    return None


def _windows_available() -> int | None:
    class MemoryStatus(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("sizes", ctypes.c_uint64 * 7))

    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    windll = getattr(ctypes, "windll", None)
    if windll is None or not windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.sizes[1])  # ullAvailPhys


def traced_peak(call: Callable[[], T]) -> tuple[T, int]:
    """Run ``call`` and return its result and the peak of what Python and NumPy allocated during it, in bytes.

    Exact for array code, whatever the operating system does with pages: NumPy reports every array to
    `tracemalloc`. Scratch space inside BLAS (a few MiB) isn't in it. It slows Python code down, so it is not
    used around timed calls.
    """
    nested = tracemalloc.is_tracing()
    if not nested:
        tracemalloc.start(1)
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = call()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        if not nested:
            tracemalloc.stop()


def rss_peak(call: Callable[[], T], proc: Path = _PROC) -> tuple[T, int | None]:
    """Run ``call`` and return its result and how far it raised the resident set at its peak, in bytes.

    For code whose allocator cannot be asked (torch on the CPU). The kernel keeps the high-water mark itself, so no
    short peak is missed; Linux can reset it. Elsewhere the mark only ever rises, and a call that stays below an
    earlier one's peak gives None. Pages that an allocator kept from earlier calls are not counted again; glibc is
    asked to give them back first.
    """
    _give_back_freed_pages()
    with contextlib.suppress(OSError):
        (proc / "clear_refs").write_text("5")  # resets VmHWM to the present resident set
    before_peak, before = _high_water(proc), _kilobytes(proc / "status", "VmRSS")
    result = call()
    after_peak = _high_water(proc)
    if before_peak is None or after_peak is None or after_peak <= before_peak:
        return result, None
    return result, after_peak - (before_peak if before is None else before)


def _give_back_freed_pages() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)


def _high_water(proc: Path) -> int | None:
    """The process's peak resident set in bytes."""
    from_proc = _kilobytes(proc / "status", "VmHWM")
    if from_proc is not None or os.name != "posix":
        return from_proc
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere
