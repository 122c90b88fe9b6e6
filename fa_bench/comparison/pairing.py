"""Which row of one run stands against which of the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.records import Record
from fa_bench.sweep.journal import key_of

By = Literal["case", "shape"]

_TILE: Final = ("block_m", "block_n", "stages", "num_warps")
_SHAPE: Final = (
    *("impl", "backend", "dtype", "direction", "layout", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv"),
    *("head_dim", "causal", "window_left", "window_right", "dropout_p", "seed"),
)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Rows that stand against each other, in the order of the first run, and those that have no partner."""

    pairs: tuple[tuple[Record, Record], ...]
    only_before: tuple[Record, ...]
    only_after: tuple[Record, ...]


def pair(before: Sequence[Record], after: Sequence[Record], by: By = "case") -> Pairing:
    """Pair rows, each at most once.

    Parameters
    ----------
    before, after : sequence of Record
        No two with the same case and backend.
    by : {"case", "shape"}
        ``case``: the same case on the same backend. ``shape``: the same implementation, shape, type, layout, seed and
        backend; rows of the same tile first, and of what is left those that are the only ones of their shape on
        either side. A kernel of the user's that was changed is another case of the same shape.
    """
    if by == "case":
        return _paired(before, after, key_of)
    exact = _paired(before, after, lambda record: (_shape(record), _values(record, _TILE)))
    rest = _paired(_single(exact.only_before), _single(exact.only_after), _shape)
    partner = {key_of(old): (old, new) for old, new in (*exact.pairs, *rest.pairs)}
    found = {key_of(new) for _, new in partner.values()}
    return Pairing(
        tuple(partner[key_of(record)] for record in before if key_of(record) in partner),
        tuple(record for record in before if key_of(record) not in partner),
        tuple(record for record in after if key_of(record) not in found),
    )


def tile_changes(before: Record, after: Record) -> tuple[tuple[str, int | None, int | None], ...]:
    """(column, before, after) of every part of the tile that is not the same."""
    return tuple(
        (name, getattr(before, name), getattr(after, name))
        for name in _TILE
        if getattr(before, name) != getattr(after, name)
    )


def _paired(before: Sequence[Record], after: Sequence[Record], key: Callable[[Record], Hashable]) -> Pairing:
    """Pair by a key; of several rows with the same key the first has the first, and so on."""
    waiting: defaultdict[Hashable, list[Record]] = defaultdict(list)
    for record in after:
        waiting[key(record)].append(record)
    pairs, alone = [], []
    for record in before:
        partners = waiting[key(record)]
        if partners:
            pairs.append((record, partners.pop(0)))
        else:
            alone.append(record)
    left = {key_of(record) for records in waiting.values() for record in records}
    return Pairing(tuple(pairs), tuple(alone), tuple(record for record in after if key_of(record) in left))


def _single(records: Sequence[Record]) -> list[Record]:
    """Those that are the only one of their shape."""
    count: defaultdict[Hashable, int] = defaultdict(int)
    for record in records:
        count[_shape(record)] += 1
    return [record for record in records if count[_shape(record)] == 1]


def _shape(record: Record) -> Hashable:
    """All that makes the shape; what a file of an older schema has no column for was not asked for then."""
    added = (
        record.head_dim_v or record.head_dim,
        record.softcap or 0.0,
        *map(bool, (record.bias, record.alibi, record.sinks)),
        record.seqlens,
    )
    return _values(record, _SHAPE), added


def _values(record: Record, names: Sequence[str]) -> tuple[Hashable, ...]:
    return tuple(getattr(record, name) for name in names)
