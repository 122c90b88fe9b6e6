"""Kernels with changes: what a trace adds to them, and the usual mistakes.

A change is data (``instrumentation.toml``, ``bugs.toml``): a file of ``kernels/``, a text in it that stands there
exactly once, and what takes its place. The kernels themselves stay as they are; a changed copy of them is compiled.
"""

from __future__ import annotations

import difflib
import functools
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fa_bench.algorithms.base import KernelSpec
from fa_bench.cases import Tile
from fa_bench.compiler import kernels_dir
from fa_bench.errors import UsageError, nearest
from fa_bench.tracing.result import Mistake

_FOLDER: Final = Path(__file__).parent
_HEADER: Final = "trace.cuh"


@dataclass(frozen=True, slots=True)
class Patch:
    """One change: ``find`` stands exactly once in ``file`` (below ``kernels/``)."""

    file: str
    find: str
    replace: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A usual mistake.

    Parameters
    ----------
    name : str
        As ``--bug`` takes it.
    title : str
        What is wrong, in a few words.
    lesson : str
        Why it is wrong and how it shows.
    patches : tuple of Patch
    absent : mapping of str to str
        Algorithm -> why it can't have the bug.
    causal : bool
        Whether it needs a causal mask.
    tile : Tile or None
        The tile in which it shows, where not every tile does.
    """

    name: str
    title: str
    lesson: str
    patches: tuple[Patch, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    causal: bool = False
    tile: Tile | None = None

    def diff(self, algorithm: str) -> str:
        """What the bug changes in the kernels of ``algorithm``, as a unified diff; empty if it can't have it."""
        files = sorted({patch.file for patch in self.patches if patch.file.startswith(f"{algorithm}/")})
        parts = []
        for file in files:
            before = (kernels_dir() / file).read_text(encoding="utf-8")
            after = apply(before, (patch for patch in self.patches if patch.file == file))
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(), f"kernels/{file}", f"kernels/{file}", n=1, lineterm=""
            )
            parts.append("\n".join(lines))
        return "\n".join(parts)


@functools.cache
def instrumentation() -> tuple[Patch, ...]:
    """What a trace adds to the kernels."""
    return _patches(_read("instrumentation.toml")["patch"])


@functools.cache
def bugs() -> Mapping[str, Bug]:
    """All bugs, by name."""
    found = {}
    for name, table in _read("bugs.toml").items():
        block = table.get("block")
        found[name] = Bug(
            name=name,
            title=table["title"],
            lesson=table["lesson"],
            patches=_patches(table["patch"]),
            absent=table.get("absent", {}),
            causal=table.get("causal", False),
            tile=None if block is None else Tile(*block),
        )
    return found


def bug(name: str) -> Bug:
    """The bug called ``name``.

    Raises
    ------
    UsageError
        If there is none.
    """
    if name not in bugs():
        raise UsageError(f"There is no bug {name!r} to show.", hint=nearest(name, bugs()))
    return bugs()[name]


def mistake(found: Bug, algorithms: Sequence[str]) -> Mistake:
    """A bug as it is shown, with its diffs to the kernels of some algorithms."""
    diffs = {name: found.diff(name) for name in algorithms if name not in found.absent}
    return Mistake(found.name, found.title, found.lesson, diffs, found.absent)


def apply(text: str, patches: Iterable[Patch]) -> str:
    """``text`` with the changes made.

    Raises
    ------
    ValueError
        If what is to be replaced doesn't stand in the text exactly once: the kernel was changed.
    """
    for patch in patches:
        if (count := text.count(patch.find)) != 1:
            raise ValueError(f"{patch.file}: stands {count} times, not once:\n{patch.find}")
        text = text.replace(patch.find, patch.replace)
    return text


def traced(spec: KernelSpec, found: Bug | None, block_n: int) -> KernelSpec:
    """The kernel as it lies in the folder of `changed_kernels`; the same where a trace adds nothing to it.

    Parameters
    ----------
    spec : KernelSpec
    found : Bug or None
        Taken where it changes this kernel.
    block_n : int
        Rows of K/V per tile: a kernel that knows no tiles needs it for its place in the trace.
    """
    if not any(patch.file == spec.source for patch in instrumentation()):
        return spec
    changed = found if found is not None and any(patch.file == spec.source for patch in found.patches) else None
    defines = dict(spec.defines) | {"BLOCK_N": str(block_n)}
    return replace(spec, source=f"{_subfolder(changed)}/{spec.source}", defines=tuple(defines.items()))


@contextmanager
def changed_kernels(folder: Path | None = None) -> Iterator[Path]:
    """A temporary folder of kernels with the trace added: without a bug, and with each.

    Parameters
    ----------
    folder : Path, optional
        The kernels, `kernels_dir` by default; they lie in the temporary folder as well, as they are.
    """
    source = kernels_dir() if folder is None else folder
    with tempfile.TemporaryDirectory(prefix="fa-bench-trace-") as name:
        target = Path(name)
        _copy(source, target, ())
        for found in (None, *bugs().values()):
            changes = (*(found.patches if found is not None else ()), *instrumentation())
            _copy(source, target / _subfolder(found), changes)
            (target / _subfolder(found) / "common" / _HEADER).write_text(
                (_FOLDER / _HEADER).read_text(encoding="utf-8"), encoding="utf-8"
            )
        yield target


def _copy(source: Path, target: Path, patches: Iterable[Patch]) -> None:
    by_file: dict[str, list[Patch]] = {}
    for patch in patches:
        by_file.setdefault(patch.file, []).append(patch)
    for path in source.rglob("*.cu*"):
        name = path.relative_to(source)
        text = apply(path.read_text(encoding="utf-8"), by_file.get(name.as_posix(), ()))
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")


def _subfolder(found: Bug | None) -> str:
    return "traced" if found is None else f"traced-{found.name}"


def _patches(tables: Iterable[Mapping[str, str]]) -> tuple[Patch, ...]:
    return tuple(Patch(table["file"], table["find"], table["replace"]) for table in tables)


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))
