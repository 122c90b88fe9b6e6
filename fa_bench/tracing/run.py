"""Run one case in the emulator, CTA by CTA and barrier by barrier, and keep what every step asks for and computes.

CTAs run one after the other, in the order of their numbers. A GPU runs many at once, but no CTA of these kernels
depends on another of the same launch: what each one does, and what it moves, is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from fa_bench import algorithms, reference, storage
from fa_bench.algorithms.base import ELEMENT_BYTES, SECTOR_BYTES, Buffer, KernelSpec, Op, Program
from fa_bench.backends.programs import arguments, output, put_inputs
from fa_bench.cases import AttentionShape, Case, DType, Tile
from fa_bench.compiler import CompiledKernel, compile_kernel
from fa_bench.errors import UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.tracing import patches
from fa_bench.tracing.buffer import NAME, TraceBuffer
from fa_bench.tracing.result import Comparison, Counted, Float64, Range, Step, Touch, Trace, Values

#: Every step is kept, and looked at one by one.
MAX_SEQ: Final = 1024
DEFAULT_TILE: Final = Tile(64, 64)
#: Traced kernels are those with tensor cores.
DTYPES: Final[tuple[DType, ...]] = ("fp16", "bf16")

#: Algorithms whose accumulator is divided by l only at the end: flash2 saves a division per tile that way. flash1
#: divides at each tile, standard attention's P is divided before it meets V.
_UNNORMALISED: Final = frozenset({"flash2"})

_LINE_SECTORS: Final = 4
_READS: Final = (0, 1)  # through L1 and past it


def make_case(
    impl: str, shape: AttentionShape, dtype: DType, tile: Tile | None, bug: patches.Bug | None, gpu: Gpu
) -> Case:
    """The case that is traced: one slice, K and V buffered once.

    Raises
    ------
    UsageError
        If it is too large, the tile doesn't fit the GPU, or the bug can't show.
    """
    if max(shape.seq_q, shape.seq_kv) > MAX_SEQ:
        raise UsageError(
            f"A trace keeps every step of a small case: at most {MAX_SEQ} queries and keys, not "
            f"{max(shape.seq_q, shape.seq_kv)}."
        )
    if dtype not in DTYPES:
        raise UsageError(f"Traced kernels are those for {' and '.join(DTYPES)}, not {dtype}.")
    if bug is not None and bug.causal and not shape.causal:
        raise UsageError(f"{bug.name} is a mistake in the causal mask, so it needs --causal.")
    algorithm = algorithms.get(impl)
    chosen = tile or (bug.tile if bug is not None else None) or DEFAULT_TILE
    case = Case(impl, shape, dtype)
    case = replace(case, tile=algorithm.resolve(case, Tile(chosen.block_m, chosen.block_n, 1)))
    if reason := algorithm.unsupported(case, gpu):
        raise UsageError(reason)
    return case


def compare(cases: Sequence[Case], bug: patches.Bug | None, gpu: Gpu, row: int | None = None) -> Comparison:
    """Trace some algorithms on the same shape, and again with a mistake those that can have it.

    Parameters
    ----------
    cases : sequence of Case
        From `make_case`, one per algorithm.
    bug : Bug or None
    gpu : Gpu
        Whose architecture is compiled for.
    row : int, optional
        The query row that is followed; by default the first of those whose maximum rises most often.

    Raises
    ------
    DeviceUnavailable
        If a kernel must be compiled and nothing here does.
    """
    with patches.changed_kernels() as folder:

        def compiled(spec: KernelSpec) -> CompiledKernel:
            return compile_kernel(spec, gpu.sm, folder=folder)

        right = tuple(trace(case, None, compiled) for case in cases)
        wrong = {}
        if bug is not None:
            wrong = {case.impl: trace(case, bug, compiled) for case in cases if case.impl not in bug.absent}
    chosen = _telling_row(right[0]) if row is None else row
    mistake = None if bug is None else patches.mistake(bug, [case.impl for case in cases])
    return Comparison(right, wrong, mistake, chosen)


def _telling_row(trace: Trace) -> int:
    """The first of the rows whose maximum rises at most tiles."""
    rows, tiles = trace.values.m.shape
    scores = np.where(np.isnan(trace.values.S), -np.inf, trace.values.S)
    tops = scores.reshape(rows, tiles, -1).max(axis=2)
    rises = np.diff(np.maximum.accumulate(tops, axis=1), axis=1) > 0
    return int(rises.sum(axis=1).argmax())


def traced_program(case: Case, bug: patches.Bug | None) -> Program:
    """Buffers and launches of a case, with the trace's buffer and the kernels that write it."""
    assert case.tile is not None
    program = algorithms.get(case.impl).program(case)
    launches = []
    for launch in program.launches:
        kernel = patches.traced(launch.kernel, bug, case.tile.block_n)
        args = launch.args if kernel == launch.kernel else (*launch.args, NAME)
        launches.append(replace(launch, kernel=kernel, args=args))
    return Program((*program.buffers, TraceBuffer(case).buffer), tuple(launches))


def trace(case: Case, bug: patches.Bug | None, compiled: Callable[[KernelSpec], CompiledKernel]) -> Trace:
    """Run a case, step by step, on the kernels that ``compiled`` gives."""
    from fa_bench import ptx  # with its JIT, which planning a trace does without

    program, kept = traced_program(case, bug), TraceBuffer(case)
    inputs = reference.make_inputs(case)
    memory = ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    put_inputs(program, raw, inputs)
    steps: list[Step] = []
    for launch in program.launches:
        kernel = compiled(launch.kernel)
        turns = ptx.walk(
            ptx.load(kernel.ptx).kernel(kernel.entry),
            grid=launch.grid,
            block=launch.block,
            args=arguments(launch, lambda name: np.uint64(memory.address(name))),
            memory=memory,
            smem_bytes=launch.smem_bytes,
        )
        for turn in turns:
            step = _step(kernel.entry, turn, program, kept, raw[NAME], len(steps))
            if step.touches or step.computed:
                steps.append(step)
    own = Program(program.buffers[:-1], program.launches)
    o = output(own, "O", raw["O"], case)
    exact = reference.attention_fp64(inputs["Q"], inputs["K"], inputs["V"], case.shape)[0][0, 0]
    held = kept.values(raw[NAME])
    return Trace(
        case=case,
        bug="" if bug is None else bug.name,
        program=own,
        steps=tuple(steps),
        values=held,
        output=storage.decode(o, np.float64)[0, 0],
        running=_running(case, held),
        exact=exact,
        verification=reference.verify(case, o, output(own, "LSE", raw["LSE"], case), inputs),
        traffic=_traffic(case, steps),
    )


def _step(kernel: str, turn: Any, program: Program, kept: TraceBuffer, raw: Any, number: int) -> Step:
    """One turn of a CTA, as tensors, rows and columns."""
    names, accesses = turn.tensors, turn.accesses
    which, bit = np.nonzero(accesses["sectors"][:, None] >> np.arange(_LINE_SECTORS, dtype=np.uint8) & 1)
    offsets = accesses["offset"][which] + bit * SECTOR_BYTES
    tensors, reads = accesses["tensor"][which], np.isin(accesses["kind"][which], _READS)
    touches = []
    computed = rows = keys = None
    for index in np.unique(tensors).tolist():
        mine = tensors == index
        if names[index] == NAME:
            computed, rows, keys = kept.new(raw, offsets[mine], number)
            continue
        buffer = program.buffer(names[index])
        if (mine & reads).any():
            touches.append(_touch(buffer, "read", offsets[mine & reads]))
        if (mine & ~reads).any():
            touches.append(_touch(buffer, "write", offsets[mine & ~reads]))
    order = [buffer.name for buffer in program.buffers]
    touches.sort(key=lambda touch: (touch.op, order.index(touch.tensor)))
    return Step(kernel, turn.cta, tuple(touches), computed or (), rows, keys)


def _touch(buffer: Buffer, op: Op, offsets: Any) -> Touch:
    """The rectangle of a tensor of one slice around some sectors."""
    itemsize, nbytes = ELEMENT_BYTES[buffer.dtype], len(offsets) * SECTOR_BYTES
    if len(buffer.shape) == 3:  # a number per row
        first, last = int(offsets.min()), int(offsets.max()) + SECTOR_BYTES
        return Touch(buffer.name, op, nbytes, _clipped(first // itemsize, last // itemsize, buffer.shape[2]), None)
    pitch = buffer.strides[2] * itemsize
    # Rows may be shorter than a sector's multiple: its first and last byte may lie in different rows.
    rows = np.concatenate([offsets // pitch, (offsets + SECTOR_BYTES - 1) // pitch])
    columns = offsets % pitch // itemsize
    return Touch(
        buffer.name,
        op,
        nbytes,
        _clipped(int(rows.min()), int(rows.max()) + 1, buffer.shape[2]),
        _clipped(int(columns.min()), int(columns.max()) + SECTOR_BYTES // itemsize, buffer.shape[3]),
    )


def _clipped(first: int, last: int, extent: int) -> Range:
    return max(first, 0), min(last, extent)


def _running(case: Case, values: Values) -> Float64:
    """O of each row after each tile, ``[R, T, head_dim]``."""
    running: Float64 = values.O.astype(np.float64)
    if case.impl in _UNNORMALISED:
        # As in the kernel, a row that saw nothing is 0.
        total = np.where(values.l == 0, np.inf, values.l.astype(np.float64))
        running = running / total[:, :, None]
    return running


def _traffic(case: Case, steps: Sequence[Step]) -> tuple[Counted, ...]:
    """The model's bytes beside those of the steps."""
    counted = Counter[tuple[str, str, Op]]()
    for step in steps:
        for touch in step.touches:
            counted[step.kernel, touch.tensor, touch.op] += touch.nbytes
    predicted = {
        (part.kernel, part.tensor, part.op): part.bytes for part in algorithms.get(case.impl).traffic(case) or ()
    }
    return tuple(Counted(*key, predicted.get(key, 0), counted[key]) for key in {**predicted, **counted})
