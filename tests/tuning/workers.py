"""Backends for worker processes that die or never end, and a tuning with them as a program of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from made_tiles import SHAPE, CountingBackend

from fa_bench import algorithms
from fa_bench.backends.base import RunResult
from fa_bench.backends.remote import open_remote
from fa_bench.cases import Case
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.tuning.processes import trials
from fa_bench.tuning.run import Question, tune

GPU = gpus.get("a100")


class Dying(CountingBackend):
    """Dies of every tile of 32 rows of Q, and once of one of 64: a file in ``folder`` says that it has."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._died = folder / "died"

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        assert case.tile is not None
        once = case.tile.block_m == 64 and not self._died.exists()
        if once:
            self._died.touch()
        if once or case.tile.block_m == 32:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(case, gpu)


class Endless(CountingBackend):
    """Runs tiles of 256 rows of Q, which come first, and then never ends; its process is a file in ``folder``."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        assert case.tile is not None
        if case.tile.block_m < 256:
            (self._folder / str(os.getpid())).touch()
            time.sleep(600)
        return super().run(case, gpu)


def main(folder: Path) -> None:
    """Tune with two endless processes, and print what became of it."""
    # Started in the background of a shell it would ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = Question(Case("flash2", SHAPE), algorithms.get("flash2"), GPU, (1,))
    opener = partial(open_remote, partial(Endless, folder))
    tuning = tune(asked, lambda cases: trials(cases, GPU, 2, opener))
    sys.stdout.write(f"interrupted={tuning.interrupted} tried={len(tuning.tried)}\n")


if __name__ == "__main__":
    import workers

    workers.main(Path(sys.argv[1]))
