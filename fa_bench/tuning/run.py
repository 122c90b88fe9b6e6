"""A tuning from its question to its answer: candidates, trials, times, order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from fa_bench.algorithms.base import Algorithm
from fa_bench.cases import Case
from fa_bench.errors import DeviceUnavailable, UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.records import Record
from fa_bench.tuning.counts import Trial, small_cases
from fa_bench.tuning.known import Known, known
from fa_bench.tuning.rank import Ranking, rank
from fa_bench.tuning.result import RuleOutcome, Tuning
from fa_bench.tuning.rules import Rule, rules
from fa_bench.tuning.tiles import Candidates, candidates, grid

#: Gives the trials of some cases, in any order, as they are done; closing it ends what still runs.
Tryer = Callable[[Sequence[Case]], Generator[Trial, None, None]]
#: Runs cases on a GPU, their launches in turns; one record per case, in their order.
Timer = Callable[[Sequence[Case]], Sequence[Record]]
#: DRAM bytes of a case in emulated caches.
DramCounter = Callable[[Case], int]
#: What is being done, in words.
Announce = Callable[[str], None]

#: Cases that are timed in turns: the buffers of all of them are on the device meanwhile.
_TOGETHER: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """What is tuned: an implementation and a shape (its tile is ignored), for a GPU, with these depths of buffering."""

    bare: Case
    algorithm: Algorithm
    gpu: Gpu
    stages: tuple[int, ...]


def question(bare: Case, algorithm: Algorithm, gpu: Gpu, stages: tuple[int, ...]) -> Question:
    """Check that an implementation can be tuned.

    Raises
    ------
    UsageError
        If it has no tile or no model, or if its kernels are built for their length, so that a small case says nothing
        of a large one.
    """
    if not algorithm.uses_tile:
        raise UsageError(f"{bare.impl} has no tile that could be chosen.")
    case = replace(bare, tile=algorithm.auto_tile(bare, gpu))
    if algorithm.traffic(case) is None or algorithm.work(case) is None:
        raise UsageError(
            f"{bare.impl} has no model of its traffic and work, which tune compares tiles by.",
            hint="sweep --block runs it with several tiles.",
        )
    specs = {launch.kernel for launch in algorithm.program(case).launches}
    small = [{launch.kernel for launch in algorithm.program(c).launches} for c in small_cases(case)]
    if any(other != specs for other in small):
        raise UsageError(
            f"{bare.impl} has kernels that are built for the length, so small cases don't say what long ones do.",
            hint="tune takes flash1 and flash2; sweep --block runs several tiles of any kernel.",
        )
    return Question(bare, algorithm, gpu, stages)


def tune(
    asked: Question,
    attempt: Tryer,
    timer: Timer | None = None,
    announce: Announce = lambda text: None,
    dram: DramCounter | None = None,
) -> Tuning:
    """Try every tile, and time those that passed where there is a GPU; an interrupt ends it with what is known.

    Parameters
    ----------
    asked : Question
    attempt : callable
        Runs the small cases of each (`fa_bench.tuning.counts.trial`), here or in several processes.
    timer : callable, optional
        Runs the cases at the shape that was asked about.
    announce : callable
    dram : callable, optional
        Counts DRAM bytes of a case. That takes long, so it is asked about the recommendation and the rules only.

    Raises
    ------
    UsageError
        If the GPU can run none of the tiles.
    DeviceUnavailable
        If none of them could be run here.
    """
    chosen = rules(asked.bare, asked.algorithm, asked.gpu)
    possible = candidates(asked.bare, asked.algorithm, asked.gpu, grid(asked.stages))
    of_rules = [_candidates_of(asked, rule) for rule in chosen]
    cases = tuple(dict.fromkeys((*possible.cases, *(case for part in of_rules for case in part.cases))))
    if not cases:
        raise UsageError(possible.refused[0].reason)
    tried: dict[Case, Known] = {}
    interrupted = False
    try:
        announce(f"0/{len(cases)} tiles tried")
        with closing(attempt(cases)) as trials:
            for number, made in enumerate(trials, start=1):
                tried[made.case] = known(made, asked.algorithm, asked.gpu)
                announce(f"{number}/{len(cases)} tiles tried; {asked.bare.impl} {made.case.tile}")
        if timer is not None:
            for timed in _timed(rank(tried.values()), timer, announce):
                tried[timed.case] = timed
        if dram is not None:
            for one in _of_interest(rank(tried.values()), chosen, of_rules):
                announce(f"DRAM bytes of {asked.bare.impl} {one.tile}")
                tried[one.case] = replace(one, dram_bytes_emulated=dram(one.case))
    except KeyboardInterrupt:
        if not tried:
            raise
        interrupted = True
    _demand_one(tuple(tried.values()))
    ranking = rank(tried[case] for case in cases if case in tried)
    outcomes = tuple(_outcome(rule, part, ranking) for rule, part in zip(chosen, of_rules, strict=True))
    return Tuning(asked.bare, asked.gpu, asked.stages, ranking, possible.refused, outcomes, len(cases), interrupted)


def _demand_one(tried: Sequence[Known]) -> None:
    """Refuse to say anything where no tile could be run: by its bytes alone none can be recommended."""
    if all(made.trial.status == "unknown" and made.time_ms is None for made in tried):
        raise DeviceUnavailable(
            f"None of {len(tried)} tiles could be run. {tried[0].trial.reason}", hint="See fa-bench doctor."
        )


def _candidates_of(asked: Question, rule: Rule) -> Candidates:
    """A rule's tile as cases or refused: in each of the depths that were asked for, of which only our own says one."""
    own = rule.name == "auto" and rule.tile.stages in asked.stages
    tiles = [rule.tile] if own else [replace(rule.tile, stages=stages) for stages in asked.stages]
    return candidates(asked.bare, asked.algorithm, asked.gpu, tiles)


def _outcome(rule: Rule, part: Candidates, ranking: Ranking) -> RuleOutcome:
    """What became of a rule's tile, in the depth that the order prefers, as on the map."""
    made = next((made for made in (*ranking.order, *ranking.out) if made.case in part.cases), None)
    return RuleOutcome(rule, made, None if part.cases else next(iter(part.refused), None))


def _of_interest(ranking: Ranking, chosen: Sequence[Rule], of_rules: Sequence[Candidates]) -> Sequence[Known]:
    """The recommendation and the rules' tiles, each once, unless something is wrong with it."""
    outcomes = (_outcome(rule, part, ranking).known for rule, part in zip(chosen, of_rules, strict=True))
    made = {one.case: one for one in (ranking.best, *outcomes) if one is not None and not one.wrong}
    return tuple(made.values())


def _timed(ranking: Ranking, timer: Timer, announce: Announce) -> Iterator[Known]:
    """The tiles that passed, with their times, the most promising first, a few at a time in turns."""
    waiting = ranking.order
    for start in range(0, len(waiting), _TOGETHER):
        group = waiting[start : start + _TOGETHER]
        announce(f"{start}/{len(waiting)} tiles timed")
        records = timer([made.case for made in group])
        yield from (replace(made, record=record) for made, record in zip(group, records, strict=True))
