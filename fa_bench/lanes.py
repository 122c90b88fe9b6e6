"""Work through one lane in this thread, or through several lanes at the same time.

What happens comes back as events in the caller's thread, which alone writes and shows. A lane is used by one thread at
a time. It is not known here what a lane is, a set of backends or one process, nor how the work ends: after Ctrl-C the
caller closes the lanes, which ends what still runs in them.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Lane = TypeVar("Lane")
Result = TypeVar("Result")

#: Seconds after which a wait looks up: Windows delivers Ctrl-C only then.
_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Started(Generic[Item]):
    """An item is about to run."""

    item: Item


def run_in_lanes(
    items: Sequence[Item], lanes: Sequence[Lane], run: Callable[[Item, Lane], Result]
) -> Generator[Started[Item] | Result, None, None]:
    """Run each item in a lane, ``Started`` before and what ``run`` returns after it; one lane in the caller's thread.

    With several lanes items start in their order, and each lane takes the next as soon as it is free. An exception
    of ``run`` ends the iteration.
    """
    if len(lanes) > 1:
        yield from _side_by_side(items, lanes, run)
        return
    for item in items:
        yield Started(item)
        yield run(item, lanes[0])


def _side_by_side(
    items: Sequence[Item], lanes: Sequence[Lane], run: Callable[[Item, Lane], Result]
) -> Generator[Started[Item] | Result, None, None]:
    todo = deque(items)
    events: queue.SimpleQueue[Started[Item] | Result | BaseException | None] = queue.SimpleQueue()

    def work(lane: Lane) -> None:
        try:
            while True:
                try:
                    item = todo.popleft()
                except IndexError:
                    return
                events.put(Started(item))
                events.put(run(item, lane))
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
