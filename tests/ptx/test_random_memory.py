"""Random loads, stores and atomic operations in all spaces: both engines leave the same bytes and the same counts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.ptx import interpreter

#: Bytes of each space that a program uses; floats have a region of their own, so that no NaN gets a random payload.
SIZES = {"global": 1024, "shared": 1024, "local": 64, "const": 64}
POOLS = {16: "h", 32: "r", 64: "d"}
ATOMICS = [
    ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "s32"), ("min", "u64"), ("max", "u32"), ("max", "s64"),
    ("inc", "u32"), ("dec", "u32"), ("and", "b32"), ("or", "b64"), ("xor", "b32"), ("exch", "b64"), ("cas", "b16"),
    ("cas", "b32"), ("cas", "b64"),
]  # fmt: skip
FLOATS = [("f32", "0f3E99999A", 4), ("f64", "0d3FB999999999999A", 8), ("noftz.f16x2", "0x35003600", 4),
          ("noftz.bf16x2", "0x3DCD3E4D", 4), ("noftz.f16", "%half", 2), ("noftz.bf16", "%half", 2)]  # fmt: skip


class Writer:
    """Writes one program; ``%lane`` is the lane, ``%k`` a scratch register, ``%at`` the address of an access."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.labels = 0

    def pick(self, width: int) -> str:
        return f"%{POOLS[width]}{self.random.randrange(4)}"

    def guard(self) -> str:
        return f"@{self.random.choice(['', '!'])}%p{self.random.randrange(4)} " if self.random.random() < 0.3 else ""

    def offset(self, space: str, nbytes: int, limit: int) -> None:
        """``%k``: a multiple of ``nbytes`` below ``limit``, in order, permuted, the same in all lanes or scattered."""
        shape = self.random.randrange(4)
        if shape == 0:
            self.lines.append(f"mov.u32 %k, {nbytes * self.random.randrange(limit // nbytes)};")
            return
        source = ["%lane", "%r0", "%swapped"][shape - 1]
        factor = self.random.choice([1, 1, 3, 5]) * nbytes
        self.lines.append(f"mad.lo.u32 %k, {source}, {factor}, {nbytes * self.random.randrange(8)};")
        self.lines.append(f"and.b32 %k, %k, {limit - nbytes};")

    def address(self, space: str, nbytes: int, reads: bool, atomic: bool = False) -> str:
        """Set the address register of an access; the suffix of its opcode."""
        generic = self.random.random() < 0.4
        if not generic:
            self.offset(space, nbytes, SIZES[space])
            if space == "shared":
                self.lines.append("mov.u32 %at32, %k;")
            else:
                base = {"global": "%global", "local": "0", "const": "0"}[space]
                self.lines.append(f"cvt.u64.u32 %at, %k;\nadd.u64 %at, %at, {base};")
            return f".{space}"
        # Lanes pick one of two spaces each.
        spaces = ["global", "shared"] + ([] if atomic else ["local"]) + (["const"] if reads and not atomic else [])
        one, other = self.random.choice(spaces), self.random.choice(spaces)
        self.offset(one, nbytes, min(SIZES[one], SIZES[other]))
        self.lines.append(
            f"selp.b64 %at, %g{one}, %g{other}, %p{self.random.randrange(4)};\ncvt.u64.u32 %wide, %k;\n"
            "add.u64 %at, %at, %wide;"
        )
        return ""

    def place(self, suffix: str) -> str:
        return "[%at32]" if suffix == ".shared" else "[%at]"

    def access(self) -> None:
        reads = self.random.random() < 0.5
        space = self.random.choice(["global", "shared", "local", *(["const"] if reads else [])])
        width = self.random.choice([8, 16, 32, 64])
        count = self.random.choice([c for c in (1, 2, 4) if c * width <= 128])
        suffix = self.address(space, count * width // 8, reads)
        vector = f".v{count}" if count > 1 else ""
        order = self.random.choice(["", "", ".volatile", ".relaxed.gpu"])
        registers = self.random.sample(range(4), count) if reads else [self.random.randrange(4) for _ in range(count)]
        items = ", ".join(f"%{POOLS[max(width, 16)]}{n}" for n in registers)
        data = f"{{{items}}}" if count > 1 else items
        kind = self.random.choice("us" if width == 8 else "bus")
        if reads:
            self.lines.append(f"{self.guard()}ld{order}{suffix}{vector}.{kind}{width} {data}, {self.place(suffix)};")
        else:
            self.lines.append(f"{self.guard()}st{order}{suffix}{vector}.{kind}{width} {self.place(suffix)}, {data};")

    def atomic(self) -> None:
        operation, type_ = self.random.choice(ATOMICS)
        width = int(type_[1:])
        suffix = self.address(self.random.choice(["global", "shared"]), width // 8, False, atomic=True)
        returns = operation in ("exch", "cas") or self.random.random() < 0.6
        operands = [self.pick(width)] * returns + [self.place(suffix), self.pick(width)]
        operands += [self.pick(width)] * (operation == "cas")
        word = "atom" if returns else "red"
        self.lines.append(f"{self.guard()}{word}{suffix}.{operation}.{type_} {', '.join(operands)};")

    def float_sum(self) -> None:
        """Lanes add to one of eight places each; small terms, so that no sum overflows."""
        kind, term, nbytes = self.random.choice(FLOATS)
        self.lines.append(f"and.b32 %k, {self.random.choice(['%lane', '%swapped'])}, {self.random.choice([0, 1, 7])};")
        self.lines.append(f"mad.wide.u32 %at, %k, {nbytes}, %floats;\nadd.u64 %at, %at, {64 * nbytes};")
        if "bf16" in kind:
            self.lines.append("mov.b16 %half, 0x3E00;")
        elif "f16" in kind:
            self.lines.append("mov.b16 %half, 0x3400;")
        self.lines.append(f"{self.guard()}red.global.add.{kind} [%at], {term};")

    def program(self, length: int) -> str:
        while len(self.lines) < length:
            part = [self.random.choice([self.access, self.access, self.atomic, self.float_sum]) for _ in range(3)]
            self.labels += 1
            branch = self.random.random() < 0.4
            if branch:
                self.lines.append(f"@%p{self.random.randrange(4)} bra L{self.labels};")
            for step in part:
                step()
            if branch:
                self.lines.append(f"L{self.labels}:")
        setup, end = [], []
        for pool, width in (("h", 16), ("r", 32), ("d", 64)):
            for k in range(4):
                at = 8 * ("hrd".index(pool) * 4 + k)
                setup.append(f"ld.global.b{width} %{pool}{k}, [%own+{at}];")
                end.append(f"st.global.b{width} [%own+{at}], %{pool}{k};")
        for k in range(4):
            setup.append(f"and.b32 %k, %lane, {1 << k};\nsetp.ne.u32 %p{k}, %k, 0;")
        # The local memory and the shared one are part of the result.
        for offset in range(0, SIZES["local"], 8):
            end.append(f"ld.local.b64 %wide, [stack+{offset}];\nst.global.b64 [%own+{96 + offset}], %wide;")
        for offset in range(0, 32, 8):
            end.append(f"shl.b32 %k, %lane, 5;\nld.shared.b64 %wide, [%k+{offset}];")
            end.append(f"st.global.b64 [%own+{160 + offset}], %wide;")
        return (
            ".version 8.0\n.target sm_80\n.address_size 64\n.const .align 16 .b8 bank[64] = {"
            + ", ".join(str(17 * k % 256) for k in range(64))
            + "};\n.visible .entry k(.param .u64 g, .param .u64 f, .param .u64 own)\n{\n"
            ".reg .b16 %h<4>, %half;\n.reg .b32 %r<4>, %lane, %swapped, %k, %at32;\n"
            ".reg .b64 %d<4>, %at, %wide, %own;\n"
            ".reg .b64 %global, %floats, %gglobal, %gshared, %glocal, %gconst;\n.reg .pred %p<4>;\n"
            ".local .align 16 .b8 stack[64];\n.shared .align 16 .b8 tile[1024];\n"
            "mov.u32 %lane, %tid.x;\nxor.b32 %swapped, %lane, 5;\nld.param.u64 %global, [g];\n"
            "ld.param.u64 %floats, [f];\n"
            "ld.param.u64 %own, [own];\nmad.wide.u32 %own, %lane, 192, %own;\nmov.u64 %gglobal, %global;\n"
            "cvta.shared.u64 %gshared, 0;\ncvta.local.u64 %glocal, 0;\ncvta.const.u64 %gconst, 0;\n"
            + "\n".join([*setup, *self.lines, *end])
            + "\nret;\n}\n"
        )


def run(engine: str, text: str, seed: int) -> tuple[list[np.ndarray], ptx.LaunchCounters]:
    r = np.random.default_rng(seed)
    memory = ptx.Memory()
    for name, nbytes in (("G", SIZES["global"]), ("own", 32 * 192)):
        memory.allocate(name, nbytes)[:] = r.integers(0, 256, nbytes, np.uint8)
    memory.allocate("F", 2048)[:] = 0
    function = interpreter.run if engine == "interpreter" else ptx.launch
    args = [np.uint64(memory.address(name)) for name in ("G", "F", "own")]
    kernel = ptx.load(text).kernel("k")
    counters = function(kernel, grid=(1, 1, 1), block=(32, 1, 1), args=args, memory=memory)
    return [memory.array(name).copy() for name in ("G", "F", "own")], counters


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))]
)  # fmt: skip
def test_engines_agree(seed):
    text = Writer(seed).program(150)
    expected, counted = run("interpreter", text, seed)
    found, counts = run("jit", text, seed)
    for name, one, other in zip(("G", "F", "own"), expected, found, strict=True):
        different = np.flatnonzero(one != other)
        assert different.size == 0, f"{name}, byte {different[0]}\n{text}"
    assert counts == counted
