"""The parameters of a kernel: names and C types from its source, sizes from its PTX; and which argument goes where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.errors import UsageError, nearest
from fa_bench.profiling.args import FLOATS, STORAGE, Argument, Null, Scalar, Tensor

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL: Final = re.compile(
    r"__global__\s+(?:(?:static|inline|void|__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__maxnreg__\s*\([^()]*\))"
    r"\s+|__launch_bounds__\s*\([^()]*\)\s*)*(?P<name>[A-Za-z_]\w*)\s*\("
)
_QUALIFIERS: Final = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct|std::)\b"
)
_MANGLED: Final = re.compile(r"_Z(?:L|N)?(?=\d)")

#: C type -> types of arguments that may stand for it, the natural one first.
_INTEGERS: Final[Mapping[str, tuple[str, ...]]] = {
    "char": ("i8", "u8"), "signed char": ("i8", "u8"), "int8_t": ("i8", "u8"),
    "unsigned char": ("u8", "i8"), "uint8_t": ("u8", "i8"), "bool": ("u8", "i8"),
    "short": ("i16", "u16"), "int16_t": ("i16", "u16"),
    "unsigned short": ("u16", "i16"), "uint16_t": ("u16", "i16", "bf16"),
    "int": ("i32", "u32"), "int32_t": ("i32", "u32"),
    "unsigned": ("u32", "i32"), "unsigned int": ("u32", "i32"), "uint": ("u32", "i32"), "uint32_t": ("u32", "i32"),
    "long long": ("i64", "u64"), "long long int": ("i64", "u64"), "int64_t": ("i64", "u64"),
    "ptrdiff_t": ("i64", "u64"), "unsigned long long": ("u64", "i64"), "unsigned long long int": ("u64", "i64"),
    "uint64_t": ("u64", "i64"), "size_t": ("u64", "i64"),
}  # fmt: skip
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    **_INTEGERS,
    "float": ("f32",), "double": ("f64",), "half": ("f16",), "__half": ("f16",),
    "__nv_bfloat16": ("bf16", "u16"), "nv_bfloat16": ("bf16", "u16"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Parameters
    ----------
    name : str
    ctype : str
        As written in the source; empty if there is none.
    size : int
        In bytes.
    """

    name: str
    ctype: str
    size: int

    @property
    def pointer(self) -> bool | None:
        """Whether it is a pointer; None if that is not known."""
        if self.ctype.endswith("*"):
            return True
        return None if self.size == 8 and not self.accepts else False

    @property
    def points_to_const(self) -> bool:
        """Whether it is a pointer to what the kernel must not write."""
        return re.search(r"\bconst\b[^*]*\*", self.ctype) is not None

    @property
    def accepts(self) -> tuple[str, ...]:
        """Types that it takes, of elements if it is a pointer, the natural one first; empty if anything goes."""
        bare = " ".join(_QUALIFIERS.sub(" ", self.ctype.rstrip("*")).split())
        return _TYPES.get(bare, ())

    def __str__(self) -> str:
        return f"{self.name} ({self.ctype or f'{self.size} bytes'})"


def declared(source: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """(name, C type) of the parameters of each ``__global__`` function that a CUDA source defines, as far as it can
    be read without a compiler."""
    text = _COMMENT.sub(" ", source)
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for kernel in _KERNEL.finditer(text):
        parameters = tuple(_declaration(part) for part in _split(text, kernel.end()))
        found[kernel["name"]] = tuple(p for p in parameters if p[0])
    return found


def _split(text: str, start: int) -> list[str]:
    """What stands between the commas up to the closing parenthesis."""
    parts: list[str] = [""]
    depth = 0
    for char in text[start:]:
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            if depth == 0:
                break
            depth -= 1
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part.strip()]


def _declaration(part: str) -> tuple[str, str]:
    text = part.partition("=")[0].strip()
    found = re.fullmatch(r"(.*?)\b([A-Za-z_]\w*)\s*((?:\[[^\]]*\])*)", text, re.DOTALL)
    if found is None:
        return "", ""
    ctype = " ".join((found[1] + ("*" if found[3] else "")).split())
    pointer = "*" if "*" in ctype else ""
    # "const float *__restrict__" and "float const*" mean the same pointer.
    return found[2], ctype.partition("*")[0].strip() + pointer


def demangled(entry: str) -> str:
    """The C++ name of an entry, without template arguments and parameters; the entry itself if it is not mangled.

    Examples
    --------
    >>> demangled("_Z5scalePfi"), demangled("_ZN3lab5scaleILi4EEEvPf"), demangled("scale")
    ('scale', 'lab::scale', 'scale')
    """
    prefix = _MANGLED.match(entry)
    if prefix is None:
        return entry
    place, names = prefix.end(), []
    while (digits := re.compile(r"\d+").match(entry, place)) is not None:
        place = digits.end() + int(digits.group())
        names.append(entry[digits.end() : place])
        if prefix.group() != "_ZN":
            break
    return "::".join(names)


def choose(entries: Sequence[str], wanted: str | None) -> str:
    """The entry that ``wanted`` means: an entry's own name, or its C++ name.

    Raises
    ------
    UsageError
        If there is none or more than one.
    """
    if wanted is None:
        if len(entries) == 1:
            return entries[0]
        raise UsageError(
            f"There are {len(entries)} kernels; say which one.", f"Known: {', '.join(map(demangled, entries))}."
        )
    if wanted in entries:
        return wanted
    fitting = [e for e in entries if demangled(e) == wanted or demangled(e).rpartition("::")[2] == wanted]
    if len(fitting) > 1:
        raise UsageError(f"{len(fitting)} kernels are called {wanted}.", f"Name one of {', '.join(fitting)}.")
    if not fitting:
        raise UsageError(f"There is no kernel {wanted!r}.", nearest(wanted, [demangled(e) for e in entries]))
    return fitting[0]


def bind(kernel: str, parameters: Sequence[Parameter], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """Arguments in the order of the parameters, each checked against its own.

    They go by name where the source tells the parameters' names, else by position.

    Raises
    ------
    UsageError
        If one is missing, too many, unknown or of the wrong type; says which parameter expects what.
    """
    names = [parameter.name for parameter in parameters]
    expected = f"{kernel} takes {', '.join(map(str, parameters)) or 'no arguments'}."
    given: dict[str, Argument] = {}
    for argument in arguments:
        if argument.name in given:
            raise UsageError(f"Argument {argument.name} is given twice.")
        given[argument.name] = argument
    if set(given) & set(names):
        for name in given:
            if name not in names:
                raise UsageError(f"Kernel {kernel} has no parameter {name!r}.", f"{nearest(name, names)} {expected}")
        for parameter in parameters:
            if parameter.name not in given:
                raise UsageError(f"Kernel {kernel} needs an argument for its parameter {parameter}.", expected)
        ordered = tuple(given[name] for name in names)
    else:
        ordered = tuple(arguments)
    if len(ordered) != len(parameters):
        raise UsageError(f"Kernel {kernel} takes {len(parameters)} arguments, not {len(ordered)}.", expected)
    return tuple(_checked(kernel, p, a) for p, a in zip(parameters, ordered, strict=True))


def _checked(kernel: str, parameter: Parameter, argument: Argument) -> Argument:
    """The argument with its type settled."""
    if isinstance(argument, Scalar):
        return _checked_scalar(kernel, parameter, argument)
    if parameter.pointer is False or parameter.size != 8:
        raise _mismatch(kernel, parameter, argument, "an array")
    if isinstance(argument, Null):
        return argument
    if parameter.accepts and argument.type not in parameter.accepts:
        raise _mismatch(kernel, parameter, argument, argument.text)
    if argument.type == "u16" and parameter.accepts[:1] == ("bf16",):
        return Tensor(argument.name, "bf16", argument.shape, argument.fill, argument.values)
    return argument


def _checked_scalar(kernel: str, parameter: Parameter, argument: Scalar) -> Scalar:
    if parameter.pointer:
        raise _mismatch(kernel, parameter, argument, f"the number {argument.text}")
    if argument.type is not None:
        kind = argument.type
        if (parameter.accepts and kind not in parameter.accepts) or _size(kind) != parameter.size:
            raise _mismatch(kernel, parameter, argument, argument.text)
        return argument
    if parameter.accepts:
        return Scalar(argument.name, parameter.accepts[0], argument.value)
    floating = isinstance(argument.value, float)
    fitting = [kind for kind in STORAGE if _size(kind) == parameter.size and (kind in FLOATS) == floating]
    if not fitting:
        raise _mismatch(kernel, parameter, argument, f"the number {argument.text}")
    return Scalar(argument.name, fitting[0], argument.value)


def _size(kind: str) -> int:
    return int(kind.lstrip("bfiu")) // 8


def _mismatch(kernel: str, parameter: Parameter, argument: Argument, what: str) -> UsageError:
    wanted = parameter.accepts[0] if parameter.accepts else f"{parameter.size} bytes"
    if parameter.pointer:
        advice = f"Give it an array, as in {argument.name}={wanted if parameter.accepts else 'f32'}[1024]."
    elif parameter.pointer is None:
        advice = "Give it an array, as in f32[1024], or a number of 8 bytes, as in i64=0."
    else:
        advice = f"Give it a number, as in {argument.name}={wanted if parameter.accepts else 'i32'}=1."
    return UsageError(f"Parameter {parameter} of kernel {kernel} can't be {what}.", advice)
