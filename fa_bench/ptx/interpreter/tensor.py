"""``ldmatrix`` and ``mma``: fragments as the PTX ISA lays them over the 32 lanes."""

from __future__ import annotations

from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.float32 import fused_multiply_add
from fa_bench.ptx.interpreter.spaces import words
from fa_bench.ptx.interpreter.state import LANES, Lanes, Step, semantic
from fa_bench.ptx.program import Vec

_ROW_BYTES: Final = 16
#: Group and thread-in-group of each lane, as the PTX ISA names them.
_GROUP: Final = np.arange(LANES) // 4
_THREAD: Final = np.arange(LANES) % 4


def _whole_warp(step: Step) -> bool:
    """False if no lane executes; a fault unless all 32 do."""
    if not step.on.any():
        return False
    if not step.on.all():
        raise step.fault(f"all 32 lanes must execute it together, but {np.count_nonzero(step.on)} do")
    return True


@semantic("ldmatrix")
def load_matrix(step: Step) -> None:
    """Lane ``8m + r`` gives the address of row r of matrix m; each lane gets two neighbours of a row or a column."""
    if not _whole_warp(step):
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


def _halves(step: Step, k: int) -> list[Lanes]:
    """The 16-bit elements of fragment operand ``k`` in order, as exact float32, one array of 32 lanes each."""
    patterns = [h for r in _registers(step, k) for h in (r & np.uint32(0xFFFF), r >> np.uint32(16))]
    if step.instruction.form.types[k] == "bf16":
        return [(h << np.uint32(16)).view(np.float32) for h in patterns]
    return [h.astype(np.uint16).view(np.float16).astype(np.float32) for h in patterns]


def _registers(step: Step, k: int) -> list[Lanes]:
    operand = step.instruction.operands[k]
    assert isinstance(operand, Vec)
    return [step.value(item, "b32") for item in operand.items]


@semantic("mma")
def multiply_matrices(step: Step) -> None:
    """D = A B + C for 16x16 by 16x8 tiles.

    Each element is summed in fp32 over k = 0 ... 15, starting from C, with one rounding per step. Tensor cores sum in
    another order and with other roundings, so results agree with hardware within the format's error only.
    """
    if not _whole_warp(step):
        return
    a, b, total = np.empty((16, 16), np.float32), np.empty((16, 8), np.float32), np.empty((16, 8), np.float32)
    for i, lanes in enumerate(_halves(step, 1)):
        a[_GROUP + 8 * (i // 2 % 2), 2 * _THREAD + i % 2 + 8 * (i // 4)] = lanes
    for i, lanes in enumerate(_halves(step, 2)):
        b[2 * _THREAD + i % 2 + 8 * (i // 2), _GROUP] = lanes
    for i, lanes in enumerate(_registers(step, 3)):
        total[_GROUP + 8 * (i // 2), 2 * _THREAD + i % 2] = lanes.view(np.float32)
    for k in range(16):
        total = fused_multiply_add(a[:, k : k + 1], b[k : k + 1, :], total)
    target = step.instruction.operands[0]
    assert isinstance(target, Vec)
    for i, item in enumerate(target.items):
        step.write(total[_GROUP + 8 * (i // 2), 2 * _THREAD + i % 2], item)
