"""Which hardware counters make which bytes: names of Nsight Compute's metrics, by quantity.

Sources
-------
Names, their meaning and which chips have them: NVIDIA's own metrics library (``libnvperf_host`` of the CUPTI 13.5
wheel, asked for TU102, GA100, GA102, AD102, GH100, GB100, GB202, GB20B and GR100). So: Hopper is the first to list
``ldgsts_cache_access`` and TMA beside ``global_op_ld``; GB202 and GR100 say ``dram__bytes_op_read`` for
``dram__bytes_read``; GB20B, whose memory is the system's, has no DRAM metrics at all.

``global_op_ld`` contains ``cp.async.cg`` (LDGSTS.BYPASS): FlashAttention-2, whose loads are all of that kind, has in it
on an A30 the bytes of its tiles to the sector (github.com/JakeFlasher/benchmark_flash_attention, ncu_metrics.csv and
scripts/read_ncu_rep.py; docs/validation.md). The raw counters behind it are the same ones on a GH100. That
``cp.async.ca`` (LDGSTS.ACCESS) is not in it there is inferred from its having counters of its own; no kernel of ours
uses that.

One pass serves DRAM, L2 and global; with local memory, by the same library, Turing, Ampere and Ada need two, and
Hopper with its other ways to load four. A pass is a launch, so counters of different passes need not agree on a tiny
kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Quantity = Literal[
    "global_read", "global_read_hit", "global_write", "local_read", "local_write",
    "l2_read", "l2_read_hit", "l2_write", "l2_total", "dram_read", "dram_write",
]  # fmt: skip

_SECTOR_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Metric:
    """One summand of a quantity.

    Parameters
    ----------
    quantity : str
    names : tuple of str
        What it is called, the commonest first: chips have one of them.
    unit_bytes : int
        Bytes of one count.
    first_sm : int
        Compute capability from which on there is such a thing; 0 for all.
    """

    quantity: Quantity
    names: tuple[str, ...]
    unit_bytes: int = 1
    first_sm: int = 0

    def name(self, unknown: Collection[str]) -> str | None:
        """The first name that is not among ``unknown``; None if none is left."""
        return next((name for name in self.names if name not in unknown), None)


_LSU: Final = "l1tex__t_bytes_pipe_lsu_mem"
_TEX: Final = "lts__t_sectors_srcunit_tex_op"
METRICS: Final[tuple[Metric, ...]] = (
    Metric("global_read", (f"{_LSU}_global_op_ld.sum",)),
    Metric("global_read", (f"{_LSU}_global_op_ldgsts_cache_access.sum",), first_sm=90),
    Metric("global_read", ("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",), first_sm=90),
    Metric("global_read_hit", (f"{_LSU}_global_op_ld_lookup_hit.sum",)),
    Metric("global_read_hit", (f"{_LSU}_global_op_ldgsts_cache_access_lookup_hit.sum",), first_sm=90),
    Metric("global_write", (f"{_LSU}_global_op_st.sum",)),
    Metric("global_write", ("l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",), first_sm=90),
    Metric("local_read", (f"{_LSU}_local_op_ld.sum",)),
    Metric("local_write", (f"{_LSU}_local_op_st.sum",)),
    Metric("l2_read", (f"{_TEX}_read.sum",), _SECTOR_BYTES),
    Metric("l2_read_hit", (f"{_TEX}_read_lookup_hit.sum",), _SECTOR_BYTES),
    Metric("l2_write", (f"{_TEX}_write.sum",), _SECTOR_BYTES),
    Metric("l2_total", ("lts__t_bytes.sum",)),
    Metric("dram_read", ("dram__bytes_read.sum", "dram__bytes_op_read.sum")),
    Metric("dram_write", ("dram__bytes_write.sum", "dram__bytes_op_write.sum")),
)


def metrics_of(sm: int) -> tuple[Metric, ...]:
    """The metrics that make the quantities on a chip of compute capability ``sm`` (80, 90 ...)."""
    return tuple(metric for metric in METRICS if sm >= metric.first_sm)


def quantities(
    metrics: Sequence[Metric], counts: dict[str, int | None], unknown: Collection[str]
) -> dict[Quantity, int | None]:
    """Bytes per quantity of one kernel; None where a summand is not known, which is not 0.

    Parameters
    ----------
    metrics : sequence of Metric
    counts : dict
        Metric name -> count.
    unknown : collection of str
        Names that this chip does not have.
    """
    found: dict[Quantity, int | None] = {}
    for metric in metrics:
        name = metric.name(unknown)
        count = None if name is None else counts.get(name)
        so_far = found.get(metric.quantity, 0)
        found[metric.quantity] = None if count is None or so_far is None else so_far + count * metric.unit_bytes
    return found
