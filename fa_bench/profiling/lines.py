"""From a line of PTX to the line of source that it came from: ``.file`` and ``.loc``, through inlined functions."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_FILE: Final = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC: Final = re.compile(r"\s*\.loc\s+(?P<at>\d+\s+\d+\s+\d+)(?:.*?\binlined_at\s+(?P<from>\d+\s+\d+\s+\d+))?(?:\s|$)")
_BOUNDARY: Final = re.compile(r"\.(?:entry|func)\b")


class Place(NamedTuple):
    """A line of source."""

    file: str
    line: int


class LineTable:
    """Source lines of one PTX text.

    An instruction belongs to the innermost inlined function whose file is the user's: an intrinsic of CUDA's headers,
    or a function of an installed Python package, counts where it is called. PTX that names no source at all is its own
    source.

    Parameters
    ----------
    ptx : str
    name : str
        What the PTX is called where it is its own source.
    root : Path
        Files below it are named relative to it, others by their full path.
    system : Path, optional
        Folder of CUDA's headers.
    texts : mapping of str to str
        Sources that are no files, by name.
    """

    def __init__(
        self,
        ptx: str,
        name: str,
        root: Path | None = None,
        system: Path | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self._texts = {file: text.splitlines() for file, text in (texts or {}).items()}
        self._root = root
        self._own = name if _FILE.search(ptx) is None else None
        if self._own is not None:
            self._texts[self._own] = ptx.splitlines()
        self._paths = {int(number): path for number, path in _FILE.findall(ptx)}
        self._system = {
            number
            for number, path in self._paths.items()
            if "site-packages" in Path(path).parts or (system is not None and system in Path(path).parents)
        }
        self._starts: list[int] = []
        self._places: list[tuple[Place, ...]] = []
        callers: dict[str, str | None] = {}
        for number, text in enumerate(ptx.splitlines(), 1):
            if _BOUNDARY.search(text):
                callers.clear()
                self._add(number, ())
            elif (found := _LOC.match(text)) is not None:
                at = " ".join(found["at"].split())
                callers[at] = None if found["from"] is None else " ".join(found["from"].split())
                self._add(number, tuple(self._own_places(at, callers)))

    def place(self, ptx_line: int) -> Place | None:
        """Source line of the instruction on a line of the PTX; None where it has none."""
        return next(iter(self.places(ptx_line)), None)

    def places(self, ptx_line: int) -> tuple[Place, ...]:
        """The same, and behind it where that function was inlined, and so on out to the kernel."""
        if self._own is not None:
            return (Place(self._own, ptx_line),)
        position = bisect_right(self._starts, ptx_line)
        return self._places[position - 1] if position else ()

    def chain(self, ptx_line: int) -> str:
        """All these places in words, files without their folders; empty where there are none beside the PTX itself."""
        if self._own is not None:
            return ""
        return " from ".join(f"{Path(place.file).name}:{place.line}" for place in self.places(ptx_line))

    def text(self, place: Place) -> str:
        """What stands on a source line, without its margins; empty if the file isn't here."""
        if place.file not in self._texts:
            path = Path(place.file) if self._root is None else self._root / place.file
            try:
                self._texts[place.file] = path.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                self._texts[place.file] = []
        lines = self._texts[place.file]
        return lines[place.line - 1].strip() if place.line <= len(lines) else ""

    def _add(self, number: int, places: tuple[Place, ...]) -> None:
        self._starts.append(number)
        self._places.append(places)

    def _own_places(self, at: str, callers: Mapping[str, str | None]) -> Iterator[Place]:
        """Walk out of inlined functions, over those whose files are the user's."""
        seen: set[str] = set()
        current: str | None = at
        while current is not None and current not in seen:
            seen.add(current)
            file, line, _ = map(int, current.split())
            if file not in self._system and line > 0:
                yield Place(self._name(self._paths.get(file, f"file {file}")), line)
            current = callers.get(current)

    def _name(self, path: str) -> str:
        name = Path(path).name
        if name in self._texts:
            return name
        if self._root is None:
            return path
        try:
            relative = os.path.relpath(path, self._root)
        except ValueError:  # another drive
            return path
        return Path(relative).as_posix()
