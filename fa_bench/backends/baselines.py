"""The implementations that are not ours: their names, whether they are here, the memory they need. Imports neither."""

from __future__ import annotations

import importlib.util
from typing import Final

from fa_bench.cases import Case

NUMPY_IMPLEMENTATIONS: Final = ("numpy-standard", "numpy-flash")
TORCH_IMPLEMENTATIONS: Final = ("torch-math", "torch-flash", "torch-flash-blocked")


def torch_implementations() -> tuple[str, ...]:
    """PyTorch's where it is installed, else none."""
    return TORCH_IMPLEMENTATIONS if importlib.util.find_spec("torch") is not None else ()


def torch_bytes(case: Case) -> int:
    """Memory that a PyTorch implementation needs, in bytes: its tensors, and S and P where it makes them.

    ``torch-math`` holds S and P in float32 on the CPU, also for 16-bit inputs, which it converts, and repeats K and V
    for every query head. The others hold float32 accumulators and blocks at most.
    """
    s = case.shape
    pairs = s.seq_q * s.seq_kv
    q_elements, kv_elements = s.slices * s.seq_q * s.head_dim, s.batch * s.heads_kv * s.seq_kv * s.head_dim
    tensors = 2 * (q_elements + kv_elements) * case.itemsize
    mask = pairs if s.causal and s.diagonal else 0
    if case.impl == "torch-math":
        return tensors + mask + 2 * 4 * s.slices * pairs + 3 * 4 * (q_elements + s.group * kv_elements)
    return tensors + mask + 4 * s.slices * (s.seq_q + s.seq_kv) * (s.head_dim + 2)
