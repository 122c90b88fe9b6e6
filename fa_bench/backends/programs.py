"""Between an algorithm's program and a device: raw memory, C types, kinds of slices, what the compiler said.

Shared by the two backends that launch kernels, so that both lay a case out in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from fa_bench import reference, reference_backward
from fa_bench.algorithms.base import ELEMENT_BYTES, Buffer, Launch, Program, Scalar
from fa_bench.backends.base import Resources, Verification
from fa_bench.cases import AttentionShape, Case
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import UsageError

if TYPE_CHECKING:
    from fa_bench.ptx.program import Kernel

Bytes = NDArray[np.uint8]
T = TypeVar("T", int, float)

#: NumPy type of each storage type; bfloat16 travels as its bit patterns.
STORAGE: Final[Mapping[str, type[np.generic]]] = {
    "fp16": np.float16,
    "bf16": np.uint16,
    "fp32": np.float32,
    "i32": np.int32,
}
_C_TYPES: Final[Mapping[str, type[np.generic]]] = {
    "bool": np.bool_,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}

#: Fills outputs and workspaces: every byte pattern 0xFF… is a NaN in fp16, bf16 and fp32.
POISON: Final = 0xFF

#: Slices whose tensors all start at the same offset in a 128-byte line ask for the same sectors.
LINE_BYTES: Final = 128


def tensor_view(buffer: Buffer, raw: Bytes) -> NDArray[Any]:
    """The logical tensor of ``buffer`` inside its raw bytes, as a writable strided view.

    Parameters
    ----------
    buffer : Buffer
    raw : ndarray of uint8
        At least ``buffer.nbytes`` of them.
    """
    itemsize = ELEMENT_BYTES[buffer.dtype]
    typed = raw[: buffer.nbytes].view(STORAGE[buffer.dtype])
    return np.lib.stride_tricks.as_strided(typed, buffer.shape, [stride * itemsize for stride in buffer.strides])


def put_inputs(program: Program, raw: Mapping[str, Bytes], inputs: Mapping[str, NDArray[Any]]) -> None:
    """Write those inputs (logical order) that the program has buffers for; nothing else is touched."""
    for buffer in program.buffers:
        if buffer.name in inputs:
            tensor_view(buffer, raw[buffer.name])[...] = inputs[buffer.name].reshape(buffer.shape)


def placed(
    program: Program, inputs: Mapping[str, NDArray[Any]], allocate: Callable[[str, int], Bytes]
) -> dict[str, Bytes]:
    """Raw bytes of all buffers of a program, from ``allocate(name, nbytes)``: its inputs, and poison elsewhere."""
    raw = {buffer.name: allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    for content in raw.values():
        content.fill(POISON)
    put_inputs(program, raw, inputs)
    return raw


def filled(buffer: Buffer, values: NDArray[Any]) -> Bytes:
    """Raw bytes of ``buffer`` holding ``values`` (logical order); what lies between rows is poison."""
    raw: Bytes = np.full(buffer.nbytes, POISON, dtype=np.uint8)
    tensor_view(buffer, raw)[...] = values.reshape(buffer.shape)
    return raw


def output(program: Program, name: str, raw: Bytes, case: Case) -> NDArray[Any]:
    """Output ``O`` or ``LSE`` out of its raw bytes, contiguous in logical order."""
    batch, queries, _ = case.shape.tensor_sizes
    lead = (batch, case.shape.heads_q, queries)
    shape = (*lead, case.shape.dim_v) if name == "O" else lead
    return np.ascontiguousarray(tensor_view(program.buffer(name), raw)).reshape(shape)


def verified(
    case: Case,
    program: Program,
    read: Callable[[str], Bytes],
    inputs: Mapping[str, NDArray[Any]],
    slices: Sequence[int] | None = None,
) -> Verification:
    """Hold what a program left in its buffers against the fp64 reference: O and LSE, the gradients, or both.

    Parameters
    ----------
    case : Case
    program : Program
    read : callable
        Raw bytes of a buffer, by name.
    inputs : mapping
        As `fa_bench.reference.make_inputs` returns them.
    slices : sequence of int, optional
        Slices that were run (batch · heads_q + head); all by default.
    """

    found = []
    if case.forward:
        o = output(program, "O", read("O"), case)
        lse = output(program, "LSE", read("LSE"), case) if has_buffer(program, "LSE") else None
        found.append(reference.verify(case, o, lse, inputs, slices))
    if case.backward:
        gradients = {
            name: np.ascontiguousarray(tensor_view(program.buffer(name), read(name)))
            for name in reference_backward.GRADIENTS
        }
        found.append(reference_backward.verify_gradients(case, gradients, inputs, slices))
    return worst(found)


def verification_bytes(case: Case) -> int:
    """Host memory that the inputs and :func:`verified` hold at their peak, in bytes."""
    backward = reference_backward.verification_bytes(case) if case.backward else 0
    return reference.verification_bytes(case) + backward


def worst(found: Sequence[Verification]) -> Verification:
    """Of several verifications the first that failed, else the one with the largest error."""
    failed = [verification for verification in found if not verification.passed]
    return failed[0] if failed else max(found, key=lambda verification: verification.max_abs_err)


def arguments(launch: Launch, pointer: Callable[[str], Any]) -> list[Any]:
    """A launch's arguments with every scalar wrapped to its C type.

    Python's own numbers have no width: a float passed for a ``float`` parameter would be read as half a double.
    """
    return [_C_TYPES[arg.ctype](arg.value) if isinstance(arg, Scalar) else pointer(arg) for arg in launch.args]


def fitting_arguments(launch: Launch, kernel: Kernel, pointer: Callable[[str], Any]) -> list[Any]:
    """The same, once they are known to be what ``kernel`` takes.

    Raises
    ------
    UsageError
        If they are not one per parameter, each of its size: the description of a user's kernel is not of this kernel.
    """
    args, entry = arguments(launch, pointer), launch.kernel.entry
    step = "correct args of this kernel in its TOML file"
    if len(args) != len(kernel.params):
        raise UsageError(f"Kernel {entry} takes {len(kernel.params)} arguments, not {len(args)}: {step}.")
    for number, (given, arg, param) in enumerate(zip(launch.args, args, kernel.params, strict=True), 1):
        if arg.nbytes != param.size:
            what = given.ctype if isinstance(given, Scalar) else f"the pointer {given}"
            raise UsageError(
                f"Argument {number} of kernel {entry} has {param.size} bytes, but {what} has {arg.nbytes}: {step}."
            )
    return args


def has_buffer(program: Program, name: str) -> bool:
    """Whether the program has a buffer called ``name``."""
    return any(buffer.name == name for buffer in program.buffers)


def alignment_classes(program: Program, shape: AttentionShape) -> list[list[int]]:
    """Slices grouped by where their tensors start within a 128-byte line, in order of each group's first slice.

    Slices of one group execute the same instructions on addresses that differ by whole lines, so they ask for the
    same number of sectors. A tensor with ``heads_kv`` heads is entered at the slice's K/V head.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for index in range(shape.slices):
        batch, head = divmod(index, shape.heads_q)
        key = []
        for buffer in program.buffers:
            own_head = head if buffer.shape[1] == shape.heads_q else head // shape.group
            start = batch * buffer.strides[0] + own_head * buffer.strides[1]
            key.append(start * ELEMENT_BYTES[buffer.dtype] % LINE_BYTES)
        groups.setdefault(tuple(key), []).append(index)
    return list(groups.values())


def resources(launches: Sequence[Launch], compiled: Sequence[CompiledKernel]) -> Resources:
    """Resources of a program, ``compiled`` in the order of ``launches``.

    Threads, registers and shared memory are those of one kernel, the one that takes most shared memory (then most
    registers), because occupancy follows from them together. Spills and compile times are sums: one spilling
    kernel among several must show.
    """
    launch, kernel = max(
        zip(launches, compiled, strict=True),
        key=lambda pair: (pair[0].smem_bytes + (pair[1].static_smem_bytes or 0), pair[1].registers or 0),
    )
    different = dict(zip((launch.kernel for launch in launches), compiled, strict=True)).values()
    return Resources(
        nvrtc_version=kernel.nvrtc_version,
        threads=math.prod(launch.block),
        registers=kernel.registers,
        smem_bytes=None if kernel.static_smem_bytes is None else launch.smem_bytes + kernel.static_smem_bytes,
        spill_bytes=_sum(kernel.spill_bytes for kernel in different),
        compile_ms=_sum(kernel.compile_ms for kernel in different),
    )


def _sum(parts: Iterable[T | None]) -> T | int | None:
    """The sum; None if a part is not known."""
    total: T | int = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total
