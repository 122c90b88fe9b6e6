"""A time for a tile that nobody has measured, from peaks and from what was counted: good for an order, not for a time.

The CTAs that share an SM queue for its units. What each unit has to do is known: the tensor cores and the special
functions from the work (`fa_bench.model.roofline`), the rest from counts in the emulator:

    fma    = float instructions x 32 / (fp32 lanes of an SM x SMs x clock)
    shared = wavefronts x 128 B / (bytes per clock and SM x SMs x clock)
    issue  = instructions / (4 per clock and SM x SMs x clock)
    wait   = copies waited for x 279 clocks / (SMs x clock)

A CTA of four warps, one per scheduler, is at one unit at a time: its barriers keep its warps in step. How long an SM
takes if several CTAs do that is what mean value analysis of a closed queueing network says (Reiser and Lavenberg,
1980): alone, the sum of all units; with many, the slowest. The two warps that a CTA of eight has on a scheduler overlap
between its barriers and not across them: it is taken half-way between one such CTA and two. With one stage, a CTA waits
for K and for V of each tile without holding a unit, with two for its first K only: 279 clocks each, the mean latency of
an L2 hit on an L40 (arXiv 2606.22588), for want of a figure for every GPU. Then

    on SM  = max(queueing time, issue) / balance
    kernel = max(on SM, DRAM bytes / bandwidth)

*Balance* is the mean number of CTAs of an SM over the largest: an SM with one CTA more than the others is waited
for. Four warp instructions per clock and SM: one per scheduler, on every GPU that can run our kernels (CUDA C++
Programming Guide, architecture of compute capability 8.x and 9.0).

Left out: the bandwidth of L2, which the registry does not have, latency of arithmetic, clocks below boost, launches,
CTAs of different length, and what ptxas makes of the PTX that was counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.algorithms.base import Launch, Work
from fa_bench.algorithms.tiles import resolved_tile
from fa_bench.cases import Case
from fa_bench.model.gpu import WARP_SIZE, Gpu
from fa_bench.model.roofline import kernel_bounds
from fa_bench.tuning.counts import Counter

#: What a kernel can be short of: units of an SM, its schedulers, DRAM; and waiting for copies, which holds no unit.
Term = Literal["tensor", "fma", "exp", "shared", "issue", "dram", "wait"]
_UNITS: Final[tuple[Term, ...]] = ("tensor", "fma", "exp", "shared")
_SCHEDULERS: Final = 4
_WAVEFRONT_BYTES: Final = 128
_L2_LATENCY_CLOCKS: Final = 279
#: K and V of a tile, each waited for.
_COPIES_PER_TILE: Final = 2


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a tile would take, and why.

    Parameters
    ----------
    ms : float
    terms_ms : mapping of Term to float
        Each unit alone, on a GPU whose SMs are all busy; kernels summed.
    balance : float
        Mean number of CTAs of an SM over the largest, of the kernel that takes longest; 1 where all SMs do the same.
    """

    ms: float
    terms_ms: Mapping[Term, float]
    balance: float

    @property
    def limiter(self) -> Term:
        """The unit that takes longest by itself."""
        busy = {term: ms for term, ms in self.terms_ms.items() if term != "wait"}
        return max(busy, key=busy.__getitem__)


def predict(
    case: Case,
    work: Work,
    launches: Sequence[Launch],
    dram_bytes_per_kernel: Mapping[str, int],
    counters: Mapping[str, Mapping[Counter, float]],
    blocks_per_sm: int,
    gpu: Gpu,
) -> Prediction | None:
    """The time of a tile by the formulas above; None where a peak is not known.

    Parameters
    ----------
    case : Case
    work : Work
        What the whole case executes.
    launches : sequence of Launch
        The grids.
    dram_bytes_per_kernel : mapping of str to int
    counters : mapping of str to mapping
        Kernel -> what was counted, for the whole case.
    blocks_per_sm : int
        CTAs of the largest kernel that an SM holds.
    gpu : Gpu
    """
    bounds = kernel_bounds(case, work, dram_bytes_per_kernel, gpu)
    if bounds is None:
        return None
    ctas = {launch.kernel.entry: math.prod(launch.grid) for launch in launches}
    multiplied = {kernel: tensor + fma for kernel, tensor, fma, _ in work.per_kernel}
    total_ms, longest_ms, balance = 0.0, 0.0, 1.0
    terms: dict[Term, float] = {}
    for bound in bounds:
        alone: dict[Term, float] = dict(bound.times_ms.items())
        alone |= _counted_ms(counters[bound.kernel], gpu)
        alone["wait"] = _wait_ms(case, multiplied.get(bound.kernel, 0), ctas[bound.kernel], gpu)
        share = balance_of(ctas[bound.kernel], gpu)
        most_per_sm = math.ceil(ctas[bound.kernel] / gpu.sm_count)
        queue = customers(min(blocks_per_sm, most_per_sm), resolved_tile(case).num_warps)
        ms = kernel_ms(alone, queue, share)
        for term, value in alone.items():
            terms[term] = terms.get(term, 0.0) + value
        if ms > longest_ms:
            longest_ms, balance = ms, share
        total_ms += ms
    return Prediction(total_ms, terms, balance)


def customers(ctas: int, warps: int) -> tuple[int, int]:
    """Least and most customers that CTAs which share an SM are for its units.

    A CTA of two warps uses the units of two of the four schedulers, so that two of them are one customer. One of eight
    is one customer if its barriers keep all warps in step, and two if they don't.

    Examples
    --------
    >>> [customers(2, 4), customers(2, 8), customers(5, 2), customers(1, 1)]
    [(2, 2), (2, 4), (2, 2), (1, 1)]
    """
    per_scheduler = ctas * warps // _SCHEDULERS
    return max(1, min(ctas, per_scheduler)), max(1, per_scheduler)


def kernel_ms(alone_ms: Mapping[Term, float], queue: tuple[int, int], balance: float) -> float:
    """The time of one kernel from those of its units, half-way between the least and the most customers.

    Examples
    --------
    Tensor cores for 4 ms, shared memory for 2 ms: alone on an SM a CTA does one after the other, two get into each
    other's way now and then, and where only half of the SMs have a CTA, it takes twice as long.

    >>> alone = {"tensor": 4.0, "shared": 2.0, "issue": 3.0, "dram": 1.0}
    >>> [round(kernel_ms(alone, *shared), 2) for shared in (((1, 1), 1.0), ((2, 2), 1.0), ((1, 1), 0.5), ((1, 2), 1.0))]
    [6.0, 4.67, 12.0, 5.33]
    """
    units = [alone_ms.get(unit, 0.0) for unit in _UNITS]
    queueing = sum(queueing_ms(units, alone_ms.get("wait", 0.0), count) for count in queue) / 2
    return max(max(queueing, alone_ms["issue"]) / balance, alone_ms["dram"])


def queueing_ms(demands_ms: Sequence[float], delay_ms: float, count: int) -> float:
    """The time in which so many customers do all the work of some units, each customer at one unit at a time.

    Mean value analysis: a customer that comes to a unit finds there, on average, what is there with one customer less.

    Parameters
    ----------
    demands_ms : sequence of float
        What each unit has to do, for all customers together.
    delay_ms : float
        The same for waiting, which others don't wait behind.
    count : int
        Customers, at least 1.

    Examples
    --------
    >>> [round(queueing_ms([4.0, 2.0], 0.0, n), 2) for n in (1, 2, 3, 100)]
    [6.0, 4.67, 4.29, 4.0]
    """
    queues = [0.0] * len(demands_ms)
    cycle_ms = 0.0
    for present in range(1, count + 1):
        residence_ms = [demand * (1 + queue) for demand, queue in zip(demands_ms, queues, strict=True)]
        cycle_ms = (sum(residence_ms) + delay_ms) / present
        queues = [ms / cycle_ms if cycle_ms else 0.0 for ms in residence_ms]
    return cycle_ms


def balance_of(ctas: int, gpu: Gpu) -> float:
    """Mean number of CTAs of an SM over the largest.

    Examples
    --------
    An A100 has 108 SMs: 162 CTAs give half of them two and the others one.

    >>> from fa_bench.model import gpus
    >>> [balance_of(ctas, gpus.get("a100")) for ctas in (54, 108, 162)]
    [0.5, 1.0, 0.75]
    """
    return ctas / gpu.sm_count / math.ceil(ctas / gpu.sm_count)


def _counted_ms(counted: Mapping[Counter, float], gpu: Gpu) -> dict[Term, float]:
    clocks_per_ms = gpu.sm_count * gpu.boost_mhz * 1e3
    # A lane's multiply-add is two FLOPs, whatever it does of them.
    fma_lanes_per_ms = gpu.fp32_tflops * 1e9 / 2
    return {
        "fma": counted["float_instructions"] * WARP_SIZE / fma_lanes_per_ms,
        "shared": counted["wavefronts"] * _WAVEFRONT_BYTES / gpu.smem_bytes_per_clk_per_sm / clocks_per_ms,
        "issue": counted["instructions"] / _SCHEDULERS / clocks_per_ms,
    }


def _wait_ms(case: Case, flops: int, ctas: int, gpu: Gpu) -> float:
    """What the CTAs wait for copies, on average over the SMs; a second stage has them ahead, once a CTA has begun."""
    tile = resolved_tile(case)
    tiles = flops / (4 * tile.block_m * tile.block_n * case.shape.head_dim)
    copies = tiles * _COPIES_PER_TILE if tile.stages == 1 else ctas if flops else 0
    return copies * _L2_LATENCY_CLOCKS / (gpu.sm_count * gpu.boost_mhz * 1e3)
