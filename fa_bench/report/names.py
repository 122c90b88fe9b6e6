"""What tables call a case: its implementation and tile, its sequence length, and the facts beside it.

Facts that are the same in every row of a table stand once in its title; the rows name what varies, so that they
fit 80 columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.cases import Case
from fa_bench.records import Record
from fa_bench.units import format_int

#: In the order in which they are written.
FACTS: Final = ("dtype", "head_dim", "causal", "layout", "batch", "heads")


@dataclass(frozen=True, slots=True)
class Name:
    """Texts that name a case.

    Parameters
    ----------
    impl : str
        ``flash2 128x64/2``: the implementation, its tile and stages; the implementation alone where it has no tile.
    seq : str
        ``1k``, or ``127x300`` where seq_q and seq_kv differ.
    facts : mapping of str to str
        One text per name in `FACTS`.
    """

    impl: str
    seq: str
    facts: Mapping[str, str]

    def shape(self, facts: Sequence[str] = FACTS) -> str:
        """The sequence length and some of the facts."""
        return " ".join([self.seq, *(self.facts[fact] for fact in facts)])


def case_name(case: Case) -> Name:
    """Name of a case."""
    shape, tile = case.shape, case.tile
    return _name(
        case.impl,
        None if tile is None else (tile.block_m, tile.block_n, tile.stages),
        (shape.seq_q, shape.seq_kv),
        (shape.heads_q, shape.heads_kv),
        {"dtype": case.dtype, "layout": case.layout, "head_dim": shape.head_dim, "batch": shape.batch},
        shape.causal,
    )


def record_name(record: Record) -> Name:
    """Name of a record's case."""
    tile = None
    if record.block_m is not None and record.block_n is not None and record.stages is not None:
        tile = (record.block_m, record.block_n, record.stages)
    return _name(
        record.impl,
        tile,
        (record.seq_q, record.seq_kv),
        (record.heads_q, record.heads_kv),
        {"dtype": record.dtype, "layout": record.layout, "head_dim": record.head_dim, "batch": record.batch},
        record.causal,
    )


def varying(names: Iterable[Name]) -> tuple[str, ...]:
    """Facts that are not the same in all names."""
    seen: dict[str, set[str]] = defaultdict(set)
    for name in names:
        for fact, text in name.facts.items():
            seen[fact].add(text)
    return tuple(fact for fact in FACTS if len(seen[fact]) > 1)


def _name(
    impl: str,
    tile: tuple[int, int, int] | None,
    seqs: tuple[int, int],
    heads: tuple[int, int],
    plain: Mapping[str, object],
    causal: bool,
) -> Name:
    facts = {
        "dtype": str(plain["dtype"]),
        "head_dim": f"D={plain['head_dim']}",
        "causal": "causal" if causal else "full",
        "layout": str(plain["layout"]),
        "batch": f"B={plain['batch']}",
        "heads": f"H={heads[0]}" if heads[0] == heads[1] else f"H={heads[0]}:{heads[1]}",
    }
    return Name(
        impl if tile is None else f"{impl} {tile[0]}x{tile[1]}/{tile[2]}",
        format_int(seqs[0]) if seqs[0] == seqs[1] else f"{format_int(seqs[0])}x{format_int(seqs[1])}",
        facts,
    )
