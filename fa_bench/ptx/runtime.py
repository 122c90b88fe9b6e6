"""The run-time part of generated code: LLVM IR templates in ``ir/`` with the layout's constants put in."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Final

from fa_bench.ptx import layout

#: ``${Class.FIELD}``, ``${NAME}``, or one of them and a number: ``${Context.CTAID + 4}``; ``|`` joins flags.
_PLACE: Final = re.compile(r"\$\{([\w.]+)(?: ([-+*|]) ([\w.]+))?\}")
_UNITS: Final = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "<2 x i64>"}


def template(name: str, **values: int | str) -> str:
    """Text of ``ir/NAME.ll`` with its placeholders replaced.

    Parameters
    ----------
    name : str
    **values
        What is not a constant of :mod:`fa_bench.ptx.layout`.

    Raises
    ------
    KeyError
        If a placeholder has no value.
    """

    def value(word: str) -> int | str:
        if word.isdigit():
            return int(word)
        if word in values:
            return values[word]
        found: object = layout
        for part in word.split("."):
            found = vars(found)[part]
        assert isinstance(found, int)
        return found

    def put(place: re.Match[str]) -> str:
        left = value(place[1])
        if place[2] is None:
            return str(left)
        right = value(place[3])
        assert isinstance(left, int) and isinstance(right, int)
        operations = {"+": left + right, "-": left - right, "*": left * right, "|": left | right}
        return str(operations[place[2]])

    return _PLACE.sub(put, _read(name))


@functools.cache
def _read(name: str) -> str:
    return resources.files("fa_bench.ptx").joinpath("ir", f"{name}.ll").read_text(encoding="utf-8")


def access(size: int) -> str:
    """Loads and stores of ``size`` bytes per lane in both spaces."""
    return template("access", SIZE=size, UNIT=_UNITS[size])
