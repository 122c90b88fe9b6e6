"""Bounded caches of files, by content key: whole entries or none, least recently used out first."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Seconds after which a file that is being written is taken for one that a killed process left.
ABANDONED_S: Final = 3600


def cache_dir() -> Path:
    """Folder of what fa-bench may lose and make again; the environment variable FA_BENCH_CACHE overrides it."""
    if place := os.environ.get("FA_BENCH_CACHE"):
        return Path(place)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fa-bench" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fa-bench"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fa-bench"


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Where a cache is and how full it is."""

    folder: Path
    entries: int
    nbytes: int
    limit_bytes: int


class FileCache:
    """One folder below :func:`cache_dir`.

    A cache that cannot be read or written is an empty cache, never an error.

    Parameters
    ----------
    name : str
        Name of the folder.
    limit_bytes : int
        Oldest entries go when the sum exceeds this.
    """

    def __init__(self, name: str, limit_bytes: int) -> None:
        self.name = name
        self.limit_bytes = limit_bytes

    @property
    def folder(self) -> Path:
        """The folder, which may not exist yet."""
        return cache_dir() / self.name

    def read(self, key: str) -> bytes | None:
        """Contents of entry ``key`` or None; marks it as used."""
        path = self.folder / key
        try:
            content = path.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def write(self, key: str, content: bytes) -> None:
        """Store an entry atomically, then evict what is over the limit."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                Path(name).replace(self.folder / key)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            self._evict()

    def entries(self) -> tuple[str, ...]:
        """Keys of the entries, the least recently used first."""
        return tuple(path.name for _, _, path in self._entries())

    def info(self) -> CacheInfo:
        """Number and size of the entries."""
        entries = self._entries()
        return CacheInfo(self.folder, len(entries), sum(size for _, size, _ in entries), self.limit_bytes)

    def clear(self) -> int:
        """Remove all entries and return how many went."""
        removed = 0
        for _, _, path in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        return removed

    def _entries(self) -> list[tuple[float, int, Path]]:
        """(last use, bytes, path) of every entry, oldest first."""
        found = []
        with contextlib.suppress(OSError):  # no folder yet, or none that may be read
            for path in self.folder.iterdir():
                with contextlib.suppress(FileNotFoundError):  # another process may evict at the same time
                    state = path.stat()
                    if path.suffix == ".tmp" and time.time() - state.st_mtime < ABANDONED_S:
                        continue  # an entry being written, by this process or another
                    found.append((state.st_mtime, state.st_size, path))
        return sorted(found)

    def _evict(self) -> None:
        entries = self._entries()
        excess = sum(size for _, size, _ in entries) - self.limit_bytes
        for _, size, path in entries:
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size


#: PTX and cubin of kernels (:mod:`fa_bench.compiler`).
KERNELS: Final = FileCache("kernels", 256 << 20)
#: Machine code that the emulator makes of PTX (:mod:`fa_bench.ptx.jit`).
EMULATOR: Final = FileCache("emulator", 256 << 20)
#: Peaks that were measured, one entry per device (:mod:`fa_bench.stored_peaks`).
PEAKS: Final = FileCache("peaks", 1 << 20)
#: All caches there are.
CACHES: Final = (KERNELS, EMULATOR, PEAKS)
