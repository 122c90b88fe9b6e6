"""The table of a case that hardware counted: model, emulated and measured bytes of each level, and what parts them.

The words are computed from the figures: what L1 and L2 answered, what registers spill to local memory, what was
written and is still in L2, and what flushing the caches before each kernel costs. What these do not account for is
said to be unexplained. Everything comes from a record and its lines of traffic.csv.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fa_bench.algorithms.base import Op
from fa_bench.records import Record, TensorTraffic
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.units import format_bytes, format_count, format_percent

_LEVELS: Final = ("global", "l2", "dram")
_OPS: Final[tuple[Op, Op]] = ("read", "write")
_NAMES: Final = {"global": "global", "l2": "L2", "dram": "DRAM"}
_VERBS: Final = {"read": "reads", "write": "writes"}


@dataclass(frozen=True, slots=True)
class LevelBytes:
    """Bytes of one level and direction, by source; None where a source says nothing."""

    level: str
    op: str
    model: int | None
    emulated: int | None
    measured: int | None

    @property
    def expected(self) -> int | None:
        """What the measured figure is held against: the emulated one, else the model's."""
        return self.model if self.emulated is None else self.emulated


def level_bytes(record: Record) -> list[LevelBytes]:
    """Global, L2 and DRAM, read and written."""
    return [
        LevelBytes(
            level,
            op,
            *(getattr(record, f"{level}_{op}_bytes_{source}") for source in ("model", "emulated", "measured")),
        )
        for level in _LEVELS
        for op in _OPS
    ]


def levels_table(record: Record, traffic: Sequence[TensorTraffic]) -> Table | None:
    """The levels of one case side by side; None where nobody asked hardware counters.

    Parameters
    ----------
    record : Record
    traffic : sequence of TensorTraffic
        Rows of this case.
    """
    if record.counter_status is None:
        return None
    columns = (
        Column("level"), Column("op"), Column("model B", "right"), Column("emulated B", "right"),
        Column("measured B", "right"), Column("off by", "right"),
    )  # fmt: skip
    rows = tuple(
        (
            _NAMES[line.level],
            line.op,
            *(
                UNKNOWN if nbytes is None else format_count(nbytes)
                for nbytes in (line.model, line.emulated, line.measured)
            ),
            _off_by(line),
        )
        for line in level_bytes(record)
    )
    note = "\n".join(explained(record, traffic))
    return Table(f"By level, {record.device}", columns, rows, note)


def _off_by(line: LevelBytes) -> str:
    if line.measured is None or line.expected is None:
        return UNKNOWN
    if line.measured == line.expected:
        return "0"
    return format_percent(line.measured / line.expected - 1, signed=True) if line.expected else UNKNOWN


def explained(record: Record, traffic: Sequence[TensorTraffic]) -> list[str]:
    """What parts the levels, and the measured figures from the others, in sentences; a failure's reason first."""
    if record.counter_status != "ok":
        return [f"Not measured, {record.counter_status}: {record.counter_reason or 'no reason is known'}"]
    sentences = [_what(record)]
    if record.counter_reason:
        sentences.append(record.counter_reason)
    lines = {(line.level, line.op): line for line in level_bytes(record)}
    sentences += [
        *_global(lines["global", "read"], lines["global", "write"]),
        *_into_l2(record, _hits(traffic, "global")),
        *_out_of_l2(record, _hits(traffic, "l2"), _handed_on(traffic)),
        *_written_back(record),
        *_spills(record),
    ]
    return sentences


def _what(record: Record) -> str:
    count = record.counter_kernels or 0
    launches = f"{count} launch" if count == 1 else f"{count} launches"
    return f"Measured: {launches}, {record.counter_mode}. Cold figures, not those of a run that finds its data in L2."


def _global(*lines: LevelBytes) -> Iterator[str]:
    known = [line for line in lines if line.measured is not None and line.expected is not None]
    if known and all(line.measured == line.expected for line in known):
        yield "Global: as expected, to the byte."
        return
    for line in known:
        assert line.measured is not None and line.expected is not None
        if line.measured != line.expected:
            yield f"Global {_VERBS[line.op]}: {_apart(line.measured - line.expected)} what was expected."


def _into_l2(record: Record, l1_hits: int | None) -> Iterator[str]:
    """From global to L2: less what L1 answers, more by what registers spill."""
    for op in _OPS:
        asked, reached = (getattr(record, f"{level}_{op}_bytes_measured") for level in ("global", "l2"))
        if asked is None or reached is None:
            continue
        spilled = getattr(record, f"local_{op}_bytes_measured") or 0
        answered = (l1_hits or 0) if op == "read" else 0
        if asked == reached and not spilled and not answered:
            yield f"Global to L2, {_VERBS[op]}: the same."
            continue
        reasons = [
            *([f"L1 answers {format_bytes(answered)}"] if answered else []),
            *([f"spilled registers add up to {format_bytes(spilled)}"] if spilled else []),
        ]
        # Spills may hit L1 themselves, so they explain anything from nothing to all of their bytes.
        rest = reached - (asked - answered)
        left = rest - spilled if rest > spilled else min(rest, 0)
        if left:
            reasons.append(f"{format_bytes(abs(left))} {'more' if left > 0 else 'less'} is unexplained")
        yield f"Global to L2, {_VERBS[op]}: {_apart(reached - asked)} global; {', '.join(reasons)}."


def _out_of_l2(record: Record, l2_hits: int | None, handed_on: int) -> Iterator[str]:
    """From L2 to DRAM: reuse, and what the caches' flush costs where there are several kernels."""
    asked, given = record.l2_read_bytes_measured, record.dram_read_bytes_measured
    if given is None:
        return
    if asked:
        counted = "" if l2_hits is None else f"; its counter of hits says {format_percent(l2_hits / asked)}"
        yield f"L2 to DRAM, reads: L2 answers {format_percent(1 - given / asked)}{counted}."
    if record.compulsory_read_bytes is not None:
        more = given - record.compulsory_read_bytes
        sentence = (
            f"DRAM reads: the inputs and {format_bytes(more)}" if more >= 0 else "DRAM reads: less than the inputs"
        )
        if handed_on:
            among = f"up to {format_bytes(handed_on)} that one leaves to the next are among them"
            sentence += f"; caches are flushed before each kernel, so {among}"
        yield f"{sentence}."


def _written_back(record: Record) -> Iterator[str]:
    written, reached = record.l2_write_bytes_measured, record.dram_write_bytes_measured
    if written is None or reached is None:
        return
    if reached > written:
        yield f"L2 to DRAM, writes: {format_bytes(reached - written)} more than was written to L2; it is unexplained."
        return
    dirty = record.l2_dirty_bytes_emulated
    emulated = "" if dirty is None else f" (emulated: {format_bytes(dirty)})"
    yield (
        f"L2 to DRAM, writes: {format_bytes(reached)} of {format_bytes(written)} were written back; "
        f"{format_bytes(written - reached)} were still in L2, or overwritten there, when a kernel ended{emulated}."
    )


def _spills(record: Record) -> Iterator[str]:
    read, written, compiled = (
        record.local_read_bytes_measured,
        record.local_write_bytes_measured,
        record.spill_bytes,
    )
    said = "" if compiled is None else f"; the compiler reports {format_count(compiled)} spilled bytes per thread"
    if read is not None and written is not None and (read or written or compiled):
        yield f"Local memory: {format_bytes(read)} read, {format_bytes(written)} written{said}."


def _hits(traffic: Sequence[TensorTraffic], level: str) -> int | None:
    """Bytes that the level's cache answered, by its counter."""
    hits = [row.hit_bytes for row in traffic if (row.level, row.source, row.op) == (level, "measured", "read")]
    known = [nbytes for nbytes in hits if nbytes is not None]
    return sum(known) if known and len(known) == len(hits) else None


def _handed_on(traffic: Sequence[TensorTraffic]) -> int:
    """Bytes of tensors that a kernel reads after an earlier one wrote them, by the model; rows are in launch order."""
    written: dict[str, tuple[str, int]] = {}
    nbytes = 0
    for row in traffic:
        if (row.level, row.source) != ("global", "model"):
            continue
        if row.op == "write":
            written[row.tensor] = row.kernel, row.bytes
        elif row.tensor in written and written[row.tensor][0] != row.kernel:
            nbytes += min(row.bytes, written[row.tensor][1])
    return nbytes


def _apart(difference: int) -> str:
    if not difference:
        return "the same as"
    return f"{format_bytes(abs(difference))} {'above' if difference > 0 else 'below'}"


def hardware_document(record: Record, traffic: Sequence[TensorTraffic]) -> dict[str, Any] | None:
    """What hardware counters said, for the JSON document; None where nobody asked them."""
    if record.counter_status is None:
        return None
    return {
        "status": record.counter_status,
        "reason": record.counter_reason,
        "kernels": record.counter_kernels,
        "mode": record.counter_mode,
        "levels": [
            {
                "level": line.level,
                "op": line.op,
                "model_bytes": line.model,
                "emulated_bytes": line.emulated,
                "measured_bytes": line.measured,
            }
            for line in level_bytes(record)
        ],
        "local_read_bytes": record.local_read_bytes_measured,
        "local_write_bytes": record.local_write_bytes_measured,
        "explained": explained(record, traffic),
    }
