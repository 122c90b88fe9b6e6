"""From what hardware counters said of a case to its columns, once it is known that the figures can be true.

Pure functions of the counts, the case and its prediction. How counters are read is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fa_bench.algorithms.base import Op, TensorBytes
from fa_bench.backends.base import Counts, HardwareCounts, Level
from fa_bench.cases import Case
from fa_bench.units import format_bytes, format_count

#: Counters of one kernel come from up to four launches of it, which need not agree to the byte: what the caches evict
#: and what other engines move differs a little from one to the next.
SLACK: Final = 0.02

_OPS: Final[tuple[Op, Op]] = ("read", "write")


def checked(hardware: HardwareCounts, case: Case, compulsory_read_bytes: int) -> HardwareCounts:
    """``hardware``, or ``unreliable`` without counts where they cannot be true; the reason says which.

    Counters of one kernel come from several launches, and on a tiny kernel other engines' traffic is a large part of
    them: hit rates of 171 % and 2418 % were reported (forums.developer.nvidia.com/t/weird-number-for-l2-cache-hitrate/
    120341). Differences up to `SLACK` are those of different launches, and no fault.

    Parameters
    ----------
    hardware : HardwareCounts
    case : Case
    compulsory_read_bytes : int
        Q, K and V once: the least that DRAM gives to a kernel that starts with cold caches.
    """
    if hardware.counts is None:
        return hardware
    fault = _fault(hardware.counts, _floor(case, compulsory_read_bytes))
    if fault is None:
        return hardware
    return replace(hardware, status="unreliable", reason=fault, counts=None)


def _floor(case: Case, compulsory_read_bytes: int) -> int:
    """Compulsory reads, less queries that see no key: a kernel need not read those."""
    s = case.shape
    blind = sum(times * sequence.blind_queries for sequence, times in s.by_length())
    return compulsory_read_bytes - blind * s.heads_q * s.head_dim * case.itemsize


def _fault(counts: Counts, floor: int) -> str | None:
    for level, parts in counts.traffic.items():
        for part in parts:
            if part.hit_bytes is not None and part.hit_bytes > (1.0 + SLACK) * part.bytes:
                cache = {"global": "L1", "l2": "L2"}[level]
                return (
                    f"A hit rate above 100 %: {cache} answered {format_bytes(part.hit_bytes)} "
                    f"of {format_bytes(part.bytes)} that {part.kernel} asked of it."
                )
    dram = _sum(counts.traffic.get("dram", ()), "read")
    if dram is not None and dram < (1.0 - SLACK) * floor:
        return f"{format_count(dram)} B read from DRAM, less than the inputs' {format_count(floor)} B."
    for kernel, extra in counts.extra.items():
        asked = sum(part.bytes for part in counts.traffic.get("l2", ()) if part.kernel == kernel)
        if "l2_total_bytes" in extra and asked > (1.0 + SLACK) * extra["l2_total_bytes"]:
            total = format_bytes(extra["l2_total_bytes"])
            return f"{format_bytes(asked)} between {kernel} and L2, more than the {total} that L2 saw in all."
    return None


def counter_columns(hardware: HardwareCounts) -> dict[str, Any]:
    """Columns of the record. What was not counted is not among them."""
    columns: dict[str, Any] = {
        "counter_status": hardware.status,
        "counter_reason": hardware.reason or None,
        "counter_kernels": hardware.kernels,
        "counter_mode": hardware.mode or None,
    }
    if hardware.counts is None:
        return columns
    columns |= _sums(hardware.counts.traffic)
    for op in _OPS:
        local = [extra.get(f"local_{op}_bytes") for extra in hardware.counts.extra.values()]
        known = [nbytes for nbytes in local if nbytes is not None]
        if known and len(known) == len(local):
            columns[f"local_{op}_bytes_measured"] = sum(known)
    return columns


def _sums(traffic: Mapping[Level, Sequence[TensorBytes]]) -> dict[str, int | None]:
    return {f"{level}_{op}_bytes_measured": _sum(parts, op) for level, parts in traffic.items() for op in _OPS}


def _sum(parts: Sequence[TensorBytes], op: Op) -> int | None:
    """Bytes in one direction; None where there is no figure, since one that was counted may be 0."""
    known = [int(part.bytes) for part in parts if part.op == op]
    return sum(known) if known else None
