"""``mma`` and ``wmma``: every element of D is a sum over k, in order, with the rounding of the accumulator's format.

f32 sums have one rounding per step, starting from C; with f16 accumulators the f32 sum is rounded once at the end.
Tensor cores sum in another order and with other roundings, so results agree with hardware within the format's error
only. f64 sums are fused multiply-adds, integer sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.float32 import fused_multiply_add
from fa_bench.ptx.interpreter.floats import rounding
from fa_bench.ptx.interpreter.formats import FORMATS, add, decode, encode, multiply
from fa_bench.ptx.interpreter.integer_more import signed
from fa_bench.ptx.interpreter.state import LANES, UINT, Lanes, Step, semantic
from fa_bench.ptx.interpreter.tensor import whole_warp
from fa_bench.ptx.isa import ROWS, TYPE_BITS
from fa_bench.ptx.program import Addr, Operand, Reg, Vec

#: Row and column of each element that a lane holds, in the order of its registers: [element][lane].
Places = list[list[tuple[int, int]]]

#: Bits of a tf32 operand that the product uses.
_TF32_BITS: Final = 0xFFFFE000
_ROWS_OF_MMA: Final = 16


def _elements_per_register(type_: str) -> int:
    return max(32 // TYPE_BITS[type_], 1)


def _factor(type_: str, rows: int, depth: int) -> Places:
    """A of ``mma`` (PTX ISA, "Matrix Fragments for mma.…"); B is the same with rows and columns exchanged."""
    each = _elements_per_register(type_)
    blocks = rows // 8
    places = []
    for register in range(rows * depth // LANES // each):
        for half in range(each):
            row, column = 8 * (register % blocks), half + 4 * each * (register // blocks)
            places.append([(lane // 4 + row, each * (lane % 4) + column) for lane in range(LANES)])
    return places


def _turned(places: Places) -> Places:
    return [[(column, row) for row, column in lanes] for lanes in places]


def _moved(places: Places, rows: int, columns: int) -> Places:
    return [[(row + rows, column + columns) for row, column in lanes] for lanes in places]


def _accumulator(rows: int) -> Places:
    """C and D of ``mma``: pairs of neighbours in a row."""
    return [
        [(lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2) for lane in range(LANES)] for i in range(2 * (rows // 8))
    ]


def mma_places(matrix: str, type_: str, rows: int, depth: int) -> Places:
    """Places of a fragment of ``mma`` with eight columns."""
    if matrix == "a":
        return _factor(type_, rows, depth)
    return _turned(_factor(type_, 8, depth)) if matrix == "b" else _accumulator(rows)


def wmma_places(matrix: str, type_: str, shape: tuple[int, int, int]) -> Places:
    """Places of a fragment of ``wmma``, which the ISA leaves open: two of ``mma``, side by side or stacked."""
    m, n, k = shape
    if (m, n) == (8, 32):
        exchanged = {"a": "b", "b": "a"}.get(matrix, matrix)
        return _turned(wmma_places(exchanged, type_, (32, 8, k)))
    rows = 8 if m == 8 else _ROWS_OF_MMA
    first = mma_places(matrix, type_, rows, k)
    if m == 32 and matrix != "b":
        return first + _moved(first, _ROWS_OF_MMA, 0)
    return first + _moved(first, 0, 8) if n == 16 and matrix != "a" else first


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _elements(step: Step, operand: Operand, type_: str, count: int) -> list[Lanes]:
    """Patterns of the first ``count`` elements of a fragment, one array of 32 lanes each."""
    bits = TYPE_BITS[type_]
    found = []
    for item in _items(operand):
        register = step.value(item, "b64" if bits == 64 else "b32")
        width = 8 * register.dtype.itemsize
        found += [register >> UINT[width](shift) & UINT[width]((1 << bits) - 1) for shift in range(0, width, bits)]
    if len(found) < count:
        raise step.fault(f"a fragment has {count} elements, but its registers hold {len(found)}")
    return found[:count]


def _gathered(places: Places, elements: Sequence[Lanes], dtype: type) -> Lanes:
    """The matrix whose elements lie at ``places``."""
    shape = [1 + max(place[axis] for lanes in places for place in lanes) for axis in (0, 1)]
    matrix: Lanes = np.zeros(shape, dtype)
    for lanes, column in zip(places, elements, strict=True):
        for place, value in zip(lanes, column, strict=True):
            matrix[place] = value
    return matrix


def _numbers(patterns: Lanes, type_: str) -> Lanes:
    """What patterns of a type of at most 32 bits stand for: float32, which holds them exactly, or Python integers."""
    if type_ in ("s8", "u8", "s32"):
        return np.array([signed(int(p), TYPE_BITS[type_], type_) for p in patterns], object)
    if type_ == "f32":
        return patterns.astype(np.uint32).view(np.float32)
    if type_ == "tf32":
        return (patterns.astype(np.uint32) & np.uint32(_TF32_BITS)).view(np.float32)
    wide = [encode(decode(int(p), FORMATS[type_]), FORMATS["f32"], "rn") for p in patterns]
    return np.array(wide, np.uint32).view(np.float32)


def _multiply_doubles(step: Step, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Patterns of D from those of A, B, C."""
    fmt = FORMATS["f64"]
    mode = rounding(step)
    result = np.zeros(c.shape, object)
    for row, column in np.ndindex(*c.shape):
        total = decode(int(c[row, column]), fmt)
        for k in range(a.shape[1]):
            product = multiply(decode(int(a[row, k]), fmt), decode(int(b[k, column]), fmt))
            total = decode(encode(add(product, total, mode), fmt, mode), fmt)
        result[row, column] = encode(total, fmt, mode)
    return result


def _multiply(step: Step, types: Sequence[str], matrices: tuple[Lanes, Lanes, Lanes]) -> Lanes:
    """Patterns of D, for accumulators that are not f64."""
    a, b, c = matrices
    if types[0] == "s32":
        total = c + a @ b
        if step.instruction.has("satfinite"):
            total = np.clip(total, -(2**31), 2**31 - 1)
        return np.array(total % 2**32, object)
    total = c
    for k in range(a.shape[1]):
        total = fused_multiply_add(a[:, k : k + 1], b[k : k + 1, :], total)
    patterns = np.ascontiguousarray(total).view(np.uint32).astype(object)
    if types[0] == "f16":
        narrow = [encode(decode(int(p), FORMATS["f32"]), FORMATS["f16"], "rn") for p in patterns.flat]
        patterns = np.array(narrow, object).reshape(patterns.shape)
    return patterns


def _product(step: Step, types: Sequence[str], places: tuple[Places, Places, Places]) -> None:
    """D = A B + C; ``types`` and ``places`` are those of D, A, B, C and of A, B, C."""
    if not whole_warp(step):
        return
    matrices = []
    for operand, type_, where in zip(step.instruction.operands[1:], types[1:], places, strict=True):
        elements = _elements(step, operand, type_, len(where))
        double = type_ == "f64"
        values = elements if double else [_numbers(patterns, type_) for patterns in elements]
        whole = double or type_ in ("s8", "u8", "s32")
        matrices.append(_gathered(where, values, object if whole else np.float32))
    a, b, c = matrices
    result = _multiply_doubles(step, a, b, c) if types[0] == "f64" else _multiply(step, types, (a, b, c))
    _scatter(step, result, types[0], places[2])


def _scatter(step: Step, matrix: Lanes, type_: str, places: Places) -> None:
    """Write the patterns of a matrix to the registers of operand 0."""
    columns = [[int(matrix[place]) for place in lanes] for lanes in places]
    each = _elements_per_register(type_)
    word = UINT[TYPE_BITS[type_] * each]
    for position, item in enumerate(_items(step.instruction.operands[0])):
        register = np.zeros(LANES, word)
        for half in range(each):
            column = columns[(position * each + half) % len(columns)]
            register |= np.array(column, word) << word(TYPE_BITS[type_] * half)
        step.write(register, item)


def _shape(text: str) -> tuple[int, int, int]:
    m, _, rest = text[1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


def _names(prefix: str) -> Iterator[str]:
    yield from (row.name for row in ROWS if row.name.startswith(prefix))


@semantic(*_names("mma."))
def multiply_matrices(step: Step) -> None:
    types = step.instruction.form.types
    m, _, k = _shape(step.instruction.row.name.split(".")[1])
    a, b, c = (mma_places(matrix, type_, m, k) for matrix, type_ in zip("abc", types[1:], strict=True))
    _product(step, types, (a, b, c))


@semantic(*_names("wmma.mma"))
def multiply_fragments(step: Step) -> None:
    """The opcode of f16 products names the types of D and C only."""
    types = step.instruction.form.types
    if len(types) == 2:
        types = (types[0], "f16", "f16", types[1])
    shape = _wmma_shape(step)
    a, b, c = (wmma_places(matrix, type_, shape) for matrix, type_ in zip("abc", types[1:], strict=True))
    _product(step, types, (a, b, c))


def _wmma_shape(step: Step) -> tuple[int, int, int]:
    return _shape(next(m for m in step.instruction.form.modifiers if m[0] == "m"))


def _accesses(places: Places, type_: str, matrix: str, row_major: bool) -> list[list[int]]:
    """Elements of each access: neighbours of a register, or of a pair of C and D, go together if memory has them so."""
    each = 2 if matrix in "cd" else _elements_per_register(type_)
    groups = [list(range(start, start + each)) for start in range(0, len(places), each)]
    along = 1 if row_major else 0
    first, last = groups[0][0], groups[0][-1]
    if places[last][0][along] - places[first][0][along] == each - 1:
        return groups
    return [[element] for group in groups for element in group]


def _stride(step: Step, operand: int, shape: tuple[int, int, int], matrix: str, row_major: bool) -> int:
    """Elements between the rows (columns) of the matrix in memory: the operand, or as many as it has columns (rows)."""
    if len(step.instruction.operands) > operand:
        return step.uniform(operand)
    m, n, k = shape
    rows, columns = {"a": (m, k), "b": (k, n)}.get(matrix, (m, n))
    return columns if row_major else rows


def _layout(step: Step, matrix: str, address: int, stride: int) -> Iterator[tuple[list[int], list[int]]]:
    """Elements and the lanes' addresses of each access of a ``wmma`` load or store."""
    shape = _wmma_shape(step)
    type_ = step.instruction.type
    row_major = step.instruction.has("row")
    places = wmma_places(matrix, type_, shape)
    leading = _stride(step, stride, shape, matrix, row_major)
    base = step.address(address)
    nbytes = TYPE_BITS[type_] // 8
    for elements in _accesses(places, type_, matrix, row_major):
        offsets = []
        for lane, (row, column) in enumerate(places[elements[0]]):
            index = row * leading + column if row_major else column * leading + row
            offsets.append((base[lane] + index * nbytes) % 2**64)
        yield elements, offsets


def _space(step: Step) -> str:
    return next((space for space in ("global", "shared") if step.instruction.has(space)), "generic")


@semantic(*_names("wmma.load"))
def load_fragment(step: Step) -> None:
    """Registers beyond the fragment's elements repeat them."""
    if not whole_warp(step):
        return
    instruction = step.instruction
    assert isinstance(instruction.operands[1], Addr)
    type_ = instruction.type
    matrix = instruction.row.op.split(".")[2]
    nbytes = TYPE_BITS[type_] // 8
    columns: dict[int, Lanes] = {}
    for elements, addresses in _layout(step, matrix, 1, 2):
        data = step.warp.spaces.read(step, _space(step), addresses, nbytes * len(elements))
        for position, element in enumerate(elements):
            columns[element] = data[:, nbytes * position : nbytes * (position + 1)]
    each = _elements_per_register(type_)
    word = UINT[TYPE_BITS[type_] * each]
    for position, item in enumerate(_items(instruction.operands[0])):
        assert isinstance(item, Reg)
        parts = [columns[(position * each + half) % len(columns)] for half in range(each)]
        step.write(np.ascontiguousarray(np.concatenate(parts, axis=1)).view(word)[:, 0], item)


@semantic(*_names("wmma.store"))
def store_fragment(step: Step) -> None:
    if not whole_warp(step):
        return
    type_ = step.instruction.type
    count = len(wmma_places("d", type_, _wmma_shape(step)))
    elements = _elements(step, step.instruction.operands[1], type_, count)
    narrow = UINT[TYPE_BITS[type_]]
    for chosen, addresses in _layout(step, "d", 0, 2):
        data = np.stack([elements[e].astype(narrow) for e in chosen], axis=1)
        step.warp.spaces.write(step, _space(step), addresses, np.ascontiguousarray(data).view(np.uint8))
