"""How long a sweep will still take, from the rows that are done.

A row's time is taken as a fixed part (compiling, inputs) plus a part that grows with its work, per implementation
and type. Work is what the tiles of our kernels execute, and the visible (query, key) pairs times the head dimension
for others. Two rows of different work settle both parts. Until then there is no estimate, and none is shown; nor is
one where the rows that are left are so much larger than those done that it would be the noise of small rows, enlarged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from fa_bench.cases import Case

#: How many times the work of the largest finished row an estimate may reach.
_REACH: Final = 64
#: How many times the work of the smaller row the larger one has, of two that settle the fixed part.
_LEVER: Final = 2

#: Rows whose times follow one line: implementation and type.
_Kind = tuple[str, str]


class Eta:
    """Learns from finished rows.

    Parameters
    ----------
    cases : sequence of Case
        All that will run.
    """

    def __init__(self, cases: tuple[Case, ...]) -> None:
        self._left: Counter[tuple[_Kind, int]] = Counter((_kind(case), _work(case)) for case in cases)
        self._done: dict[_Kind, dict[int, float]] = defaultdict(dict)

    def finished(self, case: Case, seconds: float) -> None:
        """Note that ``case`` took ``seconds``; of two rows of equal work the later one counts."""
        self._left[_kind(case), _work(case)] -= 1
        self._done[_kind(case)][_work(case)] = seconds

    def seconds_left(self) -> float | None:
        """Estimate for all rows that are left, None while an implementation among them can't be judged."""
        total = 0.0
        for (kind, work), count in self._left.items():
            if count <= 0:
                continue
            seconds = self._estimate(kind, work)
            if seconds is None:
                return None
            total += count * seconds
        return total

    def _estimate(self, kind: _Kind, work: int) -> float | None:
        done = self._done[kind]
        if work in done:
            return done[work]
        if len(done) < 2 or work > _REACH * max(done):
            return None
        large = max(done)
        smaller = [other for other in done if other * _LEVER <= large]
        if not smaller:  # too close to tell the fixed part, which is then left out
            return done[large] * work / large
        # The largest of them: the smallest rows hold the first compilation and little work.
        small = max(smaller)
        slope = max(0.0, (done[large] - done[small]) / (large - small))
        return max(0.0, done[large] + slope * (work - large))


def _kind(case: Case) -> _Kind:
    return case.impl, case.dtype


def _work(case: Case) -> int:
    from fa_bench import algorithms

    work = algorithms.get(case.impl).work(case) if case.impl in algorithms.names() and case.tile is not None else None
    if work is not None:
        return work.flops_executed
    return case.shape.total_visible_pairs * case.shape.head_dim
