"""All claims, by letter."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from fa_bench.claims.claim import Claim, Judged, words
from fa_bench.claims.result import Judgement
from fa_bench.errors import UsageError, nearest

#: letter -> module and function. A claim's module is imported when it is judged.
_JUDGES: Final[dict[str, str]] = {
    "a": "accesses:score_matrix",
    "b": "accesses:standard_accesses",
    "c": "accesses:flash_accesses",
    "d": "accesses:linear_accesses",
    "e": "faster:fewer_accesses",
    "f": "tiles:best_tile",
    "g": "tiles:loads_of_a_block",
    "h": "online:updates",
    "i": "online:algorithm_as_code",
    "j": "module:printed_module",
    "k": "backward:query_gradient",
    "l": "backward:stored_statistics",
    "m": "backward:recomputation",
    "n": "hardware:bound_by",
    "o": "hardware:on_chip",
    "p": "kernels:fused_steps",
    "q": "kernels:second_version",
    "r": "exactness:exact",
    "s": "long:too_long",
    "t": "exactness:tiling_or_sparsity",
    "u": "exactness:linear_attention",
}


def letters() -> tuple[str, ...]:
    """Letters of all claims."""
    return tuple(_JUDGES)


def judge_of(letter: str) -> Callable[[], Judgement]:
    """What judges a claim."""
    module, _, function = _JUDGES[letter].partition(":")
    judge: Callable[[], Judgement] = getattr(importlib.import_module(f"fa_bench.claims.{module}"), function)
    return judge


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Letters of the claims that are named, by letter or slug, in the order of the alphabet; all if none is.

    Raises
    ------
    UsageError
        If there is no such claim.
    """
    by_name = {name: letter for letter, said in words().items() for name in (letter, said.slug)}
    found = set()
    for name in names:
        if name.lower() not in by_name:
            raise UsageError(f"There is no claim {name!r}.", hint=nearest(name, by_name))
        found.add(by_name[name.lower()])
    return tuple(letter for letter in _JUDGES if letter in found or not found)


def judge(chosen_letters: Iterable[str], progress: Callable[[str], None] = lambda text: None) -> Iterator[Judged]:
    """Judge claims one by one; each is computed anew.

    Parameters
    ----------
    chosen_letters : iterable of str
    progress : callable
        Is told which claim is next.
    """
    for letter in chosen_letters:
        claim = Claim(letter, words()[letter])
        progress(f"{letter}: {claim.words.slug}")
        yield Judged(claim, judge_of(letter)())
