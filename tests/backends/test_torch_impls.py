"""PyTorch implementations on the CPU, and the blocked module's equivalence and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from fa_bench.backends import baselines, torch_impls  # noqa: E402
from fa_bench.backends.torch_flash_blocked import FlashAttention, _Blocks  # noqa: E402
from fa_bench.backends.torch_impls import TorchAttention, to_numpy  # noqa: E402
from fa_bench.cases import AttentionShape, Case, Tile  # noqa: E402
from fa_bench.errors import OutOfMemory, Unsupported  # noqa: E402
from fa_bench.reference import make_inputs, verify  # noqa: E402

HOST = tuple(baseline.name for baseline in baselines.BASELINES if "host" in baseline.places)

SHAPES = [
    AttentionShape(1, 1, 1, 1, 1, 8),
    AttentionShape(2, 4, 2, 33, 65, 40),
    AttentionShape(1, 3, 1, 130, 130, 64, causal=True),
    AttentionShape(1, 2, 2, 20, 50, 16, causal=True),
    AttentionShape(2, 2, 1, 50, 20, 16, causal=True),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("impl", HOST)
def test_matches_fp64(impl: str, layout: str, dtype: str, shape: AttentionShape) -> None:
    case = Case(impl, shape, dtype, Tile(16, 32) if impl == "torch-flash-blocked" else None, layout)
    inputs = make_inputs(case)
    attention = TorchAttention(case, inputs)
    o, lse = attention.to_numpy(attention())
    assert (lse is not None) == (impl == "torch-flash-blocked")
    verdict = verify(case, o, lse, inputs)
    assert verdict.passed, verdict.detail


def test_layout_is_in_the_strides() -> None:
    case = Case("torch-math", AttentionShape(1, 2, 2, 3, 5, 8), "fp32", layout="bshd")
    q = TorchAttention(case, make_inputs(case))._qkv[0]
    # [B, H, S, D] with heads next to dims in memory: seq steps over 2 · 8 elements, head over 8.
    assert q.shape == (1, 2, 3, 8) and q.stride()[1:] == (8, 16, 1)


def test_errors_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("torch-math", AttentionShape(1, 1, 1, 4, 4, 8), "fp32")
    attention = TorchAttention(case, make_inputs(case))
    for raised, expected, said in (
        (torch.OutOfMemoryError("CUDA out of memory"), OutOfMemory, "ran out of GPU memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"), OutOfMemory, "memory"),
        (RuntimeError("No available kernel. Aborting execution."), Unsupported, "no torch-math kernel"),
        (NotImplementedError("No operator:\n`x` is not supported because:\n    too new\n"), Unsupported, ": too new."),
        (NotImplementedError("nothing"), Unsupported, "here."),
        (RuntimeError("something else"), RuntimeError, "something else"),
    ):

        def fail(error: Exception = raised) -> None:
            raise error

        monkeypatch.setattr(attention, "_call", torch_impls.Call(fail, lambda result: result))
        with pytest.raises(expected, match=said):
            attention()


def test_running_out_of_memory_is_said_so_wherever_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's error is a RuntimeError and no MemoryError, and a copy to the device raises it as well as a call."""
    assert not issubclass(torch.OutOfMemoryError, MemoryError)

    def fail(*args: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    case = Case("torch-math", AttentionShape(1, 1, 1, 4, 4, 8), "fp32")
    inputs = make_inputs(case)
    attention = TorchAttention(case, inputs)
    result = attention()
    for function, step in (
        ("_upload", lambda: TorchAttention(case, inputs)),  # Q, K and V
        ("math", lambda: TorchAttention(case, inputs)),  # a library's workspace
        ("to_numpy", lambda: attention.to_numpy(result)),
    ):
        with monkeypatch.context() as patch, pytest.raises(OutOfMemory, match="torch-math ran out of GPU memory"):
            patch.setattr(torch_impls, function, fail)
            step()
    monkeypatch.setattr(torch, "full_like", fail)
    with pytest.raises(OutOfMemory):
        attention.poisoned_like(result)


def test_poison_like_a_result_is_as_large_and_all_nan() -> None:
    case = Case("torch-flash-blocked", AttentionShape(1, 2, 2, 5, 5, 8), "fp32")
    attention = TorchAttention(case, make_inputs(case))
    result = attention()
    spares = attention.poisoned_like(result)
    assert [spare.shape for spare in spares] == [part.shape for part in result]
    assert all(spare.isnan().all() for spare in spares) and not any(part.isnan().any() for part in result)


def test_a_result_is_poisoned_before_its_memory_is_given_away() -> None:
    case = Case("torch-flash-blocked", AttentionShape(1, 2, 2, 5, 5, 8), "fp32")
    attention = TorchAttention(case, make_inputs(case))
    result = attention()
    attention.poison(result)
    assert all(part.isnan().all() for part in result)
    again = attention()
    assert not any(part.isnan().any() for part in again)


def test_an_infinite_lse_is_that_of_a_query_that_sees_nothing() -> None:
    case = Case("torch-math", AttentionShape(1, 1, 1, 2, 2, 8), "fp32")
    attention = TorchAttention(case, make_inputs(case))
    o, lse = torch.zeros(1, 1, 2, 8), torch.tensor([[[torch.inf, 1.0]]])
    attention._call = torch_impls.Call(lambda: None, lambda result: (o, lse))
    assert attention.to_numpy(None)[1].tolist() == [[[-np.inf, 1.0]]]  # type: ignore[union-attr]


def test_a_run_asks_the_same_table_as_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that was planned for another GPU than the one that it meets is refused before anything is copied there."""
    monkeypatch.setattr(torch_impls.torch.cuda, "get_device_capability", lambda device: (7, 5))
    case = Case("torch-flash", AttentionShape(1, 1, 1, 4, 4, 64))
    with pytest.raises(Unsupported, match=r"torch-flash needs compute capability 8.0 or higher; this GPU has 7.5"):
        TorchAttention(case, make_inputs(case), "cuda:0")


class OnAGpu(torch.Tensor):
    """A CPU tensor that says it lies on a GPU, to see which operator is called."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda:0")


@pytest.mark.parametrize(("seq_q", "seq_kv", "hidden"), [(5, 5, True), (5, 9, True), (9, 5, True), (1, 5, False)])
def test_flash_on_a_gpu_calls_the_operator_that_aligns_bottom_right(
    seq_q: int, seq_kv: int, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDPA refuses its causal flag for other than square masks; the operator behind it aligns it bottom-right."""
    calls = []

    def operator(q: Any, k: Any, v: Any, dropout_p: float, is_causal: bool, return_debug_mask: bool) -> Any:
        calls.append((dropout_p, is_causal, return_debug_mask))
        return "o", torch.zeros(1, 2, 16), None

    monkeypatch.setattr(torch_impls.torch.ops, "aten", SimpleNamespace(_scaled_dot_product_flash_attention=operator))
    case = Case("torch-flash", AttentionShape(1, 2, 1, seq_q, seq_kv, 16, True))
    q, k, v = (torch.zeros(1, h, n, 16).as_subclass(OnAGpu) for h, n in ((2, seq_q), (1, seq_kv), (1, seq_kv)))
    call = torch_impls.flash(case, q, k, v)
    o, lse = call.finish(call.run())
    assert calls == [(0.0, hidden, False)]
    assert o == "o" and lse is not None and lse.shape == (1, 2, seq_q)


def test_the_flash_operator_has_the_signature_that_is_called() -> None:
    """The installed PyTorch's own schema: O and LSE first, and no argument without a default beyond those given."""
    schema = torch.ops.aten._scaled_dot_product_flash_attention.default._schema
    assert [a.name for a in schema.arguments[:6]] == [
        "query", "key", "value", "dropout_p", "is_causal", "return_debug_mask",
    ]  # fmt: skip
    assert all(argument.has_default_value() for argument in schema.arguments[6:])
    assert [returned.name for returned in schema.returns[:2]] == ["output", "logsumexp"]


@pytest.mark.parametrize("impl", ["torch-efficient", "torch-cudnn"])
@pytest.mark.parametrize("causal", [False, True])
def test_gpu_backends_of_sdpa_are_forced_and_square_masks_are_a_flag(
    impl: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run by the math backend in place of one that needs a GPU: the arguments must mean the same."""
    forced: list[Any] = []

    @contextmanager
    def kernel(backend: Any) -> Iterator[None]:
        forced.append(backend)
        yield

    monkeypatch.setattr(torch_impls, "sdpa_kernel", kernel)
    case = Case(impl, AttentionShape(1, 4, 2, 20, 20, 16, causal), "fp32")
    inputs = make_inputs(case)
    attention = TorchAttention(case, inputs)
    o, lse = attention.to_numpy(attention())
    names = {"torch-efficient": "EFFICIENT_ATTENTION", "torch-cudnn": "CUDNN_ATTENTION"}
    assert forced == [getattr(torch_impls.SDPBackend, names[impl])] and lse is None
    assert verify(case, o, lse, inputs).passed


def test_efficient_takes_a_bottom_right_mask_without_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(torch_impls, "scaled_dot_product_attention", lambda q, k, v, **options: given.update(options))
    case = Case("torch-efficient", AttentionShape(1, 1, 1, 4, 9, 16, True), "fp32")
    TorchAttention(case, make_inputs(case))()
    mask = given.pop("attn_mask")
    assert (mask.variant.name, mask.seq_len_q, mask.seq_len_kv) == ("LOWER_RIGHT", 4, 9)
    assert given == {"enable_gqa": False}


# ---------------------------------------------------------------------------------------- the blocked module


def explicit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention as one formula, ``[batch, seq, heads, dim]``, zero for rows that see nothing."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
    if causal:
        i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
        hidden = j > i + k.shape[1] - q.shape[1]
        s = s.masked_fill(hidden, -torch.inf).softmax(dim=-1).masked_fill(hidden, 0.0)
    else:
        s = s.softmax(dim=-1)
    return torch.einsum("bhij,bjhd->bihd", s, v)


def random_qkv(seq_q: int, seq_kv: int, heads: int, kv_heads: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = ((2, seq_q, heads, 24), (2, seq_kv, kv_heads, 24), (2, seq_kv, kv_heads, 24))
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes]


BLOCKED = [
    (64, 64, (32, 16)),  # whole blocks
    (70, 45, (32, 16)),  # ragged, and more queries than keys: causal rows 0 ... 24 see nothing
    (45, 70, (7, 9)),  # ragged, more keys than queries, odd blocks
    (5, 5, (128, 256)),  # blocks beyond the sequence
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seq_q", "seq_kv", "block"), BLOCKED)
def test_blocked_equals_the_formula_below_1e_5(seq_q: int, seq_kv: int, block: tuple[int, int], causal: bool) -> None:
    q, k, v = random_qkv(seq_q, seq_kv, 4, 2, torch.float32)
    o = FlashAttention(causal=causal, block=block)(q, k, v)
    assert o.dtype == torch.float32 and o.shape == q.shape
    exact = explicit(q.double(), k.double(), v.double(), causal)
    assert (o.double() - exact).abs().max().item() < 1e-5


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seq_q", "seq_kv", "block"), BLOCKED)
def test_gradients_match_fp64_autograd(seq_q: int, seq_kv: int, block: tuple[int, int], causal: bool) -> None:
    ours = [x.requires_grad_() for x in random_qkv(seq_q, seq_kv, 4, 2, torch.float32)]
    exact = [x.detach().double().requires_grad_() for x in ours]
    weights = torch.randn(ours[0].shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    (FlashAttention(causal=causal, block=block)(*ours) * weights.float()).sum().backward()
    # The formula's own gradient of a row that sees nothing is NaN: the softmax of -inf everywhere. Leave them out
    # of the exact sum; their true gradient is 0, which is what a row left out has.
    blind = max(0, seq_q - seq_kv) if causal else 0
    o = explicit(exact[0][:, blind:], exact[1], exact[2], causal)
    (o * weights[:, blind:]).sum().backward()
    for mine, theirs in zip(ours, exact, strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert (mine.grad.double() - theirs.grad).abs().max().item() < 2e-5
    assert not ours[0].grad[:, :blind].any()  # type: ignore[index]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_keeps_its_dtype_and_gets_gradients(dtype: torch.dtype) -> None:
    q, k, v = (x.requires_grad_() for x in random_qkv(40, 40, 2, 2, dtype))
    o = FlashAttention(causal=True, block=(16, 16))(q, k, v)
    o.sum().backward()
    assert o.dtype == q.grad.dtype == k.grad.dtype == v.grad.dtype == dtype
    exact = explicit(q.detach().double(), k.detach().double(), v.detach().double(), True)
    # fp32 accumulators: the only rounding to the dtype is that of O itself, half a unit of at most 4.
    unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[dtype]
    assert (o.detach().double() - exact).abs().max().item() < 4 * unit


def test_backward_saves_no_score_matrix() -> None:
    saved: list[torch.Size] = []
    q, k, v = (x.requires_grad_() for x in random_qkv(96, 96, 2, 2, torch.float32))

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.append(x.shape)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        FlashAttention(block=(32, 32))(q, k, v)
    # q, k, v, o as [B, H, S, D] and the log-sum-exp; nothing that holds 96 x 96.
    assert sorted(saved, key=len) == [(2, 2, 96), *[(2, 2, 96, 24)] * 4]


def test_causal_blocks_skip_what_nobody_sees() -> None:
    blocks = _Blocks(seq_q=64, seq_kv=32, block=(16, 16), causal=True)
    # diagonal = -32: rows 0 ... 31 see nothing, rows 32 ... 47 keys 0 ... 15, rows 48 ... 63 all.
    assert [len(blocks.keys(rows)) for rows in blocks.queries()] == [0, 0, 1, 2]


def test_heads_that_do_not_divide_are_refused() -> None:
    q, k, v = random_qkv(4, 4, 3, 2, torch.float32)
    with pytest.raises(ValueError, match="3 query heads are not a multiple of 2"):
        FlashAttention()(q, k, v)


def test_numpy_round_trip_keeps_bfloat16_bits() -> None:
    bits = to_numpy(torch.tensor([1.0, -2.0], dtype=torch.bfloat16))
    assert bits.dtype == np.uint16 and bits.tolist() == [0x3F80, 0xC000]
