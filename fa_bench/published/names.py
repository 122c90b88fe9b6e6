"""Names by which people publish an implementation, and the slug that it has here.

A slug of an implementation that fa-bench runs stands for the same kernel; the others can't be run here, and are only
names of what was measured.
"""

from __future__ import annotations

import re
from typing import Final

from fa_bench.errors import UsageError, nearest

#: slug -> spellings in papers, issues and benchmarks, beside the slug itself.
IMPLS: Final[dict[str, tuple[str, ...]]] = {
    # QK^T, mask, softmax, dropout and PV as PyTorch's separate kernels (baddbmm or einsum).
    "pytorch-eager": (
        "pytorch",
        "pytorch standard",
        "pytorch eager",
        "pytorch attention",
        "standard attention",
        "eager",
    ),
    "torch-math": ("sdpa math", "torch sdpa math", "pyt math"),
    # What PyTorch takes for half types unless told otherwise, on every GPU from Ampere on.
    "torch-flash": (
        *("sdpa flash", "torch sdpa flash", "pyt flash attention"),
        *("sdpa", "torch sdpa", "pytorch sdpa", "f.sdpa", "scaled dot product attention"),
    ),
    "torch-efficient": (
        *("sdpa efficient", "torch sdpa efficient", "torch sdpa mem-efficient"),
        *("mem-efficient", "mem-efficient attention", "memory-efficient attention"),
    ),
    "torch-cudnn": ("cudnn", "cudnn sdpa", "torch sdpa cudnn", "torch cudnn sdpa", "pyt cudnn"),
    "torch-flex": ("flexattention", "flex attention", "torch flex", "flex"),
    "flash-attn-1": ("fa1", "flash1", "flashattention", "flashattention-1", "flash attention"),
    "flash-attn-2": (
        *("fa2", "fav2", "fa-2", "flash2", "flash-2", "flash v2"),
        *("flashattention-2", "flash-attention-2", "flashattention v2", "flash attn 2", "flash attn v2"),
        # The package, whose releases since July 2023 are FlashAttention-2.
        "flash attn",
    ),
    "flash-attn-3": (
        *("fa3", "fav3", "fa-3", "flash3", "flash-3", "flash v3"),
        *("flashattention-3", "flash-attention-3", "flashattention v3", "flash attn 3", "flash attn v3"),
    ),
    "flash-attn-4": ("fa4", "flash4", "flashattention-4", "flash-attention-4", "flash attn 4", "fa4 bwd 1-cta"),
    # Of a version that the source doesn't state.
    "flash-attn-unstated": ("flashattention (sglang)",),
    "flashinfer": (),
    "xformers": ("xformers cutlass", "xformers.c"),
    # The fused attention of Triton's tutorials (triton.ops.flash_attention), which papers compare with.
    "triton-tutorial": ("triton", "fa triton", "triton fa2", "triton tutorial fa2", "triton tutorial flash v2"),
    "apex-fmha": ("apex fmha", "fmha"),
    "megatron": ("megatron-lm",),
    "flash-attn-1-block-sparse": ("block-sparse flashattention",),
    "block-sparse-openai": ("block sparse (openai)",),
    "local-attention": (),
    "bigbird": (),
    "linformer": (),
    "longformer": (),
    "lsformer": ("ls transformer",),
    "reformer": (),
    "smyrf": (),
}


def impl_slug(published: str) -> str:
    """The slug of a published name.

    Its version, and a remark in parentheses or after a comma, don't matter, but the package ``flash_attn`` has the
    kernels that the first figure of its version says.

    Raises
    ------
    UsageError
        If no implementation is known by that name.

    Examples
    --------
    >>> impl_slug("FA2 v2.0.9"), impl_slug("cuDNN 9.19 (SDPA)"), impl_slug("PyTorch Attention")
    ('flash-attn-2', 'torch-cudnn', 'pytorch-eager')
    >>> impl_slug("flash_attn 2.7.4.post1"), impl_slug("flash-attn 1.0.9")
    ('flash-attn-2', 'flash-attn-1')
    """
    if package := re.fullmatch(r"flash attn v?([12])\.\S+", _key(published)):
        return f"flash-attn-{package[1]}"
    for key in (_key(published), _key(_without_remark(published))):
        if key in _SLUGS:
            return _SLUGS[key]
    raise UsageError(f"No implementation is known as {published!r}.", nearest(_key(published), _SLUGS))


def _without_remark(name: str) -> str:
    name = re.sub(r"\s*(\([^()]*\)|,.*)\s*$", "", name)
    return re.sub(r"[\s-]+(warp-spec|v?\d+(\.\d+)+\S*)$", "", name)


def _key(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name.strip().casefold())


_SLUGS: Final = {_key(name): slug for slug, names in IMPLS.items() for name in (slug, *names)}
