"""``--l2``, ``--timer`` and ``--strict-timer``: what reaches the backend, and where there is nothing to choose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fa_bench import backends
from fa_bench.records import RECORDS

SWEEP = (
    "sweep",
    "--seq",
    "512",
    "--batch",
    "1",
    "--heads",
    "1",
    "--impl",
    "flash2",
    "--gpu",
    "a100-sxm-80",
    "--out",
    "run",
)


@pytest.fixture
def given(fakes: Callable, emulator: Callable, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A GPU that only the test has; the options that its backend is opened with."""
    gpu, options = emulator("cuda"), {}
    fakes(gpu)

    def opened(name: str, **asked: Any) -> Any:
        options.update(asked)
        return gpu

    monkeypatch.setattr(backends, "open_apart", opened)
    return options


def test_being_strict_takes_a_timer_to_be_strict_about(cli: Callable, given: dict[str, Any]) -> None:
    ran = cli(*SWEEP, "--strict-timer")
    assert (ran.code, given) == (2, {})
    assert "Add --timer graph." in ran.err


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), ("cold", "events", False)),
        (("--l2", "warm"), ("warm", "events", False)),
        (("--timer", "graph"), ("cold", "graph", False)),
        (("--timer", "graph", "--strict-timer"), ("cold", "graph", True)),
    ],
)
def test_what_was_asked_for_reaches_the_gpus_backend(
    cli: Callable, given: dict[str, Any], args: tuple[str, ...], expected: tuple[str, str, bool]
) -> None:
    assert cli(*SWEEP, *args).code == 0
    assert (given["l2"], given["timer"], given["strict_timer"]) == expected


def test_the_timer_and_the_state_of_the_cache_are_settings_of_the_run(cli: Callable, given: dict[str, Any]) -> None:
    assert cli(*SWEEP, "--l2", "warm").code == 0
    # Rows of a cold cache don't go into a run of a warm one.
    ran = cli(*SWEEP, "--resume")
    assert ran.code == 2 and "--l2" in ran.err
    assert len(RECORDS.read(Path("run/records.csv")).rows) == 1


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--l2", "hot"), "--l2: there is no 'hot'."),
        (("--timer", "grpah"), "--timer: there is no 'grpah'."),
    ],
)
def test_a_choice_that_does_not_exist_is_exit_code_2(
    cli: Callable, given: dict[str, Any], args: tuple[str, ...], sentence: str
) -> None:
    ran = cli(*SWEEP, *args)
    assert ran.code == 2 and sentence in ran.err


def test_without_a_gpu_there_is_nothing_to_choose(
    cli: Callable, fakes: Callable, emulator: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes(emulator())
    ran = cli(*SWEEP, "--device", "emulator", "--timer", "graph")
    assert ran.code == 2 and "--timer graph needs a GPU: --device emulator is none." in ran.err
    monkeypatch.setattr(backends, "why_not", lambda name: "CuPy is not installed." if name == "cuda" else None)
    ran = cli(*SWEEP, "--l2", "warm")
    assert ran.code == 3 and "--l2 warm needs a GPU. CuPy is not installed." in ran.err
