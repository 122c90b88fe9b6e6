"""Algorithms by name."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import UsageError
from fa_bench.model import gpus


def test_every_name_leads_to_the_algorithm_that_bears_it() -> None:
    assert algorithms.names() == ("standard", "flash1", "flash2", "flash2-atomic")
    for name in algorithms.names():
        assert algorithms.get(name).name == name
        assert algorithms.get(name) is algorithms.get(name)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'flash-2'; there are standard, flash1, flash2, flash2-atomic") as refused:
        algorithms.get("flash-2")
    assert refused.value.hint == "Did you mean flash2?"
    with pytest.raises(UsageError) as refused:
        algorithms.get("quicksort")
    assert refused.value.hint == ""


@pytest.mark.parametrize("name", algorithms.names())
def test_a_grid_beyond_the_limit_of_its_axis_is_refused(name: str) -> None:
    """2^30 slices: with two tiles of 64 rows each (flash2, and standard's more), 2^31 CTAs are one too many.

    flash1 has one CTA per slice, but its initialisation covers 2^30 * 128 * 64 elements of O_acc.
    """
    gpu = gpus.get("a100-sxm-80")
    algorithm = algorithms.get(name)
    for batch, refused in ((2**14, True), (1, False)):
        shape = AttentionShape(batch, 2**16, 2**16, 128, 128, 64)
        case = Case(name, shape, tile=algorithm.resolve(Case(name, shape), Tile(64, 64)))
        reason = algorithm.unsupported(case, gpu)
        assert (reason is not None and "grid" in reason) is refused, reason
