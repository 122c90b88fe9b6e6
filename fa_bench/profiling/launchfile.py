"""The file of ``--args``: arguments of a kernel, or of several kernels that are launched one after the other.

::

    [args]                      # name -> specification, or a plain number
    Q = "f16[1024,64]"
    S = "out:f32[1024,1024]"
    n = "i32=1024"

    [[launch]]                  # as many as there are launches, in order
    kernel = "scores"
    grid = [8, 8]
    block = 128                 # what the kernel declares if it is left out
    smem = "48k"
    args = ["Q", "K", "S", "n"] # by position; by the parameters' names if it is left out

    [define]
    HEAD_DIM = 64

Without ``[[launch]]`` the command line says which kernel is launched how.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fa_bench.errors import UsageError, nearest
from fa_bench.profiling.args import Argument, Scalar, parse
from fa_bench.profiling.run import Dim, Launch
from fa_bench.units import parse_int

_TABLES: Final = ("args", "launch", "define")
_LAUNCH: Final = ("kernel", "grid", "block", "smem", "args")


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """What the file says.

    Parameters
    ----------
    arguments : dict of str to Argument
    launches : tuple of Launch
        Without arguments if they go by name.
    defines : tuple of (str, str)
    """

    arguments: dict[str, Argument]
    launches: tuple[Launch, ...]
    defines: tuple[tuple[str, str], ...]


def read(path: Path, replaced: Sequence[Argument] = ()) -> LaunchFile:
    """Read the file.

    Parameters
    ----------
    path : Path
    replaced : sequence of Argument
        Arguments that stand for those of the same name, or are added.

    Raises
    ------
    UsageError
        If it can't be read, isn't TOML, or holds what it should not.
    """
    where = str(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no file {where!r}.") from None
    except OSError as error:
        raise UsageError(f"{where!r} can't be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{where!r} is not valid TOML: {error}.") from None
    _known(data, _TABLES, where)
    arguments = {name: _argument(name, value, path, where) for name, value in _table(data, "args", where).items()}
    arguments |= {argument.name: argument for argument in replaced}
    launches = data.get("launch", [])
    if not isinstance(launches, list) or not all(isinstance(one, dict) for one in launches):
        raise UsageError(f"{where!r}: launches are written as [[launch]].")
    defines = tuple((name, _define(value)) for name, value in _table(data, "define", where).items())
    return LaunchFile(arguments, tuple(_launch(one, arguments, where) for one in launches), defines)


def single_launch(
    arguments: Sequence[Argument], kernel: str | None, grid: str | None, block: str | None, smem: str | None
) -> Launch:
    """The launch that a command line describes.

    Raises
    ------
    UsageError
        If there is no grid, or an extent is none.
    """
    if grid is None:
        raise UsageError("--grid is missing.", "Say how many CTAs to launch, as in --grid 8 or --grid 8,4.")
    return Launch(
        kernel,
        parse_dim(grid, "--grid"),
        None if block is None else parse_dim(block, "--block"),
        parse_int(smem or "0"),
        tuple(arguments),
    )


def parse_dim(value: object, what: str) -> Dim:
    """Extents in x, y, z out of a number, a list of up to three, or text such as ``8,4`` or ``8x4``.

    Raises
    ------
    UsageError
        If it is nothing of that.

    Examples
    --------
    >>> parse_dim("8x4", "--grid"), parse_dim(128, "block")
    ((8, 4, 1), (128, 1, 1))
    """
    parts = value if isinstance(value, list | tuple) else str(value).replace("x", ",").split(",")
    try:
        if not 1 <= len(parts) <= 3 or any(isinstance(part, bool | float) for part in parts):
            raise UsageError("")
        extents = [parse_int(str(part), minimum=1) for part in parts]
    except UsageError:
        raise UsageError(f"{what}: {value!r} is not one to three extents of at least 1, as in 8 or 8,4.") from None
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _launch(data: Mapping[str, Any], arguments: Mapping[str, Argument], where: str) -> Launch:
    _known(data, _LAUNCH, f"{where}, [[launch]]")
    kernel = data.get("kernel")
    if not isinstance(kernel, str):
        raise UsageError(f"{where!r}: a launch needs the name of its kernel.")
    if "grid" not in data:
        raise UsageError(f"{where!r}: the launch of {kernel} needs a grid.")
    names = data.get("args")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise UsageError(f"{where!r}: args of {kernel} is not a list of names.")
    for name in names or ():
        if name not in arguments:
            raise UsageError(f"{where!r}: the launch of {kernel} names {name!r}.", nearest(name, arguments))
    chosen = tuple(arguments.values()) if names is None else tuple(arguments[name] for name in names)
    return Launch(
        kernel,
        parse_dim(data["grid"], f"{where}, grid of {kernel}"),
        None if "block" not in data else parse_dim(data["block"], f"{where}, block of {kernel}"),
        parse_int(str(data.get("smem", 0))),
        chosen,
        positional=names is not None,
        surplus=names is None,
    )


def _argument(name: str, value: object, path: Path, where: str) -> Argument:
    if isinstance(value, str):
        return parse(name, value, path.parent)
    if isinstance(value, bool | int | float):
        return Scalar(name, None, value)
    raise UsageError(f"{where!r}: argument {name} is neither a specification nor a number.")


def _define(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _table(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{where!r}: {name} is not a table.")
    return table


def _known(data: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in data:
        if key not in keys:
            raise UsageError(f"{where} holds an unknown key {key!r}.", nearest(key, keys))
