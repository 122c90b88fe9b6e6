"""A backend whose cases run in a process of their own, so that what breaks that process breaks one case.

A kernel that makes an illegal access leaves its process without a device; a driver or a library may crash it, the
system may kill it, and a kernel may never end. The case that ran is blamed, and the next one runs in a fresh process.
The parent imports no CUDA and makes no context. It does not know which backend the child has, nor what a sweep is.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import fa_bench
from fa_bench import algorithms
from fa_bench.backends.base import Backend, BackendName, Outcome, RunResult
from fa_bench.backends.wire import BEAT_S, Answer, Hello, Request, Unreadable, receive, send
from fa_bench.cases import Case
from fa_bench.errors import DeviceLost, DeviceUnavailable, KernelFault
from fa_bench.model.gpu import Gpu
from fa_bench.processes import end_group
from fa_bench.units import format_duration

#: Seconds without a beat after which a child is given up: it may swap, or a library may hold Python's lock for long.
SILENCE_S: Final = 120.0
#: Seconds for anything but a case: opening a device imports libraries and makes a context.
QUESTION_S: Final = 300.0
#: Seconds that the end of a dead child's pipe is waited for.
LISTENER_S: Final = 10.0

Opener = Callable[[], Backend]


def open_remote(
    opener: Opener,
    *,
    case_limit_s: float | None = None,
    silence_s: float = SILENCE_S,
    question_s: float = QUESTION_S,
) -> RemoteBackend:
    """Start a child and open a backend in it; it takes turns if that one does.

    Parameters
    ----------
    opener : callable
        Opens the backend, in the child: a function of a module, or a `functools.partial` of one.
    case_limit_s : float, optional
        Seconds that a case may take; without it only a child that says nothing is given up.
    silence_s : float
        Seconds without a sign of life after which a child is given up.
    question_s : float
        Seconds for opening the backend, and for a question about its memory or a case's.

    Raises
    ------
    DeviceUnavailable
        If the backend can't be opened here, its process dies of that or takes too long.
    """
    child = _Child(silence_s)
    try:
        hello = child.ask(Request("open", (opener,)), question_s)
    except BaseException as error:
        child.end()
        if isinstance(error, _Lost):
            raise DeviceUnavailable(f"The process that was to open the device {error}.") from None
        raise
    kind = RemoteTurns if hello.takes_turns else RemoteBackend
    return kind(opener, child, hello, case_limit_s=case_limit_s, silence_s=silence_s, question_s=question_s)


class RemoteBackend:
    """The backend in the child, see `open_remote`. A case whose process dies runs once more, in a fresh one."""

    def __init__(
        self,
        opener: Opener,
        child: _Child,
        hello: Hello,
        *,
        case_limit_s: float | None,
        silence_s: float,
        question_s: float,
    ) -> None:
        self.name: BackendName = hello.name
        self.device = hello.device
        self._opener = opener
        self._case_limit_s = case_limit_s
        self._silence_s = silence_s
        self._question_s = question_s
        self._child: _Child | None = child
        self._known: set[str] = set()
        self._used = False  # whether this child had a case before
        self._closed = False
        self._changing = threading.Lock()

    def implementations(self) -> Sequence[str]:
        """As the child's backend says."""
        return tuple(self._plan("implementations"))

    def free_memory_bytes(self) -> int | None:
        """As the child's backend says."""
        free: int | None = self._plan("free_memory_bytes")
        return free

    def required_bytes(self, case: Case) -> int:
        """As the child's backend says."""
        return int(self._plan("required_bytes", case))

    def run(self, case: Case, gpu: Gpu) -> RunResult:
        """Run ``case`` in the child.

        Raises
        ------
        KernelFault
            Also when the child dies of the case twice, or when it takes longer than it may.
        """
        used = self._used
        try:
            return self._run(case, gpu)
        except DeviceLost:
            if not used:
                raise
        except _Lost as lost:
            if lost.hung:
                raise _blamed(case, lost) from None
        return self._last_try(case, gpu)

    def close(self) -> None:
        """End the child, in the middle of a case too. May be called from another thread than the one that runs."""
        with self._changing:
            self._closed = True
        self._drop()

    def _run(self, case: Case, gpu: Gpu) -> RunResult:
        result: RunResult = self._ask("run", case, gpu, limit_s=self._case_limit_s)
        self._used = True
        return result

    def _last_try(self, case: Case, gpu: Gpu) -> RunResult:
        try:
            return self._run(case, gpu)
        except _Lost as lost:
            raise _blamed(case, lost) from None

    def _plan(self, method: str, *args: Any) -> Any:
        try:
            return self._ask(method, *args, limit_s=self._question_s)
        except _Lost as lost:
            raise DeviceUnavailable(f"The process of {self.device} {lost}.") from None

    def _ask(self, method: str, *args: Any, limit_s: float | None) -> Any:
        """Ask the child, a fresh one if the last is gone. After a fault, which may have cost the device, it goes."""
        try:
            child = self._running()
            new = {name: algorithms.get(name) for name in algorithms.added() if name not in self._known}
            value = child.ask(Request(method, args, tuple(new.values())), limit_s)
        except (_Lost, KernelFault, KeyboardInterrupt):
            self._drop()
            raise
        self._known |= new.keys()
        return value

    def _running(self) -> _Child:
        with self._changing:
            if self._closed:
                raise DeviceUnavailable(f"The process of {self.device} was ended.")
            if self._child is not None:
                return self._child
            self._child = fresh = _Child(self._silence_s)
            self._known = set()
        try:
            fresh.ask(Request("open", (self._opener,)), self._question_s)
        except BaseException:
            self._drop()
            raise
        return fresh

    def _drop(self) -> None:
        with self._changing:
            if self._child is not None:
                self._child.end()
            self._child, self._used = None, False


class RemoteTurns(RemoteBackend):
    """A `RemoteBackend` whose child takes turns."""

    def run_together(self, cases: Sequence[Case], gpu: Gpu) -> Sequence[Outcome]:
        """Run cases together in the child.

        If that costs the device, those that did not finish run again in a fresh child: together where another is known
        to have done it, one of them or of the cases before, else one by one, so that each is blamed for what it does
        alone.
        """
        used = self._used
        limit_s = None if self._case_limit_s is None else self._case_limit_s * len(cases)
        try:
            outcomes: Sequence[Outcome] = self._ask("run_together", tuple(cases), gpu, limit_s=limit_s)
        except (_Lost, DeviceLost):
            return [self._alone(case, gpu) for case in cases]
        self._used = True
        if any(isinstance(outcome, KernelFault) for outcome in outcomes):
            self._drop()
        lost = [case for case, outcome in zip(cases, outcomes, strict=True) if isinstance(outcome, DeviceLost)]
        together = len(lost) > 1 and (used or len(lost) < len(cases))
        again = iter(self.run_together(lost, gpu) if together else [self._alone(case, gpu) for case in lost])
        return [next(again) if isinstance(outcome, DeviceLost) else outcome for outcome in outcomes]

    def _alone(self, case: Case, gpu: Gpu) -> Outcome:
        try:
            return self._last_try(case, gpu)
        except Exception as error:
            return error


class _Lost(Exception):
    """A child that is no more. Its text goes on from "the process"; ``hung``: it had to be ended."""

    def __init__(self, text: str, *, hung: bool = False) -> None:
        super().__init__(text)
        self.hung = hung


def _blamed(case: Case, lost: _Lost) -> KernelFault:
    return KernelFault(f"{case.impl}: the process that ran it {lost}.")


class _Child:
    """One process and its pipes."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fa_bench.backends.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
            **_away_from_ctrl_c(),
        )
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        # A thread, since Windows can't wait for a pipe with a limit.
        assert self._process.stdout is not None
        message: Any = True
        with self._process.stdout as answers:
            while message is not None:
                try:
                    message = receive(answers)
                except Unreadable as error:
                    message = Answer(error=error)
                except Exception:  # what is no message at all is the end
                    message = None
                self._inbox.put(message)

    def ask(self, request: Request, limit_s: float | None) -> Any:
        """The answer; an error of the child is raised as itself.

        Time is counted in the child's beats and in waits without one, not by a clock: a parent that was stopped for a
        while must not take its child for dead.

        Raises
        ------
        _Lost
            If the child dies, is silent, or beats longer than ``limit_s``.
        """
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, request)
        except (OSError, ValueError):  # its end is closed, or this one is: another thread ended the child
            raise _Lost(self._death()) from None
        beats = silent = 0
        while True:
            try:
                message = self._inbox.get(timeout=BEAT_S)
            except queue.Empty:
                silent += 1
                if silent * BEAT_S > self._silence_s:
                    raise _Lost(f"gave no sign of life for {format_duration(self._silence_s)}", hung=True) from None
                continue
            if message is None:
                raise _Lost(self._death())
            if isinstance(message, Answer):
                if message.error is not None:
                    raise message.error
                return message.value
            silent = 0
            beats += 1
            if limit_s is not None and beats * BEAT_S > limit_s:
                raise _Lost(f"did not end within {format_duration(limit_s)}", hung=True)

    def _death(self) -> str:
        try:
            code = self._process.wait(self._silence_s)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        oom = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"died of {name}{oom}"

    def end(self) -> None:
        """End the process and what it started, whatever they do."""
        end_group(self._process)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a request that was never read
            self._process.stdin.close()
        self._listener.join(LISTENER_S)  # a process that left the group may have inherited the pipe, and keep it open


def child_environment() -> dict[str, str]:
    """This process's, with this fa-bench found first."""
    here = str(Path(fa_bench.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}


def _away_from_ctrl_c() -> dict[str, Any]:
    """The terminal's Ctrl-C is for the parent, which ends its child."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}
