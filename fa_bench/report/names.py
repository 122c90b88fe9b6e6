"""What tables call a case: its implementation and tile, its sequence length, and the facts beside it.

Facts that are the same in every row of a table stand once in its title; the rows name what varies, so that they
fit 80 columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.cases import AttentionShape, Case, Features
from fa_bench.records import Record
from fa_bench.units import format_int

#: In the order in which they are written.
FACTS: Final = ("dtype", "head_dim", "causal", "layout", "batch", "heads")
#: Lengths of a packed batch that a name holds.
_LENGTHS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Name:
    """Texts that name a case.

    Parameters
    ----------
    impl : str
        ``flash2 128x64/2``: the implementation, its tile and stages; the implementation alone where it has no tile;
        ``flash2 bwd 64x64/1`` for another pass than the forward one.
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
        with_direction(case.impl, case.direction),
        None if tile is None else (tile.block_m, tile.block_n, tile.stages),
        (shape.seq_q, shape.seq_kv),
        (shape.heads_q, shape.heads_kv),
        {"dtype": case.dtype, "layout": case.layout, "batch": _batch(shape.batch, shape.seqlens_text)},
        (shape.head_dim, shape.dim_v),
        ("causal" if shape.causal else "", *shape.named[: int(shape.windowed)], *case.features.named),
    )


def record_name(record: Record) -> Name:
    """Name of a record's case."""
    tile = None
    if record.block_m is not None and record.block_n is not None and record.stages is not None:
        tile = (record.block_m, record.block_n, record.stages)
    return _name(
        with_direction(record.impl, record.direction),
        tile,
        (record.seq_q, record.seq_kv),
        (record.heads_q, record.heads_kv),
        {"dtype": record.dtype, "layout": record.layout, "batch": _batch(record.batch, record.seqlens)},
        (record.head_dim, record.head_dim_v or record.head_dim),
        _asked(record),
    )


def _batch(batch: int, seqlens: str | None) -> str:
    """``B=4``; with the first few lengths where sequences differ: ``B=4 (5x7 0x3 128x128 ...)``."""
    if seqlens is None:
        return f"B={batch}"
    first = seqlens.split(" ")[:_LENGTHS_NAMED]
    return f"B={batch} ({' '.join([*first, *(['...'] if batch > len(first) else [])])})"


def with_direction(text: str, direction: str) -> str:
    """``text``, with the pass that a case is where that is not the forward one."""
    return text if direction == "fwd" else f"{text} {direction}"


def _asked(record: Record) -> tuple[str, ...]:
    """Mask and features of a record, in the words of a case."""
    window = AttentionShape(
        *(1, 1, 1, record.seq_q, record.seq_kv, record.head_dim), record.causal, record.window_left, record.window_right
    )
    features = Features(
        record.softcap or 0.0, bool(record.bias), bool(record.alibi), bool(record.sinks), record.dropout_p
    )
    return ("causal" if record.causal else "", *window.named, *features.named)


def identity_columns(case: Case) -> dict[str, object]:
    """What tells one case from another, as flat rows of plans and predictions have it; its tile apart."""
    shape = case.shape
    return {
        "impl": case.impl,
        "dtype": case.dtype,
        "layout": case.layout,
        "direction": case.direction,
        "batch": shape.batch,
        "heads_q": shape.heads_q,
        "heads_kv": shape.heads_kv,
        "seq_q": shape.seq_q,
        "seq_kv": shape.seq_kv,
        "head_dim": shape.head_dim,
        "causal": shape.causal,
        "window_left": shape.window_left,
        "window_right": shape.window_right,
        "seqlens": shape.seqlens_text,
        # A window has columns of its own.
        "features": ",".join((*case.features.named, *shape.named[int(shape.windowed) :])) or None,
    }


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
    dims: tuple[int, int],
    asked: Sequence[str],
) -> Name:
    facts = {
        "dtype": str(plain["dtype"]),
        "head_dim": f"D={dims[0]}" if dims[0] == dims[1] else f"D={dims[0]}:{dims[1]}",
        "causal": " ".join(word for word in asked if word) or "full",
        "layout": str(plain["layout"]),
        "batch": str(plain["batch"]),
        "heads": f"H={heads[0]}" if heads[0] == heads[1] else f"H={heads[0]}:{heads[1]}",
    }
    return Name(
        impl if tile is None else f"{impl} {tile[0]}x{tile[1]}/{tile[2]}",
        format_int(seqs[0]) if seqs[0] == seqs[1] else f"{format_int(seqs[0])}x{format_int(seqs[1])}",
        facts,
    )
