"""Each fault beside its clean twin: two small programs that are one instruction apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.errors import KernelFault

#: What every program begins with. %r0 thread, %r1 warp, %r2 four bytes per thread, %r3 the same of another warp,
#: %r4 lane, %r8 CTA. %rd0 = X (an input), %rd1 = Y (holds data), %rd2 = O (an output), %rd3 = W (a workspace), each of
#: 4096 bytes; %rd4 to %rd7: four bytes per thread into them.
PROLOGUE = """\
mov.u32 %r0, %tid.x;
shr.u32 %r1, %r0, 5;
shl.b32 %r2, %r0, 2;
xor.b32 %r3, %r2, 128;
and.b32 %r4, %r0, 31;
mov.u32 %r8, %ctaid.x;
ld.param.u64 %rd0, [x];
ld.param.u64 %rd1, [y];
ld.param.u64 %rd2, [o];
ld.param.u64 %rd3, [w];
mad.wide.u32 %rd4, %r0, 4, %rd0;
mad.wide.u32 %rd5, %r0, 4, %rd1;
mad.wide.u32 %rd6, %r0, 4, %rd2;
mad.wide.u32 %rd7, %r0, 4, %rd3;
"""
PARAMS = ".param .u64 x, .param .u64 y, .param .u64 o, .param .u64 w"
BUFFER_BYTES = 4096


@dataclass(frozen=True)
class Launcher:
    """Runs the body of a kernel with checks."""

    block: int = 64
    grid: int = 1
    smem_bytes: int = 8192
    declarations: str = ""

    def text(self, body: str) -> str:
        """The PTX file."""
        return (
            f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({PARAMS})\n{{\n"
            f".reg .b32 %r<32>;\n.reg .b64 %rd<32>;\n.reg .pred %p<8>;\n{self.declarations}\n{PROLOGUE}{body}\n"
            f"ret;\n}}\n"
        )

    def finding(self, body: str, where: Callable[[int], str] | None = None) -> str:
        """What the checks find, empty if nothing."""
        memory = ptx.Memory()
        for name in "XYOW":
            memory.allocate(name, BUFFER_BYTES)[:] = 0
        checks = ptx.Sanitizer(ptx.Checks({"X": None}, {"O": None}, frozenset({"Y"})))
        kernel = ptx.load(self.text(body)).kernel("k")
        try:
            ptx.launch(
                kernel,
                grid=(self.grid, 1, 1),
                block=(self.block, 1, 1),
                args=[np.uint64(memory.address(name)) for name in "XYOW"],
                memory=memory,
                smem_bytes=self.smem_bytes,
                checks=checks,
                where=where,
            )
        except KernelFault as fault:
            self._lines_are_right(body, fault.message)
            return fault.message
        return ""

    def _lines_are_right(self, body: str, message: str) -> None:
        """Every instruction that a message quotes stands on the line that it names."""
        lines = self.text(body).splitlines()
        quoted = re.findall(r"'([^']*)' \(PTX line (\d+)", message)
        assert quoted or "deadlock" in message, message
        for instruction, line in quoted:
            assert lines[int(line) - 1].rstrip(";") == instruction.rstrip(";"), message


def twins(body: str) -> tuple[str, str]:
    """The faulty and the clean program of a body: lines that begin with ``-`` are the faulty one's, with ``+`` the
    clean one's. There is at most one of each."""
    lines = [line.strip() for line in body.strip().splitlines()]
    assert 1 <= sum(line[0] in "+-" for line in lines) <= 2
    assert all(sum(line[0] == sign for line in lines) <= 1 for sign in "+-")
    programs = []
    for other in "+-":
        programs.append("\n".join(line.lstrip("+- ") for line in lines if line[0] != other))
    return programs[0], programs[1]


Pair = Callable[..., None]


@pytest.fixture
def pair() -> Pair:
    """``pair(body, *parts, **launch)``: the faulty twin is found, with each part (a pattern) in the message; the clean
    one is not."""

    def check(body: str, *parts: str, **launch: int | str) -> None:
        launcher = Launcher(**launch)  # type: ignore[arg-type]
        faulty, clean = twins(body)
        message = launcher.finding(faulty)
        assert message, "the fault was not found"
        for part in parts:
            assert re.search(part, message), f"{part!r} not in {message!r}"
        assert launcher.finding(clean) == ""

    return check


@pytest.fixture
def launcher() -> Launcher:
    """A CTA of two warps."""
    return Launcher()
