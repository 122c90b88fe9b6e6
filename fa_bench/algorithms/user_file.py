"""The TOML file beside a user's kernel, read into frozen data. ``docs/user-kernels.md`` describes its keys.

Everything that can be known to be wrong without a case is found here, as one sentence with the file, the key and what
would be right.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from fa_bench.algorithms.base import ELEMENT_BYTES, CType
from fa_bench.algorithms.expression import Expression
from fa_bench.algorithms.toml_table import Table
from fa_bench.cases import DTYPES, LAYOUTS, DType, Layout
from fa_bench.errors import UsageError
from fa_bench.sources import closure, content_hash

#: Tensors that every program has; LSE is optional among a kernel's arguments.
TENSORS: Final = ("Q", "K", "V", "O", "LSE")
C_TYPES: Final[tuple[CType, ...]] = get_args(CType)
#: What expressions may use, beside the tile.
FIELDS: Final = (
    *("batch", "heads_q", "heads_kv", "group", "slices", "seq_q", "seq_kv", "head_dim", "padded_head_dim"),
    *("itemsize", "scale", "causal", *DTYPES, *LAYOUTS),
    *(f"{tensor}_{axis}_stride" for tensor in "qkvo" for axis in ("batch", "head", "row")),
)
TILE_FIELDS: Final = ("block_m", "block_n", "stages", "num_warps")

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
#: What each key must be: the end of the sentence that says that it isn't.
_RIGHT: Final[Mapping[str, str]] = {
    "source": "the .cu or .ptx file that it is about, as in \"mykernel.cu\"",
    "summary": "text",
    "supports": "a table",
    "dtypes": f"a list of {', '.join(DTYPES)}",
    "head_dims": "a list of whole numbers, as in [64, 128]",
    "layouts": f"a list of {', '.join(LAYOUTS)}",
    "causal": "a list of true and false, whichever the kernel can do",
    "compute_capability": "a number such as 8.0",
    "requires": "a list of expressions, as in [\"seq_q == seq_kv\"]",
    "tile": "a table",
    **dict.fromkeys(TILE_FIELDS, "a whole number or an expression"),
    "workspaces": "a table of tables, as in [workspaces.P]",
    "dtype": f"one of {', '.join(ELEMENT_BYTES)}",
    "shape": "a list of expressions, as in [\"slices\", \"seq_q\"]",
    "kernels": "a list of tables, as in [[kernels]]",
    "entry": "the name of an extern \"C\" kernel",
    "defines": "a table of expressions, as in { BLOCK_M = \"block_m\" }",
    "grid": "one to three expressions, as in [\"ceil_div(seq_q, block_m)\", \"slices\"]",
    "block": "one to three expressions, as in [\"32 * num_warps\"]",
    "smem_bytes": "an expression for the bytes of dynamic shared memory",
    "args": "a list in the order of the kernel's parameters, as in [\"Q\", \"K\", \"V\", \"O\", \"i32 seq_q\"]",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class UserScalar:
    """A scalar argument: its C type and how it follows from a case."""

    ctype: CType
    value: Expression


@dataclass(frozen=True, slots=True)
class UserKernel:
    """One launch; ``key`` is where it stands in the file."""

    key: str
    source: Path
    entry: str
    defines: tuple[tuple[str, Expression], ...]
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    smem_bytes: Expression
    args: tuple[str | UserScalar, ...]


@dataclass(frozen=True, slots=True)
class UserWorkspace:
    """A buffer of the kernels' own, contiguous."""

    name: str
    dtype: str
    shape: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class UserTile:
    """The default tile; ``num_warps`` may follow from the rest."""

    block_m: Expression
    block_n: Expression
    stages: Expression
    num_warps: Expression


@dataclass(frozen=True, slots=True)
class Supports:
    """What the kernels can do; empty ``head_dims`` stand for all."""

    dtypes: tuple[DType, ...]
    head_dims: tuple[int, ...]
    layouts: tuple[Layout, ...]
    causal: tuple[bool, ...]
    compute_capability: float
    requires: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class UserFile:
    """A kernel's TOML file.

    Parameters
    ----------
    path : Path
    summary : str
    supports : Supports
    tile : UserTile or None
        None where the kernel has no tile that could be chosen.
    workspaces : tuple of UserWorkspace
    kernels : tuple of UserKernel
        In the order of their launches.
    content : str
        Hash of the file, its sources and what these include beside them.
    """

    path: Path
    summary: str
    supports: Supports
    tile: UserTile | None
    workspaces: tuple[UserWorkspace, ...]
    kernels: tuple[UserKernel, ...]
    content: str


def read(path: Path) -> UserFile:
    """Read the TOML file at ``path``.

    Raises
    ------
    UsageError
        If it can't be read or a key is missing, unknown or off; the message names file, key and what would be right.
    """
    root = Table(_load(path), str(path), "", _RIGHT)
    root.known("source", "summary", "supports", "tile", "workspaces", "kernels")
    tile = _tile(root.table("tile")) if "tile" in root else None
    fields = (*FIELDS, *TILE_FIELDS) if tile is not None else FIELDS
    workspaces = tuple(_workspace(name, table, fields) for name, table in root.named_tables("workspaces"))
    tensors = (*TENSORS, *(workspace.name for workspace in workspaces))
    default = _source(root, path, None)
    kernels = tuple(_kernel(table, path, default, tensors, fields) for table in root.tables("kernels"))
    used = {arg for kernel in kernels for arg in kernel.args if isinstance(arg, str)}
    for name in ("Q", "K", "V", "O"):
        if name not in used:
            raise UsageError(f"{path}: no kernel has {name} in its args; attention reads Q, K and V and writes O.")
    for name in tensors[len(TENSORS) :]:
        if name not in used:
            raise UsageError(f"{path}: no kernel has the workspace {name} in its args; name it there or leave it out.")
    sources = dict.fromkeys(file for kernel in kernels for file in closure(kernel.source))
    return UserFile(
        path=path,
        summary=root.get("summary", str, ""),
        supports=_supports(root.table("supports"), fields),
        tile=tile,
        workspaces=workspaces,
        kernels=kernels,
        content=content_hash(path, *sources)[:16],
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"There is no file {str(path)!r}.", hint="It describes a kernel of yours: see docs/user-kernels.md."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{str(path)!r} is not UTF-8 text.") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{str(path)!r} is not valid TOML: {error}.") from None


def _tile(table: Table) -> UserTile:
    table.known(*TILE_FIELDS)
    return UserTile(
        block_m=table.expression("block_m", FIELDS),
        block_n=table.expression("block_n", FIELDS),
        stages=table.expression("stages", FIELDS, default=1),
        num_warps=table.expression("num_warps", (*FIELDS, *TILE_FIELDS[:3]), default=4),
    )


def _workspace(name: str, table: Table, fields: Sequence[str]) -> UserWorkspace:
    table.known("dtype", "shape")
    if name in TENSORS:
        raise UsageError(f"{table.file}: {table.key} is a tensor of every case; give the workspace another name.")
    return UserWorkspace(name, table.word("dtype", ELEMENT_BYTES), table.expressions("shape", fields))


def _supports(table: Table, fields: Sequence[str]) -> Supports:
    table.known("dtypes", "head_dims", "layouts", "causal", "compute_capability", "requires")
    return Supports(
        dtypes=table.words("dtypes", DTYPES),
        head_dims=tuple(table.items("head_dims", int, ())),
        layouts=table.words("layouts", LAYOUTS, ("bhsd",)),
        causal=tuple(table.items("causal", bool, (False,))),
        compute_capability=table.get("compute_capability", float, 0.0),
        requires=table.expressions("requires", fields, ()),
    )


def _kernel(table: Table, path: Path, source: Path | None, tensors: Sequence[str], fields: Sequence[str]) -> UserKernel:
    table.known("source", "entry", "defines", "grid", "block", "smem_bytes", "args")
    own = _source(table, path, source)
    if own is None:
        raise table.off("source")
    defines = table.get("defines", dict, {})
    if defines and own.suffix == ".ptx":
        raise table.error("defines", f"can't change {own.name}, which is compiled already")
    for name in defines:
        if not _NAME.fullmatch(name):
            raise table.error("defines", f"holds {name!r}, which is no name of a macro")
    inner = table.table("defines") if defines else table
    return UserKernel(
        key=table.key,
        source=own,
        entry=table.get("entry", str),
        defines=tuple((name, inner.expression(name, fields)) for name in defines),
        grid=_extents(table, "grid", fields),
        block=_extents(table, "block", fields),
        smem_bytes=table.expression("smem_bytes", fields, default=0),
        args=tuple(_argument(table, k, arg, tensors, fields) for k, arg in enumerate(table.items("args", str))),
    )


def _source(table: Table, path: Path, default: Path | None) -> Path | None:
    """The source that a table names, below the file's folder; ``default`` where it names none."""
    if "source" not in table:
        return default
    name = table.get("source", str)
    source = (path.parent / name).resolve()
    if source.suffix not in (".cu", ".ptx"):
        raise table.off("source")
    if not source.is_file():
        raise table.error("source", f"is {name!r}, and there is no such file in {str(path.parent)!r}")
    return source


def _extents(table: Table, key: str, fields: Sequence[str]) -> tuple[Expression, ...]:
    extents = table.expressions(key, fields)
    if not 1 <= len(extents) <= 3:
        raise table.off(key)
    return extents


def _argument(
    table: Table, position: int, text: str, tensors: Sequence[str], fields: Sequence[str]
) -> str | UserScalar:
    """A tensor's name, or a C type and an expression."""
    if text in tensors:
        return text
    word, _, rest = text.strip().partition(" ")
    for ctype in C_TYPES:
        if word == ctype and rest:
            return UserScalar(ctype, table.parsed(f"args[{position}]", rest.strip(), fields))
    raise table.error(
        f"args[{position}]",
        f"is {text!r}, which is neither a tensor nor a scalar",
        f"A tensor is one of {', '.join(tensors)}; a scalar is a type ({', '.join(C_TYPES)}) and an expression, "
        "as in 'i32 seq_q'.",
    )
