"""flash-attn, FlashInfer and xFormers, called as they are meant to be.

The libraries need a GPU. Stubs stand for them here: written by hand after the signatures and conventions that each of
our modules cites, refusing any other argument, and computing attention in plain PyTorch on the CPU. What is tested is
that our calls mean, in the library's conventions, the attention that a case asks for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from fa_bench.backends.torch_impls import TorchAttention  # noqa: E402
from fa_bench.cases import AttentionShape, Case  # noqa: E402
from fa_bench.errors import Unsupported  # noqa: E402
from fa_bench.reference import make_inputs, verify  # noqa: E402

SHAPES = [
    AttentionShape(2, 4, 2, 33, 65, 64),
    AttentionShape(1, 3, 1, 70, 70, 64, causal=True),
    AttentionShape(2, 2, 2, 20, 50, 64, causal=True),
    AttentionShape(1, 2, 1, 1, 9, 64, causal=True),
]
BLIND = AttentionShape(1, 2, 2, 50, 20, 64, causal=True)  # queries 0 ... 29 see nothing


def attention(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """O ``[B, S, H, D]`` and LSE ``[B, H, S]`` of tensors in that order, bottom-right, in float32."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2).float() for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q.float(), k) / math.sqrt(q.shape[-1])
    if causal:
        i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
        s = s.masked_fill(j > i + k.shape[1] - q.shape[1], -math.inf)
    lse = s.logsumexp(-1)
    p = torch.exp(s - lse.masked_fill(lse == -math.inf, 0.0)[..., None])
    return torch.einsum("bhij,bjhd->bihd", p, v).to(q.dtype), lse


Install = Callable[..., ModuleType]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(name: str, **content: Any) -> ModuleType:
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return put


def check(case: Case, *, with_lse: bool = True) -> None:
    inputs = make_inputs(case)
    run = TorchAttention(case, inputs)
    o, lse = run.to_numpy(run())
    assert (lse is not None) == with_lse
    verdict = verify(case, o, lse, inputs)
    assert verdict.passed, verdict.detail


# ------------------------------------------------------------------------------------------------------ flash-attn


def flash_attn_2(version: str = "2.8.3") -> dict[str, Any]:
    """After ``flash_attn_func`` of flash-attn 2.8.3; a query that sees nothing gives O = 0 and LSE = +inf."""

    def flash_attn_func(
        q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
        window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
        deterministic: bool = False, return_attn_probs: bool = False,
    ) -> Any:  # fmt: skip
        assert (dropout_p, softmax_scale, window_size, softcap, alibi_slopes) == (0.0, None, (-1, -1), 0.0, None)
        assert all(x.stride(-1) == 1 and x.dtype in (torch.float16, torch.bfloat16) for x in (q, k, v))
        o, lse = attention(q, k, v, causal)
        lse = lse.masked_fill(lse == -math.inf, math.inf)
        return (o, lse, torch.empty(0)) if return_attn_probs else o

    return {"flash_attn_func": flash_attn_func, "__version__": version}


@pytest.mark.parametrize("shape", [*SHAPES, BLIND], ids=str)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_flash_attn_2_is_given_tokens_first_and_returns_lse(
    install: Install, dtype: Any, layout: Any, shape: Any
) -> None:
    install("flash_attn", **flash_attn_2())
    check(Case("flash-attn-2", shape, dtype, layout=layout))


def test_flash_attn_before_2_1_is_refused_where_its_mask_is_aligned_otherwise(install: Install) -> None:
    install("flash_attn", **flash_attn_2("2.0.9"))
    check(Case("flash-attn-2", SHAPES[1]))
    with pytest.raises(Unsupported, match=r"aligns a causal mask top-left: seq_q 20 and seq_kv 50"):
        check(Case("flash-attn-2", SHAPES[2]))


def flash_attn_3(returns: str) -> Any:
    """After ``hopper/flash_attn_interface.py``: of 2024 ("pair"), 3.0.0b1 ("o"), and of 2025 ("asked")."""

    def pair(q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False) -> Any:
        return attention(q, k, v, causal)

    def o_alone(
        q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False, qv: Any = None,
        num_splits: int = 1, pack_gqa: bool | None = None, sm_margin: int = 0,
    ) -> Any:  # fmt: skip
        return attention(q, k, v, causal)[0]

    def asked(
        q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False, qv: Any = None,
        num_splits: int = 1, pack_gqa: bool | None = None, sm_margin: int = 0, return_attn_probs: bool = False,
    ) -> Any:  # fmt: skip
        return attention(q, k, v, causal) if return_attn_probs else attention(q, k, v, causal)[0]

    return {"pair": pair, "o": o_alone, "asked": asked}[returns]


@pytest.mark.parametrize("returns", ["pair", "o", "asked"])
@pytest.mark.parametrize("shape", [*SHAPES, BLIND], ids=str)
def test_flash_attn_3_is_understood_in_each_of_its_forms(install: Install, shape: Any, returns: str) -> None:
    install("flash_attn_interface", flash_attn_func=flash_attn_3(returns))
    check(Case("flash-attn-3", shape), with_lse=returns != "o")


# ------------------------------------------------------------------------------------------------------ FlashInfer


class Ragged:
    """After ``BatchPrefillWithRaggedKVCacheWrapper`` of flashinfer 0.7.4: planned, then run; LSE to base 2."""

    chosen = "fa2"

    def __init__(self, float_workspace_buffer: Any, kv_layout: str = "NHD") -> None:
        assert float_workspace_buffer.dtype == torch.uint8 and float_workspace_buffer.numel() == 128 * 2**20
        assert kv_layout == "NHD"

    def plan(
        self, qo_indptr: Any, kv_indptr: Any, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
        head_dim_vo: int | None = None, *, causal: bool = False, q_data_type: Any = "float16", kv_data_type: Any = None,
    ) -> None:  # fmt: skip
        assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
        self.q_starts, self.kv_starts = qo_indptr.tolist(), kv_indptr.tolist()
        self.heads, self.causal, self.dtypes = (num_qo_heads, num_kv_heads), causal, (q_data_type, kv_data_type)
        self._backend, self.head_dim = self.chosen, head_dim_qk

    def run(self, q: Any, k: Any, v: Any, *, return_lse: bool = False) -> Any:
        assert (q.shape[1], k.shape[1]) == self.heads and self.dtypes == (q.dtype, k.dtype)
        assert q.shape == (self.q_starts[-1], self.heads[0], self.head_dim)
        outputs, sums = [], []
        for number in range(len(self.q_starts) - 1):
            rows = slice(*self.q_starts[number : number + 2])
            keys = slice(*self.kv_starts[number : number + 2])
            o, lse = attention(q[None, rows], k[None, keys], v[None, keys], self.causal)
            outputs.append(o[0])
            sums.append(lse[0].T / math.log(2))
        return (torch.cat(outputs), torch.cat(sums)) if return_lse else torch.cat(outputs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_flashinfer_gets_ragged_sequences_and_its_lse_is_converted(install: Install, dtype: Any, shape: Any) -> None:
    install("flashinfer", BatchPrefillWithRaggedKVCacheWrapper=Ragged)
    check(Case("flashinfer", shape, dtype, layout="bshd"))
    if shape.batch == 1:
        check(Case("flashinfer", shape, dtype))


def test_the_lse_of_a_backend_with_other_conventions_is_left_out(install: Install) -> None:
    class Foreign(Ragged):
        chosen = "cudnn"

    install("flashinfer", BatchPrefillWithRaggedKVCacheWrapper=Foreign)
    check(Case("flashinfer", SHAPES[0], layout="bshd"), with_lse=False)


# -------------------------------------------------------------------------------------------------------- xFormers


class LowerTriangularFromBottomRightMask:
    """Stands for the class of that name in ``xformers.ops.fmha.attn_bias``."""


def requires_grad(query: Any, key: Any, value: Any, attn_bias: Any = None, p: float = 0.0, scale: Any = None) -> Any:
    """After ``memory_efficient_attention_forward_requires_grad`` of xformers 0.0.35; LSE is padded here to 32 rows."""
    assert attn_bias is None or type(attn_bias) is LowerTriangularFromBottomRightMask
    assert (p, scale) == (0.0, None) and query.ndim == key.ndim == value.ndim
    grouped = query.ndim == 5
    if grouped:  # [B, M, G, H, K], K and V expanded along H
        assert key.shape[2:4] == query.shape[2:4] and key.stride(3) == value.stride(3) == 0
        groups = query.shape[2:4]
        query, key, value = query.flatten(2, 3), key[:, :, :, 0], value[:, :, :, 0]
    o, lse = attention(query, key, value, attn_bias is not None)
    lse = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32))
    return (o.unflatten(2, groups), lse.unflatten(1, groups)) if grouped else (o, lse)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_xformers_gets_groups_as_an_axis_and_a_mask_as_a_class(
    install: Install, dtype: Any, layout: Any, shape: Any
) -> None:
    install("xformers")
    install("xformers.ops")
    install(
        "xformers.ops.fmha",
        memory_efficient_attention_forward_requires_grad=requires_grad,
        attn_bias=SimpleNamespace(LowerTriangularFromBottomRightMask=LowerTriangularFromBottomRightMask),
    )
    check(Case("xformers", shape, dtype, layout=layout))


def test_a_name_that_is_no_library_is_refused() -> None:
    with pytest.raises(Unsupported, match="flash2 is no implementation on PyTorch's tensors"):
        check(Case("flash2", SHAPES[0]))
