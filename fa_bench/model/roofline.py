"""The roofline: the least time that a GPU's peaks allow for the work that a case executes.

Kernels run one after another, so their times add. Within a kernel everything overlaps, so the slowest unit decides:

    time(kernel) = max(tensor FLOPs / tensor peak, FMA FLOPs / fp32 peak, DRAM bytes / bandwidth,
                       exponentials / (special functions per clock and SM · SMs · clock))

Left out: launch overhead, latency, waves that do not fill the GPU, shared-memory and L2 bandwidth, issue slots and
clocks below boost. A measured time below the terms for arithmetic says that a figure is wrong; DRAM bytes are an
estimate, so that below their term less may have crossed than estimated.

The exponentials' term is that of FlashAttention-3 (arXiv 2407.08608), section 3: an H100 does 3.9 T special
functions per second beside 989 TFLOP/s of matrix products.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu
from fa_bench.sizes import is_array

if TYPE_CHECKING:
    # Only for types: rooms below algorithms/ use this package, so it cannot import them while it is loaded.
    from fa_bench.algorithms.base import Work

Limiter = Literal["tensor", "fma", "dram", "exp"]


class Roofline(NamedTuple):
    """A case's least time in ms and the unit that takes most of it; None where a peak that is needed is unknown."""

    ms: float | None
    limiter: Limiter | None


@dataclass(frozen=True, slots=True)
class KernelBound:
    """One kernel's times in ms, by unit."""

    kernel: str
    times_ms: Mapping[Limiter, float]

    @property
    def limiter(self) -> Limiter:
        """The unit that needs the most time."""
        return max(self.times_ms, key=self.times_ms.__getitem__)

    @property
    def ms(self) -> float:
        """The least time of the kernel."""
        return self.times_ms[self.limiter]


def roofline(case: Case, work: Work, dram_bytes_per_kernel: Mapping[str, int], gpu: Gpu) -> Roofline:
    """The least time of a case and what limits it.

    Parameters
    ----------
    case : Case
        Its dtype chooses the tensor peak.
    work : Work
        FLOPs and exponentials executed, per kernel.
    dram_bytes_per_kernel : mapping of str to int
        Kernel entry -> bytes between L2 and DRAM, see :func:`fa_bench.model.dram.dram_traffic`.
    gpu : Gpu

    Returns
    -------
    Roofline
        ``limiter`` is the unit that binds for the largest share of the time: ``tensor``, ``fma``, ``dram`` or
        ``exp``.
    """
    bounds = kernel_bounds(case, work, dram_bytes_per_kernel, gpu)
    if not bounds:
        return Roofline(None, None)
    # [kernel, unit], and cases.
    times = [np.array(np.broadcast_arrays(*bound.times_ms.values())) for bound in bounds]
    ms = sum(by_unit.max(axis=0) for by_unit in times)
    binds = (by_unit.argmax(axis=0) == _units(len(by_unit), by_unit.ndim) for by_unit in times)
    share = sum(np.where(here, by_unit, 0.0) for here, by_unit in zip(binds, times, strict=True))
    limiter = np.array(tuple(bounds[0].times_ms))[np.argmax(share, axis=0)]
    if is_array(case.shape.batch):
        return Roofline(cast(float, ms), cast(Limiter, limiter))
    return Roofline(float(ms), cast(Limiter, str(limiter)))


def _units(count: int, axes: int) -> npt.NDArray[np.int64]:
    """Their numbers, along the first of so many axes."""
    return np.arange(count).reshape(-1, *[1] * (axes - 1))


def kernel_bounds(
    case: Case, work: Work, dram_bytes_per_kernel: Mapping[str, int], gpu: Gpu
) -> tuple[KernelBound, ...] | None:
    """The terms of the roofline, kernel by kernel, in the order of ``work``; None if a peak is not known.

    Parameters are those of :func:`roofline`. A kernel that moves bytes and does no arithmetic counts too.
    """
    tensor_flops: defaultdict[str, int] = defaultdict(int)
    fma_flops: defaultdict[str, int] = defaultdict(int)
    exps: defaultdict[str, int] = defaultdict(int)
    for kernel, tensor, fma, exp in work.per_kernel:
        tensor_flops[kernel] += tensor
        fma_flops[kernel] += fma
        exps[kernel] += exp
    tensor_peak = gpu.tensor_tflops(case.dtype)
    if tensor_peak is None and any(np.any(flops) for flops in tensor_flops.values()):
        return None
    exps_per_s = gpu.mufu_per_clk_per_sm * gpu.sm_count * gpu.boost_mhz * 1e6
    bounds = []
    for kernel in dict.fromkeys((*tensor_flops, *dram_bytes_per_kernel)):
        times: dict[Limiter, float] = {
            "tensor": tensor_flops[kernel] / tensor_peak * 1e-9 if tensor_peak else 0.0,
            "fma": fma_flops[kernel] / gpu.fp32_tflops * 1e-9,
            "dram": dram_bytes_per_kernel.get(kernel, 0) / gpu.mem_bandwidth_gbs * 1e-6,
            "exp": exps[kernel] / exps_per_s * 1e3,
        }
        bounds.append(KernelBound(kernel, times))
    return tuple(bounds)


def arithmetic_intensity(flops: int, nbytes: int) -> float | None:
    """FLOPs per byte; None, or NaN in an array, where no byte is moved.

    Which FLOPs and which bytes is the caller's choice and must be said: on compulsory bytes FlashAttention has
    N/2 FLOP/B in fp16, on tile traffic far less.

    Examples
    --------
    Standard attention in fp16 at N = 4096, D = 64: 4·N²·D FLOPs over (4·N² + 4·N·D) elements.

    >>> n, d = 4096, 64
    >>> round(arithmetic_intensity(4 * n * n * d, 2 * (4 * n * n + 4 * n * d)), 1)
    31.5
    """
    if is_array(nbytes):
        return cast(float, np.divide(flops, nbytes, out=np.full(np.shape(nbytes), np.nan), where=nbytes > 0))
    return flops / nbytes if nbytes else None


def ridge_flop_per_byte(gpu: Gpu, dtype: str) -> float | None:
    """The intensity at which a GPU's tensor cores and its DRAM take the same time; None without a peak.

    Examples
    --------
    >>> from fa_bench.model import gpus
    >>> round(ridge_flop_per_byte(gpus.get("a100-sxm-80"), "fp16"))
    153
    """
    peak = gpu.tensor_tflops(dtype)
    return None if peak is None else peak * 1e3 / gpu.mem_bandwidth_gbs
