"""The sets of backends that a sweep runs its cases in: one, or with ``--devices`` one for each GPU or process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from fa_bench import backends
from fa_bench.backends.base import Backend, BackendName
from fa_bench.cases import Case
from fa_bench.cli.devices import opened
from fa_bench.errors import UsageError

if TYPE_CHECKING:
    from fa_bench.sweep.plan import PlanningBackend

#: A fault on the GPU leaves a process without it.
_ALWAYS_APART: Final[tuple[BackendName, ...]] = ("cuda",)

#: Of the number of a device, at most.
_DIGITS: Final = 4


@contextmanager
def opened_sets(
    device: str, devices: str | None = None, *, jobs: int | None = None, checks: bool = False, **options: Any
) -> Iterator[list[list[Backend]]]:
    """The backends of ``device``, once, or once for each of ``devices``; closed at the end.

    A GPU's backend runs in a process of its own, and with ``devices`` each backend does.

    Parameters
    ----------
    device : {"auto", "cuda", "emulator", "host"}
    devices : str, optional
        ``all``, or numbers with commas: GPUs as CUDA counts them, or processes of the emulator.
    jobs : int, optional
        Threads of the emulator; with ``devices`` one in each process by default.
    checks, options
        As for `fa_bench.cli.devices.opened`.

    Raises
    ------
    UsageError
        If the device can't be had several times, a number is off, or the GPUs differ.
    DeviceUnavailable
        If it is not here.
    """
    with ExitStack() as stack:
        if devices is None:
            yield [stack.enter_context(opened(device, jobs=jobs, checks=checks, apart=_ALWAYS_APART, **options))]
            return
        name = _one_backend(device, checks)
        numbers = _numbers(devices, name)
        sets = [
            stack.enter_context(opened(device, jobs=jobs or 1, checks=checks, apart=(name,), ordinal=number, **options))
            for number in numbers
        ]
        _demand_equal(dict(zip(numbers, (made[0].device for made in sets), strict=True)))
        yield sets


def planning_backends(sets: Sequence[Sequence[Backend]]) -> list[PlanningBackend]:
    """What planning asks: each backend, with the memory that a case may use while the other sets run theirs."""
    if len(sets) == 1:
        return list(sets[0])
    return [_Several(same) for same in zip(*sets, strict=True)]


class _Several:
    """The same backend in several sets, as planning sees it."""

    def __init__(self, same: Sequence[Backend]) -> None:
        self._same = same
        self.name: BackendName = same[0].name
        self.device = same[0].device

    def implementations(self) -> Sequence[str]:
        """They offer the same."""
        return self._same[0].implementations()

    def free_memory_bytes(self) -> int | None:
        """That of the fullest GPU; a process of the emulator has its share of the machine's."""
        if self.name != "cuda":
            free = self._same[0].free_memory_bytes()
            return None if free is None else free // len(self._same)
        known = [free for backend in self._same if (free := backend.free_memory_bytes()) is not None]
        return min(known, default=None)

    def required_bytes(self, case: Case) -> int:
        """The same on each."""
        return self._same[0].required_bytes(case)


def _one_backend(device: str, checks: bool) -> BackendName:
    names = backends.resolve_device("emulator" if checks and device == "auto" else device)
    if "host" in names:
        raise UsageError(
            "--devices: what is timed on the host can't run beside other processes.",
            hint="Add --device emulator or --device cuda.",
        )
    return names[0]


def _numbers(devices: str, name: BackendName) -> list[int]:
    """The numbers that ``--devices`` stands for."""
    count = backends.device_count(name)
    if devices.strip() == "all":
        return list(range(count))
    items = [item.strip() for item in devices.split(",")]
    for item in items:
        if not (item.isascii() and item.isdigit() and len(item) <= _DIGITS):
            raise UsageError(f"--devices takes all, or numbers as in 0,2; not {item!r}.")
    numbers = [int(item) for item in items]
    if len(set(numbers)) < len(numbers):
        raise UsageError("--devices: a number is there twice.")
    # The emulator's processes are as many as are named.
    if name == "cuda" and (off := [number for number in numbers if number >= count]):
        known = "0" if count == 1 else f"0 to {count - 1}"
        raise UsageError(f"--devices: there is no GPU {off[0]}.", hint=f"CUDA finds {known} here.")
    return numbers


def _demand_equal(named: dict[int, str]) -> None:
    first = next(iter(named))
    for number, device in named.items():
        if device != named[first]:
            raise UsageError(
                f"--devices: GPU {first} is a {named[first]}, GPU {number} a {device}: a run is of one kind of GPU.",
                hint="Run a sweep for each kind.",
            )
