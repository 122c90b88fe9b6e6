"""Whether a case's tensors fit in a GPU's memory: a time where they don't would be of nothing."""

from __future__ import annotations

from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu
from fa_bench.units import format_bytes


def demand_memory(nbytes: float, gpu: Gpu) -> None:
    """Refuse what needs more memory than a GPU has.

    Parameters
    ----------
    nbytes : float
        Of all tensors that are there at one time.
    gpu : Gpu

    Raises
    ------
    Unsupported
        If they don't fit.
    """
    if nbytes > gpu.mem_bytes:
        need, have = format_bytes(int(nbytes)), format_bytes(gpu.mem_bytes)
        raise Unsupported(f"Its tensors would need {need}, and {gpu.slug} has {have}.")
