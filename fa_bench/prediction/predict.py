"""The time of a case on a GPU that need not be here: kernels, constants and an interval put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fa_bench.cases import Case
from fa_bench.errors import Unsupported
from fa_bench.model.compulsory import compulsory_read_bytes, compulsory_write_bytes
from fa_bench.model.flops import nominal
from fa_bench.model.gpu import Gpu
from fa_bench.prediction import constants as fitted
from fa_bench.prediction import libraries
from fa_bench.prediction.advice import advice_for
from fa_bench.prediction.constants import Constants, Implementation
from fa_bench.prediction.eager import pytorch_eager, torch_math
from fa_bench.prediction.kernels import Kernel, TiledKernel
from fa_bench.prediction.memory import demand_memory
from fa_bench.prediction.ours import our_kernels
from fa_bench.prediction.result import TimePrediction
from fa_bench.prediction.timing import Pipe, kernel_time

#: Implementation -> what it launches.
BUILDERS: Final[Mapping[str, Callable[[Case, Gpu], Sequence[Kernel]]]] = {
    "flash-attn-1": libraries.flash_attn_1,
    "flash-attn-2": libraries.flash_attn_2,
    "flash-attn-3": libraries.flash_attn_3,
    "flash-attn-4": libraries.flash_attn_4,
    "torch-flash": libraries.flash_attn_2,
    "torch-cudnn": libraries.cudnn,
    "torch-efficient": libraries.xformers,
    "torch-flex": libraries.triton,
    "xformers": libraries.xformers,
    "triton-tutorial": libraries.triton,
    "pytorch-eager": pytorch_eager,
    "torch-math": torch_math,
    "standard": our_kernels,
    "flash1": our_kernels,
    "flash2": our_kernels,
}
#: Whose constants an implementation has that runs another one's kernel.
_CONSTANTS_OF: Final[Mapping[str, str]] = {
    "torch-flash": "flash-attn-2",
    "torch-efficient": "xformers",
    "torch-flex": "triton-tutorial",
    "torch-math": "pytorch-eager",
    "standard": "flash-attn-2",
    "flash1": "flash-attn-2",
    "flash2": "flash-attn-2",
}
#: Of whose kernels nothing was fitted, whoever's constants they have.
_NEVER_FITTED: Final = frozenset({"torch-math", "standard", "flash1", "flash2"})
#: Features that a builder counts.
_COUNTED_FEATURES: Final[Mapping[str, tuple[str, ...]]] = {"pytorch-eager": ("dropout",), "torch-math": ("dropout",)}


def implementations() -> tuple[str, ...]:
    """Names of all implementations that have a time model."""
    return tuple(BUILDERS)


def predict_time(
    case: Case, gpu: Gpu, *, clock_mhz: float | None = None, constants: Constants | None = None
) -> TimePrediction:
    """How long a case takes on a GPU.

    Parameters
    ----------
    case : Case
    gpu : Gpu
    clock_mhz : float, optional
        A locked SM clock; by default the one that the generation sustains.
    constants : Constants, optional
        By default those that come with fa-bench.

    Raises
    ------
    Unsupported
        If there is no model for it, or if its tensors don't fit in the GPU's memory.
    """
    known = fitted.shipped() if constants is None else constants
    _check(case)
    demand_memory(compulsory_read_bytes(case) + compulsory_write_bytes(case), gpu)
    kernels = BUILDERS[case.impl](case, gpu)
    generation, generation_of = known.generation(gpu)
    implementation, implementation_of = _implementation(case.impl, gpu, known)
    clock = known.clock_mhz(gpu) if clock_mhz is None else clock_mhz
    times = tuple(kernel_time(kernel, case, gpu, generation, implementation, clock) for kernel in kernels)
    ms = sum(time.ms for time in times)
    terms: dict[Pipe, float] = {}
    for time in times:
        for pipe, value in time.pipes_ms.items():
            terms[pipe] = terms.get(pipe, 0.0) + value
    longest = max(times, key=lambda time: time.ms)
    low, high = _interval(case.impl, gpu, implementation_of, generation_of, known)
    made = TimePrediction(
        ms=ms,
        low_ms=ms * low,
        high_ms=ms * high,
        limiter=max(terms, key=terms.__getitem__),
        terms_ms=terms,
        balance=longest.balance,
        waves=_waves(longest.kernel, gpu),
        clock_mhz=clock,
        tflops=nominal(case.shape, case.direction) / ms * 1e-9,
        advice=(),
        notes=_notes(case.impl, gpu, implementation_of, generation_of, known),
        kernels=times,
    )
    return dataclasses.replace(made, advice=advice_for(case, gpu, terms, longest, ms))


def constants_of(impl: str, gpu: Gpu) -> str:
    """The implementation whose two constants hold for ``impl`` on a GPU.

    cuDNN has a kernel per architecture: on Blackwell its design is that of FlashAttention-4, before Hopper that of
    FlashAttention-2.
    """
    if impl == "torch-cudnn" and gpu.compute_capability != (9, 0):
        return "flash-attn-4" if gpu.compute_capability[0] == 10 else "flash-attn-2"
    return _CONSTANTS_OF.get(impl, impl)


def _check(case: Case) -> None:
    if case.impl not in BUILDERS:
        raise Unsupported(f"There is no time model for {case.impl}.")
    if case.shape.seqlens is not None:
        raise Unsupported("There is no time model for packed batches.")
    if case.shape.dim_v != case.shape.head_dim:
        raise Unsupported("There is no time model for a head_dim of V that differs from K's.")
    counted = _COUNTED_FEATURES.get(case.impl, ())
    unknown = [name for name in case.features.named if name.split()[0] not in counted]
    if unknown:
        raise Unsupported(f"The time model of {case.impl} knows nothing of {', '.join(unknown)}.")


def _implementation(impl: str, gpu: Gpu, known: Constants) -> tuple[Implementation, str]:
    name = constants_of(impl, gpu)
    if name not in known.implementations:
        raise Unsupported(f"No published time was fitted for {impl}.")
    return known.implementations[name], name


def _interval(impl: str, gpu: Gpu, implementation: str, generation: str, known: Constants) -> tuple[float, float]:
    errors = [known.errors.get(implementation, known.errors["all"])]
    if gpu.slug not in known.fitted_gpus or generation != fitted.generation_name(gpu):
        errors.append(known.other_gpu)
    if impl in _NEVER_FITTED:
        errors.append(known.errors["all"])
    return min(error.low for error in errors), max(error.high for error in errors)


def _waves(kernel: Kernel, gpu: Gpu) -> float | None:
    if not isinstance(kernel, TiledKernel):
        return None
    return kernel.grid.ctas / (gpu.sm_count * kernel.blocks_per_sm)


def _notes(impl: str, gpu: Gpu, implementation: str, generation: str, known: Constants) -> tuple[str, ...]:
    notes = []
    own = fitted.generation_name(gpu)
    if generation != own:
        notes.append(f"No published time is of {own}, nor of {gpu.slug}: constants of {generation}.")
    elif gpu.slug not in known.fitted_gpus:
        notes.append(f"No published time is of {gpu.slug}: constants of other GPUs of {own}.")
    if impl == "torch-math":
        notes.append("Nothing but its GPU's constants was fitted for torch-math.")
    elif implementation != impl:
        notes.append(f"The constants of {impl} are {implementation}'s.")
    return tuple(notes)
