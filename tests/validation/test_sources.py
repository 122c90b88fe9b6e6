"""The list of sources."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fa_bench.errors import UsageError
from fa_bench.validation.run import Runner
from fa_bench.validation.sources import SOURCES, Tools, chosen


def test_all_of_them_run_if_none_is_named() -> None:
    assert chosen([]) == list(SOURCES)
    assert list(SOURCES) == ["fa1-figure2", "fa1-memory", "fa1-runtimes", "times", "held-out", "ncu-traffic", "gb10"]


def test_a_source_that_is_named_twice_runs_once() -> None:
    assert chosen(["gb10", "gb10"]) == ["gb10"]


def test_an_unknown_source_is_told_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        chosen(["gb1"])
    assert (caught.value.message, caught.value.hint) == ("There is no source 'gb1'.", "Did you mean 'gb10'?")


def test_only_what_runs_kernels_asks_for_the_runner(predictor: Callable, full_backend: Callable) -> None:
    backend = full_backend()
    made: list[Runner] = []

    def runner() -> Runner:
        made.append(Runner(backend, with_spills=lambda case, gpu, spills: 1))
        return made[-1]

    tools = Tools(predictor(), runner, quick=True)
    for name, source in SOURCES.items():
        made.clear()
        assert source.validate(tools).source == name
        assert bool(made) is source.runs
