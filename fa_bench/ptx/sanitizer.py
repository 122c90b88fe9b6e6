"""The shadow of a program's memory: which bytes hold data, who wrote them, and who may.

A :class:`Sanitizer` accompanies the launches of one program, so that what the first kernel wrote is known to hold data
when the second one reads it. What it finds ends the launch with a :class:`~fa_bench.errors.KernelFault`; generated code
does the looking (``ir/shadow_*.ll``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fa_bench.errors import KernelFault
from fa_bench.ptx.jit import CompiledKernel
from fa_bench.ptx.layout import (
    LANES,
    RACE_READ,
    RACE_WRITE,
    UNWRITTEN,
    Checker,
    Context,
    GlobalSite,
    Origin,
    Shadow,
    SharedSite,
)
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.program import Instruction
from fa_bench.ptx.worker import Worker, aligned, get, put

#: A launch looks at 16 bytes of a shadow at a time, also where fewer are asked for.
_BEHIND: Final = 16
#: CTAs that have numbers of their own in the words of the shadow.
_MAX_CTAS: Final = 1 << 32 - Checker.CTA_SHIFT
_BARRIERS: Final = 16


class Elements(NamedTuple):
    """Where the elements of a tensor lie in its buffer; bytes between them belong to nobody.

    Attributes
    ----------
    itemsize : int
        Bytes of an element.
    shape : tuple of int
    strides : tuple of int
        In bytes, not negative.
    """

    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def places(self) -> NDArray[np.int64]:
        """Offset of each element's first byte, in the shape of the tensor."""
        offsets = np.zeros(self.shape, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(extent, dtype=np.int64) * stride
            offsets += steps.reshape([-1 if k == axis else 1 for k in range(len(self.shape))])
        return offsets

    def index_of(self, offset: int) -> tuple[int, ...] | None:
        """Index of the element that holds the byte at ``offset``, or None if it is between elements.

        Examples
        --------
        >>> Elements(2, (3, 4), (16, 2)).index_of(19)
        (1, 1)
        """
        index = [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda k: self.strides[k], reverse=True):
            if self.shape[axis] > 1 and self.strides[axis] > 0:
                index[axis] = min(offset // self.strides[axis], self.shape[axis] - 1)
                offset -= index[axis] * self.strides[axis]
        return tuple(index) if 0 <= offset < self.itemsize else None


@dataclass(frozen=True)
class Checks:
    """What is known of a program's buffers before its first launch.

    A buffer that is in none of these holds nothing and may be written: a workspace. Variables of a module hold data.

    Parameters
    ----------
    inputs : mapping of str to Elements or None
        Hold data in their elements (None: in every byte) and must not be written.
    outputs : mapping of str to Elements or None
        Hold nothing; in the end each element (None: each byte) must have been written.
    initialised : frozenset of str
        Hold data and may be written.
    """

    inputs: Mapping[str, Elements | None] = field(default_factory=dict)
    outputs: Mapping[str, Elements | None] = field(default_factory=dict)
    initialised: frozenset[str] = frozenset()


class Sanitizer:
    """Shadow memory of one program, to be passed to each of its launches (``ptx.launch(..., checks=...)``).

    Parameters
    ----------
    checks : Checks
    """

    def __init__(self, checks: Checks) -> None:
        self.checks: Final = checks
        self._shadows: dict[str, _BufferShadow] = {}
        self._ctas = 0

    def written(self, name: str) -> NDArray[np.bool_]:
        """Of each byte of a buffer, whether a kernel has written it.

        Raises
        ------
        KeyError
            If no launch had that buffer.
        """
        states = self._shadows[name].states
        return (states & Shadow.WRITTEN).astype(bool)

    def require_outputs(self, parts: Mapping[str, NDArray[np.bool_]] = MappingProxyType({})) -> None:
        """To be called behind the last launch.

        Parameters
        ----------
        parts : mapping of str to ndarray of bool
            Of an output, which elements must have been written, to be broadcast to its shape; by default all.

        Raises
        ------
        KernelFault
            If an element of an output was never written; it names the first one and how many there are.
        """
        for name, elements in self.checks.outputs.items():
            written = self.written(name)
            layout = Elements(1, (written.size,), (1,)) if elements is None else elements
            places = layout.places()
            done = np.ones(layout.shape, bool)
            for byte in range(layout.itemsize):
                done &= written[places + byte]
            wanted = np.broadcast_to(parts.get(name, np.True_), layout.shape)
            missing = np.argwhere(wanted & ~done)
            if missing.size:
                index = missing[0].tolist()
                offset = int(places[tuple(index)])
                what = f"byte {offset} of {name}" if elements is None else f"{name}{index} (byte {offset})"
                others = f", nor were {len(missing) - 1:,} others of {int(wanted.sum()):,}" if len(missing) > 1 else ""
                raise KernelFault(f"The output {what} was never written{others}.")

    def element(self, name: str, offset: int) -> str:
        """What a message calls a place in a buffer, such as ``Q[0, 3, 17]``; empty if it has no shape."""
        layout = self.checks.inputs.get(name) or self.checks.outputs.get(name)
        index = None if layout is None else layout.index_of(offset)
        return "" if index is None else f"{name}{list(index)}"

    def watch(self, compiled: CompiledKernel, worker: Worker, memory: Memory, ctas: int) -> Watch:
        """Prepare a launch of ``ctas`` CTAs, one after the other on ``worker``.

        Parameters
        ----------
        compiled : CompiledKernel
            Of the mode ``checked``.
        worker : Worker
        memory : Memory
            Variables of the module included.
        ctas : int

        Raises
        ------
        ValueError
            If a buffer of the checks does not exist or has changed its size, or there are more CTAs than the shadow can
            tell apart.
        """
        names = [buffer.name for buffer in memory.buffers()]
        variables = set(compiled.kernel.storage.globals)
        for name in (*self.checks.inputs, *self.checks.outputs, *self.checks.initialised):
            if name not in names:
                raise ValueError(f"The checks name {name!r}, which is no buffer of the launch.")
        if ctas >= _MAX_CTAS:
            raise ValueError(f"Checks tell {_MAX_CTAS - 1:,} CTAs apart; this launch has {ctas:,}.")
        if self._ctas + ctas >= _MAX_CTAS:
            # Launches are in order: no access of an earlier one can race with one to come.
            for shadow in self._shadows.values():
                shadow.forget()
            self._ctas = 0
        for buffer in memory.buffers():
            known = self._shadows.get(buffer.name)
            if known is not None and known.nbytes != buffer.nbytes and buffer.name not in variables:
                raise ValueError(f"{buffer.name!r} has {buffer.nbytes} bytes; the checks know it with {known.nbytes}.")
            # A variable of another module may have the same name.
            if known is None or known.nbytes != buffer.nbytes:
                self._shadows[buffer.name] = self._shadow(buffer.name, buffer.nbytes, buffer.name in variables)
        watch = Watch(compiled, worker, [self._shadows[name] for name in names], self._ctas + 1, ctas)
        self._ctas += ctas
        return watch

    def _shadow(self, name: str, nbytes: int, variable: bool) -> _BufferShadow:
        if name not in self.checks.inputs:
            return _BufferShadow(nbytes, 0, variable or name in self.checks.initialised)
        elements = self.checks.inputs[name]
        if elements is None:
            return _BufferShadow(nbytes, Shadow.INPUT | Shadow.WHOLE, True)
        shadow = _BufferShadow(nbytes, Shadow.INPUT, False)
        places = elements.places()
        for byte in range(elements.itemsize):
            shadow.states[places + byte] = Shadow.HOLDS
        if shadow.states.all():
            return _BufferShadow(nbytes, Shadow.INPUT | Shadow.WHOLE, True)
        return shadow


class _BufferShadow:
    """What is known of one buffer's bytes; of an input that is whole there is nothing to keep."""

    def __init__(self, nbytes: int, flags: int, holds: bool) -> None:
        self.nbytes: Final = nbytes
        self.flags: Final = flags
        kept = 0 if flags & Shadow.WHOLE else nbytes
        whole = np.full(kept + _BEHIND, Shadow.HOLDS if holds else 0, np.uint8)
        self._padded = whole
        self.states: Final = whole[:kept]
        self.words: Final = [np.zeros(kept + _BEHIND, np.uint32) for _ in range(4)]

    def forget(self) -> None:
        """Forget who wrote and read."""
        for words in self.words:
            words.fill(0)

    def record(self, place: NDArray[np.uint8], offset: int) -> None:
        """Put the record that generated code reads at ``offset``."""
        pointers = [self._padded.ctypes.data, *(words.ctypes.data for words in self.words)]
        for field_offset, pointer in zip(
            (Shadow.STATES, Shadow.WRITES, Shadow.WRITERS, Shadow.READS, Shadow.READERS), pointers, strict=True
        ):
            put("<Q", place, offset + field_offset, pointer)
        put("<i", place, offset + Shadow.FLAGS, self.flags)


class Watch:
    """The shadow of one launch: shared and local memory of the CTA that runs, vector clocks, and the buffers'."""

    def __init__(
        self, compiled: CompiledKernel, worker: Worker, shadows: list[_BufferShadow], first_cta: int, ctas: int
    ) -> None:
        plan, warps = compiled.plan, worker.num_warps
        shared_bytes = worker.field(Context.SHARED_SIZE)
        row = 4 * (shared_bytes + _BEHIND)
        self.first_cta: Final = first_cta
        self._record = aligned(Checker.SIZE)
        self._buffers = aligned(max(len(shadows), 1) * Shadow.SIZE)
        for k, shadow in enumerate(shadows):
            shadow.record(self._buffers, k * Shadow.SIZE)
        self._parts = {
            Checker.CLOCKS: aligned(warps * Checker.ROW),
            Checker.ARRIVALS: aligned(_BARRIERS * Checker.ROW),
            Checker.EXITED: aligned(Checker.ROW),
            Checker.SYNC: aligned((shared_bytes // 4 + 1) * Checker.ROW),
            Checker.WRITES: aligned(row),
            Checker.WRITERS: aligned(row),
            Checker.READS: aligned(warps * row),
            Checker.READERS: aligned(warps * row),
            Checker.LOCAL: aligned(max(warps * plan.local_bytes, 1)),
            Checker.BUFFERS: self._buffers,
            Checker.RELEASES: aligned(4 * max(ctas, 1)),
        }
        for offset, part in self._parts.items():
            put("<Q", self._record, offset, part.ctypes.data)
        put("<q", self._record, Checker.PITCH, row)
        put("<ii", self._record, Checker.CTA, first_cta - 1, first_cta)
        put("<Q", worker.context, Context.CHECKER, self._record.ctypes.data)
        instructions = compiled.kernel.instructions
        for k, index in enumerate(plan.global_sites):
            origin = _origin(index, instructions[index], shared=False)
            put("<i", worker.tally.gsites, k * GlobalSite.STRIDE + GlobalSite.ORIGIN, origin)
        for k, index in enumerate(plan.shared_sites):
            origin = _origin(index, instructions[index], shared=True)
            put("<i", worker.tally.ssites, k * SharedSite.WAYS * SharedSite.SIZE + SharedSite.ORIGIN, origin)

    def field(self, offset: int, form: str = "<i") -> int:
        """One field of the checker's record."""
        return get(form, self._record, offset)[0]

    def take_pending(self, context: NDArray[np.uint8], kind: int) -> int:
        """The kind of fault to report: a read of what was never written, if it is pending and nothing explains it.

        What the kernel did with the poison that it read is no finding of its own; a race with the read is.
        """
        if not self.field(Checker.PENDING) or kind in (RACE_READ, RACE_WRITE):
            return kind
        for target, source in (
            (Context.FAULT_SITE, Checker.PENDING_SITE),
            (Context.FAULT_WARP, Checker.PENDING_WARP),
            (Context.FAULT_LANE, Checker.PENDING_LANE),
            (Context.FAULT_SIZE, Checker.PENDING_SIZE),
        ):
            put("<i", context, target, self.field(source))
        put("<Q", context, Context.FAULT_ADDRESS, self.field(Checker.PENDING_ADDRESS, "<Q"))
        put("<i", self._record, Checker.BYTE, self.field(Checker.PENDING_BYTE))
        return UNWRITTEN

    def other(self) -> tuple[int, int, int]:
        """Instruction, warp and lane of the access that a finding names beside its own."""
        who = self.field(Checker.OTHER)
        instruction = (who & Checker.WHO_INSTRUCTIONS) >> Checker.WHO_INSTRUCTION
        return instruction, who >> Checker.WHO_WARP & LANES - 1, who & LANES - 1


def _origin(index: int, instruction: Instruction, shared: bool) -> int:
    """``ORIGIN`` of an access site: which instruction it is, and what it promises about order.

    PTX ISA, "Memory Consistency Model": volatile, relaxed, acquire, release and atomic operations are strong among the
    threads of their scope; two strong accesses do not race. Between CTAs the scope ``.cta`` promises nothing.
    """
    op = instruction.row.op.partition(".")[0]
    atomic = op in ("atom", "red")
    ordered = atomic or any(instruction.has(word) for word in ("volatile", "relaxed", "acquire", "release", "acq_rel"))
    strong = ordered and (shared or not instruction.has("cta"))
    release = any(instruction.has(word) for word in ("release", "acq_rel"))
    copy = instruction.row.name == "cp.async"
    flags = strong * Origin.STRONG | release * Origin.RELEASE | copy * Origin.COPY
    return index << Origin.SHIFT | flags
