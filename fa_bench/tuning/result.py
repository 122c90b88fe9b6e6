"""What a tuning ends with."""

from __future__ import annotations

from dataclasses import dataclass

from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu
from fa_bench.tuning.known import Known
from fa_bench.tuning.rank import Ranking
from fa_bench.tuning.rules import Rule
from fa_bench.tuning.tiles import Refused


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What became of a rule's tile: known like any other, refused, or, after an interrupt, neither."""

    rule: Rule
    known: Known | None
    refused: Refused | None


@dataclass(frozen=True, slots=True)
class Tuning:
    """The answer.

    Parameters
    ----------
    bare : Case
        What was asked about; its tile means nothing.
    gpu : Gpu
    stages : tuple of int
        Depths of the K/V buffering that were tried.
    ranking : Ranking
        Of all tiles that were tried, those of the rules too.
    refused : tuple of Refused
        Tiles of the map that can't run, with reasons.
    rules : tuple of RuleOutcome
    total : int
        Tiles that were to be tried; more than were if ``interrupted``.
    interrupted : bool
    """

    bare: Case
    gpu: Gpu
    stages: tuple[int, ...]
    ranking: Ranking
    refused: tuple[Refused, ...]
    rules: tuple[RuleOutcome, ...]
    total: int
    interrupted: bool = False

    @property
    def tried(self) -> tuple[Known, ...]:
        """Every tile that was tried, best first, those that are out at the end."""
        return (*self.ranking.order, *self.ranking.out)

    @property
    def wrong(self) -> tuple[Known, ...]:
        """Tiles whose result or bytes are wrong, or that failed."""
        return tuple(known for known in self.tried if known.wrong)
