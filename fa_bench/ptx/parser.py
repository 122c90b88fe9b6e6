"""PTX text -> :class:`~fa_bench.ptx.program.Module`.

Accepts what NVRTC and hand-written PTX contain for kernels: entries, device functions, variables, register
declarations, nested scopes, labels, predicated instructions. Whatever has no ISA row is refused here, with its line,
before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from fa_bench.ptx.inline import Access, Body, Call, Linker, Origin, Slot
from fa_bench.ptx.isa import TYPE_BITS, Form, PtxError, UnsupportedInstruction, match
from fa_bench.ptx.isa_row import vector_length
from fa_bench.ptx.operands import Names, split
from fa_bench.ptx.program import Addr, Instruction, Kernel, Label, Module, Operand, Param, Reg, Symbol, Vec
from fa_bench.ptx.validate import check_roles
from fa_bench.ptx.variables import Storage, declared

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_UNIT: Final = re.compile(
    r"\.(?P<kind>entry|func)\b\s*(?:\((?P<results>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*(?:\((?P<params>[^)]*)\))?"
    r"(?P<directives>[^{;]*)(?P<open>[{;])"
)
_TARGET: Final = re.compile(r"^\s*\.target\s+(\w+)", re.M)
_PARAM: Final = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?\s*$"
)
_SHARED: Final = re.compile(
    r"\.shared\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$]+)(?P<dims>(?:\[\d*\])*)"
)
_SLOT: Final = re.compile(
    r"\.(?P<space>param|local)\s*(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<vector>[24])\s+)?\.(?P<type>\w+)\s+"
    r"(?P<name>[\w$]+)\s*(?P<dims>(?:\[\s*\d+\s*\]\s*)*)$"
)
_REG: Final = re.compile(r"\.reg\s*\.(\w+)\s+(.*)$", re.S)
_RANGE: Final = re.compile(r"(%?[\w$]+?)<(\d+)>$")
_MAXNTID: Final = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_STATEMENT: Final = re.compile(
    r"\s*(?:(?P<loc>\.loc\s+(\d+)\s+(\d+)[^\n;]*)|(?P<open>\{)|(?P<close>\})|(?P<label>[\w$%.]+)\s*:(?!:)"
    r"|(?P<text>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)"
)
_OPCODE: Final = re.compile(r"(?:@(?P<not>!?)(?P<guard>%?[\w$.]+)\s+)?(?P<op>[a-z][\w.:]*)\s*(?P<rest>.*)$", re.S)
_CALL: Final = re.compile(
    r"(?:\(\s*(?P<results>[^)]*)\)\s*,\s*)?(?P<name>[A-Za-z_$][\w$]*)\s*(?:,\s*\(\s*(?P<arguments>[^)]*)\)\s*)?$"
)
_ACCESS: Final = re.compile(r"(?P<word>ld|st)\.param(?:::func)?(?:\.v(?P<vector>[24]))?\.(?P<type>\w+)$")


def load(text: str) -> Module:
    """Parse a PTX file.

    Parameters
    ----------
    text : str
        The file's contents.

    Returns
    -------
    Module
        All kernels of the file, with the functions that they call inlined.

    Raises
    ------
    UnsupportedInstruction
        For an instruction that the emulator does not execute; names it and its line.
    PtxError
        For text that is not PTX, with the line.
    """
    clean = _COMMENT.sub(lambda m: _blank(m.group()), text)
    target = _TARGET.search(clean)
    if target is None:
        raise PtxError("This is no PTX file: it has no .target directive.")
    outside = clean
    units: list[tuple[re.Match[str], int]] = []
    end = 0
    for unit in _UNIT.finditer(clean):
        if unit.start() < end:
            continue
        end = _closing(clean, unit.end(), unit["name"]) if unit["open"] == "{" else unit.end()
        outside = outside[: unit.start()] + _blank(clean[unit.start() : end]) + outside[end:]
        if unit["open"] == "{":
            units.append((unit, end - 1))
    storage = Storage(declared(outside))
    reader = _Reader(clean, outside, storage, units)
    kernels = {unit["name"]: reader.kernel(unit, stop) for unit, stop in units if unit["kind"] == "entry"}
    if not kernels:
        raise PtxError("This PTX file has no kernel (.entry).")
    return Module(text, target.group(1), kernels, storage)


def _blank(text: str) -> str:
    """Spaces in its place, so that positions and lines stay."""
    return re.sub(r"[^\n]", " ", text)


def _closing(text: str, start: int, name: str) -> int:
    depth = 1
    for brace in re.finditer(r"[{}]", text[start:]):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return start + brace.end()
    raise PtxError(f"The body of {name} has no closing brace.")


class _Reader:
    """Reads the bodies of one file."""

    def __init__(self, text: str, outside: str, storage: Storage, units: list[tuple[re.Match[str], int]]) -> None:
        self.text = text
        self.storage = storage
        bodies = [(unit, stop) for unit, stop in units if unit["kind"] == "func"]
        # Shared variables of functions are those of every kernel, like the module's own.
        self.common = outside + "".join(text[unit.end() : stop] for unit, stop in bodies)
        self.functions = {unit["name"]: self._function(unit, stop) for unit, stop in bodies}

    def kernel(self, unit: re.Match[str], stop: int) -> Kernel:
        """An ``.entry`` with all that it calls."""
        params = _params(unit["params"] or "")
        shared, static_bytes = _shared(self.common + self.text[unit.end() : stop])
        names = Names({*shared, *self.storage.variables, *(p.name for p in params)})
        linker = Linker(self.functions)
        linker.link(_BodyReader(self.text, unit.end(), stop, names, unit["name"], False).read())
        threads = _MAXNTID.search(unit["directives"])
        limit = None
        if threads:
            limit = int(threads[1]) * int(threads[2] or 1) * int(threads[3] or 1)
        return Kernel(
            unit["name"], params, linker.registers, shared, static_bytes, tuple(linker.instructions), linker.labels,
            limit, linker.local, linker.local_bytes, linker.calls, self.storage,
        )  # fmt: skip

    def _function(self, unit: re.Match[str], stop: int) -> Body:
        shared, _ = _shared(self.common)
        names = Names({*shared, *self.storage.variables})
        reader = _BodyReader(self.text, unit.end(), stop, names, unit["name"], True)
        line = self.text.count("\n", 0, unit.start()) + 1
        reader.body.results = tuple(reader.formal(part, line) for part in split(unit["results"] or ""))
        reader.body.arguments = tuple(reader.formal(part, line) for part in split(unit["params"] or ""))
        return reader.read()


class _BodyReader:
    """Reads the statements of one body."""

    def __init__(self, text: str, start: int, stop: int, names: Names, name: str, function: bool) -> None:
        self.text = text[start:stop]
        self.line = text.count("\n", 0, start) + 1
        self.names = names
        self.function = function
        self.body = Body(name, names.widths)
        self.source: tuple[int, int] | None = None
        self.tables: dict[str, list[str]] = {}
        #: Places of branches, with the labels that are visible there, innermost braces first.
        self.branches: list[tuple[int, list[dict[str, str]]]] = []
        self.last_label = ""

    def read(self) -> Body:
        """The whole body."""
        position = 0
        text = self.text.rstrip()
        while position < len(text):
            statement = _STATEMENT.match(text, position)
            if statement is None:
                self.line += text.count("\n", position, len(text) - len(text[position:].lstrip()))
                raise PtxError(f"PTX line {self.line}: cannot read {text[position:].strip().splitlines()[0]!r}.")
            begin = statement.end() - len(statement.group().lstrip())
            self.line += text.count("\n", position, begin)
            self._statement(statement)
            self.line += text.count("\n", begin, statement.end())
            position = statement.end()
        for place, frames in self.branches:
            self._resolve(place, frames)
        return self.body

    def _statement(self, statement: re.Match[str]) -> None:
        if statement["loc"]:
            self.source = (int(statement[2]), int(statement[3]))
        elif statement["open"]:
            self.names.open()
        elif statement["close"]:
            if len(self.names.frames) == 1:
                raise PtxError(f"PTX line {self.line}: unexpected closing brace.")
            self.names.close()
        elif statement["label"]:
            self._label(statement["label"])
        else:
            self._text(statement["text"].strip())

    def _label(self, name: str) -> None:
        try:
            self.last_label = self.names.label(name)
        except ValueError as error:
            raise PtxError(f"PTX line {self.line}: there are two labels {name}.") from error
        self.body.labels[self.last_label] = len(self.body.code)

    def _text(self, content: str) -> None:
        if not content:
            return
        if not content.startswith("."):
            self.body.code.append(self._instruction(content))
        elif content.startswith(".reg"):
            self._registers(content)
        elif content.startswith((".param", ".local")):
            self._slot(content)
        elif content.startswith(".branchtargets") and self.last_label:
            del self.body.labels[self.last_label]
            self.tables[self.last_label] = split(content.removeprefix(".branchtargets"))
        elif not content.startswith((".pragma", ".shared", ".loc ")):
            raise UnsupportedInstruction(content, self.line)

    def formal(self, text: str, line: int) -> str:
        """Declare a parameter of a function."""
        self.line, body_line = line, self.line
        name = self._registers(text) if text.startswith(".reg") else self._slot(text)
        self.line = body_line
        return name

    def _registers(self, content: str) -> str:
        """Declare registers; the name of the last one."""
        found = _REG.match(content)
        if found is None or found[1] not in TYPE_BITS:
            raise UnsupportedInstruction(content, self.line)
        width = TYPE_BITS[found[1]]
        last = ""
        for item in (i.strip() for i in found[2].split(",")):
            many = _RANGE.match(item)
            for name in [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [item]:
                last = self.names.register(name, width)
        return last

    def _slot(self, content: str) -> str:
        """Declare a ``.param`` of a call or function, or a ``.local`` variable."""
        found = _SLOT.match(content)
        if found is None or found["type"] not in TYPE_BITS or found["type"] == "pred":
            raise UnsupportedInstruction(content, self.line)
        unit = TYPE_BITS[found["type"]] // 8 * int(found["vector"] or 1)
        nbytes = unit
        for dim in re.findall(r"\d+", found["dims"]):
            nbytes *= int(dim)
        if nbytes == 0:
            raise UnsupportedInstruction(content, self.line)
        name = self.names.variable(found["name"])
        place = self.body.slots if found["space"] == "param" else self.body.local
        place[name] = Slot(nbytes, int(found["align"] or unit))
        return name

    def _instruction(self, content: str) -> Instruction | Access | Call:
        found = _OPCODE.match(content)
        if found is None:
            raise PtxError(f"PTX line {self.line}: cannot read {content!r}.")
        guard = self.names.guard(found["guard"], bool(found["not"]), self.line) if found["guard"] else None
        origin = Origin(guard, self.line, content, self.source)
        if found["op"] in ("call", "call.uni"):
            return self._call(found["rest"], origin)
        opcode = found["op"]
        if opcode.startswith(("ld.param", "st.param")):
            access = self._access(opcode, found["rest"], origin)
            if access is not None:
                return access
            if self.function and "::entry" not in opcode:
                # Only the kernel's parameters have a space of their own.
                opcode = opcode.replace("param::func", "param").replace("param", "local", 1)
        form = match(opcode)
        if form is None:
            raise UnsupportedInstruction(found["op"], self.line)
        operands = tuple(self._operands(form, split(found["rest"]), content))
        if any(isinstance(operand, Label) for operand in operands):
            self.branches.append((len(self.body.code), [f.labels for f in reversed(self.names.frames)]))
        instruction = Instruction(form, operands, guard, self.line, content, self.source)
        check_roles(instruction)
        return instruction

    def _operands(self, form: Form, texts: list[str], content: str) -> Iterator[Operand]:
        """Operands in the order of their roles."""
        roles = form.row.operands.split(",") if form.row.operands else []
        if not len(roles) - form.row.optional <= len(texts) <= len(roles):
            raise UnsupportedInstruction(content, self.line)
        elements = _elements(form)
        for role, text in zip(roles, texts, strict=False):
            if role == "L":
                yield Label(text)
                continue
            operand = self.names.operand(text, self.line)
            if elements and role in "db" and elements != (len(operand.items) if isinstance(operand, Vec) else 1):
                raise UnsupportedInstruction(content, self.line)
            yield operand

    def _access(self, opcode: str, rest: str, origin: Origin) -> Access | None:
        """``ld.param`` or ``st.param`` of a call's parameter; None if the address is another one."""
        texts = split(rest)
        found = _ACCESS.match(opcode)
        if found is None or len(texts) != 2 or found["type"] not in TYPE_BITS or found["type"] == "pred":
            return None
        store = found["word"] == "st"
        address, data = (self.names.operand(t, self.line) for t in (texts if store else reversed(texts)))
        if not (isinstance(address, Addr) and isinstance(address.base, Symbol)):
            return None
        if address.base.name not in self.body.slots:
            return None
        items = data.items if isinstance(data, Vec) else (data,)
        if len(items) != int(found["vector"] or 1) or not (store or all(isinstance(i, Reg) for i in items)):
            raise UnsupportedInstruction(origin.text, self.line)
        return Access(store, found["type"], address.base.name, address.offset, items, origin)

    def _call(self, rest: str, origin: Origin) -> Call:
        found = _CALL.match(rest)
        if found is None or isinstance(self.names.find(found["name"]), Reg):
            raise UnsupportedInstruction(origin.text, self.line)
        parts = (split(found[part] or "") for part in ("results", "arguments"))
        results, arguments = (tuple(self.names.operand(t, self.line) for t in texts) for texts in parts)
        return Call(found["name"], results, arguments, origin)

    def _resolve(self, place: int, frames: list[dict[str, str]]) -> None:
        """Give the labels of a branch the names that they have in the program."""
        instruction = self.body.code[place]
        assert isinstance(instruction, Instruction)

        def unique(name: str) -> str:
            for frame in frames:
                if name in frame:
                    return frame[name]
            raise PtxError(f"PTX line {instruction.line}: branch to the unknown label {name}.")

        operands: list[Operand] = []
        for operand in instruction.operands:
            if not isinstance(operand, Label):
                operands.append(operand)
                continue
            name = unique(operand.name)
            if (name in self.tables) != (instruction.row.name == "brx.idx"):
                raise PtxError(f"PTX line {instruction.line}: {instruction.row.op} cannot go to {operand.name}.")
            table = [Label(unique(target)) for target in self.tables.get(name, ())]
            operands.append(Vec(tuple(table)) if table else Label(name))
        self.body.code[place] = replace(instruction, operands=tuple(operands))


def _elements(form: Form) -> int:
    """Registers that the data operand of a load, store or matrix move has; 0 for all other instructions."""
    if form.row.max_bits:
        return vector_length(form.modifiers)
    return next((int(m[1]) for m in form.modifiers if m in ("x1", "x2", "x4")), 0)


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
