"""What the emulator's checks must know of a program: which buffers hold data, which must be written, source lines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench import nvrtc
from fa_bench.algorithms.base import ELEMENT_BYTES, Buffer, KernelSpec, Program
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import DeviceUnavailable
from fa_bench.profiling.lines import LineTable

#: Bytes of shadow beside each byte of a buffer: its state, and four words (who wrote and read it, and when).
SHADOW_BYTES: Final = 17


def sanitizer(ptx: Any, program: Program) -> Any:
    """The shadow memory of a program: inputs hold data and must not be written, outputs must be.

    Parameters
    ----------
    ptx : module
        `fa_bench.ptx`.
    program : Program
    """

    def elements(buffer: Buffer) -> Any:
        itemsize = ELEMENT_BYTES[buffer.dtype]
        return ptx.Elements(itemsize, buffer.shape, tuple(stride * itemsize for stride in buffer.strides))

    by_role = {
        role: {buffer.name: elements(buffer) for buffer in program.buffers if buffer.role == role}
        for role in ("input", "output")
    }
    return ptx.Sanitizer(ptx.Checks(by_role["input"], by_role["output"]))


def shadow_bytes(program: Program) -> int:
    """Memory of a program's shadow, in bytes; inputs have none."""
    return SHADOW_BYTES * sum(buffer.nbytes for buffer in program.buffers if buffer.role != "input")


def slices_that_ran(program: Program, slices: Sequence[int] | None) -> dict[str, NDArray[np.bool_]]:
    """Of each output, which (batch, head) must be written, to be broadcast over its other axes; empty for all of it."""
    if slices is None:
        return {}
    masks = {}
    for buffer in program.buffers:
        if buffer.role == "output":
            lead = np.zeros(buffer.shape[0] * buffer.shape[1], bool)
            lead[list(slices)] = True
            masks[buffer.name] = lead.reshape(*buffer.shape[:2], *[1] * (len(buffer.shape) - 2))
    return masks


def with_lines(compiler: Callable[..., CompiledKernel]) -> Callable[[KernelSpec, str], CompiledKernel]:
    """A compiler that keeps source lines in the PTX; where there is just PTX that comes with fa-bench, it has none."""

    def compiled(spec: KernelSpec, sm: str) -> CompiledKernel:
        try:
            return compiler(spec, sm, lineinfo=True)
        except DeviceUnavailable:
            return compiler(spec, sm)

    return compiled


@functools.lru_cache(maxsize=16)
def source_lines(text: str) -> Callable[[int], str]:
    """From a line of this PTX to its source line, and where that was inlined; empty where the PTX does not say."""
    system = nvrtc.load().include if nvrtc.unavailable() is None else None
    return LineTable(text, "", system=system).chain
