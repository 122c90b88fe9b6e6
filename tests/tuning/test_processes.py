"""Trials in processes of their own."""

from __future__ import annotations

import pytest

from fa_bench import algorithms
from fa_bench.backends import open_backend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import nvrtc_available
from fa_bench.model import gpus
from fa_bench.tuning.counts import trial
from fa_bench.tuning.processes import trials


def test_processes_say_what_this_one_says() -> None:
    if (missing := nvrtc_available()) is not None:
        pytest.skip(missing)
    gpu = gpus.get("a100")
    shape = AttentionShape(1, 1, 1, 64, 64, 16)
    cases = [Case("flash2", shape, tile=Tile(16, block_n, 1, 1)) for block_n in (16, 32)]
    backend = open_backend("emulator", jobs=1)
    here = {case: trial(case, algorithms.get("flash2"), backend, gpu) for case in cases}
    there = {made.case: made for made in trials(cases, gpu, jobs=2)}
    assert {made.status for made in there.values()} == {"ok"}
    assert there == here
