"""The errors that fa-bench explains in one sentence.

A ``FaBenchError`` carries a sentence for a person and, where there is one, a next step; the command line
prints both and exits with ``exit_code``. Any other exception is a defect and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final


class FaBenchError(Exception):
    """A known failure.

    Parameters
    ----------
    message : str
        One sentence that says what is wrong.
    hint : str, optional
        What to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # It crosses between processes, whatever a subclass's constructor takes.
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[FaBenchError], args: tuple[Any, ...], attributes: dict[str, Any]) -> FaBenchError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class UsageError(FaBenchError):
    """The command's words, a file or a case are off: exit code 2, nothing was written."""

    exit_code = 2


class DeviceUnavailable(FaBenchError):
    """The device or tool that was asked for is not on this machine: exit code 3."""

    exit_code = 3


class Unsupported(FaBenchError):
    """A case that an implementation cannot run; in a sweep it becomes a row with ``status=unsupported``."""


class CompileError(FaBenchError):
    """NVRTC refused a source; the message holds its first error line."""


class OutOfMemory(FaBenchError):
    """A backend could not allocate a case's buffers; in a sweep it becomes a row with ``status=oom``."""


class KernelFault(FaBenchError):
    """A kernel did something illegal while it ran: an access outside every buffer, a deadlock, a hang."""


class DeviceLost(KernelFault):
    """The device can't be used by this process any more, as after an illegal access: a fresh process is needed."""


class Defect(FaBenchError):
    """An exception of another process that is no known error: its type, message and place."""


#: Characters of an unknown error's message that are kept.
_MAX_DESCRIPTION: Final = 500


def described(error: Exception) -> str:
    """A known error's sentence; of an unknown one its type, message and place, where work goes on without it."""
    if isinstance(error, FaBenchError):
        return error.message
    import traceback
    from pathlib import Path

    message = " ".join(str(error).split())
    trace = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(trace[-1].filename).name}:{trace[-1].lineno})" if trace else ""
    return f"{type(error).__name__}: {message}{place}"[:_MAX_DESCRIPTION]


def nearest(name: str, known: Iterable[str]) -> str:
    """A next step for an unknown name: the nearest known one, or all of them where none is near.

    Of names that are near, the first that goes on from it.

    Examples
    --------
    >>> nearest("flahs2", ["standard", "flash1", "flash2"])
    "Did you mean 'flash2'?"
    >>> nearest("flash-attn", ["flash2", "flash-attn-2", "flash-attn-3"])
    "Did you mean 'flash-attn-2'?"
    """
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=max(1, len(names)))
    if not close:
        return f"Known: {', '.join(names)}."
    longer = (known for known in names if known in close and known.startswith(name.lower()))
    return f"Did you mean {next(longer, close[0])!r}?"
