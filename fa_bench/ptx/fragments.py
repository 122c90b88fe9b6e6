"""Which element of a matrix each lane holds where: the fragments of ``mma`` and ``wmma``.

All fragments of ``mma`` with 16 or 8 rows follow one rule (PTX ISA, "Matrix Fragments for mma.…"). With
``g = lane div 4``, ``t = lane mod 4`` and E elements in a register (4 bytes, or 8 for f64), element h of register r is

* of A, row ``g + 8 (r mod 2)``, column ``E t + h + 4 E (r div 2)``, or with 8 rows ``g`` and ``E t + h + 4 E r``;
* of B, row ``E t + h + 4 E r``, column ``g``;

and element i of C and D, counted through the registers, is row ``g + 8 (i div 2)``, column ``2 t + i mod 2``.

The ISA leaves the fragments of ``wmma`` open; here they are those of two ``mma`` products side by side:

=========== ================================== =============================== ============================
shape       A                                  B                               C and D
=========== ================================== =============================== ============================
m16n16k16   A of m16n8k16                      B of columns 0-7, then 8-15     C of columns 0-7, then 8-15
m16n16k8    A of m16n8k8                       B of columns 0-7, then 8-15     C of columns 0-7, then 8-15
m32n8k16    A of rows 0-15, then 16-31         B of m16n8k16                   C of rows 0-15, then 16-31
m8n32k16    transposed: B of m32n8k16          transposed: A of m32n8k16       transposed: C of m32n8k16
m8n8k4      A of m8n8k4                        B of m8n8k4                     C of m8n8k4
=========== ================================== =============================== ============================

An f16 fragment has eight registers where fewer would do: they repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.ptx.layout import LANES

#: Bits of each element type of a product.
BITS: Final[dict[str, int]] = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f64": 64,
}  # fmt: skip
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring elements that each lane holds one after the other.

    Parameters
    ----------
    places : tuple of (row, column)
        Where each lane's first element is.
    count : int
        Elements of a lane.
    along : {"row", "column"}
        Whether they lie side by side in a row or one below the other in a column.
    """

    places: tuple[Place, ...]
    count: int
    along: Literal["row", "column"]

    def shifted(self, rows: int, columns: int) -> Group:
        """The same further down and to the right."""
        return Group(tuple((r + rows, c + columns) for r, c in self.places), self.count, self.along)

    def transposed(self) -> Group:
        """The same in the transposed matrix."""
        return Group(tuple((c, r) for r, c in self.places), self.count, "row" if self.along == "column" else "column")


def per_register(type_: str) -> int:
    """Elements of A or B in a register."""
    return max(32 // BITS[type_], 1)


def of_a(type_: str, depth: int, rows: int = 16) -> tuple[Group, ...]:
    """Registers of A with ``rows`` rows and ``depth`` columns."""
    each, halves = per_register(type_), rows // 8

    def places(r: int) -> tuple[Place, ...]:
        return tuple((lane // 4 + 8 * (r % halves), each * (lane % 4 + 4 * (r // halves))) for lane in range(LANES))

    return tuple(Group(places(r), each, "row") for r in range(rows * depth // LANES // each))


def of_b(type_: str, depth: int) -> tuple[Group, ...]:
    """Registers of B with ``depth`` rows and eight columns."""
    return tuple(group.transposed() for group in of_a(type_, depth, rows=8))


def of_c(rows: int = 16) -> tuple[Group, ...]:
    """Pairs of elements of C or D with ``rows`` rows and eight columns."""
    places = tuple((lane // 4, 2 * (lane % 4)) for lane in range(LANES))
    return tuple(Group(places, 2, "row").shifted(8 * k, 0) for k in range(rows // 8))


def of_wmma(matrix: str, shape: str, type_: str) -> tuple[Group, ...]:
    """Groups of a ``wmma`` fragment, without repetitions.

    Parameters
    ----------
    matrix : {"a", "b", "c", "d"}
    shape : str
        ``m16n16k16`` and the like.
    type_ : str
        Element type.
    """
    match shape, matrix:
        case "m8n8k4", "a":
            return of_a(type_, 4, rows=8)
        case "m8n8k4", "b":
            return of_b(type_, 4)
        case "m8n8k4", _:
            return of_c(rows=8)
        case "m8n32k16", _:
            other = {"a": "b", "b": "a"}.get(matrix, matrix)
            return tuple(group.transposed() for group in of_wmma(other, "m32n8k16", type_))
        case "m32n8k16", _:
            first = {"a": of_a(type_, 16), "b": of_b(type_, 16)}.get(matrix, of_c())
            return first if matrix == "b" else (*first, *(group.shifted(16, 0) for group in first))
    depth = 8 if shape == "m16n16k8" else 16
    first = {"a": of_a(type_, depth), "b": of_b(type_, depth)}.get(matrix, of_c())
    return first if matrix == "a" else (*first, *(group.shifted(0, 8) for group in first))
