"""The sources of published figures, by name. A new one is a module with ``NAME`` and ``validate``, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fa_bench.errors import UsageError, nearest
from fa_bench.validation import gb10, ncu_traffic
from fa_bench.validation.result import Validation
from fa_bench.validation.run import Runner

#: Name on the command line -> what runs it; the second argument says whether a part that takes seconds will do.
SOURCES: Final[dict[str, Callable[[Runner, bool], Validation]]] = {
    module.NAME: module.validate for module in (ncu_traffic, gb10)
}


def chosen(names: Iterable[str]) -> list[str]:
    """The sources that were asked for, each once; all of them if none was named.

    Raises
    ------
    UsageError
        If there is no such source.
    """
    found = list(dict.fromkeys(names)) or list(SOURCES)
    for name in found:
        if name not in SOURCES:
            raise UsageError(f"There is no source {name!r}.", hint=nearest(name, SOURCES))
    return found
