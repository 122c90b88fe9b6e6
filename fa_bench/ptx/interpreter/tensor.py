"""``ldmatrix``, ``stmatrix``, ``movmatrix``: 8 x 8 matrices as the PTX ISA lays them over the 32 lanes."""

from __future__ import annotations

from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.spaces import SHARED_WINDOW, words
from fa_bench.ptx.interpreter.state import LANES, Lanes, Step, semantic
from fa_bench.ptx.program import Operand, Vec

_ROW_BYTES: Final = 16
#: Group and thread-in-group of each lane, as the PTX ISA names them.
_GROUP: Final = np.arange(LANES) // 4
_THREAD: Final = np.arange(LANES) % 4


def whole_warp(step: Step) -> bool:
    """False if no lane executes; a fault unless all 32 do."""
    if not step.on.any():
        return False
    if not step.on.all():
        raise step.fault(f"all 32 lanes must execute it together, but {np.count_nonzero(step.on)} do")
    return True


@semantic("ldmatrix")
def load_matrix(step: Step) -> None:
    """Lane ``8m + r`` gives the address of row r of matrix m; each lane gets two neighbours of a row or a column."""
    if not whole_warp(step):
        return
    targets = _items(step.instruction.operands[0])
    for rows, register in zip(_rows(step, 1, len(targets)), targets, strict=True):
        matrix = np.stack(rows).view(np.uint16)
        step.write(_fragment(matrix.T if step.instruction.has("trans") else matrix), register)


@semantic("stmatrix")
def store_matrix(step: Step) -> None:
    """The reverse of ``ldmatrix``."""
    if not whole_warp(step):
        return
    sources = _items(step.instruction.operands[1])
    matrices = [_matrix(step.value(source, "b32")) for source in sources]
    for rows, matrix in zip(_rows(step, 0, len(sources)), matrices, strict=True):
        elements = np.ascontiguousarray(matrix.T if step.instruction.has("trans") else matrix)
        for row, content in zip(rows, elements, strict=True):
            row[:] = content.view(np.uint8)


@semantic("movmatrix")
def transpose(step: Step) -> None:
    """Each lane holds two neighbours of a row, before and after."""
    if whole_warp(step):
        step.write(_fragment(_matrix(step.read(1, "b32")).T))


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _rows(step: Step, operand: int, count: int) -> list[list[Lanes]]:
    """The rows in shared memory of ``count`` matrices, counted as one access of a phase for each."""
    addresses = step.address(operand)
    if not step.instruction.has("shared"):
        addresses = [address - SHARED_WINDOW for address in addresses]
    spaces = step.warp.spaces
    matrices = [range(8 * m, 8 * m + 8) for m in range(count)]
    found = [[spaces.shared_window(step, lane, addresses[lane], _ROW_BYTES) for lane in lanes] for lanes in matrices]
    spaces.tally.phases([set().union(*(words(addresses[lane], _ROW_BYTES) for lane in lanes)) for lanes in matrices])
    return found


def _fragment(matrix: Lanes) -> Lanes:
    """Register of each lane: elements 2t and 2t + 1 of row g."""
    low, high = (matrix[_GROUP, 2 * _THREAD + k].astype(np.uint32) for k in (0, 1))
    fragment: Lanes = high << np.uint32(16) | low
    return fragment


def _matrix(registers: Lanes) -> Lanes:
    """The matrix of such registers."""
    matrix = np.zeros((8, 8), np.uint16)
    for k in (0, 1):
        matrix[_GROUP, 2 * _THREAD + k] = registers >> np.uint32(16 * k) & np.uint32(0xFFFF)
    return matrix
