"""FlashAttention-2 and -3 of their authors.

Signatures and conventions as in flash-attn 2.8.3 (``flash_attn/flash_attn_interface.py``) and in FlashAttention-3
(``hopper/flash_attn_interface.py``) of https://github.com/Dao-AILab/flash-attention. Both take ``[batch, seq, heads,
head_dim]`` with any strides but a last one of 1, share K/V heads by ``h // (heads_q / heads_kv)``, align a causal mask
bottom-right (since 2.1) and scale by 1/sqrt(head_dim) of the tensors, whatever they pad it to.
"""

from __future__ import annotations

import inspect
from typing import Any

from fa_bench.backends.baselines import FLASH_ATTN, FLASH_ATTN_3
from fa_bench.backends.torch_impls import Call, Output
from fa_bench.cases import Case
from fa_bench.errors import Unsupported

#: The first version whose causal mask is aligned bottom-right.
_BOTTOM_RIGHT = (2, 1)


def flash_attn_2(case: Case, q: Any, k: Any, v: Any) -> Call:
    """``flash_attn.flash_attn_func``; its LSE comes with ``return_attn_probs``, which without dropout computes no S.

    Raises
    ------
    Unsupported
        If the version is older than 2.1 and the mask is not square.
    """
    library = FLASH_ATTN.load()
    if case.shape.causal and case.shape.diagonal and _version(library) < _BOTTOM_RIGHT:
        raise Unsupported(
            f"{FLASH_ATTN.version()} aligns a causal mask top-left: seq_q {case.shape.seq_q} and seq_kv "
            f"{case.shape.seq_kv} must be equal, or flash-attn 2.1 or later installed."
        )
    attend, causal = library.flash_attn_func, case.shape.causal
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return Call(lambda: attend(q, k, v, causal=causal, return_attn_probs=True), _tokens_first)


def flash_attn_3(case: Case, q: Any, k: Any, v: Any) -> Call:
    """``flash_attn_interface.flash_attn_func``.

    It returned O and LSE up to 2024, O alone in 3.0.0b1, and either since ``return_attn_probs`` is one of its
    parameters: that is what its signature is looked at for.
    """
    attend, causal = FLASH_ATTN_3.load().flash_attn_func, case.shape.causal
    options = {"return_attn_probs": True} if "return_attn_probs" in inspect.signature(attend).parameters else {}
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return Call(lambda: attend(q, k, v, causal=causal, **options), _tokens_first)


def _tokens_first(result: Any) -> Output:
    """O ``[B, S, H, D]``, alone or with LSE ``[B, H, S]`` behind it."""
    o, lse = result[:2] if isinstance(result, tuple) else (result, None)
    return o.transpose(1, 2), lse


def _version(library: Any) -> tuple[int, ...]:
    """Major and minor of a module's ``__version__``."""
    return tuple(int(part) for part in str(library.__version__).split(".")[:2])
