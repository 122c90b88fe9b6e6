"""What of claim (j) needs PyTorch: autograd through a loop of blocks, and the module of ours that recomputes."""

from __future__ import annotations

import math
from typing import Any, Final

from fa_bench.claims.cases import exponent
from fa_bench.claims.result import Figure

BLOCK: Final = 64
LENGTHS: Final = (256, 512, 1024)
HEAD_DIM: Final = 32


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def loop(torch: Any, q: Any, k: Any, v: Any, *, in_place: bool) -> Any:
    """Attention of ``[1, N, d]`` in blocks, O, m and l updated in place, or each made anew."""
    o = torch.zeros_like(q)
    m = torch.full(q.shape[:2], -math.inf)
    l = torch.zeros(q.shape[:2])  # noqa: E741 - the papers' name
    parts = []
    for start in range(0, q.shape[1], BLOCK):
        rows = slice(start, start + BLOCK)
        o_i, m_i, l_i = (x[:, rows] for x in (o, m, l))
        for first in range(0, k.shape[1], BLOCK):
            keys = slice(first, first + BLOCK)
            s = q[:, rows] @ k[:, keys].transpose(-2, -1) * q.shape[2] ** -0.5
            m_new = torch.maximum(m_i, s.max(dim=-1).values)
            p, shrink = torch.exp(s - m_new[..., None]), torch.exp(m_i - m_new)
            l_new, o_new = l_i * shrink + p.sum(dim=-1), o_i * shrink[..., None] + p @ v[:, keys]
            if in_place:
                m[:, rows], l[:, rows], o[:, rows] = m_new, l_new, o_new
                o_i, m_i, l_i = (x[:, rows] for x in (o, m, l))
            else:
                o_i, m_i, l_i = o_new, m_new, l_new
        parts.append(o_i / l_i[..., None])
    return o / l[..., None] if in_place else torch.cat(parts, dim=1)


def _inputs(torch: Any, seq: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(1, seq, HEAD_DIM, generator=generator).requires_grad_() for _ in range(3))


def differentiates(in_place: bool) -> bool:
    """Whether backward() goes through the loop."""
    torch = _torch()
    try:
        loop(torch, *_inputs(torch, 2 * BLOCK), in_place=in_place).sum().backward()
    except RuntimeError:
        return False
    return True


def saved_bytes(seq: int, *, blocked: bool) -> int:
    """Bytes that autograd keeps for the backward pass, tensors that share memory once."""
    torch = _torch()
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    q, k, v = _inputs(torch, seq)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        if blocked:
            from fa_bench.backends.torch_flash_blocked import FlashAttention

            FlashAttention(block=(BLOCK, BLOCK))(*(x[:, :, None] for x in (q, k, v)))
        else:
            loop(torch, q, k, v, in_place=False)
    return sum(storage.nbytes() for storage in kept.values())


def autograd_figures(in_place: bool) -> dict[str, Figure] | None:
    """Whether the loop can be differentiated, and how what autograd keeps grows; None without PyTorch."""
    if _torch() is None:
        return None
    span = f"fit over N = {', '.join(map(str, LENGTHS))}, blocks of {BLOCK}"
    return {
        "backward": Figure(
            "backward",
            float(differentiates(in_place)),
            "percent",
            "backward() through O, m and l " + ("updated in place" if in_place else "made anew"),
        ),
        "saved": Figure(
            "saved",
            exponent(LENGTHS, lambda seq: saved_bytes(seq, blocked=False)),
            "power",
            f"bytes that autograd keeps of the loop out of place, {span}",
        ),
        "saved_blocked": Figure(
            "saved_blocked",
            exponent(LENGTHS, lambda seq: saved_bytes(seq, blocked=True)),
            "power",
            f"the same of torch-flash-blocked, {span}",
        ),
    }


def blocked_error() -> tuple[Figure, ...]:
    """How far torch-flash-blocked and its gradients are from float64, unequal blocks, causal."""
    torch = _torch()
    from fa_bench.backends.torch_flash_blocked import FlashAttention

    generator = torch.Generator().manual_seed(6)
    q, k, v, d_o = (torch.randn(1, 192, 2, HEAD_DIM, generator=generator) for _ in range(4))
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    o = FlashAttention(causal=True, block=(64, 32))(*ours)
    o.backward(d_o)
    s = torch.einsum("bihd,bjhd->bhij", exact[0], exact[1]) / math.sqrt(HEAD_DIM)
    s = s.masked_fill(torch.ones(192, 192, dtype=torch.bool).triu(1), -math.inf)
    right = torch.einsum("bhij,bjhd->bihd", torch.softmax(s, dim=-1), exact[2])
    right.backward(d_o.double())
    pairs = [(o, right), *((a.grad, b.grad) for a, b in zip(ours, exact, strict=True))]
    errors = [float((a.detach().double() - b.detach()).abs().max() / b.detach().abs().max()) for a, b in pairs]
    how = "relative to float64, fp32, causal, N = 192, blocks of 64x32"
    return (
        Figure("blocked_o", errors[0], "error", f"O of torch-flash-blocked, {how}"),
        Figure("blocked_gradients", max(errors[1:]), "error", f"the worst of its dQ, dK and dV, {how}"),
    )
