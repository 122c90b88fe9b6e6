"""Groups of cases through one set of backends in this thread, or through several sets at the same time.

What happens comes back as events in the caller's thread, which alone writes and shows. A set of backends is used by
one thread at a time. It is not known here what a backend is, what rows are for, or how a run ends: after Ctrl-C the
caller closes the backends, which ends what still runs in them.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.backends.base import Backend, BackendName
from fa_bench.sweep.groups import Group
from fa_bench.sweep.journal import CaseRows

Lane = Mapping[BackendName, Backend]

#: Seconds after which a wait looks up: Windows delivers Ctrl-C only then.
_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Started:
    """A group is about to run."""

    group: Group


@dataclass(frozen=True, slots=True)
class Done:
    """A group has run: a row for each of its cases, and how long all of it took."""

    group: Group
    rows: Sequence[CaseRows]
    seconds: float


Run = Callable[[Group, Lane], Done]


def run_groups(groups: Sequence[Group], lanes: Sequence[Lane], run: Run) -> Iterator[Started | Done]:
    """Run each group in a lane, ``Started`` before and ``Done`` after it; with one lane in the caller's thread.

    With several lanes groups start in their order, and each lane takes the next as soon as it is free. An exception
    of ``run`` ends the iteration.
    """
    if len(lanes) > 1:
        yield from _side_by_side(groups, lanes, run)
        return
    for group in groups:
        yield Started(group)
        yield run(group, lanes[0])


def _side_by_side(groups: Sequence[Group], lanes: Sequence[Lane], run: Run) -> Iterator[Started | Done]:
    todo = deque(groups)
    events: queue.SimpleQueue[Started | Done | BaseException | None] = queue.SimpleQueue()

    def work(lane: Lane) -> None:
        try:
            while True:
                try:
                    group = todo.popleft()
                except IndexError:
                    return
                events.put(Started(group))
                events.put(run(group, lane))
        except BaseException as error:
            events.put(error)
        finally:
            events.put(None)

    # Daemons: one that waits for a backend must not keep the program from ending.
    threads = [threading.Thread(target=work, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    working = len(threads)
    try:
        while working:
            try:
                event = events.get(timeout=_WAIT_S)
            except queue.Empty:
                continue
            if event is None:
                working -= 1
            elif isinstance(event, BaseException):
                raise event
            else:
                yield event
    finally:
        todo.clear()
