"""``ldmatrix``: rows of 8 x 8 matrices as the PTX ISA lays them over the 32 lanes."""

from __future__ import annotations

from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.spaces import words
from fa_bench.ptx.interpreter.state import LANES, Step, semantic
from fa_bench.ptx.program import Vec

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
    target = step.instruction.operands[0]
    targets = target.items if isinstance(target, Vec) else (target,)
    addresses = step.address(1)
    spaces = step.warp.spaces
    matrices = []
    for m in range(len(targets)):
        lanes = range(8 * m, 8 * m + 8)
        rows = [spaces.shared_window(step, lane, addresses[lane], _ROW_BYTES) for lane in lanes]
        matrices.append(np.stack(rows).view(np.uint16))
    spaces.tally.phases(
        [set().union(*(words(a, _ROW_BYTES) for a in addresses[8 * m : 8 * m + 8])) for m in range(len(targets))]
    )
    for matrix, register in zip(matrices, targets, strict=True):
        elements = matrix.T if step.instruction.has("trans") else matrix
        low, high = (elements[_GROUP, 2 * _THREAD + k].astype(np.uint32) for k in (0, 1))
        step.write(high << np.uint32(16) | low, register)
