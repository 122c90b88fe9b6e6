"""Algorithms by name."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.errors import UsageError


def test_every_name_leads_to_the_algorithm_that_bears_it() -> None:
    assert algorithms.names() == ("standard", "flash1", "flash2")
    for name in algorithms.names():
        assert algorithms.get(name).name == name
        assert algorithms.get(name) is algorithms.get(name)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'flash-2'; there are standard, flash1, flash2") as refused:
        algorithms.get("flash-2")
    assert refused.value.hint == "Did you mean flash2?"
    with pytest.raises(UsageError) as refused:
        algorithms.get("quicksort")
    assert refused.value.hint == ""
