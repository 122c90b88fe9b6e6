"""A claim: its words, in two languages, out of ``texts.toml``, and what was judged of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from fa_bench.claims.result import Judgement

Language = Literal["en", "zh"]
LANGUAGES: Final[tuple[Language, ...]] = ("en", "zh")
#: Stands for a figure that could not be computed on this machine.
UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class Text:
    """The same in both languages. ``{name}`` stands for a figure."""

    en: str
    zh: str

    def in_(self, language: Language) -> str:
        """The text in one language."""
        return self.en if language == "en" else self.zh

    def filled(self, language: Language, figures: Mapping[str, str]) -> str:
        """The text with figures put in."""
        return self.in_(language).format_map(figures)


@dataclass(frozen=True, slots=True)
class Words:
    """What is said of one claim.

    Parameters
    ----------
    slug : str
        Names it on the command line, as its letter does.
    commands : tuple of str
        What else shows its figures: command lines after ``fa-bench``.
    statement, short : Text
        In our own words; short for a table.
    decisive, right : Text
        The figure that decides; the right form. Both with figures to put in.
    figures, checks : mapping of str to Text
        What each figure is, and what each reading is called.
    """

    slug: str
    commands: tuple[str, ...]
    statement: Text
    short: Text
    decisive: Text
    right: Text
    figures: Mapping[str, Text]
    checks: Mapping[str, Text]

    def filled(self, text: Text, language: Language, judgement: Judgement) -> str:
        """``text`` with the judgement's figures; a figure that could not be computed is `UNKNOWN`."""
        computed = {figure.name: figure.text for figure in judgement.figures}
        return text.filled(language, dict.fromkeys(self.figures, UNKNOWN) | computed)


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement and its words."""

    letter: str
    words: Words

    @property
    def commands(self) -> tuple[str, ...]:
        """Command lines that show its figures, this claim's own first."""
        return tuple(f"fa-bench {line}" for line in (f"claims {self.letter}", *self.words.commands))


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim and its judgement."""

    claim: Claim
    judgement: Judgement


@cache
def words() -> Mapping[str, Words]:
    """Letter of a claim -> its words."""
    data = tomllib.loads(files("fa_bench.claims").joinpath("texts.toml").read_text(encoding="utf-8"))
    return {letter: _words(entry) for letter, entry in data.items()}


def _words(entry: Mapping[str, Any]) -> Words:
    return Words(
        slug=entry["slug"],
        commands=tuple(entry["commands"]),
        figures={name: Text(**text) for name, text in entry["figures"].items()},
        checks={name: Text(**text) for name, text in entry["checks"].items()},
        **{name: Text(**entry[name]) for name in ("statement", "short", "decisive", "right")},
    )
