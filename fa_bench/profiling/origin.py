"""Which tensors an access can be to: pointers followed from the kernel's parameters through its arithmetic.

The emulator counts per buffer and per instruction. What joins the two is where an instruction's address comes from:
a parameter that holds an array's address, or a variable of the module. Addresses that were loaded from memory come
from nowhere that can be known before the kernel runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fa_bench.ptx.program import Addr, Instruction, Kernel, Operand, Pair, Reg, Symbol, Vec

Origins = frozenset[str]
_NONE: Final[Origins] = frozenset()
#: First words of opcodes whose result is data and no address.
_LOADS: Final = frozenset({"ld", "ldu", "ldmatrix", "atom", "tex", "shfl", "mma", "wmma"})


def origins(kernel: Kernel, tensors: Mapping[int, str], variables: frozenset[str] = _NONE) -> dict[int, Origins]:
    """Names of the tensors that each memory instruction can be to.

    Parameters
    ----------
    kernel : Kernel
    tensors : mapping of int to str
        Offset in the parameter space -> name of the array whose address is passed there.
    variables : frozenset of str
        Names of the module's variables in global memory.

    Returns
    -------
    dict of int to frozenset of str
        Index of each instruction with an address -> names; empty where nothing is known.
    """
    params = {param.name: param.offset for param in kernel.params}
    known: dict[str, Origins] = {}
    changed = True
    while changed:
        changed = False
        for instruction in kernel.instructions:
            found = _result(instruction, known, params, tensors, variables)
            if not found:
                continue
            for register in instruction.written():
                joined = known.get(register.name, _NONE) | found
                if joined != known.get(register.name, _NONE):
                    known[register.name], changed = joined, True
    accesses: dict[int, Origins] = {}
    for index, instruction in enumerate(kernel.instructions):
        addresses = [operand for operand in instruction.operands if isinstance(operand, Addr)]
        if addresses and not instruction.row.op.startswith("ld.param"):
            accesses[index] = _NONE.union(*(_of(address, known, variables) for address in addresses))
    return accesses


def _result(
    instruction: Instruction,
    known: Mapping[str, Origins],
    params: Mapping[str, int],
    tensors: Mapping[int, str],
    variables: frozenset[str],
) -> Origins:
    word = instruction.row.op.partition(".")[0]
    if word == "ld":
        for operand in instruction.operands:
            if isinstance(operand, Addr) and isinstance(operand.base, Symbol) and operand.base.name in params:
                name = tensors.get(params[operand.base.name] + operand.offset)
                return _NONE if name is None else frozenset({name})
    if word in _LOADS:
        return _NONE
    return _NONE.union(*(_of(operand, known, variables) for operand in instruction.operands[1:]))


def _of(operand: Operand, known: Mapping[str, Origins], variables: frozenset[str]) -> Origins:
    match operand:
        case Reg(name):
            return known.get(name, _NONE)
        case Symbol(name):
            return frozenset({name}) if name in variables else _NONE
        case Addr(base):
            return _NONE if base is None else _of(base, known, variables)
        case Vec(items):
            return _NONE.union(*(_of(item, known, variables) for item in items))
        case Pair(first, second):
            return _of(first, known, variables) | _of(second, known, variables)
    return _NONE
