"""Offsets beyond 32 bits: kernels on tensors that are far larger than any memory here, of which one slice exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fa_bench import algorithms, ptx
from fa_bench.algorithms.base import Launch, Program, Scalar
from fa_bench.backends import why_not
from fa_bench.backends.programs import arguments
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))

A100 = gpus.get("a100-sxm-80")
BATCH_STRIDE, HEAD_STRIDE = 2**34, 2**33  # elements


def case_of(impl: str, shape: AttentionShape) -> Case:
    case = Case(impl, shape)
    return replace(case, tile=algorithms.get(impl).resolve(case, Tile(16, 16)))


def ones(program: Program) -> ptx.Memory:
    """Memory with the program's buffers, Q, K and V of ones: every output is then 1."""
    memory = ptx.Memory()
    for buffer in program.buffers:
        raw = memory.allocate(buffer.name, buffer.nbytes)
        if buffer.role == "input":
            raw.view(np.float16)[:] = 1
    return memory


def output(memory: ptx.Memory, shape: AttentionShape) -> NDArray[np.float16]:
    """O, slice by slice."""
    return memory.array("O").view(np.float16).reshape(shape.slices, shape.seq_q * shape.head_dim)


def run_last_slice(launch: Launch, slices: int, memory: ptx.Memory, pointer: Callable[[str], np.uint64]) -> None:
    per_slice = launch.ctas_per_slice
    ptx.launch(
        ptx.load(compile_kernel(launch.kernel, A100.sm).ptx).kernel(launch.kernel.entry),
        grid=launch.grid,
        block=launch.block,
        args=arguments(launch, pointer),
        smem_bytes=launch.smem_bytes,
        memory=memory,
        ctas=list(range((slices - 1) * per_slice, slices * per_slice)),
    )


@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_heads_and_batches_may_lie_any_distance_apart(impl: str) -> None:
    # Batch 1 of 2 and head 1 of 2 lie 2^34 and 2^33 elements behind the first ones, whose memory does not exist: the
    # pointers are moved down by as much, so that only exact 64-bit arithmetic arrives in the buffers.
    case = case_of(impl, AttentionShape(2, 2, 2, 16, 16, 32))
    program = algorithms.get(impl).program(case)
    memory = ones(program)
    own_slice = {name: program.buffer(name).strides[:2] for name in "QKVO"}

    def pointer(name: str) -> np.uint64:
        below = 2 * (BATCH_STRIDE + HEAD_STRIDE) - 2 * sum(own_slice[name]) if name in own_slice else 0
        return np.uint64((memory.address(name) - below) % 2**64)

    for launch in program.launches:
        strides = iter((BATCH_STRIDE, HEAD_STRIDE, 32) * 4)
        args = tuple(
            Scalar("i64", next(strides)) if isinstance(arg, Scalar) and arg.ctype == "i64" else arg
            for arg in launch.args
        )
        run_last_slice(replace(launch, args=args), case.shape.slices, memory, pointer)
    assert (output(memory, case.shape)[3] == 1).all()


def test_rows_of_the_score_matrix_may_lie_any_distance_apart() -> None:
    # One row of scores per head, a pitch of 2^27 elements: the row of head 16 begins at element 2^31, one more than an
    # int holds. S and P have one row here, and their pointers are moved down by 2^31 elements.
    case = case_of("standard", AttentionShape(1, 17, 1, 1, 16, 32))
    program = algorithms.get("standard").program(case)
    pitch, far = program.buffer("S").strides[2], 2**27
    memory = ones(program)

    def pointer(name: str) -> np.uint64:
        below = 2 * 16 * far if name in ("S", "P") else 0
        return np.uint64((memory.address(name) - below) % 2**64)

    for launch in program.launches:
        args = tuple(Scalar("i32", far) if arg == Scalar("i32", pitch) else arg for arg in launch.args)
        assert args.count(Scalar("i32", far)) == 1
        run_last_slice(replace(launch, args=args), case.shape.slices, memory, pointer)
    assert (output(memory, case.shape)[16] == 1).all()
