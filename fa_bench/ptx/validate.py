"""Operand roles: what stands where in an instruction, checked when PTX is loaded."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import UnsupportedInstruction
from fa_bench.ptx.program import Addr, Instruction, Label, Operand, Pair, Reg, Vec

#: Instructions whose destination may be two registers, ``d|p``.
_TWO_RESULTS: Final = ("setp", "shfl.sync", "match.all.sync")


def check_roles(instruction: Instruction) -> None:
    """Refuse operands of the wrong kind: no register as destination, no address where one belongs, or the reverse.

    Raises
    ------
    UnsupportedInstruction
        Naming the instruction and its line.
    """
    roles = instruction.row.operands.split(",")
    for role, operand in zip(roles, instruction.operands, strict=False):
        if not _fits(instruction, role, operand):
            raise UnsupportedInstruction(instruction.text, instruction.line)


def _fits(instruction: Instruction, role: str, operand: Operand) -> bool:
    if role.startswith("["):
        return isinstance(operand, Addr)
    if role == "L":
        return isinstance(operand, Label)
    if "|" in role and not isinstance(operand, Pair):
        return False
    if role.startswith("d"):
        if isinstance(operand, Pair):
            two = "|" in role or instruction.row.op.startswith(_TWO_RESULTS)
            return two and _is_target(operand.first) and _is_target(operand.second)
        if isinstance(operand, Vec):
            return all(_is_target(item) for item in operand.items)
        return _is_target(operand)
    return not isinstance(operand, Addr | Label | Pair)


def _is_target(operand: Operand) -> bool:
    return isinstance(operand, Reg) and not operand.negated
