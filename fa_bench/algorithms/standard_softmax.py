"""The softmax of standard attention, plain or with windows, softcap, bias, ALiBi, sinks and dropout.

It is where all of these are: the products beside it know sizes and a causal mask. The kernels are
``kernels/standard/softmax.cu`` and ``softmax_fused.cu``.
"""

from __future__ import annotations

from typing import Final

from fa_bench.algorithms.base import Buffer, Launch, Op, Scalar
from fa_bench.algorithms.sectors import copy_sectors, slice_phases
from fa_bench.algorithms.slices import over_slices
from fa_bench.algorithms.standard_plan import ROW_WARPS, Plan, spec
from fa_bench.algorithms.tensors import (
    ELEMENT_DEFINES,
    dropout_arguments,
    feature_defines,
    feature_tensors,
    window_arguments,
)
from fa_bench.algorithms.tiles import CHUNK_BYTES, WARP_SIZE
from fa_bench.cases import Case, Features
from fa_bench.sizes import ceil_div

SOFTMAX: Final = "standard_softmax"
_POINTERS: Final = ("bias", "slopes", "sinks")


def fused(case: Case) -> bool:
    """Whether a case asks for something that the plain kernel has not."""
    return case.features != Features() or case.shape.windowed


def weights(case: Case) -> str:
    """Name of the matrix that V is multiplied by, and that dV is made of."""
    return "P_drop" if case.features.dropout_p else "P"


def matrices(plan: Plan) -> tuple[Buffer, ...]:
    """The square matrices that the softmax reads and writes."""
    return tuple(plan.matrix(name) for name in dict.fromkeys(("S", "P", weights(plan.case))))


def launch(plan: Plan) -> Launch:
    """The launch of the softmax: a CTA for as many rows as its warps hold."""
    case, shape, features = plan.case, plan.case.shape, plan.case.features
    defines = {ELEMENT_DEFINES[case.dtype]: 1, **plan.split.defines}
    lengths = [Scalar("i32", size) for size in (shape.seq_q, shape.seq_kv, plan.pitch)]
    stem = "softmax"
    args: tuple[str | Scalar, ...] = ("S", "P", "LSE", *lengths)
    if fused(case):
        stem = "softmax_fused"
        defines |= feature_defines(case)
        there = {buffer.name: buffer for buffer in feature_tensors(case)}
        bias_strides = there["bias"].strides[1:3] if "bias" in there else (0, 0)
        args = (
            *("S", "P", "P_drop" if features.dropout_p else Scalar("u64", 0), "LSE"),
            *(name if name in there else Scalar("u64", 0) for name in _POINTERS),
            *(Scalar("i64", stride) for stride in bias_strides),
            *(Scalar("i32", shape.heads_q), *lengths),
            *window_arguments(shape),
            Scalar("f32", features.softcap),
            *dropout_arguments(case),
        )
    return Launch(
        kernel=spec(stem, SOFTMAX, defines),
        grid=(shape.slices * plan.row_blocks, 1, 1),
        block=(ROW_WARPS * WARP_SIZE, 1, 1),
        smem_bytes=0,
        args=args,
        ctas_per_slice=plan.row_blocks,
    )


def sectors(plan: Plan) -> dict[tuple[str, str, Op], int]:
    """Sectors of all slices per tensor and direction, with ρ as in `Standard.traffic`.

    * S is read once, seq_q · ρ, as long as a row fits the registers of its lanes (16,384 elements of 16 bits); of a
      longer row all segments but the last are read once more, (segments - 1) · segment · itemsize / 32 sectors.
    * P is written once, seq_q · ρ; with dropout P_drop too.
    * LSE: a row's first lane writes its four bytes, one sector per row.
    * bias: as S, a row with each row, and again where S is. A warp instruction reads 512 bytes of one row, whole
      16-byte chunks to the one with the last key. Rows are a multiple of 8 elements apart, so in 16 bits they may start
      in mid-sector. Each batch reads all of it.
    * slopes, sinks: each warp reads its head's number, one sector, those of the last CTA without a row too.

    Windows, softcap, ALiBi and dropout move nothing: their numbers follow from the position.
    """
    case, shape = plan.case, plan.case.shape
    warps = shape.slices * plan.row_blocks * ROW_WARPS
    tensors: dict[str, int] = {"S": plan.matrix_sectors + plan.reread_sectors}
    for buffer in feature_tensors(case):
        tensors[buffer.name] = _bias_sectors(plan, buffer) if buffer.name == "bias" else warps
    return {
        **{(SOFTMAX, name, "read"): n for name, n in tensors.items()},
        **{(SOFTMAX, name, "write"): plan.matrix_sectors for name in dict.fromkeys(("P", weights(case)))},
        (SOFTMAX, "LSE", "write"): shape.slices * shape.seq_q,
    }


def _bias_sectors(plan: Plan, bias: Buffer) -> int:
    """Sectors of the bias that all slices read."""
    shape, itemsize = plan.case.shape, plan.case.itemsize
    chunk = CHUNK_BYTES // itemsize
    phases, heads = slice_phases(bias)
    total = 0
    for columns in (ceil_div(shape.seq_kv, chunk) * chunk, plan.split.reread):
        rows = copy_sectors(
            phases[:, None],
            shape.seq_q,
            row_bytes=columns * itemsize,
            pitch_bytes=bias.strides[2] * itemsize,
            group_rows=1,
            column_bytes=WARP_SIZE * CHUNK_BYTES,
        )
        total = total + over_slices(heads, rows)
    return total * shape.batch


def derivations(plan: Plan, matrix: str, again: str) -> dict[tuple[str, str, str], str]:
    """The summands of `sectors` with the numbers of a case put in.

    Parameters
    ----------
    plan : Plan
    matrix, again : str
        One pass over a square matrix in words, and what a long row adds to it.
    """
    shape = plan.case.shape
    warps = f"{shape.slices} slices x {plan.row_blocks} CTAs x {ROW_WARPS} warps x 1 sector"
    return {
        (SOFTMAX, "S", "read"): matrix + again,
        (SOFTMAX, "bias", "read"): f"{shape.slices} slices x {shape.seq_q} rows from where each starts{again}",
        (SOFTMAX, "slopes", "read"): warps,
        (SOFTMAX, "sinks", "read"): warps,
        (SOFTMAX, "P", "write"): matrix,
        (SOFTMAX, "P_drop", "write"): matrix,
        (SOFTMAX, "LSE", "write"): f"{shape.seq_q} rows x 1 sector per slice",
    }


def exponentials(plan: Plan) -> int:
    """Exponentials of the softmax.

    Per lane: one per element that its registers hold in each pass, with a softcap two; one per segment to raise the
    running maximum, one to go from the lane's to the warp's maximum, one per warp of a row of several, and one for the
    factor of the last segment.
    """
    split = plan.split
    lanes = plan.case.shape.slices * plan.row_blocks * ROW_WARPS * WARP_SIZE
    elements = split.segment // (split.warps_per_row * WARP_SIZE)
    per_element = 2 if plan.case.features.softcap else 1
    combine = split.warps_per_row * (split.warps_per_row > 1)
    return lanes * ((2 * split.segments - 1) * elements * per_element + split.segments + 2 + combine)
