"""What can be dropped in a kernel: its barriers, waits, masks and predicates, as edits of its PTX.

Edits keep every other instruction on its line, so that messages about a mutant name the kernel's own lines.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fa_bench import ptx
from fa_bench.mutation.result import KINDS, Edit, Kind, Mutant
from fa_bench.ptx.operands import split
from fa_bench.ptx.program import Imm, Instruction, Kernel, Label, registers

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_GUARD: Final = re.compile(r"@(?P<negated>!?)(?P<register>\S+)\s+")

_BARRIERS: Final = ("bar.sync", "barrier.sync", "bar.arrive", "barrier.arrive", "bar.warp.sync", "membar", "fence")
_WAITS: Final = ("cp.async.wait_group", "cp.async.wait_all", "cp.async.commit_group", "cp.async.mbarrier.arrive")
_MBARRIER_WAITS: Final = ("mbarrier.test_wait", "mbarrier.test_wait.parity")


def without_comments(text: str) -> str:
    """PTX with spaces in place of its comments: what edits are made to."""
    return _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def mutants(text: str, entry: str, where: Callable[[int], str] = lambda line: "") -> list[Mutant]:
    """Every mutant of a kernel, in the order of its instructions.

    Parameters
    ----------
    text : str
        PTX, from :func:`without_comments`.
    entry : str
        The kernel; functions that it calls belong to it.
    where : callable
        Names the source of a PTX line; empty if it is not known.

    Raises
    ------
    PtxError
        If the emulator can't read it.
    KeyError
        If it has no such kernel.
    """
    kernel = ptx.load(text).kernel(entry)
    uses = _Uses(kernel)
    places = _Places(text)
    found: dict[Edit, Mutant] = {}
    for index, instruction in enumerate(kernel.instructions):
        span = places.of(instruction)
        if span is None:
            continue
        line, source = instruction.line, where(instruction.line)
        lines = "\n" * text.count("\n", *span)
        for change in _changes(instruction, index, uses):
            edit = Edit(*span, change.text.replace("\n", " ") + lines)
            probe = Edit(*span, change.probe.replace("\n", " ") + lines) if change.probe else None
            mutant = Mutant(change.kind, change.action, _one_line(instruction.text), line, source, edit, probe)
            # A function that is called twice stands in the text once.
            found.setdefault(edit, mutant)
    return list(found.values())


def one_of_each(every: Sequence[Mutant]) -> list[Mutant]:
    """Of the copies that a compiler made of a statement the last, with their number: it meets a ragged end first.

    Copies have the same source, opcode and action. Without line information each instruction stands for itself.
    """
    groups: dict[tuple[str, str, str], list[Mutant]] = defaultdict(list)
    for mutant in every:
        opcode = _GUARD.sub("", mutant.instruction).split()[0]
        groups[mutant.source or f"line {mutant.line}", opcode, mutant.action].append(mutant)
    return [replace(copies[-1], copies=len(copies)) for copies in groups.values()]


def of_kinds(some: Sequence[Mutant], kinds: Sequence[Kind]) -> list[Mutant]:
    """Those of the kinds asked for, kind by kind."""
    return [mutant for kind in KINDS if kind in kinds for mutant in some if mutant.kind == kind]


@dataclass(frozen=True, slots=True)
class _Change:
    """What a statement is replaced with, and with what to find out whether that could make a difference."""

    kind: Kind
    action: str
    text: str = ""
    probe: str = ""


class _Places:
    """Where statements stand in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def of(self, instruction: Instruction) -> tuple[int, int] | None:
        """From its first character to behind its semicolon; None for what the reader put there itself."""
        start = self._text.find(instruction.text, self._starts[instruction.line - 1])
        end = start + len(instruction.text)
        if start < 0 or bisect_left(self._starts, start + 1) != instruction.line:
            return None
        semicolon = self._text.find(";", end)
        return (start, semicolon + 1) if not self._text[end:semicolon].strip() else None


class _Uses:
    """Who reads each register of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._instructions = kernel.instructions
        self._labels = kernel.labels
        self._readers: dict[str, list[int]] = defaultdict(list)
        for index, instruction in enumerate(kernel.instructions):
            for register in {register.name for register in instruction.read()}:
                self._readers[register].append(index)

    def repeats(self, instruction: Instruction, index: int) -> bool:
        """Whether it is the branch at the end of a loop."""
        return any(
            isinstance(operand, Label) and self._labels[operand.name] <= index for operand in instruction.operands
        )

    def of(self, instruction: Instruction) -> list[Instruction]:
        """Instructions that read what this one writes; a register that is written twice has the readers of both."""
        names = {register.name for register in instruction.written()}
        return [self._instructions[index] for name in names for index in self._readers[name]]

    def only_sizes(self, instruction: Instruction) -> bool:
        """Whether its result is only how much ``cp.async`` copies."""
        readers = self.of(instruction)
        name = instruction.written()[0].name
        return bool(readers) and all(
            reader.row.name == "cp.async" and _names(reader, 3) == {name} and name not in _names(reader, 0, 1)
            for reader in readers
        )

    def only_predicates(self, instruction: Instruction) -> bool:
        """Whether its result is only compared with 0 to guard something: a predicate that went through a register."""
        readers = self.of(instruction)
        return bool(readers) and all(
            reader.row.op == "setp" and _imm(reader, 2) == 0 and self.mutated_elsewhere(reader) for reader in readers
        )

    def mutated_elsewhere(self, instruction: Instruction) -> bool:
        """Whether some reader of a predicate has mutants that do what those of the predicate would."""
        name = instruction.written()[0].name
        return any(
            (reader.guard is not None and reader.guard.name == name)
            or reader.row.op == "selp"
            or _is_logic(reader)
            or (reader.row.op == "setp" and len(reader.operands) == 4)
            for reader in self.of(instruction)
        )


def _changes(instruction: Instruction, index: int, uses: _Uses) -> Iterator[_Change]:
    """What can be dropped of one instruction."""
    op = instruction.row.op
    if instruction.guard is not None:
        yield from _guarded(instruction, uses.repeats(instruction, index))
    elif op in _BARRIERS:
        yield _Change("barrier", "dropped")
    elif op in _WAITS:
        yield _Change("wait", "dropped")
    elif op in _MBARRIER_WAITS:
        yield _Change("wait", "never waits", f"mov.pred {_operands(instruction)[0]}, -1;")
    elif op == "cp.async" and len(instruction.operands) == 4:
        yield from _copy_size(instruction)
    elif op == "selp":
        yield from _selection(instruction, uses)
    elif instruction.row.name in ("min.int", "max.int"):
        yield from _bound(instruction)
    elif _is_logic(instruction):
        yield from _condition(instruction)
    elif op == "setp":
        yield from _comparison(instruction, uses)


def _guarded(instruction: Instruction, repeats: bool) -> Iterator[_Change]:
    guard = _GUARD.match(instruction.text)
    assert guard is not None
    bare, negated, register = instruction.text[guard.end() :], guard["negated"], guard["register"]
    opposite = "" if negated else "!"
    what = " repeats" if repeats else " taken" if instruction.row.name == "bra" else ""
    here = f"{instruction.text};"
    yield _Change("predicate", f"always{what}", f"{bare};", f"@{opposite}{register} trap; {here}")
    yield _Change("predicate", f"never{what}", "", f"@{negated}{register} trap; {here}")


def _copy_size(instruction: Instruction) -> Iterator[_Change]:
    *kept, size = _operands(instruction)
    opcode = instruction.text.split()[0]
    yield _Change(
        "mask",
        "not cut: no zero-fill",
        f"{opcode} {', '.join(kept)};",
        _trap_if(f"setp.ne.u32 differs, {size}, {kept[2]};", instruction),
    )


def _selection(instruction: Instruction, uses: _Uses) -> Iterator[_Change]:
    if uses.only_predicates(instruction):
        return
    target, first, second, condition = _operands(instruction)
    move = f"mov.{instruction.type} {target}"
    opposite = condition.removeprefix("!") if condition.startswith("!") else f"!{condition}"
    here = f"{instruction.text};"
    # Where the size of a copy is selected, the copy has a mutant that takes the whole of it.
    whole = next((_imm(reader, 2) for reader in uses.of(instruction)), None) if uses.only_sizes(instruction) else None
    for choice, other, place, name in ((first, opposite, 1, "first"), (second, condition, 2, "second")):
        if whole is None or _imm(instruction, place) != whole:
            yield _Change("mask", f"always its {name} operand", f"{move}, {choice};", f"@{other} trap; {here}")


def _bound(instruction: Instruction) -> Iterator[_Change]:
    target, first, second = _operands(instruction)
    larger = "gt" if instruction.row.op == "min" else "lt"
    for kept, lost, name in ((first, second, "second"), (second, first, "first")):
        compare = f"setp.{larger}.{instruction.type} differs, {kept}, {lost};"
        yield _Change(
            "mask",
            f"without its {name} operand",
            f"mov.{instruction.type} {target}, {kept};",
            _trap_if(compare, instruction),
        )


def _condition(instruction: Instruction) -> Iterator[_Change]:
    """One of two conditions that are combined."""
    target, first, second = _operands(instruction)
    both = instruction.row.op == "and"
    for kept, lost, name in ((first, second, "second"), (second, first, "first")):
        # a and b differs from a where a is true and b is not; a or b where b is true and a is not.
        true, false = (kept, lost) if both else (lost, kept)
        compare = f"not.pred differs, {false}; and.pred differs, differs, {true};"
        yield _Change(
            "mask", f"without its {name} condition", f"mov.pred {target}, {kept};", _trap_if(compare, instruction)
        )


def _comparison(instruction: Instruction, uses: _Uses) -> Iterator[_Change]:
    target, first, second, *third = _operands(instruction)
    here = f"{instruction.text};"
    if "|" in target:
        return
    if third:
        (other,) = third
        if instruction.has("xor") or other.startswith("!"):
            return
        opcode = re.sub(r"\.(?:and|or)\b", "", instruction.text.split()[0])
        for name, move, alone in (
            ("first", f"mov.pred {target}, {other};", f"mov.pred differs, {other};"),
            ("second", f"{opcode} {target}, {first}, {second};", f"{opcode} differs, {first}, {second};"),
        ):
            probe = f"{{ .reg .pred differs; {alone} {here} xor.pred differs, differs, {target}; @differs trap; }}"
            yield _Change("mask", f"without its {name} condition", move, probe)
    elif not uses.mutated_elsewhere(instruction) and uses.of(instruction):
        yield _Change("mask", "always true", f"mov.pred {target}, -1;", f"{here} @!{target} trap;")
        yield _Change("mask", "always false", f"mov.pred {target}, 0;", f"{here} @{target} trap;")


def _trap_if(compare: str, instruction: Instruction) -> str:
    return f"{{ .reg .pred differs; {compare} @differs trap; }} {instruction.text};"


def _operands(instruction: Instruction) -> list[str]:
    """The operands as they stand in the text."""
    bare = _GUARD.sub("", instruction.text)
    return split(bare.partition(bare.split()[0])[2].strip())


def _is_logic(instruction: Instruction) -> bool:
    return instruction.row.name in ("and", "or") and instruction.type == "pred"


def _names(instruction: Instruction, *places: int) -> set[str]:
    operands = [instruction.operands[place] for place in places if place < len(instruction.operands)]
    return {register.name for operand in operands for register in registers(operand)}


def _imm(instruction: Instruction, place: int) -> int | float | None:
    operand = instruction.operands[place]
    return operand.value if isinstance(operand, Imm) else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
