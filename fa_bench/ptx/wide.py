"""IR values of any number of elements, for instructions that work on parts of a register.

An emulated f16x2 register is 32 words; its arithmetic is on 64 halves. :class:`Wide` carries a value with its
element count, so that a lowering is written once for packed and plain types, for lanes and for uniform values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fa_bench.ptx.emitter import ELEMENT, Emitter, Value
from fa_bench.ptx.layout import LANES
from fa_bench.ptx.literals import BITS, constant, literal_of
from fa_bench.ptx.program import Operand

#: Packed types -> element type and elements per register.
PACKED: Final[dict[str, tuple[str, int]]] = {
    "f16x2": ("half", 2), "bf16x2": ("i16", 2), "f32x2": ("float", 2), "u16x2": ("i16", 2), "s16x2": ("i16", 2),
    "e4m3x2": ("i8", 2), "e5m2x2": ("i8", 2),
}  # fmt: skip
_INTEGER_OF: Final = {"half": "i16", "float": "i32", "double": "i64"}
_SUFFIX: Final = {"half": "f16", "float": "f32", "double": "f64"}


class Writer(Protocol):
    """Takes IR, one assignment after the other: an emitter, or the body of a run-time function."""

    def let(self, expression: str) -> str:
        """Write ``%n = expression`` and return ``%n``."""


def indices(values: Sequence[int]) -> str:
    """A constant vector of i32."""
    return "<" + ", ".join(f"i32 {v}" for v in values) + ">"


@dataclass(frozen=True, slots=True)
class Wide:
    """An IR value of ``count`` elements of type ``elem``; a plain scalar if ``count`` is 0."""

    e: Writer
    name: str
    elem: str
    count: int

    @property
    def type(self) -> str:
        """Its IR type."""
        return f"<{self.count} x {self.elem}>" if self.count else self.elem

    @property
    def typed(self) -> str:
        """``type name`` as an IR operand."""
        return f"{self.type} {self.name}"

    def _new(self, expression: str, elem: str = "") -> Wide:
        return Wide(self.e, self.e.let(expression), elem or self.elem, self.count)

    def op(self, word: str, other: Wide | int | float) -> Wide:
        """``word self, other``: ``fadd``, ``and``, ``lshr`` ...; a number is a constant in all elements."""
        return self._new(f"{word} {self.typed}, {self._operand(other).name}")

    def call(self, name: str, *others: Wide | int | float, tail: str = "") -> Wide:
        """An overloaded intrinsic over values of this type; ``tail`` holds further arguments."""
        suffix = _SUFFIX.get(self.elem, self.elem)
        suffix = f"v{self.count}{suffix}" if self.count else suffix
        arguments = ", ".join([self.typed, *(self._operand(o).typed for o in others)])
        return self._new(f"call {self.type} @{name}.{suffix}({arguments}{tail})")

    def to(self, word: str, elem: str) -> Wide:
        """``fpext``, ``zext``, ``trunc`` ... to another element type."""
        shape = f"<{self.count} x {elem}>" if self.count else elem
        return self._new(f"{word} {self.typed} to {shape}", elem)

    def cast(self, elem: str) -> Wide:
        """The same bits as elements of another type of the same width."""
        return self if elem == self.elem else self.to("bitcast", elem)

    def bits(self) -> Wide:
        """The same bits as integers."""
        return self.cast(_INTEGER_OF.get(self.elem, self.elem))

    def constant(self, number: int | float) -> Wide:
        """A constant of this type; an integer stands for a bit pattern."""
        text = constant(number, None, self.elem)
        return Wide(self.e, f"splat ({self.elem} {text})" if self.count else text, self.elem, self.count)

    def _operand(self, other: Wide | int | float) -> Wide:
        return other if isinstance(other, Wide) else self.constant(other)

    def compare(self, predicate: str, other: Wide | int | float) -> Wide:
        """``icmp`` or ``fcmp``."""
        word = "fcmp" if self.elem in _SUFFIX else "icmp"
        return self._new(f"{word} {predicate} {self.typed}, {self._operand(other).name}", "i1")

    def where(self, yes: Wide, no: Wide | int | float) -> Wide:
        """``self ? yes : no`` for a condition."""
        return yes._new(f"select {self.typed}, {yes.typed}, {yes._operand(no).typed}")

    def invert(self) -> Wide:
        """The opposite of a condition."""
        one = "splat (i1 true)" if self.count else "true"
        return self._new(f"xor {self.typed}, {one}")

    def pick(self, places: Sequence[int]) -> Wide:
        """The elements at ``places``."""
        mask = f"<{len(places)} x i32> {indices(places)}"
        return Wide(
            self.e, self.e.let(f"shufflevector {self.typed}, {self.type} poison, {mask}"), self.elem, len(places)
        )

    def joined(self, other: Wide) -> Wide:
        """The elements of both, one after the other."""
        count = self.count + other.count
        mask = f"<{count} x i32> {indices(range(count))}"
        return Wide(self.e, self.e.let(f"shufflevector {self.typed}, {other.typed}, {mask}"), self.elem, count)

    def at(self, place: int) -> Wide:
        """One element as a scalar."""
        return Wide(self.e, self.e.let(f"extractelement {self.typed}, i64 {place}"), self.elem, 0)

    def padded(self, count: int) -> Wide:
        """``count`` elements that begin with these."""
        if self.count == count:
            return self
        if self.count == 0:
            one = self.e.let(f"insertelement <{count} x {self.elem}> poison, {self.typed}, i64 0")
            return Wide(self.e, one, self.elem, count)
        return self.pick([k if k < self.count else 0 for k in range(count)])

    def first(self, count: int) -> Wide:
        """The first ``count`` elements; the first one as a scalar if ``count`` is 0."""
        if self.count == count:
            return self
        return self.at(0) if count == 0 else self.pick(range(count))

    def value(self) -> Value:
        """As a register's value: one element, or two packed ones, per lane."""
        uniform = self.count in (0, 2)
        if self.count in (0, LANES):
            return Value(self.name, self.elem, uniform)
        word = f"i{2 * BITS[self.elem]}"
        shape = word if uniform else f"<{LANES} x {word}>"
        return Value(self.e.let(f"bitcast {self.typed} to {shape}"), word, uniform)


def read(e: Emitter, operands: Sequence[Operand], type_: str) -> list[Wide]:
    """Operands of one PTX type, all scalars or all vectors; packed types in their parts."""
    values = e.level([e.read(operand, ELEMENT[type_]) for operand in operands])
    return [split(e, value, type_) for value in values]


def split(e: Emitter, value: Value, type_: str) -> Wide:
    """A register's value in its parts."""
    lanes = 0 if value.uniform else LANES
    if type_ not in PACKED:
        return Wide(e, value.name, value.elem, lanes)
    elem, per = PACKED[type_]
    count = per * max(lanes, 1)
    if value.literal:
        width = BITS[elem]
        parts = [int(value.name) >> width * k for k in range(per)]
        text = ", ".join(f"{elem} {literal_of(part, elem)}" for part in parts)
        return Wide(e, f"<{text}>", elem, count)
    return Wide(e, e.let(f"bitcast {value.typed} to <{count} x {elem}>"), elem, count)


def mapped(e: Emitter, name: str, *values: Wide, elem: str = "") -> Wide:
    """Run-time function ``name``, which takes and gives 32 elements, on values of any count."""
    count, out = values[0].count, elem or values[0].elem
    if count > LANES:
        halves = [mapped(e, name, *(v.pick(range(k, k + LANES)) for v in values), elem=out) for k in (0, LANES)]
        return halves[0].joined(halves[1])
    arguments = ", ".join(v.padded(LANES).typed for v in values)
    return Wide(e, e.let(f"call <{LANES} x {out}> @{name}({arguments})"), out, LANES).first(count)


def flushed(value: Wide) -> Wide:
    """Subnormal f16 or f32 to zero of the same sign."""
    exponent, sign = (0x7C00, 0x8000) if value.elem == "half" else (0x7F800000, 0x80000000)
    bits = value.bits()
    tiny = bits.op("and", exponent).compare("eq", 0)
    return tiny.where(bits.op("and", sign), bits).cast(value.elem)


def saturated(value: Wide) -> Wide:
    """``.sat``: clamped to [0, 1]; NaN and -0 become +0."""
    low = value.compare("ogt", 0.0).where(value, 0.0)
    return low.compare("olt", 1.0).where(low, 1.0)


def rectified(value: Wide) -> Wide:
    """``.relu``: what has a sign becomes +0, NaN stays."""
    return value.compare("ugt", 0.0).where(value, 0.0)
