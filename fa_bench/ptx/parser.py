"""PTX text -> :class:`~fa_bench.ptx.program.Module`.

Accepts what NVRTC and hand-written PTX contain for kernels: entries, register and shared declarations, nested
scopes, labels, predicated instructions. Whatever has no ISA row is refused here, with its line, before anything
runs.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from fa_bench.ptx.isa import TYPE_BITS, PtxError, UnsupportedInstruction, match
from fa_bench.ptx.program import (
    Addr,
    Imm,
    Instruction,
    Kernel,
    Label,
    Module,
    Operand,
    Pair,
    Param,
    Reg,
    Special,
    Symbol,
    Vec,
)

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_ENTRY: Final = re.compile(r"\.entry\s+([\w$]+)\s*(?:\((.*?)\))?([^{;]*)\{", re.S)
_FUNCTION: Final = re.compile(r"^[ \t]*(?:\.visible\s+|\.weak\s+|\.extern\s+)*\.func\b[^\n]*", re.M)
_TARGET: Final = re.compile(r"^\s*\.target\s+(\w+)", re.M)
_PARAM: Final = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?\s*$"
)
_SHARED: Final = re.compile(
    r"\.shared\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$]+)(?P<dims>(?:\[\d*\])*)"
)
_REG: Final = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
_RANGE: Final = re.compile(r"(%?[\w$]+?)<(\d+)>$")
_MAXNTID: Final = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_STATEMENT: Final = re.compile(
    r"\s*(?:(?P<loc>\.loc\s+(\d+)\s+(\d+)[^\n;]*)|(?P<open>\{)|(?P<close>\})|(?P<label>[\w$%.]+)\s*:(?!:)"
    r"|(?P<text>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)"
)
_OPCODE: Final = re.compile(r"(?:@(?P<not>!?)(?P<guard>%?[\w$.]+)\s+)?(?P<op>[a-z][\w.:]*)\s*(?P<rest>.*)$", re.S)
_SPECIALS: Final = re.compile(
    r"%(?:tid|ntid|ctaid|nctaid)\.[xyz]$|%(?:laneid|warpid|smid|lanemask_(?:lt|le|eq|ge|gt))$"
)


def load(text: str) -> Module:
    """Parse a PTX file.

    Parameters
    ----------
    text : str
        The file's contents.

    Returns
    -------
    Module
        All kernels of the file.

    Raises
    ------
    UnsupportedInstruction
        For an instruction that the emulator does not execute; names it and its line.
    PtxError
        For text that is not PTX, with the line.
    """
    clean = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    target = _TARGET.search(clean)
    if target is None:
        raise PtxError("This is no PTX file: it has no .target directive.")
    function = _FUNCTION.search(clean)
    if function is not None:
        line = clean.count("\n", 0, function.start()) + 1
        raise UnsupportedInstruction(function.group().strip(), line)
    kernels: dict[str, Kernel] = {}
    end = 0
    outside: list[str] = []
    bodies: list[tuple[re.Match[str], int, int]] = []
    for entry in _ENTRY.finditer(clean):
        if entry.start() < end:
            continue
        outside.append(clean[end : entry.start()])
        end = _closing(clean, entry.end(), entry.group(1))
        bodies.append((entry, entry.end(), end - 1))
    outside.append(clean[end:])
    module_scope = "".join(outside)
    for entry, start, stop in bodies:
        kernels[entry.group(1)] = _kernel(clean, entry, start, stop, module_scope)
    if not kernels:
        raise PtxError("This PTX file has no kernel (.entry).")
    return Module(text, target.group(1), kernels)


def _closing(text: str, start: int, name: str) -> int:
    depth = 1
    for brace in re.finditer(r"[{}]", text[start:]):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return start + brace.end()
    raise PtxError(f"The body of kernel {name} has no closing brace.")


class _Scope:
    """Names visible at a point: registers declared in nested braces hide outer ones under a private name."""

    def __init__(self) -> None:
        self.frames: list[dict[str, str]] = [{}]
        self.widths: dict[str, int] = {}
        self.opened = 0

    def open(self) -> None:
        self.frames.append({})
        self.opened += 1

    def close(self) -> None:
        self.frames.pop()

    def declare(self, name: str, width: int) -> None:
        unique = name if len(self.frames) == 1 else f"{name}@{self.opened}"
        self.frames[-1][name] = unique
        self.widths[unique] = width

    def find(self, name: str) -> str | None:
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        return None


def _kernel(text: str, entry: re.Match[str], start: int, stop: int, module_scope: str) -> Kernel:
    name = entry.group(1)
    body = text[start:stop]
    shared, static_bytes = _shared(module_scope + body)
    params = _params(entry.group(2) or "")
    param_names = {p.name for p in params}
    scope = _Scope()
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    source: tuple[int, int] | None = None
    position = 0
    line = text.count("\n", 0, start) + 1
    while body[position:].strip():
        statement = _STATEMENT.match(body, position)
        if statement is None:
            line += body.count("\n", position, len(body) - len(body[position:].lstrip()))
            raise PtxError(f"PTX line {line}: cannot read {body[position:].strip().splitlines()[0]!r}.")
        begin = statement.end() - len(statement.group().lstrip())
        line += body.count("\n", position, begin)
        if statement["loc"]:
            source = (int(statement[2]), int(statement[3]))
        elif statement["open"]:
            scope.open()
        elif statement["close"]:
            if len(scope.frames) == 1:
                raise PtxError(f"PTX line {line}: unexpected closing brace.")
            scope.close()
        elif statement["label"]:
            labels[statement["label"]] = len(instructions)
        else:
            content = statement["text"].strip()
            if content.startswith(".reg"):
                _declare(scope, content, line)
            elif content and not content.startswith("."):
                instructions.append(_instruction(content, line, source, scope, shared, param_names))
            elif not content.startswith((".pragma", ".shared", ".loc ")) and content:
                raise UnsupportedInstruction(content, line)
        line += body.count("\n", begin, statement.end())
        position = statement.end()
    for instruction in instructions:
        for operand in instruction.operands:
            if isinstance(operand, Label) and operand.name not in labels:
                raise PtxError(f"PTX line {instruction.line}: branch to the unknown label {operand.name}.")
    threads = _MAXNTID.search(entry.group(3))
    limit = None
    if threads:
        limit = int(threads[1]) * int(threads[2] or 1) * int(threads[3] or 1)
    return Kernel(name, params, scope.widths, shared, static_bytes, tuple(instructions), labels, limit)


def _params(text: str) -> tuple[Param, ...]:
    params: list[Param] = []
    offset = 0
    for part in (p.strip() for p in text.split(",")):
        if not part:
            continue
        found = _PARAM.match(part)
        if found is None or found["type"] not in TYPE_BITS:
            raise PtxError(f"Cannot read the kernel parameter {part!r}.")
        unit = TYPE_BITS[found["type"]] // 8
        align = int(found["align"] or unit)
        size = unit * int(found["count"] or 1)
        offset = -(-offset // align) * align
        params.append(Param(found["name"], size, offset))
        offset += size
    return tuple(params)


def _shared(text: str) -> tuple[dict[str, int], int]:
    """Offsets of shared variables; those without a size (dynamic) start behind all others."""
    offsets: dict[str, int] = {}
    dynamic: list[tuple[str, int]] = []
    end = 0
    for found in _SHARED.finditer(text):
        unit = TYPE_BITS[found["type"]] // 8
        align = int(found["align"] or unit)
        dims = re.findall(r"\[(\d*)\]", found["dims"])
        if "" in dims:
            dynamic.append((found["name"], align))
            continue
        size = unit
        for dim in dims:
            size *= int(dim)
        end = -(-end // align) * align
        offsets[found["name"]] = end
        end += size
    if dynamic:
        align = max(a for _, a in dynamic)
        end = -(-end // align) * align
        offsets.update({name: end for name, _ in dynamic})
    return offsets, end


def _declare(scope: _Scope, content: str, line: int) -> None:
    found = _REG.match(content)
    if found is None or found[1] not in TYPE_BITS:
        raise UnsupportedInstruction(content, line)
    width = TYPE_BITS[found[1]]
    for item in (i.strip() for i in found[2].split(",")):
        many = _RANGE.match(item)
        if many:
            for k in range(int(many[2])):
                scope.declare(f"{many[1]}{k}", width)
        else:
            scope.declare(item, width)


def _instruction(
    content: str,
    line: int,
    source: tuple[int, int] | None,
    scope: _Scope,
    shared: dict[str, int],
    params: set[str],
) -> Instruction:
    found = _OPCODE.match(content)
    if found is None:
        raise PtxError(f"PTX line {line}: cannot read {content!r}.")
    form = match(found["op"])
    if form is None:
        raise UnsupportedInstruction(found["op"], line)
    guard = None
    if found["guard"]:
        name = scope.find(found["guard"])
        if name is None:
            raise PtxError(f"PTX line {line}: unknown register {found['guard']}.")
        guard = Reg(name, negated=bool(found["not"]))
    texts = _split(found["rest"])
    expected = len(form.row.operands.split(",")) if form.row.operands else 0
    if not expected - form.row.optional <= len(texts) <= expected:
        raise UnsupportedInstruction(content, line)
    labels = form.row.operands == "L"
    operands = tuple(_operand(t, line, scope, shared, params, labels) for t in texts)
    return Instruction(form, operands, guard, line, content, source)


def _split(text: str) -> list[str]:
    """Split at commas outside braces and brackets."""
    parts: list[str] = []
    depth, begin = 0, 0
    for position, char in enumerate(text):
        if char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    parts.append(text[begin:].strip())
    return [p for p in parts if p]


def _operand(text: str, line: int, scope: _Scope, shared: dict[str, int], params: set[str], label: bool) -> Operand:
    if label:
        return Label(text)
    if text[0] == "{":
        items = (t.strip() for t in text[1:-1].split(","))
        return Vec(tuple(_operand(t, line, scope, shared, params, False) for t in items if t))
    if text[0] == "[":
        return _address(text[1:-1].strip(), line, scope, shared, params)
    if "|" in text:
        first, second = (t.strip() for t in text.split("|"))
        return Pair(
            _operand(first, line, scope, shared, params, False),
            _operand(second, line, scope, shared, params, False),
        )
    negated = text[0] == "!"
    name = text[1:].strip() if negated else text
    if name == "_":
        return Reg("_")
    found = scope.find(name)
    if found is not None:
        return Reg(found, negated)
    if _SPECIALS.match(name):
        return Special(name)
    if name == "WARP_SZ":
        return Imm(32)
    if name in shared or name in params:
        return Symbol(name)
    immediate = _immediate(name)
    if immediate is None:
        raise PtxError(f"PTX line {line}: unknown operand {text!r}.")
    return immediate


def _address(text: str, line: int, scope: _Scope, shared: dict[str, int], params: set[str]) -> Addr:
    found = re.match(r"^(%?[\w$.]+?)\s*(?:\+\s*(-?\w+))?$", text)
    if found is None:
        raise PtxError(f"PTX line {line}: cannot read the address [{text}].")
    offset = _immediate(found[2]) if found[2] else Imm(0)
    if offset is None or not isinstance(offset.value, int):
        raise PtxError(f"PTX line {line}: cannot read the offset in [{text}].")
    base = _operand(found[1], line, scope, shared, params, False)
    if isinstance(base, Imm) and isinstance(base.value, int):
        return Addr(None, base.value + offset.value)
    return Addr(base, offset.value)


def _immediate(text: str) -> Imm | None:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", digits):
        bits = int(digits[2:], 16)
        return Imm(struct.unpack("<f", struct.pack("<I", bits))[0], bits)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", digits):
        bits = int(digits[2:], 16)
        return Imm(struct.unpack("<d", struct.pack("<Q", bits))[0], bits)
    if re.fullmatch(r"0[xX][0-9a-fA-F]+U?", digits):
        return Imm(sign * int(digits.rstrip("U"), 16))
    if re.fullmatch(r"\d+U?", digits):
        return Imm(sign * int(digits.rstrip("U")))
    if re.fullmatch(r"\d+\.\d*(?:[eE][+-]?\d+)?", digits):
        return Imm(sign * float(digits))
    return None
