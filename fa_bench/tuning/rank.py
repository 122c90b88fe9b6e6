"""The order of tiles, and which of them is recommended.

Measured times decide where there are any, else predicted ones, else global bytes. A tile whose result or bytes are
wrong is out; one that spills comes after all that don't, unless times decide: what spilling costs is in no prediction
and in no model, so that its figure is held against no other's either.

A measured order recommends its first. A predicted one is not that sharp: tiles within `CLOSE` of the least are not
told apart, and of those the one that asks for the fewest bytes is recommended, which spares what the prediction leaves
out, L2 and energy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.tuning.known import Known

#: How far predictions may be off against each other: docs/tune.md holds four of them against what FlashAttention-2's
#: authors say of their kernel, and they are off by 1 to 29 %.
CLOSE: Final = 1.2

#: What the order is by.
Basis = Literal["time", "prediction", "bytes"]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Tiles, best first, by ``basis``; ``out`` has those that nothing may be said for."""

    basis: Basis
    order: tuple[Known, ...]
    out: tuple[Known, ...]

    @property
    def least(self) -> Known | None:
        """The first of the order."""
        return self.order[0] if self.order else None

    @property
    def close(self) -> tuple[Known, ...]:
        """Those that the order does not tell apart from its first, which is one of them."""
        least = self.least
        if least is None:
            return ()
        if self.basis != "prediction":
            return (least,)
        return tuple(known for known in self.order if (ratio := self.ratio(known)) is not None and ratio <= CLOSE)

    @property
    def best(self) -> Known | None:
        """The recommendation."""
        return min(self.close, key=lambda known: known.global_bytes, default=None)

    @property
    def fewest_bytes(self) -> Known | None:
        """The tile that asks for the fewest global bytes, spilling or not."""
        return min(self.order, key=lambda known: known.global_bytes, default=None)

    def ratio(self, known: Known) -> float | None:
        """A tile's figure over the first one's, the least; None if it is not known, or of one that spills where not all
        do.
        """
        if self.least is None or _spills(known, self.basis) != _spills(self.least, self.basis):
            return None
        own, least = figure(known, self.basis), figure(self.least, self.basis)
        return None if own is None or not least else own / least


def figure(known: Known, basis: Basis) -> float | None:
    """The figure of a tile that an order goes by."""
    if basis == "time":
        return known.time_ms
    if basis == "prediction":
        return None if known.prediction is None else known.prediction.ms
    return float(known.global_bytes)


def rank(tiles: Iterable[Known]) -> Ranking:
    """Order tiles by the best figure that any of them has."""
    every = tuple(tiles)
    # A tile that could not be run is not out: where no tile could be, bytes are all that is known.
    fit = [known for known in every if not known.wrong]
    basis = _basis(fit)
    comparable = [known for known in fit if figure(known, basis) is not None]
    order = sorted(comparable, key=lambda known: _key(known, basis))
    ordered = {known.case for known in order}
    return Ranking(basis, tuple(order), tuple(known for known in every if known.case not in ordered))


def _basis(fit: Sequence[Known]) -> Basis:
    bases: tuple[Basis, ...] = ("time", "prediction")
    return next((basis for basis in bases if any(figure(known, basis) is not None for known in fit)), "bytes")


def _key(known: Known, basis: Basis) -> tuple[bool, float, int, int]:
    own = figure(known, basis)
    assert own is not None
    return _spills(known, basis), own, known.global_bytes, known.smem_bytes


def _spills(known: Known, basis: Basis) -> bool:
    """Whether a tile spills, where that is in no figure."""
    return basis != "time" and bool(known.spill_bytes)
