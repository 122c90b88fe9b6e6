"""PyTorch's attention as a baseline, on the CPU or a GPU: SDPA with its backend forced, and our blocked module.

Imported only by backends that find torch installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from fa_bench.backends.torch_flash_blocked import DEFAULT_BLOCK, FlashAttention
from fa_bench.cases import Case
from fa_bench.errors import OutOfMemory, Unsupported

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
}
_SDPA: Final = {"torch-math": SDPBackend.MATH, "torch-flash": SDPBackend.FLASH_ATTENTION}

Output = tuple[torch.Tensor, torch.Tensor | None]


class TorchAttention:
    """One case, its inputs on the device in the case's memory layout.

    Parameters
    ----------
    case : Case
    inputs : mapping
        ``Q, K, V`` as `fa_bench.reference.make_inputs` returns them.
    device : str
        ``cpu``, ``cuda:0`` ...

    Raises
    ------
    Unsupported
        If PyTorch has no such kernel for this case.
    """

    def __init__(self, case: Case, inputs: Mapping[str, NDArray[Any]], device: str = "cpu") -> None:
        self._case = case
        self._qkv = tuple(_upload(inputs[name], case, device) for name in "QKV")
        self._attend = self._blocked() if case.impl == "torch-flash-blocked" else self._sdpa(device)

    def __call__(self) -> Output:
        """Run once: O ``[B, Hq, Sq, D]`` (logical order) and, where it is given, LSE ``[B, Hq, Sq]``."""
        with torch.no_grad(), translated_errors(self._case):
            return self._attend()

    def _blocked(self) -> Callable[[], Output]:
        case = self._case
        block = DEFAULT_BLOCK if case.tile is None else (case.tile.block_m, case.tile.block_n)
        module = FlashAttention(causal=case.shape.causal, block=block)
        q, k, v = (x.transpose(1, 2) for x in self._qkv)

        def attend() -> Output:
            o, lse = module.with_lse(q, k, v)
            return o.transpose(1, 2), lse

        return attend

    def _sdpa(self, device: str) -> Callable[[], Output]:
        case, shape = self._case, self._case.shape
        q, k, v = self._qkv
        options: dict[str, Any] = {"enable_gqa": shape.group > 1}
        on_gpu = device.startswith("cuda")
        if shape.causal and shape.diagonal == 0:
            options["is_causal"] = True
        elif shape.causal and on_gpu and case.impl == "torch-flash":
            if shape.diagonal < 0:
                raise Unsupported("PyTorch's flash attention takes no causal case with seq_q > seq_kv on a GPU.")
            options["attn_mask"] = causal_lower_right(shape.seq_q, shape.seq_kv)
        elif shape.causal:
            # PyTorch's own causal flag is aligned top-left; a mask says bottom-right.
            visible = torch.ones(shape.seq_q, shape.seq_kv, dtype=torch.bool, device=device)
            options["attn_mask"] = visible.tril(shape.diagonal)
        backend = _SDPA[case.impl]

        def attend() -> Output:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, **options), None

        return attend


@contextmanager
def translated_errors(case: Case) -> Iterator[None]:
    """PyTorch's out-of-memory and no-such-kernel errors as ours."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"{case.impl} ran out of GPU memory.") from error
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
