"""The files that a kernel is made of: its source and what it includes beside it, and one hash over all of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

_QUOTED: Final = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def closure(path: Path) -> tuple[Path, ...]:
    """``path`` and every file that it reaches through ``#include "..."``, in a fixed order.

    Headers in angle brackets belong to CUDA and are left out, as is what does not exist: the compiler says so.
    """
    pending, seen = [path.resolve()], dict[Path, None]()
    while pending:
        current = pending.pop()
        if current in seen or not current.is_file():
            continue
        seen[current] = None
        pending += [(current.parent / name).resolve() for name in _QUOTED.findall(_text(current))]
    return tuple(seen)


def content_hash(*paths: Path) -> str:
    """Hash of the text of files, in this order; line ends don't count, since a checkout may change them."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(_text(path).encode()).digest())
    return digest.hexdigest()[:32]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
