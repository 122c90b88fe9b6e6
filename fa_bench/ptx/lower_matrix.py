"""Lowering of matrix products: ``mma`` and ``wmma.mma``, on the expanded forms of :mod:`runtime_matrix`.

Every product is made of tiles of 16 rows and 8 columns: one for ``mma``, two for ``wmma``. Eight rows are done as
sixteen. An f32 accumulator stays expanded from one product to the next; its lane form is made when somebody reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fa_bench.ptx import isa_matrix, runtime_matrix
from fa_bench.ptx.emitter import Emitter, Value
from fa_bench.ptx.fragments import per_register
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import LANES
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.lower_memory import items_of
from fa_bench.ptx.program import Instruction, Operand, Reg
from fa_bench.ptx.wide import Wide

_ROWS: Final = 16
_COLUMNS: Final = 8


@dataclass
class Fragments:
    """Expanded operands of the block being lowered."""

    a_buffers: dict[tuple[str, ...], str] = field(default_factory=dict)
    #: registers (d0..d3) -> buffer that holds their current values
    accumulators: dict[tuple[str, ...], str] = field(default_factory=dict)
    c_used: int = 0


@dataclass(frozen=True)
class Tile:
    """Operands of one product of 16 rows and 8 columns."""

    a: tuple[Operand, ...]
    b: tuple[Operand, ...]
    c: tuple[Operand, ...]
    d: tuple[Operand, ...]


@dataclass(frozen=True)
class Types:
    """Element types of a product and its depth."""

    d: str
    a: str
    b: str
    c: str
    depth: int


def _types(types: Sequence[str], depth: int) -> Types:
    d, a, b, c = types
    return Types(d, a, b, c, depth)


def _fragments(e: Emitter) -> Fragments:
    state = e.block_state.get("mma")
    if not isinstance(state, Fragments):
        state = Fragments()
        e.block_state["mma"] = state
    return state


def _names(operands: Sequence[Operand]) -> tuple[str, ...]:
    return tuple(item.name for item in operands if isinstance(item, Reg))


@lowers(*(f"mma.{shape}.{family}" for shape, families in isa_matrix.MMA.items() for family in families))
def _mma(e: Emitter, i: Instruction) -> None:
    shape = next(part for part in i.row.op.split(".") if part in isa_matrix.MMA)
    rows, depth = (int(shape.split(mark)[1].split("n")[0]) for mark in "mk")
    types = _types(i.form.types, depth)
    tile = Tile(*(items_of(i.operands[k]) for k in (1, 2, 3, 0)))
    each = per_register(types.a)
    held = rows * _COLUMNS // LANES
    wanted = (
        rows * depth // LANES // each,
        _COLUMNS * depth // LANES // each,
        _packed(types.c, held),
        _packed(types.d, held),
    )
    if i.guard is not None or wanted != tuple(len(part) for part in (tile.a, tile.b, tile.c, tile.d)):
        raise UnsupportedInstruction(i.text, i.line)
    if rows < _ROWS:
        # The same eight rows twice; only the first eight of the result are used.
        tile = Tile(tuple(item for item in tile.a for _ in range(2)), tile.b, tile.c, tile.d)
    multiply(e, i, [tile], types)


def _packed(type_: str, count: int) -> int:
    """Registers that hold ``count`` elements of C or D."""
    return count // 2 if type_ == "f16" else count


def multiply(e: Emitter, i: Instruction, tiles: Sequence[Tile], types: Types) -> None:
    """D = A B + C for every tile; all sources are read before anything is written."""
    state = _fragments(e)
    factors = [(_expanded_a(e, state, tile, types), _vectors(e, tile.b, types.b)) for tile in tiles]
    if types.d == types.c == "f32":
        buffers = _accumulators(e, state, tiles)
        for (a, b), buffer in zip(factors, buffers, strict=True):
            _emit_product(e, types, a, b, buffer)
        for tile, buffer in zip(tiles, buffers, strict=True):
            _hold(e, state, _names(tile.d), buffer)
        return
    results = []
    for tile, (a, b) in zip(tiles, factors, strict=True):
        lanes = _accumulator_lanes(e, tile, types)
        buffer = e.alloca(f"frag_once_{types.d}", 8 * _ROWS * _COLUMNS)
        _expand_c(e, buffer, lanes)
        _emit_product(e, types, a, b, buffer)
        results.append(_result(e, i, tile, types, _collapsed(e, buffer, lanes[0].elem)))
    for tile, values in zip(tiles, results, strict=True):
        for target, value in zip(tile.d, values, strict=True):
            e.write(target, value)


def _vectors(e: Emitter, operands: Sequence[Operand], type_: str) -> list[Value]:
    return [e.vector(e.read(item, "double" if type_ == "f64" else "i32")) for item in operands]


def _expanded_a(e: Emitter, state: Fragments, tile: Tile, types: Types) -> str:
    kind, depth = types.a, types.depth
    values = _vectors(e, tile.a, kind)
    key = (kind, str(depth), *(v.name for v in values))
    if key not in state.a_buffers:
        size = runtime_matrix.a_bytes(kind, depth)
        buffer = e.alloca(f"frag_a{len(state.a_buffers)}_{size}", size)
        name = e.define(f"mma_expand_a_{kind}_{depth}", lambda: runtime_matrix.expand_a(kind, depth))
        e.emit(f"call void @{name}(ptr {buffer}, {', '.join(v.typed for v in values)})")
        state.a_buffers[key] = buffer
    return state.a_buffers[key]


def _emit_product(e: Emitter, types: Types, a: str, b: list[Value], c: str) -> None:
    kind, depth = types.b, types.depth
    size = runtime_matrix.b_bytes(kind, depth)
    room = e.alloca(f"frag_b_{size}", size)
    name = e.define(f"mma_{kind}_{depth}", lambda: runtime_matrix.multiply(kind, depth))
    e.emit(f"call void @{name}(ptr {a}, ptr {c}, ptr {room}, {', '.join(v.typed for v in b)})")


def _expand_c(e: Emitter, buffer: str, lanes: Sequence[Value]) -> None:
    elem = lanes[0].elem
    name = e.define(f"mma_expand_c_{elem}", lambda: runtime_matrix.expand_c(elem))
    e.emit(f"call void @{name}(ptr {buffer}, {', '.join(v.typed for v in lanes)})")


def _collapsed(e: Emitter, buffer: str, elem: str) -> list[Value]:
    """The four lane vectors of an expanded accumulator."""
    name = e.define(f"mma_collapse_c_{elem}", lambda: runtime_matrix.collapse_c(elem))
    step = LANES * (8 if elem == "double" else 4)
    out = e.alloca(f"lanes_{elem}", 4 * step)
    e.emit(f"call void @{name}(ptr {buffer}, ptr {out})")
    loads = (e.let(f"load <{LANES} x {elem}>, ptr {e.field(out, step * k)}, align 64") for k in range(4))
    return [Value(name, elem, False) for name in loads]


# Accumulators that stay expanded.


def _accumulators(e: Emitter, state: Fragments, tiles: Sequence[Tile]) -> list[str]:
    targets = {name for tile in tiles for name in _names(tile.d)}
    buffers = []
    for tile in tiles:
        elsewhere = {name for other in tiles if other is not tile for name in _names(other.c)}
        buffers.append(_accumulator(e, state, tile.c, targets, elsewhere))
    return buffers


def _accumulator(e: Emitter, state: Fragments, c: Sequence[Operand], targets: set[str], elsewhere: set[str]) -> str:
    """Buffer with the expanded form of c, which the product may overwrite."""
    names = _names(c)
    if len(names) == 4 and names in state.accumulators and all(n in e.lazy for n in names):
        # In place, unless somebody still wants the old values.
        if any(n in elsewhere or (n not in targets and e.needed_after(n)) for n in names):
            e.lazy[names[0]]()
        buffer = state.accumulators.pop(names)
        for n in names:
            e.lazy.pop(n, None)
        return buffer
    values = [e.vector(e.read(item, "float")) for item in c]
    buffer = e.alloca(f"frag_c{state.c_used}", runtime_matrix.c_bytes("f32"))
    state.c_used += 1
    _expand_c(e, buffer, values)
    return buffer


def _hold(e: Emitter, state: Fragments, names: tuple[str, ...], buffer: str) -> None:
    """The registers ``names`` now have the values in ``buffer``."""
    for name in names:
        _forget(state, name)

    def force() -> None:
        # A register that was overwritten since then is no longer this product's.
        mine = [(k, n) for k, n in enumerate(names) if e.lazy.get(n) is force]
        values = _collapsed(e, buffer, "float")
        for k, n in mine:
            del e.lazy[n]
            e.values[n] = values[k]

    for name in names:
        e.values.pop(name, None)
        e.lazy[name] = force
        e.written.add(name)
    state.accumulators[names] = buffer


def _forget(state: Fragments, name: str) -> None:
    """Drop accumulators whose register ``name`` is overwritten."""
    for names in [names for names in state.accumulators if name in names]:
        del state.accumulators[names]


# All others.


def _accumulator_lanes(e: Emitter, tile: Tile, types: Types) -> list[Value]:
    """Four lane vectors to start from: C, or zero for integers, whose C is added behind."""
    if types.c == "s32":
        return [Value("zeroinitializer", "float", False)] * 4
    if types.c == "f16":
        words = [Wide(e, e.vector(e.read(item, "i32")).name, "i32", LANES) for item in tile.c]
        return [runtime_matrix.decoded(word, h, "f16").value() for word in words for h in range(2)]
    elem = "double" if types.c == "f64" else "float"
    values = [e.vector(e.read(item, elem)) for item in tile.c]
    return [*values, *([Value("zeroinitializer", elem, False)] * (4 - len(values)))]


def _result(e: Emitter, i: Instruction, tile: Tile, types: Types, lanes: list[Value]) -> list[Value]:
    """The registers of D."""
    if types.d == "s32":
        # The exact sum of products, then one addition.
        word = "llvm.sadd.sat" if i.has("satfinite") else ""
        totals = []
        for item, lane in zip(tile.c, lanes, strict=False):
            product, c = e.convert("fptosi", lane, "i32"), e.read(item, "i32")
            totals.append(e.intrinsic(word, product, c) if word else e.op("add {0}, {n1}", product, c))
        return totals
    if types.d == "f16":
        halves = [Wide(e, v.name, "float", LANES).to("fptrunc", "half").bits().to("zext", "i32") for v in lanes]
        return [halves[k + 1].op("shl", 16).op("or", halves[k]).value() for k in (0, 2)]
    return lanes[: len(tile.d)]


# wmma: two tiles.


@lowers("wmma.mma", "wmma.mma.int", "wmma.mma.tf32", "wmma.mma.f64")
def _wmma(e: Emitter, i: Instruction) -> None:
    """See :mod:`fragments` for how the tiles lie in the operands."""
    shape = next(m for m in i.form.modifiers if m[0] == "m")
    types = i.form.types if len(i.form.types) == 4 else (i.form.types[0], "f16", "f16", i.form.types[1])
    depth = int(shape.rsplit("k", 1)[1])
    d, a, b, c = (items_of(operand) for operand in i.operands)
    each = per_register(types[1])
    if i.guard is not None:
        raise UnsupportedInstruction(i.text, i.line)
    if shape == "m8n8k4":
        if (len(a), len(b), len(c), len(d)) != (1, 1, 2, 2):
            raise UnsupportedInstruction(i.text, i.line)
        multiply(e, i, [Tile((a[0], a[0]), b, c, d)], _types(types, depth))
        return
    if shape == "m8n32k16":
        a, b = b, a
    upper, lower = _ROWS * depth // LANES // each, _COLUMNS * depth // LANES // each
    two_a = shape in ("m32n8k16", "m8n32k16")
    wanted = (upper * (1 + two_a), lower * (2 - two_a), 2 * _packed(types[3], 4), 2 * _packed(types[0], 4))
    if types[1] == "f16":
        wanted = (8, 8, *wanted[2:])
    if wanted != (len(a), len(b), len(c), len(d)):
        raise UnsupportedInstruction(i.text, i.line)
    tiles = []
    for k in range(2):
        ka, kb = (k, 0) if two_a else (0, k)
        halves = (part[k * len(part) // 2 : (k + 1) * len(part) // 2] for part in (c, d))
        tiles.append(Tile(a[upper * ka : upper * (ka + 1)], b[lower * kb : lower * (kb + 1)], *halves))
    multiply(e, i, tiles, _types(types, depth))
