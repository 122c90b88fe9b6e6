"""What a remote backend and its child say to each other: pickles over two pipes, each with its length before it.

The parent sends one `Request` at a time. While it is worked on, the child sends a `Beat` each second; then its
`Answer`. The end of the requests' pipe, which a dead parent leaves, ends the child.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import IO, Any, Final

from fa_bench.algorithms.base import Algorithm
from fa_bench.backends.base import BackendName
from fa_bench.errors import Defect, described

#: Seconds between two beats.
BEAT_S: Final = 1.0

_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Request:
    """Call ``method`` of the backend; ``open`` makes it, by calling its only argument.

    ``added`` are the user's implementations that the child does not know yet.
    """

    method: str
    args: tuple[Any, ...] = ()
    added: tuple[Algorithm, ...] = ()


@dataclass(frozen=True, slots=True)
class Beat:
    """The child lives, and works."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request returned, or the error that it raised."""

    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The answer to ``open``: what the parent shows of the backend."""

    name: BackendName
    device: str
    takes_turns: bool


class Unreadable(Defect):
    """A message that can't be made again from its bytes."""


def send(pipe: IO[bytes], message: Request | Beat | Answer) -> None:
    """Write one message.

    Raises
    ------
    OSError
        If the other side is gone.
    """
    content = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(content)) + content)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message; None at the end of the pipe, also inside a message.

    Raises
    ------
    Unreadable
        If what stands for a message is none; the next one can be received.
    """
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    content = pipe.read(size)
    if len(content) < size:
        return None
    try:
        return pickle.loads(content)
    except Exception as error:
        raise Unreadable(f"A message between processes cannot be read: {described(error)}.") from error
