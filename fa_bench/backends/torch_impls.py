"""Implementations on PyTorch's tensors, on the CPU or a GPU: what they share, and PyTorch's own.

A factory takes a case and its tensors and gives back a `Call`. ``run`` is what is timed: the library's call and nothing
else. ``finish`` brings its result into this project's form afterwards, so that a conversion never counts as time of the
library. Other libraries' factories lie in modules of their own, which are imported by name when a case asks for them.

Imported only by backends that find torch installed.
"""

from __future__ import annotations

import importlib
import math as mathematics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from fa_bench.backends import baselines
from fa_bench.backends.baselines import hides
from fa_bench.backends.torch_flash_blocked import DEFAULT_BLOCK, FlashAttention
from fa_bench.cases import Case
from fa_bench.errors import OutOfMemory, Unsupported

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
}

#: O ``[B, Hq, Sq, D]`` and, where a library gives it, LSE ``[B, Hq, Sq]`` to base e; -inf where a query sees nothing.
Output = tuple[torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Call:
    """One implementation on one case: ``run`` computes, ``finish`` makes an `Output` of what it returned."""

    run: Callable[[], Any]
    finish: Callable[[Any], Output]


class TorchAttention:
    """One case, its inputs on the device in the case's memory layout.

    Parameters
    ----------
    case : Case
        Its ``impl`` is a name of `fa_bench.backends.baselines`.
    inputs : mapping
        ``Q, K, V`` as `fa_bench.reference.make_inputs` returns them.
    device : str
        ``cpu``, ``cuda:0`` ...

    Raises
    ------
    Unsupported
        If the library cannot run this case, or cannot be imported.
    """

    def __init__(self, case: Case, inputs: Mapping[str, NDArray[Any]], device: str = "cpu") -> None:
        baseline = baselines.find(case.impl)
        if baseline is None:
            raise Unsupported(f"{case.impl} is no implementation on PyTorch's tensors.")
        if device.startswith("cuda"):
            major, minor = torch.cuda.get_device_capability(device)
            if reason := baseline.unsupported(case, "cuda", f"sm_{major}{minor}"):
                raise Unsupported(reason)
        self._case = case
        module, _, factory = baseline.factory.partition(":")
        make: Callable[..., Call] = getattr(importlib.import_module(module), factory)
        with translated_errors(case):
            self._qkv = tuple(_upload(inputs[name], case, device) for name in "QKV")
            self._call = make(case, *self._qkv)

    def __call__(self) -> Any:
        """Run once; what the library returns, for `to_numpy` and `poison`."""
        with torch.no_grad(), translated_errors(self._case):
            return self._call.run()

    def to_numpy(self, result: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """O and LSE of a call's result."""
        with translated_errors(self._case):
            o, lse = self._call.finish(result)
            # FlashAttention marks a query that sees nothing by +inf, which no logarithm of a sum of its scores can be.
            seen = None if lse is None else to_numpy(lse.masked_fill(lse == mathematics.inf, -mathematics.inf))
            return to_numpy(o), seen

    def poison(self, result: Any) -> None:
        """Fill a result with NaN before it is dropped: the next call may be given the same memory for its own."""
        for part in _floating(result):
            part.fill_(mathematics.nan)

    def poisoned_like(self, result: Any) -> list[torch.Tensor]:
        """New tensors as large as a result's, filled with NaN: their memory is what a call may be given next."""
        with translated_errors(self._case):
            return [torch.full_like(part, mathematics.nan) for part in _floating(result)]


def _floating(result: Any) -> list[torch.Tensor]:
    parts = result if isinstance(result, tuple) else (result,)
    return [part for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point()]


def math(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """SDPA's math backend. PyTorch's own causal flag is aligned top-left; a mask says bottom-right."""
    return _sdpa(SDPBackend.MATH, q, k, v, **_causal_by_mask(case, q))


def flash(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """SDPA's flash attention: on a GPU the operator behind it, whose kernels are FlashAttention-2's.

    ``aten::_scaled_dot_product_flash_attention`` (the same signature up to LSE since PyTorch 2.1) is what SDPA calls
    with this backend, and what ``torch.nn.attention.bias`` calls for a bottom-right mask: its causal flag is aligned
    bottom-right, and it returns LSE.
    """
    if q.device.type != "cuda":
        return _sdpa(SDPBackend.FLASH_ATTENTION, q, k, v, **_causal_by_mask(case, q))
    operator, causal = torch.ops.aten._scaled_dot_product_flash_attention, hides(case)
    return Call(
        lambda: operator(q, k, v, 0.0, causal, False), lambda result: (result[0], result[1][..., : case.shape.seq_q])
    )


def efficient(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """SDPA's memory-efficient attention; it takes a bottom-right mask as such, without a tensor."""
    options: dict[str, Any] = {}
    if hides(case):
        shape = case.shape
        options = (
            {"attn_mask": causal_lower_right(shape.seq_q, shape.seq_kv)} if shape.diagonal else {"is_causal": True}
        )
    return _sdpa(SDPBackend.EFFICIENT_ATTENTION, q, k, v, **options)


def cudnn(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """SDPA through cuDNN, whose causal flag PyTorch aligns top-left: for square masks only."""
    return _sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, is_causal=hides(case))


def blocked(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """The module of `fa_bench.backends.torch_flash_blocked`."""
    block = DEFAULT_BLOCK if case.tile is None else (case.tile.block_m, case.tile.block_n)
    module = FlashAttention(causal=case.shape.causal, block=block)
    tokens_first = tuple(x.transpose(1, 2) for x in (q, k, v))
    return Call(lambda: module.with_lse(*tokens_first), lambda result: (result[0].transpose(1, 2), result[1]))


def _sdpa(backend: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> Call:
    options["enable_gqa"] = q.shape[1] != k.shape[1]

    def run() -> torch.Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, **options)

    return Call(run, lambda o: (o, None))


def _causal_by_mask(case: Case, q: torch.Tensor) -> dict[str, Any]:
    shape = case.shape
    if not hides(case):
        return {}
    if shape.diagonal == 0:
        return {"is_causal": True}
    visible = torch.ones(shape.seq_q, shape.seq_kv, dtype=torch.bool, device=q.device)
    return {"attn_mask": visible.tril(shape.diagonal)}


@contextmanager
def translated_errors(case: Case) -> Iterator[None]:
    """Out of memory and no such kernel, in the words of PyTorch and of xFormers, as ours."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"{case.impl} ran out of GPU memory.") from error
    except NotImplementedError as error:
        because = str(error).partition("because:")[2].strip().splitlines()
        reason = f": {because[0].strip()}" if because else ""
        raise Unsupported(f"{case.impl} has no kernel for this case here{reason}.") from error
    except RuntimeError as error:
        if "No available kernel" in str(error):
            raise Unsupported(f"PyTorch has no {case.impl} kernel for this case here.") from error
        if "not enough memory" in str(error):  # the CPU allocator has no class of its own
            raise OutOfMemory(f"{case.impl} ran out of memory.") from error
        raise


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor's values in the storage type: bfloat16 as uint16 bit patterns."""
    host = tensor.detach().cpu().contiguous()
    return np.asarray((host.view(torch.uint16) if host.dtype == torch.bfloat16 else host).numpy())


def _upload(values: NDArray[Any], case: Case, device: str) -> torch.Tensor:
    tensor = torch.from_numpy(values)
    if case.dtype == "bf16":
        tensor = tensor.view(_DTYPES["bf16"])
    if case.layout == "bshd":
        return tensor.transpose(1, 2).contiguous().to(device).transpose(1, 2)
    return tensor.to(device)
