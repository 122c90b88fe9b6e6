"""A file that grows by whole lines, each on disk before the next thing is done."""

from __future__ import annotations

import os
from pathlib import Path


class Appender:
    """An open file; ``size`` is how many bytes of it are whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self.size = self._file.seek(0, os.SEEK_END)

    def append(self, text: str) -> None:
        """Write ``text``; it is on disk when this returns."""
        left = memoryview(encoded(text))
        if not left:
            return
        grown = self.size + len(left)
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())
        self.size = grown

    def truncate(self, size: int) -> None:
        """Take back what was written behind the first ``size`` bytes."""
        self._file.truncate(size)
        self.size = size

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def encoded(text: str) -> bytes:
    """``text`` as it stands in a file."""
    # A name from the system can hold bytes that are no UTF-8; a file must not end for that.
    return text.encode("utf-8", errors="backslashreplace")
