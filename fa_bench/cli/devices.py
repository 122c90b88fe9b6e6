"""Opening what ``--device`` asks for, and closing it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fa_bench.backends.base import Backend
from fa_bench.cli.axes import check_device
from fa_bench.errors import DeviceUnavailable, UsageError


@contextmanager
def opened(
    device: str, *, jobs: int | None = None, kernels_only: bool = False, all_slices: bool = False
) -> Iterator[list[Backend]]:
    """The backends of ``device``, in order of preference, closed at the end.

    ``auto`` is a usable GPU, else the emulator and the host.

    Parameters
    ----------
    device : {"auto", "cuda", "emulator", "host"}
    jobs : int, optional
        Threads of the emulator; all cores by default.
    kernels_only : bool
        Leave out the host: only backends that run our kernels.
    all_slices : bool
        Let the emulator run every slice of every case.

    Raises
    ------
    UsageError
        If there is no such device.
    DeviceUnavailable
        If it is not here.
    """
    backends: list[Backend] = []
    try:
        backends += _open(check_device(device), jobs or 0, kernels_only, all_slices)
        yield backends
    finally:
        for backend in backends:
            backend.close()


def _open(device: str, jobs: int, kernels_only: bool, all_slices: bool) -> Iterator[Backend]:
    if device == "host" and kernels_only:
        raise UsageError("The host runs no kernels of ours.", hint="Choose cuda or emulator.")
    if device == "host":
        yield _host()
    elif device == "emulator":
        yield _emulator(jobs, all_slices)
    else:
        yield from _host_or(jobs)
