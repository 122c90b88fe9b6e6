"""Published names of implementations and the slugs that they stand for."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.backends import baselines
from fa_bench.errors import UsageError
from fa_bench.published.names import IMPLS, impl_slug


@pytest.mark.parametrize(
    ("published", "slug"),
    [
        ("FA2", "flash-attn-2"),
        ("FA2 (CUDA)", "flash-attn-2"),
        ("FA2 v2.0.9", "flash-attn-2"),
        ("FlashAttention-2", "flash-attn-2"),
        ("flash_attn_3", "flash-attn-3"),
        ("FA3 warp-spec, no GEMM-softmax pipelining", "flash-attn-3"),
        ("FA4 bwd 1-CTA", "flash-attn-4"),
        ("cuDNN 9.19 (SDPA)", "torch-cudnn"),
        ("torch SDPA cuDNN", "torch-cudnn"),
        ("xformers cutlass", "xformers"),
        ("Triton tutorial FA2", "triton-tutorial"),
        ("PyTorch Attention", "pytorch-eager"),
        ("FlashAttention", "flash-attn-1"),
        ("FlashAttention (sglang)", "flash-attn-unstated"),
        ("flash_attn", "flash-attn-2"),
        ("flash_attn 2.7.4.post1", "flash-attn-2"),
        ("flash-attn 1.0.9", "flash-attn-1"),
        ("Flash-2", "flash-attn-2"),
        ("FAv3", "flash-attn-3"),
        ("flash_v3", "flash-attn-3"),
        ("sdpa", "torch-flash"),
        ("scaled_dot_product_attention", "torch-flash"),
        ("mem_efficient", "torch-efficient"),
        ("cudnn-9.5.1", "torch-cudnn"),
        ("pyt_cudnn", "torch-cudnn"),
        ("triton_tutorial_flash_v2", "triton-tutorial"),
        ("torch-flash", "torch-flash"),
    ],
)
def test_a_published_name_stands_for_a_slug(published: str, slug: str) -> None:
    assert impl_slug(published) == slug


def test_no_spelling_stands_for_two() -> None:
    spellings = [name.casefold() for slug, names in IMPLS.items() for name in (slug, *names)]
    assert sorted(spellings) == sorted(set(spellings))


def test_a_slug_of_ours_means_ours() -> None:
    # Our own Triton kernel and the tutorial's are different kernels, and so are our flash1 and the first package.
    assert not set(IMPLS) & set(algorithms.names())
    assert "triton-flash" in baselines.names() and "triton-flash" not in IMPLS


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UsageError, match="No implementation is known as 'FA22'") as caught:
        impl_slug("FA22")
    assert caught.value.hint == "Did you mean 'fa2'?"
