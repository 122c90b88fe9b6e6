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
from fa_bench.ptx import interpreter
from fa_bench.ptx.isa import ROWS, TYPE_BITS, Row, match

#: Pool -> width in bits: integers h, r, d; predicates p; floats f, halves g; results of approximations q.
POOLS = {"h": 16, "r": 32, "d": 64, "p": 1, "f": 32, "g": 16, "b": 16, "q": 32}
#: Registers of each pool.
DEPTH = 4
INTEGER_POOL = {1: "p", 8: "r", 16: "h", 32: "r", 64: "d"}
FLOAT_POOL = {"f32": "f", "f16": "g", "bf16": "b"}

#: Rows that other files test: they need an address, a whole warp or a second warp.
ELSEWHERE = {
    "ld.param", "ldmatrix", "mma", "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all",
    "bar.sync", "barrier.sync", "bra", "ret", "exit", "trap", "cvta", "cvta.to",
}  # fmt: skip
MEMORY = {"ld.global", "ld.shared", "st.global", "st.shared"}
#: Rows that are only meaningful where all lanes are together.
TOGETHER = {"shfl.sync", "vote.sync", "activemask", "bar.warp.sync", "membar", "fence"}
APPROXIMATE = {"approx", "full"}


@dataclass(frozen=True)
class Template:
    """An opcode with the pool of its destination ("" for none) and of each source, or a literal source."""

    row: str
    opcode: str
    target: str
    sources: tuple[str, ...]


def pool(type_: str) -> str:
    return FLOAT_POOL.get(type_) or INTEGER_POOL[TYPE_BITS[type_]]


def templates(row: Row) -> Iterator[Template]:
    """All forms of a row that the generator writes."""
    name, types = row.name, [t for t in row.types if t not in ("f64", "f16", "bf16")]
    count = len(row.operands.split(",")) - 1 - row.optional
    match name:
        case "cvt":
            yield from conversions(row)
        case "setp.int" | "setp.f32":
            for t in types:
                for compare in sorted(set(row.modifiers) - {"and", "or", "xor", "ftz"}):
                    if name == "setp.f32":
                        if compare not in ("lo", "ls", "hi", "hs"):
                            yield Template(name, f"setp.{compare}.{{}}f32", "p", ("f", "f"))
                    elif (compare in ("lo", "ls", "hi", "hs")) <= (t[0] == "u") and (
                        compare in ("eq", "ne") or t[0] != "b"
                    ):
                        yield Template(name, f"setp.{compare}.{t}", "p", (pool(t), pool(t)))
                        yield Template(name, f"setp.{compare}.xor.{t}", "p", (pool(t), pool(t), "p"))
        case "mul.wide" | "mad.wide":
            for t in types:
                double = INTEGER_POOL[2 * TYPE_BITS[t]]
                yield Template(name, f"{row.op}.{t}", double, (pool(t), pool(t), double)[:count])
        case "shl" | "shr":
            yield from (Template(name, f"{row.op}.{t}", pool(t), (pool(t), "r")) for t in types)
        case "bfe" | "bfi":
            for t in types:
                yield Template(name, f"{row.op}.{t}", pool(t), (*(pool(t),) * (count - 2), "r", "r"))
        case "popc" | "clz":
            yield from (Template(name, f"{row.op}.{t}", "r", (pool(t),)) for t in types)
        case "selp":
            yield from (Template(name, f"selp.{t}", pool(t), (pool(t), pool(t), "p")) for t in types)
        case "lop3":
            yield from (Template(name, "lop3.b32", "r", ("r", "r", "r", str(table))) for table in (0x1B, 0x96, 0xE8))
        case "shf.l" | "shf.r":
            yield from (Template(name, f"{row.op}.{m}.b32", "r", ("r", "r", "r")) for m in ("wrap", "clamp"))
        case "shfl.sync":
            for mode, control in [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("idx", 0x181F), ("up", 0x1800)]:
                yield Template(name, f"shfl.sync.{mode}.b32", "r", ("r", "r", str(control), "-1"))
        case "vote.sync":
            yield from (Template(name, f"vote.sync.{m}.pred", "p", ("p", "-1")) for m in ("all", "any", "uni"))
            yield Template(name, "vote.sync.ballot.b32", "r", ("p", "-1"))
        case "activemask":
            yield Template(name, "activemask.b32", "r", ())
        case "bar.warp.sync":
            yield Template(name, name, "", ("-1",))
        case "membar" | "fence":
            yield Template(name, "membar.cta" if name == "membar" else "fence.acq_rel.cta", "", ())
        case _ if row.types == ("f32",):
            yield from float_forms(row, count)
        case _:
            yield from (Template(name, f"{row.op}.{t}", pool(t), (pool(t),) * count) for t in types)


def float_forms(row: Row, count: int) -> Iterator[Template]:
    """Single precision with every exact or approximate variant; ``{}`` takes .ftz and the like."""
    variants = [m for m in ("rn", "approx", "full") if m in row.modifiers] or [""]
    for variant in variants:
        target = "q" if variant in APPROXIMATE else "f"
        yield Template(row.name, f"{row.op}.{variant + '.' if variant else ''}{{}}f32", target, ("f",) * count)


def conversions(row: Row) -> Iterator[Template]:
    for to, source in row.signatures:
        if to.endswith("x2"):
            continue  # its halves are the same as those of the scalar form, which is here
        integral = to not in FLOAT_POOL, source not in FLOAT_POOL
        if all(integral):
            endings = ["", ".sat"]
        elif integral[0] or (to == source == "f32"):
            endings = [".rni", ".rzi", ".rmi", ".rpi"]
        else:
            endings = [".rn"] if TYPE_BITS[to] < TYPE_BITS[source] or integral[1] else [""]
        for ending in endings:
            yield Template(row.name, f"cvt{ending}.{to}.{source}", pool(to), (pool(source),))


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
    divergent: int = 0
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
        extra = "".join(
            f"{m}." for m in ("ftz", "sat", "NaN") if m in form.row.modifiers and self.random.random() < 0.3
        )
        sources = [self.source(kind) for kind in template.sources]
        if template.row in ("mov", "not", "and", "or", "xor", "vote.sync", "selp", "setp.int"):
            # Negated predicates are read by vote, selp and setp only.
            plain = template.row not in ("vote.sync", "setp.int")
            sources = [s.lstrip("!") if plain else s for s in sources]
        operands = [f"%o{len(self.results)}"] * bool(template.target) + sources
        guard = ""
        if template.row not in TOGETHER and self.random.random() < 0.2:
            guard = f"@{self.random.choice(['', '!'])}%p{self.random.randrange(DEPTH)} "
        self.lines.append(f"{guard}{template.opcode.format(extra)} {', '.join(operands)};".replace(" ;", ";"))
        if template.target:
            type_ = "pred" if template.target == "p" else f"b{POOLS[template.target]}"
            self.lines.append(f"mov.{type_} {self.register(template.target)}, %o{len(self.results)};")
            self.results.append(template.target)

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
        """Each of ``chosen``, with branches and loops around parts of them."""
        while chosen:
            count = self.random.randint(1, 8)
            part, chosen = chosen[:count], chosen[count:]
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
        self.divergent += 1
        if len(part) > 3:
            self.some(part)
        else:
            self.block(part)
            self.access()
        self.divergent -= 1

    def block(self, part: list[Template]) -> None:
        for template in part:
            if not (self.divergent and template.row in TOGETHER):
                self.emit(template)


CORNERS = {
    16: [0, 1, 0x7FFF, 0x8000, 0xFFFF],
    32: [0, 1, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF],
    64: [0, 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
    1: [0, 1],
}
FLOAT_CORNERS = [0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x80400000, 0x7F7FFFFF,
                 0x4F000000, 0xCF000001, 0x5F800000, 0x477FF000, 0x33000001, 0x3F000000]  # fmt: skip


def pattern(r: random.Random, kind: str) -> int:
    width = POOLS[kind]
    if kind == "f":
        return (
            r.choice(FLOAT_CORNERS)
            if r.random() < 0.4
            else r.getrandbits(1) << 31 | r.randrange(0x38000000, 0x4B000000)
        )
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
        source[lane] = [pattern(r, kind) if kind not in "gbq" else 0 for kind in POOLS for _ in range(DEPTH)]
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


def same(kind: str, one: int, other: int) -> bool:
    """Equal patterns; both NaN for floats; near each other for approximations."""
    if one == other:
        return True
    if kind not in "fgbq":
        return False
    limit = {"f": 0x7F800000, "q": 0x7F800000, "g": 0x7C00, "b": 0x7F80}[kind]
    magnitude = (1 << POOLS[kind] - 1) - 1
    if one & magnitude > limit or other & magnitude > limit:
        return one & magnitude > limit and other & magnitude > limit
    if kind != "q":
        return False
    x, y = (float(np.uint32(v).view(np.float32)) for v in (one, other))
    return abs(x - y) <= 2**-21 * max(abs(x), abs(y)) + 2**-21 * (abs(x) < 1 and abs(x) > 2**-24) + 2**-148


CHUNK = 45
CASES = [(seed, start) for seed in range(2) for start in range(0, len(ALL), CHUNK)]


@pytest.mark.parametrize("seed, start", CASES)
def test_engines_agree(seed, start):
    shuffled = random.Random(seed).sample(ALL, len(ALL))
    text, results = program(1000 * seed + start, shuffled[start : start + CHUNK])
    expected, counted = run("interpreter", text, len(results), seed)
    found, counts = run("jit", text, len(results), seed)
    for k, kind in enumerate(results):
        for lane in range(32):
            one, other = int(expected[lane, k]), int(found[lane, k])
            assert same(kind, one, other), f"%o{k}, lane {lane}: {one:#x} interpreted, {other:#x} compiled\n{text}"
    assert counts == counted
