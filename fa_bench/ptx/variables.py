"""Module-level variables of PTX: ``.global`` and ``.const``, with their initialisers and their bytes.

Global variables are buffers of their own; constant ones lie in one bank, which is addressed by offset.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from fa_bench.ptx.isa_row import TYPE_BITS, PtxError, UnsupportedInstruction
from fa_bench.ptx.layout import CONST_WINDOW
from fa_bench.ptx.memory import ALIGNMENT, Bytes, Memory

#: A declaration outside every body, from its space on.
_DECLARATION: Final = re.compile(
    r"(?P<extern>\.extern\s+)?\.(?P<space>global|const)\s+(?P<rest>[^;]*);",
)
_HEAD: Final = re.compile(
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<vector>[24])\s+)?\.(?P<type>\w+)\s+"
    r"(?P<name>[\w$]+)\s*(?P<dims>(?:\[\s*\d*\s*\]\s*)*)(?:=\s*(?P<value>.*))?$",
    re.S,
)
_REFERENCE: Final = re.compile(r"(?:(?P<generic>generic)\s*\(\s*(?P<inner>[\w$]+)\s*\)|(?P<name>[A-Za-z_$][\w$]*))"
                               r"\s*(?:\+\s*(?P<addend>\d+))?$")  # fmt: skip
_FLOAT_FORMS: Final = {"f32": "<f", "f64": "<d"}


@dataclass(frozen=True, slots=True)
class Reference:
    """An address in an initialiser: ``width`` bytes at ``offset`` hold that of ``symbol`` plus ``addend``."""

    offset: int
    width: int
    symbol: str
    addend: int
    generic: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """A module-level variable: ``space`` is "global" or "const", ``initial`` its first bytes (zeros without any)."""

    name: str
    space: str
    align: int
    initial: bytes
    references: tuple[Reference, ...] = ()


class Storage:
    """The bytes of a module's variables.

    Parameters
    ----------
    variables : iterable of Variable
    """

    def __init__(self, variables: Iterable[Variable] = ()) -> None:
        self.variables: Final = {v.name: v for v in variables}
        self._globals = Memory()
        self._offsets: dict[str, int] = {}
        end = 0
        for variable in self.variables.values():
            if variable.space == "global":
                self._globals.allocate(variable.name, len(variable.initial))
            else:
                self._offsets[variable.name] = -(-end // variable.align) * variable.align
                end = self._offsets[variable.name] + len(variable.initial)
        #: The constant bank; offsets in it are the addresses of constant memory.
        whole = np.zeros(end + ALIGNMENT, np.uint8)
        start = -whole.ctypes.data % ALIGNMENT
        self.constant: Final[Bytes] = whole[start : start + end]
        for variable in self.variables.values():
            self.array(variable.name)[:] = np.frombuffer(self._content(variable), np.uint8)

    def _content(self, variable: Variable) -> bytes:
        content = bytearray(variable.initial)
        for reference in variable.references:
            if reference.symbol not in self.variables:
                raise PtxError(f"The initialiser of {variable.name} names {reference.symbol}, which is no variable.")
            address = self.address(reference.symbol) + reference.addend
            if reference.generic and self.variables[reference.symbol].space == "const":
                address += CONST_WINDOW
            content[reference.offset : reference.offset + reference.width] = address.to_bytes(8, "little")[
                : reference.width
            ]
        return bytes(content)

    def address(self, name: str) -> int:
        """Address of a variable in its own space (KeyError if there is none)."""
        if name in self._offsets:
            return self._offsets[name]
        return self._globals.address(name)

    def array(self, name: str) -> Bytes:
        """The bytes of a variable, not a copy (KeyError if there is none)."""
        if name in self._offsets:
            start = self._offsets[name]
            return self.constant[start : start + len(self.variables[name].initial)]
        return self._globals.array(name)

    @property
    def globals(self) -> tuple[str, ...]:
        """Names of the global variables in the order of their declaration."""
        return tuple(v.name for v in self.variables.values() if v.space == "global")

    @property
    def layout(self) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...], int]:
        """What generated code depends on: the order of global variables, the constant bank's offsets and size."""
        return self.globals, tuple(self._offsets.items()), self.constant.size

    def beside(self, memory: Memory) -> Memory:
        """A memory that holds the buffers of ``memory`` and the global variables under their names.

        Raises
        ------
        ValueError
            If ``memory`` has a buffer with the name of a variable.
        """
        if not self.globals:
            return memory
        both = Memory()
        for part in (memory, self._globals):
            for name in part.names():
                both.register(name, part.array(name))
        return both


def declared(text: str) -> tuple[Variable, ...]:
    """The variables that ``text`` (a module without the bodies of its functions) declares.

    Raises
    ------
    UnsupportedInstruction
        For a declaration that the emulator does not understand.
    """
    variables = []
    for found in _DECLARATION.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        whole = f".{found['space']} {' '.join(found['rest'].split())}"
        head = _HEAD.match(found["rest"])
        if found["extern"]:
            # Defined elsewhere: whoever uses it names an unknown operand.
            continue
        if head is None or head["type"] not in TYPE_BITS or head["type"] == "pred":
            raise UnsupportedInstruction(whole, line)
        try:
            variables.append(_variable(found["space"], head))
        except ValueError as error:
            raise UnsupportedInstruction(whole, line) from error
    return tuple(variables)


def _variable(space: str, head: re.Match[str]) -> Variable:
    type_ = head["type"]
    unit = TYPE_BITS[type_] // 8
    vector = int(head["vector"] or 1)
    dims = [int(d) if d.strip() else 0 for d in re.findall(r"\[([^]]*)\]", head["dims"])]
    tree = _tree(head["value"].strip()) if head["value"] else []
    if dims and dims[0] == 0:
        dims[0] = len(tree)
    shape = [*dims, vector] if vector > 1 else dims
    count = 1
    for dim in shape:
        count *= dim
    content = bytearray(count * unit)
    references = []
    for place, text in _placed(tree if shape else [tree], shape or [1]):
        value = _element(text, type_, place * unit)
        if isinstance(value, Reference):
            references.append(value)
        else:
            content[place * unit : (place + 1) * unit] = value
    if not content:
        raise ValueError("a variable without bytes")
    return Variable(
        head["name"], space, int(head["align"] or unit * vector), bytes(content), tuple(references)
    )  # fmt: skip


#: An initialiser: one value, or a list in braces.
_Tree = str | list["_Tree"]


def _tree(text: str) -> _Tree:
    if not text.startswith("{"):
        return text
    if not text.endswith("}"):
        raise ValueError(text)
    parts: list[_Tree] = []
    depth, begin = 0, 1
    for position, char in enumerate(text[1:], 1):
        if char in "{(":
            depth += 1
        elif char in "})" and position < len(text) - 1:
            depth -= 1
        if (char == "," and depth == 0) or position == len(text) - 1:
            part = text[begin:position].strip()
            if part:
                parts.append(_tree(part))
            begin = position + 1
    return parts


def _placed(tree: _Tree, shape: list[int], start: int = 0) -> Iterator[tuple[int, str]]:
    """Each value with the index of its element; what a list leaves out stays zero."""
    if isinstance(tree, str):
        yield start, tree
        return
    stride = 1
    for dim in shape[1:]:
        stride *= dim
    flat = shape[1:] and all(isinstance(part, str) for part in tree)
    if len(tree) > (shape[0] * stride if flat else shape[0]):
        raise ValueError("more values than elements")
    for k, part in enumerate(tree):
        yield from _placed(part, shape[1:] or [1], start + k * (1 if flat else stride))


def _element(text: str, type_: str, offset: int) -> bytes | Reference:
    """The bytes of one value, or the address that it stands for."""
    unit = TYPE_BITS[type_] // 8
    found = re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8}|[0-9a-fA-F]{16})", text)
    if found:
        return int(found[1], 16).to_bytes(unit, "little")
    found = re.fullmatch(r"(-?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9]\d*))U?", text)
    if found:
        digits = zip(found.groups()[1:], (16, 8, 10), strict=True)
        number = next(int(text, base) for text, base in digits if text) * (-1 if found[1] else 1)
        if type_ in _FLOAT_FORMS:
            return struct.pack(_FLOAT_FORMS[type_], number)
        return (number % (1 << 8 * unit)).to_bytes(unit, "little")
    if type_ in _FLOAT_FORMS and re.fullmatch(r"-?\d+\.\d*(?:[eE][+-]?\d+)?", text):
        return struct.pack(_FLOAT_FORMS[type_], float(text))
    reference = _REFERENCE.match(text)
    if reference is None or unit not in (4, 8):
        raise ValueError(text)
    return Reference(
        offset, unit, reference["inner"] or reference["name"], int(reference["addend"] or 0), bool(reference["generic"])
    )
