"""The process in which the cases of a `fa_bench.backends.remote.RemoteBackend` run.

``python -m fa_bench.backends.child`` answers requests from its standard input on its standard output (see
:mod:`fa_bench.backends.wire`). Whatever else a library prints there goes to standard error. It knows one backend, and
nothing of sweeps.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from fa_bench import algorithms
from fa_bench.backends.base import TakesTurns
from fa_bench.backends.wire import BEAT_S, Answer, Beat, Hello, Request, Unreadable, receive, send
from fa_bench.errors import Defect, FaBenchError, described

if TYPE_CHECKING:
    from fa_bench.algorithms.user import UserAlgorithm


def main() -> None:
    """Answer until the parent closes the pipe or is gone."""
    requests, answers = _pipes()
    inbox: queue.SimpleQueue[Request | Unreadable] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, inbox), daemon=True).start()
    working = threading.Event()
    speaking = threading.Lock()
    threading.Thread(target=_beat, args=(answers, working, speaking), daemon=True).start()
    backend: Any = None
    while True:
        request = inbox.get()
        working.set()
        try:
            if isinstance(request, Unreadable):
                raise request
            for algorithm in request.added:
                algorithms.add(cast("UserAlgorithm", algorithm))
            if request.method == "open":
                backend = request.args[0]()
                value: Any = Hello(backend.name, backend.device, isinstance(backend, TakesTurns))
            else:
                value = getattr(backend, request.method)(*request.args)
                if request.method == "run_together":
                    value = _sendable(value)
            answer = Answer(value)
        except Exception as error:
            answer = Answer(error=sendable(error))
        working.clear()
        with speaking:
            send(answers, answer)


def sendable(error: Exception) -> Exception:
    """``error`` as the parent can read it: a known one as itself, others as their type, message and place."""
    if isinstance(error, FaBenchError):
        return error
    return MemoryError() if isinstance(error, MemoryError) else Defect(described(error))


def _sendable(outcomes: Sequence[Any]) -> list[Any]:
    return [sendable(outcome) if isinstance(outcome, Exception) else outcome for outcome in outcomes]


def _pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes of the protocol; afterwards standard input is empty, and standard output is standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def _listen(requests: IO[bytes], inbox: queue.SimpleQueue[Request | Unreadable]) -> None:
    """Take requests; without a parent the process ends at once, in the middle of a case too."""
    request: Request | Unreadable | None
    while True:
        try:
            request = receive(requests)
        except Unreadable as error:
            request = error
        if request is None:
            os._exit(0)
        inbox.put(request)


def _beat(answers: IO[bytes], working: threading.Event, speaking: threading.Lock) -> None:
    pause = threading.Event()
    while True:
        working.wait()
        pause.wait(BEAT_S)
        if working.is_set():
            with speaking:
                send(answers, Beat())


if __name__ == "__main__":
    main()
