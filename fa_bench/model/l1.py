"""How much L1 is left beside shared memory: the two divide one memory per SM.

Its part for shared memory, the *carve-out*, has a few sizes. Which one a launch gets is the driver's choice; a kernel
may state a preference. Here it is the smallest that holds all CTAs which run on an SM at a time, so that shared memory
doesn't cost residency and L1 has the rest.

Sources: NVIDIA CUDA C++ Programming Guide 13, shared memory capacity per compute capability; the tuning guides from
Volta to Blackwell, unified shared memory, L1 and texture cache; ``cuda_occupancy.h`` of CUDA 13, which rounds a
carve-out up to the same sizes.
"""

from __future__ import annotations

from typing import Final

from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import allocated_smem_bytes

_KIB: Final = 1024
#: Sizes of the carve-out in KiB where they are not those from compute capability 8.0 on.
_BEFORE_AMPERE: Final[dict[tuple[int, int], tuple[int, ...]]] = {
    (7, 0): (0, 8, 16, 32, 64, 96),
    (7, 5): (32, 64),
}
#: Sizes from 8.0 on; an SM has those up to its most shared memory (100, 164 or 228 KiB).
_FROM_AMPERE: Final = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)


def carve_outs_bytes(gpu: Gpu) -> tuple[int, ...]:
    """The sizes that shared memory can have on an SM of ``gpu``, in bytes, ascending.

    Examples
    --------
    >>> from fa_bench.model import gpus
    >>> [size // 1024 for size in carve_outs_bytes(gpus.get("a30"))]
    [0, 8, 16, 32, 64, 100, 132, 164]
    """
    sizes_kib = _BEFORE_AMPERE.get(gpu.compute_capability, _FROM_AMPERE)
    return tuple(kib * _KIB for kib in sizes_kib if kib * _KIB <= gpu.smem_per_sm_bytes)


def l1_data_bytes(gpu: Gpu, blocks_per_sm: int, smem_bytes: int) -> int:
    """L1 of an SM that runs ``blocks_per_sm`` CTAs with ``smem_bytes`` of shared memory each.

    Parameters
    ----------
    gpu : Gpu
    blocks_per_sm : int
        CTAs on an SM at a time, at least 1: ``occupancy(...).blocks_per_sm``.
    smem_bytes : int
        Static and dynamic shared memory of a CTA. What the driver keeps per CTA since compute capability 8.0, 1 KiB,
        is added here.

    Returns
    -------
    int
        The memory of the SM less the smallest carve-out that holds these CTAs, in bytes.

    Raises
    ------
    ValueError
        If no carve-out holds them.

    Examples
    --------
    Two CTAs with 48 KiB need 98 KiB, so 100 of an A30's 192 KiB go to shared memory.

    >>> from fa_bench.model import gpus
    >>> l1_data_bytes(gpus.get("a30"), 2, 48 * 1024) // 1024
    92
    """
    if blocks_per_sm < 1:
        raise ValueError(f"blocks_per_sm must be at least 1, not {blocks_per_sm}")
    if smem_bytes < 0:
        raise ValueError(f"smem_bytes must not be negative, but is {smem_bytes}")
    needed_bytes = blocks_per_sm * allocated_smem_bytes(gpu, smem_bytes)
    fitting = [size for size in carve_outs_bytes(gpu) if size >= needed_bytes]
    if not fitting:
        raise ValueError(
            f"{blocks_per_sm} CTAs with {smem_bytes} bytes of shared memory need {needed_bytes} bytes of an SM; "
            f"{gpu.slug} has {gpu.smem_per_sm_bytes}"
        )
    return gpu.l1_bytes - fitting[0]
