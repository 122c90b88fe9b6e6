"""The implementations that are not ours: which there are, what each needs and can do, whether it is here.

Everything is found out without importing a library: from the finders and metadata of Python, so that listing them costs
nothing and a broken installation breaks nothing. What runs them is named as text (``module:factory``) and imported by
who runs a case. This module knows no tensor, no GPU and no case's data.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final, Literal

from fa_bench.cases import Case
from fa_bench.errors import Unsupported

NUMPY_IMPLEMENTATIONS: Final = ("numpy-standard", "numpy-flash")

#: Where a baseline can run.
Place = Literal["cuda", "host"]
#: How a library treats a causal mask where seq_q and seq_kv differ: aligned bottom-right, queries that see nothing
#: included; the same without such queries; not at all.
Causal = Literal["all", "visible", "square"]

#: Float workspace that FlashInfer recommends, and the integers that it plans with.
FLASHINFER_WORKSPACE_BYTES: Final = 128 * 2**20
FLASHINFER_PLAN_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Library:
    """A package that brings implementations.

    Parameters
    ----------
    name : str
        As its makers call it; the first word of ``impl_version``.
    module : str
        Top-level module; looking for a submodule would import its parent.
    distributions : tuple of str
        Names under which it can be installed, in the spelling of the package index.
    install : str
        Command that installs it, or what to build.
    """

    name: str
    module: str
    distributions: tuple[str, ...]
    install: str

    def is_here(self) -> bool:
        """Whether Python finds the module; nothing is imported."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except (ImportError, ValueError):  # a module in sys.modules without a spec
            return False

    def load(self, module: str = "") -> Any:
        """Import the library (or a submodule of it, by its full name).

        Raises
        ------
        Unsupported
            If it is installed and cannot be imported, whatever the reason: often it was built for another PyTorch.
        """
        try:
            return importlib.import_module(module or self.module)
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise Unsupported(f"{self.version()} is installed but cannot be imported ({lines[0]}).") from error

    def version(self) -> str:
        """Name and installed version, ``flash-attn 2.8.3``; all versions where several installations overlap."""
        found = {
            distribution.version or "of unknown version"
            for name in self.distributions
            for distribution in metadata.distributions(name=name)
        }
        return f"{self.name} {' and '.join(sorted(found)) or 'of unknown version'}"


TORCH: Final = Library("torch", "torch", ("torch",), "pip install 'fa-bench[torch]'")
FLASH_ATTN: Final = Library("flash-attn", "flash_attn", ("flash-attn",), "pip install flash-attn --no-build-isolation")
FLASH_ATTN_3: Final = Library(
    "flash-attn-3",
    "flash_attn_interface",
    ("flash-attn-3",),
    "build github.com/Dao-AILab/flash-attention, hopper/",
)
FLASHINFER: Final = Library(
    "flashinfer", "flashinfer", ("flashinfer-python", "flashinfer"), "pip install flashinfer-python"
)
XFORMERS: Final = Library("xformers", "xformers", ("xformers",), "pip install xformers")
TRITON: Final = Library("triton", "triton", ("triton", "triton-windows"), "pip install triton")


@dataclass(frozen=True, slots=True)
class Baseline:
    """One implementation on tensors of PyTorch.

    Parameters
    ----------
    name : str
        Slug.
    library : Library
        What brings it. PyTorch is needed in any case: all take its tensors.
    factory : str
        ``module:function`` that makes a call of it, see `fa_bench.backends.torch_impls`.
    summary : str
        What it is, in a few words.
    places : tuple of str
    dtypes : tuple of str
    head_dims : tuple of int
        Those that it takes; empty for all of a case.
    max_head_dim : int
    causal : {"all", "visible", "square"}
    grid_limit : int
        Most sequences of a batch, and most query heads, where they lie on an axis of a grid of their own; 0 if not.
    capability : (int, int)
        Least compute capability on a GPU.
    major_limit : int
        Largest major compute capability, 0 for none that is known.
    """

    name: str
    library: Library
    factory: str
    summary: str
    places: tuple[Place, ...] = ("cuda",)
    dtypes: tuple[str, ...] = ("fp16", "bf16")
    head_dims: tuple[int, ...] = ()
    max_head_dim: int = 256
    causal: Causal = "all"
    grid_limit: int = 0
    capability: tuple[int, int] = (8, 0)
    major_limit: int = 0

    def is_here(self, place: Place) -> bool:
        """Whether its packages are installed and it can run at ``place``."""
        return place in self.places and TORCH.is_here() and self.library.is_here()

    def missing(self) -> tuple[Library, ...]:
        """What must be installed first."""
        needed = dict.fromkeys((TORCH, self.library))
        return tuple(library for library in needed if not library.is_here())

    def unsupported(self, case: Case, place: Place, sm: str = "") -> str | None:
        """Why it cannot run ``case`` at ``place``, as a sentence, or None if nothing is known against it.

        Parameters
        ----------
        sm : str
            The GPU's architecture, ``sm_80``; empty where it plays no part.
        """
        return _refusal(self, case, sm if place == "cuda" else "", on_gpu=place == "cuda")

    def required_bytes(self, case: Case, place: Place) -> int:
        """Memory that it needs at ``place``, its tensors included, in bytes."""
        return tensor_bytes(case) + _WORKSPACES.get(self.name, _torch_workspace)(case, place)


def _refusal(baseline: Baseline, case: Case, sm: str, *, on_gpu: bool) -> str | None:
    shape, name = case.shape, baseline.name
    if on_gpu and case.dtype not in baseline.dtypes:
        return f"{name} takes {' and '.join(baseline.dtypes)}, not {case.dtype}."
    if on_gpu and (reason := _architecture(baseline, sm)):
        return reason
    if shape.head_dim > baseline.max_head_dim:
        return f"{name} takes head dimensions up to {baseline.max_head_dim}, not {shape.head_dim}."
    if baseline.head_dims and shape.head_dim not in baseline.head_dims:
        known = ", ".join(map(str, baseline.head_dims))
        return f"{name} has kernels for head dimensions {known}, not for {shape.head_dim}."
    if on_gpu and baseline.grid_limit and max(shape.batch, shape.heads_q) > baseline.grid_limit:
        size = f"{shape.batch} sequences by {shape.heads_q} heads"
        return f"{name} launches a grid of {size}; an axis holds {baseline.grid_limit}."
    if on_gpu and hides(case) and shape.diagonal:
        if baseline.causal == "square":
            return f"{name} aligns a causal mask top-left: seq_q {shape.seq_q} and seq_kv {shape.seq_kv} must be equal."
        if baseline.causal == "visible" and shape.diagonal < 0:
            return (
                f"{name} defines no result for queries that see no key: causal with seq_q {shape.seq_q} > "
                f"seq_kv {shape.seq_kv}."
            )
    if name == "flashinfer" and case.layout == "bhsd" and shape.batch > 1:
        return "flashinfer joins the sequences of a batch along the tokens: layout bshd, or a batch of 1."
    return None


def _architecture(baseline: Baseline, sm: str) -> str | None:
    """Why an architecture does not do; ``sm_90`` is compute capability 9.0."""
    if not sm:
        return None
    digits = sm.removeprefix("sm_")
    here = int(digits[:-1]), int(digits[-1])
    least, most = baseline.capability, baseline.major_limit
    if here >= least and (not most or here[0] <= most):
        return None
    wanted = f"{most}.x" if most == least[0] else f"{least[0]}.{least[1]} or higher"
    return f"{baseline.name} needs compute capability {wanted}; this GPU has {here[0]}.{here[1]}."


def hides(case: Case) -> bool:
    """Whether the case's mask hides anything: a single query sees all keys, causal or not."""
    shape = case.shape
    return shape.causal and shape.visible_pairs < shape.seq_q * shape.seq_kv


def tensor_bytes(case: Case) -> int:
    """Q, K, V and O in bytes."""
    s = case.shape
    return 2 * case.itemsize * s.head_dim * (s.slices * s.seq_q + s.batch * s.heads_kv * s.seq_kv)


def _torch_math(case: Case, place: Place) -> int:
    """S and P in float32, Q, K and V converted, K and V repeated for every query head, and a mask."""
    s = case.shape
    q_elements, kv_elements = s.slices * s.seq_q * s.head_dim, s.batch * s.heads_kv * s.seq_kv * s.head_dim
    scores = 2 * 4 * s.slices * s.seq_q * s.seq_kv
    return _mask(case) + scores + 3 * 4 * (q_elements + s.group * kv_elements)


def _torch_workspace(case: Case, place: Place) -> int:
    """Accumulators and blocks in float32 at most, and on the CPU a mask."""
    s = case.shape
    return _mask(case) + 4 * s.slices * (s.seq_q + s.seq_kv) * (s.head_dim + 2)


def _lse(case: Case, place: Place) -> int:
    """One float per row, and what a K/V split in up to two halves accumulates where there are few rows."""
    return 4 * case.shape.slices * case.shape.seq_q


def _flash(case: Case, place: Place) -> int:
    """LSE, and O and LSE in float32 for every split of K and V, of which there are as many as keep the GPU busy.

    A split is made where a grid of 64-row tiles leaves SMs idle, so that all splits together have no more tiles than
    two for each SM: at most 512 on the largest GPUs of today.
    """
    s = case.shape
    tiles = s.slices * -(-s.seq_q // 64)
    splits = min(128, 512 // tiles)
    accumulators = 4 * splits * s.slices * s.seq_q * (s.head_dim + 64) if splits > 1 else 0
    return _lse(case, place) + accumulators


def _flashinfer(case: Case, place: Place) -> int:
    return _lse(case, place) + FLASHINFER_WORKSPACE_BYTES + FLASHINFER_PLAN_BYTES


def _mask(case: Case) -> int:
    shape = case.shape
    return shape.seq_q * shape.seq_kv if shape.causal and shape.diagonal else 0


_WORKSPACES: Final[dict[str, Callable[[Case, Place], int]]] = {
    "torch-math": _torch_math,
    "flash-attn-2": _flash,
    "flash-attn-3": _flash,
    "xformers": _flash,
    "flashinfer": _flashinfer,
    "triton-flash": _lse,
}

_ROOM: Final = "fa_bench.backends"
#: CTAs along the y and the z axis of a grid.
_YZ_LIMIT: Final = 65_535
_ALL_DTYPES: Final = ("fp16", "bf16", "fp32")

#: In the order of a sweep's rows.
BASELINES: Final[tuple[Baseline, ...]] = (
    Baseline(
        "torch-math", TORCH, f"{_ROOM}.torch_impls:math",
        "SDPA as separate products and a softmax",
        places=("cuda", "host"), dtypes=_ALL_DTYPES, capability=(5, 0),
    ),
    Baseline(
        "torch-flash", TORCH, f"{_ROOM}.torch_impls:flash",
        "SDPA's flash attention: FlashAttention-2 on a GPU",
        places=("cuda", "host"), grid_limit=_YZ_LIMIT,
    ),
    Baseline(
        "torch-efficient", TORCH, f"{_ROOM}.torch_impls:efficient",
        "SDPA's memory-efficient attention (CUTLASS)",
        dtypes=_ALL_DTYPES, causal="visible", capability=(5, 0),
    ),
    Baseline(
        "torch-cudnn", TORCH, f"{_ROOM}.torch_impls:cudnn",
        "SDPA through cuDNN's fused attention",
        causal="square", grid_limit=_YZ_LIMIT,
    ),
    Baseline(
        "torch-flash-blocked", TORCH, f"{_ROOM}.torch_impls:blocked",
        "FlashAttention in a few dozen lines of PyTorch",
        places=("cuda", "host"), dtypes=_ALL_DTYPES, capability=(5, 0),
    ),
    Baseline(
        "flash-attn-2", FLASH_ATTN, f"{_ROOM}.flash_attn_impls:flash_attn_2",
        "FlashAttention-2 of its authors",
        grid_limit=_YZ_LIMIT,
    ),
    Baseline(
        "flash-attn-3", FLASH_ATTN_3, f"{_ROOM}.flash_attn_impls:flash_attn_3",
        "FlashAttention-3 of its authors, for Hopper",
        capability=(9, 0), major_limit=9,
    ),
    Baseline(
        "flashinfer", FLASHINFER, f"{_ROOM}.flashinfer_impls:prefill",
        "FlashInfer's prefill over ragged K and V",
        head_dims=(64, 128, 256), causal="visible",
    ),
    Baseline(
        "xformers", XFORMERS, f"{_ROOM}.xformers_impls:memory_efficient",
        "xFormers' memory_efficient_attention",
        dtypes=_ALL_DTYPES, causal="visible",
    ),
    Baseline(
        "triton-flash", TRITON, f"{_ROOM}.triton_impls:flash",
        "FlashAttention-2 in Triton, a kernel of ours",
    ),
)  # fmt: skip

_BY_NAME: Final = {baseline.name: baseline for baseline in BASELINES}


def names() -> tuple[str, ...]:
    """Slugs of all baselines, here or not."""
    return tuple(_BY_NAME)


def find(name: str) -> Baseline | None:
    """The baseline called ``name``; None for kernels of ours, NumPy's and the user's."""
    return _BY_NAME.get(name)


def usable(place: Place) -> tuple[str, ...]:
    """Slugs of the baselines whose packages are here and that run at ``place``."""
    return tuple(baseline.name for baseline in BASELINES if baseline.is_here(place))


def libraries() -> tuple[Library, ...]:
    """Every library that brings a baseline, in the order of the baselines."""
    return tuple(dict.fromkeys(baseline.library for baseline in BASELINES))
