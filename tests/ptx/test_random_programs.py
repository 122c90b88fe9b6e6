"""Random programs over the whole ISA table: the interpreter and the JIT agree bit for bit, counts included.

Each result has a register of its own, which is compared at the end; a copy goes to a pool by type, where later
instructions find their sources. Floats never reach integer pools as patterns, since engines need not agree on the
payload of a NaN; results of approximate instructions go to a pool that nobody reads and are compared by bound.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.ptx import interpreter, isa_atomic, isa_matrix, isa_memory
from fa_bench.ptx.interpreter.formats import FORMATS, Number, decode
from fa_bench.ptx.isa import ROWS, TYPE_BITS, Row, match

#: Pool -> width in bits: integers h, r, d; predicates p; floats f, e (f64), F (f32x2), g (f16), G (f16x2), b (bf16),
#: B (bf16x2); results that nobody reads: t (tf32), approximations q (f32), z (f64), w (f16), W (f16x2), y (bf16), Y.
POOLS = {
    "h": 16, "r": 32, "d": 64, "p": 1, "f": 32, "e": 64, "F": 64, "g": 16, "G": 32, "b": 16, "B": 32,
    "q": 32, "z": 64, "w": 16, "W": 32, "y": 16, "Y": 32, "t": 32,
}  # fmt: skip
UNREAD = "qzwWyYt"
DEPTH = 4
INTEGER_POOL = {1: "p", 8: "r", 16: "h", 32: "r", 64: "d"}
FLOAT_POOL = {"f32": "f", "f64": "e", "f32x2": "F", "f16": "g", "f16x2": "G", "bf16": "b", "bf16x2": "B", "tf32": "t"}
APPROXIMATE_POOL = dict(zip("fegGbB", "qzwWyY", strict=True))
#: Format of the elements in a pool of floats.
ELEMENT = {
    **dict.fromkeys("fFqt", "f32"), **dict.fromkeys("ez", "f64"), **dict.fromkeys("gGwW", "f16"),
    **dict.fromkeys("bByY", "bf16"),
}  # fmt: skip

MEMORY = {"ld.global", "ld.shared", "st.global", "st.shared"}
#: Rows that other files test: they need an address, a whole warp, a second warp or a place to go.
ELSEWHERE = (
    {row.name for row in (*isa_memory.ROWS, *isa_atomic.ROWS, *isa_matrix.ROWS)}
    | {f"{word}.{what}" for word in ("bar", "barrier") for what in ("sync", "arrive", "red", "red.popc")}
    | {"bra", "brx.idx", "ret", "exit", "trap", "nanosleep"}
    # Their error is bounded near zero only.
    | {"sin.f32", "cos.f32"}
) - MEMORY
#: Rows that are only meaningful where all lanes are together.
TOGETHER = {
    "shfl.sync", "vote.sync", "activemask", "bar.warp.sync", "membar", "fence", "match.any", "match.all", "redux.int",
    "redux.bits", "movmatrix",
}  # fmt: skip
#: Modifiers that the writer adds at random where a row allows them.
EXTRAS = ("ftz", "sat", "NaN", "relu", "satfinite", "rn", "shiftamt")
INTEGER_TYPES = {f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Template:
    """An opcode with the pool of its destination ("" for none) and of each source, or a literal source.

    ``{}`` in the opcode takes modifiers that may be there or not.
    """

    row: str
    opcode: str
    target: str
    sources: tuple[str, ...]


def pool(type_: str) -> str:
    return FLOAT_POOL.get(type_) or INTEGER_POOL[TYPE_BITS[type_]]


def templates(row: Row) -> Iterator[Template]:
    """Forms of a row that the generator writes: each type or signature, each choice of modifiers at least once."""
    match row.name:
        case "shf.l" | "shf.r":
            yield from (Template(row.name, f"{row.op}.{m}.b32", "r", ("r", "r", "r")) for m in ("wrap", "clamp"))
        case "shfl.sync":
            for mode, control in [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("idx", 0x181F), ("up", 0x1800)]:
                yield Template(row.name, f"shfl.sync.{mode}.b32", "r", ("r", "r", str(control), "-1"))
        case "vote.sync":
            yield from (Template(row.name, f"vote.sync.{m}.pred", "p", ("p", "-1")) for m in ("all", "any", "uni"))
            yield Template(row.name, "vote.sync.ballot.b32", "r", ("p", "-1"))
        case "activemask":
            yield Template(row.name, "activemask.b32", "r", ())
        case "bar.warp.sync":
            yield Template(row.name, row.name, "", ("-1",))
        case "membar" | "fence":
            yield Template(row.name, "membar.cta" if row.name == "membar" else "fence.acq_rel.cta", "", ())
        case _:
            for types in row.signatures or [(t,) for t in row.types]:
                for choice in choices(row):
                    yield from forms(row, types, choice)


def choices(row: Row) -> Iterator[tuple[str, ...]]:
    """One modifier of each group, so that every one of them occurs."""
    for k in range(max((len(group) for group in row.choose), default=1)):
        yield tuple(m for m in (group[(k + k // len(group)) % len(group)] for group in row.choose) if m)


def forms(row: Row, types: tuple[str, ...], choice: tuple[str, ...]) -> Iterator[Template]:
    source = types[-1]
    if row.op in ("setp", "set") and source in INTEGER_TYPES:
        # lo, ls, hi and hs are for unsigned types, patterns are equal or not.
        orders = choice[0] not in ("eq", "ne")
        if (source[0] == "b" and orders) or (choice[0] in ("lo", "ls", "hi", "hs") and source[0] != "u"):
            return
    target, sources = pools(row, types, choice)
    if {"approx", "full"} & set(choice):
        target = APPROXIMATE_POOL[target]
    yield Template(row.name, ".".join([row.op, *choice]) + ".{}" + ".".join(types), target, sources)


def pools(row: Row, types: tuple[str, ...], choice: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Pools of the destination and of the sources."""
    own = pool(types[-1])
    combined = ("p",) if {"and", "or", "xor"} & set(choice) else ()
    count = len(row.operands.split(",")) - 1 - row.optional
    match row.op:
        case "setp":
            return "p", (own, own, *combined)
        case "set":
            return pool(types[0]), (own, own, *combined)
        case "testp":
            return "p", (own,)
        case "mul.wide" | "mad.wide":
            double = INTEGER_POOL[2 * TYPE_BITS[types[0]]]
            return double, (own, own, double)[:count]
        case "shl" | "shr":
            return own, (own, "r")
        case "bfe" | "bfi":
            return own, (*(own,) * (count - 2), "r", "r")
        case "popc" | "clz" | "bfind":
            return "r", (own,)
        case "selp":
            return own, (own, own, "p")
        case "slct":
            return pool(types[0]), (pool(types[0]), pool(types[0]), own)
        case "lop3":
            return "r", ("r", "r", "r", "150")
        case "cvt":
            return pool(types[0]), (own,) * count
        case "match.any.sync" | "match.all.sync" | "redux.sync":
            return "r", (own, "-1")
        case "movmatrix.sync.aligned":
            return "r", ("r",)
    return own, (own,) * count


ALL = [template for row in ROWS if row.name not in ELSEWHERE | MEMORY for template in templates(row)]


def test_every_row_takes_part():
    """A new row needs a template here or a test elsewhere."""
    assert {t.row for t in ALL} | MEMORY | ELSEWHERE == {row.name for row in ROWS}


@dataclass
class Writer:
    """Writes one program."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    labels: int = 0
    #: Pool of each result.
    results: list[str] = field(default_factory=list)

    def source(self, kind: str) -> str:
        """A register of a pool, sometimes an immediate or a value that is the same in all lanes."""
        if kind not in POOLS:
            return kind
        dice = self.random.random()
        if dice < 0.15 and kind in ("r", "h", "d"):
            return str(self.random.choice([0, 1, -1, 7, 31, 32, 255, 0x7FFF]))
        if dice < 0.15 and kind == "f":
            return self.random.choice(["0f00000000", "0f3F800000", "0fBF000000", "0f7F800000", "0f00000001"])
        if dice < 0.3 and kind in ("r", "d", "f"):
            return f"%u{kind}{self.random.randrange(2)}"
        if kind == "p" and dice < 0.2:
            return f"!%p{self.random.randrange(DEPTH)}"
        return f"%{kind}{self.random.randrange(DEPTH)}"

    def register(self, kind: str) -> str:
        return f"%{kind}{self.random.randrange(DEPTH)}"

    def emit(self, template: Template) -> None:
        form = match(template.opcode.format(""))
        assert form is not None, template.opcode
        extra = "".join(f"{m}." for m in EXTRAS if m in form.row.modifiers and self.random.random() < 0.3)
        if match(template.opcode.format(extra)) is None:
            extra = ""
        # Negated predicates are read as conditions only.
        plain = form.row.op in ("mov", "not", "and", "or", "xor")
        sources = [s.lstrip("!") if plain else s for s in map(self.source, template.sources)]
        targets = [template.target] * (2 if "|" in form.row.operands else bool(template.target))
        names = [f"%o{len(self.results) + k}" for k in range(len(targets))]
        operands = ["|".join(names)] * bool(names) + sources
        guard = ""
        if template.row not in TOGETHER and self.random.random() < 0.2:
            guard = f"@{self.random.choice(['', '!'])}%p{self.random.randrange(DEPTH)} "
        self.lines.append(f"{guard}{template.opcode.format(extra)} {', '.join(operands)};".replace(" ;", ";"))
        for name, target in zip(names, targets, strict=True):
            type_ = "pred" if target == "p" else f"b{POOLS[target]}"
            self.lines.append(f"mov.{type_} {self.register(target)}, {name};")
            self.results.append(target)

    def access(self) -> None:
        """A load from the read-only buffer at a random place, or a store to and load from the lane's own row."""
        kind, type_, nbytes = self.random.choice([("r", "u32", 4), ("d", "u64", 8), ("h", "u16", 2), ("f", "f32", 4)])
        space = self.random.choice(["global", "shared", "table"])
        offset = nbytes * self.random.randrange(64 // nbytes)
        if space == "table":
            self.lines.append(f"and.b32 %place, {self.register('r')}, {1016};")
            self.lines.append(
                f"mad.wide.u32 %spot, %place, 1, %table;\nld.global.{type_} {self.register(kind)}, [%spot];"
            )
            return
        row = "%row" if space == "global" else "%near"
        if kind != "f":
            # A float stored where an integer is loaded later would carry a NaN's payload with it.
            self.lines.append(f"st.{space}.{type_} [{row}+{offset}], {self.register(kind)};")
            self.lines.append(f"ld.{space}.{type_} {self.register(kind)}, [{row}+{offset}];")

    def some(self, chosen: list[Template]) -> None:
        """Each of ``chosen``, with branches and loops around parts of them (but not around warp-wide ones)."""
        while chosen:
            count = self.random.randint(1, 8)
            part, chosen = chosen[:count], chosen[count:]
            self.block([t for t in part if t.row in TOGETHER])
            part = [t for t in part if t.row not in TOGETHER]
            shape = self.random.random()
            self.labels += 1
            label = f"L{self.labels}"
            if shape < 0.3:
                self.block(part)
                self.access()
            elif shape < 0.6:
                self.lines.append(f"@%p{self.random.randrange(DEPTH)} bra {label};")
                self.inside(part)
                self.lines.append(f"{label}:")
            elif shape < 0.8:
                self.lines.append(f"@%p{self.random.randrange(DEPTH)} bra {label};")
                self.inside(part[::2])
                self.lines.append(f"bra {label}E;\n{label}:")
                self.inside(part[1::2])
                self.lines.append(f"{label}E:")
            else:
                counter, more = f"%trips{self.labels}", f"%more{self.labels}"
                self.lines.append(
                    f".reg .b32 {counter};\n.reg .pred {more};\nand.b32 {counter}, {self.register('r')}, 3;\n{label}:"
                )
                self.inside(part)
                self.lines.append(
                    f"sub.u32 {counter}, {counter}, 1;\nsetp.gt.s32 {more}, {counter}, 0;\n@{more} bra {label};"
                )

    def inside(self, part: list[Template]) -> None:
        if len(part) > 3:
            self.some(part)
        else:
            self.block(part)
            self.access()

    def block(self, part: list[Template]) -> None:
        for template in part:
            self.emit(template)


CORNERS = {
    16: [0, 1, 0x7FFF, 0x8000, 0xFFFF],
    32: [0, 1, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF],
    64: [0, 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
    1: [0, 1],
}
FLOAT_CORNERS = [0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x80400000, 0x7F7FFFFF,
                 0x4F000000, 0xCF000001, 0x5F800000, 0x477FF000, 0x33000001, 0x3F000000]  # fmt: skip


def element(r: random.Random, name: str) -> int:
    """A floating-point pattern: a corner, an ordinary number or anything."""
    fmt = FORMATS[name]
    if name == "f32" and r.random() < 0.4:
        return r.choice(FLOAT_CORNERS)
    dice = r.random()
    sign = r.getrandbits(1) * fmt.sign
    one = fmt.bias << fmt.mantissa
    if dice < 0.3:
        return sign | r.choice([0, 1, one, one + 1, fmt.largest, fmt.largest + 1, fmt.nan, (1 << fmt.mantissa) - 1])
    if dice < 0.8:
        return sign | r.randrange(one - (8 << fmt.mantissa), one + (8 << fmt.mantissa))
    return r.getrandbits(fmt.bits)


def pattern(r: random.Random, kind: str) -> int:
    width = POOLS[kind]
    if kind in ELEMENT:
        bits = FORMATS[ELEMENT[kind]].bits
        return sum(element(r, ELEMENT[kind]) << shift for shift in range(0, width, bits))
    return r.choice(CORNERS[width]) if r.random() < 0.4 else r.getrandbits(width)


def program(seed: int, chosen: list[Template]) -> tuple[str, list[str]]:
    """PTX text that fills the pools, runs the templates and stores their results; and the results' pools."""
    writer = Writer(random.Random(seed))
    writer.some(chosen)
    results = writer.results
    before, after = [], []
    for k, kind in enumerate(POOLS):
        for d in range(DEPTH):
            offset = 8 * (k * DEPTH + d)
            if kind == "p":
                before.append(f"ld.global.u32 %place, [%from+{offset}];\nsetp.ne.u32 %p{d}, %place, 0;")
            else:
                before.append(f"ld.global.b{POOLS[kind]} %{kind}{d}, [%from+{offset}];")
    for k, kind in enumerate(results):
        if kind == "p":
            before.append(f".reg .pred %o{k};\nmov.pred %o{k}, 0;")
            after.append(f"selp.u32 %place, 1, 0, %o{k};\nst.global.u32 [%to+{8 * k}], %place;")
        else:
            before.append(f".reg .b{POOLS[kind]} %o{k};\nmov.b{POOLS[kind]} %o{k}, 0;")
            after.append(f"st.global.b{POOLS[kind]} [%to+{8 * k}], %o{k};")
    uniform = [(f"u{kind}{k}", t) for kind, t in (("r", "u32"), ("d", "u64"), ("f", "f32")) for k in range(2)]
    params = [f".param .u64 {n}" for n in ("in", "out", "rows", "tables")] + [f".param .{t} {n}" for n, t in uniform]
    declare = "".join(f".reg .{'pred' if w == 1 else f'b{w}'} %{kind}<{DEPTH}>;\n" for kind, w in POOLS.items())
    text = (
        f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({', '.join(params)})\n{{\n{declare}"
        ".reg .b32 %ur<2>, %uf<2>, %lane, %place, %near;\n.reg .b64 %ud<2>, %from, %to, %row, %table, %spot;\n"
        + "".join(f"ld.param.{t} %{n}, [{n}];\n" for n, t in uniform)
        + "mov.u32 %lane, %tid.x;\nld.param.u64 %from, [in];\nld.param.u64 %to, [out];\nld.param.u64 %row, [rows];\n"
        f"ld.param.u64 %table, [tables];\nmad.wide.u32 %from, %lane, {8 * DEPTH * len(POOLS)}, %from;\n"
        f"mad.wide.u32 %to, %lane, {8 * len(results)}, %to;\nmad.wide.u32 %row, %lane, 64, %row;\n"
        "shl.b32 %near, %lane, 6;\n" + "\n".join([*before, *writer.lines, *after]) + "\nret;\n}\n"
    )
    return text, results


def run(engine: str, text: str, count: int, seed: int) -> tuple[np.ndarray, ptx.LaunchCounters]:
    """The ``count`` results, [lane, result], and the counts."""
    r = random.Random(seed)
    memory = ptx.Memory()
    source = memory.allocate("in", 32 * 8 * DEPTH * len(POOLS)).view(np.uint64).reshape(32, -1)
    for lane in range(32):
        source[lane] = [pattern(r, kind) if kind not in UNREAD else 0 for kind in POOLS for _ in range(DEPTH)]
    target = memory.allocate("out", 32 * 8 * count).view(np.uint64).reshape(32, -1)
    target[:] = 0
    memory.allocate("rows", 32 * 64)[:] = 0
    memory.allocate("tables", 1024)[:] = 0x3C  # as floats 0x3C3C3C3C, an ordinary number
    args = [np.uint64(memory.address(n)) for n in ("in", "out", "rows", "tables")]
    args += [np.uint32(pattern(r, "r")) for _ in range(2)] + [np.uint64(pattern(r, "d")) for _ in range(2)]
    args += [np.uint32(pattern(r, "f")).view(np.float32) for _ in range(2)]
    kernel = ptx.load(text).kernel("k")
    function = interpreter.run if engine == "interpreter" else ptx.launch
    counters = function(kernel, grid=(1, 1, 1), block=(32, 1, 1), args=args, memory=memory, smem_bytes=32 * 64)
    return target, counters


#: Relative error that two engines' approximations may differ by.
TOLERANCE = {"q": 2**-10, "z": 2**-19, "w": 2**-8, "W": 2**-8, "y": 2**-6, "Y": 2**-6}


def same(kind: str, one: int, other: int) -> bool:
    """Equal patterns; both NaN for floats; near each other for approximations."""
    if one == other or kind not in ELEMENT:
        return one == other
    fmt = FORMATS[ELEMENT[kind]]
    mask = (1 << fmt.bits) - 1
    parts = (
        [decode(value >> shift & mask, fmt) for value in (one, other)] for shift in range(0, POOLS[kind], fmt.bits)
    )
    return all(near(kind, *pair) for pair in parts)


def near(kind: str, one: Number, other: Number) -> bool:
    if one == other or (one.nan and other.nan):
        return True
    if kind not in TOLERANCE or one.value is None or other.value is None:
        return False
    size = max(abs(one.value), abs(other.value))
    fmt = FORMATS[ELEMENT[kind]]
    return abs(one.value - other.value) <= size * TOLERANCE[kind] + 2 * fmt.least_normal / 2**fmt.mantissa


CHUNK = 60
#: One template of each row; all of them take longer.
FEW = [random.Random(row.name).choice(found) for row in ROWS if (found := [t for t in ALL if t.row == row.name])]
STARTS = range(0, len(ALL), CHUNK)
CASES = [(FEW, 0, start) for start in range(0, len(FEW), CHUNK)]
CASES += [pytest.param(ALL, seed, start, marks=pytest.mark.slow) for seed in (1, 2) for start in STARTS]


@pytest.mark.parametrize("chosen, seed, start", CASES)
def test_engines_agree(chosen, seed, start):
    shuffled = random.Random(seed).sample(chosen, len(chosen))
    text, results = program(1000 * seed + start, shuffled[start : start + CHUNK])
    expected, counted = run("interpreter", text, len(results), seed)
    found, counts = run("jit", text, len(results), seed)
    for k, kind in enumerate(results):
        for lane in range(32):
            one, other = int(expected[lane, k]), int(found[lane, k])
            assert same(kind, one, other), f"%o{k}, lane {lane}: {one:#x} interpreted, {other:#x} compiled\n{text}"
    assert counts == counted
