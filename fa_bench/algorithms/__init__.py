"""The attention algorithms that have kernels of ours, by name."""

from __future__ import annotations

import difflib
import functools
import importlib
from typing import Final

from fa_bench.algorithms.base import Algorithm
from fa_bench.errors import UsageError

#: name -> class. An algorithm's module is imported when it is asked for.
_REGISTRY: Final[dict[str, str]] = {
    "standard": "fa_bench.algorithms.standard:Standard",
    "flash1": "fa_bench.algorithms.flash1:Flash1",
    "flash2": "fa_bench.algorithms.flash2:Flash2",
}


def names() -> tuple[str, ...]:
    """Names of all algorithms, oldest first."""
    return tuple(_REGISTRY)


@functools.cache
def get(name: str) -> Algorithm:
    """The algorithm called ``name``.

    Raises
    ------
    UsageError
        If there is none; the hint names the nearest.
    """
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else ""
        raise UsageError(f"Unknown algorithm {name!r}; there are {', '.join(names())}.", hint=hint)
    module, _, attribute = _REGISTRY[name].partition(":")
    algorithm: Algorithm = getattr(importlib.import_module(module), attribute)()
    return algorithm
