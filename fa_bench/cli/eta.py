"""How long a sweep will still take, from the rows that are done.

A row's time is taken as a fixed part (compiling, inputs) plus a part that grows with its work, per
implementation; work is the number of visible (query, key) pairs times the head dimension. Two rows of different
work settle both parts. Until then there is no estimate, and none is shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from fa_bench.cases import Case


class Eta:
    """Learns from finished rows.

    Parameters
    ----------
    cases : sequence of Case
        All that will run.
    """

    def __init__(self, cases: tuple[Case, ...]) -> None:
        self._left: Counter[tuple[str, int]] = Counter((case.impl, _work(case)) for case in cases)
        self._done: dict[str, dict[int, float]] = defaultdict(dict)

    def finished(self, case: Case, seconds: float) -> None:
        """Note that ``case`` took ``seconds``; of two rows of equal work the later one counts."""
        self._left[case.impl, _work(case)] -= 1
        self._done[case.impl][_work(case)] = seconds

    def seconds_left(self) -> float | None:
        """Estimate for all rows that are left, None while an implementation among them can't be judged."""
        total = 0.0
        for (impl, work), count in self._left.items():
            if count <= 0:
                continue
            seconds = self._estimate(impl, work)
            if seconds is None:
                return None
            total += count * seconds
        return total

    def _estimate(self, impl: str, work: int) -> float | None:
        done = self._done[impl]
        if work in done:
            return done[work]
        if len(done) < 2:
            return None
        # The two largest rows: the smallest hold the first compilation and little work.
        small, large = sorted(done)[-2:]
        slope = max(0.0, (done[large] - done[small]) / (large - small))
        return max(0.0, done[large] + slope * (work - large))


def _work(case: Case) -> int:
    return case.shape.slices * case.shape.visible_pairs * case.shape.head_dim
