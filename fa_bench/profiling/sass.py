"""What ptxas made of the PTX: static counts of both, side by side, from the cubin's disassembly.

The emulator executes PTX. A GPU executes SASS, where loads may be merged or hoisted, registers spilled and loops
unrolled. Counting the instructions of either text shows where that happened.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fa_bench import nvrtc
from fa_bench.profiling.result import LANES, StaticCount
from fa_bench.ptx.program import Imm, Instruction, Kernel

#: What to install, as one sentence.
MISSING: Final = "The SASS is not looked at: nvdisasm is not here; pip install 'fa-bench[sass]' adds it."
#: Seconds that a disassembly may take; the largest kernels need a few.
TIMEOUT_S: Final = 120


class Group(NamedTuple):
    """Instructions that mean the same in PTX and in SASS.

    Both patterns are searched from the start of the opcode. ``access`` groups also compare bytes per lane.
    """

    name: str
    ptx: str
    sass: str
    access: bool = False


#: The first group that fits is the one that an instruction counts in.
GROUPS: Final = (
    Group("matrix product", r"w?mma\.(?:sync|mma)", r"[HIDBQ]MMA\b"),
    Group("wmma load, store", r"wmma\.(?:load|store)", r"(?!)"),
    Group("ldmatrix", r"ldmatrix", r"LDSM", True),
    Group("stmatrix", r"stmatrix", r"STSM", True),
    Group("asynchronous copy", r"cp\.async\.c[ag]", r"LDGSTS", True),
    Group("global load", r"ld\.(?:\w+\.)*?global", r"LDG\b", True),
    Group("global store", r"st\.(?:\w+\.)*?global", r"STG\b", True),
    Group("shared load", r"ld\.(?:\w+\.)*?shared", r"LDS\b", True),
    Group("shared store", r"st\.(?:\w+\.)*?shared", r"STS\b", True),
    Group("local load", r"ld\.(?:\w+\.)*?local", r"LDL\b", True),
    Group("local store", r"st\.(?:\w+\.)*?local", r"STL\b", True),
    Group("generic load", r"ld\.(?!param|const)", r"LD\b", True),
    Group("generic store", r"st\.(?!param|async)", r"ST\b", True),
    Group("atomic", r"(?:atom|red)\.", r"ATOM[GS]?\b|RED\b|REDG\b"),
    Group("barrier", r"(?:bar|barrier)\.(?!warp)", r"BAR\b"),
    Group("fence", r"(?:membar|fence)", r"MEMBAR"),
    Group("shuffle", r"shfl", r"SHFL"),
    Group("vote, match", r"(?:vote|match|activemask|redux)", r"VOTEU?\b|MATCH|REDUX|CREDUX"),
    Group("special function", r"(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\.", r"MUFU"),
    Group("f32 multiply-add", r"(?:fma|mad|mul|add|sub)\.(?:\w+\.)*f32", r"F(?:FMA|MUL|ADD)2?\b|F(?:FMA|MUL|ADD)32I"),
    Group("f16 multiply-add", r"(?:fma|mul|add|sub)\.(?:\w+\.)*b?f16", r"H(?:FMA|MUL|ADD)2\b"),
    Group("f64 multiply-add", r"(?:fma|mul|add|sub)\.(?:\w+\.)*f64", r"D(?:FMA|MUL|ADD)\b"),
    Group("conversion", r"cvt\.", r"[FI]2[FIP]?(?:FP|IP)?\b|FRND"),
    Group("branch", r"bra\b|brx", r"BRA\b|BRX|JMP"),
)
_PTX: Final = tuple((group, re.compile(group.ptx)) for group in GROUPS)
_SASS: Final = tuple((group, re.compile(rf"(?:{group.sass})")) for group in GROUPS)
_INSTRUCTION: Final = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?P<guard>@!?U?P\w+\s+)?(?P<code>[A-Z][\w.]*)(?P<rest>[^;]*)", re.MULTILINE
)
#: An immediate loaded by way of the half-precision unit: 0 times 0 plus the value.
_MOVE: Final = re.compile(r"\s*\w+, -RZ, RZ, ")
_WMMA: Final = re.compile(r"wmma\.(?:load|store)\.(?P<matrix>\w)\..*?\bm(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)\b")
_WIDTH: Final = re.compile(r"\.(?:([US]?8)|([US]?16)|(64)|(128)|(256))\b")


def disassemble(cubin: bytes) -> str | None:
    """Text of a cubin's code; None if there is no nvdisasm here or it does not know this cubin."""
    tool = nvrtc.find_tool("nvdisasm")
    if tool is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [tool, "-c", path], capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return done.stdout if done.returncode == 0 else None


def opcodes(text: str, entry: str) -> tuple[str, ...]:
    """Opcodes of a kernel in a disassembly, without those that never execute: guarded by ``!PT``, or behind its end."""
    found = re.search(rf"^//-+ \.text\.{re.escape(entry)} .*?$(.*?)(?=^//-{{5,}}|\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return ()
    codes = [
        "MOV" if one["code"].startswith("HFMA2") and _MOVE.match(one["rest"]) else one["code"]
        for one in _INSTRUCTION.finditer(found[1])
        if (one["guard"] or "").strip() != "@!PT"
    ]
    while codes and codes[-1] == "NOP":
        codes.pop()
    # The last branch jumps to itself: no warp gets there.
    return tuple(codes[:-1] if codes and codes[-1] == "BRA" else codes)


def compare(kernel: Kernel, codes: Sequence[str]) -> tuple[StaticCount, ...]:
    """Static counts of the groups that occur in a kernel's PTX or in its SASS, and of all instructions.

    Parameters
    ----------
    kernel : Kernel
    codes : sequence of str
        From `opcodes`.
    """
    ptx: dict[str, list[int]] = {}
    sass: dict[str, list[int]] = {}
    for instruction in kernel.instructions:
        opcode = _opcode(instruction)
        group = next((group for group, pattern in _PTX if pattern.match(opcode)), None)
        if group is not None:
            ptx.setdefault(group.name, []).append(access_bytes(instruction) if group.access else 0)
    for code in codes:
        group = next((group for group, pattern in _SASS if pattern.match(code)), None)
        if group is not None:
            sass.setdefault(group.name, []).append(_sass_bytes(code) if group.access else 0)
    rows = [_row(group, ptx.get(group.name, []), sass.get(group.name, [])) for group in GROUPS]
    total = StaticCount("all instructions", len(kernel.instructions), len(codes))
    return (*(row for row in rows if row.ptx or row.sass), total)


def access_bytes(instruction: Instruction) -> int:
    """Bytes that one lane moves in a memory instruction."""
    op = instruction.row.op
    if shape := _WMMA.match(instruction.text):
        m, n, k = (int(shape[extent]) for extent in "mnk")
        elements = {"a": m * k, "b": k * n}.get(shape["matrix"], m * n)
        return elements * instruction.bits // 8 // LANES
    if op.startswith(("ldmatrix", "stmatrix")):
        # A matrix is 8 rows of 16 bytes, four bytes for each lane.
        return 4 * next((int(m[1:]) for m in instruction.form.modifiers if m in ("x1", "x2", "x4")), 1)
    if op.startswith("cp.async"):
        size = instruction.operands[2] if len(instruction.operands) > 2 else None
        return int(size.value) if isinstance(size, Imm) else 0
    if not instruction.form.types:
        return 0
    vector = next((int(m[1:]) for m in instruction.form.modifiers if m in ("v2", "v4", "v8")), 1)
    return instruction.bits // 8 * vector


def _opcode(instruction: Instruction) -> str:
    return re.sub(r"^@!?\S+\s+", "", instruction.text).split(None, 1)[0]


def _sass_bytes(code: str) -> int:
    if code.startswith(("LDSM", "STSM")):
        # LDSM.16.M88.4 moves four matrices; no number means one.
        return 4 * int(code[-1] if code[-2:] in (".2", ".4") else 1)
    found = _WIDTH.search(code)
    if found is None:
        return 4
    return next(size for size, text in zip((1, 2, 8, 16, 32), found.groups(), strict=True) if text)


def _row(group: Group, ptx: list[int], sass: list[int]) -> StaticCount:
    if not group.access:
        return StaticCount(group.name, len(ptx), len(sass))
    return StaticCount(group.name, len(ptx), len(sass), sum(ptx), sum(sass))
