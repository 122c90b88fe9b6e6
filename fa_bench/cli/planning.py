"""What the device decides of a request: which implementations ``auto`` means, the default shape, the target GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fa_bench import algorithms
from fa_bench.backends import baselines
from fa_bench.backends.base import BackendName
from fa_bench.backends.baselines import NUMPY_IMPLEMENTATIONS
from fa_bench.cases import Case
from fa_bench.errors import DeviceUnavailable, FaBenchError, UsageError, nearest
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu

if TYPE_CHECKING:
    from fa_bench.backends.baselines import Baseline
    from fa_bench.sweep.plan import PlanningBackend, SweepRequest

#: Target of tiles and predictions where there is no GPU and none was asked for.
DEFAULT_GPU: Final = "a100-sxm-80"

#: The shape of the FlashAttention papers, for a GPU that nothing else was asked of.
GPU_TOKENS: Final = 16 * 1024
_GPU_HIDDEN: Final = 2048

#: Implementations that stand for several: our kernels and NumPy's; everything that runs here.
_GROUPS: Final = ("auto", "all")


class ModelOnly:
    """A planning backend for commands that run nothing: all kernels, and no limit on memory."""

    name: BackendName = "emulator"

    def implementations(self) -> Sequence[str]:
        """The kernels of this repository, and those of the user."""
        return (*algorithms.names(), *algorithms.added())

    def free_memory_bytes(self) -> int | None:
        """Not asked."""
        return None

    def required_bytes(self, case: Case) -> int:
        """Bytes of the program's buffers."""
        return algorithms.get(case.impl).program(case).nbytes


def target_gpu(name: str | None, backends: Sequence[PlanningBackend]) -> Gpu:
    """The GPU that was asked for, else the one that is here, else `DEFAULT_GPU`.

    Raises
    ------
    UsageError
        If the registry doesn't know it.
    """
    if name is not None:
        return gpus.get(name)
    for backend in backends:
        if backend.name == "cuda":
            device = getattr(backend, "device", "")
            found = gpus.find(device)
            if found is None:
                raise UsageError(
                    f"The registry has no GPU {device!r}.",
                    hint="Give the nearest one with --gpu (see fa-bench gpus), or add a TOML file for it.",
                )
            return found
    return gpus.get(DEFAULT_GPU)


def resolved(request: SweepRequest, backends: Sequence[PlanningBackend]) -> SweepRequest:
    """The request with files and groups made into names and, on a GPU, the papers' shape where none was given.

    A file that describes a kernel of the user's becomes an algorithm of this process (`fa_bench.algorithms.add`).
    """
    request = replace(request, impls=_impls(_loaded(request.impls), backends, request))
    return with_papers_sizes(request) if any(backend.name == "cuda" for backend in backends) else request


def with_papers_sizes(request: SweepRequest) -> SweepRequest:
    """The request with the papers' tokens and hidden size where it has neither these nor a batch or heads."""
    if not request.batches and request.tokens is None and request.seqlens is None:
        request = replace(request, tokens=max(GPU_TOKENS, *request.seqs))
    if not request.heads and request.hidden is None:
        request = replace(request, hidden=_GPU_HIDDEN)
    return request


def _loaded(asked: Sequence[str]) -> tuple[str, ...]:
    """The implementations asked for, files replaced by the name of what they describe.

    Raises
    ------
    UsageError
        If a file is off, or two would have the same name.
    """
    from fa_bench.algorithms.user import load

    names: dict[str, str] = {}
    for name in asked:
        path = Path(name)
        if path.suffix in (".cu", ".ptx"):
            raise UsageError(
                f"{name!r} is a kernel's source; --impl takes the TOML file that describes it.",
                hint="Write one beside it: docs/user-kernels.md.",
            )
        if path.suffix != ".toml":
            names.setdefault(name, "")
            continue
        algorithm = load(path)
        if algorithm.name in (*NUMPY_IMPLEMENTATIONS, *baselines.names(), *_GROUPS):
            raise UsageError(
                f"{name!r} would be called {algorithm.name}, which is taken.", "Give the file another name."
            )
        if names.get(algorithm.name, name) != name:
            raise UsageError(
                f"{names[algorithm.name]!r} and {name!r} would both be called {algorithm.name}.",
                "Give one of the files another name.",
            )
        algorithms.add(algorithm)
        names[algorithm.name] = name
    return tuple(names)


def _impls(asked: Sequence[str], backends: Sequence[PlanningBackend], request: SweepRequest) -> tuple[str, ...]:
    device = request.device
    here = list(dict.fromkeys(impl for backend in backends for impl in backend.implementations()))
    able = [impl for impl in here if _has_any(impl, request)]
    ours = [impl for impl in (*algorithms.names(), *NUMPY_IMPLEMENTATIONS) if impl in able]
    groups = dict(zip(_GROUPS, (ours, able), strict=True))
    impls: dict[str, None] = {}
    for name in asked or ("auto",):
        for impl in groups.get(name, [name]):
            _check_impl(impl, here, device, all(isinstance(backend, ModelOnly) for backend in backends))
            impls[impl] = None
    return tuple(impls)


def _has_any(impl: str, request: SweepRequest) -> bool:
    """Whether an implementation was made for some of what the request asks for: its passes, windows and features."""
    algorithm = algorithms.find(impl)
    return any(
        algorithms.lacking(Case(impl, shape, direction=direction, features=features), algorithm) is None
        for shape in request.kinds()
        for direction in request.directions
        for features in request.features
    )


def _check_impl(impl: str, here: Sequence[str], device: str, only_kernels: bool) -> None:
    known = (*algorithms.names(), *algorithms.added(), *NUMPY_IMPLEMENTATIONS, *baselines.names())
    if impl in here:
        return
    if impl not in known and impl not in here:
        raise UsageError(f"There is no implementation {impl!r}.", hint=nearest(impl, dict.fromkeys((*known, *here))))
    if only_kernels:
        others = f"sweep runs {impl}. " if baselines.find(impl) else ""
        raise UsageError(f"{impl} is no CUDA kernel of ours.", hint=f"{others}Known here: {', '.join(here)}.")
    if baseline := baselines.find(impl):
        raise _absent(baseline, device)
    if impl in algorithms.names() and device == "auto":
        raise DeviceUnavailable(
            f"{impl} needs a GPU or the emulator, and neither can be used here.", hint="See fa-bench doctor."
        )
    raise UsageError(f"{impl} does not run on the device asked for.", hint=f"Here run: {', '.join(here)}.")


def _absent(baseline: Baseline, device: str) -> FaBenchError:
    """Why a baseline does not run: a package is missing, the device asked for is not one of its, or there is no GPU."""
    if missing := baseline.missing():
        names = " and ".join(library.name for library in missing)
        are = "is" if len(missing) == 1 else "are"
        hint = " && ".join(library.install for library in missing)
        return DeviceUnavailable(f"{baseline.name} does not run here: {names} {are} not installed.", hint=hint)
    if device not in ("auto", *baseline.places):
        places = " or ".join(baseline.places)
        return UsageError(f"{baseline.name} does not run on {device}.", hint=f"It runs on {places}.")
    return DeviceUnavailable(
        f"{baseline.name} does not run here: it needs a GPU, and none can be used.", hint="See fa-bench doctor."
    )
