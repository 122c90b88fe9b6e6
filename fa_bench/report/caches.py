"""The table of what caches answer: how much of each tensor's traffic L1 and L2 keep, and what reaches DRAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fa_bench.records import Record, TensorTraffic
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_bytes, format_percent


@dataclass(frozen=True, slots=True)
class Passage:
    """What became of one kernel's traffic for one tensor and direction on its way to DRAM, in bytes; emulated.

    ``requests`` are warp instructions, ``l2_requests`` lines. Hits are None where there are none to count (writes), and
    ``dram_model_bytes`` without a model.
    """

    kernel: str
    tensor: str
    op: str
    requests: int | None
    global_bytes: int
    l1_hit_bytes: int | None
    l2_requests: int | None
    l2_bytes: int
    l2_hit_bytes: int | None
    dram_bytes: int
    dram_model_bytes: int | None


def passages(traffic: Sequence[TensorTraffic]) -> list[Passage]:
    """One entry per kernel, tensor and direction of a case whose caches were emulated; else none."""
    cells = {(row.kernel, row.tensor, row.op, row.level, row.source): row for row in traffic}
    if not any(row.level == "dram" and row.source == "emulated" for row in traffic):
        return []
    found = []
    # What an earlier kernel wrote may reach DRAM while this one runs, without a request of its own.
    for kernel, tensor, op in dict.fromkeys(key[:3] for key in cells if key[4] == "emulated"):
        asked = cells.get((kernel, tensor, op, "global", "emulated"))
        l2 = cells.get((kernel, tensor, op, "l2", "emulated"))
        dram = cells.get((kernel, tensor, op, "dram", "emulated"))
        model = cells.get((kernel, tensor, op, "dram", "model"))
        found.append(
            Passage(
                kernel,
                tensor,
                op,
                None if asked is None else asked.requests,
                0 if asked is None else asked.bytes,
                None if asked is None else asked.hit_bytes,
                None if l2 is None else l2.requests,
                0 if l2 is None else l2.bytes,
                None if l2 is None else l2.hit_bytes,
                0 if dram is None else dram.bytes,
                None if model is None else model.bytes,
            )
        )
    return found


def caches_table(record: Record, traffic: Sequence[TensorTraffic]) -> Table | None:
    """The passages of one case; None where its caches were not emulated.

    Parameters
    ----------
    record : Record
    traffic : sequence of TensorTraffic
        Rows of this case.
    """
    found = passages(traffic)
    if not found:
        return None
    rows = tuple(
        (
            p.kernel,
            p.tensor,
            p.op,
            _share(p.l1_hit_bytes, p.global_bytes),
            format_bytes(p.l2_bytes),
            _share(p.l2_hit_bytes, p.l2_bytes),
            format_bytes(p.dram_bytes),
            UNKNOWN if p.dram_model_bytes is None else format_bytes(p.dram_model_bytes),
        )
        for p in found
    )
    columns = (
        Column("kernel"), Column("tensor"), Column("op"), Column("L1 hit", "right"), Column("L2", "right"),
        Column("L2 hit", "right"), Column("DRAM", "right"), Column("model", "right"),
    )  # fmt: skip
    return Table(f"Through the caches of {record.gpu}, emulated", columns, rows, _note(record))


def _note(record: Record) -> str:
    parts = []
    for op, verb in (("read", "read from"), ("write", "written to")):
        nbytes = getattr(record, f"dram_{op}_bytes_emulated")
        low, high = (getattr(record, f"dram_{op}_bytes_emulated_{end}") for end in ("low", "high"))
        between = "" if low is None else f" (between {format_bytes(low)} and {format_bytes(high)})"
        if low is not None and low == high == nbytes:
            between = " (in all variants)"
        parts.append(f"{format_bytes(nbytes)}{between} {verb} DRAM")
    lines = ["; ".join(parts) + "."]
    if errors := _model_errors(record):
        lines.append(f"Model, without running anything: {errors}.")
    if record.l2_dirty_bytes_emulated:
        lines.append(f"{format_bytes(record.l2_dirty_bytes_emulated)} that were written are still in L2 at the end.")
    if record.emulated_fraction is not None and record.emulated_fraction < 1:
        lines.append(f"{format_percent(record.emulated_fraction)} of the slices ran, the others go on at their rate.")
    return "\n".join(lines)


def _model_errors(record: Record) -> str:
    """How far the model is from what was emulated, by direction; empty without a model."""
    errors = []
    for op in ("read", "write"):
        model, emulated = (getattr(record, f"dram_{op}_bytes_{source}") for source in ("model", "emulated"))
        if model is None or emulated is None:
            continue
        if emulated or not model:
            errors.append(f"{format_percent(model / emulated - 1 if emulated else 0.0, signed=True)} {op}s")
        else:
            errors.append(f"{format_bytes(model)} of {op}s where there are none")
    return ", ".join(errors)


def _share(part: int | None, whole: int) -> str:
    return UNKNOWN if part is None or not whole else format_percent(part / whole)
