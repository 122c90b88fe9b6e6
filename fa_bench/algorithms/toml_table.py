"""Checked reading of TOML: a value that is missing or off is one sentence with file, key and what would be right."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from fa_bench.algorithms.expression import Expression, ExpressionError, Number, parse
from fa_bench.errors import UsageError, nearest

T = TypeVar("T")
W = TypeVar("W", bound=str)

_MISSING: Final = object()


class Table:
    """One table of a file.

    Parameters
    ----------
    content : mapping
    file : str
        What messages call the file.
    key : str
        Where the table stands in it, e.g. ``kernels[0]``; empty for the file itself.
    right : mapping of str to str
        Key -> what its value must be, the end of a sentence that begins with "must be".
    """

    def __init__(self, content: Mapping[str, Any], file: str, key: str, right: Mapping[str, str]) -> None:
        self._content = content
        self.file = file
        self.key = key
        self._right = right

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def place(self, key: str) -> str:
        """Where ``key`` stands in the file."""
        return f"{self.key}.{key}" if self.key else key

    def error(self, key: str, clause: str, hint: str = "") -> UsageError:
        """The error that the value of ``key`` does what ``clause`` says."""
        return UsageError(f"{self.file}: {self.place(key)} {clause}.", hint)

    def off(self, key: str) -> UsageError:
        """The error that the value of ``key`` is missing or not what it must be."""
        right = self._right.get(key, "a number or an expression")
        if key not in self._content:
            return self.error(key, f"is missing; it must be {right}")
        return self.error(key, f"must be {right}, not {self._content[key]!r}")

    def known(self, *keys: str) -> None:
        """Raise if the table holds a key that is not one of ``keys``."""
        for key in self._content:
            if key not in keys:
                raise UsageError(f"{self.file}: there is no key {self.place(key)}.", nearest(key, keys))

    def get(self, key: str, kind: type[T], default: Any = _MISSING) -> T:
        """The value of ``key``, which must be a ``kind``; a whole number is a float too, true and false are neither."""
        value = self._content.get(key, default)
        if value is _MISSING or not _is(value, kind):
            raise self.off(key)
        return cast("T", value)

    def items(self, key: str, kind: type[T], default: Sequence[T] | None = None) -> tuple[T, ...]:
        """The list at ``key``, all of one kind, not empty."""
        if default is not None and key not in self._content:
            return tuple(default)
        values = self.get(key, list)
        if not values or not all(_is(value, kind) for value in values):
            raise self.off(key)
        return tuple(values)

    def word(self, key: str, known: Collection[W]) -> W:
        """The text at ``key``, one of ``known``."""
        word = self.get(key, str)
        if word not in known:
            raise self.off(key)
        return cast("W", word)

    def words(self, key: str, known: Collection[W], default: Sequence[W] | None = None) -> tuple[W, ...]:
        """The list at ``key``, each of ``known``."""
        words = self.items(key, str, default)
        if not set(words) <= set(known):
            raise self.off(key)
        return cast("tuple[W, ...]", words)

    def table(self, key: str) -> Table:
        """The table at ``key``."""
        return Table(self.get(key, dict), self.file, self.place(key), self._right)

    def tables(self, key: str) -> list[Table]:
        """The list of tables at ``key``."""
        contents = self.items(key, dict)
        return [Table(part, self.file, f"{self.place(key)}[{n}]", self._right) for n, part in enumerate(contents)]

    def named_tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """Name and content of each table inside the table at ``key``, which may be missing."""
        for name, content in self.get(key, dict, {}).items():
            if not isinstance(content, dict):
                raise self.off(key)
            yield name, Table(content, self.file, f"{self.place(key)}.{name}", self._right)

    def expression(self, key: str, fields: Collection[str], default: Number | None = None) -> Expression:
        """The expression at ``key``: text or a number."""
        value = self._content.get(key, default)
        if not _is_expression(value):
            raise self.off(key)
        return self.parsed(key, value, fields)

    def expressions(
        self, key: str, fields: Collection[str], default: tuple[Expression, ...] | None = None
    ) -> tuple[Expression, ...]:
        """The list of expressions at ``key``."""
        if default is not None and key not in self._content:
            return default
        values = self.get(key, list)
        if not values or not all(_is_expression(value) for value in values):
            raise self.off(key)
        return tuple(self.parsed(f"{key}[{n}]", value, fields) for n, value in enumerate(values))

    def parsed(self, key: str, text: str | Number, fields: Collection[str]) -> Expression:
        """An expression that stands at ``key``."""
        try:
            return parse(text, fields)
        except ExpressionError as error:
            raise self.error(key, error.clause, error.hint) from None


def _is(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _is_expression(value: object) -> bool:
    return isinstance(value, str | int | float)
