"""The list of sources."""

from __future__ import annotations

import pytest

from fa_bench.errors import UsageError
from fa_bench.validation.sources import SOURCES, chosen


def test_all_of_them_run_if_none_is_named() -> None:
    assert chosen([]) == list(SOURCES) == ["ncu-traffic", "gb10"]


def test_a_source_that_is_named_twice_runs_once() -> None:
    assert chosen(["gb10", "gb10"]) == ["gb10"]


def test_an_unknown_source_is_told_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        chosen(["gb1"])
    assert (caught.value.message, caught.value.hint) == ("There is no source 'gb1'.", "Did you mean 'gb10'?")
