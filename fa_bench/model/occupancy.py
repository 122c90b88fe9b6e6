"""How many CTAs of a kernel run on one SM at a time, and what limits them.

Facts about allocation are NVIDIA's: the CUDA C++ Programming Guide (technical specifications per compute
capability) and ``cuda_occupancy.h`` of the CUDA toolkit, the code behind the occupancy calculator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.model.gpu import WARP_SIZE, Gpu

Limit = Literal["registers", "shared memory", "threads", "blocks"]

#: Registers are given to whole warps, in units of this many.
_REGISTER_UNIT: Final = 256
#: An SM has four partitions with a quarter of its registers each; a warp lives in one of them.
_PARTITIONS: Final = 4
_MAX_THREADS_PER_BLOCK: Final = 1024
_MAX_REGISTERS_PER_THREAD: Final = 255
#: Since compute capability 8.0 the driver keeps this much shared memory of every block.
_RESERVED_SMEM_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Occupancy:
    """CTAs of one kernel on one SM.

    Attributes
    ----------
    blocks_per_sm : int
        0 where a single CTA does not fit.
    warps_per_sm : int
        Resident warps.
    fraction : float
        Resident warps over the most that the SM holds, 0 to 1.
    limits : tuple of str
        What binds: ``registers``, ``shared memory``, ``threads`` (warp slots) or ``blocks`` (CTA slots). Several
        when more than one is at its end.
    """

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limits: tuple[Limit, ...]


def occupancy(gpu: Gpu, *, threads: int, smem_bytes: int, registers: int) -> Occupancy:
    """Occupancy of a kernel.

    The least of four quotients: warp slots over warps of a CTA; CTA slots; shared memory over what a CTA is given;
    warps that the registers of a partition hold, times four, over warps of a CTA. Shared memory is the SM's
    largest carve-out, so the L1 cache is at its smallest.

    Parameters
    ----------
    gpu : Gpu
    threads : int
        Threads of a CTA, 1 to 1024.
    smem_bytes : int
        Static and dynamic shared memory of a CTA in bytes.
    registers : int
        Registers per thread as the compiler reports them, at most 255; 0 where they are not known, and then
        registers limit nothing.

    Returns
    -------
    Occupancy

    Raises
    ------
    ValueError
        If a launch with these figures is impossible on any GPU.

    Examples
    --------
    >>> from fa_bench.model import gpus
    >>> occupancy(gpus.get("a100-sxm-80"), threads=128, smem_bytes=48 * 1024, registers=168)
    Occupancy(blocks_per_sm=3, warps_per_sm=12, fraction=0.1875, limits=('registers', 'shared memory'))
    """
    if not 1 <= threads <= _MAX_THREADS_PER_BLOCK:
        raise ValueError(f"threads must be 1 to {_MAX_THREADS_PER_BLOCK}, not {threads}")
    if not 0 <= registers <= _MAX_REGISTERS_PER_THREAD:
        raise ValueError(f"registers must be 0 to {_MAX_REGISTERS_PER_THREAD}, not {registers}")
    if smem_bytes < 0:
        raise ValueError(f"smem_bytes must not be negative, but is {smem_bytes}")

    warps = math.ceil(threads / WARP_SIZE)
    max_warps = gpu.max_threads_per_sm // WARP_SIZE
    blocks: dict[Limit, int] = {"threads": max_warps // warps, "blocks": gpu.max_blocks_per_sm}
    if registers:
        blocks["registers"] = _by_registers(gpu, warps, registers)
    given_bytes = allocated_smem_bytes(gpu, smem_bytes)
    if smem_bytes > gpu.smem_per_block_bytes:
        blocks["shared memory"] = 0
    elif given_bytes:
        blocks["shared memory"] = gpu.smem_per_sm_bytes // given_bytes

    least = min(blocks.values())
    order: tuple[Limit, ...] = ("registers", "shared memory", "threads", "blocks")
    return Occupancy(
        blocks_per_sm=least,
        warps_per_sm=least * warps,
        fraction=least * warps / max_warps,
        limits=tuple(name for name in order if blocks.get(name) == least),
    )


def allocated_smem_bytes(gpu: Gpu, smem_bytes: int) -> int:
    """Shared memory that the SM sets aside for a CTA which asks for ``smem_bytes``.

    From compute capability 8.0 on 1 KiB is added for the driver and the sum rounded up to 128 bytes; before, it is
    rounded up to 256 bytes.

    Examples
    --------
    >>> from fa_bench.model import gpus
    >>> allocated_smem_bytes(gpus.get("a100-sxm-80"), 1), allocated_smem_bytes(gpus.get("t4"), 1)
    (1152, 256)
    """
    if gpu.compute_capability >= (8, 0):
        return math.ceil((smem_bytes + _RESERVED_SMEM_BYTES) / 128) * 128
    return math.ceil(smem_bytes / 256) * 256


def _by_registers(gpu: Gpu, warps: int, registers: int) -> int:
    per_warp = math.ceil(registers * WARP_SIZE / _REGISTER_UNIT) * _REGISTER_UNIT
    # The hardware checks a CTA against the register file as if every partition held the same number of its warps.
    if per_warp * math.ceil(warps / _PARTITIONS) * _PARTITIONS > gpu.regs_per_sm:
        return 0
    return gpu.regs_per_sm // _PARTITIONS // per_warp * _PARTITIONS // warps
