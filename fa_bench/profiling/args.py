"""Arguments of a kernel: from a specification such as ``f16[1024,64]`` or ``i32=1024``, from arrays, from numbers.

A specification is

* ``TYPE=VALUE``, a scalar, or ``VALUE`` alone, which takes the parameter's type,
* ``[FILL:]TYPE[EXTENT,...]``, an array; `FILLS` says what it holds,
* ``[TYPE:]FILE.npy``, an array out of a file, converted if a type is given,
* ``null``, a pointer to nothing.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.errors import UsageError, nearest
from fa_bench.storage import to_bf16
from fa_bench.units import parse_int

Array = NDArray[Any]

#: Type -> its NumPy type; bfloat16 travels as its bit patterns.
STORAGE: Final[Mapping[str, type[np.generic]]] = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip
_INTEGER_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    kind: (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "i" else (0, (1 << bits) - 1)
    for kind, bits in ((kind, int(kind[1:])) for kind in STORAGE if kind[0] in "iu")
}
_ALIASES: Final = {"fp16": "f16", "fp32": "f32", "fp64": "f64"}
FLOATS: Final = ("f16", "bf16", "f32", "f64")

#: What an array holds before the launch.
FILLS: Final[Mapping[str, str]] = {
    "normal": "standard normal numbers by seed; for integer types 16 times as large, rounded",
    "zeros": "zeros",
    "ones": "ones",
    "range": "0, 1, 2, ...",
    "out": "poison: every byte is 0xFF, so that what the kernel never wrote shows",
}
POISON: Final = 0xFF
#: No array of a profile is larger; emulating a kernel on more would take days.
MAX_BYTES: Final = 1 << 36

_SCALAR: Final = re.compile(r"(?:(\w+)=)?([-+]?(?:\d[\w.+-]*|\.\d[\w+-]*|inf|nan))", re.IGNORECASE)
_ARRAY: Final = re.compile(r"(?:(\w+):)?(\w+)\[([^\[\]]*)\]")
_FILE: Final = re.compile(r"(?:(\w+):)?(.+\.npy)")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number passed by value; ``type`` is None where the parameter decides."""

    name: str
    type: str | None
    value: int | float

    @property
    def text(self) -> str:
        """The specification that means this."""
        return str(self.value) if self.type is None else f"{self.type}={self.value}"


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An array passed by pointer.

    Parameters
    ----------
    name : str
    type : str
        A key of `STORAGE`.
    shape : tuple of int
    fill : str
        A key of `FILLS`; of no meaning where there are values.
    values : ndarray, optional
        Contents, of the type's NumPy type.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    fill: str = "normal"
    values: Array | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * np.dtype(STORAGE[self.type]).itemsize

    @property
    def text(self) -> str:
        """Type and extents as in a specification."""
        return f"{self.type}[{','.join(map(str, self.shape))}]"

    def contents(self, seed: int) -> Array:
        """What the array holds before the launch; drawn by ``seed`` and name, so that the order does not matter."""
        storage = STORAGE[self.type]
        if self.values is not None:
            return self.values
        if self.fill == "out":
            return np.full(self.nbytes, POISON, np.uint8).view(storage).reshape(self.shape)
        if self.fill == "normal":
            drawn = np.random.default_rng([seed, zlib.crc32(self.name.encode())]).standard_normal(self.shape)
            if self.type not in FLOATS:
                drawn = np.clip(np.rint(16 * drawn), *_INTEGER_LIMITS[self.type])
            return _as_type(drawn, self.type)
        values = np.arange(math.prod(self.shape)) if self.fill == "range" else np.full(1, self.fill == "ones")
        return _as_type(np.broadcast_to(values.reshape(self.shape if values.size > 1 else (1,)), self.shape), self.type)


@dataclass(frozen=True, slots=True)
class Null:
    """A pointer to nothing."""

    name: str

    @property
    def text(self) -> str:
        """The specification that means this."""
        return "null"


Argument = Scalar | Tensor | Null


def parse(name: str, text: str, folder: Path | None = None) -> Argument:
    """Read one specification.

    Parameters
    ----------
    name : str
        What the argument is for; errors name it.
    text : str
        Such as ``f16[1024,64]``, ``out:f32[64]``, ``i32=1024``, ``0.125``, ``k.npy``.
    folder : Path, optional
        Where relative files are; the current folder by default.

    Raises
    ------
    UsageError
        If the text is none of these, or its file can't be read.
    """
    text = text.strip()
    if text == "null":
        return Null(name)
    if found := _SCALAR.fullmatch(text):
        return _scalar(name, found[1], found[2], text)
    if found := _ARRAY.fullmatch(text):
        fill, kind, extents = found.groups()
        if fill is not None and fill not in FILLS:
            raise UsageError(f"{name}={text}: there is no fill {fill!r}.", nearest(fill, FILLS))
        return sized(Tensor(name, _type(kind, f"{name}={text}"), _shape(extents, f"{name}={text}"), fill or "normal"))
    if found := _FILE.fullmatch(text):
        return _from_file(name, found[1], found[2], folder or Path())
    raise UsageError(
        f"{name}={text} is no argument.",
        "Write an array as f16[1024,64] or out:f32[64], a scalar as i32=1024, data as file.npy, or null.",
    )


def parse_option(text: str) -> Argument:
    """Read ``NAME=SPECIFICATION``, the value of ``--arg``.

    Examples
    --------
    >>> parse_option("n=i32=1024")
    Scalar(name='n', type='i32', value=1024)
    """
    name, equals, specification = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise UsageError(f"--arg {text!r} is not NAME=SPECIFICATION, as in Q=f16[1024,64] or n=i32=1024.")
    return parse(name.strip(), specification)


def from_value(name: str, value: object) -> Argument:
    """An argument out of a Python value: an array, a NumPy scalar, a number, None, or a specification as text.

    Raises
    ------
    UsageError
        If the value is of another kind.
    """
    if isinstance(value, str):
        return parse(name, value)
    if value is None:
        return Null(name)
    if isinstance(value, bool | int | float):
        return Scalar(name, None, value)
    if isinstance(value, np.generic):
        return Scalar(name, _of_dtype(name, value.dtype), value.item())
    if isinstance(value, np.ndarray):
        kind = _of_dtype(name, value.dtype)
        values = np.ascontiguousarray(value).view(STORAGE[kind])
        return sized(Tensor(name, kind, values.shape, values=values))
    raise UsageError(f"Argument {name} is a {type(value).__name__}, not an array, a number or a specification.")


def sized(tensor: Tensor) -> Tensor:
    """The same tensor, refused if it is empty or absurdly large."""
    if not 0 < tensor.nbytes <= MAX_BYTES:
        raise UsageError(f"{tensor.name}={tensor.text} has {tensor.nbytes} bytes; 1 to {MAX_BYTES} are possible.")
    return tensor


def scalar_bytes(scalar: Scalar, kind: str) -> np.generic[Any]:
    """A scalar as a NumPy value of type ``kind``.

    Raises
    ------
    UsageError
        If the value is no number of that type.
    """
    storage = STORAGE[kind]
    if kind in FLOATS:
        with np.errstate(over="ignore"):
            return storage(_as_type(np.asarray(scalar.value, np.float64), kind)[()])
    least, most = _INTEGER_LIMITS[kind]
    if not math.isfinite(scalar.value) or scalar.value != int(scalar.value):
        raise UsageError(f"{scalar.name}={scalar.text}: {kind} holds whole numbers.")
    if not least <= scalar.value <= most:
        raise UsageError(f"{scalar.name}={scalar.text}: {kind} holds {least} to {most}.")
    return storage(int(scalar.value))


def _scalar(name: str, kind: str | None, digits: str, text: str) -> Scalar:
    known = None if kind is None else _type(kind, f"{name}={text}")
    value: int | float
    try:
        value = int(digits, 0) if known not in FLOATS else float(digits)
    except ValueError:
        try:
            value = float(digits) if known is None else parse_int(digits)
        except (ValueError, UsageError):
            raise UsageError(f"{name}={text}: {digits!r} is no number.") from None
    scalar = Scalar(name, known, value)
    if known is not None:
        scalar_bytes(scalar, known)
    return scalar


def _type(kind: str, where: str) -> str:
    kind = _ALIASES.get(kind, kind)
    if kind not in STORAGE:
        raise UsageError(f"{where}: there is no type {kind!r}.", nearest(kind, STORAGE))
    return kind


def _shape(extents: str, where: str) -> tuple[int, ...]:
    try:
        return tuple(parse_int(extent, minimum=1) for extent in extents.split(","))
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}") from None


def _of_dtype(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.name == "bfloat16":
        return "bf16"
    if dtype == np.bool_:
        return "u8"
    for kind, storage in STORAGE.items():
        if kind != "bf16" and dtype == storage:
            return kind
    raise UsageError(f"Argument {name} has the type {dtype}, which no kernel parameter has.", nearest("", STORAGE))


def _from_file(name: str, kind: str | None, file: str, folder: Path) -> Tensor:
    where = f"{name}={file}"
    try:
        values = np.load(folder / file, allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"{where}: there is no such file.") from None
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{where} can't be read as an array: {' '.join(str(error).split())}.") from None
    if not isinstance(values, np.ndarray):
        raise UsageError(f"{where} holds several arrays; save each in a file of its own.")
    own = _of_dtype(name, values.dtype)
    wanted = own if kind is None else _type(kind, where)
    # Sixteen-bit patterns are how NumPy keeps bfloat16.
    values = (
        values.view(STORAGE[own]) if own == wanted or (own, wanted) == ("u16", "bf16") else _as_type(values, wanted)
    )
    return sized(Tensor(name, wanted, values.shape, values=np.ascontiguousarray(values)))


def _as_type(values: Array, kind: str) -> Array:
    """Values converted to a type, to nearest even; bfloat16 as its bit patterns."""
    if kind != "bf16":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(values, STORAGE[kind]).reshape(np.shape(values))
    return to_bf16(np.asarray(values, np.float64)).reshape(np.shape(values))
