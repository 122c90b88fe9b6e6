"""A backend for the child of a remote one, whose cases do what their implementation is called."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fa_bench import algorithms
from fa_bench.backends.base import Outcome, RunResult
from fa_bench.cases import Case
from fa_bench.errors import DeviceLost, DeviceUnavailable, FaBenchError, KernelFault, Unsupported
from fa_bench.model.gpu import Gpu


class Unreadable(FaBenchError):
    """Is pickled, and can't be read again."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("not a number",)


class Fake:
    """Answers with the process that answers, in ``mem_source``."""

    name = "cuda"
    device = "Fake GPU"

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lost = False

    def implementations(self) -> Sequence[str]:
        return ("good", "dies", *algorithms.added())

    def free_memory_bytes(self) -> int | None:
        return 1 << 30

    def required_bytes(self, case: Case) -> int:
        if case.impl == "unsupported":
            raise Unsupported("No such kernel.")
        if case.impl == "hangs":
            time.sleep(600)
        return case.shape.seq_q

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        if self._lost:
            raise DeviceLost("An earlier case's fault destroyed the context.")
        self._lost = case.impl in ("faults", "lost", "good-but-last")
        _act(case.impl, self._folder)
        return RunResult(mem_source=str(os.getpid()), device_reason=gpu.slug)

    def close(self) -> None:
        pass


class FakeTurns(Fake):
    """Runs cases together: one that loses the device takes those after it along, as on a GPU."""

    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for case in cases:
            try:
                outcomes.append(replace(self.run(case, gpu), nvml_mem_source=f"{len(cases)} together"))
            except Exception as error:
                outcomes.append(error)
        return outcomes


def open_fake(folder: Path | None = None, *, turns: bool = False) -> Fake:
    return FakeTurns(folder) if turns else Fake(folder)


def open_nothing() -> Fake:
    raise DeviceUnavailable("There is no GPU.", hint="Buy one.")


def open_and_die() -> Fake:
    os._exit(7)


def open_and_hang() -> Fake:
    time.sleep(600)
    raise AssertionError("it was ended long before")


def _act(what: str, folder: Path | None) -> None:
    if what == "prints":
        sys.stdout.write("a line of a library\n")
        os.write(1, b"a line of its C code\n")
        sys.stdout.flush()
    elif what == "unsupported":
        raise Unsupported("No such kernel.", hint="Take another.")
    elif what == "instruction":
        from fa_bench.ptx.isa_row import UnsupportedInstruction

        raise UnsupportedInstruction("wgmma.mma_async", 212)
    elif what == "unreadable":
        raise Unreadable("no pickle makes me again")
    elif what == "defect":
        raise ZeroDivisionError("division by zero")
    elif what == "oom":
        raise MemoryError("not passed on")
    elif what == "faults":
        raise KernelFault("faults failed: illegal address.")
    elif what == "lost":
        raise DeviceLost("lost failed: illegal address.")
    elif what == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "dies-once":
        assert folder is not None
        marker = folder / "died"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif what == "exits":
        os._exit(3)
    elif what == "hangs":
        time.sleep(600)
    elif what in ("forks", "daemon"):
        # A process that inherits the pipe; one of the two leaves the group too.
        assert folder is not None
        if (child := os.fork()) == 0:
            if what == "daemon":
                os.setsid()
            time.sleep(60)
            os._exit(0)
        while what == "daemon" and os.getsid(child) != child:
            time.sleep(0.01)
        (folder / "forked").write_text(str(child))
    elif what == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
