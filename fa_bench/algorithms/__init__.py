"""The attention algorithms that have kernels, by name: ours, and those of the user that a command was given."""

from __future__ import annotations

import difflib
import functools
import importlib
from typing import TYPE_CHECKING, Final

from fa_bench.algorithms.base import Algorithm
from fa_bench.errors import UsageError

if TYPE_CHECKING:
    from fa_bench.algorithms.user import UserAlgorithm
    from fa_bench.cases import Case, Direction

#: name -> class. An algorithm's module is imported when it is asked for.
_REGISTRY: Final[dict[str, str]] = {
    "standard": "fa_bench.algorithms.standard:Standard",
    "flash1": "fa_bench.algorithms.flash1:Flash1",
    "flash2": "fa_bench.algorithms.flash2:Flash2",
    "flash2-atomic": "fa_bench.algorithms.flash2:Flash2Atomic",
}


#: The user's, of this process.
_added: dict[str, UserAlgorithm] = {}


def names(*directions: Direction) -> tuple[str, ...]:
    """Names of all algorithms with kernels of ours, oldest first; with directions, of those that have one of them."""
    if not directions:
        return tuple(_REGISTRY)
    return tuple(name for name in _REGISTRY if set(directions) & set(_ours(name).directions))


def added() -> tuple[str, ...]:
    """Names of the user's implementations that were added."""
    return tuple(_added)


def add(algorithm: UserAlgorithm) -> None:
    """Let :func:`get` find an implementation of the user's; one of the same name goes.

    Raises
    ------
    UsageError
        If an algorithm of ours has the name.
    """
    if algorithm.name in _REGISTRY:
        raise UsageError(
            f"{str(algorithm.file.path)!r} would be called {algorithm.name}, which is one of ours.",
            hint="Give the file another name.",
        )
    _added[algorithm.name] = algorithm


def find(name: str) -> Algorithm | None:
    """The algorithm called ``name``; None for an implementation without kernels (NumPy, torch)."""
    return get(name) if name in _REGISTRY or name in _added else None


def content_of(name: str) -> str:
    """Hash of the files of an implementation of the user's; empty for all others, whose version is the tool's."""
    return _added[name].content if name in _added else ""


def get(name: str) -> Algorithm:
    """The algorithm called ``name``.

    Raises
    ------
    UsageError
        If there is none; the hint names the nearest.
    """
    if name in _added:
        return _added[name]
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else ""
        raise UsageError(f"Unknown algorithm {name!r}; there are {', '.join(names())}.", hint=hint)
    return _ours(name)


def lacking(case: Case, algorithm: Algorithm | None) -> str | None:
    """What ``case`` asks for that ``algorithm`` has no kernels for, before any tile is chosen; None if nothing.

    None as the algorithm stands for an implementation that is no kernel of ours (NumPy, torch): those know neither
    windows nor features, and the forward pass alone.
    """
    directions: tuple[str, ...] = ("fwd",) if algorithm is None else algorithm.directions
    if case.direction not in directions:
        return f"{case.impl} has no kernels for {case.direction}, only for {', '.join(directions)}."
    known: frozenset[str] = frozenset() if algorithm is None else algorithm.fused.get(case.direction, frozenset())
    missing = [name for name in (*case.shape.named, *case.features.named) if name.split()[0] not in known]
    return f"{case.impl} has no {', '.join(missing)} in its {case.direction} pass." if missing else None


@functools.cache
def _ours(name: str) -> Algorithm:
    module, _, attribute = _REGISTRY[name].partition(":")
    algorithm: Algorithm = getattr(importlib.import_module(module), attribute)()
    return algorithm
