"""Presets: TOML files that hold the axes of a sweep and nothing else.

A preset is found by name (in the wheel as ``fa_bench/_configs``, in a checkout in ``configs/``) or by path. Its
keys are the command line's axis options with underscores; its values are what the option would be given, as text,
a number, a boolean or a list of these. They leave this module as option text, so that a preset and an option are
read by the same parser.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from fa_bench.errors import UsageError, nearest

#: Every axis of a sweep. The command line has one option for each, with hyphens.
AXES: Final[tuple[str, ...]] = (
    "seq",
    "head_dim",
    "seqlens",
    "batch",
    "heads",
    "kv_heads",
    "tokens",
    "hidden",
    "impl",
    "dtype",
    "causal",
    "window",
    "features",
    "head_dim_v",
    "layout",
    "direction",
    "block",
    "stages",
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset as read.

    Parameters
    ----------
    name : str
        What it was asked for by: a preset's name or a path.
    axes : mapping of str to str
        Axis -> option text, e.g. ``{"seq": "512..16k", "head_dim": "64,128"}``.
    """

    name: str
    axes: Mapping[str, str]


def preset_names() -> tuple[str, ...]:
    """Names of the presets that come with fa-bench, sorted."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if _is_preset(entry)))


def load_preset(name: str) -> Preset:
    """Read the preset called ``name``, or the TOML file at that path.

    Raises
    ------
    UsageError
        If there is no such preset or file, it can't be read, isn't TOML, or holds anything but axes.
    """
    if name.endswith(".toml") or len(Path(name).parts) > 1:
        return Preset(name, _axes(_read(Path(name)), name))
    if name not in preset_names():
        raise UsageError(
            f"There is no preset called {name!r}.", hint=f"{nearest(name, preset_names())} A file ends in .toml."
        )
    return Preset(name, _axes(_folder().joinpath(f"{name}.toml").read_text(encoding="utf-8"), name))


def _folder() -> Traversable:
    """The presets' folder: inside an installed package, else beside it in a checkout."""
    installed = resources.files("fa_bench") / "_configs"
    return installed if installed.is_dir() else Path(__file__).resolve().parent.parent / "configs"


def _is_preset(entry: Traversable) -> bool:
    return entry.is_file() and entry.name.endswith(".toml")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"There is no file {str(path)!r}.", hint=f"Presets by name: {', '.join(preset_names())}."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{str(path)!r} is not UTF-8 text.") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}.") from None


def _axes(text: str, source: str) -> dict[str, str]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source!r} is not valid TOML: {error}.") from None
    for key in content:
        if key not in AXES:
            raise UsageError(f"{source!r} holds an unknown key {key!r}.", hint=nearest(key, AXES))
    return {key: _option_text(value, key, source) for key, value in content.items()}


def _option_text(value: object, key: str, source: str) -> str:
    """The text that a user would give the option ``key``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, list) and value and not any(isinstance(item, list) for item in value):
        return ",".join(_option_text(item, key, source) for item in value)
    raise UsageError(f"{source!r}: {key} must be text, a whole number, true, false or a list of these, not {value!r}.")
